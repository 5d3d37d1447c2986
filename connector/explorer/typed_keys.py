"""Keys as the page takes them: whole ones as on the command line, and the beginnings of keys."""

from __future__ import annotations

import csv
import json
from typing import Any

import pyarrow as pa

from statestore.catalog.reads.arguments import as_key
from statestore.connector.key_text import is_binary, key_filters, of_json, of_text, readings_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import Filter

ANY = "*"
Part = tuple[str, tuple[str, ...], pa.DataType]
"""A part of a key: its column, the path within it, and its type."""


def typed_key(table: StateTable, text: str) -> tuple[Filter, ...]:
    """Return the conditions of a key, or of all keys that begin like it, as the table's engine compares keys.

    A key is typed as for ``statestore get``. Of a key with several columns, or of one column that is a struct, the
    first parts are enough: ``ada, 3``, ``["ada", 3]`` or ``{"user": "ada"}``. A text that ends in ``*`` stands for all
    texts that begin so. Raises InvalidInputError WRONG_KEY.
    """
    return as_key(table, table.schema(Query()), _conditions(table, text))


def _conditions(table: StateTable, text: str) -> tuple[Filter, ...]:
    parts = _parts(table)
    is_field = len(parts) == 1 and bool(parts[0][1]) and is_binary(parts[0][2])
    if is_field and len(readings := readings_of(text, parts[0][2])) > 1:
        return (Filter(parts[0][0], "in", readings, parts[0][1]),)
    given = _given(text.strip(), parts)
    if given is None:
        return key_filters(table, text, partial=True)
    found = []
    for (column, path, kind), value in zip(parts, given, strict=False):
        found.append(_condition(column, path, kind, value))
    return tuple(found)


def _parts(table: StateTable) -> list[Part]:
    schema = table.schema(Query())
    found: list[Part] = []
    for name in table.key_columns:
        kind = schema.field(name).type
        fields = list(kind) if pa.types.is_struct(kind) else []
        found += [(name, (field.name,), field.type) for field in fields] or [(name, (), kind)]
    return found


def _given(text: str, parts: list[Part]) -> list[Any] | None:
    """Return the first parts of a key as they were typed; None for a text that `key_filters` takes."""
    if not parts:
        return None
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict):
        names = [path[0] for _, path, _ in parts if path]
        count = len(parsed)
        is_begun = count < len(names) == len(parts) and list(names[:count]) == [n for n in names if n in parsed]
        return [parsed[name] for name in names[:count]] if is_begun and set(parsed) <= set(names) else None
    if len(parts) == 1:
        return [text] if _is_prefix(text, parts[0][2]) else None
    if isinstance(parsed, list):
        given = parsed
    else:
        given = [each.strip() for each in next(csv.reader([text], skipinitialspace=True), [])]
    if not 0 < len(given) <= len(parts):
        expected = ", ".join(".".join((column, *path)) for column, path, _ in parts)
        raise InvalidInputError(
            ErrorCode.WRONG_KEY, f"key {shown(text)}: found {len(given)} parts; expected the first ones of {expected}"
        )
    return given


def _condition(column: str, path: tuple[str, ...], kind: pa.DataType, value: Any) -> Filter:
    if isinstance(value, str) and _is_prefix(value, kind):
        return Filter(column, "starts_with", value.removesuffix(ANY), path)
    try:
        if value is None:
            return Filter(column, "is_null", None, path)
        return Filter(column, "=", (of_text if isinstance(value, str) else of_json)(value, kind), path)
    except (ArithmeticError, ValueError, TypeError, pa.ArrowException) as error:
        name = ".".join((column, *path))
        raise InvalidInputError(
            ErrorCode.WRONG_KEY, f"key column {name!r}: found {shown(value)}, expected {kind} ({error})"
        ) from error


def _is_prefix(text: str, kind: pa.DataType) -> bool:
    return text.endswith(ANY) and bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

"""Questions as the page writes them, in the parameters of an address: as queries of tables, as keys, and as the view
that it shows.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import pyarrow as pa

from statestore.catalog.engines.history_columns import ends_of
from statestore.catalog.reads.added_columns import VERSION_COLUMN
from statestore.catalog.reads.arguments import Point, as_key
from statestore.connector.key_text import is_binary, key_filters, of_json, of_text, readings_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.state_table import Mode, Query, StateTable
from statestore.formats.values.filters import NULL_TESTS, Filter, parse_filters, resolved
from statestore.formats.values.times import parse_time

MAX_NUMBER = 1 << 53
_DIGITS = re.compile(r"[0-9]{1,16}")


@dataclass(frozen=True)
class Sorting:
    """The order of rows by one column."""

    column: str
    descending: bool
    nulls_first: bool = False


def query_of(table: StateTable, given: Mapping[str, str], mode: Mode = "state") -> Query:
    """Return the query of the parameters of an address.

    They are ``as_of``; ``version``, without which it is the newest one that the page has ``seen``, so that the rows are
    those of the version that it names, whoever renews the place; ``key`` (see `_typed_key`); and ``where`` (a JSON
    array of [column, operator, value]). An equality of a history names a key, and so does "is" everywhere: it is as the
    table's engine compares keys. Raises InvalidInputError for what is not understood.
    """
    version = number_of(given, "version", None)
    if version is None:
        version = number_of(given, "seen", None)
    as_of = given.get("as_of") or None
    query = Query(
        mode=mode, version=version, as_of=None if as_of is None or mode != "state" else parse_time(as_of, "as of")
    )
    filters: tuple[Filter, ...] = ()
    if given.get("key"):
        filters = _typed_key(table, given["key"])
    return replace(query, filters=(*filters, *_conditions(table, query, given.get("where") or "[]")))


def number_of(given: Mapping[str, str], name: str, default: int | None) -> int | None:
    """Return a whole number of a parameter. Raises InvalidInputError INVALID_OPTION for anything else."""
    text = given.get(name) or ""
    if not text:
        return default
    if not _DIGITS.fullmatch(text) or int(text) > MAX_NUMBER:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"{name} is {shown(text)}; expected a whole number")
    return int(text)


def names_of(given: Mapping[str, str], name: str) -> list[str]:
    """Return the texts of a JSON array. Raises InvalidInputError INVALID_OPTION for anything else."""
    text = given.get(name) or "[]"
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"{name} is {shown(text)}; expected a JSON array of texts")
    return found


def sorting_of(table: StateTable, given: Mapping[str, str]) -> Sorting | None:
    """Return the column of ``sort``; one that begins with a minus sorts the greatest first."""
    text = given.get("sort") or ""
    if not text:
        return None
    name = text.removeprefix("-")
    names = table.schema(Query()).names
    if name not in names:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"sort is {shown(text)}; expected one of {', '.join(names)}, or that after a minus",
        )
    return Sorting(name, text.startswith("-"))


def _conditions(table: StateTable, query: Query, text: str) -> tuple[Filter, ...]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, list) or not all(isinstance(each, list) for each in given):
        raise InvalidInputError(
            ErrorCode.INVALID_FILTER, f"where is {shown(text)}; expected a JSON array of [column, operator, value]"
        )
    schema = table.schema(query)
    found = resolved(parse_filters([tuple(each) for each in given]), schema.names)
    typed = [_typed(each, schema) for each in found]
    of_key = [(each.exact or query.mode == "history") and each.column in schema.names for each in typed]
    return tuple(
        as_key(table, schema, [each])[0] if is_key else each for each, is_key in zip(typed, of_key, strict=True)
    )


def _typed(each: Filter, schema: pa.Schema) -> Filter:
    """Return the condition with its value in the type of its column."""
    if each.op in NULL_TESTS or each.column not in schema.names:
        return each
    kind = schema.field(each.column).type
    for name in each.path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return each
        kind = kind.field(name).type
    as_json = pa.types.is_binary(kind) or not isinstance(each.value, str)
    read = of_json if as_json else of_text
    try:
        value: Any = tuple(of_json(one, kind) for one in each.value) if each.op == "in" else read(each.value, kind)
    except (ArithmeticError, ValueError, TypeError, pa.ArrowException) as error:
        raise InvalidInputError(
            ErrorCode.INVALID_FILTER, f"{each.name} {each.op} {shown(each.value)}: expected {kind} ({error})"
        ) from error
    return replace(each, value=value)


# Keys as the page takes them: whole ones as on the command line, and the beginnings of keys.

ANY = "*"
Part = tuple[str, tuple[str, ...], pa.DataType]
"""A part of a key: its column, the path within it, and its type."""


def _typed_key(table: StateTable, text: str) -> tuple[Filter, ...]:
    """Return the conditions of a key, or of all keys that begin like it, as the table's engine compares keys.

    A key is typed as for ``statestore get``. Of a key with several columns, or of one column that is a struct, the
    first parts are enough: ``ada, 3``, ``["ada", 3]`` or ``{"user": "ada"}``. A text that ends in ``*`` stands for all
    texts that begin so. Raises InvalidInputError WRONG_KEY.
    """
    return as_key(table, table.schema(Query()), _key_conditions(table, text))


def _key_conditions(table: StateTable, text: str) -> tuple[Filter, ...]:
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


# The view that the page shows: a state, the life of a key, or the comparison of two moments.

Kind = Literal["state", "life", "compare"]
NOW = Point()


@dataclass(frozen=True)
class ShownView:
    """The ``kind`` of view with its moments and filters. ``old`` is used by comparisons alone, and ``key`` is the text
    of the key of a life, if it was typed."""

    kind: Kind
    new: Point = NOW
    old: Point = NOW
    filters: Sequence[Filter] = ()
    sorting: Sorting | None = None
    key: str = ""

    def life_start(self, table: StateTable) -> str:
        """Return the column by which a life is ordered, in which a null is older than all else."""
        return ends_of(self.life_columns(table))[0]

    def life_columns(self, table: StateTable) -> list[str]:
        """Return the columns of a life: those of the state, and the interval and the commit of each version."""
        names = table.schema(Query(mode="history")).names
        return list(dict.fromkeys((*names, *ends_of(names), VERSION_COLUMN)))


def view_of(table: StateTable, given: Mapping[str, str]) -> ShownView:
    """Return the view of ``kind`` with the parameters of the questions that the page asks for it.

    Raises InvalidInputError for what is not understood.
    """
    kind = given.get("kind") or "state"
    if kind == "state":
        query = query_of(table, given)
        return ShownView("state", Point(query.version, query.as_of), Point(), query.filters, sorting_of(table, given))
    if kind == "life":
        query = query_of(table, {"key": given.get("key", ""), "where": given.get("where", "")}, "history")
        if not query.filters:
            raise InvalidInputError(ErrorCode.MISSING_OPTION, "key: type a key, or its first parts")
        return ShownView("life", filters=query.filters, key=given.get("key", ""))
    if kind == "compare":
        filters = query_of(table, {"where": given.get("where", "")}).filters
        return ShownView("compare", point_of(given, "to_"), point_of(given, "from_"), filters)
    raise InvalidInputError(
        ErrorCode.INVALID_OPTION, f"kind is {shown(kind)}; expected one of {', '.join(get_args(Kind))}"
    )


def point_of(given: Mapping[str, str], prefix: str) -> Point:
    """Return the moment of ``…version`` and ``…as_of``."""
    as_of = given.get(f"{prefix}as_of") or None
    moment = None if as_of is None else parse_time(as_of, f"{prefix}as_of")
    return Point(number_of(given, f"{prefix}version", None), moment)

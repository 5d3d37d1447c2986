"""Questions as the page writes them, in the parameters of an address, as queries of tables."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from statestore.catalog.reads.arguments import as_key
from statestore.connector.explorer.typed_keys import typed_key
from statestore.connector.key_text import of_json, of_text
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
    those of the version that it names, whoever renews the place; ``key`` (see `typed_key`); and ``where`` (a JSON array
    of [column, operator, value]). An equality of a history names a key, and so does "is" everywhere: it is as the
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
        filters = typed_key(table, given["key"])
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

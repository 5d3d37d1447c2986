"""Arguments of reads as users give them: points, keys, as filters on the columns that a table looks up, and names of
arguments.

The columns that a key names are those of the first set in `StateTable.lookup_columns` that fits: for a dict the set
with these names, for a tuple the set with as many columns, for anything else the single column. Where no set fits, or
the key cannot be one of that set, it is one of the smallest set, and `KeyValues` reads it or refuses it. So a tuple of
two is the key and the map key of a map state, and the two fields of a key that is a struct where it cannot be those.

A range has one spelling; an error for any other one names it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, close_matches
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.canonical import of_scalars
from statestore.formats.values.comparison import has_floats
from statestore.formats.values.filters import Filter, key_lookups, with_whole_structs
from statestore.formats.values.key_codec import KeyValues, Row
from statestore.formats.values.times import format_time


@dataclass(frozen=True)
class Point:
    """A version (None: the newest) and a state time in epoch microseconds (None: the newest of that version)."""

    version: int | None = None
    as_of: int | None = None

    def __str__(self) -> str:
        version = [] if self.version is None else [f"version {self.version}"]
        moment = [] if self.as_of is None else [format_time(self.as_of)]
        return " at ".join(version + moment) or "now"


def key_filters(table: StateTable, key: Any) -> tuple[Filter, ...]:
    """Return filters for equality on the columns of a key, as the table's engine compares keys.

    Raises InvalidInputError WRONG_KEY or NULL_KEY.
    """
    schema, key = table.schema(Query()), of_scalars(key)
    names, *others = _named(table, key)
    try:
        cells = _cells(schema, names, key)
    except InvalidInputError:
        found = next(filter(None, (_readable(schema, other, key) for other in others)), None)
        if found is None:
            raise
        names, cells = found
    return as_key(table, schema, [Filter(n, "=", cell) for n, cell in zip(names, cells, strict=True)])


def keys_named(table: StateTable, query: Query) -> int | None:
    """Return the number of keys to which the filters of a query limit its rows; None where they name no whole keys by
    which the table looks rows up."""
    if not query.filters:
        return None
    filters = query.filters
    if any(item.path for item in filters):
        filters = with_whole_structs(filters, table.schema(replace(query, columns=None, fields=())))
    found = (key_lookups(filters, names) for names in table.lookup_columns if names)
    return next((len(keys) for keys in found if keys is not None), None)


def _cells(schema: pa.Schema, names: tuple[str, ...], key: Any) -> Row:
    columns = pa.schema([schema.field(name) for name in names])
    if _is_null_field(columns, key):
        key = (key,)
    return KeyValues(columns).normalize(key)


def _is_null_field(columns: pa.Schema, key: Any) -> bool:
    """Return whether a dict is a struct whose one field is null, and has the name of the column: the other reading, a
    column that is null, is no key.
    """
    first = columns.field(0)
    if len(columns) > 1 or not isinstance(key, Mapping) or dict(key) != {first.name: None}:
        return False
    return pa.types.is_struct(first.type) and [field.name for field in first.type] == [first.name]


def _readable(schema: pa.Schema, names: tuple[str, ...], key: Any) -> tuple[tuple[str, ...], Row] | None:
    try:
        return names, _cells(schema, names, key)
    except InvalidInputError:
        return None


def as_key(table: StateTable, schema: pa.Schema, filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """Return filters with equality as the table's engine compares keys, in place of that of values.

    Most engines keep 0.0 and -0.0 as two keys, and a key is then the one that was named. One that makes a single zero
    of them stores neither as the other, so both names find it. ``schema`` are the columns of the table.
    """
    return tuple(replace(each, exact=_is_exact(table, schema, each)) for each in filters)


def _is_exact(table: StateTable, schema: pa.Schema, item: Filter) -> bool:
    return item.op == "=" and keeps_both_zeros(table, schema.field(item.column).type)


def keeps_both_zeros(table: StateTable, kind: pa.DataType) -> bool:
    """Return whether keys of a type that differ in bits are two keys of the table's engine, 0.0 and -0.0 included."""
    # Only floats have zeros of two signs, and the question may cost a look at the files of an engine.
    return not (has_floats(kind) and table.one_zero)


def _named(table: StateTable, key: Any) -> tuple[tuple[str, ...], ...]:
    """Return the sets of columns that a key may name: the key columns, or also those that distinguish its rows."""
    choices = table.lookup_columns
    if isinstance(key, Mapping):
        fit = [names for names in choices if set(names) == set(key)]
    else:
        count = len(key) if isinstance(key, tuple) else 1
        fit = [names for names in choices if len(names) == count]
    return tuple(dict.fromkeys((*fit[:1], choices[0])))


Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")

RANGE = ("start_version", "end_version", "start_time", "end_time")
_ENDS = {"starting": "start", "start": "start", "from": "start", "since": "start", "first": "start", "begin": "start"}
_ENDS |= {"ending": "end", "end": "end", "to": "end", "until": "end", "last": "end"}
_UNITS = {"version": "version", "commit": "version", "batch": "version", "batchid": "version"}
_UNITS |= {"time": "time", "timestamp": "time", "date": "time", "moment": "time"}
_POINTS = {"timestampasof": "as_of", "timestamp": "as_of", "asoftime": "as_of", "time": "as_of", "at": "as_of"}
_POINTS |= {"asof": "as_of", "versionasof": "version", "asofversion": "version", "commit": "version"}
_RANGED = re.compile(f"({'|'.join(_ENDS)})(.*)")


def right_names(given: str, known: Sequence[str]) -> list[str]:
    """Return the names of ``known`` that another spelling means; none if nothing is close to it.

    ``startingVersion``, ``from_version`` and ``since-commit`` mean ``start_version``; ``start`` may mean
    ``start_version`` or ``start_time``.
    """
    word = re.sub(r"[^a-z]", "", given.lower())
    ranged = _RANGED.fullmatch(word)
    meant = [_POINTS[word]] if word in _POINTS else []
    if ranged is not None and (not ranged[2] or ranged[2] in _UNITS):
        units = [_UNITS[ranged[2]]] if ranged[2] else ["version", "time"]
        meant = [f"{_ENDS[ranged[1]]}_{unit}" for unit in units]
    return [name for name in meant if name in known] or close_matches(given.lower(), known, 2, 0.5)


def unknown_argument(call: str, given: str, known: Sequence[str]) -> str:
    """Return the message for an argument that ``call`` does not have."""
    names = right_names(given, known)
    hint = f"write {' or '.join(names)}" if names else f"it has {', '.join(known)}"
    return f"{call}(…) has no argument {given!r}; {hint}"


def one_spelling(
    **also: str,
) -> Callable[[Callable[Arguments, Answer]], Callable[Arguments, Answer]]:
    """Refuse arguments by a name that a read does not have. ``also``: names that older programs use, and their
    present names.

    Raises InvalidInputError UNKNOWN_OPTION, which names the right spelling.
    """

    def checked(read: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
        code = read.__code__
        known = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
        names = frozenset(known)

        @functools.wraps(read)
        def named(*args: Arguments.args, **given: Arguments.kwargs) -> Answer:
            if not given.keys() <= names:
                given = _renamed(read.__name__, given, known, also)  # type: ignore[assignment]
            return read(*args, **given)

        return named

    return checked


def _renamed(call: str, given: Mapping[str, Any], known: Sequence[str], also: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments by their present names. Raises InvalidInputError UNKNOWN_OPTION."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        present = name if name in known else also.get(name)
        if present is None:
            raise InvalidInputError(ErrorCode.UNKNOWN_OPTION, unknown_argument(call, name, known))
        if present in found:
            raise InvalidInputError(ErrorCode.UNKNOWN_OPTION, f"{call}(…) is given {present} twice; write it once")
        found[present] = value
    return found

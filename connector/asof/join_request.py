"""The checked arguments of an as-of join: the table and version, the pairs of key columns, the added columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from statestore.catalog.reads.arguments import keeps_both_zeros
from statestore.catalog.reads.table import Table
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.stores.store_handle import StoreHandle
from statestore.catalog.warehouse import open_table
from statestore.connector.collated_keys import check_not_collated
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, UnsupportedError, shown
from statestore.formats.state_table import Query, StateTable, column_names
from statestore.formats.table_columns import unknown_column, unknown_row_column
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.times import format_time
from statestore.formats.values.types import check_encodable

How = Literal["inner", "left"]
On = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True)
class AsofRequest:
    """A join of left rows with the history of ``table``, which is pinned; picklable.

    ``live`` is the table without a pinned version, for streams that read the newest one each time. ``keys``: (left
    column, key column) pairs in order of the table's key. ``added``: (column of the history, its name in the result).
    ``floor``: state times (epoch microseconds) before it find only versions that are still the newest. ``known_from``:
    the first state time (epoch microseconds) from which the table's state is known; None: it is known for all times.
    ``by_bits``: keys of other bits are other keys, because the table's engine keeps 0.0 and -0.0 as two.
    """

    table: StateTable
    live: StateTable
    keys: tuple[tuple[str, str], ...]
    left_time: str
    how: How
    added: tuple[tuple[str, str], ...]
    version: int
    floor: int | None
    known_from: int | None
    by_bits: bool

    @property
    def left_keys(self) -> list[str]:
        return [left for left, _ in self.keys]

    @property
    def key_columns(self) -> list[str]:
        return [column for _, column in self.keys]

    def cells(self, keys: Sequence[pa.Array]) -> list[pa.Array]:
        """Return key columns in the form of `comparable`, in which keys that the table's engine takes as one have equal
        bits."""
        return [comparable(column, by_bits=self.by_bits) for column in keys]

    def history(self, first: int, last: int) -> Query:
        """The versions that rows with times from ``first`` to ``last`` (epoch microseconds) can meet."""
        floor = first if self.floor is None else max(first, self.floor)
        names = [*self.key_columns, *(name for name, _ in self.added), "valid_from", "valid_to"]
        return Query(
            mode="history",
            columns=tuple(dict.fromkeys(names)),
            version=self.version,
            start_time=floor,
            end_time=max(floor, last),
        )

    def at_newest(self, table: StateTable) -> AsofRequest:
        """Return this request at the newest version that ``table`` has now."""
        now = table.for_plan()
        version = now.kept_versions()[1]
        floor, since = now.lookup_floor(version), now.known_from(version)
        return replace(self, table=now, version=version, floor=floor, known_from=since)

    def check_times(self, first: int) -> None:
        """Raise NotFoundError TIME_NOT_KEPT if left rows begin at ``first`` (epoch microseconds), before the known
        state of the table. Such a row may have had a value at its time, so neither a value nor its absence is an
        answer."""
        if self.known_from is not None and first < self.known_from:
            raise NotFoundError(
                ErrorCode.TIME_NOT_KEPT,
                f"{self.table.name!r} is known from {format_time(self.known_from)} on, and column {self.left_time!r} "
                f"begins with {format_time(first)}, when its keys may have had values that are not kept; leave out "
                f"the left rows before {format_time(self.known_from)}",
            )

    def added_schema(self) -> pa.Schema:
        """The columns that the result has after those of the left side."""
        schema = self.table.schema(replace(self.history(0, 0), columns=tuple(name for name, _ in self.added)))
        return pa.schema([field.with_name(shown) for field, (_, shown) in zip(schema, self.added, strict=True)])


def make_request(
    left_names: Sequence[str],
    store: Any,
    on: On,
    left_time: str,
    how: str,
    columns: Iterable[str] | None,
    prefix: str,
    version: int | None,
) -> AsofRequest:
    """Check the arguments.

    Raises InvalidInputError INVALID_OPTION, WRONG_KEY, NAME_CLASH or, of the left side, COLUMN_NOT_FOUND; NotFoundError
    COLUMN_NOT_FOUND of the table.
    """
    if not isinstance(how, str) or how not in ("inner", "left"):
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"how is {shown(how)}; an as-of join is 'inner' or 'left'")
    live = table_of(store)
    table = live.pin()
    keys = _key_pairs(table, on)
    for name in (*(left for left, _ in keys), left_time):
        if not isinstance(name, str) or name not in left_names:
            raise unknown_row_column(name, "the rows of the left side", left_names)
    check_not_collated(table.schema(Query()), [column for _, column in keys])
    added = _added(table, columns, prefix, [column for _, column in keys])
    clashing = [shown for _, shown in added if shown in left_names]
    if clashing:
        raise InvalidInputError(
            ErrorCode.NAME_CLASH,
            f"both sides have a column {clashing[0]!r}; give prefix='…' for the columns of {table.name!r}, or name "
            "the columns you want in columns",
        )
    now = table.for_plan()
    pinned = now.kept_versions()[1] if version is None else version
    how_: How = "inner" if how == "inner" else "left"
    floor, since = now.lookup_floor(pinned), now.known_from(pinned)
    schema = now.schema(Query())
    by_bits = all(keeps_both_zeros(now, schema.field(column).type) for _, column in keys)
    return AsofRequest(table, live, keys, left_time, how_, added, pinned, floor, since, by_bits)


def table_of(store: Any) -> StateTable:
    """The table of an open store, of ``inspect(…).table(…)``, or of a path like "warehouse/prices"."""
    if isinstance(store, str | Path):
        return open_table(store)
    if isinstance(store, StoreHandle | Table):
        return store.table
    raise InvalidInputError(
        ErrorCode.WRONG_INPUT,
        f"store is {type(store).__name__}; expected an open store, a table of inspect(…) or a path",
    )


def _key_pairs(table: StateTable, on: On) -> tuple[tuple[str, str], ...]:
    if isinstance(on, str):
        pairs = {on: on} if len(table.key_columns) != 1 else {on: table.key_columns[0]}
    elif isinstance(on, Mapping):
        pairs = dict(on)
    else:
        pairs = {name: name for name in column_names(on, "on")}
    if not all(isinstance(name, str) for name in pairs.values()):
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"on is {shown(on)}; expected names of key columns as its values"
        )
    by_key = {column: left for left, column in pairs.items()}
    names = tuple(dict.fromkeys((*table.key_columns, *table.row_key)))
    if not set(table.key_columns) <= set(by_key) <= set(names) or not by_key or len(by_key) != len(pairs):
        raise InvalidInputError(
            ErrorCode.WRONG_KEY,
            f"on is {shown(on)}; {table.name!r} is keyed by {', '.join(names) or 'nothing'}: name each of "
            "these, or give {left column: key column}",
        )
    _check_single_rows(table, by_key)
    return tuple((by_key[column], column) for column in names)


def _check_single_rows(table: StateTable, named: Collection[str]) -> None:
    """Raise UnsupportedError JOIN_KIND where a key has several rows at a time, so that no single value can be
    joined."""
    kind = f"a {table.spec.kind} store" if isinstance(table, VersionedTable) else "state"
    if not table.row_key:
        raise UnsupportedError(
            ErrorCode.JOIN_KIND,
            f"{table.name!r} is {kind} in which a key may have several rows at a time, also equal ones, so no row "
            "can be chosen to join; first aggregate its rows to one a key and time (its history has all of them)",
        )
    further = [name for name in table.row_key if name not in named]
    if further:
        raise UnsupportedError(
            ErrorCode.JOIN_KIND,
            f"{table.name!r} is {kind} in which a key has several rows at a time, distinguished by "
            f"{', '.join(further)}; "
            f"on names {', '.join(named)}: add {', '.join(further)}, or aggregate its rows to one a key and time first",
        )


def _added(
    table: StateTable, columns: Iterable[str] | None, prefix: str, keys: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    schema = table.schema(Query(mode="history"))
    own = {"valid_from", "valid_to", "_commit_version", *keys}
    if not isinstance(prefix, str):
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"prefix is {shown(prefix)}; expected a text")
    check_encodable(prefix, "prefix")
    asked = [name for name in schema.names if name not in own] if columns is None else column_names(columns, "columns")
    unknown = [name for name in asked if name not in schema.names]
    if unknown:
        raise unknown_column(unknown[0], repr(table.name), schema.names)
    return tuple((name, prefix + name) for name in asked)

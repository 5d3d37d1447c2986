"""`scan`, `history`, `changes` and `diff` in Python, for any `StateTable`: a store, a metadata table, or an engine's
state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from statestore.catalog.reads.difference import Point, difference
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.state_table import Query, StateTable, column_names
from statestore.formats.values.filters import parse_filters
from statestore.formats.values.key_codec import KeyValues
from statestore.formats.values.times import Time, to_us


@dataclass(frozen=True)
class ReadableTable:
    """A table with its reads. Times are epoch milliseconds or aware datetimes.

    Rows come by segment, not in key order. Every read raises NotFoundError for an unknown column and for a version or
    time outside the kept range, InvalidInputError for a bad filter or time.
    """

    table: StateTable

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of a scan."""
        return self.table.schema(Query())

    def scan(
        self,
        as_of: Time | None = None,
        version: int | None = None,
        columns: Iterable[str] | None = None,
        filter: Any = None,
    ) -> pa.RecordBatchReader:
        """Read the rows valid at ``as_of`` (default: now) as recorded by commit ``version`` (default: the newest)."""
        return read(self.table, Query(as_of=_us(as_of, "as_of"), version=version), columns, filter)

    def history(
        self,
        key: Any = None,
        start: Time | None = None,
        end: Time | None = None,
        version: int | None = None,
        columns: Iterable[str] | None = None,
        filter: Any = None,
    ) -> pa.RecordBatchReader:
        """Read every version with its interval, of one key or all, valid at some moment from ``start`` to ``end``.

        A null in ``valid_from`` and ``_commit_version`` means that the row existed when the kept history begins, and
        that its beginning is unknown.
        """
        query = Query(mode="history", version=version, start_time=_us(start, "start"), end_time=_us(end, "end"))
        filters = list(parse_filters(filter))
        if key is not None:
            names = _named(self.table, key)
            codec = KeyValues(pa.schema([self.schema.field(name) for name in names]))
            filters += parse_filters([(n, "=", cell) for n, cell in zip(names, codec.normalize(key), strict=True)])
        return read(self.table, query, columns, filters)

    def changes(
        self,
        start_version: int | None = None,
        end_version: int | None = None,
        start_timestamp: Time | None = None,
        end_timestamp: Time | None = None,
        columns: Iterable[str] | None = None,
        filter: Any = None,
    ) -> pa.RecordBatchReader:
        """Read the change feed, by commit version or by state time, both ends inclusive."""
        query = Query(
            mode="changes",
            start_version=start_version,
            end_version=end_version,
            start_time=_us(start_timestamp, "start_timestamp"),
            end_time=_us(end_timestamp, "end_timestamp"),
        )
        return read(self.table, query, columns, filter)

    def diff(
        self,
        start_version: int | None = None,
        end_version: int | None = None,
        start_timestamp: Time | None = None,
        end_timestamp: Time | None = None,
        columns: Iterable[str] | None = None,
    ) -> pa.RecordBatchReader:
        """Read the rows that differ between two points, each a version, a state time or both; without an end: now.

        Columns: ``_change`` (``added``, ``changed``, ``removed``), the key, ``_old`` and ``_new`` (structs of the
        values) and ``_changed_columns``. With ``columns`` only these value columns are compared. The start may be later
        than the end; the result is then the changes that undo the difference.
        """
        if start_version is None and start_timestamp is None:
            raise InvalidInputError(ErrorCode.MISSING_OPTION, "diff: give start_version, start_timestamp or both")
        old = Point(start_version, _us(start_timestamp, "start_timestamp"))
        new = Point(end_version, _us(end_timestamp, "end_timestamp"))
        return difference(self.table, old, new, columns)


def _named(table: StateTable, key: Any) -> tuple[str, ...]:
    """Return the columns that a key names: the key columns, or also the columns that distinguish its rows."""
    choices = table.lookup_columns
    if isinstance(key, Mapping):
        return next((names for names in choices if set(names) == set(key)), choices[0])
    count = len(key) if isinstance(key, tuple) else 1
    return next((names for names in choices if len(names) == count), choices[0])


def read(table: StateTable, query: Query, columns: Iterable[str] | None, filter: Any) -> pa.RecordBatchReader:
    """Read all splits of a query one after the other, lazily."""
    table = table.pin()
    asked = None if columns is None else column_names(columns, "columns")
    query = replace(query, columns=asked, filters=parse_filters(filter))
    if asked == ():  # rows without columns are still counted: one column is read and dropped
        query = replace(query, columns=tuple(table.schema(replace(query, columns=None)).names[:1]))
    schema = table.schema(query)
    splits = table.splits(query)
    batches = (b for split in splits for b in table.read(split, query))
    if asked == ():
        return pa.RecordBatchReader.from_batches(pa.schema([]), (b.select([]) for b in batches))
    return pa.RecordBatchReader.from_batches(schema, batches)


def _us(time: Time | None, what: str) -> int | None:
    return None if time is None else to_us(time, what)

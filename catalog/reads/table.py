"""The reads of Python, for any `StateTable`: a store, a metadata table, or an engine's state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa

from statestore.catalog.reads.arguments import Point, key_filters, one_spelling
from statestore.catalog.reads.rows import Pieces, Rows, begun_again
from statestore.catalog.reads.shown import Facts, ShowsItself, columns_of, contents_of, shown_columns
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, shown
from statestore.formats.replaced_versions import again
from statestore.formats.state_table import (
    Query,
    Split,
    StateTable,
    column_names,
)
from statestore.formats.values.filters import Filter, has_texts, parse_filters, resolved, with_times
from statestore.formats.values.python_times import python_rows
from statestore.formats.values.times import Time, format_time, to_us


class Reads(ShowsItself):
    """The reads that tables and open stores share. Times are epoch milliseconds, aware datetimes or texts like
    2024-05-01T09:30Z.

    The reads return `Rows`, by segment, not in key order. Every read raises NotFoundError for an unknown column and for
    a version or time outside the kept range, InvalidInputError for a bad filter or time, or an argument by another
    name.
    """

    table: StateTable

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def schema(self) -> pa.Schema:
        """The columns of a scan."""
        return self._asked().schema(Query())

    @one_spelling()
    def scan(
        self,
        as_of: Time | None = None,
        version: int | None = None,
        columns: Iterable[str] | None = None,
        filter: Any = None,
    ) -> Rows:
        """Read the rows valid at ``as_of`` (default: now) as recorded by commit ``version`` (default: the newest).

        Columns: key, value, for a store ``valid_from`` and ``valid_to`` (null while open), and ``_commit_version`` on
        request. ``filter``: ("price", ">", 5) or a list of such, all of which must hold. In it "=" takes 0.0 and -0.0
        for equal, and "is" tells them apart; it compares maps, too.
        """
        return read(self._asked(), Query(as_of=_us(as_of, "as_of"), version=version), columns, filter)

    @one_spelling(start="start_time", end="end_time")
    def history(
        self,
        key: Any = None,
        start_time: Time | None = None,
        end_time: Time | None = None,
        version: int | None = None,
        columns: Iterable[str] | None = None,
        filter: Any = None,
    ) -> Rows:
        """Read every version with its interval, of one key or all, valid at some moment from ``start_time`` to
        ``end_time``.

        ``key`` is written as for `get`. Both ends are inclusive. Versions are as recorded by commit ``version``;
        ``_commit_version`` is the commit that wrote each.
        A null in ``valid_from`` and ``_commit_version`` means that the row existed when the kept history begins, and
        that its beginning is unknown. Where no version of an engine's state has a known time, the history has no times:
        ``_end_version`` is then the first version without the row, null for a row that is still there.
        """
        start, end = _us(start_time, "start_time"), _us(end_time, "end_time")
        asked = None if columns is None else column_names(columns, "columns")
        if key is not None and version is None and filter is None:
            found = self._history_of(key, Query(asked, mode="history", start_time=start, end_time=end))
            if found is not None:
                return found
        query = Query(mode="history", version=version, start_time=start, end_time=end)
        table, filters = self._asked(), parse_filters(filter)
        if key is not None:
            filters = (*filters, *key_filters(table, key))
        return read(table, query, asked, filters)

    def _history_of(self, key: Any, query: Query) -> Rows | None:
        """Return the history of one key by a shorter way than a scan; None where the table has none."""
        return None

    @one_spelling()
    def changes(
        self,
        start_version: int | None = None,
        end_version: int | None = None,
        start_time: Time | None = None,
        end_time: Time | None = None,
        columns: Iterable[str] | None = None,
        filter: Any = None,
    ) -> Rows:
        """Read the change feed, by commit version or by state time, both ends inclusive.

        Columns: those of the rows, ``_change_type`` (``insert``, ``update_preimage``, ``update_postimage``,
        ``delete``), ``_commit_version``, ``_commit_timestamp``. Rows come by version and state time within each split.
        """
        query = Query(
            mode="changes",
            start_version=start_version,
            end_version=end_version,
            start_time=_us(start_time, "start_time"),
            end_time=_us(end_time, "end_time"),
        )
        return read(self._asked(), query, columns, filter)

    @one_spelling()
    def diff(
        self,
        start_version: int | None = None,
        end_version: int | None = None,
        start_time: Time | None = None,
        end_time: Time | None = None,
        columns: Iterable[str] | None = None,
    ) -> Rows:
        """Read the rows that differ between two points, each a version, a state time or both; without an end: now.

        Columns: ``_change`` (``added``, ``changed``, ``removed``), the key, ``_old`` and ``_new`` (structs of the
        values) and ``_changed_columns``. With ``columns`` only these value columns are compared. The start may be later
        than the end; the result is then the changes that undo the difference.
        """
        from statestore.catalog.reads.difference import difference

        if start_version is None and start_time is None:
            raise InvalidInputError(ErrorCode.MISSING_OPTION, "diff: give start_version, start_time or both")
        old = Point(start_version, _us(start_time, "start_time"))
        new = Point(end_version, _us(end_time, "end_time"))
        return begun_again(lambda: difference(self._asked(), old, new, columns))

    def compare(self, other: Reads, columns: Iterable[str] | None = None, filter: Any = None) -> Rows:
        """Read the rows in which another table of the same kind differs from this one now, in the columns of `diff`.

        A row is ``added`` if only ``other`` has it. A local state directory is so compared with its changelog, or a
        checkpoint with its copy. Columns that only one table has are left out. ``filter`` is on columns of both.
        """
        from statestore.catalog.reads.difference import compare

        filters = parse_filters(filter)

        def compared() -> Rows:
            table = self._asked()
            return compare(table, other._asked(), columns, _understood(table, Query(), filters))

        return begun_again(compared)

    def versions(self) -> pa.Table:
        """Return one row per version, oldest first: time, operation, writer, transaction, stream time, rows, bytes.

        The columns are those of the metadata table ``$versions``; unknown facts are null.
        """
        return self._asked().versions()

    def _asked(self) -> StateTable:
        """Return the table to read. An open store first checks that it was not closed."""
        return self.table


@dataclass(frozen=True, repr=False)
class Table(Reads):
    """A table of a warehouse, or of an engine's state, with its reads: `scan`, `get`, `history`, `changes`, `diff`,
    `versions`.

    ``table`` is the table as doors read it (``statestore.formats.state_table``). Where it is not
    local, its text says less, so that it costs no requests.
    """

    table: StateTable
    _is_local: bool = field(default=True, compare=False)

    @one_spelling()
    def get(self, key: Any, as_of: Time | None = None, version: int | None = None) -> dict[str, Any] | None:
        """Return the row of a key, valid at ``as_of`` as recorded by ``version``, as a dict by column; None if there is
        none.

        ``key`` is a scalar, a tuple in the order of the columns, or a dict by column; a key of one struct column is
        also named by a tuple or a dict of its fields, and by the bare value of its only field. Zeros of both signs are
        two keys, unless the engine has one. Raises InvalidInputError WRONG_KEY for a key that has several rows at a
        time (a map, a list, windows): add the columns that tell them apart, or use `scan` with a filter. Raises
        UnsupportedError TIME_OUT_OF_RANGE for a row with a time that Python's datetime cannot hold.
        """
        query = Query(as_of=_us(as_of, "as_of"), version=version)
        return again(lambda: self._get(self._asked().pin(), key, query))

    def _get(self, table: StateTable, key: Any, query: Query) -> dict[str, Any] | None:
        if not table.key_columns:
            raise InvalidInputError(ErrorCode.WRONG_KEY, f"{table.name} has no key; read its rows with scan(filter=…)")
        rows: list[dict[str, Any]] = []
        for batch in read(table, query, None, key_filters(table, key)):
            rows += python_rows(batch.slice(0, 2), table.name)
            if len(rows) > 1:
                further = [name for name in table.row_key if name not in table.key_columns]
                hint = f"name {', '.join(further)}, too, or read them" if further else "read them"
                raise InvalidInputError(
                    ErrorCode.WRONG_KEY,
                    f"key {shown(key)} of {table.name} has several rows; {hint} with scan(filter=…)",
                )
        return rows[0] if rows else None

    def _about(self) -> tuple[str, Facts]:
        return f"table {self.table.name!r}", _facts_of(self.table, self._is_local)


def _facts_of(table: StateTable, is_local: bool) -> Facts:
    """Return what is known of a table without a read of rows; where a look costs requests, nothing is looked at."""
    from statestore.catalog.reads.versioned_table import VersionedTable

    if isinstance(table, VersionedTable):
        known = columns_of(table.spec)
        return [*known, *contents_of(table.files().log.newest())] if table.files().is_local else known
    if not is_local:
        return []
    bound = table.pin()
    schema = bound.schema(Query())
    keys = pa.schema([schema.field(name) for name in bound.key_columns if name in schema.names])
    return [*([("key", shown_columns(keys))] if len(keys) else []), ("columns", shown_columns(schema))]


def read(table: StateTable, query: Query, columns: Iterable[str] | None, filter: Any) -> Rows:
    """Plan a read, and return its rows, all splits one after the other."""
    asked = None if columns is None else column_names(columns, "columns")
    filters = parse_filters(filter)

    def plan() -> Rows:
        return _planned(table.for_results(), query, asked, filters)

    return begun_again(plan)


def _planned(table: StateTable, query: Query, asked: tuple[str, ...] | None, filters: tuple[Filter, ...]) -> Rows:
    query = replace(query, columns=asked, filters=_understood(table, query, filters))
    if asked == ():  # rows without columns are still counted: one column is read and dropped
        query = replace(query, columns=tuple(table.schema(replace(query, columns=None)).names[:1]))
    schema = table.schema(query)
    planned = table.for_plan()
    splits = planned.splits(query)
    return Rows(
        f"{table.name}: {_said(query)}",
        pa.schema([]) if asked == () else schema,
        _pieces(table, splits, query, asked),
        _again(table, planned, splits, query, asked),
    )


def _understood(table: StateTable, query: Query, filters: tuple[Filter, ...]) -> tuple[Filter, ...]:
    """Return the filters with times in place of the texts that columns of times are compared with, and ``column.field``
    resolved to a field of a column."""
    if not has_texts(filters) and not any("." in item.column for item in filters):
        return filters
    schema = table.schema(replace(query, columns=None))
    return with_times(resolved(filters, schema.names), schema)


def _pieces(table: StateTable, splits: Sequence[Split], query: Query, asked: tuple[str, ...] | None) -> Pieces:
    if asked == ():
        return (map(_without_columns, table.read(split, query)) for split in splits)
    return (table.read(split, query) for split in splits)


def _without_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([])


def _again(
    table: StateTable, planned: StateTable, splits: Sequence[Split], query: Query, asked: tuple[str, ...] | None
) -> Callable[[], Pieces]:
    """Return the function that repeats a read. It holds no file of the table."""
    if not splits:  # later commits add nothing to what was asked for
        return lambda: iter(())
    bound = planned.repeatable(query)
    if bound is not None and query.mode == "changes":
        return partial(_again_changes, table, planned.expired_to(), bound, asked)
    if bound is not None:
        return lambda: _pieces(table, table.splits(bound), bound, asked)
    kept = planned.released(splits)

    def repeat() -> Pieces:
        held = table.held(kept)
        # Where a file is gone, the read of it says so.
        return _pieces(table, kept if held is None else held, query, asked)

    return repeat


def _again_changes(
    table: StateTable, expired_to: tuple[int, int] | None, query: Query, asked: tuple[str, ...] | None
) -> Pieces:
    """Read changes again, unless an expiry came between: it also removes changes of versions that are kept."""
    splits = table.splits(query)
    if table.expired_to() != expired_to:
        raise NotFoundError(
            ErrorCode.TIME_NOT_KEPT,
            f"{table.name}: an expiry has removed changes since these were asked for; call changes() again, which "
            "returns what is kept",
        )
    return _pieces(table, splits, query, asked)


def _said(query: Query) -> str:
    """Return in words what a query asks for."""
    if query.mode == "state":
        said = "state" if query.as_of is None else f"state as of {format_time(query.as_of)}"
        return said if query.version is None else f"{said}, version {query.version}"
    ends = [(" from", query.start_time), (" to", query.end_time)]
    said = query.mode + "".join(f"{word} {format_time(time)}" for word, time in ends if time is not None)
    numbers = [(" from version", query.start_version), (" to version", query.end_version), (", version", query.version)]
    return said + "".join(f"{word} {number}" for word, number in numbers if number is not None)


def _us(time: Time | None, what: str) -> int | None:
    return None if time is None else to_us(time, what)

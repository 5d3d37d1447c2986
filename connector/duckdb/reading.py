"""One table with one query, as its DuckDB view reads it: transactions, plans, and batches with marks.

All scans of one query must read one version, although DuckDB opens them at different moments. A scan is therefore told
its transaction, the *pin*. All scans of one transaction read one version, also those of other readings of the table;
the next transaction reads the newest commit. Transactions that find the same version share its plans and marks.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.connector.duckdb.kept_rows import BATCH_ROWS, MARKS, MarkedRows
from statestore.connector.duckdb.transactions import KEPT_PINS, PinnedTable, Transactions, check_remembered
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError, UnsupportedError
from statestore.formats.replaced_versions import again, is_gone
from statestore.formats.state_table import (
    MARK_TYPE,
    MaskedSplit,
    Query,
    Split,
    StateTable,
    all_live,
)
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.comparison import has_floats
from statestore.formats.values.filters import Filter
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.unique_names import unique_names

PIN_COLUMN = "__pin"
COUNTED_ROWS = 1 << 20  # rows of a batch of which nothing is read
SMALL_ROWS = 2048
"""Batches up to this size, a vector of DuckDB, are joined. Otherwise queries of a store that was not compacted take 1.2
to 1.6 times the time, after 300 commits of 1,000 rows as well as after 50 of 500."""
KEPT_PLANS = 64  # of one version
HELD_PLANS = 8  # versions whose plans of changes hold their files, which cannot be planned again for a version
JOINED_ROWS = 1 << 16  # of small batches, at most

_Read = Callable[[Any, Query], Iterator[pa.RecordBatch]]


@dataclass(eq=False)
class _Pinned:
    """The table, the query with its version, and the plans made so far, as transactions of one version read them.

    Plans whose query states a version are kept without a hold on their files, because a connection may be idle for
    days. If files were removed meanwhile, the same version is planned again.
    """

    table: StateTable
    query: Query
    kept: tuple[int, int] | None
    plans: OrderedDict[tuple[Filter, ...], Sequence[Split]] = field(default_factory=OrderedDict)

    def planned(self, filters: tuple[Filter, ...]) -> tuple[Sequence[Split], Sequence[Split]]:
        """The splits for these filters, and the kept plan that they are, an object that is the same for the next scan.

        Stores plan changes, which state no version, alike for all filters, and apply these when they read.
        """
        planned = () if self.query.version is None and self.table.has_log else filters
        kept = self.plans.pop(planned, None)
        is_released = self.query.version is not None
        splits = self.table.held(kept) if kept is not None and is_released else kept
        if kept is None or splits is None:
            splits = self.table.splits(replace(self.query, filters=planned))
            kept = self.table.released(splits) if is_released else splits
        self.plans[planned] = kept
        if len(self.plans) > KEPT_PLANS:
            self.plans.popitem(last=False)
        return splits, kept

    def release(self) -> None:
        """Give up the hold on the files of all plans."""
        self.plans = OrderedDict((filters, self.table.released(kept)) for filters, kept in self.plans.items())


class Reading:
    """One table with one query, as its view reads it.

    ``transactions`` are those of all readings of the table; those of an attached warehouse are shared by its tables.
    ``bound`` is the table in its present state, which declares the columns; it is not kept. ``planned_scans`` is the
    number of scans that DuckDB has planned, also of statements that it only explained.
    """

    def __init__(
        self,
        table: StateTable,
        query: Query,
        transactions: Transactions | None = None,
        bound: StateTable | None = None,
    ) -> None:
        self.table = table
        self.transactions = transactions or Transactions(table)
        self.query = query
        self.schema = (bound or table).schema(query)
        self.key_columns = (bound or table).key_columns
        # Views of DuckDB ignore case; the second of two names is NAME_2, as statements of users call it.
        self.source_names = unique_names(self.schema.names, taken=(PIN_COLUMN, MARKS), first=2)
        self.held: Sequence[object] = ()  # lives as long as the view
        self.error: Exception | None = None
        self.planned_scans = 0
        # Whether rows without marks cost nothing more when they were last read. It is a hint for the next query's plan.
        self._marks_dead = table.has_log
        self.passes_uncut = not self._marks_dead
        self._column_of = dict(zip(self.source_names, self.schema.names, strict=True))
        self._pins: OrderedDict[int, _Pinned] = OrderedDict()
        self._newest: _Pinned | None = None
        self._holding: list[_Pinned] = []
        self._last_marked: MarkedRows | None = None
        self._forgotten = -1
        self._lock = threading.Lock()
        self._marked = self.marked_schema()

    @property
    def copied_bytes(self) -> int:
        """The memory that copies of columns take, which are kept for the next query."""
        return 0 if self._last_marked is None else self._last_marked.live_columns.nbytes

    def source_name(self, name: str) -> str:
        """The name of a column as DuckDB knows it."""
        position: int = self.schema.names.index(name)
        return self.source_names[position]

    def source_schema(self) -> pa.Schema:
        """The columns as DuckDB knows them, with the pin as the last."""
        fields = [f.with_name(n) for f, n in zip(self.schema, self.source_names, strict=True)]
        return pa.schema([*fields, pa.field(PIN_COLUMN, pa.int64())])

    def marked_schema(self) -> pa.Schema:
        """The columns as DuckDB knows them, behind the marks."""
        return pa.schema([pa.field(MARKS, MARK_TYPE), *self.source_schema()])

    def scan(
        self, pin: int | None, filters: Sequence[Filter], asked: Sequence[str], dead_allowed: bool
    ) -> pa.RecordBatchReader:
        """A lazy reader of the columns ``asked``, planned now.

        ``dead_allowed``: there may be dead rows among the batches, marked by a null in the column of marks. ``pin`` is
        None if DuckDB does not tell its transaction.
        """
        if pin is None:
            raise UnsupportedError(
                ErrorCode.FILTER_PUSHDOWN_OFF,
                f"table {self.table.name!r} cannot be read with DuckDB's filter pushdown switched off; "
                "enable the optimizer again (PRAGMA enable_optimizer, SET disabled_optimizers = '')",
            )
        return again(lambda: self._scan(pin, filters, asked, dead_allowed))

    def _scan(
        self, pin: int, filters: Sequence[Filter], asked: Sequence[str], dead_allowed: bool
    ) -> pa.RecordBatchReader:
        try:
            found = self._planned_scan(pin, filters, asked, dead_allowed)
            self.transactions.use(pin)
            return found
        except NotFoundError as error:
            if is_gone(error):
                with self._lock:
                    self._pins.pop(pin, None)
                    self._newest = None
                    self.transactions.forget(pin)
            raise

    def _planned_scan(
        self, pin: int, filters: Sequence[Filter], asked: Sequence[str], dead_allowed: bool
    ) -> pa.RecordBatchReader:
        named = tuple(replace(f, column=self._column_of[f.column]) for f in filters)
        columns = tuple(asked)
        wanted = tuple(self._column_of[name] for name in columns if name in self._column_of)
        schema = pa.schema([self._marked.field(name) for name in columns])
        with self._lock:
            state = self._pin(pin)
            found = None if named else self._in_memory(state, wanted, schema, pin)
            if found is not None:
                return found
            rows = None if named or wanted or self._marks_dead else state.table.count(state.query)
            if rows is not None:
                return pa.RecordBatchReader.from_batches(schema, _counted(schema, rows, pin))
            splits, plan = state.planned(named)
            marked = self._marks(state, splits, plan) if self._marks_dead and not named else None
        live = marked is not None and marked.copies([self.schema.field(name) for name in wanted])
        usable = marked is not None and not live and (marked.is_uncut or (dead_allowed and MARKS in columns))
        # A batch without any column would lose its number of rows.
        query = replace(state.query, filters=named, columns=wanted or (_cheapest(self.schema),))
        if marked is not None and not wanted and marked.live is not None:
            batches = _counted(schema, marked.live, pin)
        elif marked is not None and live:
            batches = self._live_batches(marked, marked.live_columns.kept(wanted), query, schema, pin)
        elif marked is not None and usable:
            batches = _joined(self._batches(marked.table.read_marked, marked.parts, query, schema, pin))
        else:
            parts = [MaskedSplit(split, None, None) for split in splits]
            batches = self._batches(state.table.read, parts, query, schema, pin)
            if not self._marks_dead:
                batches = _begun(batches)
        return pa.RecordBatchReader.from_batches(schema, self._watched(batches, splits))

    def _pin(self, pin: int) -> _Pinned:
        if pin in self._pins:
            self._pins.move_to_end(pin)
            return self._pins[pin]
        check_remembered(self.table.name, pin, self._forgotten)
        self._newest = self._pins[pin] = self._pinned_at(self.transactions.state_of(pin))
        if self._newest not in self._holding:
            self._holding.append(self._newest)
            if len(self._holding) > HELD_PLANS:
                self._holding.pop(0).release()
        if len(self._pins) > KEPT_PINS:
            oldest, _ = self._pins.popitem(last=False)
            self._forgotten = max(self._forgotten, oldest)
        return self._pins[pin]

    def _pinned_at(self, state: PinnedTable) -> _Pinned:
        query, last = self.query, self._newest
        kept = state.kept if state.is_named_by_versions else None
        if last is not None and kept is not None and last.kept == kept:
            return last  # a version without a later commit needs no new plans
        if query.mode != "changes" and query.version is None:
            query = replace(query, version=state.kept[1])
        return _Pinned(state.table, query, kept)

    def _marks(self, state: _Pinned, splits: Sequence[Split], plan: Sequence[Split]) -> MarkedRows:
        """The splits with the marks of their dead rows. Those of the last plan that was read are kept."""
        last = self._last_marked
        if last is None or last.plan is not plan:
            table = state.table
            parts = table.masked_splits(splits)
            if splits is not plan:
                released = table.released([part.split for part in parts])
                parts = [replace(part, split=split) for part, split in zip(parts, released, strict=True)]
            last = self._last_marked = MarkedRows(plan, table, parts)
        self.passes_uncut = last.is_uncut or not last.is_mapped(())
        return last

    def _in_memory(
        self, state: _Pinned, wanted: tuple[str, ...], schema: pa.Schema, pin: int
    ) -> pa.RecordBatchReader | None:
        """The columns of live rows, if an earlier query of this version left all of them in memory.

        No file is touched, so none has to be held. Threads of DuckDB need not call Python for them.
        """
        marked = self._last_marked
        if marked is None or not wanted or marked.plan is not state.plans.get(()):
            return None
        kept = marked.live_columns.kept(wanted)
        if len(kept) < len(set(wanted)):
            return None
        rows = len(kept[wanted[0]])
        lengths = [min(BATCH_ROWS, rows - start) for start in range(0, rows, BATCH_ROWS)]
        columns = [
            kept[self._column_of[name]]
            if name in self._column_of
            else pa.chunked_array([_filled(name, length, pin, None) for length in lengths], schema.field(name).type)
            for name in schema.names
        ]
        return pa.Table.from_arrays(columns, schema=schema).to_reader(max_chunksize=BATCH_ROWS)

    def _live_batches(
        self, marked: MarkedRows, kept: dict[str, pa.Array], query: Query, schema: pa.Schema, pin: int
    ) -> Iterator[pa.RecordBatch]:
        """Batches of live rows only. The columns that are not ``kept`` are read, and kept for the next query."""
        names = query.columns or ()

        def read(missing: tuple[str, ...]) -> Iterator[Sequence[pa.Array]]:
            narrow = pa.schema([self._marked.field(name) for name in (MARKS, *map(self.source_name, missing))])
            named = replace(query, columns=missing)
            for batch in _joined(self._batches(marked.table.read_marked, marked.parts, named, narrow, pin)):
                marks = batch.column(0)
                yield (batch.filter(marks.is_valid()) if marks.null_count else batch).columns[1:]

        for rows, columns in marked.live_columns.read(names, kept, read):
            arrays = [
                columns[self._column_of[name]] if name in self._column_of else _filled(name, rows, pin, None)
                for name in schema.names
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _watched(self, batches: Iterator[pa.RecordBatch], splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        """Keep the error that a read raises, which DuckDB would only pass on as text; hold the files of the splits."""
        try:
            for batch in batches:
                _check_maps(batch)
                yield batch
        except StateStoreError as error:
            self.error = error
            raise
        del splits

    def _batches(
        self, read: _Read, parts: Sequence[MaskedSplit], query: Query, schema: pa.Schema, pin: int
    ) -> Iterator[pa.RecordBatch]:
        indexes = [self._index_of(name, query) for name in schema.names]
        plain = not any(index is None for index in indexes)
        for part in parts:
            row = 0
            for batch in read(part.split, query):
                if plain and batch.schema == schema:
                    yield batch
                    continue
                rows = batch.num_rows
                marks = None if part.marks is None else part.marks.slice(row, rows)
                row += rows
                columns = batch.columns
                arrays = [
                    _filled(name, rows, pin, marks) if index is None else columns[index]
                    for name, index in zip(schema.names, indexes, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _index_of(self, name: str, query: Query) -> int | None:
        """The position of the column in a batch that answers ``query``; None for marks and pin, which no batch has."""
        return (query.columns or ()).index(self._column_of[name]) if name in self._column_of else None


def _has_float_map(kind: pa.DataType) -> bool:
    """Return whether a type holds maps whose keys are floating-point numbers, or have some."""
    if pa.types.is_map(kind):
        return has_floats(kind.key_type) or _has_float_map(kind.item_type)
    return any(_has_float_map(kind.field(number).type) for number in range(kind.num_fields))


def _check_maps(batch: pa.RecordBatch) -> None:
    """Raise UnsupportedError UNSUPPORTED_TYPE for a map that has both zeros, or two NaNs: DuckDB takes no such map."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if _has_equal_keys(column):
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"column {name!r} has a map with the keys 0.0 and -0.0, or with two NaNs, which "
                "are one key to DuckDB; name the other columns, or read this one in Python with scan(columns=[…])",
            )


def _has_equal_keys(column: pa.Array) -> bool:
    kind = column.type
    if not _has_float_map(kind):
        return False
    if pa.types.is_struct(kind):
        return any(map(_has_equal_keys, column.flatten()))
    if not pa.types.is_map(kind):
        return _has_equal_keys(column.flatten())
    offsets = column.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    if has_floats(kind.key_type):
        hashes = hash_keys([comparable(column.keys.slice(first, last - first))])
        owners = np.searchsorted(offsets - first, np.arange(last - first), side="right")
        order = np.lexsort((hashes, owners))
        if ((np.diff(hashes[order]) == 0) & (np.diff(owners[order]) == 0)).any():
            return True
    return _has_equal_keys(column.items.slice(first, last - first))


def _begun(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, of which the first are read now: nobody has any of them yet, so the scan can be planned again."""
    read: list[pa.RecordBatch] = []
    while sum(batch.num_rows for batch in read) <= JOINED_ROWS and (batch := next(batches, None)) is not None:
        read.append(batch)
    return itertools.chain(read, batches)


def _joined(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, small neighbours as one, because each batch costs DuckDB and Python as much as a thousand rows."""
    small: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if batch.num_rows > SMALL_ROWS:
            yield batch
            continue
        small.append(batch)
        rows += batch.num_rows
        if rows > JOINED_ROWS:
            yield from pa.Table.from_batches(small).combine_chunks().to_batches()
            small, rows = [], 0
    if small:
        yield from pa.Table.from_batches(small).combine_chunks().to_batches()


def _counted(schema: pa.Schema, rows: int, pin: int) -> Iterator[pa.RecordBatch]:
    """Batches of so many rows, of which only marks and pin are asked for."""
    for start in range(0, rows, COUNTED_ROWS):
        count = min(COUNTED_ROWS, rows - start)
        arrays = [_filled(name, count, pin, None) for name in schema.names]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _filled(name: str, rows: int, pin: int, marks: pa.Array | None) -> pa.Array:
    """The column of the pin, or of the marks; without marks every row is live."""
    if name == PIN_COLUMN:
        return pa.repeat(pa.scalar(pin, pa.int64()), rows)
    return all_live(rows) if marks is None else marks


def _cheapest(schema: pa.Schema) -> str:
    """The column to read where only the number of rows is needed: the narrowest number, or else the first column."""
    widths = [(field.type.bit_width, field.name) for field in schema if pa.types.is_primitive(field.type)]
    return min(widths)[1] if widths else str(schema.names[0])

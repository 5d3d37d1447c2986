"""One table with one query, as its DuckDB view reads it: transactions, plans, and batches with marks.

All scans of one query must read one version, although DuckDB opens them at different moments. A scan is therefore told
its transaction, the *pin*. All scans of one transaction read one version; the next transaction reads the newest commit.
Transactions that find the same version share its plans and marks.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.state_table import (
    MARK_TYPE,
    KeepsFiles,
    MarksDeadRows,
    MaskedSplit,
    Query,
    Split,
    StateTable,
    all_live,
)
from statestore.formats.values.filters import Filter

PIN_COLUMN = "__pin"
MARKS = "__live"
KEPT_PINS = 4096  # transactions whose plans are kept; an older one that reads again is refused
COUNTED_ROWS = 1 << 20  # rows of a batch of which nothing is read
SMALL_ROWS = 2048  # batches up to this size, a vector of DuckDB, are joined
KEPT_PLANS = 64  # of one version
HELD_PLANS = 8  # versions whose plans of changes hold their files, which cannot be planned again for a version
KEPT_ROWS = 1 << 16  # rows of copies that are kept, or joined
KEPT_READS = 16  # sets of columns whose batches are kept
ONE_BATCH_ROWS = 1 << 17  # kept rows that are handed over at once, as a store would read them in one batch
READS_BEFORE_COPY = 3  # of one version and set of columns, after which live rows are copied
COPIED_BYTES = 32 << 20  # for all copies of one view
CHECK_SECONDS = 0.05

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

        Plans for different filters agree on the version only where it is stated.
        """
        planned = () if self.query.version is None else filters
        kept = self.plans.pop(planned, None)
        keeper = self.table if self.query.version is not None and isinstance(self.table, KeepsFiles) else None
        splits = kept if kept is None or keeper is None else keeper.held(kept)
        if kept is None or splits is None:
            splits = self.table.splits(replace(self.query, filters=planned))
            kept = splits if keeper is None else keeper.released(splits)
        self.plans[planned] = kept
        if len(self.plans) > KEPT_PLANS:
            self.plans.popitem(last=False)
        return splits, kept

    def release(self) -> None:
        """Give up the hold on the files of all plans."""
        if isinstance(self.table, KeepsFiles):
            self.plans = OrderedDict((filters, self.table.released(kept)) for filters, kept in self.plans.items())


@dataclass
class _Kept:
    """The batches of some columns that a query has read. They are views of files, or copies of the live rows alone."""

    batches: list[pa.RecordBatch]  # not empty
    reads: int = 1
    copied: int = 0  # bytes

    @property
    def rows(self) -> int:
        return sum(batch.num_rows for batch in self.batches)


@dataclass
class _Marked:
    """The rows of one version with their marks, and the batches of columns that were read before."""

    plan: Sequence[Split]
    table: MarksDeadRows
    parts: Sequence[MaskedSplit]
    kept: OrderedDict[tuple[str, ...], _Kept] = field(default_factory=OrderedDict)

    @property
    def is_uncut(self) -> bool:
        return all(part.marks is None for part in self.parts)

    @property
    def live(self) -> int | None:
        """The number of live rows; None where only a read finds it."""
        counts = [part.live for part in self.parts]
        return None if None in counts else sum(count or 0 for count in counts)

    def can_keep(self, columns: Sequence[str]) -> bool:
        """Whether batches of these columns take next to no memory."""
        made = [part.live for part in self.parts if not self.table.is_mapped(part.split, columns)]
        return None not in made and sum(live or 0 for live in made) <= KEPT_ROWS

    def keep(self, asked: tuple[str, ...], batches: list[pa.RecordBatch]) -> None:
        """Keep batches for the next query that asks for these columns."""
        self.kept[asked] = _Kept(batches)
        while len(self.kept) > KEPT_READS:
            self.kept.popitem(last=False)

    def again(self, kept: _Kept) -> Iterator[pa.RecordBatch]:
        """Batches that were kept. The lengths of their files are checked first, and then again and again."""
        kept.reads += 1
        if kept.reads == READS_BEFORE_COPY:
            self._copy_live(kept)
        checked = -math.inf
        for batch in kept.batches:
            if time.monotonic() - checked > CHECK_SECONDS:
                for part in self.parts:
                    self.table.check_files(part.split)
                checked = time.monotonic()
            yield batch

    def _copy_live(self, kept: _Kept) -> None:
        """Copy the live rows of batches with dead ones, if they are numbers and few enough."""
        cut = [batch for batch in kept.batches if _has_dead(batch)]
        if not cut or not all(pa.types.is_primitive(kind) for kind in cut[0].schema.types):
            return
        cost = sum(kind.bit_width for kind in cut[0].schema.types) // 8 * sum(batch.num_rows for batch in cut)
        if cost + sum(other.copied for other in self.kept.values()) <= COPIED_BYTES:
            kept.copied = cost
            kept.batches = [_live_rows(batch) if _has_dead(batch) else batch for batch in kept.batches]


def _has_dead(batch: pa.RecordBatch) -> bool:
    return MARKS in batch.schema.names and batch.column(MARKS).null_count > 0


def _live_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    marks = batch.schema.get_field_index(MARKS)
    live = batch.filter(batch.column(marks).is_valid())
    return live.set_column(marks, live.schema.field(marks), all_live(live.num_rows))


class Reading:
    """One table with one query, as its view reads it."""

    def __init__(self, table: StateTable, query: Query) -> None:
        self.table = table
        self.query = query
        self.schema = table.schema(query)
        self.source_names = _source_names(self.schema.names)
        self.error: Exception | None = None
        # Whether no row had to be marked when rows were last read. It is a hint for the plan of the next query.
        self._marks_dead = isinstance(table, MarksDeadRows)
        self.passes_uncut = not self._marks_dead
        self._column_of = dict(zip(self.source_names, self.schema.names, strict=True))
        self._pins: OrderedDict[int, _Pinned] = OrderedDict()
        self._newest: _Pinned | None = None
        self._holding: list[_Pinned] = []
        self._last_marked: _Marked | None = None
        self._forgotten = -1
        self._lock = threading.Lock()
        self._marked = self.marked_schema()

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
        named = tuple(replace(f, column=self._column_of[f.column]) for f in filters)
        with self._lock:
            state = self._pin(pin)
            splits, plan = state.planned(named)
            marked = self._marks(state, splits, plan) if self._marks_dead and not named else None
        columns = tuple(asked)
        usable = marked is not None and (marked.is_uncut or (dead_allowed and MARKS in columns))
        kept = marked.kept.get(columns) if marked is not None and usable else None
        if marked is not None and kept is not None and kept.rows <= ONE_BATCH_ROWS:
            # Threads of DuckDB need not call Python for these.
            return pa.Table.from_batches(marked.again(kept)).to_reader()
        schema = pa.schema([self._marked.field(name) for name in columns])
        wanted = tuple(self._column_of[name] for name in columns if name in self._column_of)
        # A batch without any column would lose its number of rows.
        query = replace(state.query, filters=named, columns=wanted or (_cheapest(self.schema),))
        if marked is not None and not wanted and marked.live is not None:
            batches = _counted(schema, marked.live, pin)
        elif marked is not None and usable:
            batches = self._kept_batches(marked, kept, columns, query, schema, pin)
        else:
            parts = [MaskedSplit(split, None, None) for split in splits]
            batches = self._batches(self.table.read, parts, query, schema, pin)
        return pa.RecordBatchReader.from_batches(schema, self._watched(batches, splits))

    def _pin(self, pin: int) -> _Pinned:
        if pin in self._pins:
            self._pins.move_to_end(pin)
            return self._pins[pin]
        if pin <= self._forgotten:
            raise UnsupportedError(
                ErrorCode.TRANSACTION_TOO_OLD,
                f"table {self.table.name!r}: more than {KEPT_PINS} transactions have read it since this one began; "
                "commit and read again",
            )
        self._newest = self._pins[pin] = self._pinned_now()
        if self._newest not in self._holding:
            self._holding.append(self._newest)
            if len(self._holding) > HELD_PLANS:
                self._holding.pop(0).release()
        if len(self._pins) > KEPT_PINS:
            oldest, _ = self._pins.popitem(last=False)
            self._forgotten = max(self._forgotten, oldest)
        return self._pins[pin]

    def _pinned_now(self) -> _Pinned:
        query, table = self.query, self.table.pin()
        # Only the log decides what such a table reads, so a version without a later commit needs no new plans.
        kept = table.kept_versions() if self._marks_dead else None
        if kept is not None and self._newest is not None and self._newest.kept == kept:
            return self._newest
        if query.version is None and query.mode != "changes":
            query = replace(query, version=(kept or table.kept_versions())[1])
        return _Pinned(table, query, kept)

    def _marks(self, state: _Pinned, splits: Sequence[Split], plan: Sequence[Split]) -> _Marked:
        """The splits with the marks of their dead rows. Those of the last plan that was read are kept."""
        last = self._last_marked
        if last is None or last.plan is not plan:
            table = state.table
            assert isinstance(table, MarksDeadRows)
            parts = table.masked_splits(splits)
            if isinstance(table, KeepsFiles) and splits is not plan:
                released = table.released([part.split for part in parts])
                parts = [replace(part, split=split) for part, split in zip(parts, released, strict=True)]
            last = self._last_marked = _Marked(plan, table, parts)
        self.passes_uncut = last.is_uncut
        return last

    def _kept_batches(
        self, marked: _Marked, kept: _Kept | None, asked: tuple[str, ...], query: Query, schema: pa.Schema, pin: int
    ) -> Iterator[pa.RecordBatch]:
        if kept is not None:
            yield from marked.again(kept)
            return
        batches = _joined(self._batches(marked.table.read_marked, marked.parts, query, schema, pin))
        if PIN_COLUMN in asked or not marked.can_keep(query.columns or ()):
            yield from batches
            return
        read = []
        for batch in batches:
            read.append(batch)
            yield batch
        if read:
            marked.keep(asked, read)

    def _watched(self, batches: Iterator[pa.RecordBatch], splits: Sequence[Split]) -> Iterator[pa.RecordBatch]:
        """Keep the error that a read raises, which DuckDB would only pass on as text; hold the files of the splits."""
        try:
            yield from batches
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
        if rows > KEPT_ROWS:
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


def _source_names(names: Sequence[str]) -> list[str]:
    """Column names that also differ when case is ignored, as DuckDB does: names that would collide get a number."""
    taken: set[str] = {PIN_COLUMN, MARKS}
    unique = []
    for name in names:
        candidate, number = name, 1
        while candidate.lower() in taken:
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate.lower())
        unique.append(candidate)
    return unique

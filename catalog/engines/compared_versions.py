"""History and change feed of an engine that keeps whole states, from a comparison of consecutive versions.

The changes of a version that is no longer kept appear as changes of the next kept version. States are compared slice by
slice (`Source.slices`), so two versions of a slice are in memory at a time. Rows of a bag, in which equal rows may
repeat, are compared as wholes, each as often as it occurs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.engines.history_columns import with_history
from statestore.catalog.reads.added_columns import CHANGE_COLUMNS, CHANGE_TYPES, DELETE, INSERT, POSTIMAGE, PREIMAGE
from statestore.catalog.reads.row_pairs import Side, counted_rows, differences, keyed_rows, others, pairs
from statestore.formats.engine import Source, StateAt, StateInfo, Version
from statestore.formats.kernels.arrays import Ints
from statestore.formats.state_table import Query, RowPair
from statestore.formats.values.filters import Filter
from statestore.formats.values.types import TIME
from statestore.formats.values.wider_types import cast_wider

UNKNOWN = -1
"""Stands for the version of a row that existed before the oldest kept version."""


@dataclass(frozen=True)
class ComparedSplit:
    """A slice over versions; ``before`` is the version before the first of a change feed, None for the empty state."""

    source: Source
    versions: tuple[Version, ...]
    before: Version | None
    origin: bool
    piece: Any

    @property
    def rows(self) -> None:
        """Unknown until read."""


@dataclass(frozen=True)
class Rows:
    """The rows of a slice in one version; ``side`` has them as keys and compared values."""

    batch: pa.RecordBatch
    side: Side


@dataclass(frozen=True)
class Slice:
    """A slice of one state, read version by version in columns that rows of every version fit."""

    source: Source
    info: StateInfo
    schema: pa.Schema
    piece: Any
    filters: Sequence[Filter]

    def rows(self, at: StateAt) -> Rows:
        """Return the rows of the slice in a version."""
        parts = self.source.slice_parts(at, self.piece, self.filters)
        names = self.schema.names
        return self.of([batch for part in parts for batch in at.rows(part, names, self.filters)])

    def of(self, batches: Sequence[pa.RecordBatch]) -> Rows:
        """Return the batches as one, in the shared columns; columns that a version lacks are null."""
        columns = []
        for field in self.schema:
            columns_read = [cast_wider(batch.column(field.name), field.type) if field.name in batch.schema.names
                     else pa.nulls(batch.num_rows, field.type) for batch in batches]  # fmt: skip
            columns.append(pa.concat_arrays([pa.array([], field.type), *columns_read]))
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        keys = [batch.column(name) for name in self.info.row_key]
        outside = {*self.info.row_key, *self.info.placement}
        values = [batch.column(name) for name in self.schema.names if name not in outside]
        if not keys:
            return Rows(batch, counted_rows(values))
        return Rows(batch, keyed_rows(keys, values))

    def differing(self, old: StateAt, new: StateAt) -> Iterator[RowPair] | None:
        """Return pairs of rows that hold all which differ between two versions; None where both are to be read."""
        if not self.info.row_key or self.filters:  # filters may name few keys, and rows of a bag are told by all of it
            return None
        return self.source.differing_slice(old, new, self.piece, (self.schema.names, self.schema.names))

    def content(self, at: StateAt) -> object:
        """Return a value that is equal for two versions only if the slice has the same rows in both; None: unknown."""
        return self.source.content(at, self.piece)


def read_compared(split: ComparedSplit, state: str, query: Query) -> Iterator[pa.RecordBatch]:
    """Yield all columns of the state, followed by those of a history or a change feed."""
    source = split.source
    piece = Slice(source, source.info(state), source.shared_schema(state), split.piece, query.filters)
    empty = piece.of([])
    if query.mode == "history":
        yield from _history(_steps(piece, split.versions), empty, split, query)
        return
    first = None if split.before is None else source.at(state, split.before.number)
    yield from _changes(piece, split.versions, first, empty)


def _steps(piece: Slice, versions: Sequence[Version]) -> Iterator[tuple[Version, Rows | None]]:
    """Yield each version with its rows; None if these are the rows of the version before."""
    last = None
    for version in versions:
        at = piece.source.at(piece.info.name, version.number)
        content = piece.content(at)
        yield version, None if content is not None and content == last else piece.rows(at)
        last = content


def _changes(piece: Slice, versions: Sequence[Version], old: StateAt | None, empty: Rows) -> Iterator[pa.RecordBatch]:
    """Yield the changes of each version; ``old`` is the state before the first, None for the empty state.

    A version is read in whole only where the engine does not tell by other means which rows may differ.
    """
    before = empty if old is None else None
    for version in versions:
        new = piece.source.at(piece.info.name, version.number)
        if old is not None:
            content = piece.content(old)
            if content is not None and content == piece.content(new):
                old = new
                continue
            found = piece.differing(old, new)
            if found is not None:
                for gone, come in found:
                    yield from _changes_between(piece.of(gone), piece.of(come), version)
                old, before = new, None
                continue
            before = piece.rows(old) if before is None else before
        after = piece.rows(new)
        assert before is not None
        yield from _changes_between(before, after, version)
        old, before = new, after


def _changes_between(before: Rows, after: Rows, version: Version) -> Iterator[pa.RecordBatch]:
    left, right, changed = _compared(before.side, after.side)
    removed, added = others(before.batch.num_rows, left), others(after.batch.num_rows, right)
    kinds = (
        (INSERT, after, added),
        (PREIMAGE, before, left[changed]),
        (POSTIMAGE, after, right[changed]),
        (DELETE, before, removed),
    )
    for kind, rows, chosen in kinds:
        if len(chosen):
            batch = rows.batch.take(pa.array(chosen))
            yield _with_columns(batch, _change_cells(kind, version, len(chosen)), CHANGE_COLUMNS)


def _history(
    steps: Iterator[tuple[Version, Rows | None]], empty: Rows, split: ComparedSplit, query: Query
) -> Iterator[pa.RecordBatch]:
    """Yield every row with the times, or the numbers, of the versions between which it was unchanged."""
    known_numbers = pa.array([version.number for version in split.versions], pa.int64())
    known_times = pa.array([version.time for version in split.versions], pa.int64()).cast(TIME)
    current, since = empty, np.empty(0, np.int64)

    def ended(rows: Ints, end: int | None) -> Iterator[pa.RecordBatch]:
        if len(rows):
            start = pa.array(since[rows], mask=since[rows] == UNKNOWN)
            ends = pa.repeat(pa.scalar(end, pa.int64()), len(rows))
            batch = current.batch.take(pa.array(rows))
            yield with_history(batch, start, ends, known_numbers, known_times, query)

    for version, after in steps:
        if after is None:
            continue
        left, right, changed = _compared(current.side, after.side)
        same = ~changed
        gone = others(current.batch.num_rows, left[same])
        yield from ended(gone, version.number)
        known = split.origin or current is not empty
        numbers = np.full(after.batch.num_rows, version.number if known else UNKNOWN)
        numbers[right[same]] = since[left[same]]
        current, since = after, numbers
    yield from ended(np.arange(current.batch.num_rows), None)


def _compared(old: Side, new: Side) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Return the rows with the same key on both sides, and which of these have another value."""
    left, right = pairs(old, new)
    return left, right, np.any(differences(old, new, left, right), axis=1)


def _change_cells(kind: int, version: Version, count: int) -> list[pa.Array]:
    names = pa.repeat(pa.scalar(CHANGE_TYPES[kind]), count)
    moments = pa.repeat(pa.scalar(version.time, pa.int64()).cast(TIME), count)
    return [moments, names, pa.repeat(pa.scalar(version.number, pa.int64()), count), moments]


def _with_columns(batch: pa.RecordBatch, cells: list[pa.Array], fields: Sequence[pa.Field]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, *cells], schema=pa.schema([*batch.schema, *fields]))

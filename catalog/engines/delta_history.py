"""History and change feed of an engine that keeps the changes of each version (`HasDeltas`): versions become times.

The beginning of a row that the oldest kept version has is unknown, unless nothing was before that version. Its
``valid_from`` and ``_commit_version`` are then null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.engines.history_columns import HISTORY_COLUMNS, valid_rows
from statestore.catalog.reads.changes import CHANGE_COLUMNS, CHANGE_TYPES
from statestore.formats.engine import DeltaPart, Version
from statestore.formats.kernels.arrays import Ints
from statestore.formats.state_table import Query
from statestore.formats.values.types import TIME


@dataclass(frozen=True)
class DeltaSplit:
    """A piece of the changes of the versions ``numbers``, which took effect at ``times``.

    ``origin``: nothing was before the first of them.
    """

    part: DeltaPart
    numbers: tuple[int, ...]
    times: tuple[int, ...]
    origin: bool

    @property
    def rows(self) -> int | None:
        """Unknown until read."""
        return self.part.rows


def delta_splits(parts: Sequence[DeltaPart], versions: Sequence[Version], origin: bool) -> list[DeltaSplit]:
    """Return a split for each part. Every version has a time."""
    numbers = tuple(version.number for version in versions)
    times = tuple(version.time for version in versions if version.time is not None)
    return [DeltaSplit(part, numbers, times, origin) for part in parts]


def read_deltas(split: DeltaSplit, query: Query, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of the state, followed by those of a history or a change feed."""
    numbers, times = np.array(split.numbers, np.int64), np.array(split.times, np.int64)
    if query.mode == "changes":
        for batch in split.part.deltas(columns):
            yield _change_columns(batch, numbers, times)
        return
    for batch in split.part.lifetimes(columns):
        yield valid_rows(_history_columns(batch, numbers, times, origin=split.origin), query)


def _history_columns(batch: pa.RecordBatch, numbers: Ints, times: Ints, *, origin: bool) -> pa.RecordBatch:
    start, end = batch.column(0), batch.column(1)
    if not origin:
        start = pc.if_else(pc.equal(start, numbers[0]), None, start)
    return _with(batch, [_times(start, numbers, times), _times(end, numbers, times), start], HISTORY_COLUMNS)


def _change_columns(batch: pa.RecordBatch, numbers: Ints, times: Ints) -> pa.RecordBatch:
    number, kind = batch.column(0), batch.column(1)
    moments = _times(number, numbers, times)
    return _with(batch, [moments, pa.array(CHANGE_TYPES).take(kind), number, moments], CHANGE_COLUMNS)


def _times(versions: pa.Array, numbers: Ints, times: Ints) -> pa.Array:
    positions = pc.index_in(versions, pa.array(numbers))  # null for null
    return pa.array(times).cast(TIME).take(positions)


def _with(batch: pa.RecordBatch, columns: list[pa.Array], fields: Sequence[pa.Field]) -> pa.RecordBatch:
    """Return the columns of the state, which follow two others, and the given columns."""
    names = batch.schema.names[2:]
    return pa.RecordBatch.from_arrays(
        [*batch.columns[2:], *columns], schema=pa.schema([*(batch.schema.field(name) for name in names), *fields])
    )

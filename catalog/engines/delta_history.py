"""History and change feed of an engine that keeps changes (`Source.delta_parts`): versions become times.

The beginning of a row that the oldest kept version has is unknown, unless nothing was before that version. Its
``valid_from`` and ``_commit_version`` are then null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.engines.history_columns import times_of, with_history
from statestore.catalog.reads.added_columns import CHANGE_COLUMNS, CHANGE_TYPES
from statestore.formats.engine import DeltaPart, Version
from statestore.formats.state_table import Query
from statestore.formats.values.types import TIME


@dataclass(frozen=True)
class DeltaSplit:
    """A piece of the changes of the versions ``numbers``, which took effect at ``times``.

    A time is None where it is unknown; in a history all or none are.

    ``origin``: nothing was before the first of them.
    """

    part: DeltaPart
    numbers: tuple[int, ...]
    times: tuple[int | None, ...]
    origin: bool

    @property
    def rows(self) -> int | None:
        """Unknown until read."""
        return self.part.rows


def delta_splits(parts: Sequence[DeltaPart], versions: Sequence[Version], origin: bool) -> list[DeltaSplit]:
    """Return a split for each part."""
    numbers = tuple(version.number for version in versions)
    times = tuple(version.time for version in versions)
    return [DeltaSplit(part, numbers, times, origin) for part in parts]


def read_deltas(split: DeltaSplit, query: Query, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Yield the requested columns of the state, followed by those of a history or a change feed."""
    numbers, times = pa.array(split.numbers, pa.int64()), pa.array(split.times, pa.int64()).cast(TIME)
    if query.mode == "changes":
        for batch in split.part.deltas(columns):
            yield _change_columns(batch, numbers, times)
        return
    for batch in split.part.lifetimes(columns):
        start, end = batch.column(0), batch.column(1)
        if not split.origin:
            start = pc.if_else(pc.equal(start, numbers[0]), None, start)
        yield with_history(_state(batch), start, end, numbers, times, query)


def _change_columns(batch: pa.RecordBatch, numbers: pa.Array, times: pa.Array) -> pa.RecordBatch:
    state, number, kind = _state(batch), batch.column(0), batch.column(1)
    moments = times_of(number, numbers, times)
    cells = [moments, pa.array(CHANGE_TYPES).take(kind), number, moments]
    return pa.RecordBatch.from_arrays([*state.columns, *cells], schema=pa.schema([*state.schema, *CHANGE_COLUMNS]))


def _state(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns of the state, which follow two others."""
    return batch.select(batch.schema.names[2:])

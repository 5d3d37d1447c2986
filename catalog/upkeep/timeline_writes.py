"""The newest belief of a versioned store, as writes that give another store the same timelines.

Each key has one entry, a value or a delete, for each time at which its value changes. No two entries share a key and a
time, so their order changes no answer. They are yielded by time, in memory for about a million rows.

A retention of the new store refuses what was too old at its turn. The stream time only grows, so of the writes at one
time the new store accepts those of the commits up to some version. The entries at that time are those that this version
believed. All times here are epoch microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.belief import BEGINNING, NOW, SegmentWithClosures, ends_between, pair_ends, with_closures
from statestore.catalog.reads.changes import SPLIT_EVENTS, rows_between, time_ranges
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.segment import Segment
from statestore.formats.values.types import TIME

OfKeys = Callable[[list[pa.Array]], Bools]
"""Returns which of the keys, given by their columns, are chosen."""

_Rows = tuple[SegmentWithClosures, Ints, Ints]  # rows of a segment, and their starts


@dataclass(frozen=True)
class _Belief:
    """The belief that is replayed: the newest, or with ``retention`` that of the last commit accepted at each time.

    An expiry leaves what each commit believed about moments from ``known`` on. Times before are not known one by one,
    so the rows valid at that moment are those of the newest version.
    """

    files: SegmentFiles
    segments: tuple[SegmentWithClosures, ...]
    known: int
    stream_times: Ints | None
    retention: int

    @staticmethod
    def of(files: SegmentFiles, log_state: LogState, retention: int | None) -> _Belief:
        horizon = log_state.horizon
        segments = tuple(with_closures(log_state.segments, log_state.closures))
        if retention is None:  # rows in belief segments are not those of the newest version
            segments = tuple(segment for segment in segments if segment.meta.role != "belief")
        return _Belief(
            files,
            segments,
            BEGINNING if horizon is None else horizon.time,
            None if retention is None else log_state.versions.stream_time,
            retention or 0,
        )

    def has(self, segment: SegmentWithClosures, low: int, high: int, starts: Ints) -> Bools:
        """Return which rows [low, high) are believed, and reach beyond the moments that have expired."""
        if self.stream_times is None:
            ends = ends_between(self.files, segment, low, high)
        else:
            ends = pair_ends(self.files, segment, np.arange(low, high), self._accepted(starts))
        believed: Bools = ends > np.maximum(starts, self.known)
        return believed

    def refused(self, segment: SegmentWithClosures, mine: OfKeys | None) -> int:
        """Return the number of rows of a segment whose write is refused, of chosen keys or of all."""
        if self.stream_times is None:
            return 0
        count, file = 0, self.files.open_segment(segment.meta)
        for low, high, starts in rows_between(self.files, segment, BEGINNING, NOW):
            added = file.int64_rows("_added", low, high)
            late = _chosen(file, self.files.spec, low, np.flatnonzero(added > self._accepted(starts)), mine)
            first_ends = pair_ends(self.files, segment, low + late, added[late])
            count += int(np.count_nonzero(first_ends > np.maximum(starts[late], self.known)))
        return count

    def _accepted(self, starts: Ints) -> Ints:
        """Return the last version whose writes at these times are accepted: the stream time before it is early
        enough.
        """
        assert self.stream_times is not None
        newest = len(self.stream_times) - 1
        found = np.searchsorted(self.stream_times, starts + self.retention, side="right")
        return np.where(starts <= self.known, newest, np.minimum(found, newest))


def timeline_writes(table: VersionedTable, retention: int | None, mine: OfKeys | None) -> Iterator[pa.Table]:
    """Yield key, value, ``timestamp`` and ``_change_type`` of every entry by time, of chosen keys or of all.

    ``retention`` (microseconds) is that of the new store; None accepts everything.
    """
    files = table.files()
    log_state, _lease = files.leased()
    belief = _Belief.of(files, log_state, retention)
    starts = [segment.meta.min_valid_from for segment in belief.segments if segment.meta.rows]
    if not starts:
        return
    last = max(segment.meta.max_valid_from for segment in belief.segments if segment.meta.rows)
    for low, high in time_ranges(files, belief.segments, min(starts), last):
        # Any number of rows may have one start. Where there are many, a range begins with it.
        for rows in _found(belief, low, low, mine):
            yield _writes(files, [rows])
        rest = list(_found(belief, low + 1, high, mine)) if low < high else []
        if rest:
            yield _writes(files, rest).sort_by("timestamp")


def refused_writes(table: VersionedTable, retention: int | None, mine: OfKeys | None = None) -> int:
    """Return the number of writes, of chosen keys or of all, that the new store refuses because they were too old at
    their turn.
    """
    files = table.files()
    log_state, _lease = files.leased()
    belief = _Belief.of(files, log_state, retention)
    return sum(belief.refused(segment, mine) for segment in belief.segments)


def _found(belief: _Belief, first: int, last: int, mine: OfKeys | None) -> Iterator[_Rows]:
    """Yield the entries that start from ``first`` to ``last``, with at most SPLIT_EVENTS rows of a segment at a
    time."""
    for segment in belief.segments:
        file = belief.files.open_segment(segment.meta)
        for begin, end, all_starts in rows_between(belief.files, segment, first, last):
            for low in range(begin, end, SPLIT_EVENTS):
                high = min(end, low + SPLIT_EVENTS)
                starts = all_starts[low - begin : high - begin]
                believed = np.flatnonzero(belief.has(segment, low, high, starts))
                chosen = _chosen(file, belief.files.spec, low, believed, mine)
                if len(chosen):
                    yield segment, low + chosen, starts[chosen]


def _chosen(file: Segment, spec: StoreSpec, first: int, rows: Ints, mine: OfKeys | None) -> Ints:
    """Return those of the rows, counted from ``first``, whose keys are chosen."""
    if mine is None or not len(rows):
        return rows
    chosen: Ints = rows[mine([file.take(name, first + rows) for name in spec.key_names])]
    return chosen


def _writes(files: SegmentFiles, found: Sequence[_Rows]) -> pa.Table:
    spec = files.spec
    fields = [*spec.key, *spec.value]
    schema = pa.schema(
        [
            *(pa.field(field.name, field.type) for field in fields),
            pa.field("timestamp", TIME),
            pa.field("_change_type", pa.string()),
        ]
    )
    batches = []
    for segment, rows, starts in found:
        file, dead = files.open_segment(segment.meta), segment.meta.tombstone
        columns = [
            pa.nulls(len(rows), field.type)
            if dead and field.name not in spec.key_names
            else file.take(field.name, rows).cast(field.type)
            for field in fields
        ]
        kind = pa.repeat(pa.scalar("delete" if dead else "insert"), len(rows))
        batches.append(pa.RecordBatch.from_arrays([*columns, pa.array(starts).cast(TIME), kind], schema=schema))
    return pa.Table.from_batches(batches, schema=schema)

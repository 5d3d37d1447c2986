"""Rows that are related to an event of the change feed: the row that it replaced, and the row that ends at its
start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.reads.belief import SegmentWithClosures, cells_of, ever_valid, may_start_or_end, pair_ends
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.values.key_equality import keys_equal

NOWHERE = -1
# Of at most this part of the rows of a segment, only their batches are read, which from an object store are all that is
# fetched. Were rows always read so, the changes of three commits would take 1.5 times as long (2 million versions).
DENSE_SHARE = 8


@dataclass(frozen=True)
class Events:
    """Parallel arrays: the stored row of each event, and the version at which its old value is looked up."""

    segment_index: Ints
    row: Ints
    hashes: npt.NDArray[np.uint64]
    start: Ints
    version: Ints
    tombstone: Bools
    keys: list[pa.Array]

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class StoredRows:
    """A stored row for each event (parallel arrays); ``segment_index`` is NOWHERE if there is none."""

    segment_index: Ints
    row: Ints

    @staticmethod
    def nowhere(count: int) -> StoredRows:
        return StoredRows(np.full(count, NOWHERE), np.full(count, NOWHERE))

    def put(self, events: Ints, segment_index: int, rows: Ints) -> None:
        self.segment_index[events] = segment_index
        self.row[events] = rows


def related(
    files: SegmentFiles, segments: Sequence[SegmentWithClosures], events: Events, taken_back: Bools, by_time: bool
) -> tuple[StoredRows, StoredRows, Bools]:
    """Return the row that each event replaced, the value row that ends at its start, and a mask of rows that still
    exist.

    The mask is set for a row that was taken back if the key nevertheless has a row at that start after the commit.
    """
    count = len(events)
    replaced, preceding = StoredRows.nowhere(count), StoredRows.nowhere(count)
    still_there = np.zeros(count, bool)
    if not count:
        return replaced, preceding, still_there
    low, high = int(events.start.min()), int(events.start.max())
    for number, segment in enumerate(segments):
        if may_start_or_end(segment, low, high):
            _relate(files, segment, number, events, taken_back, by_time, (replaced, preceding, still_there))
    return replaced, preceding, still_there


def _relate(
    files: SegmentFiles,
    segment: SegmentWithClosures,
    number: int,
    events: Events,
    taken_back: Bools,
    by_time: bool,
    answer: tuple[StoredRows, StoredRows, Bools],
) -> None:
    """Find the related rows of one segment.

    The entries of a key in its index are in the order of their start. Therefore the entries that begin with an event
    and those before it are found by search: a key may have many versions and many events.
    """
    replaced, preceding, still_there = answer
    index = files.index(segment.meta)
    first, last = index.ranges(events.hashes)
    present = np.flatnonzero(last > first)
    if not len(present):
        return
    starts_of = _starts_of(files, segment, int((last[present] - first[present]).sum()))
    low = _lower_bound(starts_of, index.rows, first[present], last[present], events.start[present])
    high = _lower_bound(starts_of, index.rows, low, last[present], events.start[present] + 1)
    counts = high - low
    probe = np.repeat(present, counts)
    entries = np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(len(probe))
    rows = index.rows[entries].astype(np.int64)
    starts = starts_of(rows)
    stays = taken_back[probe] & ever_valid(starts, pair_ends(files, segment, rows, events.version[probe]))
    replaces = np.zeros(len(rows), bool)
    if not by_time:
        replaces = ~taken_back[probe] & ever_valid(starts, pair_ends(files, segment, rows, events.version[probe] - 1))
    same = _same_keys(files, segment, events, probe, rows)
    replaced.put(probe[replaces & same], number, rows[replaces & same])
    still_there[probe[stays & same]] = True
    if not segment.meta.tombstone:
        asking = ~taken_back[present]
        asked = present[asking], first[present][asking], low[asking] - 1
        _precede(files, events, segment, number, asked, starts_of, preceding)


def _precede(
    files: SegmentFiles,
    events: Events,
    segment: SegmentWithClosures,
    number: int,
    asked: tuple[Ints, Ints, Ints],
    starts_of: Callable[[Ints], Ints],
    preceding: StoredRows,
) -> None:
    """Find the row that ends where an event starts, if this segment has it.

    It is the last row before the event in the belief of the event's commit. ``asked``: (events, the first entry of the
    key of each, the entry at which the backward search begins).
    """
    index = files.index(segment.meta)
    probe, first, entry = asked
    while True:
        more = entry >= first
        probe, first, entry = probe[more], first[more], entry[more]
        if not len(probe):
            return
        rows = index.rows[entry].astype(np.int64)
        ends = pair_ends(files, segment, rows, events.version[probe])
        believed = ever_valid(starts_of(rows), ends) & _same_keys(files, segment, events, probe, rows)
        hit = believed & (ends == events.start[probe])
        preceding.put(probe[hit], number, rows[hit])
        probe, first, entry = probe[~believed], first[~believed], entry[~believed] - 1


def _starts_of(files: SegmentFiles, segment: SegmentWithClosures, count: int) -> Callable[[Ints], Ints]:
    """Return the function from rows to their starts. For ``count`` rows that are few, only their batches are read."""
    file = files.open_segment(segment.meta)
    if _are_few(segment, count):
        return lambda rows: cells_of(file, "valid_from", rows)
    starts = file.int64("valid_from")
    return lambda rows: starts[rows]


def _are_few(segment: SegmentWithClosures, count: int) -> bool:
    return count <= segment.meta.rows // DENSE_SHARE


def _lower_bound(
    starts_of: Callable[[Ints], Ints], rows: npt.NDArray[np.uint32], low: Ints, high: Ints, moment: Ints
) -> Ints:
    """Return, for each event, the first entry of [low, high) whose row does not start before ``moment``; all at
    once."""
    low, high = low.copy(), high.copy()
    while (open_ := np.flatnonzero(low < high)).size:
        middle = (low[open_] + high[open_]) // 2
        before = starts_of(rows[middle].astype(np.int64)) < moment[open_]
        low[open_[before]] = middle[before] + 1
        high[open_[~before]] = middle[~before]
    return low


def _same_keys(files: SegmentFiles, segment: SegmentWithClosures, events: Events, probe: Ints, rows: Ints) -> Bools:
    if not len(rows):
        return np.zeros(0, bool)
    file, names = files.open_segment(segment.meta), files.spec.key_names
    if _are_few(segment, len(rows)):
        return keys_equal(events.keys, probe, [file.take(name, rows) for name in names], np.arange(len(rows)))
    return keys_equal(events.keys, probe, [file.column_array(name) for name in names], rows)

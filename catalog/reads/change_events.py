"""The events of a change feed: the rows that commits added, and those that they took back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as with_default

import numpy as np
import numpy.typing as npt

from statestore.catalog.log.leases import Lease
from statestore.catalog.reads.belief import (
    NOW,
    SegmentWithClosures,
    cells_of,
    chosen_ends,
    ends_between,
    ever_valid,
    may_take_back,
    not_ended,
    pair_ends,
)
from statestore.catalog.reads.picked_rows import PickedRows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.kernels.compiled_use import copies_pay
from statestore.formats.values.packed_sort import positions_in_order

EVENT_ROWS = 64  # rows of a scan from which compiled loops save as much time as from an event


@dataclass(frozen=True)
class ChangeSplit:
    """The events of commits [first, last], or (``by_time``) of state times [first, last] at version ``version``.

    ``lease`` keeps the files from vacuum as long as the split exists; None in a process that did not plan it.
    """

    segments: tuple[SegmentWithClosures, ...]
    first: int
    last: int
    by_time: bool
    version: int
    timestamps: tuple[int, ...]  # commit times (epoch microseconds) of versions base, base+1, …
    base: int
    rows: int
    after: int  # an expiry removed events at or before this state time, so none of them is returned
    late_before: int = NOW
    """The stream time before the first commit: rows of the commits before it start then at the latest."""
    latest_start: int = NOW
    """The stream time at the last commit, at which rows of the range start at the latest."""
    lease: Lease | None = with_default(default=None, repr=False, compare=False)
    passing: bool = False
    """Whether columns that were decompressed for this split and those before it are not kept for later reads."""
    whole: bool = False
    """Whether writes are events, too, that a reader of changes does not get: those at or before ``after`` of rows that
    reach beyond it, and deletes that ended nothing, whose values are null."""


@dataclass(frozen=True)
class Events:
    """Parallel arrays: the stored row of each event, and the version at which its old value is looked up.

    ``own`` is the commit that added the row. Rows that were ``taken_back`` are of an earlier commit than ``version``.
    ``compiled``: whether compiled loops read so many events.
    """

    segment_index: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]
    start: Ints
    version: Ints
    own: Ints
    taken_back: Bools
    compiled: bool

    def __len__(self) -> int:
        return len(self.row)


# Number of a segment, or those of each row; rows, their starts, versions and own commits.
Found = tuple[int | npt.NDArray[np.int32], Ints, Ints, Ints, Ints]


def events_by_version(
    files: SegmentFiles, split: ChangeSplit, of_keys: Sequence[Ints] | None, low: int, high: int
) -> Events:
    """Return the rows whose own commit lies in the range, each once, from the stored row that still has its first
    belief, and the rows that these commits took back; of those that start from ``low`` to ``high``, by version and
    start.

    ``of_keys`` are the rows of each segment among which they are; None: all.
    """
    parts = [(number, *part) for number in range(len(split.segments)) for part in _added(files, split, number, of_keys)]
    count = sum(len(part[1]) for part in parts)
    found, compiled = list[Found](), copies_pay(EVENT_ROWS * count)
    if count:
        source = np.repeat(np.array([part[0] for part in parts], np.int32), [len(part[1]) for part in parts])
        rows, added, starts = (np.concatenate([part[place] for part in parts]) for place in range(1, 4))
        ends = PickedRows(files, split.segments, source, rows.astype(np.int32), compiled).ends_at(added)
        known = ever_valid(starts, ends) & not_ended(ends, split.after) & (starts >= low) & (starts <= high)
        if not known.all():
            source, rows, added, starts = source[known], rows[known], added[known], starts[known]
        found.append((source, rows, starts, added, added))
    for number, rows, versions in _taken_back(files, split, of_keys):
        file = files.open_segment(split.segments[number].meta)
        starts, own = cells_of(file, "valid_from", rows), cells_of(file, "_added", rows)
        inside = (starts >= low) & (starts <= high)
        found.append((number, rows[inside], starts[inside], versions[inside], own[inside]))
    return _in_order(split, found, compiled)


def added_starts(files: SegmentFiles, split: ChangeSplit, step: int) -> list[Ints]:
    """Return every ``step``-th start of the rows that commits of the range added, segment by segment."""
    return [
        starts[::step] for number in range(len(split.segments)) for _, _, starts in _added(files, split, number, None)
    ]


def _added(
    files: SegmentFiles, split: ChangeSplit, number: int, of_keys: Sequence[Ints] | None
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield the rows of a segment that commits of the range added, these commits, and the starts of the rows."""
    meta = split.segments[number].meta
    if meta.min_added > split.last or meta.max_added < split.first:
        return
    file = files.open_segment(meta)
    if of_keys is not None:
        rows, added = _within(of_keys[number], cells_of(file, "_added", of_keys[number]), split.first, split.last)
        yield rows, added, cells_of(file, "valid_from", rows)
        return
    for begin, block in meta.spans():
        low, high = begin, begin + block.rows
        if block.min_added > split.last or (not meta.tombstone and block.min_valid_from > split.latest_start):
            continue
        if not meta.tombstone:  # rows that are not late start between the stream times before and after their commits
            is_punctual = block.late_added < split.first
            if is_punctual and block.max_valid_from <= split.late_before:
                continue
            if block.max_valid_from > split.latest_start:
                high = begin + file.started_by(split.latest_start, begin, begin + block.rows)
            if is_punctual and block.min_valid_from <= split.late_before:
                low = begin + file.started_by(split.late_before, begin, high)
            if low == high:
                continue
        added = file.int64_rows("_added", low, high)
        if meta.min_added >= split.first and meta.max_added <= split.last:
            yield np.arange(low, high), added, file.int64_rows("valid_from", low, high)
            continue
        mine = np.flatnonzero((added >= split.first) & (added <= split.last))
        if len(mine):
            first, stop = int(mine[0]), int(mine[-1]) + 1
            yield low + mine, added[mine], file.int64_rows("valid_from", low + first, low + stop)[mine - first]


def events_by_time(files: SegmentFiles, split: ChangeSplit, of_keys: Sequence[Ints] | None) -> Events:
    """Return the rows in the belief of the newest version that start in the range."""
    found: list[Found] = []
    for number, segment in enumerate(split.segments):
        file = files.open_segment(segment.meta)
        if of_keys is not None:
            starts = cells_of(file, "valid_from", of_keys[number])
            rows, starts = _within(of_keys[number], starts, split.first, split.last)
            ever = ever_valid(starts, chosen_ends(files, segment, rows))
            rows, starts = rows[ever], starts[ever]
            found.append((number, rows, starts, np.full(len(rows), split.version), cells_of(file, "_added", rows)))
            continue
        for low, high, starts in rows_between(files, segment, split.first, split.last):
            valid = np.flatnonzero(ever_valid(starts, ends_between(files, segment, low, high)))
            own = file.int64_rows("_added", low, high)[valid]
            found.append((number, low + valid, starts[valid], np.full(len(valid), split.version), own))
    return _in_order(split, found, copies_pay(EVENT_ROWS * sum(len(part[1]) for part in found)))


def rows_between(
    files: SegmentFiles, segment: SegmentWithClosures, first: int, last: int
) -> Iterator[tuple[int, int, Ints]]:
    """Yield the ranges of rows that start from ``first`` to ``last``, both inclusive, one for each block, and their
    starts.
    """
    for begin, block in segment.meta.spans():
        if block.min_valid_from > last or block.max_valid_from < first:
            continue
        starts = files.open_segment(segment.meta).int64_rows("valid_from", begin, begin + block.rows)
        low, high = int(np.searchsorted(starts, first, "left")), int(np.searchsorted(starts, last, "right"))
        if low < high:
            yield begin + low, begin + high, starts[low:high]


def _within(rows: Ints, cells: Ints, first: int, last: int) -> tuple[Ints, Ints]:
    """Return those of the rows whose cells lie from ``first`` to ``last``, and these cells."""
    chosen = (cells >= first) & (cells <= last)
    return rows[chosen], cells[chosen]


def _taken_back(
    files: SegmentFiles, split: ChangeSplit, of_keys: Sequence[Ints] | None
) -> list[tuple[int, Ints, Ints]]:
    """Return the value rows that a commit of the range closed at their own start: (segment index, rows, commit as
    version).

    Most of them were replaced by a row of that commit, which is then the event;
    `statestore.catalog.reads.replaced_rows` distinguishes the two
    cases.
    """
    events = []
    for number, segment in enumerate(split.segments):
        meta = segment.meta
        if meta.tombstone:
            continue
        for piece in segment.until(split.last).since(split.first):
            if may_take_back(piece, meta):
                rows, ends = files.closures(piece, meta.rows)
                if of_keys is not None:
                    asked = np.isin(rows, of_keys[number])
                    rows, ends = rows[asked], ends[asked]
                replaced = rows[~ever_valid(cells_of(files.open_segment(meta), "valid_from", rows), ends)]
                events.append((number, replaced, np.full(len(replaced), piece.version)))
        if meta.role == "belief" and meta.max_dropped >= split.first:
            rows = np.arange(meta.rows) if of_keys is None else of_keys[number]
            dropped = cells_of(files.open_segment(meta), "_dropped", rows)
            rows, versions = _within(rows, dropped, split.first, split.last)
            events.append((number, rows, versions))
    if not split.whole:
        return events
    # A row that replaces one whose end an expiry has passed may be gone, and would not be seen to replace it.
    before = [pair_ends(files, split.segments[number], rows, versions - 1) for number, rows, versions in events]
    known = [not_ended(ends, split.after) for ends in before]
    return [(number, rows[k], versions[k]) for (number, rows, versions), k in zip(events, known, strict=True)]


def _in_order(split: ChangeSplit, found: Sequence[Found], compiled: bool) -> Events:
    """Return the events by (commit version, start)."""
    parts = [part for part in found if len(part[1])]
    if not parts:
        none = np.empty(0, np.int64)
        return Events(np.empty(0, np.int32), np.empty(0, np.int32), none, none, none, np.empty(0, bool), compiled)
    segment_index = np.concatenate(
        [np.full(len(part[1]), part[0], np.int32) if isinstance(part[0], int) else part[0] for part in parts]
    )
    row, start, version, own = (np.concatenate([part[place] for part in parts]) for place in range(1, 5))
    row = row.astype(np.int32)
    shown = own if split.by_time else version
    order = _order(shown, start)
    if not split.whole:
        order = order[start[order] > split.after]
    segment_index, row, start = segment_index[order], row[order], start[order]
    version, own = version[order], own[order]
    taken_back = np.zeros(len(order), bool) if split.by_time else own != version
    return Events(segment_index, row, start, version, own, taken_back, compiled)


def _order(version: Ints, start: Ints) -> npt.NDArray[np.int32] | Ints:
    """Return the positions by version and start."""
    low, high, least = int(start.min()), int(start.max()), int(version.min())
    bits = (high - low).bit_length()
    if bits + (int(version.max()) - least).bit_length() > 63:
        return np.lexsort((start, version))
    return positions_in_order((((version - least) << bits) | (start - low)).view(np.uint64))

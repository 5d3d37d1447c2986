"""The rule of as-of: which rows of a segment a version has, with which ends, and which of them a moment has.

These are the rules of docs/format.md ("Belief"). A row counts at version v if it was added by then and not dropped. Its
end is the newest closure of a commit up to v, else the stored end if the commit that gave it is not later than v, else
open. A split row whose stored end came later is represented by its belief row. The row is valid at a moment T if it
starts at or before T and ends after T. Times are epoch microseconds.

Statistics of blocks, segments and closure lists bound what their rows can be; the tests of these bounds are here, too.

Compiled loops have the same rules in ``statestore.formats.kernels.belief_kernels``. Nothing else compares ends with
moments, or versions with those of rows, to answer a question.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.carried_states import (
    LAST_CLOSED,
    LATE_ADDED,
    MAX_DROPPED,
    MAX_TO,
    MIN_ADDED,
    MIN_FROM,
    SEGMENT,
    BlockStatistics,
    OpenMarks,
)
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import ABSENT, OPEN, Bools, Hashes, Ints, U32s
from statestore.formats.segments.segment import Segment
from statestore.formats.segments.segment_meta import ClosureSlice, SegmentMeta

NOW = OPEN - 1  # a state time after every row
BEGINNING = ABSENT + 1
Chosen = Ints | slice
EVERY = slice(None)


@dataclass(frozen=True)
class SegmentWithClosures:
    """One segment of a log state: its statistics and the closures that are not folded, in version order."""

    meta: SegmentMeta
    closures: tuple[ClosureSlice, ...] = ()

    @cached_property
    def pending(self) -> int:
        """Number of its closures."""
        return sum(map(attrgetter("count"), self.closures))

    def until(self, version: int) -> SegmentWithClosures:
        if not self.closures or self.closures[-1].version <= version:
            return self
        count = bisect_right(self.closures, version, key=attrgetter("version"))
        return SegmentWithClosures(self.meta, self.closures[:count])

    def since(self, version: int) -> tuple[ClosureSlice, ...]:
        """Return the closures of the commit ``version`` and of later ones."""
        if not self.closures or self.closures[-1].version < version:
            return ()
        return self.closures[bisect_left(self.closures, version, key=attrgetter("version")) :]


def newest_ends(files: SegmentFiles, segment: SegmentWithClosures) -> Ints:
    """Return the ends as of the newest version; the end of a replaced row is its own start."""
    return files.newest_ends(segment.meta, segment.closures)


def changed_ends(files: SegmentFiles, segment: SegmentWithClosures, start: int, stop: int) -> Ints | None:
    """Return what `newest_ends` has for the rows [start, stop); None if these are the stored ends."""
    if not segment.closures:
        return None
    pending, count = files.pending(segment.meta, segment.closures), len(segment.closures)
    if not pending.touches(start, stop, count):
        return None
    ends = files.open_segment(segment.meta).int64_rows("valid_to", start, stop).copy()
    pending.apply(ends, start, count)
    return ends


def ends_between(files: SegmentFiles, segment: SegmentWithClosures, start: int, stop: int) -> Ints:
    """Return what `newest_ends` has for the rows [start, stop), without a copy where no closure is pending."""
    changed = changed_ends(files, segment, start, stop)
    return files.open_segment(segment.meta).int64_rows("valid_to", start, stop) if changed is None else changed


def chosen_ends(files: SegmentFiles, segment: SegmentWithClosures, rows: Ints) -> Ints:
    """Return what `newest_ends` has for these rows, in their order."""
    ends = cells_of(files.open_segment(segment.meta), "valid_to", rows)
    close_rows(files, segment, ends, rows)
    return ends


def close_rows(files: SegmentFiles, segment: SegmentWithClosures, ends: Ints, rows: Ints) -> None:
    """Put the newest ends of these rows in the place of their stored ``ends``."""
    if segment.closures:
        files.pending(segment.meta, segment.closures).update(ends, rows, len(segment.closures))


def dead_rows(files: SegmentFiles, segment: SegmentWithClosures) -> int:
    """Return the number of rows that are not open as of the newest version."""
    meta = segment.meta
    if not segment.closures and meta.open_rows is not None:
        return meta.rows - meta.open_rows
    return meta.rows - files.open_marks(meta, segment.closures).open


def blocks_with_closures(files: SegmentFiles, segment: SegmentWithClosures) -> list[bool]:
    """Return, for each block of the segment, whether one of its rows has a pending closure."""
    spans = segment.meta.spans()
    if not segment.closures or len(spans) == 1:
        return [bool(segment.closures)] * len(spans)
    pending, count = files.pending(segment.meta, segment.closures), len(segment.closures)
    return [pending.touches(first, first + block.rows, count) for first, block in spans]


def ends_at(
    files: SegmentFiles, segment: SegmentWithClosures, version: int, start: int = 0, stop: int | None = None
) -> Ints:
    """Return the ends of the rows [start, stop) in the belief of the commit ``version``.

    The end is ABSENT where that version does not have the row.
    """
    stop = segment.meta.rows if stop is None else stop
    file, known = files.open_segment(segment.meta), segment.until(version)

    def cells(name: str, at: Chosen) -> Ints | Bools:
        found = file.bools_rows(name, start, stop) if name == "_split" else file.int64_rows(name, start, stop)
        return found[at]

    def close(ends: Ints) -> None:
        files.pending(segment.meta, known.closures).apply(ends, start, len(known.closures))

    return believed(cells, version, _in_doubt(segment.meta, version), close if known.closures else None)


def pair_ends(files: SegmentFiles, segment: SegmentWithClosures, rows: Ints, versions: Ints) -> Ints:
    """Return ends like `ends_at`, for chosen rows, each at its own version."""
    file = files.open_segment(segment.meta)
    if not len(rows):
        return cells_of(file, "valid_to", rows)

    def close(ends: Ints) -> None:
        pending = files.pending(segment.meta, segment.closures)
        pending.update(ends, rows, np.minimum(pending.numbers_at(versions), len(segment.closures)))

    def cells(name: str, at: Chosen) -> Ints:
        return cells_of(file, name, rows[at])

    return believed(cells, versions, _in_doubt(segment.meta, int(versions.min())), close if segment.closures else None)


@dataclass(frozen=True)
class InDoubt:
    """The rows that a version may see otherwise than they are stored: for another end, a later commit, or a drop.

    None stands for no row.
    """

    closed: Chosen | None
    added: Chosen | None
    dropped: Chosen | None


def last_end(meta: SegmentMeta) -> int:
    """Return the last commit that gave a stored end to a row which older versions have, too; NOW where any may be."""
    # A later end of a row that a version has is one of ``last_closed`` or of a split row.
    return NOW if meta.role == "belief" else max(meta.last_closed, meta.split_closed)


def _in_doubt(meta: SegmentMeta, oldest: int) -> InDoubt:
    closed, added = last_end(meta) > oldest, meta.max_added > oldest
    return InDoubt(*(EVERY if each else None for each in (closed, added, meta.role == "belief")))


def believed(
    cells: Callable[[str, Chosen], Ints | Bools],
    version: int | Ints,
    doubt: InDoubt,
    close: Callable[[Ints], None] | None,
) -> Ints:
    """Return the ends of rows at a version, or of each row at its own: the rule itself.

    ``cells`` returns a column of some of these rows. ``close`` puts the ends of closures up to the version in the place
    of stored ones.
    """

    def chosen(rows: Chosen, compared: Callable[[Any, Any], Any], name: str) -> Ints:
        found: Ints = np.flatnonzero(
            compared(cells(name, rows), version if isinstance(version, int) else version[rows])
        )
        return found if isinstance(rows, slice) else rows[found]

    ends = cells("valid_to", EVERY).astype(np.int64)
    if doubt.closed is not None:
        later = chosen(doubt.closed, np.greater, "_closed")
        if len(later):
            ends[later] = np.where(cells("_split", later) != 0, ABSENT, OPEN)
    if close is not None:
        close(ends)
    if doubt.added is not None:
        ends[chosen(doubt.added, np.greater, "_added")] = ABSENT
    if doubt.dropped is not None:
        ends[chosen(doubt.dropped, np.less_equal, "_dropped")] = ABSENT
    return ends


def cells_of(file: Segment, name: str, rows: Ints) -> Ints:
    """Return the numbers of a column at these rows. Of a segment with blocks only their batches are read."""
    if not file.meta.blocks:
        return file.bools(name)[rows].astype(np.int64) if name == "_split" else file.int64(name)[rows]
    cells: Ints = np.array(file.take(name, rows).cast(pa.int64()).fill_null(OPEN))
    return cells


def with_closures(
    metas: Sequence[SegmentMeta], closures: Mapping[str, tuple[ClosureSlice, ...]]
) -> list[SegmentWithClosures]:
    """Return these segments with their closures, given by segment name."""
    return [SegmentWithClosures(meta, closures.get(meta.name, ())) for meta in metas]


# Which rows a moment has


def is_valid(start: int, end: int, moment: int) -> bool:
    """Return whether a row is valid at a moment."""
    return start <= moment < end


def is_valid_from(start: int, end: int, moment: int) -> bool:
    """Return whether a row, if it is not replaced, ends at or after a moment."""
    return end >= moment and end > start


def ever_valid(starts: Ints, ends: Ints) -> Bools:
    """Return which rows are valid at any moment; a replaced row ends at its own start."""
    return ends > starts


def not_ended(ends: Ints, moment: int | Ints) -> Bools:
    """Return which rows end after a moment, each after its own where there are several."""
    return ends > moment


@dataclass(frozen=True)
class TimeRange:
    """State times [low, high], both inclusive, as recorded by ``version``; ``newest``: no later commit exists."""

    low: int
    high: int
    version: int
    newest: bool

    @property
    def is_now(self) -> bool:
        """Whether only open rows belong to the range."""
        return self.newest and self.low == NOW

    def clamped(self, log_state: LogState) -> TimeRange:
        """Return the range with both ends at most at the stream time of its version.

        No row that a commit recorded starts after its stream time, so later moments have the answer of that time.
        """
        if self.newest:
            return self
        stream_time = log_state.versions.stream_time_at(self.version)
        return TimeRange(min(self.low, stream_time), min(self.high, stream_time), self.version, False)

    def has(self, ends: Ints, starts: Callable[[], Ints]) -> Bools:
        """Return which rows are valid at some moment of the range; all of them start by its end."""
        valid = not_ended(ends, self.low)
        return valid if self.low == self.high else valid & ever_valid(starts(), ends)


@dataclass(frozen=True)
class Piece:
    """Rows [start, stop) of one block of a segment; ``cut`` if some of them may not belong to the answer."""

    segment: SegmentWithClosures
    start: int
    stop: int
    cut: bool

    @property
    def rows(self) -> int:
        return self.stop - self.start


def open_marks(files: SegmentFiles, segment: SegmentWithClosures, window: TimeRange) -> OpenMarks | None:
    """Return the marks of open rows, if exactly these rows have not ended before the window; else None.

    So it is as of now. The newest closures tell at little cost that it is not so.
    """
    if not window.newest or window.low != window.high:
        return None
    if segment.closures and segment.closures[-1].min_valid_to > window.low:
        return None
    if not segment.closures and any(window.low < block.max_valid_to < OPEN for _, block in segment.meta.spans()):
        return None  # the log says so; marks would be made of all ends of the file
    marks = files.open_marks(segment.meta, segment.closures)
    return marks if marks.latest_end <= window.low else None


def judged(
    files: SegmentFiles, piece: Piece, start: int, stop: int, window: TimeRange, shows_ends: bool
) -> tuple[Bools | None, Ints | None]:
    """Return (mask of the rows [start, stop) of a piece that belong to the window, their ends).

    The mask is None if all rows belong to it. The ends are None if those of the answer are the stored ones.
    """
    segment = piece.segment
    file = files.open_segment(segment.meta)
    if window.newest:
        marks = open_marks(files, segment, window) if piece.cut else None
        if marks is not None:
            is_open = marks.between(start, stop)
            return None if is_open.all() else is_open, None
        changed = changed_ends(files, segment, start, stop) if piece.cut or shows_ends else None
    else:
        changed = ends_at(files, segment, window.version, start, stop) if piece.cut or shows_ends else None
    if not piece.cut:
        return None, changed
    ends = file.int64_rows("valid_to", start, stop) if changed is None else changed
    live = window.has(ends, lambda: file.int64_rows("valid_from", start, stop))
    return None if live.all() else live, changed


def ends_of_rows(files: SegmentFiles, piece: Piece, rows: Ints, window: TimeRange, shows_ends: bool) -> Ints | None:
    """Return the ends of these rows of a piece; None if those of the answer are the stored ones."""
    segment = piece.segment
    if not piece.cut and not (shows_ends and (segment.closures or not window.newest)):
        return None
    if window.newest:
        return chosen_ends(files, segment, rows)
    return pair_ends(files, segment, rows, np.full(len(rows), window.version))


def live_rows(files: SegmentFiles, piece: Piece, window: TimeRange) -> int:
    """Return the number of rows of a piece that belong to the window; only their times are read."""
    live, _ = judged(files, piece, piece.start, piece.stop, window, False)
    return piece.rows if live is None else int(np.count_nonzero(live))


def live_mask(files: SegmentFiles, piece: Piece, window: TimeRange) -> Bools | None:
    """Return a mask of the rows of a piece that belong to the window, None if all do; only their times are read."""
    return judged(files, piece, piece.start, piece.stop, window, False)[0]


def live_starts(files: SegmentFiles, piece: Piece, window: TimeRange) -> Ints:
    """Return the starts of the rows of a piece that belong to the window, in order; only times are read."""
    starts = files.open_segment(piece.segment.meta).int64_rows("valid_from", piece.start, piece.stop)
    live = live_mask(files, piece, window)
    return starts if live is None else starts[live]


# Bounds of rows


def blocks_with_rows(statistics: BlockStatistics, window: TimeRange) -> list[list[int]]:
    """Return the statistics, from SEGMENT to LATE_ADDED, of the blocks that may have rows of a window."""
    table, version = statistics.table, window.version
    found: Bools = (table[MIN_ADDED] <= version) & (table[MIN_FROM] <= window.high)
    if window.newest:
        found &= (table[MAX_TO] > window.low) & (table[MAX_DROPPED] < 0)
    else:
        found &= (table[MAX_TO] > window.low) | (table[LAST_CLOSED] > version)
        found &= (table[MAX_DROPPED] < 0) | (table[MAX_DROPPED] > version)
    blocks: list[list[int]] = table[SEGMENT : LATE_ADDED + 1, found].T.tolist()
    return blocks


def may_have_valid(meta: SegmentMeta, low: int, high: int) -> bool:
    """Return whether a segment may have rows that are valid at a moment from ``low`` to ``high``, both inclusive, as of
    now.
    """
    return meta.min_valid_from <= high and meta.max_valid_to > low


def may_start(meta: SegmentMeta, low: int, high: int) -> bool:
    """Return whether rows of a segment may start from ``low`` to ``high``, both inclusive."""
    return meta.min_valid_from <= high and meta.max_valid_from >= low


def may_end(segment: SegmentWithClosures, low: int, high: int) -> bool:
    """Return whether rows of a segment may end from ``low`` to ``high``, both inclusive, at any version."""
    meta = segment.meta
    if meta.min_valid_from > high:
        return False
    if meta.min_valid_to <= high and meta.max_valid_to >= low:
        return True
    return any(piece.min_valid_to <= high for piece in segment.closures)


def may_take_back(closures: ClosureSlice, meta: SegmentMeta) -> bool:
    """Return whether closures may end rows of their segment at the start of the row itself."""
    return closures.min_valid_to <= meta.max_valid_from


def may_be_cut(
    files: SegmentFiles,
    segment: SegmentWithClosures,
    first: int,
    rows: int,
    bounds: tuple[int, int, int],
    window: TimeRange,
) -> bool:
    """Return whether some of these rows of a block, which start by the end of the window, may not belong to it.

    ``bounds``: MIN_TO, SPLIT_CLOSED and LATE_ADDED of the block. The log tells the least end of each closure list,
    which is enough for a segment of one block.
    """
    least_end, split_closed, late_added = bounds
    if segment.meta.role == "belief" or least_end <= window.low:
        return True
    if not window.newest and max(split_closed, late_added) > window.version:
        return True
    closures = segment.closures
    # A closure at the row's own start replaces the row, so a window of many times cannot be judged by its least end.
    latest = window.low if window.low == window.high else OPEN
    if not any(piece.min_valid_to <= latest for piece in closures):
        return False
    if not segment.meta.blocks:
        return True
    # Marks are made of all ends of the segment, which a plan of an object store has not fetched.
    marks = open_marks(files, segment, window) if files.is_local else None
    if marks is not None:
        return not marks.between(first, first + rows).all()
    return files.pending(segment.meta, closures).touches(first, first + rows, len(closures), latest)


# The row of a key at a moment


class Times(Protocol):
    """Times by row: of one row, and those of many rows in their order."""

    @property
    def read(self) -> Callable[[int], int]: ...
    def take(self, rows: Ints, /) -> Ints: ...


class KeyedRows(Protocol):
    """Rows of a segment as a search for keys needs them: entries of its key index, times, and newest ends.

    ``rows`` are in order of the hashes of their keys, and rows of one hash in order of their starts. ``new_end``
    returns the newest end of a row, given the stored one; None where that is the newest. ``is_key`` returns whether a
    row has a key.
    """

    @property
    def rows(self) -> memoryview: ...
    @property
    def starts(self) -> Times: ...
    @property
    def ends(self) -> Times: ...
    @property
    def new_end(self) -> Callable[[int, int], int] | None: ...
    @property
    def is_key(self) -> Callable[[int, Any], bool]: ...


def valid_row(segment: KeyedRows, first: int, stop: int, key: Any, moment: int) -> tuple[int, int] | None:
    """Return (row, newest end) of the row of a key at a moment, among the entries [first, stop) of its hash."""
    rows, start, stored, new_end = segment.rows, segment.starts.read, segment.ends.read, segment.new_end
    at = bisect_right(rows, moment, first, stop, key=start) - 1
    while at >= first:
        row = rows[at]
        if segment.is_key(row, key):
            end = stored(row) if new_end is None else new_end(row, stored(row))
            if moment < end:
                return row, end
            # The versions of a key do not overlap: one that has ended leaves none of the older ones.
            if start(row) < end:
                return None
        at -= 1
    return None


def valid_rows(
    entries: Hashes,
    segment: KeyedRows,
    first: Ints,
    moment: int | Ints,
    close: Callable[[Ints, Ints], None],
    are_keys: Callable[[Ints, Ints], Bools],
) -> tuple[Ints, Ints, Ints, Ints] | None:
    """Return what `valid_row` finds for many keys: their numbers, and the rows, starts and newest ends, by row.

    ``entries`` are the hashes of the segment's key index, and the entries of the hash of key i begin at ``first[i]``.
    ``moment`` is that of all keys, or has one for each.
    ``close`` puts newest ends of rows in the place of stored ones, and ``are_keys`` returns which rows have the keys of
    these numbers.
    """
    rows_of = np.frombuffer(segment.rows, np.uint32)
    starts_of, ends_of = segment.starts.take, segment.ends.take
    numbers, moments = np.arange(len(first)), np.broadcast_to(moment, len(first))
    at = _last_started(entries, rows_of, starts_of, first, moments)
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    while True:
        left = at >= first
        if not left.all():
            at, first, numbers, moments = at[left], first[left], numbers[left], moments[left]
        if not len(at):
            break
        rows = rows_of[at].astype(np.int64)
        starts, ends = starts_of(rows), ends_of(rows)
        close(ends, rows)
        mine = are_keys(rows, numbers)
        valid = mine & (moments < ends)
        found.append((numbers[valid], rows[valid], starts[valid], ends[valid]))
        older = ~(mine & ((moments < ends) | ever_valid(starts, ends)))
        at, first, numbers, moments = at[older] - 1, first[older], numbers[older], moments[older]
    if not any(len(part[0]) for part in found):
        return None
    columns = found[0] if len(found) == 1 else tuple(np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(columns[1])
    numbers, rows, starts, ends = (column[order] for column in columns)
    return numbers, rows, starts, ends


def _last_started(
    entries: Hashes, rows_of: U32s, starts_of: Callable[[Ints], Ints], first: Ints, moments: Ints
) -> Ints:
    """Return the last entry of each hash whose row has started at its moment; without one, that before ``first``."""
    at: Ints = first - (starts_of(rows_of[first].astype(np.int64)) > moments)
    going_on = np.flatnonzero((at == first) & (first + 1 < len(entries)))
    going_on = going_on[entries[first[going_on] + 1] == entries[first[going_on]]]
    if not len(going_on):
        return at
    low, moments = first[going_on] + 1, moments[going_on]
    high = entries.searchsorted(entries[low], "right")
    while True:
        open_ = low < high
        if not open_.any():
            break
        middle = (low + high) >> 1
        started = open_ & (starts_of(rows_of.take(middle, mode="clip").astype(np.int64)) <= moments)
        low = np.where(started, middle + 1, low)
        high = np.where(open_ & ~started, middle, high)
    at[going_on] = low - 1
    return at

"""Carry from one log state of a store to the next: closures that are not folded, marks of open rows, block statistics.

The closures of a segment only grow while the segment exists: those of an older log state are the first of those of a
newer one. So a state for many closures also answers for fewer of them, and its first closures are recognized by their
number and the last of them. States are immutable, and threads share them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from statestore.formats.kernels.arrays import Bools, Bytes, Ints, U32s
from statestore.formats.segments.segment_meta import OPEN, ClosureSlice, SegmentMeta

Slices = tuple[ClosureSlice, ...]
ReadSlice = Callable[[ClosureSlice], tuple[U32s, Ints]]  # rows ascending, and their new ends

BEFORE_ALL = -(2**63)
_STATE_BYTES = 512  # of a state without its arrays


@dataclass(frozen=True)
class _Run:
    """Closures by (row, slice). ``number`` is the position of a closure's slice among the closures of the segment."""

    rows: U32s
    ends: Ints
    number: U32s

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """Return the positions of the closures of the rows [start, stop)."""
        low, high = self.rows.searchsorted(np.array([start, stop], np.uint32)).tolist()
        return low, high


@dataclass(frozen=True)
class PendingClosures:
    """The closures of one segment by row, in runs of decreasing size, old ones first.

    A run is at least twice as large as the next. So a closure is merged a few times at most, and a row is looked up in
    few runs. In each method ``count`` is the number of first slices that are considered.
    """

    slices: Slices = ()
    runs: tuple[_Run, ...] = ()
    versions: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # commits of the slices

    @property
    def nbytes(self) -> int:
        return _STATE_BYTES + sum(run.rows.nbytes + run.ends.nbytes + run.number.nbytes for run in self.runs)

    @cached_property
    def addresses(self) -> tuple[tuple[int, int, int, int], ...]:
        """Addresses of the rows, ends and numbers of each run in memory, and how many there are, for compiled loops."""
        return tuple((_address(run.rows), _address(run.ends), _address(run.number), len(run.rows)) for run in self.runs)

    def extended(self, slices: Slices, read: ReadSlice) -> PendingClosures:
        """Return the state after ``slices``, which begin with those of this state."""
        first = len(self.slices)
        parts = [read(piece) for piece in slices[first:]]
        if not parts:
            return self
        rows, ends = np.concatenate([rows for rows, _ in parts]), np.concatenate([ends for _, ends in parts])
        number = np.repeat(np.arange(first, len(slices), dtype=np.uint32), [len(rows) for rows, _ in parts])
        if len(parts) > 1:
            order = np.argsort(rows, kind="stable")
            rows, ends, number = rows[order], ends[order], number[order]
        runs = [*self.runs, _Run(rows, ends, number)]
        while len(runs) > 1 and len(runs[-2].rows) < 2 * len(runs[-1].rows):
            newer, older = runs.pop(), runs.pop()
            runs.append(_merged(older, newer))
        versions = np.fromiter((piece.version for piece in slices[first:]), np.int64)
        return PendingClosures(slices, tuple(runs), np.concatenate((self.versions, versions)))

    def touches(self, start: int, stop: int, count: int, until: int = OPEN) -> bool:
        """Return whether a row of [start, stop) has a closure with an end of at most ``until``."""
        for run in self.runs:
            low, high = run.span(start, stop)
            mine = run.ends[low:high] <= until
            if count < len(self.slices):
                mine &= run.number[low:high] < count
            if mine.any():
                return True
        return False

    def first(self, count: int) -> Iterator[tuple[U32s, Ints]]:
        """Yield rows and ends of the closures of the ``count`` first slices, in no order."""
        for run in self.runs:
            if count >= len(self.slices):
                yield run.rows, run.ends
            else:
                mine = run.number < count
                yield run.rows[mine], run.ends[mine]

    def apply(self, ends: Ints, start: int, count: int) -> None:
        """Change ``ends``, the stored ends of the rows from ``start`` on, to the newest ones."""
        for run in self.runs:
            low, high = run.span(start, start + len(ends))
            rows, new_ends = run.rows[low:high], run.ends[low:high]
            if count < len(self.slices):
                mine = run.number[low:high] < count
                rows, new_ends = rows[mine], new_ends[mine]
            ends[rows.astype(np.int64) - start] = new_ends  # of several closures of a row the last one stays

    def update(self, ends: Ints, rows: Ints, count: int | Ints) -> None:
        """Change ``ends``, the stored ends of these rows, to the newest ones; ``count``: for all rows, or for each."""
        asked = rows.astype(np.uint32)
        limits = np.broadcast_to(np.asarray(count, np.int64), rows.shape)
        for run in self.runs:
            at = run.rows.searchsorted(asked, "right") - 1
            found = np.flatnonzero((at >= 0) & (run.rows[at] == asked))
            at = at[found]
            while (later := run.number[at] >= limits[found]).any():
                at = at - later
                same = (at >= 0) & (run.rows[at] == asked[found])
                found, at = found[same], at[same]
            ends[found] = run.ends[at]

    def new_end(self, count: int) -> Callable[[int, int], int]:
        """Return the function that returns the newest end of a row, which is called with the row and its stored end."""
        newest_first = [(run.rows.data, run.ends.data, run.number.data) for run in self.runs[::-1]]

        def new_end(row: int, stored: int) -> int:
            for rows, ends, numbers in newest_first:
                at = bisect_right(rows, row) - 1
                while at >= 0 and rows[at] == row:
                    if numbers[at] < count:
                        end: int = ends[at]
                        return end
                    at -= 1
            return stored

        return new_end

    def versions_of(self, rows: Ints, count: int) -> Ints:
        """Return the commits of all closures of these rows, in no order."""
        numbers = [np.empty(0, np.int64)]
        for run in self.runs:
            for row in rows.tolist():
                low, high = run.span(row, row + 1)
                numbers.append(run.number[low:high].astype(np.int64))
        found = np.concatenate(numbers)
        return self.versions[found[found < count]]

    def numbers_at(self, versions: Ints) -> Ints:
        """Return, for each version, the number of first slices of commits up to it."""
        return self.versions.searchsorted(versions, "right")


@dataclass(frozen=True)
class OpenMarks:
    """One bit for each row of a segment that is open after ``slices``, and the greatest end of the others.

    At every moment from that end on, the rows that have not ended are the open ones.
    """

    slices: Slices
    bits: Bytes
    rows: int
    open: int
    latest_end: int

    @property
    def nbytes(self) -> int:
        return _STATE_BYTES + self.bits.nbytes

    @cached_property
    def address(self) -> int:
        """The address of the bits in memory, for compiled loops."""
        return _address(self.bits)

    @staticmethod
    def of(ends: Ints) -> OpenMarks:
        """Return the marks by the stored ends alone."""
        is_open = ends == OPEN
        count = int(np.count_nonzero(is_open))
        latest = int(ends[~is_open].max()) if count < len(ends) else BEFORE_ALL
        return OpenMarks((), np.packbits(is_open, bitorder="little"), len(ends), count, latest)

    def extended(self, slices: Slices, read: ReadSlice) -> OpenMarks:
        """Return the marks after ``slices``, which begin with those of this state."""
        is_open, latest = self.between(0, self.rows), self.latest_end
        for piece in slices[len(self.slices) :]:
            rows, ends = read(piece)
            is_open[rows] = ends == OPEN
            latest = max(latest, int(ends.max()))
        return OpenMarks(
            slices, np.packbits(is_open, bitorder="little"), self.rows, int(np.count_nonzero(is_open)), latest
        )

    def between(self, start: int, stop: int) -> Bools:
        """Return a mask of the open rows among [start, stop)."""
        first = start // 8
        bits = np.unpackbits(self.bits[first : (stop + 7) // 8], bitorder="little")
        return bits[start - 8 * first : stop - 8 * first].view(np.bool_)


State = PendingClosures | OpenMarks


def begins_with(longer: Slices, shorter: Slices) -> bool:
    """Return whether closures of one segment are the first ones of others of the same segment."""
    count = len(shorter)
    return count <= len(longer) and (count == 0 or longer[count - 1] == shorter[count - 1])


class BoundedCache:
    """Values by key, the least recently used of which are dropped beyond ``budget`` bytes. Callers lock it."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable) -> Any:
        """Return the value, None if there is none."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def put(self, key: Hashable, value: Any, nbytes: int) -> None:
        """Keep a value of so many bytes in the place of another one, unless it alone exceeds the budget."""
        self.used -= self._kept.pop(key, (None, 0))[1]
        if nbytes > self.budget:
            return
        self._kept[key] = value, nbytes
        self.used += nbytes
        while self.used > self.budget:
            self.used -= self._kept.popitem(last=False)[1][1]

    def clear(self) -> None:
        self._kept.clear()
        self.used = 0


def _address(array: U32s | Ints | Bytes) -> int:
    if not array.flags.c_contiguous:
        raise ValueError("an array with gaps has no single address")
    address: int = array.ctypes.data
    return address


def _merged(older: _Run, newer: _Run) -> _Run:
    """Return both runs as one; of a row, the closures of ``newer`` come last."""
    place = older.rows.searchsorted(newer.rows, "right") + np.arange(len(newer.rows))
    kept = np.ones(len(older.rows) + len(newer.rows), bool)
    kept[place] = False
    columns = []
    for old, new in ((older.rows, newer.rows), (older.ends, newer.ends), (older.number, newer.number)):
        column = np.empty(len(kept), old.dtype)
        column[kept] = old
        column[place] = new
        columns.append(column)
    return _Run(*columns)


# The statistics of all blocks of a log state as columns, so that a plan judges hundreds of blocks in a few steps

# Columns of the table. MAX_DROPPED is -1 but for belief segments.
SEGMENT, FIRST, ROWS, MIN_FROM, MAX_FROM, MIN_TO, MAX_TO, MIN_ADDED, LAST_CLOSED, SPLIT_CLOSED, LATE_ADDED = range(11)
MAX_DROPPED = 11
_COLUMNS = 12


@dataclass(frozen=True)
class BlockStatistics:
    """A row for each block of the segments without tombstones, in the order of the log state.

    SEGMENT is the position of its segment in ``segments``, FIRST its first row. The whole of a segment without blocks
    is one block.
    """

    segments: Sequence[SegmentMeta] = ()
    table: Ints = field(default_factory=lambda: np.empty((_COLUMNS, 0), np.int64))
    by_segment: dict[str, Ints] = field(default_factory=dict)

    def of(self, segments: Sequence[SegmentMeta]) -> BlockStatistics:
        """Return the statistics of other segments, some of which may be the same."""
        by_segment = {
            meta.name: known if (known := self.by_segment.get(meta.name)) is not None else _table(meta)
            for meta in segments
            if not meta.tombstone
        }
        tables = []
        for number, meta in enumerate(segments):
            if not meta.tombstone:
                mine = by_segment[meta.name].copy()
                mine[SEGMENT] = number
                tables.append(mine)
        table = np.concatenate(tables, axis=1) if tables else np.empty((_COLUMNS, 0), np.int64)
        return BlockStatistics(segments, table, by_segment)


def _table(meta: SegmentMeta) -> Ints:
    """Return the statistics of one segment, by columns. A number that does not fit is refused by the caller's log."""
    dropped = meta.max_dropped if meta.role == "belief" else -1
    rows = [
        (
            0,
            first,
            block.rows,
            block.min_valid_from,
            block.max_valid_from,
            block.min_valid_to,
            block.max_valid_to,
            block.min_added,
            block.last_closed,
            block.split_closed,
            block.late_added,
            dropped,
        )
        for first, block in meta.spans()
    ]
    return np.array(rows, np.int64).reshape(-1, _COLUMNS).T.copy()

"""Rows that are related to an event of the change feed: the row that it replaced, and the row that ends at its start.

Related rows have the key of the event, and start or end where the event starts. So rows are first chosen by their times
alone: compaction keeps rows that ended at about the same time together, and the rows of a block are sorted by start, so
these are few more than the events. Their keys are then compared with those of the events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.reads.belief import (
    SegmentWithClosures,
    cells_of,
    ever_valid,
    may_end,
    may_start,
)
from statestore.catalog.reads.change_events import Events
from statestore.catalog.reads.picked_rows import PickedRows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.packed_sort import sorted_with_positions

NOWHERE = -1
MATCHED_ROWS = 1 << 17  # rows whose keys are in memory at a time
_MIX = np.uint64(0x9E3779B97F4A7C15)
_LEAST_BITS, _MOST_BITS = 16, 22  # of the marks of times, which take 4 MB at most
FEW_TIMES = 1 << 13  # are searched one by one among at least so many times as many rows that are in order
FEW_SHARE = 8
SAME_TIMES = 8  # events of one time from which on events are found by the hashes of their keys, too


@dataclass(frozen=True)
class StoredRows:
    """A stored row for each event (parallel arrays); ``segment_index`` is NOWHERE if there is none."""

    segment_index: npt.NDArray[np.int32]
    row: npt.NDArray[np.int32]

    @staticmethod
    def nowhere(count: int) -> StoredRows:
        return StoredRows(np.full(count, NOWHERE, np.int32), np.full(count, NOWHERE, np.int32))

    def put(self, events: Ints, rows: PickedRows) -> None:
        self.segment_index[events] = rows.source
        self.row[events] = rows.row


@dataclass(frozen=True)
class Scope:
    """The rows among which related rows are searched.

    Rows and closures of commits after ``last`` do not count. ``replaced_apart``: a value row that an event replaced may
    be no event. ``of_keys``: these rows of each segment; None for all.
    """

    files: SegmentFiles
    segments: Sequence[SegmentWithClosures]
    last: int
    replaced_apart: bool
    of_keys: Sequence[Ints] | None


def related(scope: Scope, events: Events, by_time: bool) -> tuple[StoredRows, Bools]:
    """Return the old row of each event, and a mask of rows that still exist.

    The old row is the one that the event replaced at its start, else the value row that ends there. The mask is set for
    a row that was taken back if the key nevertheless has a row at that start after the commit.
    """
    old, still_there = StoredRows.nowhere(len(events)), np.zeros(len(events), bool)
    if len(events):
        back, others = (_Times.of(events, which) for which in (events.taken_back, ~events.taken_back))
        search = _Related(scope, events, _EventsByKey.of(scope, events), back, others, old, still_there)
        search.find_preceding()
        if not by_time:
            search.find_same_start()
    return old, still_there


@dataclass(frozen=True)
class _Related:
    """A search for the rows that are related to events. It fills in ``old`` and ``still_there``."""

    scope: Scope
    events: Events
    by_key: _EventsByKey
    back: _Times  # of rows that were taken back
    others: _Times
    old: StoredRows
    still_there: Bools

    def find_preceding(self) -> None:
        """Find the value rows that end where events start."""
        search = _Search(self.scope, self.events, self.by_key, self._ended)
        for number, segment in enumerate(self.scope.segments):
            for rows, ends in _ending(self.scope, number, segment, self.others):
                search.add(number, rows, ends)
        search.finish()

    def _ended(self, of: Ints, rows: PickedRows) -> None:
        ends, starts = rows.ends_at(self.events.version[of]), rows.numbers("valid_from")
        hit = (ends == self.events.start[of]) & ever_valid(starts, ends) & ~self.events.taken_back[of]
        if not hit.all():
            chosen = np.flatnonzero(hit)
            of, rows, starts = of[chosen], rows.at(chosen), starts[chosen]
        self.old.put(of, rows)
        # What was taken back is mostly the longer form of a row that now ends where an event of the commit starts.
        chosen = self.back.may_have(starts)
        if len(chosen):
            of, starts = of[chosen], starts[chosen]
            found, positions = self.by_key.match(self.by_key.numbers_at(starts, lambda: self.by_key.hashes[of]))
            of = of[positions]
            same = self.events.taken_back[found] & (self.events.version[found] == self.events.version[of])
            same &= self.events.start[found] == starts[positions]
            found, of = found[same], of[same]
            self.still_there[found[keys_equal(self.by_key.keys, found, self.by_key.keys, of)]] = True

    def find_same_start(self) -> None:
        """Find the rows that start where events start: those that events replaced, and those that still exist."""
        scope, events = self.scope, self.events
        search = _Search(scope, events, self.by_key, self._began)
        for number, rows in _repeated(events, self.by_key.repeats):
            search.add(number, events.row[rows].astype(np.int64), events.start[rows])
        search.finish()
        # A value row that an event replaced was taken back by its commit, so it is an event itself and was looked at.
        in_question = np.where(events.taken_back, ~self.still_there, scope.replaced_apart)
        of_values = _Times.of(events, in_question)
        for number, segment in enumerate(scope.segments):
            for times in (self.back, self.others) if segment.meta.tombstone else (of_values,):
                for rows, starts in _starting(scope, number, segment, times):
                    search.add(number, rows, starts)
        search.finish()

    def _began(self, of: Ints, rows: PickedRows) -> None:
        version, back = self.events.version[of], self.events.taken_back[of]
        ends = rows.ends_at(np.where(back, version, version - 1))
        valid = ever_valid(self.events.start[of], ends)
        replaced = np.flatnonzero(valid & ~back)
        self.old.put(of[replaced], rows.at(replaced))
        self.still_there[of[valid & back]] = True


# Rows by their times


@dataclass(frozen=True)
class _Times:
    """A set of times. Of many it is a little too large: a time outside it is surely none of them."""

    low: int
    high: int
    marks: Bools
    shift: np.uint64
    compiled: bool
    times: Ints

    @staticmethod
    def of(events: Events, which: Bools) -> _Times:
        """Return the times at which these events start."""
        times = events.start[which]
        if not len(times):
            return _Times(1, 0, np.zeros(1, bool), np.uint64(0), events.compiled, times)
        bits = min(max(len(times).bit_length() + 4, _LEAST_BITS), _MOST_BITS)
        marks, shift = np.zeros(1 << bits, bool), np.uint64(64 - bits)
        marks[_mixed(times) >> shift] = True
        return _Times(int(times.min()), int(times.max()), marks, shift, events.compiled, times)

    @cached_property
    def few(self) -> Ints | None:
        """The times, ascending, where they are few."""
        if len(self.times) > FEW_TIMES:
            return None
        ordered = np.sort(self.times)
        found: Ints = ordered[np.append(ordered[:1] == ordered[:1], ordered[1:] != ordered[:-1])]
        return found

    def may_have(self, times: Ints) -> Ints:
        """Return the positions of times that may be in the set."""
        if self.low > self.high:
            return np.empty(0, np.int64)
        if self.compiled:
            from statestore.formats.kernels.event_kernels import marked

            positions = np.empty(len(times), np.int64)
            times = np.ascontiguousarray(times)
            count = marked(times.ctypes.data, self.low, self.high, self.marks, _MIX, self.shift, positions)
            return positions[:count]
        inside = np.flatnonzero((times >= self.low) & (times <= self.high))
        mine = times if len(inside) == len(times) else times[inside]
        found: Ints = inside[self.marks[_mixed(mine) >> self.shift]]
        return found

    def among(self, ordered: Ints) -> Ints:
        """Return the positions of times that may be in the set, among ascending ones."""
        if self.few is None or FEW_SHARE * len(self.few) > len(ordered):
            return self.may_have(ordered)
        first, stop = np.searchsorted(self.few, ordered[[0, -1]] + np.array([0, 1]))
        low = np.searchsorted(ordered, self.few[first:stop])
        hit = ordered[low] == self.few[first:stop]
        low, high = low[hit], np.searchsorted(ordered, self.few[first:stop][hit], "right")
        counts = high - low
        found: Ints = np.repeat(low - np.cumsum(counts) + counts, counts) + np.arange(int(counts.sum()))
        return found


def _mixed(times: Ints) -> Hashes:
    mixed: Hashes = times.view(np.uint64) * _MIX
    return mixed


def _ending(scope: Scope, number: int, segment: SegmentWithClosures, times: _Times) -> Iterator[tuple[Ints, Ints]]:
    """Yield value rows of a segment that may end at one of the times by a commit up to the last, and these ends."""
    meta, known = segment.meta, segment.until(scope.last)
    if meta.tombstone or not may_end(known, times.low, times.high):
        return
    file = scope.files.open_segment(meta)
    mine = None if scope.of_keys is None else scope.of_keys[number]
    if mine is not None:
        ends = cells_of(file, "valid_to", mine)
        chosen = times.may_have(ends)
        yield mine[chosen], ends[chosen]
    else:
        for begin, block in meta.spans():
            if block.min_valid_to > times.high or block.max_valid_to < times.low:
                continue
            ends = file.int64_rows("valid_to", begin, begin + file.started_by(times.high, begin, begin + block.rows))
            chosen = times.may_have(ends)
            yield begin + chosen, ends[chosen]
    if any(piece.min_valid_to <= times.high for piece in known.closures):
        pending = scope.files.pending(meta, segment.closures)
        for closed, new_ends in pending.first(len(known.closures)):
            chosen = times.may_have(new_ends)
            rows, ends = closed[chosen].astype(np.int64), new_ends[chosen]
            if mine is not None:
                asked = np.isin(rows, mine)
                rows, ends = rows[asked], ends[asked]
            yield rows, ends


def _starting(scope: Scope, number: int, segment: SegmentWithClosures, times: _Times) -> Iterator[tuple[Ints, Ints]]:
    """Yield rows that may start at one of the times and be of commits up to the last, and these starts."""
    meta = segment.meta
    if meta.min_added > scope.last or not may_start(meta, times.low, times.high):
        return
    file = scope.files.open_segment(meta)
    if scope.of_keys is not None:
        mine = scope.of_keys[number]
        starts = cells_of(file, "valid_from", mine)
        chosen = times.may_have(starts)
        yield mine[chosen], starts[chosen]
        return
    for begin, block in meta.spans():
        if block.min_valid_from > times.high or block.max_valid_from < times.low or block.min_added > scope.last:
            continue
        low, high = (file.started_by(moment, begin, begin + block.rows) for moment in (times.low - 1, times.high))
        if low == high:
            continue
        starts = file.int64_rows("valid_from", begin + low, begin + high)
        chosen = times.among(starts)
        yield begin + low + chosen, starts[chosen]


# Rows by their keys


@dataclass(frozen=True)
class _EventsByKey:
    """Keys of the events, and their ``numbers``, which are equal where keys and times are.

    The numbers are those of the times alone where few events start at the same time, so that no hashes are needed.
    ``slots`` is a table of events for compiled loops, in which ``following`` has the next event of the same numbers;
    without these loops ``ordered`` has the numbers of ``order``, ascending. ``repeats`` marks events whose number
    another one has, too: at least those whose key has another event at that start.
    """

    keys: list[pa.Array]
    is_hashed: bool
    numbers: Hashes
    repeats: Bools
    slots: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    following: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    ordered: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    order: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @staticmethod
    def of(scope: Scope, events: Events) -> _EventsByKey:
        keys = PickedRows(scope.files, scope.segments, events.segment_index, events.row, events.compiled).keys()
        numbers = _mixed(events.start)
        found = _EventsByKey._of_numbers(keys, False, numbers, SAME_TIMES, events.compiled)
        if found is None:
            found = _EventsByKey._of_numbers(keys, True, hash_keys(keys) ^ numbers, len(numbers), events.compiled)
        assert found is not None
        return found

    @staticmethod
    def _of_numbers(
        keys: list[pa.Array], is_hashed: bool, numbers: Hashes, most: int, compiled: bool
    ) -> _EventsByKey | None:
        """Return the events by these numbers; None if more than ``most`` events have the same number."""
        repeats = np.zeros(len(numbers), bool)
        if compiled:
            from statestore.formats.kernels.event_kernels import fill_table

            slots = np.full(1 << (2 * len(numbers)).bit_length(), -1, np.int32)
            following = np.full(len(numbers), -1, np.int32)
            if not fill_table(numbers, slots, following, repeats, most):
                return None
            return _EventsByKey(keys, is_hashed, numbers, repeats, slots, following)
        ordered, order = sorted_with_positions(numbers)
        if (ordered[most:] == ordered[: max(len(ordered) - most, 0)]).any():
            return None
        same = ordered[1:] == ordered[:-1]
        repeats[order[1:][same]] = repeats[order[:-1][same]] = True
        return _EventsByKey(keys, is_hashed, numbers, repeats, ordered=ordered, order=order)

    @cached_property
    def hashes(self) -> Hashes:
        """Hashes of the keys."""
        return hash_keys(self.keys)

    def numbers_at(self, times: Ints, hashes: Callable[[], Hashes]) -> Hashes:
        """Return the numbers of keys at times; ``hashes`` returns those of the keys."""
        numbers = _mixed(times)
        return hashes() ^ numbers if self.is_hashed else numbers

    def match(self, numbers: Hashes) -> tuple[Ints, Ints]:
        """Return (event, position in ``numbers``) of each pair of equal numbers, by position."""
        if len(self.slots):
            from statestore.formats.kernels.event_kernels import matches

            room = len(numbers) + int(np.count_nonzero(self.repeats))
            while True:
                events, positions = np.empty(room, np.int64), np.empty(room, np.int64)
                count = matches(self.numbers, self.slots, self.following, numbers, events, positions)
                if count <= room:
                    return events[:count], positions[:count]
                room = count
        first = np.searchsorted(self.ordered, numbers, "left")
        counts = np.searchsorted(self.ordered, numbers, "right") - first
        positions = np.repeat(np.arange(len(numbers)), counts)
        entries = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(len(positions))
        return self.order[entries], positions


class _Search:
    """A search for the events whose keys have rows of segments, which are looked at many at a time.

    ``found`` is called with events, and the row that each has at its time.
    """

    def __init__(
        self, scope: Scope, events: Events, by_key: _EventsByKey, found: Callable[[Ints, PickedRows], None]
    ) -> None:
        self._scope, self._events, self._by_key, self._found = scope, events, by_key, found
        self._waiting: list[tuple[int, Ints, Ints]] = []
        self._rows = 0

    def add(self, number: int, rows: Ints, times: Ints) -> None:
        """Add rows of a segment with the times at which events of their keys are searched."""
        for at in range(0, len(rows), MATCHED_ROWS):
            part = slice(at, at + MATCHED_ROWS)
            self._waiting.append((number, rows[part], times[part]))
            self._rows += len(rows[part])
            if self._rows >= MATCHED_ROWS:
                self.finish()

    def finish(self) -> None:
        """Look at the rows that were added."""
        if not self._rows:
            return
        counts = [len(rows) for _, rows, _ in self._waiting]
        segment = np.repeat(np.array([number for number, _, _ in self._waiting], np.int32), counts)
        row = np.concatenate([rows for _, rows, _ in self._waiting])
        time = np.concatenate([times for _, _, times in self._waiting])
        self._waiting, self._rows = [], 0
        rows = PickedRows(self._scope.files, self._scope.segments, segment, row.astype(np.int32), self._events.compiled)
        keys = rows.keys()
        events, positions = self._by_key.match(self._by_key.numbers_at(time, lambda: hash_keys(keys)))
        same = keys_equal(self._by_key.keys, events, keys, positions)
        if not same.all():
            events, positions = events[same], positions[same]
        if len(events):
            self._found(events, rows.at(positions))


def _repeated(events: Events, repeats: Bools) -> Iterator[tuple[int, Ints]]:
    """Yield the events that are marked, by segment."""
    rows = np.flatnonzero(repeats)
    of = events.segment_index[rows]
    for number in np.unique(of).tolist():
        yield number, rows[of == number]

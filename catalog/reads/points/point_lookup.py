"""Point reads of committed segments: one key, found by the segments' key indexes without touching other rows.

A key has few rows, in few of the segments. The segments that may have the key are named by a filter over all of them
(`SegmentFilter`), so that a read costs the same however many there are. A process that reads seldom pays for neither
the filter nor the opening of segments that it does not reach: both begin with the first look into a segment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.points.segment_filter import SegmentFilter
from statestore.catalog.reads.points.segment_probe import OpenedSegment, SegmentProbe, key_form
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.values.key_codec import KeyCodec, ValueCodec

Key = tuple[Any, ...]
Version = tuple[int, int, tuple[Any, ...] | None]
_of_bytes = int.from_bytes

CHECKPOINTS = 64  # of the segments in order of time, for which the slots before and behind them are kept
ROWS_A_LOOK = 64  # rows of a segment that are entered into the filter in the time of one look into the segment
KEYS_AT_ONCE = 1 << 14
LONG_RUN = 16  # rows of one hash; longer runs are searched by their starts


class Found(NamedTuple):
    """A stored version; times in epoch microseconds, ``values`` None for a tombstone."""

    start: int
    end: int
    values: tuple[Any, ...] | None


class PointLookup:
    """Point reads of one log state; a segment is opened when a read first reaches it.

    ``previous``: the lookup of an earlier log state, from which opened segments and the filter are taken over.
    """

    def __init__(
        self,
        files: SegmentFiles,
        log_state: LogState,
        codec: KeyCodec,
        values: ValueCodec,
        previous: PointLookup | None = None,
    ) -> None:
        self._files = files
        self._value_codec = values
        self._hash = codec.hash
        self._segments, self._closures = log_state.segments, log_state.closures
        self._places: dict[str, int] = {}
        self._codec = codec
        self._form = key_form(codec.schema)
        # Earliest ends first, and so in the slots of a new filter: the segment that closed next after a moment most
        # likely holds the row that was valid then.
        metas = [meta for meta in log_state.segments if meta.role != "belief"]
        metas.sort(key=lambda meta: (meta.max_valid_to, -meta.max_added))
        rows = {meta.name: meta.rows for meta in metas}
        self._filter: SegmentFilter = SegmentFilter(rows) if previous is None else previous._filter.following(rows)
        slots = self._filter.slots
        count = 8 * self._filter.width
        self._metas: list[SegmentMeta | None] = [None] * count
        # Looks in vain since the last attempt to enter the segment.
        self._vain: list[int] = [0] * count
        if previous is not None and previous._filter is self._filter:
            self._vain = previous._vain
        self._probes: list[SegmentProbe | None] = [None] * count
        self._opened: dict[str, OpenedSegment] = {}
        for meta in metas:
            self._metas[slots[meta.name]] = meta
            if previous is not None and meta.name in previous._opened:
                self._opened[meta.name] = previous._opened[meta.name]
        self._all = _Times(metas, slots)
        self._values = _Times([meta for meta in metas if not meta.tombstone], slots)

    def following(self, log_state: LogState) -> PointLookup:
        """Return the lookup of another log state, which takes over opened segments and the filter."""
        return PointLookup(self._files, log_state, self._codec, self._value_codec, self)

    def valid_at(self, key: Key, moment: int) -> Version | None:
        """Return the value version with start <= moment < end, as the members of a `Found`."""
        found = self.locate(key, moment)
        if found is None:
            return None
        probe, row, end = found
        return probe.starts[row], end, probe.values(row)

    def locate(self, key: Key, moment: int) -> tuple[SegmentProbe, int, int] | None:
        """Return (segment, row, end) of the value version with start <= moment < end."""
        key_hash = self._hash(key)
        form = key if self._form is None else self._form(key)
        # Written out, like the look into a segment below: calls would cost a third of the read.
        found, times = self._filter, self._values
        every = found.every  # before the bits: another thread may enter a segment meanwhile
        view, width = found.view, found.width
        first, second = (key_hash >> found.shift) * width, (key_hash & found.mask) * width
        slots = _of_bytes(view[first : first + width], "little") & _of_bytes(view[second : second + width], "little")
        slots = (slots | every) & times.from_end[bisect_right(times.ends, moment) // times.step]
        slots &= times.to_start[-(-bisect_right(times.starts, moment) // times.step)]
        probes = self._probes
        while slots:  # at most one segment has the version, so their order does not matter
            lowest = slots & -slots
            slots ^= lowest
            slot = lowest.bit_length() - 1
            probe = probes[slot] or self._open(slot)
            hashes, rows, directory, shift, starts, ends, new_end, is_key, _, _ = probe
            bucket = key_hash >> shift
            stop = directory[bucket + 1]
            at = bisect_left(hashes, key_hash, directory[bucket], stop)
            if at == stop or hashes[at] != key_hash:
                if every & lowest:
                    self._count_vain(slot, probe)
                continue
            if at + LONG_RUN < stop and hashes[at + LONG_RUN] == key_hash:
                in_run = _in_long_run(probe, at, key_hash, form, moment)
                if in_run is not None:
                    return in_run
                continue
            while at < stop and hashes[at] == key_hash:
                row = rows[at]
                if starts[row] <= moment < (end := ends[row]) and is_key(row, form):
                    if new_end is not None:
                        end = new_end(row, end)
                    if moment < end:
                        return probe, row, end
                at += 1
        return None

    def locate_many(self, keys: Sequence[Key], moment: int) -> Iterator[tuple[int, SegmentProbe, int, int]]:
        """Yield (number of the key, segment, row, end) of each key that `locate` finds.

        Each segment is looked into once, in order of hashes.
        """
        hashes = np.array(list(map(self._hash, keys)), np.uint64)
        forms = keys if self._form is None else list(map(self._form, keys))
        missing = np.ones(len(keys), bool)
        for slot, numbers in self._by_slot(hashes, moment):
            numbers = numbers[missing[numbers]]
            if not len(numbers):
                continue
            probe = self._probes[slot] or self._open(slot)
            asked = hashes[numbers]
            entries = np.frombuffer(probe.hashes, np.uint64)
            at = entries.searchsorted(asked)
            hits = np.flatnonzero(entries.take(at, mode="clip") == asked)
            if self._filter.every >> slot & 1:
                self._count_vain(slot, probe, len(numbers) - len(hits))
            for number, row, end in _valid_among(probe, entries, at[hits], numbers[hits], forms, moment):
                missing[number] = False
                yield number, probe, row, end

    def _by_slot(self, hashes: Hashes, moment: int) -> Iterator[tuple[int, Ints]]:
        """Yield (slot, numbers of the hashes that its segment may have at a moment, by hash), slots ascending."""
        found, times = self._filter, self._values
        order = np.argsort(hashes)
        ordered = hashes[order]
        slots = times.from_end[bisect_right(times.ends, moment) // times.step]
        slots &= times.to_start[-(-bisect_right(times.starts, moment) // times.step)]
        for start in range(0, len(hashes), KEYS_AT_ONCE):
            some = ordered[start : start + KEYS_AT_ONCE]
            every = found.every  # before the bits, as in `locate`
            words = found.common(some)
            words |= np.frombuffer(every.to_bytes(found.width, "little"), np.uint64)
            words &= np.frombuffer(slots.to_bytes(found.width, "little"), np.uint64)
            bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
            in_slot, at = np.nonzero(bits.T)
            numbers = order[start + at]
            slots_found, first = np.unique(in_slot, return_index=True)
            bounds = [*first.tolist(), len(numbers)]
            for slot, (low, high) in zip(slots_found.tolist(), pairwise(bounds), strict=True):
                yield slot, numbers[low:high]

    def ending_from(self, key: Key, moment: int) -> list[Found]:
        """Return all versions and tombstones of the key that end at or after ``moment``, by start, without replaced
        rows.
        """
        found = [
            Found(opened.probe.starts[row], end, opened.probe.values(row))
            for opened, row, end in self.rows_ending_from(key, moment)
        ]
        return sorted(found, key=_start)

    def rows_ending_from(self, key: Key, moment: int) -> Iterator[tuple[OpenedSegment, int, int]]:
        """Yield (segment, row, end) of all versions and tombstones of `ending_from`, in no order."""
        key_hash = self._hash(key)
        form = key if self._form is None else self._form(key)
        found, times = self._filter, self._all
        number = bisect_left(times.ends, moment)
        slots = self._candidates(key_hash) & times.from_end[number // times.step]
        while slots:
            lowest = slots & -slots
            slots ^= lowest
            slot = lowest.bit_length() - 1
            probe = self._probes[slot] or self._open(slot)
            entries = _entries(probe, key_hash)
            if not entries and found.every & lowest:
                self._count_vain(slot, probe)
            for at in entries:
                row = probe.rows[at]
                end = probe.ends[row] if probe.new_end is None else probe.new_end(row, probe.ends[row])
                if end >= moment and end > probe.starts[row] and probe.is_key(row, form):
                    yield self._opened[self._metas[slot].name], row, end  # type: ignore[union-attr]

    def place(self, meta: SegmentMeta) -> int:
        """Return the position of a segment in the log state."""
        if not self._places:
            self._places = {segment.name: place for place, segment in enumerate(self._segments)}
        return self._places[meta.name]

    def _candidates(self, key_hash: int) -> int:
        """Return the slots of the segments that may have the key, as one integer."""
        found = self._filter
        every = found.every  # before the bits: another thread may enter a segment meanwhile
        view, width = found.view, found.width
        first, second = (key_hash >> found.shift) * width, (key_hash & found.mask) * width
        slots: int = _of_bytes(view[first : first + width], "little")
        return slots & _of_bytes(view[second : second + width], "little") | every

    def _count_vain(self, slot: int, probe: SegmentProbe, looks: int = 1) -> None:
        """Count looks that found no row of the hash; enter the segment once they have cost as much as that."""
        vain = self._vain
        vain[slot] += looks
        if vain[slot] * ROWS_A_LOOK > len(probe.hashes):
            vain[slot] = -len(probe.hashes)  # if it cannot be entered now, the next attempt is far away
            meta = self._metas[slot]
            if meta is not None:
                self._filter.enter(meta.name, np.frombuffer(probe.hashes, np.uint64))

    def _open(self, slot: int) -> SegmentProbe:
        meta = self._metas[slot]
        assert meta is not None
        opened = self._opened.get(meta.name)
        if opened is None:
            opened = OpenedSegment(self._files, meta, self._value_codec.to_user)
        else:
            self._files.check_length(meta.file)
        opened = opened.with_closures(self._files, self._closures.get(meta.name, ()))
        self._opened[meta.name] = opened
        self._probes[slot] = opened.probe
        return opened.probe


class _Times:
    """Segments in order of their greatest ends, and the slots of those that can have a row of a moment.

    Every ``step`` segments, ``from_end`` has the slots from there on, and ``to_start`` the slots of the segments with
    the least starts up to there.
    """

    def __init__(self, metas: Sequence[SegmentMeta], slots: dict[str, int]) -> None:
        self.ends = [meta.max_valid_to for meta in metas]
        by_end = [slots[meta.name] for meta in metas]
        by_start = sorted((meta.min_valid_from, slots[meta.name]) for meta in metas)
        self.starts = [start for start, _ in by_start]
        self.step = len(metas) // CHECKPOINTS + 1
        self.from_end = _sums(by_end[::-1], len(metas) % self.step, self.step)[::-1]
        self.to_start = _sums([slot for _, slot in by_start], 0, self.step)


def _sums(slots: Sequence[int], offset: int, step: int) -> list[int]:
    """Return the bits of the first ``offset + n * step`` slots, for each n, and at the end those of all."""
    sums, bits = [], 0
    for number, slot in enumerate(slots):
        if number >= offset and (number - offset) % step == 0:
            sums.append(bits)
        bits |= 1 << slot
    return [*sums, bits]


def _entries(probe: SegmentProbe, key_hash: int) -> range:
    """Return the entries of a hash in the key index of a segment."""
    bucket = key_hash >> probe.shift
    low, high = probe.directory[bucket], probe.directory[bucket + 1]
    first = bisect_left(probe.hashes, key_hash, low, high)
    return range(first, bisect_right(probe.hashes, key_hash, first, high))


def _valid_among(
    probe: SegmentProbe, entries: Hashes, at: Ints, numbers: Ints, forms: Sequence[Any], moment: int
) -> Iterator[tuple[int, int, int]]:
    """Yield (number, row, end) of the keys that have a version at a moment in a segment.

    Key ``number`` has the hash of the entry ``at``, which is the first of that hash.
    """
    rows_of, starts_of, ends_of = (
        np.frombuffer(view, kind)
        for view, kind in ((probe.rows, np.uint32), (probe.starts, np.int64), (probe.ends, np.int64))
    )
    for _ in range(LONG_RUN):
        if not len(at):
            return
        rows = rows_of[at]
        starts, ends = starts_of[rows], ends_of[rows]
        going_on = np.ones(len(at), bool)
        for place in np.flatnonzero((starts <= moment) & (moment < ends)).tolist():
            number, row, end = int(numbers[place]), int(rows[place]), int(ends[place])
            if probe.is_key(row, forms[number]):
                if probe.new_end is not None:
                    end = probe.new_end(row, end)
                if moment < end:
                    going_on[place] = False
                    yield number, row, end
        going_on &= entries.take(at + 1, mode="clip") == entries[at]
        going_on &= at + 1 < len(entries)
        at, numbers = at[going_on] + 1, numbers[going_on]
    for first, number in zip(at.tolist(), numbers.tolist(), strict=True):
        found = _in_long_run(probe, first, int(entries[first]), forms[number], moment)
        if found is not None:
            yield number, found[1], found[2]


def _in_long_run(
    probe: SegmentProbe, first: int, key_hash: int, form: Any, moment: int
) -> tuple[SegmentProbe, int, int] | None:
    """Return the version valid at a moment from a segment with many rows of the hash."""
    stop = bisect_right(probe.hashes, key_hash, first, probe.directory[(key_hash >> probe.shift) + 1])
    rows = np.frombuffer(probe.rows, np.uint32, stop - first, 4 * first)
    starts = np.frombuffer(probe.starts, np.int64)[rows]
    ends = np.frombuffer(probe.ends, np.int64)[rows]
    for at in np.flatnonzero((starts <= moment) & (moment < ends)).tolist():
        row = int(rows[at])
        end = probe.ends[row] if probe.new_end is None else probe.new_end(row, probe.ends[row])
        if moment < end and probe.is_key(row, form):
            return probe, row, end
    return None


def _start(found: Found) -> int:
    return found.start

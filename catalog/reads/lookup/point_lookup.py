"""Point reads of committed segments: one key, found by the segments' key indexes without touching other rows.

A key has few rows, in few of the segments. The segments that may have the key are named by a filter over all of them
(`SegmentFilter`), so that a read costs the same however many there are. A process that reads seldom pays for neither
the filter nor the opening of segments that it does not reach: both begin with the first look into a segment.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh64_intdigest

from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import local_root
from statestore.catalog.reads.belief import is_valid_from, valid_row
from statestore.catalog.reads.lookup.key_bytes import NO_KEY, bytes_form
from statestore.catalog.reads.lookup.lookup_table import HALF, NOT_FOUND, LookupTable, reads_pay
from statestore.catalog.reads.lookup.many_keys_at import ROW_MASK, FoundRows, entries_of, rows_at, rows_of_places
from statestore.catalog.reads.lookup.remote_lookup import RemoteLookup, RemoteVersion
from statestore.catalog.reads.lookup.segment_filter import SegmentFilter, SlotsByTime
from statestore.catalog.reads.lookup.segment_probe import OpenedSegment, SegmentProbe, key_form
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.segments.segment_meta import OPEN, SegmentMeta
from statestore.formats.values.key_codec import KeyCodec, ValueCodec
from statestore.formats.values.key_hash import hash_keys

Key = tuple[Any, ...]
Version = tuple[int, int, tuple[Any, ...] | None]

ALL_TIMES = -(2**63)
# Rows of a segment that are entered into the filter in the time of one look into the segment. Were a segment entered at
# the first look in vain, the first 100 gets of a handle would take 2.5 times as long, the first 3,000 1.4 times.
ROWS_A_LOOK = 128
# Keys of one read for which all segments of their moments are opened before, because nearly all are reached.
BULK = 1 << 14
NEVER = -(1 << 62)  # reads, after which compiled code is not tried again


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
        self._version = log_state.version
        self._places: dict[str, int] = {}
        self._codec = codec
        self._form = key_form(codec.schema)
        self._bytes_of = bytes_form(codec.schema)
        # Earliest ends first, and so in the slots of a new filter: the segment that closed next after a moment most
        # likely holds the row that was valid then.
        metas = [meta for meta in log_state.segments if meta.role != "belief"]
        metas.sort(key=lambda meta: (meta.max_valid_to, -meta.max_added))
        rows = {meta.name: meta.rows for meta in metas}
        self._filter: SegmentFilter = SegmentFilter(rows) if previous is None else previous._filter.following(rows)
        slots = self._filter.slots
        count = 64 * self._filter.width
        self._metas: list[SegmentMeta | None] = [None] * count
        # Looks in vain since the last attempt to enter the segment.
        self._vain: list[int] = [0] * count
        if previous is not None and previous._filter is self._filter:
            self._vain = previous._vain
        self._probes: list[SegmentProbe | None] = [None] * count
        self._opened: dict[str, OpenedSegment] = {}
        self.is_compiled: bool = previous is not None and previous.is_compiled  # single keys are found by compiled code
        self._table: LookupTable | None = None
        self._answering: LookupTable | None = None  # the table, if it answers reads of single keys
        root = local_root(files.storage)
        self._next_entry = b"" if root is None else os.fsencode(root / entry_name(log_state.version + 1))
        self._reads: int = 0 if previous is None else previous._reads
        for meta in metas:
            self._metas[slots[meta.name]] = meta
            if previous is not None and meta.name in previous._opened:
                self._opened[meta.name] = previous._opened[meta.name]
        self._remote: RemoteLookup | None = None
        if not files.is_local:
            of_previous = None if previous is None else previous._remote
            if previous is None:
                self._remote = RemoteLookup(files, log_state, values)
            elif of_previous is not None and of_previous.left > 0:
                self._remote = of_previous.following(log_state)
        # Made by the first read: of most versions a writer reads nothing before its next commit.
        self._by_end = metas
        self._all: SlotsByTime | None = None
        self._values: SlotsByTime | None = None

    def count_reads(self, reads: int) -> None:
        """Count reads of single keys; after many of them, rows are found by compiled code."""
        self._reads += reads
        if not self.is_compiled and reads_pay(self._reads, reads):
            try:
                table = self._new_table()  # held while it is read: another thread may put its own in its place
                table.find(-HALF, 0)
            except Exception:  # numba may import and still not compile; errors of many kinds say so
                self._table, self._reads = None, NEVER
            else:
                self.is_compiled = True

    def following(self, log_state: LogState) -> PointLookup:
        """Return the lookup of another log state, which takes over opened segments and the filter."""
        return PointLookup(self._files, log_state, self._codec, self._value_codec, self)

    def is_of(self, log_state: LogState) -> bool:
        """Return whether this is the lookup of a log state."""
        return self._segments is log_state.segments and self._version == log_state.version

    def valid_at(self, key: Key, moment: int) -> Version | None:
        """Return the value version with start <= moment < end, as the members of a `Found`."""
        found = self.locate(key, moment)
        if found is None:
            return None
        probe, row, end = found
        return probe.starts.read(row), end, probe.values(row)

    def answer(self, key: Any, moment: int) -> Any:
        """Return (value, start, end or None) of the version of a key at a moment, None if there is none.

        Times are epoch milliseconds. There is no newer commit. False: that, or the answer, is not known; see `locate`.
        ``key`` is as users give it.
        """
        table, bytes_of = self._answering, self._bytes_of
        if table is None or bytes_of is None:
            return False
        try:
            asked = bytes_of(key)
        except NO_KEY:
            return False
        return asked is not None and table.read(asked[0], xxh64_intdigest(asked[1]), moment)

    def answers(self, keys: Sequence[pa.Array], moment: int) -> list[Any] | None:
        """Return what `answer` returns for each key of these columns, without a look for a newer commit.

        None: compiled code does not answer.
        """
        if not self.is_compiled or len(keys) > 1:
            return None
        table = self._table or self._new_table()
        return table.read_many(keys[0], hash_keys(keys), moment) if self._answering is table else None

    def versions(self, key: Any, window: tuple[int, int], schema: pa.Schema) -> list[pa.RecordBatch] | None:
        """Return the versions of a key in a window of moments, as `LookupTable.versions` does.

        There is no newer commit. None: they are not known; see `rows_ending_from`. ``key`` is as users give it.
        """
        if not self.is_compiled:
            return None
        table = self._table or self._new_table()
        if self._answering is not table or self._bytes_of is None:
            return None
        try:
            asked = self._bytes_of(key)
        except NO_KEY:
            return None
        return None if asked is None else table.versions(asked[0], xxh64_intdigest(asked[1]), window, schema)

    def locate(self, key: Key, moment: int) -> tuple[SegmentProbe, int, int] | None:
        """Return (segment, row, end) of the value version with start <= moment < end."""
        if self._form is None:
            form, key_hash = key, self._hash(key)
        else:
            form = self._form(key)
            key_hash = xxh64_intdigest(form)  # the hash of text and of bytes
        if self._remote is not None and self._remote.left > 0:
            remote = self._remote.locate(form, key_hash, moment)
            return None if remote is None else (remote.probe(), 0, remote.end)
        if self.is_compiled:
            table = self._table or self._new_table()
            place = table.find(key_hash - HALF, moment)
            if place == NOT_FOUND:
                return None
            if place >= 0:
                row = place & ROW_MASK
                probe = self._probes[place >> 32]
                assert probe is not None
                if probe.is_key(row, form):  # else another key has the hash
                    end = probe.ends.read(row)
                    return probe, row, end if probe.new_end is None else probe.new_end(row, end)
        # Written out, like the look into a segment below: calls would cost a third of the read.
        found, times, probes = self._filter, self._values or self._times_of_values(), self._probes
        every = found.every  # before the bits: another thread may enter a segment meanwhile
        slots = found.view[key_hash >> found.shift] if found.width == 1 else found.slots_of(key_hash)
        slots = (slots | every) & times.from_end[bisect_right(times.ends, moment) // times.step]
        slots &= times.to_start[-(-bisect_right(times.starts, moment) // times.step)]
        while slots:  # at most one segment has the version, so their order does not matter
            lowest = slots & -slots
            slots ^= lowest
            slot = lowest.bit_length() - 1
            probe = probes[slot] or self._open(slot)
            hashes = probe.hashes
            bucket = key_hash >> probe.shift
            stop = probe.directory[bucket + 1]
            first = bisect_left(hashes, key_hash, probe.directory[bucket], stop)
            if first == stop or hashes[first] != key_hash:
                if every & lowest:
                    self._count_vain(slot, probe)
                continue
            row_and_end = valid_row(probe, first, bisect_right(hashes, key_hash, first, stop), form, moment)
            if row_and_end is not None:
                return probe, *row_and_end
        return None

    def locate_many(self, keys: Sequence[pa.Array], moment: int | Ints) -> list[FoundRows]:
        """Return the rows of the keys of these columns that `locate` finds, by segment.

        ``moment`` is that of all keys, or has one for each. Each segment is looked into once, in order of hashes.
        """
        hashes = hash_keys(keys)
        moments: Ints = np.full(len(hashes), moment, np.int64) if isinstance(moment, int) else moment
        found: list[FoundRows] = []
        missing = np.ones(len(hashes), bool)
        if len(hashes) >= BULK:
            self._open_all(len(hashes), int(moments.min()), int(moments.max()))
        if self.is_compiled:
            table = self._table or self._new_table()
            order = np.argsort(hashes)  # entries of the filter and of the indexes are then read one after the other
            places = np.empty(len(hashes), np.int64)
            places[order] = table.find_many(hashes[order], moments[order])
            missing = (places < 0) & (places != NOT_FOUND)
            for rows, others in self._found_by(places, keys):
                found.append(rows)
                missing[others] = True
            if not missing.any():
                return found
        asked = np.flatnonzero(missing)
        if not len(asked):
            return found
        for slot, chosen in self._by_slot(hashes[asked], int(moments.min()), int(moments.max())):
            numbers = asked[chosen]
            numbers = numbers[missing[numbers]]
            if not len(numbers):
                continue
            probe = self._probes[slot] or self._open(slot)
            opened = self._opened[self._metas[slot].name]  # type: ignore[union-attr]
            hits, first = entries_of(opened, hashes[numbers])
            if self._filter.every >> slot & 1:
                self._count_vain(slot, probe, len(numbers) - len(hits))
            part = rows_at(opened, first, numbers[hits], keys, moments[numbers[hits]])
            if part is not None:
                missing[part.numbers] = False
                found.append(part)
        return found

    def _found_by(self, places: Ints, keys: Sequence[pa.Array]) -> Iterator[tuple[FoundRows, Ints]]:
        """Yield the rows that compiled code found, by segment, and the numbers of the keys that are not theirs."""
        order = np.argsort(places)
        order = order[int(places[order].searchsorted(0)) :]
        slots, first = np.unique(places[order] >> 32, return_index=True)
        for slot, numbers in zip(slots.tolist(), np.split(order, first[1:]), strict=False):
            opened = self._opened[self._metas[slot].name]
            yield rows_of_places(opened, places[numbers], numbers, keys)

    def _slots_between(self, low: int, high: int) -> int:
        """Return the slots of the segments that can have values valid at moments from ``low`` to ``high``."""
        times = self._values or self._times_of_values()
        slots = times.from_end[bisect_right(times.ends, low) // times.step]
        return slots & times.to_start[-(-bisect_right(times.starts, high) // times.step)]

    def _open_all(self, looks: int, low: int, high: int) -> None:
        """Open the segments that have values from ``low`` to ``high``, before so many looks into each of them.

        A segment for which it pays is entered into the filter.
        """
        slots = self._slots_between(low, high)
        while slots:
            lowest = slots & -slots
            slots ^= lowest
            slot = lowest.bit_length() - 1
            probe = self._probes[slot] or self._open(slot)
            if self._filter.every & lowest:
                self._count_vain(slot, probe, looks)

    def _by_slot(self, hashes: Hashes, low: int, high: int) -> Iterator[tuple[int, Ints]]:
        """Yield (slot, numbers of the hashes that its segment may have from ``low`` to ``high``, by hash), slots
        ascending.
        """
        found, slots = self._filter, self._slots_between(low, high)
        order = np.argsort(hashes)
        ordered = hashes[order]
        every = found.every  # before the bits, as in `locate`
        words = found.words_of(ordered)
        while slots:
            lowest = slots & -slots
            slots ^= lowest
            slot = lowest.bit_length() - 1
            if every & lowest:
                yield slot, order
            else:
                at = np.flatnonzero(words[:, slot // 64] & np.uint64(1 << slot % 64))
                if len(at):
                    yield slot, order[at]

    def ending_from(self, key: Key, moment: int) -> list[Found]:
        """Return all versions and tombstones of the key that end at or after ``moment``, by start, without replaced
        rows.
        """
        found = [
            Found(opened.probe.starts.read(row), end, opened.probe.values(row))
            for opened, row, end in self.rows_ending_from(key, moment)
        ]
        return sorted(found, key=_start)

    def versions_of(self, key: Key) -> list[Found]:
        """Return all versions and tombstones of the key by start, as `ending_from` does."""
        versions = self.remote_versions(key, ALL_TIMES, OPEN)
        if versions is None:
            return self.ending_from(key, ALL_TIMES)
        found = [Found(each.version.start, each.version.end, each.version.values) for each in versions]
        return sorted(found, key=_start)

    def rows_ending_from(self, key: Key, moment: int) -> Iterator[tuple[OpenedSegment, int, int]]:
        """Yield (segment, row, end) of all versions and tombstones of `ending_from`, in no order."""
        form, key_hash = self._form_of(key)
        found = self._filter
        times = self._all = self._all or SlotsByTime(self._by_end, found.slots)
        every = found.every  # before the bits: another thread may enter a segment meanwhile
        slots = (found.slots_of(key_hash) | every) & times.from_end[bisect_left(times.ends, moment) // times.step]
        while slots:
            lowest = slots & -slots
            slots ^= lowest
            slot = lowest.bit_length() - 1
            probe = self._probes[slot] or self._open(slot)
            entries = _entries(probe, key_hash)
            if not entries and every & lowest:
                self._count_vain(slot, probe)
            for at in entries:
                row = probe.rows[at]
                end = probe.ends.read(row)
                if probe.new_end is not None:
                    end = probe.new_end(row, end)
                if is_valid_from(probe.starts.read(row), end, moment) and probe.is_key(row, form):
                    yield self._opened[self._metas[slot].name], row, end  # type: ignore[union-attr]

    def remote_versions(self, key: Key, low: int, high: int) -> list[RemoteVersion] | None:
        """Return the versions and tombstones of a key that end at or after ``low`` and start at or before ``high``.

        They come in no order. None: `rows_ending_from` is the way to read them, as on a local disk.
        """
        if self._remote is None or self._remote.left <= 0:
            return None
        return self._remote.versions(*self._form_of(key), low, high)

    def _times_of_values(self) -> SlotsByTime:
        values = [meta for meta in self._by_end if not meta.tombstone]
        made = self._values = SlotsByTime(values, self._filter.slots)
        return made

    def _form_of(self, key: Key) -> tuple[Any, int]:
        """Return the form of a key by which rows are tested, and its hash."""
        if self._form is None:
            return key, self._hash(key)
        form = self._form(key)
        return form, xxh64_intdigest(form)  # the hash of text and of bytes

    def place(self, meta: SegmentMeta) -> int:
        """Return the position of a segment in the log state."""
        if not self._places:
            self._places = {segment.name: place for place, segment in enumerate(self._segments)}
        return self._places[meta.name]

    def _count_vain(self, slot: int, probe: SegmentProbe, looks: int = 1) -> None:
        """Count looks that found no row of the hash; enter the segment once they have cost as much as that."""
        vain = self._vain
        vain[slot] += looks
        if vain[slot] * ROWS_A_LOOK > len(probe.hashes):
            vain[slot] = -len(probe.hashes)  # if it cannot be entered now, the next attempt is far away
            meta = self._metas[slot]
            if meta is not None:
                self._filter.enter(meta.name, np.frombuffer(probe.hashes, np.uint64))
                if self._table is not None:
                    self._table.set_every(self._filter.every)

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
        if self._table is not None:
            self._table.describe(slot, opened, self.place(meta))
        return opened.probe

    def _new_table(self) -> LookupTable:
        table = self._table = LookupTable(
            self._filter, self._metas, (self._codec.schema, self._value_codec.schema), self._next_entry
        )
        for slot, (meta, probe) in enumerate(zip(self._metas, self._probes, strict=True)):
            if meta is not None and probe is not None:
                table.describe(slot, self._opened[meta.name], self.place(meta))
        if table.answers and self._bytes_of is not None and self._table is table:  # no other thread made one
            self._answering = table
        return table


def _entries(probe: SegmentProbe, key_hash: int) -> range:
    """Return the entries of a hash in the key index of a segment."""
    bucket = key_hash >> probe.shift
    low, high = probe.directory[bucket], probe.directory[bucket + 1]
    first = bisect_left(probe.hashes, key_hash, low, high)
    return range(first, bisect_right(probe.hashes, key_hash, first, high))


def _start(found: Found) -> int:
    return found.start

"""The index of open rows as a structure: one sorted array of key hashes, searched and compared for a bulk commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.reads.belief import SegmentWithClosures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.packed_sort import sorted_with_positions

Addresses = npt.NDArray[np.uint64]

ROW_BITS = np.uint64(32)
ROW_MASK = np.uint64(0xFFFFFFFF)


@dataclass
class OpenRows:
    """Open rows by the hash of their key, with no two hashes equal.

    ``address``: number of the segment in ``names`` in the upper 32 bits, row in the lower ones.
    """

    version: int
    hashes: Hashes
    address: Addresses
    start: Ints
    names: list[str]
    _directory: npt.NDArray[np.int32] | None = None
    _room: tuple[Hashes, Addresses, Ints] | None = None

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Return (position in ``hashes``, entry) of the hashes that the index has; ``hashes`` ascend."""
        if not len(self.hashes) or not len(hashes):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if is_loaded():
            from statestore.formats.kernels.key_kernels import find_hashes

            entries = np.empty(len(hashes), np.int64)
            if find_hashes(self.hashes, hashes, entries) == len(hashes):
                return np.arange(len(hashes)), entries
            hits = np.flatnonzero(entries >= 0)
            return hits, entries[hits]
        at = self._near(hashes) if self._directory is not None else np.searchsorted(self.hashes, hashes)
        np.minimum(at, len(self.hashes) - 1, out=at)
        hits = np.flatnonzero(self.hashes[at] == hashes)
        return hits, at if len(hits) == len(at) else at[hits]

    def _near(self, hashes: Hashes) -> Ints:
        """Return the first entry that is not smaller (the last entry where all are), for each hash.

        A directory of the upper bits of the hashes takes a third of the time of ``searchsorted``.
        """
        assert self._directory is not None
        last = len(self.hashes) - 1
        at: Ints = self._directory[hashes >> _directory_shift(last + 1)].astype(np.int64)
        np.minimum(at, last, out=at)
        before = np.flatnonzero(self.hashes[at] < hashes)
        while len(before):
            before = before[at[before] < last]
            at[before] += 1
            before = before[self.hashes[at[before]] < hashes[before]]
        return at

    def replace(self, hashes: Hashes, address: Addresses, start: Ints, indexed: tuple[Ints, Ints]) -> None:
        """Make these rows (by hash) the open ones of their keys; ``indexed`` is the result of ``find`` for
        ``hashes``."""
        position, entry = indexed
        if len(position) == len(hashes):
            self.address[entry], self.start[entry] = address, start
            if self._directory is None and not is_loaded():
                self._directory = _directory(self.hashes)
            return
        self.address[entry], self.start[entry] = address[position], start[position]
        new = np.ones(len(hashes), bool)
        new[position] = False
        if is_loaded():
            self._insert(hashes[new], address[new], start[new])
            return
        positions = np.searchsorted(self.hashes, hashes[new])
        self.address = np.insert(self.address, positions, address[new])
        self.start = np.insert(self.start, positions, start[new])
        self.hashes = np.insert(self.hashes, positions, hashes[new])
        self._directory = None  # new keys arrive in series: the directory is built when a series has ended

    def _insert(self, hashes: Hashes, address: Addresses, start: Ints) -> None:
        """Insert entries by a compiled loop, into arrays with room for more, because few commits bring no new key."""
        from statestore.formats.kernels.key_kernels import insert_entries

        count = len(self.hashes)
        total = count + len(hashes)
        room = self._room
        if room is None or len(room[0]) < total or not self._is_in(room):
            spare = total + total // 8
            room = np.empty(spare, np.uint64), np.empty(spare, np.uint64), np.empty(spare, np.int64)
            room[0][:count], room[1][:count], room[2][:count] = self.hashes, self.address, self.start
            self._room = room
        insert_entries(count, *room, hashes, address, start)
        self.hashes, self.address, self.start = room[0][:total], room[1][:total], room[2][:total]
        self._directory = None

    def _is_in(self, room: tuple[Hashes, Addresses, Ints]) -> bool:
        return self.hashes.base is room[0] and self.address.base is room[1] and self.start.base is room[2]

    def remove(self, hashes: Hashes) -> None:
        """Remove the keys with these hashes (ascending), as far as the index has them."""
        _, entries = self.find(hashes)
        self.hashes = np.delete(self.hashes, entries)
        self.address = np.delete(self.address, entries)
        self.start = np.delete(self.start, entries)
        self._directory = None


@dataclass(frozen=True)
class OpenMatches:
    """Entries of the index in order of segment and row.

    ``position`` is the position of an entry among the requested entries. ``equal`` is whether the row's key is the
    requested key. ``parts`` has (number of the view, begin, stop) of the entries of each segment.
    """

    position: Ints
    row: Ints
    equal: Bools
    parts: list[tuple[int, int, int]]


def match_open_rows(
    files: SegmentFiles,
    segments: Sequence[SegmentWithClosures],
    index: OpenRows,
    entries: Ints,
    keys: Sequence[pa.Array],
    records: Ints,
) -> OpenMatches:
    """Compare key ``records[i]`` of ``keys`` with the key of entry ``entries[i]``, for each i."""
    address, position = sorted_with_positions(index.address[entries])
    row = (address & ROW_MASK).astype(np.int64)
    records = records[position]
    borders = np.searchsorted(address, np.arange(len(index.names) + 1, dtype=np.uint64) << ROW_BITS).tolist()
    numbers = {segment.meta.name: number for number, segment in enumerate(segments)}
    equal = np.ones(len(row), bool)
    parts = []
    for name, begin, stop in zip(index.names, borders[:-1], borders[1:], strict=True):
        if begin < stop:
            number = numbers[name]
            file = files.open_segment(segments[number].meta)
            stored = [file.column_array(column) for column in files.spec.key_names]
            equal[begin:stop] = keys_equal(keys, records[begin:stop], stored, row[begin:stop])
            parts.append((number, begin, stop))
    return OpenMatches(position, row, equal, parts)


def _directory_shift(count: int) -> np.uint64:
    return np.uint64(64 - count.bit_length())


def _directory(hashes: Hashes) -> npt.NDArray[np.int32]:
    """Return, for each value of the upper bits of the hashes, the number of hashes before it."""
    size = 1 << len(hashes).bit_length()
    directory = np.zeros(size + 1, np.int32)
    # Of equal slots the last assignment counts: the number of hashes up to that slot.
    directory[(hashes >> _directory_shift(len(hashes))).astype(np.int64) + 1] = np.arange(1, len(hashes) + 1)
    starts: npt.NDArray[np.int32] = np.maximum.accumulate(directory)
    return starts

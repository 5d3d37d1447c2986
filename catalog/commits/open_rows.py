"""The index of open rows: the location of each key's newest row over all segments, kept in memory between commits.

A bulk writer looks up every key that it writes. Without the index it searches the key index of the open segment and of
every delta since the last compaction, and reads the ends of all their rows. Every key has at most one open row (its
newest version or tombstone), so one sorted array of key hashes finds them all. The index belongs to one version. A bulk
commit of this process carries it forward; the changes of other commits are applied at the next request; after a
compaction it is rebuilt. While a commit uses the index no other code has it, so it can be changed in place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.row_ends import SegmentWithClosures, newest_ends, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.segments.segment_meta import OPEN

Addresses = npt.NDArray[np.uint64]

MIN_KEYS = 4_096  # smaller commits search the segments: the index would cost them more than it saves
MAX_ROWS = 1 << 23  # 28 bytes each
MIN_USES = 2  # an index that served fewer commits is not rebuilt at once
GIVEN_UP = -1_000  # bulk commits before the next attempt in a store where two keys share a hash

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
    uses: int = 0
    _directory: npt.NDArray[np.int32] | None = None

    def find(self, hashes: Hashes) -> tuple[Ints, Ints]:
        """Return (position in ``hashes``, entry) of the hashes that the index has; ``hashes`` ascend."""
        if not len(self.hashes) or not len(hashes):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if self._directory is not None and is_loaded():
            from statestore.formats.kernels.key_kernels import find_hashes

            entries = np.empty(len(hashes), np.int64)
            shift = int(_directory_shift(len(self.hashes)))
            if find_hashes(self.hashes, self._directory, shift, hashes, entries) == len(hashes):
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
            if self._directory is None:
                self._directory = _directory(self.hashes)
            return
        self.address[entry], self.start[entry] = address[position], start[position]
        new = np.ones(len(hashes), bool)
        new[position] = False
        positions = np.searchsorted(self.hashes, hashes[new])
        self.address = np.insert(self.address, positions, address[new])
        self.start = np.insert(self.start, positions, start[new])
        self.hashes = np.insert(self.hashes, positions, hashes[new])
        self._directory = None  # new keys arrive in series: the directory is built when a series has ended

    def remove(self, hashes: Hashes) -> None:
        """Remove the keys with these hashes (ascending), as far as the index has them."""
        _, entries = self.find(hashes)
        self.hashes = np.delete(self.hashes, entries)
        self.address = np.delete(self.address, entries)
        self.start = np.delete(self.start, entries)
        self._directory = None


@dataclass(frozen=True)
class NewOpenRows:
    """Rows of one new segment that no version ends."""

    segment_name: str
    hashes: Hashes
    row: Ints
    start: Ints


@dataclass(frozen=True)
class OpenRowsChange:
    """The effect of a commit on the open rows.

    ``added`` are the open rows that it adds, and ``ended`` is the number that it ends. ``known`` has the entries of the
    added keys in the index, by hash, if they were looked up. ``emptied`` are the keys, by hash, whose open row it ends
    without adding another.
    """

    index: OpenRows | None
    added: tuple[NewOpenRows, ...]
    ended: int
    known: tuple[Ints, Ints] | None
    emptied: Hashes


def take_index(files: SegmentFiles, log_state: LogState, keys: int) -> OpenRows | None:
    """Take the index of this log state, if a commit of so many keys is worth it and is not the first such commit.

    The index belongs to the caller until ``carry_on`` or ``give_back``.
    """
    if keys < MIN_KEYS or files.spec.windowing is not None:
        return None
    index = files.exchange_current(None)
    uses = 0
    if isinstance(index, OpenRows):
        uses = index.uses
        if index.version > log_state.version:
            files.exchange_current(index)
            return None
        if index.version == log_state.version or _catch_up(files, index, log_state):
            index.uses += 1
            return index
    files.bulk_commits += 1
    return _build(files, log_state) if files.bulk_commits > 1 or uses >= MIN_USES else None


def give_back(files: SegmentFiles, index: OpenRows | None) -> None:
    """Return an index that was taken, unchanged, for the next commit."""
    if index is not None:
        other = files.exchange_current(index)
        if isinstance(other, OpenRows) and other.version > index.version:
            files.exchange_current(other)


def carry_on(files: SegmentFiles, log_state: LogState, change: OpenRowsChange) -> None:
    """Bring the index that a commit took to ``log_state``, the log state that the commit made.

    Where the added and the ended rows do not replace each other one for one, the index stays behind.
    """
    index, added = change.index, change.added
    if index is None:
        return
    if index.version == log_state.version - 1:
        hashes, address, start = _joined(len(index.names), added)
        indexed = index.find(hashes) if change.known is None else change.known
        emptied = index.find(change.emptied)[1]
        if len(indexed[0]) + len(emptied) == change.ended and not _has_equal(hashes):
            index.names += [rows.segment_name for rows in added]
            index.replace(hashes, address, start, indexed)
            if len(emptied):
                index.remove(change.emptied)
            index.version = log_state.version
    give_back(files, index)


def _joined(first: int, added: tuple[NewOpenRows, ...]) -> tuple[Hashes, Addresses, Ints]:
    """Return (hashes ascending, addresses, starts) of rows of segments that are numbered from ``first`` on."""
    if len(added) == 1 and bool((added[0].hashes[1:] >= added[0].hashes[:-1]).all()):
        return added[0].hashes, _addresses(first, added[0].row), added[0].start
    if not added:
        return np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64)
    hashes = np.concatenate([rows.hashes for rows in added])
    order = np.argsort(hashes, kind="stable")  # the stable sort merges sorted runs
    address = np.concatenate([_addresses(first + n, rows.row) for n, rows in enumerate(added)])
    return hashes[order], address[order], np.concatenate([rows.start for rows in added])[order]


def _addresses(segment_index: int, rows: npt.NDArray[np.integer]) -> Addresses:
    return (np.uint64(segment_index) << ROW_BITS) | rows.astype(np.uint64)


def _has_equal(hashes: Hashes) -> bool:
    return bool((hashes[1:] == hashes[:-1]).any())


def _open_segments(log_state: LogState) -> list[SegmentWithClosures]:
    segments = with_closures(log_state.segments, log_state.closures)
    return [v for v in segments if v.meta.role != "belief" and v.meta.max_valid_to == OPEN]


def _open_rows(files: SegmentFiles, segment: SegmentWithClosures) -> NewOpenRows:
    """Return the open rows of a segment, by hash."""
    index = files.index(segment.meta)
    hashes, rows = index.hashes, index.rows.astype(np.int64)
    is_open = newest_ends(files, segment)[rows] == OPEN
    if not is_open.all():
        hashes, rows = hashes[is_open], rows[is_open]
    return NewOpenRows(segment.meta.name, hashes, rows, files.open_segment(segment.meta).int64("valid_from")[rows])


def _build(files: SegmentFiles, log_state: LogState) -> OpenRows | None:
    """Build the index; return None if there are too many rows, or if two keys share a hash."""
    segments = _open_segments(log_state)
    if sum(v.meta.rows for v in segments) > MAX_ROWS:
        files.bulk_commits = GIVEN_UP
        return None
    hashes, address, start = _joined(0, tuple(_open_rows(files, segment) for segment in segments))
    if _has_equal(hashes):
        files.bulk_commits = GIVEN_UP
        return None
    return OpenRows(log_state.version, hashes.copy(), address, start, [segment.meta.name for segment in segments])


def _catch_up(files: SegmentFiles, index: OpenRows, log_state: LogState) -> bool:
    """Bring the index to a later log state by the segments and closures that were added; return whether that was
    possible.

    It is not possible after a compaction, nor if the open rows that were ended are not exactly those of the added keys.
    After False the index must not be used.
    """
    segments = {segment.meta.name: segment for segment in _open_segments(log_state)}
    known_names = set(index.names)
    new = [segment for name, segment in segments.items() if name not in known_names]
    if not known_names <= segments.keys() or any(segment.meta.min_added <= index.version for segment in new):
        return False
    if sum(segment.meta.rows for segment in new) > len(index.hashes):
        return False
    hashes, address, start = _joined(len(index.names), tuple(_open_rows(files, segment) for segment in new))
    indexed = index.find(hashes)
    if _has_equal(hashes) or not np.array_equal(np.sort(index.address[indexed[1]]), _ended(files, index, segments)):
        return False
    index.names += [segment.meta.name for segment in new]
    index.replace(hashes, address, start, indexed)
    index.version = log_state.version
    return True


def _ended(files: SegmentFiles, index: OpenRows, segments: dict[str, SegmentWithClosures]) -> Addresses:
    """Return the addresses, ascending, of rows that were open at the index's version and are no longer open."""
    addresses = [np.empty(0, np.uint64)]
    for number, name in enumerate(index.names):
        segment = segments[name]
        later = [
            files.closures(piece, segment.meta.rows)[0] for piece in segment.closures if piece.version > index.version
        ]
        if later:
            rows = np.unique(np.concatenate(later))
            addresses.append(_addresses(number, rows[newest_ends(files, segment.until(index.version))[rows] == OPEN]))
    return np.concatenate(addresses)


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

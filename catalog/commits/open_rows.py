"""The index of open rows: the location of each key's newest row over all segments, kept in memory between commits.

A bulk writer looks up every key that it writes. Without the index it searches the key index of the open segment and of
every delta since the last compaction, and reads the ends of all their rows. Every key has at most one open row (its
newest version or tombstone), so one sorted array of key hashes finds them all. The index belongs to one version. A bulk
commit of this process carries it forward; the changes of other commits are applied at the next request. A compaction of
this process tells where it moved rows (`note_moves`); after one of another process, the rows of its new segments are
read. While a commit uses the index no other code has it, so it can be changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from statestore.catalog.commits.open_row_lookup import ROW_BITS, ROW_MASK, Addresses, OpenRows
from statestore.catalog.commits.writer_state import writer_of
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import SegmentWithClosures, newest_ends, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.segments.segment_meta import OPEN, SegmentMeta

# Smaller commits search the segments: the index would cost them more than it saves, and its memory. Without the index,
# commits of 20,000 rows take 1.6 times as long, their last fifth 1.9 times (20 commits that are never compacted); with
# it, commits of 50 rows to a store of 500,000 keys 1.4 times, the one that builds it 10 times.
MIN_KEYS = 4_096
MAX_ROWS = 1 << 23  # 28 bytes each
MAX_MOVED = 1 << 22  # rows of compactions that are noted until the index is next taken; 8 bytes each
GIVEN_UP = -1_000  # bulk commits before the next attempt in a store where two keys share a hash

GONE, UNMOVED = np.uint64(2**64 - 2), np.uint64(2**64 - 1)  # greater than every address


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


@dataclass(frozen=True)
class Moves:
    """Locations of the rows of a segment that a compaction removed: for each row, the number of a segment in ``names``
    (-1 where the row is gone) and the row there.
    """

    names: tuple[str, ...]
    segment_index: npt.NDArray[np.integer]
    row: npt.NDArray[np.integer]


@dataclass(frozen=True)
class _Compaction:
    """Moves of one compaction, and the greatest version that added a row to its new segments."""

    version: int
    max_added: int
    moves: Mapping[str, Moves]

    @property
    def rows(self) -> int:
        return sum(len(moved.row) for moved in self.moves.values())


_noted: WeakKeyDictionary[SegmentFiles, list[_Compaction]] = WeakKeyDictionary()


def note_moves(files: SegmentFiles, log_state: LogState, moves: Mapping[str, Moves]) -> None:
    """Record where a compaction of this process moved rows, by the names of the segments that it removed.

    ``log_state`` is that of the compaction's commit. The moves are applied when the index is next taken. Without an
    index nothing is kept; with too many moves, the index reads the new segments instead.
    """
    writer = writer_of(files)
    if writer.bulk_commits <= 0 and writer.index is None:
        return
    names = {name for moved in moves.values() for name in moved.names}
    max_added = max((meta.max_added for meta in log_state.segments if meta.name in names), default=0)
    small = {
        name: Moves(moved.names, moved.segment_index.astype(np.int32), moved.row.astype(np.int64).astype(np.uint32))
        for name, moved in moves.items()
    }
    noted = _noted.setdefault(files, [])
    noted.append(_Compaction(log_state.version, max_added, small))
    while noted and sum(compaction.rows for compaction in noted) > MAX_MOVED:
        noted.pop(0)


def take_index(files: SegmentFiles, log_state: LogState, keys: int) -> OpenRows | None:
    """Take the index of this log state, if a commit of so many keys is worth it and is not the first such commit.

    The index belongs to the caller until ``carry_on`` or ``give_back``.
    """
    if keys < MIN_KEYS or files.spec.windowing is not None:
        return None
    writer = writer_of(files)
    index = writer.exchange_index(None)
    if index is not None:
        if index.version > log_state.version:
            writer.exchange_index(index)
            return None
        if index.version == log_state.version or _catch_up(files, index, log_state):
            return index
    writer.bulk_commits += 1
    return _build(files, log_state) if writer.bulk_commits > 1 else None


def give_back(files: SegmentFiles, index: OpenRows | None) -> None:
    """Return an index that was taken, unchanged, for the next commit."""
    if index is not None:
        writer = writer_of(files)
        other = writer.exchange_index(index)
        if other is not None and other.version > index.version:
            writer.exchange_index(other)


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
            if len(index.hashes) > MAX_ROWS:
                writer_of(files).bulk_commits = GIVEN_UP
                return
    give_back(files, index)


def _joined(first: int, added: tuple[NewOpenRows, ...]) -> tuple[Hashes, Addresses, Ints]:
    """Return (hashes ascending, addresses, starts) of rows of segments that are numbered from ``first`` on."""
    if len(added) == 1 and bool((added[0].hashes[1:] >= added[0].hashes[:-1]).all()):
        return added[0].hashes, _addresses(first, added[0].row), added[0].start
    if not added:
        return np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64)
    if len(added) == 2:  # a commit's values and tombstones
        few, many = sorted(range(2), key=lambda n: len(added[n].row))
        if all(bool((rows.hashes[1:] >= rows.hashes[:-1]).all()) for rows in added):
            at = np.searchsorted(added[many].hashes, added[few].hashes)
            addresses = [_addresses(first + n, rows.row) for n, rows in enumerate(added)]
            return (
                np.insert(added[many].hashes, at, added[few].hashes),
                np.insert(addresses[many], at, addresses[few]),
                np.insert(added[many].start, at, added[few].start),
            )
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
    """Build the index; return None if there are too many open rows, or if two keys share a hash."""
    _noted.pop(files, None)
    rows, count = [], 0
    for segment in _open_segments(log_state):
        rows.append(_open_rows(files, segment))
        count += len(rows[-1].row)
        if count > MAX_ROWS:
            writer_of(files).bulk_commits = GIVEN_UP
            return None
    hashes, address, start = _joined(0, tuple(rows))
    if _has_equal(hashes):
        writer_of(files).bulk_commits = GIVEN_UP
        return None
    return OpenRows(log_state.version, hashes.copy(), address, start, [found.segment_name for found in rows])


def _catch_up(files: SegmentFiles, index: OpenRows, log_state: LogState) -> bool:
    """Bring the index to a later log state; return whether that was possible. After False it must not be used.

    An open row of the later log state is in a segment that the index knows, and then it was open before and the index
    has it, or it is in a segment that the index does not know. So the rows are removed that ended, and those of
    segments that are gone, and the open rows of unknown segments are added. It is not possible if two keys share a
    hash, or if there are too many rows.
    """
    gone = _follow_moves(files, index, log_state)
    segments = {segment.meta.name: segment for segment in _open_segments(log_state)}
    known = set(index.names)
    new = tuple(_open_rows(files, segment) for name, segment in segments.items() if name not in known)
    hashes, address, start = _joined(len(index.names), new)
    if _has_equal(hashes) or len(index.hashes) + len(hashes) > 2 * MAX_ROWS:
        return False
    tables = [_ended_since(files, segments.get(name), index.version) for name in index.names]
    gone |= _looked_up(index, tables, False)
    indexed = index.find(hashes)
    if not gone[indexed[1]].all():
        return False
    gone[indexed[1]] = False
    rest = index.hashes[gone]
    index.names += [rows.segment_name for rows in new]
    index.replace(hashes, address, start, indexed)
    if len(rest):
        index.remove(rest)
    index.version = log_state.version
    _renumber(index, segments)
    return len(index.hashes) <= MAX_ROWS


def _ended_since(files: SegmentFiles, segment: SegmentWithClosures | None, version: int) -> Bools | None:
    """Return a mask of the rows of a segment that commits after ``version`` ended: all if it is gone, None if none."""
    if segment is None:
        return np.ones(1, bool)
    later = [files.closures(piece, segment.meta.rows)[0] for piece in segment.closures if piece.version > version]
    if not later:
        return None
    ended = np.zeros(segment.meta.rows, bool)
    for rows in later:
        ended[rows] = True
    return ended


def _looked_up(index: OpenRows, tables: Sequence[npt.NDArray[Any] | None], default: Any) -> npt.NDArray[Any]:
    """Return, for each entry, the item of its row in the table of its segment; a table of one item counts for all rows.

    Entries of segments without a table get ``default``. One pass over the index serves all segments.
    """
    kind = next((table.dtype for table in tables if table is not None), np.dtype(bool))
    result = np.full(len(index.hashes), default, kind)
    sizes = [0 if table is None else len(table) for table in tables]
    if not any(sizes):
        return result
    items = np.concatenate([table for table in tables if table is not None])
    first, size = np.cumsum([0, *sizes[:-1]]), np.array(sizes)
    if is_loaded():
        from statestore.formats.kernels.key_kernels import look_up

        if look_up(index.address, first, size, items, result):
            return result
    number = (index.address >> ROW_BITS).astype(np.int64)
    entries = np.flatnonzero(size[number] > 0)
    number, row = number[entries], (index.address[entries] & ROW_MASK).astype(np.int64)
    result[entries] = items[first[number] + np.where(size[number] == 1, 0, row)]
    return result


def _follow_moves(files: SegmentFiles, index: OpenRows, log_state: LogState) -> Bools:
    """Give the entries that compactions up to ``log_state`` moved their new addresses; mark those that are not open
    there.

    A compaction that took in a later commit than the index knows is passed over, because its new segments have rows
    that the index does not have; and so is one that moved open rows of a segment that the index does not know.
    """
    gone = np.zeros(len(index.hashes), bool)
    noted = _noted.get(files, [])
    metas = {meta.name: meta for meta in log_state.segments}
    for compaction in tuple(noted):
        if compaction.version > log_state.version:
            continue
        noted.remove(compaction)
        is_later = compaction.max_added <= index.version < compaction.version
        if is_later and _knows_sources(index, compaction.moves, metas):
            _move(files, index, compaction.moves, metas, gone)
    return gone


def _knows_sources(index: OpenRows, moves: Mapping[str, Moves], metas: Mapping[str, SegmentMeta]) -> bool:
    """Return whether the index knows all segments from which open rows were moved.

    It does not know those of a compaction that was passed over.
    """
    known = set(index.names)
    for name, moved in moves.items():
        if name not in known:
            targets = [metas.get(target) for target in moved.names]
            opened = np.array([*(meta is None or meta.max_valid_to == OPEN for meta in targets), False])  # -1: gone
            if opened[moved.segment_index].any():
                return False
    return True


def _move(
    files: SegmentFiles, index: OpenRows, moves: Mapping[str, Moves], metas: Mapping[str, SegmentMeta], gone: Bools
) -> None:
    """Give the entries of the moved segments their new addresses, and mark those whose rows are not open there."""
    numbers = {name: number for number, name in enumerate(index.names)}
    before = len(numbers)
    for name in (name for moved in moves.values() for name in moved.names):
        numbers.setdefault(name, len(numbers))
    tables: list[Addresses | None] = []
    for name in index.names:
        moved = moves.get(name)
        if moved is None:
            tables.append(None)
            continue
        targets = np.array([*(numbers[name] for name in moved.names), 0], np.uint64)  # the last one serves -1
        target = targets[moved.segment_index]
        addresses = (target << ROW_BITS) | moved.row.astype(np.uint64)
        tables.append(np.where(moved.segment_index < 0, GONE, addresses))
    if all(table is None for table in tables):  # no row of the index was moved
        return
    address = _looked_up(index, tables, UNMOVED)
    gone[address == GONE] = True
    moved_entries = np.flatnonzero(address < GONE)
    address = address[moved_entries]
    index.address[moved_entries] = address
    index.names = list(numbers)
    for number, name in enumerate(index.names[before:], before):
        meta = metas.get(name)
        if meta is not None:  # else a later compaction removed it
            mine = np.flatnonzero(address >> ROW_BITS == np.uint64(number))
            if meta.max_valid_to != OPEN:
                gone[moved_entries[mine]] = True
            elif len(mine):
                ends = files.open_segment(meta).int64("valid_to")[(address[mine] & ROW_MASK).astype(np.int64)]
                gone[moved_entries[mine[ends != OPEN]]] = True


def _renumber(index: OpenRows, segments: Mapping[str, SegmentWithClosures]) -> None:
    """Forget the names of segments that are gone, when they are many."""
    kept = [number for number, name in enumerate(index.names) if name in segments]
    if len(index.names) > 2 * len(kept) + 64:
        numbers = np.zeros(len(index.names), np.uint64)
        numbers[kept] = np.arange(len(kept), dtype=np.uint64)
        index.address = (numbers[index.address >> ROW_BITS] << ROW_BITS) | (index.address & ROW_MASK)
        index.names = [index.names[number] for number in kept]

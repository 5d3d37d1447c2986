"""Scans and histories: the parts of segments that a read needs, and their record batches.

A scan as of T is the history that was valid at T, so both are one read over a window [low, high] of state time: rows
with ``valid_from <= high`` and ``end > low``. Inside a segment rows are sorted by ``valid_from``, so the window is a
prefix. The prefix is passed uncut where the statistics show that every end lies after ``low`` (docs/format.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from statestore.catalog.log.leases import Lease
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.carried_closures import OpenMarks
from statestore.catalog.reads.live_batches import joined, live_batches
from statestore.catalog.reads.row_ends import (
    SegmentWithClosures,
    changed_ends,
    chosen_ends,
    ends_at,
    pair_ends,
    with_closures,
)
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.errors import StateStoreError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.regions import corrupt
from statestore.formats.segments.segment_meta import OPEN, Block, SegmentMeta
from statestore.formats.segments.segment_write import end_column
from statestore.formats.values.filters import Filter, key_lookups, mask, may_match
from statestore.formats.values.key_codec import KeyCodec

NOW = OPEN - 1  # a state time after every row
BEGINNING = -(2**63) + 1
CHUNK_ROWS = 1 << 17
SPLIT_ROWS = 1 << 20

VERSION_COLUMN = "_commit_version"
_LAST_HASH = (1 << 64) - 1


@dataclass(frozen=True)
class TimeRange:
    """State times [low, high], both inclusive, as recorded by ``version``; ``newest``: no later commit exists."""

    low: int
    high: int
    version: int
    newest: bool

    def clamped(self, log_state: LogState) -> TimeRange:
        """Return the range with both ends at most at the stream time of its version.

        No row that a commit recorded starts after its stream time, so later moments have the answer of that time.
        """
        if self.newest:
            return self
        stream_time = log_state.versions.stream_time_at(self.version)
        return TimeRange(min(self.low, stream_time), min(self.high, stream_time), self.version, False)


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


@dataclass(frozen=True)
class StoreSplit:
    """Pieces that one task reads, pinned to a version. Small and picklable.

    ``hashes``: only rows whose key hash lies between these numbers, the second excluded; None: all rows. ``lease``
    keeps the files of the pieces from vacuum as long as the split exists; None in a process that did not plan it.
    """

    pieces: tuple[Piece, ...]
    window: TimeRange
    rows: int
    hashes: tuple[int, int] | None = None
    lease: Lease | None = field(default=None, repr=False, compare=False)

    @property
    def segments(self) -> list[SegmentWithClosures]:
        """The segments of the pieces; some come several times."""
        return [piece.segment for piece in self.pieces]


def plan(files: SegmentFiles, log_state: LogState, window: TimeRange, filters: tuple[Filter, ...]) -> list[Piece]:
    """Return the pieces that may hold rows of the window, without tombstones."""
    window = window.clamped(log_state)
    pieces = []
    for segment in with_closures(log_state.segments, log_state.closures):
        meta = segment.meta
        if meta.tombstone or _skips(meta, meta, window) or not _keys_may_match(files, meta, filters):
            continue
        segment = segment.until(window.version)
        for first, block in meta.spans():
            if meta.blocks and _skips(meta, block, window):
                continue
            rows = block.rows
            if block.max_valid_from > window.high:
                rows = files.open_segment(meta).started_by(window.high, first, first + rows)
            if rows:
                uncut = _passes_uncut(segment, block, window) and not _closes(files, segment, first, rows, window)
                pieces.append(Piece(segment, first, first + rows, not uncut))
    return pieces


def _skips(meta: SegmentMeta, rows: SegmentMeta | Block, window: TimeRange) -> bool:
    """Return whether no row of a segment, or of one of its blocks, can belong to the window."""
    if meta.role == "belief" and (window.newest or meta.max_dropped <= window.version):
        return True
    if rows.min_added > window.version or rows.min_valid_from > window.high:
        return True
    return rows.max_valid_to <= window.low and (window.newest or rows.last_closed <= window.version)


def _passes_uncut(segment: SegmentWithClosures, block: Block, window: TimeRange) -> bool:
    """Return whether every row of the block belongs to the window, by the stored ends."""
    if segment.meta.role == "belief" or block.min_valid_to <= window.low:
        return False
    return window.newest or (block.split_closed <= window.version and block.late_added <= window.version)


def _closes(files: SegmentFiles, segment: SegmentWithClosures, first: int, rows: int, window: TimeRange) -> bool:
    """Return whether a pending closure may exclude one of these rows from the window.

    The log tells the least end of each closure list, which is enough for a segment of one block.
    """
    closures = segment.closures
    # A closure at the row's own start replaces the row, so a window of many times cannot be judged by its least end.
    latest = window.low if window.low == window.high else OPEN
    if not any(piece.min_valid_to <= latest for piece in closures):
        return False
    if not segment.meta.blocks:
        return True
    marks = _marks(files, segment, window)
    if marks is not None:
        return not marks.between(first, first + rows).all()
    return files.pending(segment.meta, closures).touches(first, first + rows, len(closures), latest)


def _keys_may_match(files: SegmentFiles, meta: SegmentMeta, filters: tuple[Filter, ...]) -> bool:
    if not filters or meta.key_min is None or meta.key_max is None:
        return True
    names = files.spec.key_names
    if not len(names) == len(meta.key_min) == len(meta.key_max):
        raise corrupt(
            meta.file,
            f"the commit has bounds of {len(meta.key_min)} key columns, the store has {len(names)} key columns",
        )
    for name, low, high in zip(names, meta.key_min, meta.key_max, strict=True):
        if low is not None and high is not None and not may_match(filters, name, low, high, False):
            return False
    return True


def splits_of(
    pieces: list[Piece], window: TimeRange, rows_per_split: int = SPLIT_ROWS, lease: Lease | None = None
) -> list[StoreSplit]:
    """Cut and pack pieces into splits of about ``rows_per_split`` rows; uncut and cut pieces are packed separately."""
    splits = []
    for cut in (False, True):
        pack: list[Piece] = []
        room = rows_per_split
        for piece in (p for p in pieces if p.cut == cut):
            start = piece.start
            while start < piece.stop:
                stop = min(piece.stop, start + room)
                pack.append(Piece(piece.segment, start, stop, cut))
                room -= stop - start
                start = stop
                if room == 0:
                    splits.append(_split(pack, window, lease))
                    pack, room = [], rows_per_split
        if pack:
            splits.append(_split(pack, window, lease))
    return splits


def hashed_splits(
    pieces: list[Piece], window: TimeRange, ranges: int, lease: Lease | None = None
) -> list[tuple[int, StoreSplit]]:
    """Return splits for each of ``ranges`` equal ranges of key hashes, with the number of the range.

    A split holds about SPLIT_ROWS rows of its range, if the hashes are even.
    """
    found = []
    for number in range(ranges):
        hashes = (number << 64) // ranges, ((number + 1) << 64) // ranges
        for split in splits_of(pieces, window, SPLIT_ROWS * ranges):
            rows = -(-split.rows // ranges)
            found.append((number, StoreSplit(split.pieces, window, rows, hashes, lease)))
    return found


def _split(pieces: list[Piece], window: TimeRange, lease: Lease | None) -> StoreSplit:
    return StoreSplit(tuple(pieces), window, sum(p.rows for p in pieces), lease=lease)


def read_split(
    files: SegmentFiles,
    split: StoreSplit,
    columns: tuple[str, ...],
    filters: tuple[Filter, ...] = (),
    in_order: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield record batches with ``columns`` (names of stored columns, VERSION_COLUMN for the writing commit).

    Small batches are joined and come last, unless the rows are to come ``in_order``.
    """
    names = list(dict.fromkeys([*columns, *(f.column for f in filters)]))
    lookups = _lookup_hashes(files, filters) if filters and split.hashes is None else None
    batches = (
        batch
        for piece in split.pieces
        for batch in _read_piece(files, piece, split, names, list(columns), filters, lookups)
    )
    yield from batches if in_order else joined(batches)


def _read_piece(
    files: SegmentFiles,
    piece: Piece,
    split: StoreSplit,
    names: list[str],
    columns: list[str],
    filters: tuple[Filter, ...],
    lookups: list[int] | None,
) -> Iterator[pa.RecordBatch]:
    found = (
        _all_rows(files, piece, split.window, names)
        if lookups is None
        else _looked_up(files, piece, split.window, names, lookups)
    )
    chosen = _hashed_rows(files, piece, split.hashes)
    for at, batch, alive in found:
        live = alive if chosen is None else _and(alive, chosen[at : at + batch.num_rows])
        selected = mask(filters, batch) if filters else None
        keep = _and(live, None if selected is None else selected.to_numpy(zero_copy_only=False))
        shown = batch.select(columns)
        yield from [shown] if keep is None else live_batches(shown, keep)


def _lookup_hashes(files: SegmentFiles, filters: tuple[Filter, ...]) -> list[int] | None:
    """Return the hashes of the keys that the filters pin.

    None if the filters pin no keys, or pin a key that no key of this type can be.
    """
    pinned = key_lookups(filters, files.spec.key_names)
    if pinned is None:
        return None
    codec = KeyCodec(files.spec.key)
    try:
        return [codec.hash(codec.normalize(key)) for key in pinned]
    except StateStoreError:
        return None


def _hashed_rows(files: SegmentFiles, piece: Piece, hashes: tuple[int, int] | None) -> Bools | None:
    """Return a mask of the rows of a segment whose key hashes lie in a range; None for all rows."""
    if hashes is None:
        return None
    index = files.index(piece.segment.meta)
    bounds = np.array([min(bound, _LAST_HASH) for bound in hashes], np.uint64)
    low, high = np.searchsorted(index.hashes, bounds)
    if hashes[1] > _LAST_HASH:
        high = index.entries
    found = np.zeros(index.entries, bool)
    found[index.rows[low:high]] = True
    return found


def _and(left: Bools | None, right: Bools | None) -> Bools | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _marks(files: SegmentFiles, segment: SegmentWithClosures, window: TimeRange) -> OpenMarks | None:
    """Return the marks of open rows, if exactly these rows have not ended before the window; else None.

    So it is as of now. The newest closures tell at little cost that it is not so.
    """
    if not window.newest or window.low != window.high:
        return None
    if segment.closures and segment.closures[-1].min_valid_to > window.low:
        return None
    marks = files.open_marks(segment.meta, segment.closures)
    return marks if marks.latest_end <= window.low else None


def _judged(
    files: SegmentFiles, piece: Piece, start: int, stop: int, window: TimeRange, shows_ends: bool
) -> tuple[Bools | None, Ints | None]:
    """Return (mask of the rows [start, stop) of a piece that belong to the window, their ends).

    The mask is None if all rows belong to it. The ends are None if those of the answer are the stored ones.
    """
    segment = piece.segment
    file = files.open_segment(segment.meta)
    if window.newest:
        marks = _marks(files, segment, window) if piece.cut else None
        if marks is not None:
            is_open = marks.between(start, stop)
            return None if is_open.all() else is_open, None
        changed = changed_ends(files, segment, start, stop) if piece.cut or shows_ends else None
    else:
        changed = ends_at(files, segment, window.version, start, stop) if piece.cut or shows_ends else None
    if not piece.cut:
        return None, changed
    ends = file.int64_rows("valid_to", start, stop) if changed is None else changed
    live = ends > window.low
    if window.low < window.high:
        live &= ends > file.int64_rows("valid_from", start, stop)
    return None if live.all() else live, changed


def live_rows(files: SegmentFiles, piece: Piece, window: TimeRange) -> int:
    """Return the number of rows of a piece that belong to the window; only their times are read."""
    live, _ = _judged(files, piece, piece.start, piece.stop, window, False)
    return piece.rows if live is None else int(np.count_nonzero(live))


def live_mask(files: SegmentFiles, piece: Piece, window: TimeRange) -> Bools | None:
    """Return a mask of the rows of a piece that belong to the window, None if all do; only their times are read."""
    return _judged(files, piece, piece.start, piece.stop, window, False)[0]


def live_starts(files: SegmentFiles, piece: Piece, window: TimeRange) -> Ints:
    """Return the starts of the rows of a piece that belong to the window, in order; only times are read."""
    starts = files.open_segment(piece.segment.meta).int64_rows("valid_from", piece.start, piece.stop)
    live = live_mask(files, piece, window)
    return starts if live is None else starts[live]


def _all_rows(
    files: SegmentFiles, piece: Piece, window: TimeRange, names: list[str]
) -> Iterator[tuple[int, pa.RecordBatch, Bools | None]]:
    """Yield (first row, batch, mask of the rows that belong to the window or None for all)."""
    meta = piece.segment.meta
    file = files.open_segment(meta)
    physical = [_physical(name) for name in names]
    for start in range(piece.start, piece.stop, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, piece.stop)
        live, ends = _judged(files, piece, start, stop, window, "valid_to" in names)
        if live is not None and not live.any():
            continue
        files.check_length(meta.file)  # a scan may take hours
        at = start
        for stored in file.batches(physical, start, stop, CHUNK_ROWS):
            mine = slice(at - start, at - start + stored.num_rows)
            shown = _with_ends(stored, names, None if ends is None else ends[mine])
            yield at, shown, None if live is None else live[mine]
            at += stored.num_rows


def _looked_up(
    files: SegmentFiles, piece: Piece, window: TimeRange, names: list[str], lookups: list[int]
) -> Iterator[tuple[int, pa.RecordBatch, Bools | None]]:
    """Yield only the rows that have a requested key hash; the caller's filters drop other keys of the same hash."""
    meta = piece.segment.meta
    probes = np.array(lookups, np.uint64)
    _, matches = files.match(meta, np.unique(probes))
    rows = np.sort(matches[(matches >= piece.start) & (matches < piece.stop)])
    if not len(rows):
        return
    ends = _chosen_ends(files, piece, window, rows, "valid_to" in names)
    live = None
    file = files.open_segment(meta)
    if ends is not None and piece.cut:
        live = ends > window.low
        if window.low < window.high:
            live &= ends > file.int64("valid_from")[rows]
    arrays = [file.take(_physical(name), rows) for name in names]
    stored = pa.RecordBatch.from_arrays(arrays, names=[_physical(n) for n in names])
    yield piece.start, _with_ends(stored, names, ends), live


def _chosen_ends(files: SegmentFiles, piece: Piece, window: TimeRange, rows: Ints, shows_ends: bool) -> Ints | None:
    """Return the ends of these rows; None if those of the answer are the stored ones."""
    segment = piece.segment
    if window.newest:
        return chosen_ends(files, segment, rows) if piece.cut or (shows_ends and segment.closures) else None
    if not piece.cut and not shows_ends:
        return None
    return pair_ends(files, segment, rows, np.full(len(rows), window.version))


def _physical(name: str) -> str:
    return "_added" if name == VERSION_COLUMN else name


def _with_ends(stored: pa.RecordBatch, names: list[str], ends: Ints | None) -> pa.RecordBatch:
    """Return the stored columns under their public names, with ``valid_to`` replaced by the ends of this version."""
    arrays = list(stored.columns)
    if ends is not None and "valid_to" in names:
        arrays[names.index("valid_to")] = end_column(ends)
    return pa.RecordBatch.from_arrays(arrays, names=names)

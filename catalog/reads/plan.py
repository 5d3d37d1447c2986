"""Plans of scans and histories: the parts of segments that a read needs, their splits, and what statistics answer.

A scan as of T is the history that was valid at T, so both are one read over a window [low, high] of state time: rows
with ``valid_from <= high`` and ``end > low``. Inside a segment rows are sorted by ``valid_from``, so the window is a
prefix. The prefix is passed uncut where the statistics show that every end lies after ``low`` (docs/format.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa

from statestore.catalog.log.leases import Lease
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import (
    Piece,
    SegmentWithClosures,
    TimeRange,
    blocks_with_rows,
    live_starts,
    may_be_cut,
)
from statestore.catalog.reads.fetching import BlockRows, fetch_searched, has_short_batches
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.segments.regions import corrupt
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.values.filters import Filter, may_match

CHUNK_ROWS = 1 << 17
SPLIT_ROWS = 1 << 20


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
    pieces: list[Piece] = []
    segment, file, last, wanted = None, None, -1, False
    blocks = blocks_with_rows(files.block_statistics(log_state.segments), window)
    if not files.is_local:
        fetch_searched(files, *_searched(log_state, window, blocks), window.high)
    for number, first, rows, *bounds in blocks:
        if number != last:
            meta, last, file = log_state.segments[number], number, None
            wanted = keys_may_match(files, meta, filters)
            segment = SegmentWithClosures(meta, log_state.closures.get(meta.name, ())).until(window.version)
        if not wanted or segment is None:
            continue
        _, latest_start, least_end, _, _, _, split_closed, late_added = bounds
        if latest_start > window.high:
            file = file or files.open_segment(segment.meta)
            rows = file.started_by(window.high, first, first + rows)
        if rows:
            cut = may_be_cut(files, segment, first, rows, (least_end, split_closed, late_added), window)
            pieces.append(Piece(segment, first, first + rows, cut))
    return pieces


def _searched(
    log_state: LogState, window: TimeRange, blocks: list[list[int]]
) -> tuple[list[BlockRows], list[SegmentWithClosures]]:
    """Return the blocks into which a plan has to look, as their rows, and the segments whose closures it needs.

    Among the blocks are the others of the window in compressed segments of which a plan fetches some rows anyway, so
    that the read, which needs them next, need not fetch them after these.
    """
    searched: list[BlockRows] = []
    whole: list[tuple[int, BlockRows]] = []
    opened: set[int] = set()
    closed: dict[int, SegmentWithClosures] = {}
    for number, first, rows, _, latest_start, *_ in blocks:
        meta = log_state.segments[number]
        segment = SegmentWithClosures(meta, log_state.closures.get(meta.name, ())).until(window.version)
        if segment.closures:
            closed[number] = segment
        if latest_start > window.high:
            searched.append((segment, first, first + rows))
            opened.add(number)
        elif has_short_batches(meta):
            whole.append((number, (segment, first, first + rows)))
    searched += [block for number, block in whole if number in opened]
    return searched, list(closed.values())


def keys_may_match(files: SegmentFiles, meta: SegmentMeta, filters: tuple[Filter, ...]) -> bool:
    """Return whether a segment may have rows of the keys that the filters name, by its bounds of keys."""
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
    """Cut and pack pieces into splits of about ``rows_per_split`` rows; uncut and cut pieces are packed separately.

    Pieces that have no more rows are one split, the uncut ones first, because each read of a split costs some hundred
    microseconds.
    """
    if 0 < sum(piece.rows for piece in pieces) <= rows_per_split:
        return [_split(sorted(pieces, key=attrgetter("cut")), window, lease)]
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


# The least and greatest value of a column, where no values have to be read for them. A segment whose rows all belong
# to the window has the bounds of its keys in the log. Of another segment some rows may have ended, so its bounds only
# limit what its rows can be: they are exact where a segment of the first kind goes as far.

Extremes = tuple[Any, Any]


def extremes(files: SegmentFiles, pieces: Sequence[Piece], window: TimeRange, name: str) -> Extremes | None:
    """Return the least and greatest value of a key column or of ``valid_from`` (epoch microseconds), None of no rows.

    Return None where the values of the column would have to be read.
    """
    if name == "valid_from":
        return _times(files, pieces, window)
    if name not in files.spec.key_names:
        return None
    if not pieces:
        return None, None
    return _keys(pieces, files.spec.key_names.index(name), files.spec.key.field(name).type)


def _times(files: SegmentFiles, pieces: Sequence[Piece], window: TimeRange) -> Extremes:
    low = high = None
    for piece in pieces:
        meta = piece.segment.meta
        if not piece.cut and piece.rows == meta.rows:
            first, last = meta.min_valid_from, meta.max_valid_from
        else:
            starts = live_starts(files, piece, window)
            if not len(starts):
                continue
            first, last = int(starts[0]), int(starts[-1])  # the rows of a block are sorted by time
        low = first if low is None else min(low, first)
        high = last if high is None else max(high, last)
    return low, high


def _keys(pieces: Sequence[Piece], position: int, kind: pa.DataType) -> Extremes | None:
    exact: list[Extremes] = []
    loose: list[Extremes] = []
    for _, group in groupby(pieces, lambda piece: piece.segment.meta.name):  # the blocks of a segment come together
        mine = list(group)
        meta = mine[0].segment.meta
        if meta.key_min is None or meta.key_max is None:
            return None
        found = meta.key_min[position], meta.key_max[position]
        if not all(_is_of(value, kind) for value in found):
            return None
        whole = not any(piece.cut for piece in mine) and sum(piece.rows for piece in mine) == meta.rows
        (exact if whole else loose).append(found)
    if not exact:
        return None
    low, high = min(low for low, _ in exact), max(high for _, high in exact)
    beyond = any(first < low or last > high for first, last in loose)
    return None if beyond else (low, high)


def _is_of(value: Any, kind: pa.DataType) -> bool:
    """Return whether a bound of the log is a value of the column; it is None for types without bounds."""
    if pa.types.is_boolean(kind):
        return type(value) is bool
    if pa.types.is_signed_integer(kind):
        return type(value) is int and -(1 << kind.bit_width - 1) <= value < 1 << kind.bit_width - 1
    return pa.types.is_string(kind) and type(value) is str

"""The versions of looked-up keys, without rows of other keys: the newest first, and the commits that wrote them.

Each row that a commit wrote is stored as long as a version from before its replacement can be read. So the rows of a
key in all segments, and what ended them, name all commits that wrote or deleted it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count, groupby

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import Piece, SegmentWithClosures, TimeRange, cells_of, with_closures
from statestore.catalog.reads.fetching import fetch_files, fetch_rows
from statestore.catalog.reads.plan import keys_may_match
from statestore.catalog.reads.scan import matched_rows, taken_rows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.state_table import NewestBatch
from statestore.formats.values.filters import Filter, mask
from statestore.formats.values.without_pandas import int64_values

START = "valid_from"
# Latest start among rows that are not read yet, negative because the heap has its least entry first; a number that no
# two entries share; how many of the rows are read at once; the piece and its rows.
_Unread = tuple[int, int, int, Piece, Ints]


def newest_first(
    files: SegmentFiles,
    pieces: Sequence[Piece],
    window: TimeRange,
    schema: pa.Schema,
    filters: tuple[Filter, ...],
    hashes: list[int],
    rows: int,
) -> Iterator[NewestBatch]:
    """Yield the rows of keys with these hashes that belong to the window and pass the filters, in ``schema``.

    About ``rows`` rows are read at once of each piece. A batch is not sorted, and later ones may have rows that are
    newer than some of its rows, up to the bound that it names.
    """
    names = list(dict.fromkeys([*schema.names, *(each.column for each in filters), START]))
    numbers = count()
    unread = [
        (-latest, next(numbers), rows, piece, mine) for latest, piece, mine in _matched_pieces(files, pieces, hashes)
    ]
    heapify(unread)
    while unread:
        _, _, size, piece, mine = heappop(unread)
        older, some = mine[:-size], mine[-size:]
        batch, live = taken_rows(files, piece, window, names, some)
        if len(older):  # more at once each time, since many of them may not belong to the answer
            earliest = int(int64_values(batch.column(START))[0])
            heappush(unread, (-earliest, next(numbers), 2 * size, piece, older))
        keep = mask(filters, batch)
        if live is not None:
            batch, keep = batch.filter(pa.array(live)), None if keep is None else keep.filter(pa.array(live))
        if keep is not None:
            batch = batch.filter(keep)
        found = pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
        yield NewestBatch(found, -unread[0][0] if unread else None)


def _matched_pieces(
    files: SegmentFiles, pieces: Sequence[Piece], hashes: list[int]
) -> Iterator[tuple[int, Piece, Ints]]:
    """Yield the pieces that have rows of these hashes, with the rows and the latest start that they may have."""
    for _, group in groupby(pieces, key=lambda piece: piece.segment.meta.name):
        mine = list(group)
        meta = mine[0].segment.meta
        rows = matched_rows(files, meta, hashes)
        if not len(rows):
            continue
        firsts, latest = _latest_starts(meta)
        for piece in mine:
            here = rows[slice(*rows.searchsorted((piece.start, piece.stop)).tolist())]
            if len(here):
                yield latest[int(firsts.searchsorted(piece.start, "right")) - 1], piece, here


def _latest_starts(meta: SegmentMeta) -> tuple[Ints, list[int]]:
    """Return the first row of each block, and its greatest start."""
    spans = meta.spans()
    return np.array([first for first, _ in spans]), [block.max_valid_from for _, block in spans]


CAUSES = ("_added", "_closed", "_dropped")


def key_writers(files: SegmentFiles, log_state: LogState, filters: tuple[Filter, ...], hashes: list[int]) -> Ints:
    """Return the commits, ascending, that wrote, ended or replaced rows of the keys which the filters name.

    ``hashes`` are those of the keys.
    """
    metas = [meta for meta in log_state.segments if keys_may_match(files, meta, filters)]
    fetch_files(files, [meta.index for meta in metas])
    found = [
        (segment, rows)
        for segment in with_closures(metas, log_state.closures)
        if len(rows := _rows_of(files, segment, hashes))
    ]
    fetch_rows(files, [(segment, row, row + 1) for segment, rows in found for row in rows.tolist()])
    versions = [_causes(files, segment, rows, filters) for segment, rows in found]
    return np.unique(np.concatenate([np.empty(0, np.int64), *versions]))


def _rows_of(files: SegmentFiles, segment: SegmentWithClosures, hashes: list[int]) -> Ints:
    index = files.index(segment.meta)
    return np.array(sorted({row for hash in hashes for row in index.find(hash)}), np.int64)


def _causes(files: SegmentFiles, segment: SegmentWithClosures, rows: Ints, filters: tuple[Filter, ...]) -> Ints:
    meta, file = segment.meta, files.open_segment(segment.meta)
    names = files.spec.key_names
    keys = pa.RecordBatch.from_arrays([file.take(name, rows) for name in names], names=list(names))
    chosen = mask(filters, keys)
    if chosen is not None:
        rows = rows[chosen.to_numpy(zero_copy_only=False)]
    parts = [cells_of(file, name, rows) for name in CAUSES if name != "_dropped" or meta.role == "belief"]
    parts[1] = parts[1][parts[1] > 0]  # of an end that no commit has given
    if segment.closures:
        parts.append(files.pending(meta, segment.closures).versions_of(rows, len(segment.closures)))
    return np.concatenate(parts)

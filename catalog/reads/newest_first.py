"""The versions of looked-up keys, the newest ones first, so that a reader of some need not read the older ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count, groupby

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.belief import Piece, TimeRange
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.reads.split_reading import matched_rows, taken_rows
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.state_table import NewestBatch
from statestore.formats.values.arrow_numbers import int64_values
from statestore.formats.values.filters import Filter, mask

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

"""The rows of a scan with their dead rows, and beside them a column that tells which live.

An engine that filters batches itself, such as DuckDB, skips dead rows faster than they can be cut out: the columns
stay views of the mapped files, and nothing is copied. The marks are a column of bytes whose nulls are the dead rows,
because an engine tests for null by the validity bits alone. They take one bit a row, and all marks share one buffer of
bytes. Where few rows live, they are copied out instead.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.belief import Piece, live_mask
from statestore.catalog.reads.fetching import fetch_rows
from statestore.catalog.reads.scan import CHUNK_ROWS, StoreSplit
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools
from statestore.formats.state_table import MARK_TYPE, MaskedSplit, mark_bytes

SPARSE = 32  # where fewer than one row in so many lives, rows are copied


def masked(files: SegmentFiles, split: StoreSplit) -> list[MaskedSplit]:
    """Return the rows of a split as splits that are read whole, each with the marks of its live rows.

    The times of pieces that are cut are read now, and no other column.
    """
    if split.hashes is not None:
        return [MaskedSplit(split, None, None)]
    fetch_rows(files, [(piece.segment, piece.start, piece.stop) for piece in split.pieces if piece.cut], ())
    whole: list[Piece] = []
    dense: list[Piece] = []
    sparse: list[Piece] = []
    masks: list[Bools] = []
    left = 0
    for piece in split.pieces:
        live = live_mask(files, piece, split.window)
        if live is None:
            whole.append(Piece(piece.segment, piece.start, piece.stop, False))
            continue
        for at in range(0, len(live), CHUNK_ROWS):
            part = live[at : at + CHUNK_ROWS]
            start, stop = piece.start + at, piece.start + at + len(part)
            alive = int(np.count_nonzero(part))
            if alive == len(part):
                whole.append(Piece(piece.segment, start, stop, False))
            elif alive * SPARSE > len(part):
                dense.append(Piece(piece.segment, start, stop, False))
                masks.append(part)
            elif alive:
                sparse.append(Piece(piece.segment, start, stop, True))
                left += alive
    found = []
    if whole:
        found.append(MaskedSplit(_of(split, whole), None, sum(p.rows for p in whole)))
    if dense:
        marks = _marks(np.concatenate(masks))
        found.append(MaskedSplit(_of(split, dense), marks, len(marks) - marks.null_count))
    if sparse:
        found.append(MaskedSplit(_of(split, sparse), None, left))
    return found


def _of(split: StoreSplit, pieces: list[Piece]) -> StoreSplit:
    """Return a split of other pieces; neighbours that are one slice of a segment are read as one."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last is not None and last.segment is piece.segment and last.stop == piece.start:
            joined[-1] = Piece(piece.segment, last.start, piece.stop, piece.cut)
        else:
            joined.append(piece)
    return StoreSplit(tuple(joined), split.window, sum(p.rows for p in joined), lease=split.lease)


def _marks(live: Bools) -> pa.Array:
    """Return a column whose nulls are the rows that do not live."""
    bits = np.packbits(live, bitorder="little")
    dead = len(live) - int(np.count_nonzero(live))
    return pa.Array.from_buffers(MARK_TYPE, len(live), [pa.py_buffer(bits), mark_bytes(len(live))], dead)

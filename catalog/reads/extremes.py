"""The least and greatest value of a column among the rows of a window, where no values have to be read for them.

A segment whose rows all belong to the window has the bounds of its keys in the log. Of another segment some rows may
have ended, so its bounds only limit what its rows can be: they are exact where a segment of the first kind goes as far.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from statestore.catalog.reads.belief import Piece, TimeRange, live_starts
from statestore.catalog.reads.segment_files import SegmentFiles

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

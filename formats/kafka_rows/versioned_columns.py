"""Whole columns of a versioned store's rows: the layouts of `versioned_store` without a Python call per row.

Columns are binary without nulls. CorruptError VERSIONED_ROW reports the first bad row as `decode_row` does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.kafka_rows.columns import Ints, bounds, cut, int_field, require_length
from statestore.formats.kafka_rows.versioned_store import BOUNDS, ENTRY, TIME, decode_row


class HistoryVersions(NamedTuple):
    """Versions of many history rows; the versions of one row follow each other, newest first.

    ``row`` is the position of the row in the column. A null value is a tombstone. In a degenerate row, start and end
    are equal.
    """

    row: Ints
    valid_from: Ints
    valid_to: Ints
    values: pa.BinaryArray


class _Level(NamedTuple):
    """The k-th version of each row that has at least k versions."""

    row: Ints
    start: Ints
    end: Ints
    size: Ints
    value_begin: Ints


def split_row_keys(rows: pa.BinaryArray) -> tuple[Ints, pa.BinaryArray]:
    """(segment ids, keys) of a column of row keys."""
    require_length("versioned row key", rows, TIME.size)
    return int_field(rows, 0), cut(rows, TIME.size, 0)


def split_latest(rows: pa.BinaryArray) -> tuple[Ints, pa.BinaryArray]:
    """(valid_from, values) of a column of latest rows."""
    require_length("versioned latest row", rows, TIME.size)
    return int_field(rows, 0), cut(rows, TIME.size, 0)


def decode_rows(rows: pa.BinaryArray) -> HistoryVersions:
    """Decode the versions of a column of history rows, in as many passes as the row with the most versions has."""
    data, _, _ = bounds(rows)
    levels = _levels(rows, data)
    if not levels:
        nothing = np.empty(0, np.int64)
        return HistoryVersions(nothing, nothing, nothing, pa.array([], pa.binary()))
    row, start, end, size, value_begin = (np.concatenate(parts) for parts in zip(*levels, strict=True))
    order = np.argsort(row, kind="stable")
    values = _gather(data, value_begin[order], size[order])
    return HistoryVersions(row[order], start[order], end[order], values)


def _levels(rows: pa.BinaryArray, data: npt.NDArray[np.uint8]) -> list[_Level]:
    _, begin, stop = bounds(rows)
    _refuse(rows, np.flatnonzero(stop - begin < BOUNDS.size + ENTRY.size))
    row = np.arange(len(rows))
    newest, oldest = int_field(rows, 0), int_field(rows, 8)
    at, end = begin + BOUNDS.size, newest
    levels: list[_Level] = []
    while len(row):
        _refuse(rows, row[at + ENTRY.size > stop])
        start, size = _numbers(data, at, ">i8"), _numbers(data, at + TIME.size, ">i4")
        fits = (oldest <= start) & (start < end)
        if not levels:
            fits |= (start == end) & (start == oldest) & (size < 0)
        at, stop = at + ENTRY.size, stop - np.maximum(size, 0)
        last = start == oldest
        _refuse(rows, row[~fits | (stop < at) | (last & (stop != at))])
        levels.append(_Level(row, start, end, size, stop))
        more = ~last
        row, oldest, at, stop, end = row[more], oldest[more], at[more], stop[more], start[more]
    return levels


def _refuse(rows: pa.BinaryArray, bad: npt.NDArray[np.int64]) -> None:
    if len(bad):
        decode_row(rows[int(bad[0])].as_py())


def _numbers(data: npt.NDArray[np.uint8], at: Ints, form: str) -> Ints:
    kind = np.dtype(form)
    found: Ints = data[at[:, None] + np.arange(kind.itemsize)].view(kind).reshape(-1).astype(np.int64)
    return found


def _gather(data: npt.NDArray[np.uint8], begin: Ints, size: Ints) -> pa.BinaryArray:
    """Gather the cells at these positions; null where ``size`` is negative."""
    lengths = np.maximum(size, 0)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    positions = np.repeat(begin - offsets[:-1], lengths) + np.arange(offsets[-1])
    bitmap = pa.py_buffer(np.packbits(size >= 0, bitorder="little").tobytes())
    # A batch of at most 2 GiB of rows holds at most 2 GiB of values.
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32).tobytes()), pa.py_buffer(data[positions].tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(begin), buffers)

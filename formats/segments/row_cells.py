"""Cells of single rows of a segment, of which only the bytes of these cells are verified, and so fetched.

A column that is read whole is checked whole (`statestore.formats.segments.column_checks`). Here the offsets and the
bytes of one cell are checked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from statestore.formats.segments.regions import VerifiedBytes, corrupt
from statestore.formats.segments.segment import Segment
from statestore.formats.values.without_pandas import arrow_numbers

Ranges = list[tuple[int, int]]


def cell_ranges(segment: Segment, names: Sequence[str], row: int) -> Ranges:
    """Return where the cells of a row lie in the file, as (offset, length), but for the bytes of texts."""
    found: Ranges = []
    for name in names:
        column, at, verified = segment.unread(name, row)
        if column is None or not _is_simple(column.type):
            found += segment.ranges([name], row, row + 1)
        else:
            found += _fixed_ranges(verified, column, at)
    return found


def text_ranges(segment: Segment, names: Sequence[str], row: int) -> Ranges:
    """Return where the texts of a row lie in the file; reads what `cell_ranges` names."""
    found: Ranges = []
    for name in names:
        column, at, verified = segment.unread(name, row)
        if column is not None and _is_text(column.type):
            begin, end = _text(verified, column, at)
            if end > begin:
                found.append((verified.offset_of(column.buffers()[2]) + begin, end - begin))
    return found


def cells(segment: Segment, names: Sequence[str], row: int) -> list[pa.Array]:
    """Return the cells of a row, each as an array of one value."""
    return [_cell(segment, name, row) for name in names]


def _cell(segment: Segment, name: str, row: int) -> pa.Array:
    column, at, verified = segment.unread(name, row)
    if column is None or not _is_simple(column.type):
        return segment.take(name, np.array([row]))
    for offset, length in _fixed_ranges(verified, column, at):
        verified.verify(offset, length)
    if _is_text(column.type):
        begin, end = _text(verified, column, at)
        data = column.buffers()[2]
        text = pa.py_buffer(b"") if end == begin else verified.slice(verified.offset_of(data) + begin, end - begin)
        if pa.types.is_string(column.type):
            try:
                text.to_pybytes().decode()
            except UnicodeDecodeError as error:
                raise corrupt(verified.ref, f"column {name!r}, row {row}: {error}") from None
    return column.take(arrow_numbers(np.array([at])))


def _fixed_ranges(verified: VerifiedBytes, column: pa.Array, row: int) -> Ranges:
    """Return where the validity bit and the number, or the offsets, of a cell lie."""
    validity, data = column.buffers()[:2]
    found: Ranges = []
    if validity is not None and validity.size:
        found.append((verified.offset_of(validity) + row // 8, 1))
    if _is_text(column.type):
        first, last = 4 * row, 4 * (row + 2)
    else:
        width = column.type.bit_width
        first, last = width * row // 8, -(-width * (row + 1) // 8)
    if data is None or last > data.size or (validity is not None and 0 < validity.size <= row // 8):
        raise corrupt(verified.ref, f"a column has too few bytes for row {row}")
    return [*found, (verified.offset_of(data) + first, last - first)]


def _text(verified: VerifiedBytes, column: pa.Array, row: int) -> tuple[int, int]:
    """Return where the bytes of a text lie in its column's values, checked."""
    offsets, data = column.buffers()[1:]
    begin, end = np.frombuffer(verified.slice(verified.offset_of(offsets) + 4 * row, 8), np.int32).tolist()
    if not 0 <= begin <= end <= (0 if data is None else data.size):
        raise corrupt(verified.ref, f"the text of row {row} goes from {begin} to {end}")
    return begin, end


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_simple(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pa.types.is_primitive(kind) or pa.types.is_decimal128(kind))

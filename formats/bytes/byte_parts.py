"""Byte strings that are put together of parts, all rows at once: columns of cells, and bytes that every row has.

What is written row by row elsewhere is one copy by Arrow here: the parts of a row follow each other, and rows do, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of, ends_of
from statestore.formats.kernels.arrays import Bools, Ints

MAX_VARINT = 10
"""The bytes of the longest integer of variable length, of 64 bits."""
_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
Part = Cells | bytes
"""A part of each row. Null cells are parts of no bytes."""


def joined_parts(parts: Sequence[Part], rows: int) -> Cells:
    """The parts of each row in their order, as cells that follow each other without a gap."""
    columns: list[Any] = []
    is_shared = all(isinstance(part, bytes) for part in parts)
    for part in parts if rows else ():
        if isinstance(part, Cells):
            columns.append(column_of_cells(part))
        elif part:
            columns.append(_scalar(part))
    if not columns or is_shared:
        return repeated(b"".join(part for part in parts if isinstance(part, bytes)), rows)
    if len(columns) == 1:
        return cells_of(columns[0])
    return cells_of(pc.binary_join_element_wise(*columns, _scalar(b"")))


def _scalar(value: bytes) -> pa.Scalar:
    """Return bytes as a scalar; `pyarrow.scalar` loads pandas, which takes a third of a second."""
    ends = pa.py_buffer(np.array([0, len(value)], np.int64))
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(value)])[0]


def sizes_of(parts: Sequence[Part], rows: int) -> Ints:
    """The bytes of all parts of each row."""
    total = np.full(rows, sum(len(part) for part in parts if isinstance(part, bytes)), np.int64)
    for part in parts:
        if isinstance(part, Cells):
            total += part.size
    return total


def number_cells(numbers: npt.NDArray[Any]) -> Cells:
    """The bytes of each number, in the order of its numpy type."""
    width, count = numbers.dtype.itemsize, len(numbers)
    data = np.ascontiguousarray(numbers).view(np.uint8)
    return Cells(data, np.arange(count, dtype=np.int64) * width, np.full(count, width, np.int64))


def varint_cells(numbers: npt.NDArray[np.uint64]) -> Cells:
    """Integers of variable length: seven bits in a byte, the lowest ones first."""
    left = numbers
    digits = np.empty((len(numbers), MAX_VARINT), np.uint8)
    size = np.ones(len(numbers), np.int64)
    for at in range(MAX_VARINT):
        digits[:, at] = (left & np.uint64(0x7F)).astype(np.uint8)
        left = left >> np.uint64(7)
        more = left != 0
        digits[:, at] |= more.astype(np.uint8) << np.uint8(7)
        size += more
    content = digits[np.arange(MAX_VARINT) < size[:, None]]
    return Cells(content, ends_of(size)[:-1], size)


def zig_zag_cells(numbers: Ints) -> Cells:
    """Integers of variable length, the sign in the lowest bit."""
    return varint_cells(((numbers << 1) ^ (numbers >> 63)).view(np.uint64))


def hex_cells(cells: Cells) -> Cells:
    """The bytes of each cell as two hexadecimal digits, in lower case."""
    data, ends = cells.content()
    content = data[int(ends[0]) : int(ends[-1])]
    digits = np.empty((len(content), 2), np.uint8)
    digits[:, 0], digits[:, 1] = _DIGITS[content >> 4], _DIGITS[content & 15]
    return Cells(digits.reshape(-1), 2 * (ends[:-1] - ends[0]), 2 * np.diff(ends))


def zero_cells(sizes: Ints) -> Cells:
    """Cells of zeros of these sizes."""
    ends = ends_of(sizes)
    return Cells(np.zeros(int(ends[-1]), np.uint8), ends[:-1], sizes)


def repeated(content: bytes, rows: int) -> Cells:
    """Bytes that are equal in each row."""
    data = np.frombuffer(content * rows, np.uint8)
    return Cells(data, np.arange(rows, dtype=np.int64) * len(content), np.full(rows, len(content), np.int64))


def spread_cells(cells: Cells, nulls: Bools | None) -> Cells:
    """Insert cells of no bytes where ``nulls``; ``cells`` are those of the other rows."""
    if nulls is None:
        return cells
    data, _ = cells.content()
    size = np.zeros(len(nulls), np.int64)
    size[~nulls] = cells.size
    return Cells(data, ends_of(size)[:-1], size)


def cells_of_groups(cells: Cells, offsets: Ints) -> Cells:
    """The cells of each group as one, which are those from one of the offsets to the next."""
    data, ends = cells.content()
    return Cells(data, ends[offsets[:-1]], ends[offsets[1:]] - ends[offsets[:-1]])


def column_of_cells(cells: Cells) -> pa.LargeBinaryArray:
    """The cells as a column of any size, without a copy where they follow each other; null cells are empty."""
    data, offsets = cells.content()
    return pa.Array.from_buffers(pa.large_binary(), len(cells), [None, pa.py_buffer(offsets), pa.py_buffer(data)])

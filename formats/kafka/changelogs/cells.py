"""Many byte strings in one buffer, some of them null: the keys and values of records, without a copy of each.

Bounds are checked where cells are made; the functions here trust them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Bools, Bytes, Ints
from statestore.formats.kernels.compiled_use import is_loaded

_MOST_BYTES = 2**31 - 1  # of one binary array


@dataclass(frozen=True)
class Cells:
    """``data[start[i] : start[i] + size[i]]`` is string ``i``; null where ``size[i]`` is -1."""

    data: Bytes
    start: Ints
    size: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def is_null(self) -> Bools:
        """Which cells are null."""
        found: Bools = self.size < 0
        return found

    def select(self, which: Bools | Ints) -> Cells:
        """The cells at these positions, or where the mask is true."""
        return Cells(self.data, self.start[which], self.size[which])

    @property
    def used_bytes(self) -> int:
        """Sum of the sizes of all cells."""
        return int(np.maximum(self.size, 0).sum())

    def array(self) -> pa.Array:
        """A compact binary array. Raises InvalidInputError BATCH_TOO_LARGE over 2 GiB."""
        count, nulls = len(self), self.size < 0
        size = np.where(nulls, 0, self.size)
        ends = np.zeros(count + 1, np.int64)
        np.cumsum(size, out=ends[1:])
        if int(ends[-1]) > _MOST_BYTES:
            raise InvalidInputError(
                ErrorCode.BATCH_TOO_LARGE, f"found {int(ends[-1])} bytes in one column, expected at most {_MOST_BYTES}"
            )
        offsets = ends.astype(np.int32)
        cells = _copied(self.data, np.where(nulls, 0, self.start), size, ends, offsets)
        empty = int(np.count_nonzero(nulls))
        valid = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if empty else None
        return pa.Array.from_buffers(
            pa.binary(), count, [valid, pa.py_buffer(offsets), pa.py_buffer(cells)], null_count=empty
        )


def _copied(data: Bytes, start: Ints, size: Ints, ends: Ints, offsets: npt.NDArray[np.int32]) -> Bytes:
    if is_loaded() and len(data):
        from statestore.formats.kernels.row_kernels import copy_spans

        target = np.empty(int(ends[-1]), np.uint8)
        if not copy_spans(data, start, offsets, target):
            raise IndexError("a cell lies outside its data")
        return target
    positions = np.repeat(start - ends[:-1], size) + np.arange(int(ends[-1]))
    found: Bytes = data[positions]
    return found


def cells_of(column: pa.Array) -> Cells:
    """The cells of a binary or large binary array, without a copy of the bytes."""
    count = len(column)
    if not count:
        return Cells(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    wide = pa.types.is_large_binary(column.type)
    buffers = column.buffers()
    stored = np.frombuffer(buffers[1], np.int64 if wide else np.int32)
    ends: Ints = stored[column.offset : column.offset + count + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
    size = np.diff(ends)
    if column.null_count:
        size[pc.is_null(column).to_numpy(zero_copy_only=False)] = -1
    return Cells(data, ends[:-1], size)

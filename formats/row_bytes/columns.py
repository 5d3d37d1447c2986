"""Whole columns as bytes and back, without a Python call per row: numbers as byte matrices, text by its offsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.errors import CorruptError
from statestore.formats.row_bytes.cells import corrupt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def matrix(column: pa.Array, width: int) -> Bytes:
    """The little-endian bytes of a column of numbers, one row per cell; zeros where it is null."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if column.null_count:
        column = _zeros_for_nulls(column)
    data = column.buffers()[1]
    start = column.offset * width
    found = np.frombuffer(data, np.uint8)[start : start + len(column) * width] if data is not None else b""
    return np.asarray(found, np.uint8).reshape(len(column), width)


def from_matrix(data: Bytes, kind: pa.DataType, valid: npt.NDArray[np.bool_] | None) -> pa.Array:
    """The column whose little-endian bytes these are; null where not ``valid``."""
    if pa.types.is_boolean(kind):
        if (data > 1).any():
            raise corrupt("a boolean that is neither 0 nor 1")
        return pa.array(data.reshape(-1).astype(bool), pa.bool_(), mask=None if valid is None else ~valid)
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    found = pa.Array.from_buffers(kind, len(data), [bitmap, pa.py_buffer(np.ascontiguousarray(data).tobytes())])
    try:
        found.validate(full=pa.types.is_decimal(kind))
    except pa.ArrowInvalid as error:
        raise corrupt(str(error)) from error
    return found


def as_binary(data: Bytes) -> pa.BinaryArray:
    """One binary cell for each row of a byte matrix."""
    rows, width = data.shape
    buffer = pa.py_buffer(np.ascontiguousarray(data).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), rows, [None, buffer]).cast(pa.binary())


def lengths_matrix(column: pa.BinaryArray) -> Bytes:
    """The length of each cell as four little-endian bytes."""
    lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    found: Bytes = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    return found


def joined(parts: Sequence[pa.Array]) -> pa.BinaryArray:
    """The parts of each row one after the other."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def bounds(rows: pa.BinaryArray) -> tuple[Bytes, Ints, Ints]:
    """(all bytes, begin, end) of the cells of a binary column; null cells are empty."""
    offsets = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset : rows.offset + len(rows) + 1].astype(np.int64)
    data = rows.buffers()[2]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), offsets[:-1], offsets[1:]


def gather(data: Bytes, begin: Ints, width: int, end: Ints) -> Bytes:
    """``width`` bytes of each row from ``begin``; CorruptError if a row ends before."""
    if len(begin) and (begin + width > end).any():
        raise corrupt(f"a row ends before the {width} bytes expected at its byte")
    found: Bytes = data[begin[:, None] + np.arange(width)]
    return found


def gather_cells(
    data: Bytes, begin: Ints, end: Ints, kind: pa.DataType, valid: npt.NDArray[np.bool_] | None
) -> pa.Array:
    """Text or binary cells from these places."""
    sizes = end - begin
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    if offsets[-1] > np.iinfo(np.int32).max:
        raise CorruptError("ROW_CORRUPT", "more than 2 GiB of text in one batch of rows")
    places = np.repeat(begin - offsets[:-1], sizes) + np.arange(offsets[-1])
    bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32).tobytes()), pa.py_buffer(data[places].tobytes())]
    found = pa.Array.from_buffers(pa.binary(), len(begin), buffers)
    return found if pa.types.is_binary(kind) else as_text(found)


def as_text(column: pa.BinaryArray) -> pa.StringArray:
    """The same bytes as text; CorruptError if they are not UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise corrupt(str(error)) from error


def _zeros_for_nulls(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_decimal(kind):
        return pc.fill_null(column, pa.scalar(0, pa.int8()).cast(pa.decimal128(3, 0)).cast(kind))
    number = pa.int8() if kind.bit_width == 8 else pa.int16() if kind.bit_width == 16 else None
    number = number or (pa.int32() if kind.bit_width == 32 else pa.int64())
    return pc.fill_null(column.view(number), 0)

"""Whole columns as bytes and back: numbers as byte matrices and text by its offsets, without a Python call per row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Bools, Bytes, Ints
from statestore.formats.serdes.cell_bytes import Cell, whole
from statestore.formats.serdes.row_errors import corrupt
from statestore.formats.values.canonical import from_arrow, plain

MAX_BYTES = 2**31 - 1  # of one binary column


@dataclass(frozen=True)
class Rows:
    """The bytes of a binary column without nulls: row i is ``data[begin[i]:end[i]]``, and rows follow each other."""

    buffer: pa.Buffer
    data: Bytes
    begin: Ints
    end: Ints


def rows_of(column: pa.BinaryArray) -> Rows:
    """The rows of a binary column that has no nulls."""
    offsets = np.zeros(1, np.int64)
    if len(column):
        offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column) + 1].astype(np.int64)
    buffer = column.buffers()[2]
    if buffer is None:
        buffer = pa.py_buffer(b"")
    return Rows(buffer, np.frombuffer(buffer, np.uint8), offsets[:-1], offsets[1:])


def slices(rows: Rows, begin: Ints, end: Ints, valid: Bools | None = None) -> pa.BinaryArray:
    """The bytes of each row from ``begin`` to ``end``, which lie in it; null where not ``valid``."""
    count = len(begin)
    if not count:
        return pa.array([], pa.binary())
    edges = np.empty(2 * count, np.int32)
    edges[0::2], edges[1::2] = begin, end
    # As rows follow each other, these bytes and the gaps between them are the cells of one column.
    alternating = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(edges), rows.buffer])
    taken = alternating.take(pa.array(np.arange(0, 2 * count - 1, 2)))
    if valid is None:
        return taken
    return pa.Array.from_buffers(pa.binary(), count, [_bitmap(valid), *taken.buffers()[1:]])


def heads(rows: Rows, begin: Ints, width: int) -> Bytes:
    """The ``width`` bytes of each row from ``begin`` on, as a matrix. Raises CorruptError if a row ends before."""
    if not len(begin) or not width:
        return np.zeros((len(begin), width), np.uint8)
    lengths = rows.end - begin
    if (lengths < width).any():
        row = int(np.argmax(lengths < width))
        at = begin[row] - rows.begin[row]
        raise corrupt(f"row {row}: {width} bytes expected at byte {at}, found {lengths[row]}")
    if rows.end[-1] - begin[0] == width * len(begin):  # no bytes lie between
        return rows.data[begin[0] : rows.end[-1]].reshape(-1, width)
    data = slices(rows, begin, begin + width).buffers()[2]
    return np.frombuffer(data, np.uint8, width * len(begin)).reshape(-1, width)


def check_ends(rows: Rows, at: Ints) -> None:
    """Raise CorruptError if a row does not end at ``at``."""
    if (at != rows.end).any():
        row = int(np.argmax(at != rows.end))
        actual, expected = rows.end[row] - rows.begin[row], at[row] - rows.begin[row]
        raise corrupt(f"row {row} has {actual} bytes, expected {expected}")


def matrix(column: pa.Array, width: int) -> Bytes:
    """The little-endian bytes of a column of numbers, one row per cell; zeros where it is null."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    data = column.buffers()[1]
    if data is None:
        return np.zeros((len(column), width), np.uint8)
    cells = np.frombuffer(data, np.uint8)[column.offset * width :][: len(column) * width].reshape(-1, width)
    return np.where(valid_flags(column)[:, None], cells, np.uint8(0)) if column.null_count else cells


def from_matrix(data: Bytes, kind: pa.DataType, valid: Bools | None = None) -> pa.Array:
    """The column with these little-endian bytes; null where not ``valid``."""
    if pa.types.is_boolean(kind):
        flags = data.reshape(-1) if valid is None else np.where(valid, data.reshape(-1), np.uint8(0))
        if (flags > 1).any():
            raise corrupt(f"a boolean is {flags[flags > 1][0]}, expected 0 or 1")
        return pa.array(flags.astype(np.bool_), pa.bool_(), mask=None if valid is None else ~valid)
    array = pa.Array.from_buffers(kind, len(data), [_bitmap(valid), pa.py_buffer(_packed(data))])
    if pa.types.is_decimal(kind):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid as error:
            raise corrupt(str(error)) from error
    return array


def as_binary(data: Bytes) -> pa.BinaryArray:
    """One binary cell for each row of a byte matrix."""
    rows, width = data.shape
    _check_size(rows * width)
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(_packed(data))])


def side_by_side(parts: Sequence[Bytes]) -> Bytes:
    """The columns of all matrices in one matrix."""
    return parts[0] if len(parts) == 1 else np.hstack(parts)


def lengths_matrix(column: pa.BinaryArray) -> Bytes:
    """The length of each cell as four little-endian bytes."""
    lengths = pc.binary_length(column).to_numpy(zero_copy_only=False)
    cells: Bytes = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    return cells


def joined(parts: Sequence[pa.Array]) -> pa.BinaryArray:
    """Join the parts of each row, none of them null."""
    if len(parts) == 1:
        return parts[0]
    _check_size(sum(_bytes_in(part) for part in parts))
    return pc.binary_join_element_wise(*parts, b"")


def as_kind(column: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    """Convert binary cells to a binary or text column. Raises CorruptError if they are not UTF-8."""
    if pa.types.is_binary(kind):
        return column
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise corrupt(str(error)) from error


def valid_flags(column: pa.Array) -> Bools:
    """A mask that is true where the column is not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    flags: Bools = column.is_valid().to_numpy(zero_copy_only=False)
    return flags


def _check_size(size: int) -> None:
    if size > MAX_BYTES:
        raise InvalidInputError(
            ErrorCode.BATCH_TOO_LARGE,
            f"the rows of one batch take {size} bytes, expected at most {MAX_BYTES}; split it",
        )


def _bytes_in(column: pa.BinaryArray) -> int:
    rows = rows_of(column)
    return int(rows.end[-1] - rows.begin[0]) if len(column) else 0


def _bitmap(valid: Bools | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _packed(data: Bytes) -> npt.NDArray[np.generic]:
    """The matrix as contiguous memory for a buffer; copied number by number where it has gaps."""
    rows, width = data.shape
    if not rows or data.flags.c_contiguous or width not in (2, 4, 8) or data.strides[1] != 1:
        return np.ascontiguousarray(data)
    return np.ascontiguousarray(data.view(f"<u{width}"))


# Columns of structs, lists and maps, cell by cell. Times inside them are converted as integers, because columns can
# hold more times than Python can.


def encoded_column(column: pa.Array, cell: Callable[[pa.DataType], Cell]) -> pa.BinaryArray:
    """Encode a column; null cells are empty.

    ``cell`` is the form of the cells: ``cells.compact`` or ``cells.ordered``.
    """
    kind = timeless(column.type)
    encode, to = cell(kind)[0], from_arrow(kind)
    cells = column.cast(kind).to_pylist()
    rows = cells if to is None else map(to, cells)
    return pa.array([b"" if row is None else encode(row) for row in rows], pa.binary())


def decoded_column(column: pa.BinaryArray, kind: pa.DataType, cell: Callable[[pa.DataType], Cell]) -> pa.Array:
    """Decode a column of type ``kind``; null cells stay null. Raises CorruptError ROW_CORRUPT."""
    stored = timeless(kind)
    decode, to = cell(stored)[1], plain(stored, list)
    cells = [None if data is None else whole(decode, data) for data in column.to_pylist()]
    return pa.array(cells if to is None else map(to, cells), stored, size=len(cells)).cast(kind)


def timeless(kind: pa.DataType) -> pa.DataType:
    """The type ``kind`` with integers in place of dates, timestamps and durations."""
    types = pa.types
    if types.is_temporal(kind):
        return pa.int32() if types.is_date32(kind) else pa.int64()
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, timeless(field.type)) for field in kind])
    if types.is_list(kind):
        return pa.list_(timeless(kind.value_type))
    if types.is_map(kind):
        return pa.map_(timeless(kind.key_type), timeless(kind.item_type))
    return kind

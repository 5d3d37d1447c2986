"""Serde "natural", values: compact, in no particular order.

One bit a column that says it is not null (whole bytes, lowest bit first), then the columns: numbers in their
little-endian width (zeros where null), all else as four bytes of length and the bytes (length 0 where null).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.canonical import from_arrow
from statestore.formats.key_codec import ValueCodec
from statestore.formats.row_bytes.cells import LENGTH, compact, corrupt, number_bytes
from statestore.formats.row_bytes.columns import (
    Bytes,
    Ints,
    as_binary,
    bounds,
    from_matrix,
    gather,
    gather_cells,
    joined,
    lengths_matrix,
    matrix,
)

Row = tuple[Any, ...]
FORMS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "float": "f", "double": "d"}


class NaturalValues:
    """Values of one schema as bytes and back, one by one or in columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._kinds = [field.type for field in schema]
        self._codec = ValueCodec(schema)
        self._cells = [compact(kind) for kind in self._kinds]
        self._widths = [number_bytes(kind) for kind in self._kinds]
        self._bitmap = (len(schema) + 7) // 8
        self._full = ((1 << len(schema)) - 1).to_bytes(self._bitmap, "little")
        # The form of a row of plain numbers without nulls; such rows are packed in one call.
        forms = [FORMS.get(str(kind)) for kind in self._kinds]
        self._struct = Struct("<" + "".join(forms)) if all(forms) else None  # type: ignore[arg-type]

    def value_bytes(self) -> Callable[[Any], bytes]:
        """A function from a user's value to bytes, as fast as the schema allows."""
        normalize, row_bytes, full = self._codec.normalize, self._row_bytes, self._full
        if self._struct is None:
            if len(self._kinds) == 1 and pa.types.is_string(self._kinds[0]):
                pack = LENGTH.pack

                def text(value: Any) -> bytes:
                    if type(value) is str and value.isascii():
                        data = value.encode()
                        return full + pack(len(data)) + data
                    return row_bytes(normalize(value))

                return text
            return lambda value: row_bytes(normalize(value))
        numbers, kind = self._struct.pack, self._kinds[0]
        if len(self._kinds) == 1 and pa.types.is_signed_integer(kind):
            half, one = 1 << (kind.bit_width - 1), Struct("<B" + FORMS[str(kind)]).pack

            def integer(value: Any) -> bytes:
                if type(value) is int and -half <= value < half:
                    return one(1, value)
                return row_bytes(normalize(value))

            return integer
        if len(self._kinds) == 1 and pa.types.is_float64(kind):
            one = Struct("<Bd").pack
            return lambda value: one(1, value) if type(value) is float else row_bytes(normalize(value))

        def packed(value: Any) -> bytes:
            row = normalize(value)
            return row_bytes(row) if None in row else full + numbers(*row)

        return packed

    def value_of(self) -> Callable[[bytes], Any]:
        """A function from bytes to the value as users see it."""
        to_user, row, full, bitmap = self._codec.to_user, self._row, self._full, self._bitmap
        if self._struct is None:
            return lambda data: to_user(row(data))
        unpack, size = self._struct.unpack_from, bitmap + self._struct.size
        if len(self._kinds) == 1:

            def number(data: bytes) -> Any:
                if len(data) == size and data[0] == 1:
                    return unpack(data, 1)[0]
                return to_user(row(data))

            return number

        def unpacked(data: bytes) -> Any:
            if len(data) == size and data.startswith(full):
                return to_user(unpack(data, bitmap))
            return to_user(row(data))

        return unpacked

    def to_bytes(self, columns: list[pa.Array]) -> pa.BinaryArray:
        rows = len(columns[0]) if columns else 0
        valid = np.stack([column.is_valid().to_numpy(zero_copy_only=False) for column in columns], axis=1)
        front: list[Bytes] = [np.packbits(valid, axis=1, bitorder="little")]
        parts: list[pa.Array] = []
        for column, kind, width, cell in zip(columns, self._kinds, self._widths, self._cells, strict=True):
            if width:
                front.append(matrix(column, width))
                continue
            if pa.types.is_string(kind) or pa.types.is_binary(kind):
                data = column.cast(pa.binary()).fill_null(b"")
            else:
                data = _nested(column, cell[0])
            front.append(lengths_matrix(data))
            parts += [as_binary(np.hstack(front)), data]
            front = []
        if front:
            parts.append(as_binary(np.hstack(front)))
        assert all(len(part) == rows for part in parts)
        return joined(parts)

    def from_bytes(self, rows: pa.BinaryArray) -> list[pa.Array]:
        stored = rows.is_valid().to_numpy(zero_copy_only=False)
        data, begin, end = bounds(rows.filter(rows.is_valid()) if rows.null_count else rows)
        bits = np.unpackbits(gather(data, begin, self._bitmap, end), axis=1, bitorder="little")
        at = begin + self._bitmap
        columns = []
        for number, (kind, width) in enumerate(zip(self._kinds, self._widths, strict=True)):
            valid = bits[:, number].astype(bool)
            if width:
                columns.append(from_matrix(gather(data, at, width, end), kind, None if valid.all() else valid))
                at = at + width
            else:
                column, at = self._variable(number, data, at, end, None if valid.all() else valid)
                columns.append(column)
        if (at != end).any():
            raise corrupt("a value is longer than its columns")
        return columns if stored.all() else [_spread(column, stored) for column in columns]

    def _variable(
        self, number: int, data: Bytes, at: Ints, end: Ints, valid: npt.NDArray[np.bool_] | None
    ) -> tuple[pa.Array, Ints]:
        kind = self._kinds[number]
        lengths = np.ascontiguousarray(gather(data, at, 4, end)).view("<u4").reshape(-1).astype(np.int64)
        first, stop = at + 4, at + 4 + lengths
        if (stop > end).any():
            raise corrupt("a text is longer than its row")
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return gather_cells(data, first, stop, kind, valid), stop
        cells = gather_cells(data, first, stop, pa.binary(), valid).to_pylist()
        decode = self._cells[number][1]
        whole = [None if cell is None else _whole(decode, cell) for cell in cells]
        only = ValueCodec(pa.schema([self._schema.field(number)]))
        return only.to_columns([(cell,) for cell in whole])[0], stop

    def _row_bytes(self, row: Row) -> bytes:
        bits = sum(1 << number for number, cell in enumerate(row) if cell is not None)
        parts = [bits.to_bytes(self._bitmap, "little")]
        for cell, width, (encode, _), kind in zip(row, self._widths, self._cells, self._kinds, strict=True):
            if width:
                parts.append(bytes(width) if cell is None else encode(cell))
            elif pa.types.is_string(kind) or pa.types.is_binary(kind):
                parts.append(LENGTH.pack(0) if cell is None else encode(cell))
            else:
                nested = b"" if cell is None else encode(cell)
                parts += [LENGTH.pack(len(nested)), nested]
        return b"".join(parts)

    def _row(self, data: bytes) -> Row:
        if len(data) < self._bitmap:
            raise corrupt(f"a value of {len(data)} bytes")
        bits = int.from_bytes(data[: self._bitmap], "little")
        row, at = [], self._bitmap
        for number, (width, (_, decode), kind) in enumerate(zip(self._widths, self._cells, self._kinds, strict=True)):
            value: Any = None
            if width or pa.types.is_string(kind) or pa.types.is_binary(kind):
                if bits >> number & 1:
                    value, at = decode(data, at)
                else:
                    at += width or LENGTH.size
            else:
                length = LENGTH.unpack_from(data, at)[0] if at + LENGTH.size <= len(data) else len(data)
                at += LENGTH.size
                if at + length > len(data):
                    raise corrupt(f"{length} bytes expected at byte {at} of {len(data)}")
                value = _whole(decode, data[at : at + length]) if bits >> number & 1 else None
                at += length
            row.append(value)
        if at != len(data):
            raise corrupt(f"a value of {len(data)} bytes ends at {at}")
        return tuple(row)


def _whole(decode: Callable[[bytes, int], tuple[Any, int]], data: bytes) -> Any:
    value, at = decode(data, 0)
    if at != len(data):
        raise corrupt(f"a nested value of {len(data)} bytes ends at {at}")
    return value


def _nested(column: pa.Array, encode: Callable[[Any], bytes]) -> pa.BinaryArray:
    to = from_arrow(column.type) or (lambda value: value)
    return pa.array([b"" if cell is None else encode(to(cell)) for cell in column.to_pylist()], pa.binary())


def _spread(column: pa.Array, stored: npt.NDArray[np.bool_]) -> pa.Array:
    """The cells at the places that are stored, nulls at the others."""
    places = np.cumsum(stored) - 1
    return column.take(pa.array(places, mask=~stored))

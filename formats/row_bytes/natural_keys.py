"""Serde "natural", keys: bytes that sort like the key, column by column.

Numbers are big-endian with the sign bit flipped. The last column, if it is text or binary, is its bytes as they are;
before other columns text is escaped and ended by 00 00 (``cells``). So the bytes of the first columns begin those of
the whole key.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.canonical import from_arrow
from statestore.formats.key_codec import KeyCodec
from statestore.formats.row_bytes.cells import (
    END,
    ESCAPED,
    Decode,
    Encode,
    corrupt,
    decoded_text,
    number_bytes,
    ordered,
)
from statestore.formats.row_bytes.columns import (
    Bytes,
    as_binary,
    as_text,
    bounds,
    from_matrix,
    gather,
    gather_cells,
    joined,
    matrix,
)

Key = tuple[Any, ...]


class NaturalKeys:
    """Keys of one schema as bytes and back, one by one or in columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._kinds = [field.type for field in schema]
        self._codec = KeyCodec(schema)
        last = len(schema) - 1
        self._cells = [_last(kind) if number == last else ordered(kind) for number, kind in enumerate(self._kinds)]
        self._vectorised = all(number_bytes(kind) for kind in self._kinds[:-1]) and _is_plain(self._kinds[-1])

    def key_bytes(self) -> Callable[[Any], bytes]:
        """A function from a user's key to bytes, as fast as the schema allows."""
        normalize, kind = self._codec.normalize, self._kinds[0]
        if len(self._kinds) == 1:
            encode = self._cells[0][0]
            if pa.types.is_string(kind):
                return lambda key: key.encode() if type(key) is str and key.isascii() else encode(normalize(key)[0])
            if pa.types.is_binary(kind):
                return lambda key: key if type(key) is bytes else encode(normalize(key)[0])
            if pa.types.is_signed_integer(kind):
                return _integer_bytes(kind, lambda key: encode(normalize(key)[0]))
            return lambda key: encode(normalize(key)[0])
        encoders = [encode for encode, _ in self._cells]
        return lambda key: b"".join([encode(cell) for encode, cell in zip(encoders, normalize(key), strict=True)])

    def key_of(self) -> Callable[[bytes], Any]:
        """A function from bytes to the key as users see it."""
        to_user, kind = self._codec.to_user, self._kinds[0]
        if len(self._kinds) == 1 and pa.types.is_string(kind):
            return decoded_text
        if len(self._kinds) == 1 and pa.types.is_binary(kind):
            return bytes
        return lambda data: to_user(self._row(data))

    def to_bytes(self, columns: list[pa.Array]) -> pa.BinaryArray:
        parts = []
        for number, (column, kind) in enumerate(zip(columns, self._kinds, strict=True)):
            if number_bytes(kind):
                parts.append(as_binary(_flipped(matrix(column, number_bytes(kind)), kind)[:, ::-1]))
            elif not _is_plain(kind):
                encode, to = self._cells[number][0], from_arrow(kind) or (lambda value: value)
                parts.append(pa.array([encode(to(cell)) for cell in column.to_pylist()], pa.binary()))
            elif number == len(columns) - 1:
                parts.append(column.cast(pa.binary()))
            else:
                parts.append(_escaped(column))
        return joined(parts)

    def from_bytes(self, rows: pa.BinaryArray) -> list[pa.Array]:
        if not self._vectorised:
            return self._codec.to_columns([self._row(row) for row in rows.to_pylist()])
        data, begin, end = bounds(rows)
        columns = []
        for kind in self._kinds:
            width = number_bytes(kind)
            if width:
                cells = _flipped(np.ascontiguousarray(gather(data, begin, width, end)[:, ::-1]), kind)
                columns.append(from_matrix(cells, kind, None))
                begin = begin + width
            elif len(self._kinds) == 1:
                return [rows if pa.types.is_binary(kind) else as_text(rows)]
            else:
                columns.append(gather_cells(data, begin, end, kind, None))
                begin = end
        if (begin != end).any():
            raise corrupt("a key is longer than its columns")
        return columns

    def _row(self, data: bytes) -> Key:
        row, at = [], 0
        for _, decode in self._cells:
            value, at = decode(data, at)
            row.append(value)
        if at != len(data):
            raise corrupt(f"a key of {len(data)} bytes ends at {at}")
        return tuple(row)


def _last(kind: pa.DataType) -> tuple[Encode, Decode]:
    """The cell of the last column: text need not end itself there."""
    if pa.types.is_string(kind):
        return str.encode, lambda data, at: (decoded_text(data[at:]), len(data))
    if pa.types.is_binary(kind):
        return bytes, lambda data, at: (data[at:], len(data))
    return ordered(kind)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(number_bytes(kind)) or pa.types.is_string(kind) or pa.types.is_binary(kind)


def _integer_bytes(kind: pa.DataType, otherwise: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    half = 1 << (kind.bit_width - 1)
    pack = Struct({8: ">B", 16: ">H", 32: ">I", 64: ">Q"}[kind.bit_width]).pack
    return lambda key: pack(key + half) if type(key) is int and -half <= key < half else otherwise(key)


def _flipped(little: Bytes, kind: pa.DataType) -> Bytes:
    """With the sign bit (in the last of the little-endian bytes) the other way round."""
    if pa.types.is_boolean(kind):
        return little
    found = little.copy()
    found[:, -1] ^= 0x80
    return found


def _escaped(column: pa.Array) -> pa.BinaryArray:
    """As ``cells.escaped``."""
    data = pc.replace_substring(column.cast(pa.binary()), "\x00", ESCAPED.decode())
    return pc.binary_join_element_wise(data, pa.scalar(END), b"")

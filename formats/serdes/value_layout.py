"""Layout of the columns of a value in its bytes, and the general encoder and decoder for every row.

A value is: one bit a column that says it is not null (whole bytes, lowest bit first); the columns that are one number
in their little-endian width (zeros where null); of each other column the length in four little-endian bytes (0 where
null); the bytes of these columns. Within each of these parts the columns are in the schema's order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any

import pyarrow as pa

from statestore.formats.serdes.cell_bytes import compact, decoded_text, whole
from statestore.formats.serdes.numbers import as_number, number_bytes
from statestore.formats.serdes.row_errors import corrupt
from statestore.formats.values.key_codec import Row


@dataclass(frozen=True)
class Column:
    """A column at position ``position`` of the schema.

    ``to`` converts a canonical value to what is packed as ``form``, or to bytes where the column is not one number
    (``width`` 0); ``back`` converts it back. ``zero`` is packed for null.
    """

    position: int
    kind: pa.DataType
    width: int
    form: str
    zero: Any
    to: Callable[[Any], Any]
    back: Callable[[Any], Any]


@dataclass(frozen=True)
class ValueLayout:
    """The layout of a schema's values. ``head`` packs bits, numbers and lengths; ``full``: the bits without nulls."""

    columns: tuple[Column, ...]
    numbers: tuple[Column, ...]
    others: tuple[Column, ...]
    full: bytes
    head: Struct

    def encode(self, row: Row) -> bytes:
        """Encode a canonical row."""
        bits = sum([1 << position for position, cell in enumerate(row) if cell is not None])
        numbers = [c.zero if row[c.position] is None else c.to(row[c.position]) for c in self.numbers]
        cells = [b"" if row[c.position] is None else c.to(row[c.position]) for c in self.others]
        return self.head.pack(bits.to_bytes(len(self.full), "little"), *numbers, *map(len, cells)) + b"".join(cells)

    def decode(self, data: bytes) -> Row:
        """Decode a canonical row. Raises CorruptError ROW_CORRUPT if the bytes are not a row."""
        try:
            head = self.head.unpack_from(data)
        except struct.error:
            raise corrupt(f"a value of {len(data)} bytes, expected at least {self.head.size}") from None
        bits = int.from_bytes(head[0], "little")
        if bits >> len(self.columns):
            raise corrupt(f"the null bits {head[0].hex()} for {len(self.columns)} columns")
        lengths = head[1 + len(self.numbers) :]
        at = self.head.size
        if at + sum(lengths) != len(data):
            raise corrupt(f"a value of {len(data)} bytes, expected {at + sum(lengths)}")
        row: list[Any] = [None] * len(self.columns)
        for column, stored in zip(self.numbers, head[1:], strict=False):
            if bits >> column.position & 1:
                row[column.position] = column.back(stored)
        for column, length in zip(self.others, lengths, strict=True):
            if bits >> column.position & 1:
                row[column.position] = column.back(data[at : at + length])
            elif length:
                raise corrupt(f"{length} bytes in a column that is null")
            at += length
        return tuple(row)


def value_layout(schema: pa.Schema) -> ValueLayout:
    """The layout of a schema. Raises UnsupportedError UNSUPPORTED_TYPE."""
    columns = tuple([_column(position, field.type) for position, field in enumerate(schema)])
    numbers = tuple([column for column in columns if column.width])
    others = tuple([column for column in columns if not column.width])
    full = ((1 << len(columns)) - 1).to_bytes((len(columns) + 7) // 8, "little")
    form = "".join([f"<{len(full)}s", *[column.form for column in numbers], "I" * len(others)])
    return ValueLayout(columns, numbers, others, full, Struct(form))


def _column(position: int, kind: pa.DataType) -> Column:
    width = number_bytes(kind)
    if width:
        stored = as_number(kind)
        to, back = stored.to, stored.back
        if stored.form is not None:
            return Column(position, kind, width, stored.form, 0, to, back)
        return Column(
            position,
            kind,
            width,
            f"{width}s",
            b"",
            lambda value: to(value).to_bytes(width, "little", signed=True),
            lambda data: back(int.from_bytes(data, "little", signed=True)),
        )
    if pa.types.is_string(kind):
        return Column(position, kind, 0, "", b"", str.encode, decoded_text)
    if pa.types.is_binary(kind):
        return Column(position, kind, 0, "", b"", bytes, bytes)
    encode, decode = compact(kind)
    return Column(position, kind, 0, "", b"", encode, lambda data: whole(decode, data))

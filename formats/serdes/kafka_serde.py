"""Serde "kafka": one key and one value column in the bytes of Kafka's built-in serdes.

String, ByteArray, Boolean, Short, Integer, Long, Float and Double (``org.apache.kafka.common.serialization.Serdes``):
text is UTF-8, numbers are big-endian, so in the order of bytes negative numbers come after positive ones.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.serdes.cell_bytes import decoded_text
from statestore.formats.serdes.columns import (
    as_binary,
    as_kind,
    check_ends,
    from_matrix,
    heads,
    matrix,
    rows_of,
    valid_flags,
)
from statestore.formats.serdes.numbers import as_number, number_bytes
from statestore.formats.serdes.plain_values import plain_type
from statestore.formats.serdes.row_errors import corrupt
from statestore.formats.values.key_codec import KeyCodec, ValueCodec

TYPES = "string, binary, boolean, smallint, int, bigint, float, double"

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]


def kafka_kind(schema: pa.Schema, what: str) -> pa.DataType:
    """The type of the only column. Raises UnsupportedError UNSUPPORTED_SERDE if Kafka has no serde for the ``what``."""
    kind = schema.field(0).type if len(schema) == 1 else None
    if kind is None or not (_form(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind)):
        columns = ", ".join(f"{field.name} {field.type}" for field in schema) or "no column"
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_SERDE,
            f'serde "kafka": the {what} is ({columns}); Kafka has serdes for one column of type {TYPES}; '
            'use one of these, or serde="natural"',
        )
    return kind


def key_encoder(codec: KeyCodec) -> Encode:
    """A function from a user's key to bytes. It raises the errors of ``codec.normalize``."""
    kind, normalize = codec.schema.field(0).type, codec.normalize
    encode = _encoder(kind)
    return _plain_first(kind, encode, lambda key: encode(normalize(key)[0]))


def value_encoder(codec: ValueCodec) -> Encode:
    """A function from a user's value to bytes.

    It raises the errors of ``codec.normalize``, and WRONG_VALUE for a null.
    """
    field, normalize = codec.schema.field(0), codec.normalize
    encode = _encoder(field.type)

    def slowly(value: Any) -> bytes:
        cell = normalize(value)[0]
        if cell is None:
            raise InvalidInputError(
                ErrorCode.WRONG_VALUE,
                f"Column {field.name!r}: found null, expected {field.type}; in Kafka's serdes null is a delete: "
                "put None.",
            )
        return encode(cell)

    return _plain_first(field.type, encode, slowly)


def decoder(kind: pa.DataType) -> Decode:
    """A function from bytes to a cell. It raises CorruptError ROW_CORRUPT."""
    if pa.types.is_string(kind):
        return decoded_text
    if pa.types.is_binary(kind):
        return bytes
    unpack, back = Struct(_form(kind)).unpack, as_number(kind).back

    def decode(data: bytes) -> Any:
        try:
            (stored,) = unpack(data)
        except struct.error:
            raise corrupt(f"{len(data)} bytes, expected the {number_bytes(kind)} of {kind}") from None
        return back(stored)

    return decode


def column_to_bytes(column: pa.Array) -> pa.BinaryArray:
    """Serialize a column; nulls stay nulls."""
    width = number_bytes(column.type)
    if not width:
        return column.cast(pa.binary())
    if pa.types.is_float64(column.type):
        column = pc.if_else(pc.is_nan(column), math.nan, column)
    rows = as_binary(matrix(column, width)[:, ::-1])
    if not column.null_count:
        return rows
    return rows.take(pa.array(np.arange(len(rows)), mask=~valid_flags(column)))


def column_from_bytes(cells: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    """Deserialize a column of type ``kind``; nulls stay nulls. Raises CorruptError ROW_CORRUPT."""
    width = number_bytes(kind)
    if not width:
        return as_kind(cells, kind)
    rows = rows_of(cells.fill_null(bytes(width)) if cells.null_count else cells)
    data = heads(rows, rows.begin, width)
    check_ends(rows, rows.begin + width)
    return from_matrix(data[:, ::-1], kind, valid_flags(cells) if cells.null_count else None)


def _form(kind: pa.DataType) -> str:
    """Format for the struct module; empty for types without a serde."""
    types = pa.types
    if types.is_boolean(kind) or types.is_floating(kind) or (types.is_signed_integer(kind) and kind.bit_width > 8):
        return f">{as_number(kind).form}"
    return ""


def _encoder(kind: pa.DataType) -> Encode:
    if pa.types.is_string(kind):
        return str.encode
    return bytes if pa.types.is_binary(kind) else Struct(_form(kind)).pack


def _plain_first(kind: pa.DataType, encode: Encode, slowly: Encode) -> Encode:
    """``slowly`` with a shortcut for plain Python values, which most callers pass."""
    plain = plain_type(kind)
    if pa.types.is_float64(kind):  # DoubleSerializer writes every NaN as one, as ``normalize`` does
        return lambda value: encode(value) if type(value) is float and value == value else slowly(value)
    if plain is bytes:
        return lambda value: value if type(value) is bytes else slowly(value)

    def encode_plain(value: Any) -> bytes:
        if type(value) is plain:
            try:
                return encode(value)
            except (struct.error, UnicodeEncodeError, OverflowError):
                pass
        return slowly(value)

    return encode_plain

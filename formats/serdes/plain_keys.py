"""Serde "natural", single keys: functions made for one schema.

A key is its columns one after the other, each in a form that sorts as unsigned bytes like its values
(``cells.ordered``: numbers big-endian with the sign bit flipped, text escaped and ended by 00 00); only a last column
of text or binary is its bytes as they are. So keys sort column by column, and the bytes of the first columns begin
those of the key.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import itemgetter
from struct import Struct
from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.serdes.cell_bytes import Cell, decoded_text, escaped, ordered, sign_bit
from statestore.formats.serdes.cell_bytes import Decode as CellDecode
from statestore.formats.serdes.numbers import as_number
from statestore.formats.serdes.plain_values import plain_type
from statestore.formats.serdes.row_errors import corrupt
from statestore.formats.values.canonical import ErrorPath, canonical
from statestore.formats.values.key_codec import KeyCodec

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes], Any]

_NO_ROW: tuple[Any, ...] = ()
_NOT_PLAIN = (struct.error, TypeError, ValueError, KeyError)


def key_cells(schema: pa.Schema) -> list[Cell]:
    """Encoder and decoder of each column of a key."""
    *first, last = [field.type for field in schema]
    return [*map(ordered, first), _last(last)]


def key_encoder(codec: KeyCodec) -> Encode:
    """A function from a user's key to bytes. It raises the errors of ``codec.normalize``."""
    schema, normalize = codec.schema, codec.normalize
    encoders, encode_row = [encode for encode, _ in key_cells(schema)], row_encoder(codec)

    def slowly(key: Any) -> bytes:
        return encode_row(normalize(key))

    types = tuple([plain_type(kind) for kind in schema.types])
    if None in types:
        return slowly
    if len(schema) == 1:
        return _encode_one(schema.field(0).type, encoders[0], codec)
    plain = [
        *[_plain_encoder(field, encode) for field, encode in zip(schema, encoders[:-1], strict=False)],
        encoders[-1] if types[-1] in (str, bytes) else _plain_encoder(schema.field(len(schema) - 1), encoders[-1]),
    ]
    return (_encode_two if len(schema) == 2 else _encode_many)(schema.names, types, plain, slowly)


def row_encoder(codec: KeyCodec) -> Callable[[tuple[Any, ...]], bytes]:
    """A function from a canonical row (``codec.normalize``) to the bytes of the key; it checks nothing again."""
    encoders = [encode for encode, _ in key_cells(codec.schema)]
    if len(encoders) == 1:
        first = encoders[0]
        return lambda row: first(row[0])
    return lambda row: b"".join([encode(cell) for encode, cell in zip(encoders, row, strict=True)])


def key_decoder(codec: KeyCodec) -> Decode:
    """A function from bytes to the key as users see it. It raises CorruptError ROW_CORRUPT."""
    schema, to_user = codec.schema, codec.to_user
    decoders = [decode for _, decode in key_cells(schema)]
    kind = schema.field(0).type
    if len(schema) == 1 and pa.types.is_string(kind):
        return decoded_text
    if len(schema) == 1 and pa.types.is_binary(kind):
        return bytes
    if len(schema) == 1 and pa.types.is_integer(kind):
        return _decode_integer(kind)

    if len(schema) == 2 and None not in map(plain_type, schema.types):
        return _decode_two(schema.names, *decoders)

    def decode_key(data: bytes) -> Any:
        row, at = [], 0
        for decode in decoders:
            value, at = decode(data, at)
            row.append(value)
        if at != len(data):
            raise corrupt(f"a key of {len(data)} bytes, expected {at}")
        return to_user(tuple(row))

    return decode_key


def _last(kind: pa.DataType) -> Cell:
    """Encoder and decoder of the last column, in which text need not mark its own end."""
    if pa.types.is_string(kind):
        return str.encode, lambda data, at: (decoded_text(data[at:]), len(data))
    if pa.types.is_binary(kind):
        return bytes, lambda data, at: (data[at:], len(data))
    return ordered(kind)


def _encode_one(kind: pa.DataType, encode: Encode, codec: KeyCodec) -> Encode:
    normalize = codec.normalize

    def slowly(key: Any) -> bytes:
        return encode(normalize(key)[0])

    if pa.types.is_string(kind):

        def text(key: Any) -> bytes:
            if type(key) is str:
                try:
                    return key.encode()
                except UnicodeEncodeError:
                    pass
            return slowly(key)

        return text
    if pa.types.is_binary(kind):
        return lambda key: key if type(key) is bytes else slowly(key)
    if pa.types.is_integer(kind):
        pack, half = _unsigned(kind).pack, sign_bit(kind)

        def integer(key: Any) -> bytes:
            if type(key) is int:
                try:
                    return pack(key + half)
                except struct.error:
                    pass
            return slowly(key)

        return integer
    return slowly


def _plain_encoder(field: pa.Field, encode: Encode) -> Encode:
    """An encoder for values of a column's ``plain_type``, where the column is not the last or is not text."""
    kind = field.type
    if pa.types.is_string(kind):
        return lambda text: escaped(text.encode())
    if pa.types.is_binary(kind):
        return escaped
    if pa.types.is_integer(kind):
        pack, half = _unsigned(kind).pack, sign_bit(kind)
        return lambda value: pack(value + half)
    checked = canonical(ErrorPath(ErrorCode.WRONG_KEY, field.name, kind))
    return lambda value: encode(checked(value))


def _encode_two(names: list[str], types: tuple[Any, ...], encoders: list[Encode], slowly: Encode) -> Encode:
    (left_type, right_type), (left, right), by_name = types, encoders, itemgetter(*names)

    def encode(key: Any) -> bytes:
        try:
            a, b = key if type(key) is tuple else by_name(key) if type(key) is dict else _NO_ROW
            if type(a) is left_type and type(b) is right_type and len(key) == 2:
                return left(a) + right(b)
        except _NOT_PLAIN:
            pass
        return slowly(key)

    return encode


def _encode_many(names: list[str], types: tuple[Any, ...], encoders: list[Encode], slowly: Encode) -> Encode:
    by_name, width = itemgetter(*names), len(names)

    def encode(key: Any) -> bytes:
        try:
            row = key if type(key) is tuple else by_name(key) if type(key) is dict else _NO_ROW
            if tuple(map(type, row)) == types and len(key) == width:
                return b"".join([to(cell) for to, cell in zip(encoders, row, strict=True)])
        except _NOT_PLAIN:
            pass
        return slowly(key)

    return encode


def _decode_integer(kind: pa.DataType) -> Decode:
    form, half = _unsigned(kind), sign_bit(kind)
    unpack, size = form.unpack, form.size

    def decode(data: bytes) -> int:
        try:
            (stored,) = unpack(data)
        except struct.error:
            raise corrupt(f"a key of {len(data)} bytes, expected {size}") from None
        return int(stored) - half

    return decode


def _decode_two(names: list[str], left_cell: CellDecode, right_cell: CellDecode) -> Decode:
    left, right = names

    def decode(data: bytes) -> dict[str, Any]:
        first, at = left_cell(data, 0)
        second, at = right_cell(data, at)
        if at != len(data):
            raise corrupt(f"a key of {len(data)} bytes, expected {at}")
        return {left: first, right: second}

    return decode


def _unsigned(kind: pa.DataType) -> Struct:
    return Struct(f">{(as_number(kind).form or '').upper()}")

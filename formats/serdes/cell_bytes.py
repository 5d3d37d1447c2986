"""Single cells as bytes: every column type, nested ones included, from canonical Python values and back.

``ordered`` cells sort as unsigned bytes in the order of their values (nulls first) and mark their own end, so that
cells can follow each other in a key. ``compact`` cells are smaller and have no order. Types:
``formats/values/canonical``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from struct import Struct
from typing import Any

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.serdes.numbers import as_number, number_bytes
from statestore.formats.serdes.row_errors import corrupt

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes, int], tuple[Any, int]]  # (bytes, position) -> (value, position of the next cell)
Cell = tuple[Encode, Decode]

LENGTH = Struct("<I")
ZERO, ESCAPED, END = b"\x00", b"\x00\x01", b"\x00\x00"  # in ordered text 00 is written 00 01, and 00 00 ends the text


def compact(kind: pa.DataType) -> Cell:
    """Encoder and decoder of a compact cell that is not null."""
    types = pa.types
    if number_bytes(kind):
        return _compact_number(kind)
    if types.is_string(kind):
        return lambda text: _sized(text.encode()), lambda data, at: _text(*_unsized(data, at))
    if types.is_binary(kind):
        return _sized, _unsized
    if types.is_struct(kind):
        return _row([nullable_cell(compact(field.type)) for field in kind])
    if types.is_list(kind):
        return _many(nullable_cell(compact(kind.value_type)))
    if types.is_map(kind):
        return _many(_row([compact(kind.key_type), nullable_cell(compact(kind.item_type))]))
    raise UnsupportedError(ErrorCode.UNSUPPORTED_TYPE, f"type {kind} has no form as bytes")


def ordered(kind: pa.DataType) -> Cell:
    """Encoder and decoder of an ordered cell that is not null. No floats, no maps."""
    types = pa.types
    if number_bytes(kind) and not types.is_floating(kind):
        return _ordered_number(kind)
    if types.is_string(kind):
        return lambda text: escaped(text.encode()), lambda data, at: _text(*unescaped(data, at))
    if types.is_binary(kind):
        return escaped, unescaped
    if types.is_struct(kind):
        return _row([nullable_cell(ordered(field.type)) for field in kind])
    if types.is_list(kind):
        return _ordered_list(nullable_cell(ordered(kind.value_type)))
    raise UnsupportedError(ErrorCode.UNSUPPORTED_TYPE, f"type {kind} cannot be part of a key")


def nullable_cell(cell: Cell) -> Cell:
    """Encoder and decoder of a cell with a byte in front: 0 for null, 1 for a value."""
    encode, decode = cell

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if at >= len(data) or data[at] > 1:
            raise corrupt(f"byte {at} of {len(data)} is {data[at : at + 1].hex() or 'missing'}, expected 00 or 01")
        return decode(data, at + 1) if data[at] else (None, at + 1)

    return lambda value: b"\x00" if value is None else b"\x01" + encode(value), read


def escaped(data: bytes) -> bytes:
    """Encode text so that it marks its own end and still sorts like ``data``."""
    return data.replace(ZERO, ESCAPED) + END if ZERO in data else data + END


def unescaped(data: bytes, at: int) -> tuple[bytes, int]:
    """The text at ``at`` and the position of the next cell.

    Raises CorruptError if the text has no end or a 00 that is not escaped.
    """
    stop = data.find(END, at)
    if stop < 0:
        raise corrupt(f"text at byte {at} of {len(data)} has no end, expected 00 00")
    text = data[at:stop]
    if ZERO in text:
        if text.count(ZERO) != text.count(ESCAPED):
            raise corrupt(f"text at byte {at} has a 00 that no 01 follows")
        text = text.replace(ESCAPED, ZERO)
    return text, stop + 2


def decoded_text(data: bytes) -> str:
    """Decode UTF-8. Raises CorruptError for other bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise corrupt(f"text is not UTF-8 ({error})") from error


def whole(decode: Decode, data: bytes) -> Any:
    """Decode the cell that ``data`` holds from its first byte to its last."""
    value, at = decode(data, 0)
    if at != len(data):
        raise corrupt(f"a nested value of {len(data)} bytes ends at byte {at}")
    return value


def _compact_number(kind: pa.DataType) -> Cell:
    number = as_number(kind)
    to, back, size = number.to, number.back, number.size
    if number.form is None:

        def read(data: bytes, at: int) -> tuple[Any, int]:
            return back(int.from_bytes(_exactly(data, at, size), "little", signed=True)), at + size

        return lambda value: to(value).to_bytes(size, "little", signed=True), read
    form = Struct("<" + number.form)
    return lambda value: form.pack(to(value)), _packed(form, back)


def _ordered_number(kind: pa.DataType) -> Cell:
    number = as_number(kind)
    to, back, size = number.to, number.back, number.size
    half = sign_bit(kind)
    if number.form is None:

        def read(data: bytes, at: int) -> tuple[Any, int]:
            return back(int.from_bytes(_exactly(data, at, size), "big") - half), at + size

        return lambda value: (to(value) + half).to_bytes(size, "big"), read
    form = Struct(">" + number.form.upper())
    return lambda value: form.pack(to(value) + half), _packed(form, lambda stored: back(stored - half))


def sign_bit(kind: pa.DataType) -> int:
    """The number that is added to a signed number so that it sorts as an unsigned one."""
    return 0 if pa.types.is_boolean(kind) else 1 << (8 * number_bytes(kind) - 1)


def _packed(form: Struct, back: Callable[[Any], Any]) -> Decode:
    unpack_from, size = form.unpack_from, form.size

    def read(data: bytes, at: int) -> tuple[Any, int]:
        try:
            (stored,) = unpack_from(data, at)
        except struct.error as error:
            raise corrupt(f"{size} bytes expected at byte {at} of {len(data)}") from error
        return back(stored), at + size

    return read


def _exactly(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise corrupt(f"{size} bytes expected at byte {at} of {len(data)}")
    return data[at : at + size]


def _row(cells: list[Cell]) -> Cell:
    encoders, decoders = [encode for encode, _ in cells], [decode for _, decode in cells]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        members = []
        for decode in decoders:
            value, at = decode(data, at)
            members.append(value)
        return tuple(members), at

    return lambda row: b"".join([encode(cell) for encode, cell in zip(encoders, row, strict=True)]), read


def _many(cell: Cell) -> Cell:
    encode, decode = cell

    def read(data: bytes, at: int) -> tuple[Any, int]:
        count, at = _length(data, at)
        if count > len(data) - at:  # each member takes at least one byte
            raise corrupt(f"{count} members in {len(data) - at} bytes")
        members = []
        for _ in range(count):
            value, at = decode(data, at)
            members.append(value)
        return tuple(members), at

    return lambda many: LENGTH.pack(len(many)) + b"".join(map(encode, many)), read


def _ordered_list(cell: Cell) -> Cell:
    """Encode each member after a byte 1 and the end as a byte 0: a list sorts before longer lists that begin with
    it.
    """
    encode, decode = cell

    def read(data: bytes, at: int) -> tuple[Any, int]:
        members = []
        while at < len(data) and data[at] == 1:
            value, at = decode(data, at + 1)
            members.append(value)
        if at >= len(data) or data[at]:
            raise corrupt(f"byte {at} of {len(data)} should be 00 (the end of a list) or 01 (one more member)")
        return tuple(members), at + 1

    return lambda many: b"".join([b"\x01" + encode(member) for member in many]) + b"\x00", read


def _sized(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def _length(data: bytes, at: int) -> tuple[int, int]:
    return LENGTH.unpack(_exactly(data, at, LENGTH.size))[0], at + LENGTH.size


def _unsized(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _length(data, at)
    return _exactly(data, at, length), at + length


def _text(data: bytes, at: int) -> tuple[str, int]:
    return decoded_text(data), at

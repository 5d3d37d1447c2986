"""Single cells as bytes: every column type, nested ones included, from canonical Python values and back.

``ordered`` cells sort as unsigned bytes in the order of their values (nulls first) and end themselves, so that cells
can follow each other in a key; ``compact`` ones are smaller and need no order. Types: ``formats/canonical``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from struct import Struct
from typing import Any

import pyarrow as pa

from statestore.formats.errors import CorruptError, UnsupportedError

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes, int], tuple[Any, int]]  # (bytes, where) -> (value, where the next cell begins)

EPOCH_DAY = date(1970, 1, 1).toordinal()
MICROSECOND = timedelta(microseconds=1)
LENGTH = Struct("<I")
ESCAPED, END = b"\x00\x01", b"\x00\x00"  # in ordered text 00 is escaped and 00 00 ends it


def corrupt(found: str) -> CorruptError:
    return CorruptError("ROW_CORRUPT", f"a stored row can not be read: {found}; remove the hot tier, it is made anew")


def number_bytes(kind: pa.DataType) -> int:
    """Bytes of a type that is stored as one number, 0 for others."""
    types = pa.types
    if types.is_boolean(kind):
        return 1
    if types.is_signed_integer(kind) or types.is_floating(kind) or types.is_date32(kind):
        return int(kind.bit_width // 8)
    if types.is_timestamp(kind) or types.is_duration(kind):
        return 8
    return 16 if types.is_decimal128(kind) else 0


def as_number(kind: pa.DataType) -> tuple[Callable[[Any], int], Callable[[int], Any]] | None:
    """Functions from a canonical value to the integer that stands for it and back; None for types without one."""
    types = pa.types
    if types.is_boolean(kind) or types.is_signed_integer(kind):
        return int, bool if types.is_boolean(kind) else int
    if types.is_date32(kind):
        return lambda day: day.toordinal() - EPOCH_DAY, lambda days: date.fromordinal(days + EPOCH_DAY)
    if types.is_timestamp(kind):
        epoch = datetime(1970, 1, 1, tzinfo=UTC if kind.tz else None)
        return lambda time: (time - epoch) // MICROSECOND, lambda us: epoch + us * MICROSECOND
    if types.is_duration(kind):
        return lambda span: span // MICROSECOND, lambda us: us * MICROSECOND
    if types.is_decimal128(kind):
        scale, limit = kind.scale, 10**kind.precision
        return lambda value: _unscaled(value, scale), lambda unscaled: _scaled(unscaled, scale, limit)
    return None


def compact(kind: pa.DataType) -> tuple[Encode, Decode]:
    """Encoder and decoder of a cell that is not null."""
    types = pa.types
    if types.is_floating(kind):
        form = Struct("<f" if types.is_float32(kind) else "<d")
        return form.pack, _fixed(form.size, lambda data: form.unpack(data)[0])
    number = as_number(kind)
    if number is not None:
        to, back = number
        size = number_bytes(kind)
        return (
            lambda value: to(value).to_bytes(size, "little", signed=True),
            _fixed(size, lambda data: back(int.from_bytes(data, "little", signed=True))),
        )
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
    raise UnsupportedError("UNSUPPORTED_TYPE", f"type {kind} has no form as bytes")


def ordered(kind: pa.DataType) -> tuple[Encode, Decode]:
    """Encoder and decoder of a cell that is not null and sorts like its value. No floats, no maps."""
    types = pa.types
    number = as_number(kind)
    if number is not None:
        to, back = number
        size = number_bytes(kind)
        half = 1 << (8 * size - 1)
        if types.is_boolean(kind):
            half = 0
        return (
            lambda value: (to(value) + half).to_bytes(size, "big"),
            _fixed(size, lambda data: back(int.from_bytes(data, "big") - half)),
        )
    if types.is_string(kind):
        return lambda text: escaped(text.encode()), lambda data, at: _text(*unescaped(data, at))
    if types.is_binary(kind):
        return escaped, unescaped
    if types.is_struct(kind):
        return _row([nullable_cell(ordered(field.type)) for field in kind])
    if types.is_list(kind):
        return _ordered_list(nullable_cell(ordered(kind.value_type)))
    raise UnsupportedError("UNSUPPORTED_TYPE", f"type {kind} can not be part of a key")


def nullable_cell(cell: tuple[Encode, Decode]) -> tuple[Encode, Decode]:
    """A cell with a byte in front: 0 for null, 1 for a value."""
    encode, decode = cell

    def read(data: bytes, at: int) -> tuple[Any, int]:
        if at >= len(data) or data[at] > 1:
            raise corrupt(f"byte {at} should be 0 (null) or 1")
        return decode(data, at + 1) if data[at] else (None, at + 1)

    return lambda value: b"\x00" if value is None else b"\x01" + encode(value), read


def escaped(data: bytes) -> bytes:
    return data.replace(b"\x00", ESCAPED) + END


def unescaped(data: bytes, at: int) -> tuple[bytes, int]:
    stop = data.find(END, at)
    if stop < 0:
        raise corrupt(f"text at byte {at} has no end")
    return data[at:stop].replace(ESCAPED, b"\x00"), stop + len(END)


def decoded_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise corrupt(f"text is not UTF-8 ({error})") from error


def _row(cells: list[tuple[Encode, Decode]]) -> tuple[Encode, Decode]:
    encoders, decoders = [encode for encode, _ in cells], [decode for _, decode in cells]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        members = []
        for decode in decoders:
            value, at = decode(data, at)
            members.append(value)
        return tuple(members), at

    return lambda row: b"".join([encode(cell) for encode, cell in zip(encoders, row, strict=True)]), read


def _many(cell: tuple[Encode, Decode]) -> tuple[Encode, Decode]:
    encode, decode = cell

    def read(data: bytes, at: int) -> tuple[Any, int]:
        count, at = _length(data, at)
        if count > len(data):
            raise corrupt(f"{count} members in {len(data)} bytes")
        members = []
        for _ in range(count):
            value, at = decode(data, at)
            members.append(value)
        return tuple(members), at

    return lambda many: LENGTH.pack(len(many)) + b"".join(map(encode, many)), read


def _ordered_list(cell: tuple[Encode, Decode]) -> tuple[Encode, Decode]:
    """Each member after a byte 1, the end a byte 0: a list sorts before those that it begins."""
    encode, decode = cell

    def read(data: bytes, at: int) -> tuple[Any, int]:
        members = []
        while at < len(data) and data[at] == 1:
            value, at = decode(data, at + 1)
            members.append(value)
        if at >= len(data) or data[at]:
            raise corrupt(f"a list has no end at byte {at}")
        return tuple(members), at + 1

    return lambda many: b"".join([b"\x01" + encode(member) for member in many]) + b"\x00", read


def _fixed(size: int, decode: Callable[[bytes], Any]) -> Decode:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        stop = at + size
        if stop > len(data):
            raise corrupt(f"{size} bytes expected at byte {at} of {len(data)}")
        try:
            return decode(data[at:stop]), stop
        except (OverflowError, ValueError) as error:
            raise corrupt(str(error)) from error

    return read


def _sized(data: bytes) -> bytes:
    return LENGTH.pack(len(data)) + data


def _length(data: bytes, at: int) -> tuple[int, int]:
    if at + LENGTH.size > len(data):
        raise corrupt(f"a length expected at byte {at} of {len(data)}")
    return LENGTH.unpack_from(data, at)[0], at + LENGTH.size


def _unsized(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _length(data, at)
    if at + length > len(data):
        raise corrupt(f"{length} bytes expected at byte {at} of {len(data)}")
    return data[at : at + length], at + length


def _text(data: bytes, at: int) -> tuple[str, int]:
    return decoded_text(data), at


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)) or "0") * int(10 ** (exponent + scale))
    return -number if sign else number


def _scaled(unscaled: int, scale: int, limit: int) -> Decimal:
    if abs(unscaled) >= limit:
        raise corrupt(f"a decimal of {len(str(limit)) - 1} digits that is {unscaled}")
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

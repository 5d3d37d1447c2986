"""Bytes of a value of Kryo that takes the place of a stored one, and is of the same class.

An object is its class, a byte where it may be met again, and its content. Of numbers, texts, times and the like the
content is the end of the bytes, so it is changed there. It is changed only where the stored value is written in the
bytes that it has. Other objects stay as they are, or are refused.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from statestore.formats.bytes.field_reader import varint_bytes
from statestore.formats.flink.columns.kryo_tapes import Tape, forms_of, tape_of
from statestore.formats.flink.columns.program_writer import modified_utf8
from statestore.formats.flink.columns.written_rows import NoBytesError, decimal_bytes
from statestore.formats.flink.layouts.kryo_classes import CONSTANTS, enums_of
from statestore.formats.flink.serializers.declared import JSON
from statestore.formats.flink.serializers.flink_types import KryoOf
from statestore.formats.flink.serializers.type_names import shown
from statestore.formats.kernels import kryo_forms as forms
from statestore.formats.kernels.arrays import Ints

_MOST_ASCII_OLD, _MOST_ASCII = 63, 32
_SECOND, _DAY = 10**9, 86_400 * 10**9
_EPOCH = date(1970, 1, 1)
_FRONTS: Mapping[int, bytes] = {
    forms.INT: b"\2",
    forms.TEXT: b"\3\1",
    forms.FLOAT: b"\4",
    forms.BOOL: b"\5",
    forms.BYTE: b"\6",
    forms.CHAR: b"\7",
    forms.SHORT_FORM: b"\x08",
    forms.LONG: b"\x09",
    forms.DOUBLE: b"\x0a",
}
"""The classes that Kryo numbers itself, and the byte of a new text."""


def kryo_renewed(kind: KryoOf, old: bytes, before: Any, value: Any) -> bytes:
    """The bytes of a value in place of one that ``before`` is read from ``old``. Raises NoBytesError."""
    if kind.column in (None, JSON):
        raise NoBytesError(f"values of {shown(kind)} are shown as texts of JSON, which do not tell their classes")
    tape = tape_of(forms_of(kind), np.frombuffer(old, np.uint8), np.array([0]), np.array([len(old)]))
    for most_ascii in (_MOST_ASCII_OLD if kind.is_old else _MOST_ASCII, 0):  # some texts are never in ASCII
        stored, given = (kryo_content(kind, tape, each, most_ascii) for each in (before, value))
        if stored is not None and given is not None and old.endswith(stored):
            return old[: len(old) - len(stored)] + given
    raise NoBytesError(f"a value of {shown(kind)} cannot be changed in the class that it has")


def kryo_content(kind: KryoOf, tape: Tape, value: Any, most_ascii: int) -> bytes | None:
    """The content of a value of the class of the one in a tape, None where it is not written."""
    root = int(tape.roots[0])
    tag = _tag(int(tape.tag[root]))
    inner, _ = tape.children(tape.roots)
    writer = _Writer(kind.is_old, most_ascii)
    if tag == forms.LIST and isinstance(value, list):
        return writer.collection(_tags(tape.tag[inner]), value)
    if tag == forms.MAP and isinstance(value, list):
        return writer.entries(_tags(tape.tag[inner[0::2]]), _tags(tape.tag[inner[1::2]]), value)
    if tag == forms.CONSTANT:
        every = (*CONSTANTS, *(constants for _, constants in enums_of(kind.classes)))
        constants = every[int(tape.more[root])]
        return varint_bytes(constants.index(value) + 1) if value in constants else None
    return writer.leaf(tag, value)


def _tag(tag: int) -> int:
    return forms.TEXT if tag in (forms.UTF_TEXT, forms.EMPTY_TEXT) else tag


def _tags(tags: Ints) -> set[int]:
    return {_tag(int(tag)) for tag in tags} - {forms.NULL}


@dataclass(frozen=True)
class _Writer:
    """The means to write contents. ``is_old``: Kryo 2; ``most_ascii`` are most characters of a text in ASCII."""

    is_old: bool
    most_ascii: int

    def leaf(self, tag: int, value: Any) -> bytes | None:
        """The content of a value without others inside, None where it is not written."""
        write = (_OLD if self.is_old else _NEW).get(tag) or _LEAVES.get(tag)
        try:
            if tag == forms.TEXT:
                return kryo_text(value, self.most_ascii)
            return None if write is None or value is None else write(value)
        except (struct.error, ValueError, TypeError, ArithmeticError, AttributeError):
            return None

    def _object(self, tag: int, value: Any) -> bytes | None:
        """A value with its class, of those that Kryo numbers itself."""
        if value is None:
            return b"\0"
        octets = self.leaf(tag, value) if tag in _FRONTS else None
        return None if octets is None else _FRONTS[tag] + octets

    def collection(self, tags: set[int], value: Sequence[Any]) -> bytes | None:
        """The number of elements, and these, which are of one class."""
        if len(tags) != 1:
            return None
        (tag,) = tags
        if self.is_old:
            return _joined([varint_bytes(len(value)), *(self._object(tag, each) for each in value)])
        if not value:
            return varint_bytes(1)
        if tag not in _FRONTS or all(each is None for each in value):
            return None
        has_nulls = any(each is None for each in value)
        mark = b"\1" if has_nulls or tag == forms.TEXT else b""
        contents = [(b"\0" if each is None else _after(mark, self.leaf(tag, each))) for each in value]
        return _joined([_flagged(len(value) + 1), _FRONTS[tag][:1], bytes([has_nulls]), *contents])

    def entries(self, keys: set[int], items: set[int], value: Sequence[tuple[Any, Any]]) -> bytes | None:
        """The number of entries, and each key and value with its class."""
        if len(keys) != 1 or len(items) > 1:
            return None
        (of_key,), (of_item,) = keys, items or {forms.NULL}
        parts = [part for key, each in value for part in (self._object(of_key, key), self._object(of_item, each))]
        return _joined([varint_bytes(len(value) + (0 if self.is_old else 1)), *parts])


def _after(front: bytes, content: bytes | None) -> bytes | None:
    return None if content is None else front + content


def _joined(parts: Sequence[bytes | None]) -> bytes | None:
    found = [each for each in parts if each is not None]
    return b"".join(found) if len(found) == len(parts) else None


def _flagged(number: int) -> bytes:
    """A number of which the first byte has a flag, which is set, and six bits."""
    found, left = bytearray([number & 0x3F | 0x80 | (0x40 if number > 0x3F else 0)]), number >> 6
    if left:
        found += varint_bytes(left)
    return bytes(found)


def _zigzag(number: int, bits: int) -> int:
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError("a number out of range")
    return (number << 1 ^ number >> bits - 1) & (1 << bits) - 1


def _long(number: int) -> bytes:
    """Nine bytes at most, the last of which has eight bits."""
    left, found = _zigzag(number, 64), bytearray()
    while left > 0x7F and len(found) < 8:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def _unsigned_long(number: int) -> bytes:
    left, found = number & (1 << 64) - 1, bytearray()
    while left > 0x7F and len(found) < 8:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


def kryo_text(value: str, most_ascii: int) -> bytes:
    """A text: in ASCII with a mark in its last byte, or the number of its units of 16 bits and then these."""
    if 1 < len(value) <= most_ascii and value.isascii():
        octets = value.encode("ascii")
        return octets[:-1] + bytes([octets[-1] | 0x80])
    units = len(value.encode("utf-16-be", "surrogatepass")) // 2
    return _flagged(units + 1) + (modified_utf8(value) if "\0" not in value else _with_zeros(value))


def _with_zeros(value: str) -> bytes:
    """Kryo has a zero as one byte, and not as two as Java's UTF."""
    return modified_utf8(value).replace(b"\xc0\x80", b"\0")


def _big_integer(number: int) -> bytes:
    octets = decimal_bytes(number)
    return varint_bytes(len(octets) + 1) + octets


def _big_decimal(value: str) -> bytes:
    sign, digits, exponent = Decimal(value).as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)) or "0") * (-1 if sign else 1)
    return _big_integer(number) + varint_bytes(_zigzag(-exponent, 32))


def _halves(value: str) -> tuple[int, int]:
    most, least = struct.unpack(">qq", uuid.UUID(value).bytes)
    return most, least


def _moment(value: int) -> bytes:
    return _unsigned_long(value // _SECOND) + varint_bytes(value % _SECOND)


def _moment_of_fields(value: int) -> bytes:
    """The nanoseconds come first, by the order of the names of fields."""
    return varint_bytes(_zigzag(value % _SECOND, 32)) + _long(value // _SECOND)


def _millis(value: int) -> bytes:
    if value % 1000:
        raise ValueError("no whole milliseconds")
    return _unsigned_long(value // 1000)


def _date(value: int) -> bytes:
    found = _EPOCH + timedelta(days=value)
    return varint_bytes(found.year) + bytes([found.month, found.day])


def _date_of_fields(value: int) -> bytes:
    found = _EPOCH + timedelta(days=value)
    return struct.pack(">hh", found.day, found.month) + varint_bytes(_zigzag(found.year, 32))


def _time(value: int) -> bytes:
    """Parts behind the last one that is not zero are left out, which the bits of that one tell."""
    second = value // _SECOND
    parts = [second // 3600, second // 60 % 60, second % 60]
    if not 0 <= value < _DAY:
        raise ValueError("no time of a day")
    if value % _SECOND:
        return bytes(parts) + varint_bytes(value % _SECOND)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return bytes([*parts[:-1], ~parts[-1] & 0xFF])


def _time_of_fields(value: int) -> bytes:
    second = value // _SECOND
    if not 0 <= value < _DAY:
        raise ValueError("no time of a day")
    front = bytes([second // 3600, second // 60 % 60])
    return front + varint_bytes(_zigzag(value % _SECOND, 32)) + bytes([second % 60])


def _character(value: str, form: str) -> bytes:
    units = value.encode("utf-16-be", "surrogatepass")
    return struct.pack(form, *struct.unpack(">H", units))


_LEAVES: Mapping[int, Callable[[Any], bytes]] = {
    forms.INT: lambda value: varint_bytes(_zigzag(value, 32)),
    forms.LONG: _long,
    forms.BYTE: lambda value: struct.pack(">b", value),
    forms.BOOL: lambda value: struct.pack(">?", value),
    forms.BIG_INTEGER: lambda value: _big_integer(int(value)),
    forms.BIG_DECIMAL: _big_decimal,
    forms.MILLIS: _millis,
    forms.SQL_DATE: _millis,
    forms.SQL_TIME: _millis,
}
_OLD: Mapping[int, Callable[[Any], bytes]] = {
    forms.SHORT_FORM: lambda value: struct.pack(">h", value),
    forms.CHAR: lambda value: _character(value, ">H"),
    forms.FLOAT: lambda value: struct.pack(">f", value),
    forms.DOUBLE: lambda value: struct.pack(">d", value),
    forms.UUID: lambda value: b"".join(map(_long, _halves(value))),
    forms.TIMESTAMP: lambda value: _unsigned_long(value // 10**6) + varint_bytes(value % _SECOND),
    forms.INSTANT: _moment_of_fields,
    forms.DURATION: _moment_of_fields,
    forms.LOCAL_DATE: _date_of_fields,
    forms.LOCAL_TIME: _time_of_fields,
    forms.LOCAL_DATE_TIME: lambda value: b"\1" + _date_of_fields(value // _DAY) + b"\1" + _time_of_fields(value % _DAY),
}
_NEW: Mapping[int, Callable[[Any], bytes]] = {
    forms.SHORT_FORM: lambda value: struct.pack("<h", value),
    forms.CHAR: lambda value: _character(value, "<H"),
    forms.FLOAT: lambda value: struct.pack("<f", value),
    forms.DOUBLE: lambda value: struct.pack("<d", value),
    forms.UUID: lambda value: struct.pack("<qq", *_halves(value)),
    forms.TIMESTAMP: lambda value: _unsigned_long(value // _SECOND * 1000) + varint_bytes(value % _SECOND),
    forms.INSTANT: _moment,
    forms.DURATION: lambda value: struct.pack("<q", value // _SECOND) + varint_bytes(value % _SECOND),
    forms.LOCAL_DATE: _date,
    forms.LOCAL_TIME: _time,
    forms.LOCAL_DATE_TIME: lambda value: _date(value // _DAY) + _time(value % _DAY),
}
"""The contents that Kryo 5 has in other bytes than Kryo 2, ``_OLD``."""

"""Bytes and hash codes of keys by which users look up: the inverse of decoding, for types whose bytes are known.

A value is what its column's ``to_pylist`` gives; a struct is a dictionary, or a sequence of its fields in order. Where
there are no bytes or no hash code, rows are found by comparing the decoded columns instead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from statestore.formats.bytes.field_reader import varint_bytes
from statestore.formats.flink.layouts.type_layouts import arrow_type, logical_type
from statestore.formats.flink.serializers.flink_types import (
    Basic,
    EnumOf,
    FlinkType,
    Logical,
    PojoOf,
    RowDataOf,
    TupleOf,
)

_INTEGERS = {"long": 8, "int": 4, "short": 2, "byte": 1}
_FLOATS = {"float": (">f", ">i"), "double": (">d", ">q")}
_NANS = {"float": bytes.fromhex("7fc00000"), "double": bytes.fromhex("7ff8000000000000")}
_TRUE, _FALSE = 1231, 1237
_MASK = 0xFFFFFFFF
_PLAIN_POJO = b"\2"
_TUPLE = "org.apache.flink.api.java.tuple.Tuple"


def encode(kind: FlinkType, value: Any) -> bytes | None:
    """The bytes that Flink's serializer writes for a value.

    None where they are not known: for other types, for values that the type does not have, and for a POJO whose
    subclasses may hold the same fields. Zeros of both signs have bytes of their own, and NaN has one form, which
    ``DataOutputStream.writeDouble`` makes of all.
    """
    if isinstance(kind, Basic):
        return _basic(kind.name, value)
    if isinstance(kind, EnumOf):
        if value not in kind.constants:
            return None
        number = kind.constants.index(value)
        return (kind.ids[number] if kind.ids else number).to_bytes(4, "big", signed=True)
    if isinstance(kind, RowDataOf):
        whole = row_bytes(kind.row, value)
        return None if whole is None else len(whole).to_bytes(4, "big") + whole
    if isinstance(kind, TupleOf):
        cells = _cells(kind, len(kind.fields), value)
        return None if cells is None else _joined(map(encode, kind.fields, cells))
    if isinstance(kind, PojoOf) and not kind.registered and not kind.unregistered:
        cells = _cells(kind, len(kind.fields), value)
        if cells is None:
            return None
        return _joined([_PLAIN_POJO, *(_field(each, cell) for (_, each), cell in zip(kind.fields, cells, strict=True))])
    return None


def java_hash(kind: FlinkType, value: Any) -> int | None:
    """Java's ``hashCode`` of a key, as the bits of an int, where the key's class is certain to be one of the JDK's or
    a tuple of Flink; None for all other types: their classes define it.

    ``kind`` is the type in the file, without what a user declared for it: bytes of a serializer not of Flink may be
    declared a long, but their class is the user's. A row of Flink SQL may be of several classes, each with its own.
    """
    if isinstance(kind, TupleOf):
        if not is_tuple_of_flink(kind):
            return None
        cells = _cells(kind, len(kind.fields), value)
        if cells is None:
            return None
        code = 0
        for each, cell in zip(kind.fields, cells, strict=True):
            one = java_hash(each, cell)
            if one is None:
                return None
            code = code * 31 + one & _MASK
        return code
    if not isinstance(kind, Basic) or kind.class_name:
        return None
    raw = encode(kind, value)
    if raw is None:
        return None
    if kind.name == "string":
        return _text_hash(value)
    if kind.name == "boolean":
        return _TRUE if value else _FALSE
    if kind.name in ("long", "double"):
        word = int.from_bytes(raw, "big")
        return (word ^ word >> 32) & _MASK
    if kind.name in ("int", "short", "byte", "float"):
        return int.from_bytes(raw, "big", signed=True) & _MASK
    return int.from_bytes(raw, "big") if kind.name == "char" else None


def is_tuple_of_flink(kind: TupleOf) -> bool:
    """Return whether a tuple is one of Flink's, whose hash code is that of its fields."""
    return kind.class_name == f"{_TUPLE}{len(kind.fields)}"


def _text_hash(text: str) -> int:
    code = 0
    for unit in _units(text):
        code = code * 31 + unit & _MASK
    return code


def _units(text: str) -> list[int]:
    units: list[int] = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2").tolist()
    return units


def _basic(name: str, value: Any) -> bytes | None:
    if name in _INTEGERS:
        width = _INTEGERS[name]
        limit = 1 << (8 * width - 1)
        fits = isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
        return int(value).to_bytes(width, "big", signed=True) if fits else None
    if name == "boolean":
        return (b"\1" if value else b"\0") if isinstance(value, bool) else None
    if name in _FLOATS:
        return _number(name, value)
    if name == "char":
        units = _units(value) if isinstance(value, str) else []
        return units[0].to_bytes(2, "big") if len(units) == 1 else None
    if name not in ("string", "string_value") or not isinstance(value, str):
        return None
    units = _units(value)
    size = len(units) + 1 if name == "string" else len(units)
    return b"".join(map(varint_bytes, [size, *units]))


def _number(name: str, value: Any) -> bytes | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    if value != value:
        return _NANS[name]
    form = _FLOATS[name][0]
    try:
        raw = struct.pack(form, value)
    except OverflowError:
        return None
    return raw if struct.unpack(form, raw)[0] == value else None


def _field(kind: FlinkType, value: Any) -> bytes | None:
    """A field of a POJO: bool null | value unless null."""
    if value is None:
        return b"\1"
    raw = encode(kind, value)
    return None if raw is None else b"\0" + raw


def _cells(kind: FlinkType, count: int, value: Any) -> list[Any] | None:
    """The fields of a value in order; None if it has others."""
    if isinstance(value, Mapping):
        names = [field.name for field in arrow_type(kind)]
        return [value[name] for name in names] if set(value) == set(names) and len(names) == count else None
    return list(value) if isinstance(value, (tuple, list)) and len(value) == count else None


def _joined(parts: Iterable[bytes | None]) -> bytes | None:
    found = b""
    for part in parts:
        if part is None:
            return None
        found += part
    return found


# Binary rows of Flink SQL written for one key (``BinaryRowWriter``)


_KIND_BITS = 8
_SHORT = 7
_ROW_INTEGERS = {"TINYINT": 1, "SMALLINT": 2, "INTEGER": 4, "BIGINT": 8}


def row_bytes(kind: Logical, value: Any) -> bytes | None:
    """The bytes of a row of integers, booleans and texts; None for other types and values.

    ``value`` is a dictionary, or a sequence of the fields in order.
    """
    names = [field.name for field in logical_type(kind)]
    if isinstance(value, Mapping):
        value = [value[name] for name in names] if set(value) == set(names) else None
    if not isinstance(value, (tuple, list)) or not len(value) == len(names) == len(kind.children):
        return None
    width = (len(names) + _KIND_BITS + 63) // 64 * 8
    header, slots, behind = bytearray(width), b"", b""
    for number, (child, cell) in enumerate(zip(kind.children, value, strict=True)):
        if cell is None:
            bit = number + _KIND_BITS
            header[bit >> 3] |= 1 << (bit & 7)
            slots += bytes(8)
            continue
        raw = _slot(child, cell)
        if raw is None:
            return None
        if len(raw) <= _SHORT and child.root in ("STRING", "BYTES"):
            slots += raw.ljust(_SHORT, b"\0") + bytes([0x80 | len(raw)])
        elif child.root in ("STRING", "BYTES"):
            slots += struct.pack("<q", width + 8 * len(names) + len(behind) << 32 | len(raw))
            behind += raw + bytes(-len(raw) % 8)
        else:
            slots += raw.ljust(8, b"\0")
    return bytes(header) + slots + behind


def _slot(kind: Logical, value: Any) -> bytes | None:
    if kind.root in _ROW_INTEGERS and isinstance(value, int) and not isinstance(value, bool):
        width = _ROW_INTEGERS[kind.root]
        limit = 1 << (8 * width - 1)
        return value.to_bytes(width, "little", signed=True) if -limit <= value < limit else None
    if kind.root == "BOOLEAN" and isinstance(value, bool):
        return b"\1" if value else b"\0"
    if kind.root == "STRING" and isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            return None
    return value if kind.root == "BYTES" and isinstance(value, bytes) else None

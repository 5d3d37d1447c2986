"""Bytes of values of Avro, as Flink's ``DataOutputEncoder`` writes them: the inverse of their shapes.

A value is what `plain_values` makes of its column (`statestore.formats.flink.layouts.avro_layouts` has the shapes).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from statestore.formats.flink.columns.written_rows import NoBytesError, decimal_bytes, unscaled
from statestore.formats.flink.layouts.avro_layouts import avro_layout
from statestore.formats.flink.layouts.shapes import (
    Again,
    Branches,
    Fixed,
    Nulls,
    Repeated,
    Routines,
    Shape,
    Sized,
    Struct,
)
from statestore.formats.flink.serializers.flink_types import AvroOf, Logical

_FLOATS = {4: ">f", 8: ">d"}


def avro_bytes(kind: AvroOf, value: Any) -> bytes:
    """The bytes of a value of a schema. Raises NoBytesError for values that the schema does not have."""
    return _bytes(avro_layout(kind.schema, kind.class_name), value)


def _bytes(shape: Shape, value: Any) -> bytes:
    if isinstance(shape, Nulls) or (isinstance(shape, Struct) and not shape.parts):
        if value is not None and shape.column in (None, pa.null()):
            raise _no_value(shape, value)
        return b""
    if isinstance(shape, Routines):
        return _bytes(shape.value, value)
    if isinstance(shape, Branches):
        return _union(shape, value)
    if value is None:
        raise NoBytesError(f"null is no value of Avro's {shape.column}")
    if isinstance(shape, Fixed):
        return _fixed(shape, value)
    if isinstance(shape, Sized):
        octets = _sized(shape, value)
        return len(octets).to_bytes(4, "big") + octets
    if isinstance(shape, Repeated):
        return _blocks(shape, value)
    if isinstance(shape, Struct):
        return b"".join(map(_bytes, shape.parts, _members(shape, value)))
    if isinstance(shape, Again) and isinstance(value, bytes):
        return value
    raise _no_value(shape, value)


def _no_value(shape: Shape, value: Any) -> NoBytesError:
    return NoBytesError(f"{value!r:.80} is no value of Avro's {shape.column}")


def _fixed(shape: Fixed, value: Any) -> bytes:
    try:
        if shape.form == "boolean" and isinstance(value, bool):
            return bytes([value])
        if shape.form == "int":
            return int(value).to_bytes(shape.width, "big", signed=True)
        if shape.form == "float":
            return struct.pack(_FLOATS[shape.width], value)
        if shape.form == "enum":
            return shape.names.index(value).to_bytes(shape.width, "big")
        if shape.form == "big decimal":
            return _unscaled(shape, value).to_bytes(shape.width, "big", signed=True)
        if shape.form == "bytes" and isinstance(value, bytes) and len(value) == shape.width:
            return value
    except (ValueError, TypeError, OverflowError, struct.error):
        pass
    raise _no_value(shape, value)


def _sized(shape: Sized, value: Any) -> bytes:
    if shape.form == "utf-8" and isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise _no_value(shape, value) from None
    if shape.form == "bytes" and isinstance(value, bytes):
        return value
    if shape.form == "decimal":
        return decimal_bytes(_unscaled(shape, value))
    raise _no_value(shape, value)


def _unscaled(shape: Shape, value: Any) -> int:
    column = shape.column
    assert isinstance(column, pa.Decimal128Type)
    return unscaled(Logical("DECIMAL", column.precision, column.scale), value if isinstance(value, Decimal) else None)


def _blocks(shape: Repeated, value: Any) -> bytes:
    """One block of all entries, as Flink's encoder gets them."""
    if not isinstance(value, (list, tuple)):
        raise _no_value(shape, value)
    entries: Sequence[Any] = value
    if not entries:
        return b"\0"
    parts = [_count(len(entries))]
    if pa.types.is_map(shape.column):
        assert isinstance(shape.element, Struct)
        key, item = shape.element.parts
        parts += [_bytes(key, each) + _bytes(item, other) for each, other in entries]
    else:
        parts += [_bytes(shape.element, each) for each in entries]
    return b"".join([*parts, b"\0"])


def _count(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _members(shape: Struct, value: Any) -> list[Any]:
    """The value of each part; None for one that has no column."""
    if not isinstance(value, Mapping):
        raise _no_value(shape, value)
    names = iter([field.name for field in shape.column or ()])
    return [None if part.column is None else value[next(names)] for part in shape.parts]


def _union(shape: Branches, value: Any) -> bytes:
    """The number of the branch | the value of that branch."""
    if value is None:
        if None not in shape.cases:
            raise NoBytesError(f"null is no value of Avro's union {shape.column}")
        return shape.cases.index(None).to_bytes(4, "big")
    known = [number for number, case in enumerate(shape.cases) if case is not None]
    if not shape.fields:
        (number,) = known
        return _branch(shape, number, value)
    if not isinstance(value, Mapping):
        raise _no_value(shape, value)
    given = [number for number, each in zip(known, value.values(), strict=True) if each is not None]
    if len(given) != 1:
        raise NoBytesError(f"{value!r:.80} has values of {len(given)} branches of a union; give one")
    return _branch(shape, given[0], list(value.values())[known.index(given[0])])


def _branch(shape: Branches, number: int, value: Any) -> bytes:
    case = shape.cases[number]
    assert case is not None
    return number.to_bytes(4, "big") + _bytes(case, value)

"""Spark's UnsafeRow, written value by value: a plain model to check the reader and writer of whole columns with."""

from __future__ import annotations

import struct
from decimal import Context, Decimal
from typing import Any

from statestore.formats.spark.checkpoint.spark_schema import (
    BINARY,
    CALENDAR_INTERVAL,
    SPATIAL,
    STRING,
    VARIANT,
    VOID,
    ArrayOf,
    DecimalOf,
    MapOf,
    Plain,
    SparkType,
    StructOf,
)

_FORMS = {"<u1": "<B", "<i1": "<b", "<i2": "<h", "<i4": "<i", "<i8": "<q", "<f4": "<f", "<f8": "<d"}


def row_bytes(values: tuple[Any, ...], schema: StructOf) -> bytes:
    """An UnsafeRow. Values are as in ``value_bytes``, None for null."""
    count = len(schema.fields)
    fixed = 8 * ((count + 63) // 64) + 8 * count
    return _container(b"", values, [field.type for field in schema.fields], 8, fixed, in_row=True)


def array_bytes(values: list[Any], kind: SparkType) -> bytes:
    """An UnsafeArrayData."""
    width = _width(kind)
    head = struct.pack("<q", len(values))
    fixed = 8 + 8 * ((len(values) + 63) // 64) + _padded(len(values) * width)
    return _container(head, values, [kind] * len(values), width, fixed, in_row=False)


def _container(head: bytes, values: Any, kinds: list[SparkType], width: int, fixed: int, *, in_row: bool) -> bytes:
    nulls = sum(1 << number for number, value in enumerate(values) if value is None)
    bitmap = nulls.to_bytes(8 * ((len(values) + 63) // 64), "little")
    slots, tail = b"", b""
    for value, kind in zip(values, kinds, strict=True):
        # Wide decimals and intervals of a row have 16 bytes, also when they are null; an interval keeps its size, too.
        keeps = in_row and (kind is CALENDAR_INTERVAL or (isinstance(kind, DecimalOf) and kind.precision > 18))
        if value is None:
            size = 16 if kind is CALENDAR_INTERVAL else 0
            slots += struct.pack("<II", size, fixed + len(tail)) if keeps else bytes(width)
            tail += bytes(16) if keeps else b""
        elif isinstance(kind, Plain) and kind.form:
            slots += struct.pack(_FORMS[kind.form], value).ljust(width, b"\0")
        elif isinstance(kind, DecimalOf) and kind.precision <= 18:
            slots += struct.pack("<q", _unscaled(value, kind))
        else:
            data = value_bytes(value, kind)
            slots += struct.pack("<II", len(data), fixed + len(tail))
            tail += data.ljust(16 if keeps else _padded(len(data)), b"\0")
    return (head + bitmap + slots).ljust(fixed, b"\0") + tail


def value_bytes(value: Any, kind: SparkType) -> bytes:
    """The bytes behind the slots."""
    if isinstance(kind, Plain) and kind.name == STRING.name:  # whatever it is declared as
        return bytes(value.encode())
    if kind is BINARY:
        return bytes(value)
    if kind is CALENDAR_INTERVAL:
        return struct.pack("<iiq", *value)
    if kind is VARIANT:
        return struct.pack("<i", len(value[0])) + bytes(value[0]) + bytes(value[1])
    if kind is SPATIAL:
        return struct.pack("<i", value[0]) + bytes(value[1])
    if isinstance(kind, DecimalOf):
        unscaled = _unscaled(value, kind)
        return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, signed=True)
    if isinstance(kind, ArrayOf):
        return array_bytes(value, kind.element)
    if isinstance(kind, MapOf):
        keys = array_bytes([key for key, _ in value], kind.key)
        return struct.pack("<q", len(keys)) + keys + array_bytes([found for _, found in value], kind.value)
    assert isinstance(kind, StructOf), kind
    return row_bytes(value, kind)


def _unscaled(value: Decimal, kind: DecimalOf) -> int:
    return int(value.scaleb(kind.scale, Context(prec=60)))


def _width(kind: SparkType) -> int:
    return struct.calcsize(_FORMS[kind.form]) if isinstance(kind, Plain) and kind.form and kind is not VOID else 8


def _padded(size: int) -> int:
    return (size + 7) // 8 * 8

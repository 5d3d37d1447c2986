"""Values of Spark's types in Avro, as bytes by hand."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa

from statestore.formats.spark.checkpoint.spark_schema import StructOf, parse_schema


def schema_of(**kinds: Any) -> StructOf:
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    return parse_schema(json.dumps({"type": "struct", "fields": fields}))


def zigzag(number: int) -> bytes:
    left, found = (number << 1) ^ (number >> 63), bytearray()
    left &= 2**64 - 1
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*found, left])


def text(value: str) -> bytes:
    return zigzag(len(value.encode())) + value.encode()


def present(value: bytes) -> bytes:
    return zigzag(1) + value


NULL = zigzag(0)
POINT = {"type": "struct", "fields": [{"name": "x", "type": "integer"}]}
LONGS = {"type": "array", "elementType": "long", "containsNull": True}
TEXTS = {"type": "array", "elementType": "string", "containsNull": True}
POINTS = {"type": "array", "elementType": POINT, "containsNull": False}
NESTED = {"type": "array", "elementType": LONGS, "containsNull": True}
COUNTS = {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}
NAMES = {"type": "map", "keyType": "string", "valueType": TEXTS, "valueContainsNull": True}
AVRO: list[tuple[Any, bytes, Any]] = [
    ("boolean", b"\1", True),
    ("short", zigzag(-300), -300),
    ("long", zigzag(-(2**63)), -(2**63)),
    ("float", struct.pack("<f", 0.5), 0.5),
    ("double", struct.pack("<d", -2.5), -2.5),
    ("string", text("é"), "é"),
    ("binary", b"\4\0\xff", b"\0\xff"),
    ("decimal(4,2)", struct.pack(">h", -125), pa.scalar(-1.25).cast(pa.decimal128(4, 2)).as_py()),
    (POINT, present(zigzag(7)), {"x": 7}),
    (POINT, NULL, {"x": None}),
    (LONGS, zigzag(2) + zigzag(1) + zigzag(-1) + zigzag(1) + zigzag(9) + zigzag(0), [1, -1, 9]),
    (LONGS, zigzag(-1) + zigzag(1) + zigzag(5) + zigzag(0), [5]),
    (TEXTS, zigzag(0), []),
    (TEXTS, zigzag(2) + text("a") + text("") + zigzag(0), ["a", ""]),
    # Spark calls elements nullable only where they are nested.
    (POINTS, zigzag(2) + present(present(zigzag(7))) + NULL + zigzag(0), [{"x": 7}, None]),
    (NESTED, zigzag(2) + present(zigzag(1) + zigzag(5) + zigzag(0)) + NULL + zigzag(0), [[5], None]),
    (
        COUNTS,
        zigzag(-2) + zigzag(5) + text("a") + zigzag(-1) + text("b") + zigzag(9) + zigzag(0),
        [("a", -1), ("b", 9)],
    ),
    (
        NAMES,
        zigzag(1) + text("") + NULL + zigzag(1) + text("c") + present(zigzag(0)) + zigzag(0),
        [("", None), ("c", [])],
    ),
]

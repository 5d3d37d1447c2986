"""Avro values in the encoding of Flink's DataOutputEncoder: full widths, int32 lengths, blocks that end with a 0."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.columns.arrow_types import arrow_type
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.serializers.flink_types import AvroOf


def int32(number: int) -> bytes:
    return number.to_bytes(4, "big", signed=True)


def int64(number: int) -> bytes:
    return number.to_bytes(8, "big", signed=True)


def text(value: str) -> bytes:
    return int32(len(value.encode())) + value.encode()


def avro(schema: Any) -> AvroOf:
    return AvroOf("a.Record", json.dumps(schema))


def read(schema: Any, *rows: bytes) -> list[Any]:
    (column,) = decode_cells([avro(schema)], cells_of(pa.array(rows, pa.binary())), [True], "state")
    assert column is not None
    column.validate(full=True)
    found: list[Any] = column.to_pylist()
    return found


def test_arrays_and_maps_may_have_several_blocks() -> None:
    longs = {"type": "array", "items": "long"}
    assert read(longs, b"\2" + int64(1) + int64(2) + b"\1" + int64(3) + b"\0", b"\0") == [[1, 2, 3], []]
    strings = {"type": "map", "values": "string"}
    assert read(strings, b"\1" + text("k") + text("é") + b"\0") == [[("k", "é")]]


def test_a_long_block_has_a_count_of_several_bytes() -> None:
    row = b"\xac\x02" + b"".join(map(int32, range(300))) + b"\0"
    assert read({"type": "array", "items": "int"}, row) == [list(range(300))]


def test_a_union_with_null_is_nullable_and_others_are_structs() -> None:
    assert read(["string", "null"], int32(1), int32(0) + text("a")) == [None, "a"]
    several = ["null", "int", {"type": "enum", "name": "a.b.Side", "symbols": ["LEFT", "RIGHT"]}]
    rows = [int32(0), int32(1) + int32(-5), int32(2) + int32(1)]
    assert read(several, *rows) == [None, {"int": -5, "Side": None}, {"int": None, "Side": "RIGHT"}]


def test_named_types_are_used_again_and_null_fields_stay() -> None:
    point = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "float"}]}
    fields = [{"name": "a", "type": point}, {"name": "none", "type": "null"}, {"name": "b", "type": "s.Point"}]
    schema = {"type": "record", "name": "R", "namespace": "s", "fields": fields}
    half, two = bytes.fromhex("3f000000"), bytes.fromhex("40000000")
    assert read(schema, half + two) == [{"a": {"x": 0.5}, "none": None, "b": {"x": 2.0}}]


@pytest.mark.parametrize(
    ("base", "logical", "column"),
    [
        ("int", "date", pa.date32()),
        ("int", "time-millis", pa.time32("ms")),
        ("long", "time-micros", pa.time64("us")),
        ("long", "timestamp-millis", pa.timestamp("ms", "UTC")),
        ("long", "timestamp-micros", pa.timestamp("us", "UTC")),
        ("long", "local-timestamp-nanos", pa.timestamp("ns")),
        ("long", "unheard-of", pa.int64()),
    ],
)
def test_logical_types(base: str, logical: str, column: pa.DataType) -> None:
    schema = {"type": base, "logicalType": logical}
    row = int32(5) if base == "int" else int64(5)
    assert arrow_type(avro(schema)) == column
    (found,) = decode_cells([avro(schema)], cells_of(pa.array([row])), [True], "state")
    assert found is not None and found.equals(pa.array([5], column))


def test_decimals_and_fixed() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    assert read(decimal, int32(2) + b"\xfb\x2e") == [Decimal("-12.34")]
    fixed = {"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 2}
    assert read(fixed, b"\xff\xfb\x2e") == [Decimal("-12.34")]
    assert read({"type": "fixed", "name": "F", "size": 2}, b"ab") == [b"ab"]
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        read(decimal, int32(3) + b"\x7f\xff\xff")


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        ("string", int32(2) + b"\xff\xff"),
        ("string", int32(-1)),
        (["null", "int"], int32(2)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, int32(1)),
        ({"type": "array", "items": "null"}, b"\xff\xff\xff\xff\x07" + b"\0"),
        ({"type": "array", "items": "long"}, b"\xff\xff\xff\xff\x07" + b"\0"),
        ({"type": "int", "logicalType": "time-millis"}, int32(86_400_000)),
        ("int", int32(1) + b"\0"),
    ],
)
def test_other_bytes_are_refused(schema: Any, row: bytes) -> None:
    with pytest.raises(CorruptError, match="FLINK_ROW"):
        read(schema, row)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "R", "fields": [{"name": "x", "type": "Unknown"}]},
        {"type": "fixed", "name": "F", "size": -1},
        ["null"],
        "null",
        5,
    ],
)
def test_schemas_without_a_column_are_refused_by_the_class(schema: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"FLINK_UNSUPPORTED.*a\.Record"):
        arrow_type(avro(schema))
    with pytest.raises(UnsupportedError, match=r"FLINK_UNSUPPORTED.*a\.Record"):
        arrow_type(AvroOf("a.Record", "{"))

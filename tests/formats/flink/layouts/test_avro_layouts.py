"""Avro values in the encoding of Flink's DataOutputEncoder: full widths, int32 lengths, blocks that end with a 0."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.flink.value_model import decoded, in_each_way, int32, int64
from support.properties import few_or_many

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.columns import decoding
from statestore.formats.flink.columns.decoding import decode_cells, decode_records
from statestore.formats.flink.layouts.type_layouts import arrow_type
from statestore.formats.flink.serializers.flink_types import AvroOf, Basic, ListOf


def text(value: str) -> bytes:
    return int32(len(value.encode())) + value.encode()


def read(schema: Any, *rows: bytes) -> list[Any]:
    return decoded(avro(schema), *rows)


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


CHAIN = {
    "type": "record",
    "name": "Chain",
    "fields": [{"name": "n", "type": "long"}, {"name": "next", "type": ["null", "Chain"]}],
}
TREE = {
    "type": "record",
    "name": "a.Tree",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "kids", "type": {"type": "array", "items": "Tree"}},
        {"name": "named", "type": {"type": "map", "values": ["null", "a.Tree"]}},
        {"name": "other", "type": ["null", {**CHAIN, "namespace": "a"}, "long"]},
    ],
}
FOREST = {
    "type": "record",
    "name": "Forest",
    "fields": [{"name": "first", "type": TREE}, {"name": "chain", "type": "a.Chain"}, {"name": "end", "type": "long"}],
}
Tree = tuple[int, list[Any], dict[str, Any], Any]


def avro(schema: Any) -> AvroOf:
    return AvroOf("a.Record", json.dumps(schema))


each_way = pytest.fixture(in_each_way, params=[False, True], ids=["plain", "compiled"])


def chain(*numbers: int) -> bytes:
    """The bytes of a chain."""
    rest = int32(1) + chain(*numbers[1:]) if len(numbers) > 1 else int32(0)
    return int64(numbers[0]) + rest


def tree(found: Tree) -> bytes:
    """The bytes of a tree, of which the children are in blocks of two."""
    n, kids, named, other = found
    blocks = [kids[at : at + 2] for at in range(0, len(kids), 2)]
    octets = int64(n) + b"".join(bytes([len(block)]) + b"".join(map(tree, block)) for block in blocks) + b"\0"
    for key, each in named.items():
        octets += b"\1" + int32(len(key.encode())) + key.encode()
        octets += int32(0) if each is None else int32(1) + tree(each)
    octets += b"\0"
    if other is None:
        return octets + int32(0)
    return octets + (int32(1) + chain(*other) if isinstance(other, list) else int32(2) + int64(other))


def shown(found: Tree) -> dict[str, Any]:
    """The cell of a tree."""
    n, kids, named, other = found
    whole = None
    if isinstance(other, list):
        whole = {"Chain": {"n": other[0], "next": chain(*other[1:]) if other[1:] else None}, "long": None}
    elif other is not None:
        whole = {"Chain": None, "long": other}
    pairs = [(key, None if each is None else tree(each)) for key, each in named.items()]
    return {"n": n, "kids": list(map(tree, kids)), "named": pairs, "other": whole}


LONGS = st.integers(-(2**63), 2**63 - 1)
OTHERS = st.none() | LONGS | st.lists(LONGS, min_size=1, max_size=4)
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.tuples(LONGS, st.just([]), st.just({}), OTHERS),
    lambda inner: st.tuples(
        LONGS,
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=3), st.none() | inner, max_size=2),
        OTHERS,
    ),
    max_leaves=6,
)


@few_or_many(
    12,
    80,
    st.lists(st.tuples(TREES, st.lists(LONGS, min_size=1, max_size=3), LONGS), min_size=1, max_size=3),
    st.data(),
)
def test_records_that_contain_themselves_are_stepped_over(
    rows: list[tuple[Any, Any, Any]], data: st.DataObject
) -> None:
    cells = [tree(first) + chain(*links) + int64(end) for first, links, end in rows]
    expected = [
        {
            "first": shown(first),
            "chain": {"n": links[0], "next": chain(*links[1:]) if links[1:] else None},
            "end": end,
        }
        for first, links, end in rows
    ]
    with mock.patch.object(decoding, "_is_compiled", lambda stored: data.draw(st.booleans(), "compiled")):
        (column,) = decode_cells([avro(FOREST)], cells_of(pa.array(cells, pa.binary())), [True], "state")
        assert column is not None
        column.validate(full=True)
        assert column.to_pylist() == expected
        whole = np.frombuffer(b"".join(cells), np.uint8)
        for wanted in (True, False):
            found = decode_records([avro(FOREST)], whole, 0, len(whole), len(rows), [wanted], "state", True, True)
            assert found.starts is not None
            assert np.diff([*found.starts, found.at]).tolist() == list(map(len, cells))
            assert found.columns == [column if wanted else None]
        cut = data.draw(st.integers(0, len(whole) - 1), "cut")
        less = decode_records([avro(FOREST)], whole, 0, cut, len(rows), [True], "state", False)
        assert less.at == sum(map(len, cells[: less.rows])) <= cut


def test_bytes_of_inner_records_say_whose_they_are() -> None:
    kind = arrow_type(avro(CHAIN))
    assert kind == pa.struct([("n", pa.int64()), ("next", pa.binary())])
    assert kind.field("next").metadata[b"statestore.serializer"] == b"Avro record Chain, which contains itself"


def test_two_schemas_may_have_a_record_of_one_name(each_way: bool) -> None:
    other = {**CHAIN, "fields": [{"name": "b", "type": "boolean"}, CHAIN["fields"][1]]}
    row = chain(1, 2) + b"\1" + int32(1) + b"\0" + int32(0) + int32(1) + chain(3, 4, 5)
    kinds = [avro(CHAIN), avro(other), ListOf(avro(CHAIN))]
    found = decode_cells(kinds, cells_of(pa.array([row])), [True] * 3, "state")
    assert [column and column.to_pylist() for column in found] == [
        [{"n": 1, "next": chain(2)}],
        [{"b": True, "next": b"\0" + int32(0)}],
        [[{"n": 3, "next": chain(4, 5)}]],
    ]


def test_the_depth_of_records_is_bounded(each_way: bool) -> None:
    def nested(depth: int) -> bytes:
        return (int64(7) + int32(1)) * depth + int64(7) + int32(0)

    kinds = [avro(CHAIN), Basic("long")]
    deep = cells_of(pa.array([nested(4096) + int64(5)]))
    assert decode_cells(kinds, deep, [True, True], "state")[1] == pa.array([5])
    with pytest.raises(UnsupportedError, match=r"FLINK_OPAQUE.*state.*contains itself more than 4096 times"):
        decode_cells(kinds, cells_of(pa.array([nested(4097) + int64(5)])), [True, True], "state")
    endless = {"type": "record", "name": "R", "fields": [{"name": "self", "type": "R"}]}
    with pytest.raises(UnsupportedError, match="FLINK_OPAQUE"):
        decode_cells([avro(endless)], cells_of(pa.array([b"", b""])), [True], "state")


def test_damaged_records_inside_of_others_are_refused(each_way: bool) -> None:
    for wrong in (
        chain(1, 2)[:-1],
        int64(1) + int32(2),
        int64(1) + int32(1) + int64(2) + int32(-1),
        chain(1, 2) + b"\0",
    ):
        with pytest.raises(CorruptError, match="FLINK_ROW"):
            decode_cells([avro(CHAIN)], cells_of(pa.array([wrong])), [True], "state")

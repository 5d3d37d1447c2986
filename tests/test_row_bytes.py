"""Row serdes: what goes in comes out, columns give the bytes of single rows, natural keys sort like their type."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from key_strategies import SCALARS, key_tables, key_types

from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.key_codec import KeyCodec, ValueCodec
from statestore.formats.row_bytes.row_serde import row_serde

ONE_VALUE = pa.schema([("v", pa.int64())])
ONE_KEY = pa.schema([pa.field("k", pa.string(), nullable=False)])
FLOATS = st.floats(allow_nan=True)


def value_types() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """Key types, and what only values may be: floats and maps."""
    double = st.just((pa.float64(), FLOATS.map(lambda x: math.nan if math.isnan(x) else x)))
    mapped = st.just(
        (
            pa.map_(pa.string(), pa.int32()),
            st.dictionaries(st.text(max_size=3), st.none() | st.integers(-9, 9), max_size=3).map(
                lambda cells: tuple(cells.items())
            ),
        )
    )
    return key_types() | double | mapped


@st.composite
def value_tables(draw: st.DrawFn) -> tuple[pa.Schema, list[tuple[Any, ...]]]:
    types = draw(st.lists(value_types(), min_size=1, max_size=10))
    schema = pa.schema([pa.field(f"v{number}", kind) for number, (kind, _) in enumerate(types)])
    rows = draw(st.lists(st.tuples(*(st.none() | values for _, values in types)), min_size=1, max_size=5))
    return schema, rows


@settings(deadline=None, max_examples=150)
@given(key_tables())
def test_keys_come_back_and_columns_agree(table: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    schema, keys = table
    serde, codec = row_serde("natural", schema, ONE_VALUE), KeyCodec(schema)
    single = [serde.key_bytes(codec.to_user(key)) for key in keys]
    assert [codec.normalize(serde.key_of(data)) for data in single] == keys
    columns = codec.to_columns(keys)
    rows = serde.keys_to_bytes(columns)
    assert rows.to_pylist() == single
    assert serde.keys_from_bytes(rows) == columns
    padded = pa.concat_arrays([pa.array([b"\xff"]), rows]).slice(1)
    assert serde.keys_from_bytes(padded) == columns


def without_fold(row: tuple[Any, ...]) -> str:
    """As text, in which every NaN is equal; a fold says nothing of a moment in UTC or without a zone."""
    return repr(row).replace(", fold=1", "")


@settings(deadline=None, max_examples=150)
@given(value_tables())
def test_values_come_back_and_columns_agree(table: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    """Nulls in any column and in every type; a null row is a row of nulls."""
    schema, values = table
    serde, codec = row_serde("natural", ONE_KEY, schema), ValueCodec(schema)
    single = [serde.value_bytes(row) for row in values]
    assert [repr(codec.normalize(serde.value_of(data))) for data in single] == [without_fold(row) for row in values]
    columns = codec.to_columns(values)
    rows = serde.values_to_bytes(columns)
    assert rows.to_pylist() == single
    assert [repr(column.to_pylist()) for column in serde.values_from_bytes(rows)] == [
        repr(column.to_pylist()) for column in columns
    ]
    with_delete = serde.values_from_bytes(pa.concat_arrays([pa.nulls(1, pa.binary()), rows]))
    assert [(column.type, repr(column.to_pylist())) for column in with_delete] == [
        (column.type, repr([None, *column.to_pylist()])) for column in columns
    ]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3).flatmap(
        lambda types: st.tuples(st.just([kind for kind, _ in types]), *[st.tuples(*(v for _, v in types))] * 2)
    )
)
def test_natural_keys_sort_like_their_type(drawn: tuple[list[pa.DataType], tuple[Any, ...], tuple[Any, ...]]) -> None:
    """Text by its UTF-8, numbers with negative ones first; the first columns begin the whole key."""
    kinds, left, right = drawn
    schema = pa.schema([pa.field(f"k{n}", kind, nullable=False) for n, kind in enumerate(kinds)])
    serde, codec = row_serde("natural", schema, ONE_VALUE), KeyCodec(schema)
    comparable = [tuple(c.encode() if isinstance(c, str) else c for c in key) for key in (left, right)]
    encoded = [serde.key_bytes(codec.to_user(key)) for key in (left, right)]
    assert (encoded[0] < encoded[1]) == (comparable[0] < comparable[1])
    assert (encoded[0] == encoded[1]) == (comparable[0] == comparable[1])


def test_lists_and_structs_sort_by_their_members() -> None:
    kind = pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]))
    serde = row_serde("natural", pa.schema([pa.field("k", kind, nullable=False)]), ONE_VALUE)
    keys = [(), ((None, "z"),), ((-1, None),), ((-1, "a"),), ((-1, "a"), (0, "")), ((-1, "a\0"),), ((0, ""),)]
    encoded = [serde.key_bytes((key,)) for key in keys]
    assert encoded == sorted(encoded) and len(set(encoded)) == len(keys)


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (pa.string(), "é", b"\xc3\xa9"),
        (pa.binary(), b"\x00\xff", b"\x00\xff"),
        (pa.int64(), -2, struct.pack(">q", -2)),
        (pa.int32(), 7, struct.pack(">i", 7)),
        (pa.int16(), -1, b"\xff\xff"),
        (pa.float64(), 1.5, struct.pack(">d", 1.5)),
        (pa.float32(), -0.0, struct.pack(">f", -0.0)),
        (pa.bool_(), True, b"\x01"),
    ],
)
def test_kafka_bytes(kind: pa.DataType, value: Any, data: bytes) -> None:
    """Kafka's built-in serdes, one by one and in columns."""
    serde = row_serde("kafka", ONE_KEY, pa.schema([("v", kind)]))
    assert serde.value_bytes(value) == data
    assert repr(serde.value_of(data)) == repr(value)
    column = pa.array([value, None, value], kind)
    assert serde.values_to_bytes([column]).to_pylist() == [data, None, data]
    assert serde.values_from_bytes(pa.array([data, None, data])) == [column]
    with pytest.raises(InvalidInputError, match=r"WRONG_VALUE.*'v'"):
        serde.value_bytes({"v": None})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (pa.schema([("a", pa.string()), ("b", pa.string())]), ONE_VALUE),
        (ONE_KEY, pa.schema([("a", pa.string()), ("b", pa.string())])),
        (pa.schema([("a", pa.date32())]), ONE_VALUE),
        (ONE_KEY, pa.schema([("a", pa.decimal128(4, 2))])),
    ],
)
def test_kafka_needs_single_columns_with_a_serde(key: pa.Schema, value: pa.Schema) -> None:
    with pytest.raises(UnsupportedError, match=r"UNSUPPORTED_SERDE.*a .*natural"):
        row_serde("kafka", key, value)


@pytest.mark.parametrize("serde", ["natural", "kafka"])
@pytest.mark.parametrize("key", [None, 5, ("a", "b"), "\ud800"])
def test_wrong_keys_are_refused(serde: str, key: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"NULL_KEY|WRONG_KEY"):
        row_serde(serde, ONE_KEY, ONE_VALUE).key_bytes(key)


@pytest.mark.parametrize("serde", ["natural", "kafka"])
@pytest.mark.parametrize("value", ["1", 1.5, 2**63, {"w": 1}])
def test_wrong_values_are_refused(serde: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match="WRONG_VALUE"):
        row_serde(serde, ONE_KEY, ONE_VALUE).value_bytes(value)


@settings(deadline=None, max_examples=200)
@given(table=value_tables(), data=st.data())
def test_broken_values_are_said_to_be(table: tuple[pa.Schema, list[tuple[Any, ...]]], data: st.DataObject) -> None:
    """Cut short, too long or changed: a value of the type, or CorruptError, whole or in columns; never a crash."""
    schema, rows = table
    serde, codec = row_serde("natural", ONE_KEY, schema), ValueCodec(schema)
    good = serde.values_to_bytes(codec.to_columns(rows[:1]))[0].as_py()
    place = data.draw(st.integers(0, len(good)))
    bad = data.draw(
        st.sampled_from([good[:place], good + b"\0", good[:place] + b"\xff" + good[place + 1 :], good[place:]])
    )
    for read in (lambda: serde.value_of(bad), lambda: serde.values_from_bytes(pa.array([bad]))):
        try:
            read()
        except CorruptError as error:
            assert error.code == "ROW_CORRUPT"


@settings(deadline=None, max_examples=200)
@given(table=key_tables(), data=st.data())
def test_broken_keys_are_said_to_be(table: tuple[pa.Schema, list[tuple[Any, ...]]], data: st.DataObject) -> None:
    schema, keys = table
    serde = row_serde("natural", schema, ONE_VALUE)
    good = serde.keys_to_bytes(KeyCodec(schema).to_columns(keys[:1]))[0].as_py()
    place = data.draw(st.integers(0, len(good)))
    bad = data.draw(st.sampled_from([good[:place], good + b"\0", good[:place] + b"\xff" + good[place + 1 :]]))
    for read in (lambda: serde.key_of(bad), lambda: serde.keys_from_bytes(pa.array([bad]))):
        try:
            read()
        except CorruptError as error:
            assert error.code == "ROW_CORRUPT"


def test_decimals_of_all_sizes() -> None:
    kind = pa.decimal128(38, 10)
    serde = row_serde("natural", ONE_KEY, pa.schema([("v", kind)]))
    for text in ("0.0000000000", "-1.5000000000", "9" * 28 + "." + "9" * 10, "-" + "9" * 28 + "." + "9" * 10):
        assert serde.value_of(serde.value_bytes(Decimal(text))) == Decimal(text)

"""Row serdes: rows are read back equal, columns give the bytes of single rows, natural keys sort like their type."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.key_strategies import SCALARS, key_tables, key_types
from support.properties import few_or_many

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError
from statestore.formats.kafka_rows.serdes import NAMES, arrow_type_of, serializer
from statestore.formats.serdes.plain_keys import key_cells
from statestore.formats.serdes.row_serde import row_serde
from statestore.formats.values.canonical import from_arrow
from statestore.formats.values.key_codec import KeyCodec, ValueCodec

ONE_VALUE = pa.schema([("v", pa.int64())])
ONE_KEY = pa.schema([pa.field("k", pa.string(), nullable=False)])
FLOATS = st.floats(allow_nan=True)
CODES = ("ROW_CORRUPT", "TIME_OUT_OF_RANGE")


def value_types() -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    """Key types, and types that only values may have: floats and maps."""
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


@st.composite
def plain_tables(draw: st.DrawFn) -> tuple[pa.Schema, list[tuple[Any, ...]]]:
    types = draw(st.lists(st.sampled_from(SCALARS), min_size=2, max_size=4))
    schema = pa.schema([pa.field(f"p{number}", kind, nullable=False) for number, (kind, _) in enumerate(types)])
    return schema, draw(st.lists(st.tuples(*(values for _, values in types)), min_size=1, max_size=5))


@few_or_many(12, 150, key_tables())
def test_keys_come_back_and_columns_agree(table: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    schema, keys = table
    serde, codec = row_serde("natural", schema, ONE_VALUE), KeyCodec(schema)
    single = [serde.key_bytes(codec.to_user(key)) for key in keys]
    assert [serde.key_row_bytes(key) for key in keys] == single
    assert [codec.normalize(serde.key_of(data)) for data in single] == keys
    columns = codec.to_columns(keys)
    rows = serde.keys_to_bytes(columns)
    assert rows.to_pylist() == single
    assert serde.keys_from_bytes(rows) == columns
    padded = pa.concat_arrays([pa.array([b"\xff"]), rows]).slice(1)
    assert serde.keys_from_bytes(padded) == columns


def without_fold(row: tuple[Any, ...]) -> str:
    """The row as text, in which every NaN is equal and a moment in UTC or without a zone has no fold."""
    return repr(row).replace(", fold=1", "")


@few_or_many(12, 150, value_tables())
def test_values_come_back_and_columns_agree(table: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    """Nulls in any column and in every type; a null row is a row of nulls."""
    schema, values = table
    serde, codec = row_serde("natural", ONE_KEY, schema), ValueCodec(schema)
    single = [serde.value_bytes(row) for row in values]
    assert [serde.value_row_bytes(codec.normalize(row)) for row in values] == single
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


@few_or_many(
    25,
    300,
    st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3).flatmap(
        lambda types: st.tuples(st.just([kind for kind, _ in types]), *[st.tuples(*(v for _, v in types))] * 2)
    ),
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


KAFKA_CELLS: dict[pa.DataType, list[Any]] = {
    pa.string(): ["", "é\0"],
    pa.binary(): [b"", b"\0\xff"],
    pa.bool_(): [True, False],
    pa.int16(): [-(2**15), 0, 2**15 - 1],
    pa.int32(): [-(2**31), 0, 2**31 - 1],
    pa.int64(): [-(2**63), 0, 2**63 - 1],
    pa.float32(): [-0.0, 1.5, math.inf],
    pa.float64(): [-0.0, 1.5, math.inf, math.nan, -math.nan, struct.unpack("<d", b"\1\0\0\0\0\0\xf8\xff")[0]],
}


@pytest.mark.parametrize("kind", KAFKA_CELLS, ids=str)
def test_kafka_rows_are_what_kafkas_serializers_write(kind: pa.DataType) -> None:
    """DoubleSerializer has one NaN for all of them."""
    write = serializer(next(name for name in NAMES if arrow_type_of(name) == kind))
    wanted = [write(cell) for cell in KAFKA_CELLS[kind]]
    serde = row_serde("kafka", ONE_KEY, pa.schema([("v", kind)]))
    assert [serde.value_bytes(cell) for cell in KAFKA_CELLS[kind]] == wanted
    assert serde.values_to_bytes([pa.array(KAFKA_CELLS[kind], kind)]).to_pylist() == wanted


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


@few_or_many(10, 150, plain_tables())
def test_plain_columns_agree_with_single_rows(table: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    """Two or more columns of numbers and text, as keys and as values."""
    schema, rows = table
    keys, values = row_serde("natural", schema, ONE_VALUE), row_serde("natural", ONE_KEY, schema)
    columns = KeyCodec(schema).to_columns(rows)
    for many, one, back, decode in (
        (keys.keys_to_bytes, keys.key_bytes, keys.keys_from_bytes, keys.key_of),
        (values.values_to_bytes, values.value_bytes, values.values_from_bytes, values.value_of),
    ):
        encoded = many(columns)
        assert encoded.to_pylist() == [one(row) for row in rows]
        assert back(encoded) == columns
        assert [decode(data) for data in encoded.to_pylist()] == [dict(zip(schema.names, r, strict=True)) for r in rows]


BLOB_AND_BYTE = pa.schema([("a", pa.binary()), ("b", pa.int8())])


@pytest.mark.parametrize(
    ("serde", "key", "data"),
    [
        ("natural", BLOB_AND_BYTE, b"a\0\5\0\0\x80"),  # a 00 that is not escaped
        ("natural", BLOB_AND_BYTE, b"a\0\1\x80"),  # no end
        ("natural", BLOB_AND_BYTE, b"a\0\0\x80\x80"),
        ("natural", BLOB_AND_BYTE, b"a\0\0"),
        ("natural", pa.schema([("a", pa.bool_())]), b"\2"),
        ("natural", ONE_KEY, b"\xff"),
        ("natural", pa.schema([("a", pa.int32()), ("b", pa.string())]), b"\x80\0\0\0\xed\xa0\x80"),
        ("kafka", pa.schema([("a", pa.int32())]), bytes(3)),
        ("kafka", pa.schema([("a", pa.int32())]), bytes(5)),
        ("kafka", ONE_KEY, b"\xff"),
    ],
)
def test_keys_that_no_key_has(serde: str, key: pa.Schema, data: bytes) -> None:
    broken = row_serde(serde, key, ONE_VALUE)
    for read in (lambda: broken.key_of(data), lambda: broken.keys_from_bytes(pa.array([data]))):
        with pytest.raises(CorruptError, match="ROW_CORRUPT"):
            read()


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (pa.int64(), b"\3" + bytes(8)),  # more columns than there are
        (pa.int64(), b"\1" + bytes(7)),
        (pa.int64(), b"\1" + bytes(9)),
        (pa.int64(), b""),
        (pa.bool_(), b"\1\2"),
        (pa.string(), b"\1\1\0\0\0\xff"),
        (pa.string(), b"\1\xff\xff\xff\xffa"),
        (pa.string(), b"\0\1\0\0\0a"),  # bytes of a null
        (pa.decimal128(2, 0), b"\1" + (100).to_bytes(16, "little")),
        (pa.list_(pa.int8()), b"\1\4\0\0\0\xff\xff\xff\xff"),
        (pa.struct([("x", pa.int8())]), b"\1\1\0\0\0\2"),
    ],
)
def test_values_that_no_value_has(kind: pa.DataType, data: bytes) -> None:
    broken = row_serde("natural", ONE_KEY, pa.schema([("v", kind)]))
    for read in (lambda: broken.value_of(data), lambda: broken.values_from_bytes(pa.array([data]))):
        with pytest.raises(CorruptError, match="ROW_CORRUPT"):
            read()


def test_what_lies_under_a_null_is_not_stored() -> None:
    """Arrow leaves any bytes there; stored rows are the same for the same values."""
    noise = pa.array([7, 7]).buffers()[1]
    column = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\1"), noise])
    assert column.to_pylist() == [7, None]
    serde = row_serde("natural", ONE_KEY, ONE_VALUE)
    assert serde.values_to_bytes([column]).to_pylist() == [serde.value_bytes(7), serde.value_bytes({"v": None})]


def damaged(good: bytes, data: st.DataObject) -> bytes:
    """The data cut short, too long or changed."""
    place = data.draw(st.integers(0, len(good)))
    other = data.draw(st.sampled_from([b"\0", b"\1", b"\2", b"\x7f", b"\xff"]))
    return data.draw(
        st.sampled_from([good[:place], good + other, good[:place] + other + good[place + 1 :], good[place:]])
    )


def outcome(read: Callable[[], Any]) -> str:
    """The value that was read, as text, or the code of the error."""
    try:
        return repr(read())
    except (CorruptError, UnsupportedError) as error:
        assert error.code in CODES
        return error.code


def first_row(codec: KeyCodec | ValueCodec, columns: list[pa.Array]) -> tuple[Any, ...]:
    try:
        cells = [column[0].as_py() for column in columns]
    except (OverflowError, ValueError) as error:
        raise UnsupportedError(ErrorCode.TIME_OUT_OF_RANGE, "columns hold times that Python does not") from error
    to_canonical = [from_arrow(column.type) or (lambda cell: cell) for column in columns]
    return codec.normalize(codec.to_user(tuple([to(cell) for to, cell in zip(to_canonical, cells, strict=True)])))


@few_or_many(16, 300, table=value_tables(), data=st.data())
def test_broken_values_are_read_the_same_in_columns(
    table: tuple[pa.Schema, list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    """ROW_CORRUPT both ways, or the same other value; never a crash."""
    schema, rows = table
    serde, codec = row_serde("natural", ONE_KEY, schema), ValueCodec(schema)
    bad = damaged(serde.values_to_bytes(codec.to_columns(rows[:1]))[0].as_py(), data)
    single = outcome(lambda: codec.normalize(serde.value_of(bad)))
    columns = outcome(lambda: first_row(codec, serde.values_from_bytes(pa.array([bad]))))
    assert single == columns or (single == "TIME_OUT_OF_RANGE" and columns == "ROW_CORRUPT")


@few_or_many(16, 300, table=key_tables(), data=st.data())
def test_broken_keys_are_read_the_same_in_columns(
    table: tuple[pa.Schema, list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    """ROW_CORRUPT both ways, or another key that has exactly these bytes."""
    schema, keys = table
    serde, codec = row_serde("natural", schema, ONE_VALUE), KeyCodec(schema)
    bad = damaged(serde.keys_to_bytes(codec.to_columns(keys[:1]))[0].as_py(), data)
    single = outcome(lambda: codec.normalize(serde.key_of(bad)))
    columns = outcome(lambda: first_row(codec, serde.keys_from_bytes(pa.array([bad]))))
    assert single == columns or (single == "TIME_OUT_OF_RANGE" and columns == "ROW_CORRUPT")
    if single not in CODES:
        assert serde.key_bytes(serde.key_of(bad)) == bad


@few_or_many(12, 150, key_tables())
def test_first_columns_begin_the_key(table: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    """A scan by these bytes finds the keys with these first columns and no other."""
    schema, keys = table
    serde, codec, cells = row_serde("natural", schema, ONE_VALUE), KeyCodec(schema), key_cells(schema)
    for count in range(1, len(schema)):
        prefix = b"".join([encode(cell) for (encode, _), cell in zip(cells[:count], keys[0], strict=False)])
        found = [key for key in keys if serde.key_bytes(codec.to_user(key)).startswith(prefix)]
        assert found == [key for key in keys if key[:count] == keys[0][:count]]


def in_order(kind: pa.DataType, cell: Any) -> Any:
    """The cell in a form that Python sorts as keys sort: nulls first, members in turn, text by its UTF-8."""
    if cell is None:
        return (0,)
    if pa.types.is_struct(kind):
        return (1, [in_order(field.type, member) for field, member in zip(kind, cell, strict=True)])
    if pa.types.is_list(kind):
        return (1, [in_order(kind.value_type, member) for member in cell])
    return (1, cell.encode() if isinstance(cell, str) else cell)


@few_or_many(14, 200, key_tables())
def test_nested_keys_sort_like_their_type(table: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    schema, keys = table
    serde, codec = row_serde("natural", schema, ONE_VALUE), KeyCodec(schema)
    encoded = {serde.key_bytes(codec.to_user(key)): key for key in keys}
    wanted = sorted(set(keys), key=lambda key: [in_order(kind, c) for kind, c in zip(schema.types, key, strict=True)])
    assert [encoded[data] for data in sorted(encoded)] == wanted


@pytest.mark.parametrize("kind", ["float", "double"])
def test_floats_keep_their_bits(kind: str) -> None:
    """Every NaN and the sign of zero, in columns and one by one."""
    bits, form = ("u4", "<f") if kind == "float" else ("u8", "<d")
    quiet = 0x7FC00000 if kind == "float" else 0x7FF8000000000000
    numbers = np.array([quiet, quiet + 1, quiet | quiet << 1, 1 << (31 if kind == "float" else 63), 1], bits)
    column = pa.array(numbers.view(bits.replace("u", "f")))
    serde = row_serde("natural", ONE_KEY, pa.schema([("v", column.type)]))
    rows = serde.values_to_bytes([column])
    back = serde.values_from_bytes(rows)[0].to_numpy(zero_copy_only=False)
    assert back.view(bits).tolist() == numbers.tolist()
    for row in rows.to_pylist():
        assert struct.pack(form, serde.value_of(row)) == row[1:]
        assert serde.value_bytes(serde.value_of(row)) == row


def test_a_store_of_keys_alone() -> None:
    serde = row_serde("natural", ONE_KEY, pa.schema([]))
    assert serde.value_bytes({}) == b""
    assert serde.value_of(b"") == {}
    assert serde.values_to_bytes([], 2).to_pylist() == [b"", b""]
    assert serde.values_from_bytes(pa.array([b"", None])) == []


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.list_(pa.timestamp("us")), pa.date32()]
)
def test_times_that_only_columns_hold(kind: pa.DataType) -> None:
    """Such times pass through columns whole; one by one they are refused by name and not called damage."""
    number = pa.array([2**31 - 1], pa.int32()) if pa.types.is_date32(kind) else pa.array([2**62])
    column = pa.ListArray.from_arrays([0, 1], number).cast(kind) if pa.types.is_list(kind) else number.cast(kind)
    serde = row_serde("natural", ONE_KEY, pa.schema([("v", kind)]))
    rows = serde.values_to_bytes([column])
    assert serde.values_from_bytes(rows) == [column]
    with pytest.raises(UnsupportedError, match="TIME_OUT_OF_RANGE"):
        serde.value_of(rows[0].as_py())


def test_nulls_among_keys_and_unknown_serdes_are_refused() -> None:
    with pytest.raises(CorruptError, match=r"ROW_CORRUPT.*null"):
        row_serde("natural", ONE_KEY, ONE_VALUE).keys_from_bytes(pa.array([None], pa.binary()))
    with pytest.raises(UnsupportedError, match=r"UNSUPPORTED_SERDE.*natural.*kafka"):
        row_serde("avro", ONE_KEY, ONE_VALUE)


WRONG_PAIRS = [("x", 2**63), ("x", True), ("x", 1, 2), ("\ud800", 1), {"a": "x", "c": 1}, {"a": "x", "b": 1, "c": 2}]


@pytest.mark.parametrize("value", [*WRONG_PAIRS, ["x", 1]])
@pytest.mark.parametrize("number_first", [False, True])
def test_the_short_way_refuses_what_the_codec_does(value: Any, number_first: bool) -> None:
    """Rows of two columns are packed without a look at each rule; the error is the codec's."""
    columns = [("a", pa.string()), ("b", pa.int64())]
    schema = pa.schema(columns[::-1] if number_first else columns)
    given = value[::-1] if number_first and isinstance(value, tuple) else value
    with pytest.raises(InvalidInputError) as expected:
        ValueCodec(schema).normalize(given)
    with pytest.raises(InvalidInputError) as found:
        row_serde("natural", ONE_KEY, schema).value_bytes(given)
    assert str(found.value) == str(expected.value)
    with pytest.raises(InvalidInputError, match="WRONG_KEY"):
        row_serde("natural", schema, ONE_VALUE).key_bytes(given)


def test_decimals_of_all_sizes() -> None:
    kind = pa.decimal128(38, 10)
    serde = row_serde("natural", ONE_KEY, pa.schema([("v", kind)]))
    for text in ("0.0000000000", "-1.5000000000", "9" * 28 + "." + "9" * 10, "-" + "9" * 28 + "." + "9" * 10):
        assert serde.value_of(serde.value_bytes(Decimal(text))) == Decimal(text)

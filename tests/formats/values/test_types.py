"""Names of types, schemas of keys and values, and tables converted to a schema without loss."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.key_strategies import LIMITS, key_types
from support.properties import few_or_many

from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.values.types import (
    RESERVED_COLUMNS,
    TIME,
    conform,
    make_schema,
    parse_type,
    schema_from_json,
    schema_to_json,
    shown_field,
    type_name,
)

ONE_INT = pa.schema([("x", pa.int32())])
FIELD_NAMES = st.text(min_size=1, max_size=6) | st.sampled_from(["a b", "a`b", "a,b", "a>b", "a:b", "1a", "struct"])


@st.composite
def structs(draw: st.DrawFn, inner: st.SearchStrategy[pa.DataType]) -> pa.DataType:
    return pa.struct([(name, draw(inner)) for name in draw(st.lists(FIELD_NAMES, min_size=1, max_size=3, unique=True))])


TYPES = st.recursive(
    key_types().map(lambda typed: typed[0]) | st.sampled_from([pa.float32(), pa.float64()]),
    lambda inner: inner.map(pa.list_) | st.tuples(inner, inner).map(lambda pair: pa.map_(*pair)) | structs(inner),
    max_leaves=6,
)


def error_of(spec: Any, role: Any = "key") -> StateStoreError:
    with pytest.raises(StateStoreError) as caught:
        make_schema(spec, role)
    return caught.value


@few_or_many(25, 100, TYPES)
def test_names_are_read_back(kind: pa.DataType) -> None:
    """Every type has one name, whatever its fields are called."""
    assert parse_type(type_name(kind)) == kind


@few_or_many(25, 100, key_types())
def test_arrows_own_names_are_read(typed: tuple[pa.DataType, object]) -> None:
    """The ``str`` of a type whose field names need no quotes is accepted."""
    assert parse_type(str(typed[0])) == typed[0]


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ("string String STR utf8", pa.string()),
        ("binary bytes", pa.binary()),
        ("boolean bool", pa.bool_()),
        ("byte tinyint int8", pa.int8()),
        ("short smallint int16", pa.int16()),
        ("int integer int32 INT", pa.int32()),
        ("long bigint int64", pa.int64()),
        ("float float32 real", pa.float32()),
        ("double float64", pa.float64()),
        ("decimal dec numeric decimal(10) decimal(10,0)", pa.decimal128(10, 0)),
        ("DECIMAL(38,18) decimal128(38,18)", pa.decimal128(38, 18)),
        ("date date32 date32[day]", pa.date32()),
        ("timestamp timestamp_ltz", pa.timestamp("us", "UTC")),
        ("timestamp_ntz timestamp[us]", pa.timestamp("us")),
        ("duration duration[us]", pa.duration("us")),
        ("array<int> list<int> ARRAY<Integer>", pa.list_(pa.int32())),
        ("map<string,bigint>", pa.map_(pa.string(), pa.int64())),
        ("struct<a:int,B:string>", pa.struct([("a", pa.int32()), ("B", pa.string())])),
    ],
)
def test_spellings(names: str, kind: pa.DataType) -> None:
    """Spark's and Arrow's, in any case; names of fields keep theirs."""
    for name in names.split():
        assert parse_type(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (" interval  day to\tsecond ", pa.duration("us")),
        ("timestamp[us, tz=UTC]", TIME),
        ("decimal( 10 , 2 )", pa.decimal128(10, 2)),
        ("list<item: string>", pa.list_(pa.string())),
        ("map<string, list<element: int32>>", pa.map_(pa.string(), pa.list_(pa.int32()))),
        ("struct<a int, `b  <c>` : decimal(5,1)>", pa.struct([("a", pa.int32()), ("b  <c>", pa.decimal128(5, 1))])),
        ("struct<`tick``ed`: interval day to second>", pa.struct([("tick`ed", pa.duration("us"))])),
    ],
)
def test_spaces_and_quotes(name: str, kind: pa.DataType) -> None:
    """Spaces between words do not matter, those inside quotes do."""
    assert parse_type(name) == kind


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("strng", "did you mean string"),
        ("array<bigin>", "'bigin' is not a type; did you mean bigint"),
        ("uint64", "did you mean int64"),
        ("geometry", "expected one of string, binary"),
        ("", "expected a name"),
        ("array", "array is written array<int>"),
        ("array<>", "array is written array<int>"),
        ("map<int>", "map is written map<string,int>"),
        ("array<int", "expected >"),
        ("array<int>>", "expected the end"),
        ("struct<a>", "expected a name"),
        ("struct<:int>", "expected a name"),
        ("struct<`a:int>", "'`' is out of place"),
        ("int(3)", "int is written int"),
        ("decimal(39)", "precision from 1 to 38"),
        ("decimal(0)", "precision from 1 to 38"),
        ("decimal(5,6)", "precision from 1 to 38"),
        ("decimal(5,-1)", "'-1' is not a small number"),
        ("decimal(²)", "not a small number"),
        ("decimal(1,1,1)", "precision from 1 to 38"),
        ("decimal(" + "9" * 5000 + ")", "not a small number"),
        ("array<" * 65 + "int" + ">" * 65, "nested deeper than 64"),
        ("array<" * 50_000, "nested deeper than 64"),
    ],
    ids=lambda text: text[:30],
)
def test_names_that_are_no_type(name: str, said: str) -> None:
    """UNSUPPORTED_TYPE names the error and the nearest type."""
    with pytest.raises(UnsupportedError) as caught:
        parse_type(name)
    assert caught.value.code == "UNSUPPORTED_TYPE"
    assert said in caught.value.message
    assert len(caught.value.message) < 6000


@given(st.text("abint<>(),:` 1[]", max_size=30))
def test_any_text_is_a_type_or_a_clear_error(name: str) -> None:
    """Nothing else escapes, and what is read has a name that is read back."""
    try:
        kind = parse_type(name)
    except UnsupportedError:
        return
    assert parse_type(type_name(kind)) == kind


@pytest.mark.parametrize("kind", [pa.uint8(), pa.null(), pa.large_string(), pa.timestamp("ns"), pa.time64("us")])
def test_types_without_a_name(kind: pa.DataType) -> None:
    """Schemas are normalised first."""
    with pytest.raises(UnsupportedError, match="UNSUPPORTED_TYPE"):
        type_name(kind)


def test_keys_are_not_null_and_values_may_be() -> None:
    """Members of a nested value may be null, too."""
    assert make_schema({"k": "string"}, "key") == pa.schema([pa.field("k", pa.string(), nullable=False)])
    strict = pa.struct([pa.field("a", pa.int32(), nullable=False)])
    assert make_schema({"v": strict}, "value") == pa.schema([("v", pa.struct([("a", pa.int32())]))])


def test_a_value_may_have_no_column() -> None:
    """A store of keys alone."""
    assert make_schema({}, "value") == pa.schema([])
    assert error_of({}).code == "WRONG_SCHEMA"


@pytest.mark.parametrize(
    ("given_type", "kept"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int8(), pa.large_string()), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary(16), "binary"),
        (pa.timestamp("s", "UTC"), "timestamp"),
        (pa.timestamp("ms", "Europe/Berlin"), "timestamp"),
        (pa.timestamp("ms"), "timestamp_ntz"),
        (pa.date64(), "date"),
        (pa.duration("s"), "interval day to second"),
        (pa.decimal256(20, 3), "decimal(20,3)"),
        (pa.large_list(pa.large_string()), "array<string>"),
        (pa.list_(pa.timestamp("s"), 2), "array<timestamp_ntz>"),
        (pa.struct([("a", pa.large_list(pa.date64()))]), "struct<a:array<date>>"),
    ],
    ids=str,
)
@pytest.mark.parametrize("role", ["key", "value"])
def test_types_are_normalised(given_type: pa.DataType, kept: str, role: Any) -> None:
    """One spelling of each type on disk."""
    assert schema_to_json(make_schema(pa.schema([("x", given_type)]), role)) == [{"name": "x", "type": kept}]


@pytest.mark.parametrize(
    ("given_type", "said"),
    [
        (pa.uint8(), "use smallint"),
        (pa.uint16(), "use int"),
        (pa.uint32(), "use bigint"),
        (pa.list_(pa.uint64()), "use decimal(20,0)"),
        (pa.timestamp("ns", "UTC"), "cast it to unit us"),
        (pa.duration("ns"), "cast it to unit us"),
        (pa.float16(), "Spark DataFrame"),
        (pa.time32("s"), "Spark DataFrame"),
        (pa.null(), "Spark DataFrame"),
        (pa.decimal256(60, 2), "Spark DataFrame"),
        (pa.uuid(), "Spark DataFrame"),
        (pa.list_view(pa.int64()), "Spark DataFrame"),
        (pa.struct([]), "struct without fields"),
        ("array<array<int>", "expected >"),
    ],
    ids=str,
)
@pytest.mark.parametrize("role", ["key", "value"])
def test_types_that_no_store_holds(given_type: Any, said: str, role: Any) -> None:
    """The message names the column or the type and a type to use instead."""
    error = error_of({"x": given_type}, role)
    assert (error.code, said in error.message) == ("UNSUPPORTED_TYPE", True)


@pytest.mark.parametrize("kind", ["float", "double", "map<int,int>", "array<double>", "struct<a:array<map<int,int>>>"])
def test_types_that_are_no_key(kind: str) -> None:
    """Types without a single equality are no keys; they are allowed as values."""
    assert (error_of({"x": kind}).code, "'x'" in error_of({"x": kind}).message) == ("UNSUPPORTED_TYPE", True)
    assert make_schema({"x": kind}, "value").field("x").type == parse_type(kind)


@pytest.mark.parametrize("name", [*sorted(RESERVED_COLUMNS), "Valid_From"])
@pytest.mark.parametrize("role", ["key", "value"])
def test_reserved_names(name: str, role: Any) -> None:
    """Reserved names are reserved in upper and lower case: Spark and DuckDB see no difference."""
    error = error_of({name: "int"}, role)
    assert (error.code, "reserved" in error.message) == ("WRONG_SCHEMA", True)


def test_the_reserved_names() -> None:
    """Every column that the store itself adds anywhere."""
    times = {"valid_from", "valid_to", "timestamp"}
    commits = {"_added", "_closed", "_split", "_dropped", "_commit_version", "_commit_timestamp", "_change_type"}
    assert times | commits == RESERVED_COLUMNS


@pytest.mark.parametrize(
    "spec",
    [
        pa.schema([("x", pa.int32()), ("x", pa.int64())]),
        {"x": "int", "X": "int"},
        {"x": pa.struct([("a", pa.int32()), ("a", pa.int64())])},
        {"x": "array<struct<a:int,A:int>>"},
        {"": "int"},
        {5: "int"},
        {"x": int},
        {"x": None},
        [("x", "int")],
        "x int",
        None,
    ],
    ids=str,
)
def test_what_is_not_a_schema(spec: Any) -> None:
    """Duplicates, also by case; names that are no text; types that are none."""
    assert error_of(spec).code == "WRONG_SCHEMA"


def test_deeper_than_can_be_opened_again() -> None:
    """Refused when the store is made, not when it is opened."""
    kind = pa.int32()
    for _ in range(70):
        kind = pa.list_(kind)
    assert error_of({"x": kind}, "value").code == "UNSUPPORTED_TYPE"


@few_or_many(25, 100, st.dictionaries(FIELD_NAMES, TYPES, max_size=4))
def test_schemas_survive_json(columns: Mapping[str, pa.DataType]) -> None:
    """Names and types; whether a column may be null follows from its role."""
    schema = pa.schema(list(columns.items()))
    assert schema_from_json(schema_to_json(schema)) == schema


def test_types_that_only_engines_have_are_shown() -> None:
    kind = pa.struct([("a b", pa.null()), ("l", pa.list_(pa.time64("ns"))), ("m", pa.map_(pa.string(), pa.float16()))])

    def shown_type(kind: pa.DataType) -> str:
        return shown_field(pa.field("x", kind))

    assert shown_type(kind) == "struct<`a b`:void,l:array<time>,m:map<string,halffloat>>"
    assert shown_type(pa.month_day_nano_interval()) == "interval"
    assert shown_type(pa.decimal128(5, 1)) == type_name(pa.decimal128(5, 1))


# Tables converted to a store's columns

NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)
POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])
INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]


def conformed(values: list[Any], given_type: pa.DataType, wanted: pa.DataType) -> list[Any]:
    """The values converted as a batch and as a table of two chunks, which must agree."""
    schema = pa.schema([pa.field("x", wanted, nullable=False)])
    batch = pa.RecordBatch.from_arrays([pa.array(values, given_type)], ["x"])
    result = conform(batch, schema)
    table = conform(pa.Table.from_batches([batch, batch]), schema)
    for found in (result, table):
        assert found.column("x").type.equals(wanted, check_metadata=True)
        found.validate(full=True)
    answer: list[Any] = result.column("x").to_pylist()
    assert table.column("x").to_pylist() == answer * 2
    return answer


def message_of(data: Any, schema: pa.Schema) -> str:
    with pytest.raises(InvalidInputError) as caught:
        conform(data, schema)
    assert caught.value.code == "WRONG_SCHEMA"
    return caught.value.message


@pytest.mark.parametrize(
    ("values", "given_type", "wanted"),
    [
        (["a", None], pa.large_string(), pa.string()),
        (["a", None], pa.string_view(), pa.string()),
        (["a", None, "a"], pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (["a", None], pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        ([7, None], pa.dictionary(pa.int8(), pa.int32()), pa.int64()),
        ([b"a", None], pa.large_binary(), pa.binary()),
        ([b"ab", None], pa.binary(2), pa.binary()),
        ([None, None], pa.null(), pa.string()),
        ([1.5, None], pa.float32(), pa.float64()),
        ([2**53, None], pa.int64(), pa.float64()),
        ([Decimal("1.50"), None], pa.decimal128(10, 2), pa.decimal128(5, 1)),
        ([Decimal("1.5"), None], pa.decimal128(10, 1), pa.decimal128(38, 20)),
        ([Decimal("1.5"), None], pa.decimal256(50, 1), pa.decimal128(10, 2)),
        ([NOON, None], pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC")),
        ([NOON, None], pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
        ([NOON, None], pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC")),
        ([NOON.replace(tzinfo=None)], pa.timestamp("ns"), pa.timestamp("us")),
        ([date(2020, 1, 1), None], pa.date64(), pa.date32()),
        ([timedelta(days=1), None], pa.duration("ns"), pa.duration("us")),
        ([["a"], [], None], pa.large_list(pa.large_string()), pa.list_(pa.string())),
        ([["a", "b"], None], pa.list_(pa.string(), 2), pa.list_(pa.string())),
        ([[1]], pa.list_(pa.field("element", pa.int64(), nullable=False)), pa.list_(pa.int32())),
        ([[1]], pa.list_(pa.field("element", pa.int32())), pa.list_(pa.int32())),
        ([[None], []], pa.list_(pa.null()), pa.list_(pa.int32())),
        ([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string())), pa.list_(pa.string())),
        ([{"y": "a", "x": 1}, None], pa.struct([("y", pa.large_string()), ("x", pa.int64())]), POINT),
        ([[(1, "a")], None], pa.map_(pa.int64(), pa.large_string()), pa.map_(pa.int32(), pa.string())),
    ],
    ids=str,
)
def test_the_same_values_in_another_type(values: list[Any], given_type: pa.DataType, wanted: pa.DataType) -> None:
    """Encodings, widths, units, zones and the order of struct fields."""
    assert conformed(values, given_type, wanted) == values


@given(
    st.sampled_from(INTEGERS),
    st.sampled_from([*INTEGERS[:4], pa.float32(), pa.float64(), pa.decimal128(10, 2), pa.decimal128(38, 38)]),
    st.lists(st.none() | st.integers(-300, 300) | st.integers(-LIMITS[64] - 1, 2**64 - 1), min_size=1, max_size=4),
)
def test_integers_keep_their_values_or_are_refused(
    given_type: pa.DataType, wanted: pa.DataType, values: list[int | None]
) -> None:
    """Every integer that fits is taken, whatever its type could have held."""
    try:
        pa.array(values, given_type)
    except (OverflowError, pa.ArrowInvalid):
        return
    try:
        found = conformed(values, given_type, wanted)
    except InvalidInputError as error:
        assert "x" in error.message
        assert not all(fits(value, wanted) for value in values if value is not None)
    else:
        assert found == values


def fits(value: int, kind: pa.DataType) -> bool:
    if pa.types.is_decimal(kind):
        return abs(value) < int(10 ** (kind.precision - kind.scale))
    if pa.types.is_floating(kind):
        return abs(value) <= 2 ** (24 if kind.bit_width == 32 else 53)
    return -LIMITS[kind.bit_width] - 1 <= value <= LIMITS[kind.bit_width]


@few_or_many(25, 100, st.data())
def test_what_is_of_the_type_is_handed_on(data: st.DataObject) -> None:
    """All key types, without a copy."""
    kind, _ = data.draw(key_types())
    cells = pa.array([None] * data.draw(st.integers(0, 3)), kind)
    found = conform(pa.RecordBatch.from_arrays([cells], ["x"]), pa.schema([("x", kind)]))
    assert found.column("x").equals(cells)
    assert [b and b.address for b in found.column("x").buffers()] == [b and b.address for b in cells.buffers()]


@pytest.mark.parametrize(
    ("values", "given_type", "wanted"),
    [
        (["1"], pa.string(), pa.int64()),
        ([1], pa.int64(), pa.string()),
        ([b"a"], pa.binary(), pa.string()),
        (["a"], pa.string(), pa.binary()),
        ([1], pa.int64(), pa.bool_()),
        ([True], pa.bool_(), pa.int64()),
        ([1.0], pa.float64(), pa.int64()),
        ([1.5], pa.float64(), pa.float32()),
        ([1.5], pa.float64(), pa.decimal128(10, 2)),
        ([Decimal("1.0")], pa.decimal128(5, 1), pa.float64()),
        ([Decimal("1.55")], pa.decimal128(5, 2), pa.decimal128(5, 1)),
        ([Decimal("155")], pa.decimal128(5, 0), pa.decimal128(2, 0)),
        ([2**53 + 1], pa.int64(), pa.float64()),
        ([2**31], pa.int64(), pa.int32()),
        ([1001], pa.timestamp("ns", "UTC"), pa.timestamp("us", "UTC")),
        ([2**62], pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC")),
        ([NOON.replace(tzinfo=None)], pa.timestamp("us"), pa.timestamp("us", "UTC")),
        ([NOON], pa.timestamp("us", "UTC"), pa.timestamp("us")),
        ([date(2020, 1, 1)], pa.date32(), pa.timestamp("us")),
        ([1577880000000], pa.int64(), pa.timestamp("us", "UTC")),
        ([[2**40]], pa.list_(pa.int64()), pa.list_(pa.int32())),
        ([{"x": 1}], pa.struct([("x", pa.int32())]), POINT),
        ([{"x": 1, "z": "a"}], pa.struct([("x", pa.int32()), ("z", pa.string())]), POINT),
        ([[1]], pa.list_(pa.int64()), pa.int64()),
    ],
    ids=str,
)
def test_values_that_would_change_are_refused(values: Any, given_type: pa.DataType, wanted: pa.DataType) -> None:
    """The message names the column, the found type and the expected one."""
    data = pa.RecordBatch.from_arrays([pa.array(values, given_type)], ["price"])
    message = message_of(data, pa.schema([("price", wanted)]))
    assert "'price'" in message
    assert str(given_type) in message


def test_columns_are_put_in_order() -> None:
    """Columns are ordered by name."""
    table = pa.table({"b": [1], "a": ["x"]})
    found = conform(table, pa.schema([("a", pa.string()), ("b", pa.int64())]))
    assert found.to_pylist() == [{"a": "x", "b": 1}]
    assert found.column_names == ["a", "b"]


def test_wrong_columns_are_all_named() -> None:
    """Missing, unknown and doubled ones, with what was found and expected."""
    data = pa.RecordBatch.from_arrays([pa.array([1])] * 3, ["a", "a", "z"])
    message = message_of(data, pa.schema([("a", pa.int64()), ("b", pa.int64())]))
    for part in ("missing: b", "unknown: z", "given twice: a", "found a, a, z", "expected a, b"):
        assert part in message


def test_nulls_are_left_to_the_caller() -> None:
    """The caller knows whether a null is an error, and reports it with the store's name."""
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    assert conform(pa.table({"x": [None, 1]}), schema).column("x").null_count == 1


def test_members_are_not_null_where_that_may_be_said() -> None:
    words = {"clock(3)": pa.time32("ms")}
    parsed = parse_type(
        "struct<a:array<int not null>, `b c` map<int, clock(3)> NOT NULL, c:clock(3)>", words, not_null=True
    )
    assert parsed == pa.struct(
        [
            pa.field("a", pa.list_(pa.field("item", pa.int32(), nullable=False))),
            pa.field("b c", pa.map_(pa.int32(), pa.time32("ms")), nullable=False),
            pa.field("c", pa.time32("ms")),
        ]
    )


@pytest.mark.parametrize(
    ("name", "allowed", "said"),
    [
        ("array<int not null>", False, "array has members that are not null"),
        ("struct<a:int not null>", False, "struct has members that are not null"),
        ("map<int, int not null>", True, "map has members that are not null"),
        ("int not null", True, "'not null' is out of place"),
        ("int not", True, "'int not' is not a type"),
        ("array<not null>", True, "'not null' is not a type"),
        ("clock(4)", True, "'clock' is not a type"),
    ],
)
def test_not_null_where_it_says_nothing(name: str, allowed: bool, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said.replace("(", r"\(")):
        parse_type(name, {"clock(3)": pa.time32("ms")}, not_null=allowed)

"""Names of types, schemas of keys and values, and tables converted to a schema without loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.key_strategies import key_types
from support.properties import few_or_many

from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.values.types import (
    RESERVED_COLUMNS,
    TIME,
    make_schema,
    parse_type,
    schema_from_json,
    schema_to_json,
    shown_type,
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
    assert shown_type(kind) == "struct<`a b`:void,l:array<time>,m:map<string,halffloat>>"
    assert shown_type(pa.month_day_nano_interval()) == "interval"
    assert shown_type(pa.decimal128(5, 1)) == type_name(pa.decimal128(5, 1))

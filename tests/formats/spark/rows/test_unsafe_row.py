"""UnsafeRows of every type against a model that writes them one by one, and rows that were tampered with."""

from __future__ import annotations

import decimal
import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints.spark_state_fixtures import plain
from support.checkpoints.unsafe_row_model import row_bytes
from support.rocksdb.compiled_loops import compiled_or_not  # noqa: F401

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.spark.checkpoint.spark_schema import (
    BINARY,
    STRING,
    ArrayOf,
    DecimalOf,
    Field,
    MapOf,
    Plain,
    SparkType,
    StructOf,
    parse_schema,
)
from statestore.formats.spark.rows.unsafe_row import decode_rows

pytestmark = pytest.mark.usefixtures("compiled_or_not")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def schema_of(*kinds: Any) -> StructOf:
    fields = [
        {"name": f"c{number}", "type": kind, "nullable": True, "metadata": {}} for number, kind in enumerate(kinds)
    ]
    return parse_schema(json.dumps({"type": "struct", "fields": fields}))


def decoded(rows: list[tuple[Any, ...]], schema: StructOf) -> pa.StructArray:
    return decode_rows(cells_of(pa.array([row_bytes(row, schema) for row in rows], pa.binary())), schema)


def array_of(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


POINT = {"type": "struct", "fields": [{"name": name, "type": "integer", "nullable": True} for name in ("x", "y")]}
CASES: list[tuple[Any, list[Any], list[Any] | None]] = [
    ("boolean", [True, False], [True, False]),
    ("byte", [-128, 127], [-128, 127]),
    ("short", [-(2**15), 2**15 - 1], [-(2**15), 2**15 - 1]),
    ("integer", [-(2**31), 2**31 - 1], [-(2**31), 2**31 - 1]),
    ("long", [-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
    ("float", [0.5, float("-inf")], [0.5, float("-inf")]),
    ("double", [1e300, -0.0], [1e300, -0.0]),
    ("date", [0, -1], [date(1970, 1, 1), date(1969, 12, 31)]),
    ("timestamp", [1, -1], [EPOCH + timedelta(microseconds=1), EPOCH - timedelta(microseconds=1)]),
    ("timestamp_ntz", [1_000_000], [datetime(1970, 1, 1, 0, 0, 1)]),
    ("interval day to second", [-1_000_000], [timedelta(seconds=-1)]),
    ("interval year to month", [14], [14]),
    ("interval", [(1, -2, 3)], [pa.MonthDayNano([1, -2, 3000])]),
    ("string", ["", "é" * 9, "x\0y"], ["", "é" * 9, "x\0y"]),
    ("string collate UNICODE_CI", ["a"], ["a"]),
    ("varchar(9)", ["a"], ["a"]),
    ("binary", [b"", b"\xff\x00"], [b"", b"\xff\x00"]),
    ("decimal(9,2)", [Decimal("-1.25")], [Decimal("-1.25")]),
    ("decimal(38,5)", [Decimal(-(10**38 - 1)).scaleb(-5, decimal.Context(prec=60))], None),
    ("decimal(30,0)", [Decimal(v) for v in (0, 127, 128, -128, -129, 10**29)], None),
    ("variant", [(b"\x0c\x01", b"\x01\x00\x00")], [{"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}]),
    (array_of("short"), [[], [1, None, 3] * 30], [[], [1, None, 3] * 30]),
    (array_of("decimal(20,1)"), [[Decimal("1.5"), None]], [[Decimal("1.5"), None]]),
    (array_of(array_of("string")), [[["a", None], None, []]], [[["a", None], None, []]]),
    (POINT, [(1, None), (None, 2)], [{"x": 1, "y": None}, {"x": None, "y": 2}]),
    (array_of(POINT), [[(1, 2), None]], [[{"x": 1, "y": 2}, None]]),
    (map_of("string", "long"), [[], [("a", 1), ("b", None)]], [[], [("a", 1), ("b", None)]]),
    (map_of("integer", map_of("string", "boolean")), [[(1, [("a", True)])]], [[(1, [("a", True)])]]),
    ({"type": "udt", "class": "c", "pyClass": None, "sqlType": array_of("double")}, [[0.5]], [[0.5]]),
]


@pytest.mark.parametrize(("kind", "values", "expected"), CASES, ids=[str(case[0])[:60] for case in CASES])
def test_every_type_with_nulls_between(kind: Any, values: list[Any], expected: list[Any] | None) -> None:
    schema = schema_of("long", kind, "void", "string")
    rows = [row for value in values for row in ((1, value, None, "s"), (None, None, None, None))]
    found = decoded(rows, schema)
    found.validate(full=True)
    wanted = [each for value in expected or values for each in (value, None)]
    assert found.field(1).to_pylist() == wanted
    assert found.field(0).to_pylist() == [1, None] * len(values)
    assert found.field(3).to_pylist() == ["s", None] * len(values)
    assert found.field(2).null_count == len(rows)


def test_more_fields_than_a_word_of_null_bits() -> None:
    schema = schema_of(*["integer"] * 130)
    row = tuple(None if number % 3 == 0 else number for number in range(130))
    assert list(decoded([row], schema)[0].as_py().values()) == list(row)


def test_a_row_without_fields() -> None:
    assert decoded([(), ()], schema_of()).to_pylist() == [{}, {}]


def test_names_may_repeat() -> None:
    schema = StructOf((Field("sum", STRING), Field("sum", STRING)))
    assert plain(decoded([("a", "b")], schema)) == [("a", "b")]


def test_bytes_that_are_not_text_are_shown_as_such() -> None:
    binary, text = StructOf((Field("c", BINARY),)), StructOf((Field("c", STRING),))
    rows = pa.array([row_bytes((b"a\xff",), binary), row_bytes((None,), binary)], pa.binary())
    assert decode_rows(cells_of(rows), text).field(0).to_pylist() == ["a�", None]


def test_a_slice_of_rows_is_read_from_its_own_start() -> None:
    schema = schema_of("string", "long")
    rows = pa.array([row_bytes((f"k{n}", n), schema) for n in range(9)], pa.binary())
    assert decode_rows(cells_of(rows.slice(4, 3)), schema).field(0).to_pylist() == ["k4", "k5", "k6"]


LEAVES: list[SparkType] = [STRING, BINARY, DecimalOf(12, 3), DecimalOf(25, 3), Plain("short", pa.int16(), "<i2")]
kinds: st.SearchStrategy[SparkType] = st.recursive(
    st.sampled_from([*LEAVES, Plain("long", pa.int64(), "<i8")]),
    lambda inner: (
        st.builds(ArrayOf, inner)
        | st.builds(MapOf, st.just(STRING), inner)
        | st.lists(inner, min_size=1, max_size=3).map(lambda ks: StructOf(tuple(Field("f", k) for k in ks)))
    ),
    max_leaves=5,
)


def value_of(kind: SparkType, rng: random.Random) -> Any:
    """A random value, as the model takes it."""
    if rng.random() < 0.2:
        return None
    if kind is STRING:
        return "é" * rng.randrange(9)
    if kind is BINARY:
        return rng.randbytes(rng.randrange(20))
    if isinstance(kind, DecimalOf):
        return Decimal(rng.randrange(-(10**kind.precision) + 1, 10**kind.precision)).scaleb(-kind.scale)
    if isinstance(kind, ArrayOf):
        return [value_of(kind.element, rng) for _ in range(rng.randrange(4))]
    if isinstance(kind, MapOf):
        return [(f"k{number}", value_of(kind.value, rng)) for number in range(rng.randrange(4))]
    if isinstance(kind, StructOf):
        return tuple(value_of(field.type, rng) for field in kind.fields)
    return rng.randrange(-30000, 30000)


def hashable(value: Any) -> Any:
    return tuple(hashable(each) for each in value) if isinstance(value, list | tuple) else value


@settings(deadline=None, max_examples=40)
@given(st.lists(kinds, min_size=1, max_size=4), st.integers(0, 20), st.randoms(use_true_random=False))
def test_random_schemas_are_read_back(types: list[SparkType], rows: int, rng: random.Random) -> None:
    schema = StructOf(tuple(Field("c", kind) for kind in types))
    values = [tuple(value_of(kind, rng) for kind in types) for _ in range(rows)]
    found = decoded(values, schema)
    found.validate(full=True)
    assert plain(found) == [hashable(row) for row in values]


@settings(deadline=None, max_examples=60)
@given(st.lists(kinds, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_tampered_rows_are_refused_or_stay_valid(types: list[SparkType], rng: random.Random) -> None:
    schema = StructOf(tuple(Field("c", kind) for kind in types))
    rows = [bytearray(row_bytes(tuple(value_of(kind, rng) for kind in types), schema)) for _ in range(4)]
    for _ in range(rng.randrange(1, 4)):
        row = rng.choice(rows)
        at = rng.randrange(len(row))
        row[at] = rng.choice([0, 0x7F, 0x80, 0xFF, row[at] ^ (1 << rng.randrange(8))])
        if rng.random() < 0.1:
            del row[at:]
            row += b"\0"
    try:
        found = decode_rows(cells_of(pa.array([bytes(row) for row in rows], pa.binary())), schema)
    except CorruptError as error:
        assert error.code == "SPARK_STATE_ROW"
    else:
        found.validate()
        assert len(found) == 4


def test_values_that_overlap_are_refused_before_they_multiply() -> None:
    """Each element of an array claims all of it: nested, that would grow with the power of the depth."""
    kind = array_of(array_of(array_of("long")))
    schema = schema_of(kind)
    row = bytearray(row_bytes(([[[0] * 60]] * 30,), schema))
    for slot in range(30):
        at = 16 + 8 + 8 + 8 * slot
        row[at : at + 8] = np.array([len(row) - 16 - 240, 240], "<u4").tobytes()
    with pytest.raises(CorruptError, match="SPARK_STATE_ROW"):
        decode_rows(cells_of(pa.array([bytes(row)], pa.binary())), schema)


@pytest.mark.parametrize("kind", ["tensor(4326)", {"type": "cube"}, "decimal(39,2)", "object"])
def test_types_that_are_not_known_are_named(kind: Any) -> None:
    with pytest.raises(UnsupportedError, match="SPARK_STATE_UNSUPPORTED"):
        schema_of(kind)


@pytest.mark.parametrize(
    "text", ["", "7", "[]", '{"type":"struct"}', '"long"', "{" * 5000, '{"type":"struct","fields":[1]}']
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(CorruptError, match="SPARK_STATE_ROW"):
        parse_schema(text)

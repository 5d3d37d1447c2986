"""Values of every type of Spark, as `unsafe_row_model` takes them, and random schemas with values for them."""

from __future__ import annotations

import decimal
import json
import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from statestore.formats.spark.checkpoint.spark_schema import (
    BINARY,
    CALENDAR_INTERVAL,
    SPATIAL,
    STRING,
    TIME,
    VARIANT,
    ArrayOf,
    DecimalOf,
    Field,
    MapOf,
    Plain,
    SparkType,
    StructOf,
    named_type,
    parse_schema,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def schema_of(*kinds: Any) -> StructOf:
    fields = [
        {"name": f"c{number}", "type": kind, "nullable": True, "metadata": {}} for number, kind in enumerate(kinds)
    ]
    return parse_schema(json.dumps({"type": "struct", "fields": fields}))


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


PLAIN_NAMES = (
    *("boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz"),
    *("string", "binary", "variant", "interval", "time(6)"),
)
EVERY_LEAF = [*map(named_type, PLAIN_NAMES), DecimalOf(18, 3), DecimalOf(19, 0), DecimalOf(38, 5), SPATIAL]
every_kind: st.SearchStrategy[SparkType] = st.recursive(
    st.sampled_from(EVERY_LEAF),
    lambda inner: (
        st.builds(ArrayOf, inner)
        | st.builds(MapOf, st.just(STRING), inner)
        | st.lists(inner, max_size=3).map(lambda ks: StructOf(tuple(Field("f", k) for k in ks)))
    ),
    max_leaves=5,
)
_LIMITS = {"<u1": (0, 1), "<i1": (-128, 127), "<i2": (-(2**15), 2**15 - 1), "<i4": (-(2**31), -1)}


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
    if kind is CALENDAR_INTERVAL:
        return rng.randrange(-99, 99), rng.randrange(-99, 99), rng.randrange(-(2**50), 2**50)
    if kind is VARIANT:
        return rng.randbytes(rng.randrange(9)), rng.randbytes(rng.randrange(1, 9))
    if kind is SPATIAL:
        return rng.choice((0, 4326)), rng.randbytes(rng.randrange(30))
    assert isinstance(kind, Plain) and kind.form is not None
    if kind.form[1] == "f":
        return rng.choice((0.0, -0.0, 1.5, -2.25, math.inf))
    if kind == TIME:
        return rng.randrange(86_400_000_000_000)
    return rng.choice(
        (*_LIMITS.get(kind.form, (-30000, 30000)), rng.randrange(-30000, 30000) if kind.form == "<i8" else 1)
    )

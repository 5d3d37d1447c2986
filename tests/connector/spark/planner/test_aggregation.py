"""Partial aggregates of tasks, aggregated once more as Spark does it, are what plain Python computes from the rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC
from decimal import Decimal
from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from support.properties import few_or_many

from statestore.connector.spark.planner.aggregation import (
    Aggregate,
    Aggregation,
    Function,
    partial_rows,
    result_schema,
)
from statestore.connector.spark.planner.read_plan import Order, limited, top_rows
from statestore.connector.spark.schema import arrow_schema

LEAST, MOST = -(1 << 63), (1 << 63) - 1
KINDS: dict[str, DataType] = {
    "text": StringType(),
    "flag": BooleanType(),
    "tiny": ByteType(),
    "number": IntegerType(),
    "big": LongType(),
    "single": FloatType(),
    "double": DoubleType(),
    "money": DecimalType(6, 2),
    "wide": DecimalType(28, 2),
    "raw": BinaryType(),
    "day": DateType(),
    "moment": TimestampType(),
}
SCHEMA = StructType([StructField(name, kind) for name, kind in KINDS.items()])
FLOATS = st.sampled_from([0.0, -0.0, 1.5, -2.25, math.inf, math.nan])
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.sampled_from(["", "a", "A", "é", "\U0001f389", "�", "a\0"]),
    "flag": st.booleans(),
    "tiny": st.integers(-128, 127),
    "number": st.sampled_from([-(1 << 31), -1, 0, 7, (1 << 31) - 1]),
    "big": st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, 1 << 62, MOST - 1, MOST]),
    "single": FLOATS,
    "double": FLOATS,
    "money": st.integers(-999_999, 999_999).map(lambda cents: Decimal(cents).scaleb(-2)),
    "wide": st.sampled_from([Decimal("9" * 26 + ".99"), Decimal("-" + "9" * 26 + ".98"), Decimal("0.01"), Decimal(0)]),
    "raw": st.sampled_from([b"", b"\0", b"\x7f", b"\xff"]),
    "day": st.dates(),
    "moment": st.datetimes(timezones=st.just(UTC)),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=12)
GROUPS = [name for name in KINDS if name not in ("single", "double")]
SUMMED = ["tiny", "number", "big", "single", "double", "money", "wide"]
FUNCTIONS = [Aggregate("rows")]
FUNCTIONS += [Aggregate(name, column) for name in ("count", "min", "max") for column in KINDS]
FUNCTIONS += [Aggregate("sum", column) for column in SUMMED]


def batches_of(rows: list[dict[str, Any]], cuts: list[int]) -> list[pa.RecordBatch]:
    whole = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(SCHEMA))
    edges = [0, *sorted(cut % (len(rows) + 1) for cut in cuts), len(rows)]
    return [whole.slice(start, end - start) for start, end in pairwise(edges)]


def exact(value: Any) -> Any:
    """The value with NaN and the zeros of floats equal to themselves."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def order(value: Any) -> Any:
    """Spark's order: NaN after all numbers."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def aggregated(function: Function, found: list[Any]) -> Any:
    """One function in plain Python over the values of a group; ``rows`` counts nulls, too."""
    if function == "rows":
        return len(found)
    values = [value for value in found if value is not None]
    if function == "count":
        return len(values)
    if not values:
        return None
    if function == "sum":
        if isinstance(values[0], float):
            return math.nan if any(map(math.isnan, values)) else sum(values)
        total = sum(int(value.scaleb(2)) if isinstance(value, Decimal) else value for value in values)
        return (Decimal, total) if isinstance(values[0], Decimal) else total
    pick: Callable[..., Any] = min if function == "min" else max
    return pick(values, key=order)


def once_more(function: Function, partial: list[Any]) -> Any:
    """What Spark does with partial results: the sum of numbers of rows, the same function of all others."""
    if function in ("rows", "count"):
        return sum(partial)
    return aggregated(function, partial)


def grouped(rows: list[dict[str, Any]], names: tuple[str, ...]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in rows:
        found[tuple(row[name] for name in names)].append(row)
    return found if names else {(): rows}


@few_or_many(
    25,
    1000,
    rows=ROWS,
    cuts=st.lists(st.integers(0, 12), max_size=3),
    groups=st.lists(st.sampled_from(GROUPS), max_size=2, unique=True),
    functions=st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=6),
)
def test_any_cutting_of_the_rows_gives_the_whole(
    rows: list[dict[str, Any]], cuts: list[int], groups: list[str], functions: list[Aggregate]
) -> None:
    aggregation = Aggregation(tuple(groups), tuple(functions))
    result = result_schema(aggregation, SCHEMA)
    if {"count", "sum"} <= {item.function for item in functions if item.column == "big"}:
        assert result is None  # Spark may mean an average of integers, which it computes from doubles
        return
    assert result is not None
    width = len(groups)
    batches = list(partial_rows(batches_of(rows, cuts), aggregation, result))
    assert all(batch.schema == arrow_schema(result) for batch in batches)
    assert groups or sum(batch.num_rows for batch in batches) >= 1
    partial = [tuple(line) for batch in batches for line in zip(*(c.to_pylist() for c in batch.columns), strict=True)]
    lines = defaultdict(list)
    for line in partial:
        lines[line[:width]].append(line[width:])
    wanted = grouped(rows, tuple(groups))
    assert lines.keys() == wanted.keys()
    for key, found in lines.items():
        for position, item in enumerate(functions):
            theirs = [row if item.column is None else row[item.column] for row in wanted[key]]
            ours = once_more(item.function, [line[position] for line in found])
            expected = aggregated(item.function, theirs)
            assert exact(ours) == exact(expected), (item, key)


NESTED = StructType([StructField("s", StructType([StructField("in", SCHEMA), StructField("n", LongType())]))])


@few_or_many(
    25,
    500,
    rows=ROWS,
    lost=st.lists(st.sampled_from(["", "s", "in"]), min_size=12, max_size=12),
    cut=st.integers(0, 12),
    functions=st.lists(st.sampled_from(FUNCTIONS), min_size=1, max_size=4),
)
def test_fields_inside_structs_are_aggregated_as_columns_are(
    rows: list[dict[str, Any]], lost: list[str], cut: int, functions: list[Aggregate]
) -> None:
    """A field of a struct that is null is null."""
    inside = tuple(
        item if item.column is None else Aggregate(item.function, "s", ("in", item.column)) for item in functions
    )
    aggregation = Aggregation((), inside)
    result = result_schema(aggregation, NESTED)
    if {"count", "sum"} <= {item.function for item in functions if item.column == "big"}:
        assert result is None
        return
    assert result is not None
    whole = [
        {"s": None if left == "s" else {"in": None if left == "in" else row, "n": 1}}
        for row, left in zip(rows, lost, strict=False)
    ]
    batch = pa.RecordBatch.from_pylist(whole, schema=arrow_schema(NESTED))
    parts = [batch.slice(0, cut), batch.slice(min(cut, len(rows)))]
    found = pa.Table.from_batches(partial_rows(parts, aggregation, result)).columns
    for item, column in zip(functions, found, strict=True):
        theirs = [
            row if item.column is None else None if left else row[item.column]
            for row, left in zip(rows, lost, strict=False)
        ]
        ours = once_more(item.function, column.to_pylist())
        assert exact(ours) == exact(aggregated(item.function, theirs)), item


def test_sums_that_their_type_does_not_hold_arrive_in_parts() -> None:
    """Spark casts a partial sum to the type of the column."""
    for kind, value in ((LongType(), MOST), (DecimalType(28, 2), Decimal("9" * 26 + ".99"))):
        schema = StructType([StructField("v", kind), StructField("g", IntegerType())])
        batch = pa.RecordBatch.from_pylist([{"v": value, "g": 1}] * 1000, schema=arrow_schema(schema))
        for groups in ((), ("g",)):
            aggregation = Aggregation(groups, (Aggregate("sum", "v"), Aggregate("rows"), Aggregate("max", "v")))
            result = result_schema(aggregation, schema)
            assert result is not None and result[len(groups)].dataType == kind
            found = pa.Table.from_batches(partial_rows([batch, batch], aggregation, result)).to_pylist()
            scale = 100 if isinstance(value, Decimal) else 1
            assert sum(int(row["sum_0"] * scale) for row in found) == 2000 * int(value * scale)
            assert sum(row["rows_1"] for row in found) == 2000
            assert max(row["max_2"] for row in found if row["max_2"] is not None) == value


@pytest.mark.parametrize("kind", [DecimalType(29, 0), StringType("UTF8_LCASE"), StructType()])
def test_what_is_not_exact_here_is_left_to_spark(kind: DataType) -> None:
    schema = StructType([StructField("v", kind)])
    assert result_schema(Aggregation((), (Aggregate("sum", "v"),)), schema) is None
    for groups in ((), ("v",)):
        if groups or not isinstance(kind, DecimalType):
            aggregation = Aggregation(groups, (Aggregate("max", "v"),))
            assert isinstance(kind, DecimalType) or result_schema(aggregation, schema) is None


ORDERS = st.builds(Order, st.sampled_from(list(KINDS)), st.booleans(), st.booleans())


@few_or_many(
    25,
    1000,
    rows=ROWS,
    cuts=st.lists(st.integers(0, 12), max_size=3),
    orders=st.lists(ORDERS, min_size=1, max_size=3),
    limit=st.integers(0, 13),
)
def test_first_rows_are_those_of_a_sort(
    rows: list[dict[str, Any]], cuts: list[int], orders: list[Order], limit: int
) -> None:
    expected = list(rows)
    for each in reversed(orders):
        values = [row for row in expected if row[each.column] is not None]
        nulls = [row for row in expected if row[each.column] is None]
        values.sort(key=lambda row, name=each.column: order(row[name]), reverse=each.descending)  # type: ignore[misc]
        expected = nulls + values if each.nulls_first else values + nulls
    batches = list(top_rows(batches_of(rows, cuts), tuple(orders), limit))
    found = [row for batch in batches for row in batch.to_pylist()]

    def compared(row: dict[str, Any]) -> list[Any]:
        return [exact(row[each.column]) for each in orders]

    assert [compared(row) for row in found] == [compared(row) for row in expected[:limit]]
    given = [[exact(row[name]) for name in KINDS] for row in rows]
    assert all([exact(row[name]) for name in KINDS] in given for row in found)
    assert sum(batch.num_rows for batch in limited(batches_of(rows, cuts), limit)) == min(limit, len(rows))

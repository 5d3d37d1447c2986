"""Predicates that DuckDB offers to a source: those on keys that a filter expresses exactly, and no others."""

from __future__ import annotations

import datetime
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from duckdb._sources.nodes import Binary, Col, In, Lit, Node, Postfix, Unary

from statestore.connector.duckdb.scan_source import key_filters
from statestore.formats.values.filters import Filter

TIME = pa.timestamp("us", "UTC")
KEYS = pa.schema(
    [
        ("s", pa.string()),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("t", TIME),
        ("r", pa.struct([("n", pa.int32())])),
        ("p", pa.struct([("a", pa.int32()), ("b", pa.int32())])),
    ]
)
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)


def col(*parts: str) -> Col:
    return Col(parts)


def equal(value: int, *parts: str) -> Node:
    return Binary("=", col(*parts), Lit(value, "BIGINT" if parts == ("n",) else "INTEGER"))


def either(*parts: Node) -> Node:
    return reduce(lambda left, right: Binary("OR", left, right), parts)


def both(left: Node, right: Node) -> Node:
    return Binary("AND", left, right)


PAIRS = Filter("p", "in", ((1, 2), (4, 3)))


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Binary("=", col("s"), Lit("a", "VARCHAR")), Filter("s", "=", "a")),
        (Binary(">=", col("n"), Lit(3, "BIGINT")), Filter("n", ">=", 3)),
        (Binary("!=", col("n"), Lit(3, "BIGINT")), Filter("n", "!=", 3)),
        (Binary("=", col("t"), Lit(1_714_564_800_000_000, "TIMESTAMP WITH TIME ZONE")), Filter("t", "=", NOON)),
        (Binary("<", col("r", "n"), Lit(3, "INTEGER")), Filter("r", "<", 3, ("n",))),
        (In(col("s"), [Lit("a", "VARCHAR"), Lit("b", "VARCHAR")]), Filter("s", "in", ("a", "b"))),
        (Postfix("IS NULL", col("s")), Filter("s", "is_null")),
        (Postfix("IS NOT NULL", col("r", "n")), Filter("r", "is_not_null", path=("n",))),
        (Binary("=", col("f"), Lit(1.5, "DOUBLE")), Filter("f", "=", 1.5)),
        (Binary(">", col("f"), Lit(1.5, "DOUBLE")), None),  # NaN is greater for DuckDB
        (In(col("f"), [Lit(0.0, "DOUBLE")]), Filter("f", "in", (0.0,))),  # -0.0 is equal for both
        (either(equal(1, "n"), In(col("n"), [Lit(3, "BIGINT")]), equal(2, "n")), Filter("n", "in", (1, 3, 2))),
        (either(equal(1, "n"), equal(1, "r", "n")), None),
        (either(equal(1, "n"), Postfix("IS NULL", col("n"))), None),
        (either(both(equal(1, "p", "a"), equal(2, "p", "b")), both(equal(3, "p", "b"), equal(4, "p", "a"))), PAIRS),
        (either(both(equal(1, "p", "a"), equal(2, "p", "b")), equal(3, "p", "a")), None),
        (either(both(equal(1, "p", "a"), equal(2, "p", "a")), both(equal(1, "p", "a"), equal(2, "p", "b"))), None),
        (Binary("=", col("f"), Lit(float("nan"), "DOUBLE")), None),
        (In(col("s"), [Lit(None, "VARCHAR")]), None),
        (Binary("=", col("price"), Lit(1, "BIGINT")), None),
        (Postfix("IS NULL", col("price")), None),
        (Binary("=", col("r", "other"), Lit(1, "INTEGER")), None),
        (Unary("NOT", Binary("=", col("s"), Lit("a", "VARCHAR"))), None),
        (Binary("OR", Postfix("IS NULL", col("s")), Postfix("IS NULL", col("n"))), None),
    ],
)
def test_a_predicate_is_a_filter_with_its_meaning_or_none(predicate: Node, expected: Any) -> None:
    assert key_filters(predicate, KEYS) == (None if expected is None else (expected,))


def test_comparisons_that_all_must_hold_are_filters_or_none_of_them_is() -> None:
    within = both(Binary(">=", col("n"), Lit(2, "BIGINT")), Binary("<=", col("n"), Lit(4, "BIGINT")))
    assert key_filters(within, KEYS) == (Filter("n", ">=", 2), Filter("n", "<=", 4))
    assert key_filters(both(within, equal(1, "price")), KEYS) is None


def test_a_list_of_any_length_is_read() -> None:
    found = key_filters(either(*(equal(number, "n") for number in range(5000))), KEYS)
    assert found == (Filter("n", "in", tuple(range(5000))),)

"""Predicates that DuckDB offers to a source: those on keys that a filter expresses exactly, and no others."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from duckdb._sources.nodes import Binary, Col, In, Lit, Node, Postfix, Unary

from statestore.connector.duckdb.scan_source import key_filter
from statestore.formats.values.filters import Filter

TIME = pa.timestamp("us", "UTC")
KEYS = pa.schema(
    [("s", pa.string()), ("n", pa.int64()), ("f", pa.float64()), ("t", TIME), ("r", pa.struct([("n", pa.int32())]))]
)
NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)


def col(*parts: str) -> Col:
    return Col(parts)


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
        (In(col("f"), [Lit(0.0, "DOUBLE")]), None),  # -0.0 is equal for DuckDB
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
    assert key_filter(predicate, KEYS) == expected

"""Keys of Flink SQL with both zeros, NaNs of two bits and nanoseconds: looked up, followed and joined one by one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from support.command_line import run
from support.flink.fixtures import SQL_KEYS, fixture

import statestore
from statestore.catalog.reads.table import Table
from statestore.formats.values.filters import Filter, parse_filters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = "GroupAggregate[5].accState"  # SELECT k_double, COUNT(*), MAX(k_time3) … GROUP BY k_double
DISTINCT = "GroupAggregate[11].accState"  # SELECT … GROUP BY k_ltz9, k_row
NEWEST = "Deduplicate[17].deduplicate-state"  # a row of a float, a LTZ(9), a duration and a map of doubles by k_float
# Rows of each key, by its bits, when each savepoint was taken: as the source of the job counted them.
OLD = {0: 3, 1: 3, 0x3FF8 << 48: 10, 0x7FF8 << 48: 3, 0x8000 << 48: 2, 0xFFF0 << 48: 1, 0xFFF8 << 48: 2}
NEW = {0: 7, 1: 3, 0x3FF8 << 48: 13, 0x7FF8 << 48: 7, 0x8000 << 48: 11, 0xFFF0 << 48: 5, 0xFFF8 << 48: 10}
AFTER = datetime(2026, 1, 1, 1, tzinfo=UTC)


def table(name: str) -> Table:
    return statestore.inspect(fixture(SQL_KEYS)).table(name)


def numbers(bits: Any) -> Any:
    return np.array(list(bits), np.uint64).view(np.float64)


def doubles(bits: Any) -> pa.Table:
    """Left rows with one key each, all of the same time."""
    keys = pa.StructArray.from_arrays([pa.array(numbers(bits))], names=["f0"])
    return pa.table({"k": keys, "t": pa.array([AFTER] * len(keys), pa.timestamp("us", "UTC"))})


@pytest.mark.quick("0", "9223372036854775808")
@pytest.mark.parametrize("bits", [key for key in NEW if np.isfinite(numbers([key])[0])])
def test_each_zero_is_a_key_of_its_own(bits: int) -> None:
    key = {"f0": float(numbers([bits])[0])}
    found = table(COUNTS).get({"key": key})
    assert found is not None and found["value"]["f0"] == NEW[bits]
    history = table(COUNTS).history(key={"key": key}).read_all().sort_by("_commit_version").to_pylist()
    counts = [OLD[bits], NEW[bits]] if OLD[bits] != NEW[bits] else [NEW[bits]]
    assert sorted(row["value"]["f0"] for row in history) == counts
    for text in (f'{{"f0": {key["f0"]!r}}}', repr(key["f0"])):
        asked = run("get", str(fixture(SQL_KEYS)), COUNTS, text, "--json")
        assert [row["value"]["f0"] for row in asked.rows] == [NEW[bits]]


def test_a_filter_finds_both_zeros_and_every_nan() -> None:
    for value, expected in ((0.0, [7, 11]), (float("nan"), [7, 10])):
        rows = table(COUNTS).scan(filter=("key", "=", {"f0": value})).read_all()
        assert sorted(row["f0"] for row in rows["value"].to_pylist()) == expected
    with pytest.raises(statestore.InvalidInputError, match=r"WRONG_KEY.*several rows"):
        table(COUNTS).get({"key": {"f0": float("nan")}})
    given = ("key", "is", {"f0": 0.0})
    assert parse_filters(given) == (Filter("key", "=", {"f0": 0.0}, exact=True),)
    assert parse_filters(("key", "is", None)) == (Filter("key", "is_null"),)
    assert table(COUNTS).scan(filter=given).read_all().num_rows == 1


@pytest.mark.parametrize("engine", ["arrow", "duckdb"])
def test_a_join_meets_the_key_of_the_same_bits(engine: str) -> None:
    left = doubles([*NEW, 0x7FF8 << 48 | 1])  # the last one is a NaN that no key is
    found = statestore.asof_join(left, table(COUNTS), on={"k": "key"}, left_time="t", how="left", engine=engine)
    assert [row and row["f0"] for row in found["value"].to_pylist()] == [*NEW.values(), None]
    none = statestore.asof_join(left[:0], table(COUNTS), on={"k": "key"}, left_time="t", how="left", engine=engine)
    assert none.schema == found.schema and none.num_rows == 0


def test_joined_values_that_duckdb_lacks_are_those_of_the_table() -> None:
    rows = table(NEWEST).scan().read_all()
    left = rows.select(["key"]).append_column("t", pa.array([AFTER] * len(rows), pa.timestamp("us", "UTC")))
    on: dict[str, Any] = {"on": "key", "left_time": "t", "columns": ["value"], "engine": "duckdb"}
    joined = statestore.asof_join(left, table(NEWEST), **on)
    assert str(joined["value"].to_pylist()) == str(rows["value"].to_pylist())  # in a text, NaN is NaN


def test_keys_with_nanoseconds_and_a_zone() -> None:
    keys = table(DISTINCT).scan(columns=["key"]).read_all()["key"].combine_chunks()
    assert keys.type.field("f0").type == pa.timestamp("ns", "UTC")
    for zero in (0.0, -0.0):
        key = {"f0": np.datetime64("2023-11-14T22:13:20.999999999"), "f1": {"x": zero, "y": "a"}}
        found = table(DISTINCT).get({"key": key})
        assert found is not None and str(found["key"]["f1"]["x"]) == str(zero)
        assert table(DISTINCT).history(key={"key": key}).read_all()["key"].to_pylist()[0] == found["key"]
    moment = np.datetime64("1969-12-31T23:59:59.000000001")
    rows = table(DISTINCT).scan(filter=("key.f0", "in", [moment])).read_all()
    assert rows.num_rows == table(DISTINCT).scan(filter=("key.f0", "=", moment)).read_all().num_rows > 0


@pytest.mark.slow
def test_a_join_in_spark_meets_the_key_of_the_same_bits(spark: SparkSession) -> None:
    left = spark.createDataFrame(doubles(NEW).append_column("n", pa.array(list(NEW.values()))))
    found = statestore.asof_join(left, table(COUNTS), on={"k": "key"}, left_time="t", columns=["value"])
    assert sorted((row.n, row.value.f0) for row in found.collect()) == sorted((n, n) for n in NEW.values())

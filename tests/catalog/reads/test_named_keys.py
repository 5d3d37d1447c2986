"""Keys as users name them: the columns that a spelling means, and zeros and NaN as the engine that wrote them has them.

``tests/data/spark/zeros.tar.xz`` holds checkpoints of Spark 4.3.0 whose keys were -0.0, 0.0, 1.5 and NaN in this order:
``deduplicated`` (of -0.0 alone) and ``joined``, in which Spark stored 0.0, and ``grouped``, by
``applyInPandasWithState``, in which it grouped both zeros and stored the first one.
"""

from __future__ import annotations

import math
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.flink.fixtures import fixture
from support.paths import DATA

import statestore
from statestore.catalog.reads.arguments import key_filters
from statestore.catalog.reads.table import Table
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.values.canonical import ErrorPath
from statestore.formats.values.comparison import same_key
from statestore.formats.values.filters import Filter, key_lookups, with_both_zeros, with_whole_structs


@pytest.fixture(scope="module")
def zeros(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zeros")
    with tarfile.open(DATA / "spark" / "zeros.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.parametrize(
    ("query", "state", "asked", "found"),
    [
        ("deduplicated", "state", -0.0, "0.0"),
        ("deduplicated", "state", 0.0, "0.0"),
        ("grouped", "state", -0.0, "-0.0"),
        ("grouped", "state", 0.0, None),
        ("grouped", "state", math.nan, "nan"),
        ("grouped", "state", 1.5, "1.5"),
    ],
)
def test_zeros_are_one_key_where_spark_makes_them_one(
    zeros: Path, query: str, state: str, asked: float, found: str | None
) -> None:
    table = statestore.inspect(zeros / query).table(state)
    for key in (asked, (asked,), {"k": asked}, {"key": {"k": asked}}):
        row = table.get(key)
        assert (None if row is None else repr(row["key"]["k"])) == found
        history = table.history(key=key).read_all().column("key").to_pylist()
        assert [repr(each["k"]) for each in history] == ([] if found is None else [found])


def test_zeros_are_one_key_of_a_join(zeros: Path) -> None:
    left = statestore.inspect(zeros / "joined").table("left")
    for asked in (0.0, -0.0):
        rows = left.history(key=asked).read_all().column("value").to_pylist()
        assert sorted(repr(row["k"]) for row in rows) == ["-0.0", "0.0"]


@pytest.mark.parametrize("engine", ["arrow", "duckdb"])
@pytest.mark.parametrize(("query", "met"), [("deduplicated", ["0.0", "0.0"]), ("grouped", ["-0.0", None])])
def test_a_join_has_one_zero_where_spark_has(zeros: Path, engine: str, query: str, met: list[str | None]) -> None:
    table = statestore.inspect(zeros / query).table("state")
    keys = pa.array([{"k": -0.0}, {"k": 0.0}])
    left = pa.table({"k": keys, "t": pa.array([datetime.now(UTC)] * 2, pa.timestamp("us", "UTC"))})
    on = {"k": "key"}
    rows = statestore.asof_join(
        left, table, on=on, left_time="t", how="left", columns=["key"], prefix="met ", engine=engine
    )
    assert [row and repr(row["k"]) for row in rows["met key"].to_pylist()] == met


DOUBLES = pa.struct([("a", pa.float64()), ("b", pa.list_(pa.float32()))])


@pytest.mark.parametrize(
    ("kind", "values", "key", "same"),
    [
        (pa.float64(), [0.0, -0.0, math.nan, None], 0.0, [True, False, False, False]),
        (pa.float32(), [0.0, -0.0, math.nan, None], -0.0, [False, True, False, False]),
        (pa.float64(), [0.0, -0.0, math.nan, None], math.nan, [False, False, True, False]),
        (DOUBLES, [{"a": 0.0, "b": [-0.0]}, {"a": 0.0, "b": [0.0]}, None], (0.0, [-0.0]), [True, False, False]),
        (DOUBLES, [{"a": None, "b": [math.nan]}, {"a": 0.0, "b": None}], (None, [math.nan]), [True, False]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1), ("b", 2)], [("a", 1)], None], {"b": 2, "a": 1}, [1, 0, 0]),
        (pa.int64(), [0, 1, None], 0, [True, False, False]),
    ],
)
def test_equality_of_keys_is_that_of_bits_with_one_nan(kind: pa.DataType, values: Any, key: Any, same: Any) -> None:
    found = same_key(pa.array(values, kind), key, ErrorPath(ErrorCode.WRONG_KEY, "key", kind))
    assert found.to_pylist() == list(map(bool, same))


def test_a_lookup_of_a_zero_looks_for_both() -> None:
    kinds = [pa.struct([("a", pa.float64()), ("n", pa.int64())])]
    found = with_both_zeros(key_lookups([Filter("key", "=", {"n": 0, "a": 0})], ("key",)), kinds)
    assert repr(found) == "[((0.0, 0),), ((-0.0, 0),)]"
    assert with_both_zeros([("text",)], [pa.float64()]) is None
    assert with_both_zeros([(7,)], [pa.int64()]) == [(7,)]


def test_structs_in_a_list_are_looked_up() -> None:
    keys = [{"k": "a"}, {"k": "b"}, {"k": "a"}]
    assert key_lookups([Filter("key", "in", tuple(keys))], ("key",)) == [({"k": "a"},), ({"k": "b"},)]
    schema = pa.schema([("key", pa.struct([("k", pa.string()), ("n", pa.int64())]))])
    by_field = [Filter("key", "in", ("a", "b", None), ("k",)), Filter("key", "=", 1, ("n",))]
    assert with_whole_structs(by_field, schema)[2:] == (Filter("key", "in", (("a", 1), ("b", 1))),)
    assert with_whole_structs(by_field[:1], schema) == tuple(by_field[:1])


@pytest.fixture(scope="module")
def tuples() -> Table:
    """Return a map state by tuples of a text and a number, whose map keys are texts."""
    return statestore.inspect(fixture("rocksdb")).table("kv-tuple.m")


def test_a_tuple_is_the_key_and_the_map_key_or_else_the_fields_of_the_key(tuples: Table) -> None:
    row = tuples.scan().read_all().to_pylist()[0]
    fields, map_key = tuple(row["key"].values()), row["map_key"]
    named = {item.column: item.value for item in key_filters(tuples.table, (fields, map_key))}
    assert named == {"key": fields, "map_key": map_key}
    assert [(item.column, item.value) for item in key_filters(tuples.table, fields)] == [("key", fields)]
    with pytest.raises(InvalidInputError, match=r"WRONG_KEY.*write a dict or tuple of f0, f1"):
        key_filters(tuples.table, (1, 2))


@pytest.mark.parametrize("state", ["window-contents", "event_window-timers"])
def test_a_key_with_its_namespace_is_looked_up(state: str) -> None:
    table = statestore.inspect(fixture("hashmap")).table(f"win-tumble.{state}")
    for row in table.scan().read_all().slice(0, 3).to_pylist():
        named = {"key": row["key"], "namespace": row["namespace"]}
        assert table.get(named) == table.get(tuple(named.values())) == row


def test_nanoseconds_of_a_zone_are_looked_up() -> None:
    """Arrow itself refuses such a moment of numpy."""
    table = statestore.inspect(fixture("sql-types")).table("GroupAggregate[19].accState")
    key = table.scan(columns=["key"]).read_all().column("key").to_pylist()[0]
    row = table.get(key)
    assert row is not None and row["key"] == key

"""Arguments of reads: a range has one spelling, and keys are those that users name.

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
from statestore.connector.options import checked_options
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.values.canonical import ErrorPath
from statestore.formats.values.comparison import same_key
from statestore.formats.values.filters import Filter, key_lookups, with_both_zeros, with_whole_structs

OTHERS = [
    ("from_version", "start_version"),
    ("starting_version", "start_version"),
    ("startingVersion", "start_version"),
    ("startVersion", "start_version"),
    ("since_commit", "start_version"),
    ("to_version", "end_version"),
    ("endingVersion", "end_version"),
    ("start_timestamp", "start_time"),
    ("starting_timestamp", "start_time"),
    ("from_time", "start_time"),
    ("end_timestamp", "end_time"),
    ("endingTimestamp", "end_time"),
    ("until", "end_version or end_time"),
    ("start", "start_version or start_time"),
    ("strat_version", "start_version"),
]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests only read it."""
    folder = tmp_path_factory.mktemp("w")
    catalog = statestore.connect(folder)
    with catalog.create_store("s", key={"k": "string"}, value={"v": "bigint"}) as store:
        for moment in (1, 2):
            store.put("a", moment, timestamp=moment)
            store.commit()
    with catalog.create_store("keyed", kind="keyed", key={"k": "string"}) as keyed, keyed.backend() as backend:
        state = backend.value_state("n", "bigint")
        backend.set_current_key("a")
        state.update(1)
        keyed.commit([backend.snapshot("full").result()])
    return folder


@pytest.mark.parametrize("call", ["changes", "diff"])
def test_python_names_the_right_spelling(warehouse: Path, call: str) -> None:
    with statestore.connect(warehouse).open_store("s") as store:
        for table in (store, statestore.inspect(warehouse).table("s")):
            for given, right in OTHERS:
                told = rf"UNKNOWN_OPTION\] {call}\(…\) .*'{given}'; write .*{right}"
                with pytest.raises(InvalidInputError, match=told):
                    getattr(table, call)(**{given: 1})


def test_sql_names_the_right_spelling(warehouse: Path) -> None:
    for given, right in OTHERS:
        if given != "strat_version":
            told = rf"INVALID_SQL\].* changes\(…\) .*'{given}'; write {right}"
            with pytest.raises(InvalidInputError, match=told):
                statestore.sql(str(warehouse), f"SELECT * FROM changes('s', {given} => 1)")


@pytest.mark.parametrize(("given", "right"), [("timestampAsOf", "as_of"), ("version_as_of", "version")])
def test_moments_have_one_spelling_too(warehouse: Path, given: str, right: str) -> None:
    table = statestore.inspect(warehouse).table("s")
    for call in (table.scan, table.get):
        with pytest.raises(InvalidInputError, match=rf"no argument '{given}'; write {right}"):
            call(**{"key": "a", given: 1} if call == table.get else {given: 1})


def test_history_is_a_range_of_times_only(warehouse: Path) -> None:
    """A version in its range had no effect in SQL before."""
    with pytest.raises(InvalidInputError, match=r"history\(…\) has no argument 'start_version'; write start_time"):
        statestore.sql(str(warehouse), "SELECT * FROM history('s', start_version => 1)")
    with pytest.raises(InvalidInputError, match=r"changes.* is given start_version twice"):
        statestore.sql(str(warehouse), "SELECT * FROM changes('s', start_version => 1, start_version => 2)")


def test_the_older_names_of_the_range_of_a_history_mean_the_same(warehouse: Path) -> None:
    table: Any = statestore.inspect(warehouse).table("s")
    expected = table.history(start_time=1, end_time=1).read_all()
    assert expected.num_rows == 1
    assert table.history(start=1, end=1).read_all() == expected
    with pytest.raises(InvalidInputError, match="start_time twice"):
        table.history(start=1, start_time=1)


@pytest.mark.parametrize(
    ("given", "right"),
    [("from_version", "startingVersion"), ("start_time", "startingTimestamp"), ("endVersion", "endingVersion")],
)
def test_spark_has_its_own_spelling(given: str, right: str) -> None:
    with pytest.raises(InvalidInputError, match=f"UNKNOWN_OPTION.*did you mean {right}"):
        checked_options({given: "1"}, "read")


# Keys: the columns that a spelling means, and zeros and NaN as the engine has them


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

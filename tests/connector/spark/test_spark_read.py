"""Reads of the data source: options, zones, pruning, pushed filters, views."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from support.parameters import mostly_slow
from support.places import PLACES, below, warehouse_in, warehouse_of

import statestore
from statestore.connector.spark.source import StateStoreSource
from statestore.formats.state_table import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
ZONE = "spark.sql.session.timeZone"
NINE = 1_700_000_000_000  # 2023-11-14T22:13:20Z, 17:13:20 in New York
NOW = [("curry", 9.0), ("milk", 2.0)]
EARLIER = [("curry", 8.0), ("milk", 2.0)]


@pytest.fixture(scope="module", params=PLACES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = warehouse_in(request.param, request, tmp_path_factory.mktemp("read"))
    with statestore.connect(folder).create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
        times = [NINE, NINE, NINE + 10_000]
        for chosen in ([0, 1], [2]):
            columns = {"item": ["curry", "milk", "curry"], "price": [8.0, 2.0, 9.0], "timestamp": times}
            store.write(pa.table(columns).take(chosen))
    return below(folder, "prices")


def load(spark: SparkSession, path: str, source: str = "statestore", **options: Any) -> DataFrame:
    return spark.read.format(source).options(**options).load(path)


def answer(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select("item", "price").collect())


def refusal(frame: Any) -> str:
    with pytest.raises(PySparkException) as caught:
        frame().collect()
    return str(caught.value)


@pytest.mark.parametrize(
    "time",
    [
        "2023-11-14T22:13:25Z",
        "2023-11-14 23:13:25+01:00",
        str(NINE + 5000),
        "2023-11-14 17:13:25",
        "2023-11-14T17:13:25",
    ],
)
def test_each_spelling_of_a_time(spark: SparkSession, path: str, time: str) -> None:
    assert answer(load(spark, path, timestampAsOf=time)) == EARLIER
    assert answer(load(spark, path, TIMESTAMPASOF=time)) == EARLIER


@pytest.mark.parametrize(
    ("zone", "time"),
    [
        ("UTC", "2023-11-14 22:13:25"),
        ("Asia/Kolkata", "2023-11-15 03:43:25"),
        ("+05:30", "2023-11-15 03:43:25"),
        ("UTC-3", "2023-11-14 19:13:25"),
    ],
)
def test_a_time_without_zone_is_the_sessions(spark: SparkSession, path: str, zone: str, time: str) -> None:
    before = spark.conf.get(ZONE)
    reader = spark.read.format("statestore").option("timestampAsOf", time)
    spark.conf.set(ZONE, zone)
    try:
        assert answer(reader.load(path)) == EARLIER
        assert answer(spark.read.load(path, format="statestore", timestampAsOf=time)) == EARLIER
    finally:
        spark.conf.set(ZONE, str(before))


def test_sql_takes_the_session_zone_too(spark: SparkSession, path: str) -> None:
    text = "SELECT item, price FROM prices TIMESTAMP AS OF '2023-11-14 17:13:25'"
    assert answer(statestore.sql(warehouse_of(path), text, spark=spark)) == EARLIER


def test_a_view_takes_the_session_zone_of_a_registered_session_only(spark: SparkSession, path: str) -> None:
    text = "CREATE OR REPLACE TEMPORARY VIEW v USING arrow_statestore OPTIONS (path '{}', timestampAsOf '{}')"
    for time in ("2023-11-14T22:13:25Z", "2023-11-14 17:13:25"):
        spark.sql(text.format(path, time))
        assert answer(spark.table("v")) == EARLIER
    spark.catalog.dropTempView("v")
    statestore.unregister(spark)
    try:
        assert "NAIVE_DATETIME" in refusal(lambda: spark.sql(text.format(path, "2023-11-14 17:13:25")))
    finally:
        statestore.register(spark)


def test_only_asked_columns_are_read(spark: SparkSession, path: str) -> None:
    assert load(spark, path, columns="price, item").columns == ["price", "item"]
    assert load(spark, path, columns="_commit_version").count() == 2
    frame = spark.read.format("statestore").schema("price double").load(path)
    assert sorted(frame.collect()) == [(2.0,), (9.0,)]
    assert spark.read.format("statestore").schema("valid_to timestamp, item string").load(path).count() == 2


def test_a_given_schema_has_the_tables_types(spark: SparkSession, path: str) -> None:
    read = spark.read.format("statestore")
    assert "WRONG_SCHEMA" in refusal(lambda: read.schema("price int").load(path))
    assert "COLUMN_NOT_FOUND" in refusal(lambda: read.schema("cost double").load(path))


@pytest.mark.parametrize(
    ("options", "code"),
    mostly_slow(
        [
            ({"versionAs": "1"}, "did you mean versionAsOf"),
            ({"nonsense": "1"}, "UNKNOWN_OPTION"),
            ({"versionAsOf": "one"}, "INVALID_OPTION"),
            ({"versionAsOf": "7"}, "VERSION_NOT_FOUND"),
            ({"history": "yes"}, "INVALID_OPTION"),
            ({"history": "true", "readChangeFeed": "true"}, "INVALID_OPTION"),
            ({"startingVersion": "1"}, "INVALID_OPTION"),
            ({"startingTimestamp": "1"}, "INVALID_OPTION"),
            ({"readChangeFeed": "true", "timestampAsOf": "1"}, "INVALID_OPTION"),
            ({"timestampAsOf": "yesterday"}, "INVALID_TIME"),
            ({"columns": ""}, "INVALID_OPTION"),
            ({"columns": "item,item"}, "INVALID_OPTION"),
            ({"columns": "cost"}, "COLUMN_NOT_FOUND"),
        ],
        3,
    ),
)
def test_bad_options_are_refused(spark: SparkSession, path: str, options: dict[str, str], code: str) -> None:
    assert code in refusal(lambda: load(spark, path, **options))


def test_a_missing_store_is_named(spark: SparkSession, path: str) -> None:
    found = refusal(lambda: load(spark, below(warehouse_of(path), "pricess")))
    assert ("STORE_NOT_FOUND" in found and "create_store" in found) or "w/pricess does not exist" in found
    assert "MISSING_PATH" in refusal(lambda: spark.read.format("statestore").load())


def remaining_filters(frame: DataFrame) -> str:
    """The condition that Spark evaluates itself, from the plan."""
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return "\n".join(line for line in plan.splitlines() if "Filter " in line)


@pytest.mark.parametrize("where", ["item = 'milk'", "price > 5", "item IN ('a', 'milk')", "item LIKE 'm%'"])
def test_filters_are_pushed(spark: SparkSession, path: str, where: str) -> None:
    frame = load(spark, path).where(where)
    assert remaining_filters(frame) == ""
    assert frame.count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("where", ["upper(item) = 'MILK'", "item = 'milk' OR price > 100", "NOT (item LIKE 'c%')"])
def test_filters_we_can_not_evaluate_stay_with_spark(spark: SparkSession, path: str, where: str) -> None:
    frame = load(spark, path).where(where)
    assert remaining_filters(frame) != ""
    assert frame.count() == 1


def test_views_push_filters_too(spark: SparkSession, path: str) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING arrow_statestore OPTIONS (path '{path}')")
    frame = spark.sql("SELECT * FROM v WHERE item = 'milk'")
    assert remaining_filters(frame) == "" and frame.count() == 1
    spark.catalog.dropTempView("v")


def test_pushdown_may_change_between_load_and_action(spark: SparkSession, path: str) -> None:
    loaded = load(spark, path)
    spark.conf.set(PUSHDOWN, "false")
    try:
        frame = loaded.where("item = 'milk'")
        assert answer(frame) == [("milk", 2.0)]
        assert remaining_filters(frame) != ""
        later = load(spark, path)
    finally:
        spark.conf.set(PUSHDOWN, "true")
    assert remaining_filters(later.where("item = 'milk'")) == ""
    assert answer(later.where("item = 'milk'")) == [("milk", 2.0)]


def test_one_partition_per_split_and_bounded_batches(spark: SparkSession, tmp_path: Path) -> None:
    count = 150_000
    with statestore.connect(tmp_path).create_store("many", key={"n": "bigint"}, value={"v": "bigint"}) as store:
        for start in (0, count):
            numbers = pa.array(range(start, start + count), pa.int64())
            store.write(pa.table({"n": numbers, "v": numbers, "timestamp": pa.array([1] * count, pa.int64())}))
        splits = len(store.table.splits(Query()))
    frame = load(spark, f"{tmp_path}/many", columns="v")
    assert frame.rdd.getNumPartitions() == splits
    assert frame.agg({"v": "sum"}).collect()[0][0] == sum(range(2 * count))
    reader = StateStoreSource({"path": f"{tmp_path}/many"}).reader(frame.schema)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    sizes = [batch.num_rows for batch in batches if isinstance(batch, pa.RecordBatch)]
    assert sum(sizes) == 2 * count
    assert max(sizes) <= 100_000

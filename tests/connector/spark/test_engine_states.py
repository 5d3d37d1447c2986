"""States of other engines in Spark: the source, catalogs, plain SQL, moments."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from support.engines.toys import VERSIONS, as_toys, write_package, write_toys
from support.flink.fixtures import fixture, manifest, taken_us, truth
from support.kafka.real_applications import form_of, plain_rows, topic_table
from support.kafka.store_answers import assert_rows_are_the_stores, the_store
from support.kafka.unpacked import stores_file, unpack
from support.parameters import mostly_slow
from support.reads_by_tasks import reads_by_tasks

import statestore
from statestore import kafka
from statestore.connector.spark.session.register import register
from statestore.formats.values.times import to_datetime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("orders", tmp_path_factory.mktemp("orders"))


@pytest.fixture(scope="module")
def given(orders: Path) -> str:
    return str(stores_file("orders", orders / "stores.toml", everything=True))


def counted(rows: list[Any]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("place", ["state/orders/per-minute", "changelog/orders-per-minute-changelog"])
def test_a_store_is_a_data_frame(spark: SparkSession, orders: Path, given: str, place: str) -> None:
    folder, _, name = str(orders / place).rpartition("/")
    table = statestore.inspect(folder, stores_file=given).table(name)
    columns = ["key", "value", "partition_id"]
    found = spark.read.format("statestore").option("storesFile", given).load(f"{folder}/{name}").select(*columns)
    expected = table.scan(columns=columns).read_all().to_pylist()
    assert counted([row.asDict() for row in found.collect()]) == counted(expected)
    one = expected[0]["key"]
    assert found.where(found.key == one).count() == sum(row["key"] == one for row in expected)


@pytest.mark.slow
def test_a_catalog_of_an_application(spark: SparkSession, orders: Path, given: str) -> None:
    statestore.register(spark, str(orders / "state" / "orders"), name="orders_app", stores_file=given)
    names = {row.tableName for row in spark.sql("SHOW TABLES IN orders_app").collect()}
    assert {"carts", "menu", "per-minute"} <= names
    table: Any = statestore.inspect(orders / "state" / "orders", stores_file=given).table("menu")
    history = table.history().read_all().to_pylist()
    kept = [row["valid_from"] for row in history if row["valid_from"].timestamp() * 1e6 >= table.table.known_from(1)]
    moment = sorted(kept)[len(kept) // 2]
    then = spark.sql(f"SELECT key, value FROM orders_app.menu TIMESTAMP AS OF '{moment.isoformat()}'").collect()
    wanted = table.scan(as_of=moment, columns=["key", "value"]).read_all().to_pylist()
    assert counted([row.asDict() for row in then]) == counted(wanted)
    assert wanted
    with pytest.raises(Exception, match="TIME_NOT_KEPT"):
        spark.sql("SELECT * FROM orders_app.menu TIMESTAMP AS OF '1990-01-01T00:00:00Z'").collect()


# Changelog topics that Spark reads itself, decoded by `statestore.kafka.decode`, in batches and in streams.

SCHEMA = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
STORES = (
    ("orders", "prices"),
    ("orders", "carts"),
    ("ledger", "balances"),
)


def decode(records: DataFrame, store: dict[str, Any]) -> DataFrame:
    form = form_of(store)
    found: DataFrame = kafka.decode(
        records, form.kind, key_serde=form.key_serde, value_serde=form.value_serde, window_size=form.window_size
    )
    return found


def rows_of(frame: DataFrame) -> list[dict[str, Any]]:
    table = frame.toArrow()
    return [row for batch in table.to_batches() for row in plain_rows(batch)]


def topic_frame(spark: SparkSession, name: str, topic: str) -> DataFrame:
    rows = [tuple(row.values()) for row in topic_table(name, topic).to_pylist()]
    return spark.createDataFrame(rows, SCHEMA)


@pytest.mark.parametrize(("name", "store"), mostly_slow(STORES, STORES[:1]))
def test_rows_are_those_of_the_store(spark: SparkSession, name: str, store: str) -> None:
    found = the_store(name, store)
    decoded = decode(topic_frame(spark, name, found["changelog"]), found)
    assert_rows_are_the_stores(name, found, rows_of(decoded))
    names = ["key", "value", "timestamp"] if store == "prices" else decoded.columns[:-3]
    assert decoded.columns == [*names, "tombstone", "partition", "offset"]


@pytest.mark.slow
def test_a_stream_gives_the_rows_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    store = the_store("orders", "prices")
    records = topic_frame(spark, "orders", store["changelog"])
    records.write.parquet(str(tmp_path / "topic"))
    stream = decode(spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "topic")), store)
    out, offsets = str(tmp_path / "out"), str(tmp_path / "offsets")
    query = stream.writeStream.trigger(availableNow=True).option("checkpointLocation", offsets).start(out, "parquet")
    query.awaitTermination()
    place = lambda row: (row["partition"], row["offset"])  # noqa: E731
    streamed = sorted(rows_of(spark.read.parquet(out)), key=place)
    assert streamed == sorted(rows_of(decode(records, store)), key=place) != []


def test_a_wrong_serde_is_an_error_that_shows_the_bytes(spark: SparkSession) -> None:
    records = spark.createDataFrame([(b"kiwi", b"\x01", 0, 7, pa.scalar(0, pa.timestamp("us", "UTC")).as_py())],
        "key binary, value binary, partition int, offset long, timestamp timestamp")  # fmt: skip
    with pytest.raises(Exception, match=r"KAFKA_BYTES(.|\n)*6b697769"):
        kafka.decode(records, "key-value", key_serde="long").collect()


# States of a Flink job in Spark: the source, catalogs, moments, partitions and filters, and types


def true_values(run: str, operator: str, state: str, version: int) -> dict[Any, Any]:
    (file,) = [each["truth"] for each in manifest(run)["snapshots"] if each["checkpoint_id"] == version]
    lines = [line for line in truth(run, file) if (line["operator"], line["state"]) == (operator, state)]
    return {json.dumps(line["key"]): line["value"] for line in lines}


def by_key(frame: Any) -> dict[str, Any]:
    rows = [row.asDict(recursive=True) for row in frame.select("key", "value").collect()]
    assert len({json.dumps(row["key"]) for row in rows}) == len(rows)
    return {json.dumps(row["key"]): row["value"] for row in rows}


@pytest.fixture(scope="module")
def job() -> Path:
    return fixture("hashmap")


def test_a_state_is_a_data_frame_now_and_at_a_version(spark: SparkSession, job: Path) -> None:
    reader = spark.read.format("statestore")
    path = str(job / "kv-long.balance")
    assert by_key(reader.load(path)) == true_values("hashmap", "kv-long", "balance", 3)
    assert by_key(reader.option("versionAsOf", 2).load(path)) == true_values("hashmap", "kv-long", "balance", 2)
    moment = to_datetime(taken_us(2)).isoformat()
    then = spark.read.format("statestore").option("timestampAsOf", moment).load(path)
    assert by_key(then) == true_values("hashmap", "kv-long", "balance", 2)


def test_a_catalog_of_a_job(spark: SparkSession, job: Path) -> None:
    statestore.register(spark, str(job), name="flink_job")
    names = {row.tableName for row in spark.sql("SHOW TABLES IN flink_job").collect()}
    assert {"kv-long.balance", "kv-string.attrs", "timers.event_user-timers"} <= names
    rows = spark.sql("SELECT key, value FROM flink_job.`kv-long.balance` VERSION AS OF 2").collect()
    assert {json.dumps(row.key): row.value for row in rows} == true_values("hashmap", "kv-long", "balance", 2)


def test_the_path_of_a_snapshots_metadata_is_that_of_the_snapshot(spark: SparkSession, job: Path) -> None:
    (metadata,) = job.glob("*/chk-2/_metadata")
    expected = true_values("hashmap", "kv-long", "balance", 2)
    assert by_key(spark.read.format("statestore").load(f"{metadata}/kv-long.balance")) == expected
    statestore.register(spark, str(metadata), name="flink_snapshot")
    rows = spark.sql("SELECT key, value FROM flink_snapshot.`kv-long.balance`").collect()
    assert {json.dumps(row.key): row.value for row in rows} == expected


def test_tasks_read_what_the_driver_reads_and_a_key_needs_one_partition(spark: SparkSession) -> None:
    path = str(fixture("wide-rocksdb") / manifest("wide-rocksdb")["snapshots"][-1]["path"])
    state = next(each for each in statestore.inspect(path).tables() if each.endswith(".balance"))
    table: Any = statestore.inspect(path).table(state)
    expected = counted(table.scan().read_all().to_pylist())
    with reads_by_tasks():
        frame = spark.read.format("statestore").load(f"{path}/{state}")
        assert counted([row.asDict(recursive=True) for row in frame.collect()]) == expected
        assert frame.rdd.getNumPartitions() > 1
        key = table.scan().read_all()["key"][0].as_py()
        one = frame.where(frame.key == key)
        assert [row.key for row in one.collect()] == [key]
        assert one.rdd.getNumPartitions() == 1


# Times of nanoseconds, which Spark does not have, and Avro's null alone, for which it has no column.
REFUSED = {"types-hashmap": "UNSUPPORTED_TYPE.*nanoseconds", "sql-types": "UNSUPPORTED_TYPE.*nanoseconds"}


@pytest.mark.slow
@pytest.mark.parametrize("run", ["types-hashmap", "sql-types", "rocksdb"])
def test_every_type_of_value_arrives(spark: SparkSession, run: str) -> None:
    path = str(fixture(run) / manifest(run)["snapshots"][-1]["path"])
    opened = statestore.inspect(path)
    arrived = 0
    for state in opened.tables()[:20]:
        expected = opened.table(state).scan().read_all().num_rows
        try:
            rows = spark.read.format("statestore").load(f"{path}/{state}").collect()
        except Exception as error:
            assert run in REFUSED and re.search(REFUSED[run], str(error).replace("\n", " ")), state
            continue
        assert len(rows) == expected, state
        arrived += 1
    assert arrived > len(opened.tables()[:20]) // 2


def test_avros_null_alone_has_no_column_in_spark(spark: SparkSession) -> None:
    path = str(fixture("avro-rocksdb") / manifest("avro-rocksdb")["snapshots"][-1]["path"])
    with pytest.raises(Exception, match=r"UNSUPPORTED_TYPE(.|\n)*none:void"):
        spark.read.format("statestore").load(f"{path}/avro.generic").collect()
    assert spark.read.format("statestore").load(f"{path}/avro.specific").count()


@pytest.mark.slow
def test_maps_structs_and_decimals_are_sparks_own(spark: SparkSession) -> None:
    path = str(fixture("types-hashmap"))
    opened = statestore.inspect(path)
    for state in opened.tables():
        table = opened.table(state).scan().read_all()
        frame = spark.read.format("statestore").load(f"{path}/{state}")
        assert frame.columns == table.column_names
        keys = [column for column in ("key", "map_key", "position") if column in table.column_names]
        found = counted([row.asDict() for row in frame.select(*keys).collect()])
        assert found == counted(table.select(keys).to_pylist()), state


# The Spark source reads the state of an engine from an installed package, also in tasks


@pytest.fixture
def package(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package, installed here and sent to the processes that plan and read."""
    file = write_package(tmp_path / "toys.zip")
    monkeypatch.syspath_prepend(file)
    spark.sparkContext.addPyFile(str(file))
    register(spark)  # sources get the files that the session had when they were registered
    yield


@pytest.mark.usefixtures("package")
def test_reads_of_a_third_engine(spark: SparkSession, tmp_path: Path) -> None:
    reader = spark.read.format("statestore")
    path = str(write_toys(tmp_path / "toys"))
    rows = reader.load(path).collect()
    assert as_toys([row.asDict() for row in rows]) == VERSIONS[5]
    older = reader.option("toyVersion", 2).load(path).where("n > 3").collect()
    assert {row.n for row in older} == {20, 4}
    changes = spark.read.format("statestore").option("readChangeFeed", "true").load(path)
    assert changes.where("_change_type = 'delete'").count() == 2

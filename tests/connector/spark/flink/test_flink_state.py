"""States of a Flink job in Spark: the source, catalogs, moments, partitions and filters, and types."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.flink.fixtures import fixture, manifest, taken_us, truth
from support.reads_by_tasks import reads_by_tasks

import statestore
from statestore.formats.values.times import to_datetime


def true_values(run: str, operator: str, state: str, version: int) -> dict[Any, Any]:
    (file,) = [each["truth"] for each in manifest(run)["snapshots"] if each["checkpoint_id"] == version]
    lines = [line for line in truth(run, file) if (line["operator"], line["state"]) == (operator, state)]
    return {json.dumps(line["key"]): line["value"] for line in lines}


def by_key(frame: Any) -> dict[str, Any]:
    rows = [row.asDict(recursive=True) for row in frame.select("key", "value").collect()]
    assert len({json.dumps(row["key"]) for row in rows}) == len(rows)
    return {json.dumps(row["key"]): row["value"] for row in rows}


def counted(rows: list[Any]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


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

"""Struct columns of checkpoints and stores in Spark: fields that are pruned, rows passed on as stored, keys, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import Row, StructType
from support.checkpoints.large_checkpoints import write_checkpoint
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.parameters import mostly_slow

import statestore
from statestore.catalog.warehouse import open_table
from statestore.formats.state_table import Query, Split, StateTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROCKSDB, HDFS = "spark4.3.0-agg__rk", "spark4.3.0-agg__hdfs"
WINDOWS, GROUPS, SESSIONS = "spark4.3.0-win__rkcl", "spark4.3.0-fmgws__rkcl", "spark4.3.0-sess__rkcl"
VARIABLES = "spark4.3.0-twsttl__rkcl"


Copy = Callable[[str | Path], str]


def both(spark: SparkSession, copy: Copy, name: str, **options: Any) -> tuple[DataFrame, DataFrame]:
    """The state as this package reads it, and in a copy as Spark's own source does."""
    path = checkpoint_path(name)
    reader = spark.read.format("statestore").options(**options)
    theirs = spark.read.format("statestore").options(**options, provider="builtin")
    return reader.load(str(path)), theirs.load(copy(path))


def with_decoded(spark: SparkSession, name: str, **options: Any) -> tuple[DataFrame, DataFrame]:
    """The state as tasks send it, and as it is decoded in Python: Spark's own source reads no checkpoint of
    transformWithState in another folder than the query's."""
    path = str(checkpoint_path(name))
    ours = spark.read.format("statestore").options(**options).load(path)
    table = open_table(path, options)
    decoded = [row for split in table.splits(Query()) for row in read_rows(table, split)]
    return ours, spark.createDataFrame(decoded, ours.schema)


def read_rows(table: StateTable, split: Split) -> list[dict[str, Any]]:
    return [row for batch in table.read(split, Query()) for row in batch.to_pylist()]


def rows(frame: DataFrame) -> list[str]:
    return as_text(frame.collect())


def as_text(rows: Iterable[Row]) -> list[str]:
    def bare(value: Any) -> Any:
        return tuple(map(bare, value)) if isinstance(value, tuple) else value

    return sorted(str(bare(row)) for row in rows)


def executed(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def scanned(frame: DataFrame) -> str:
    """The schema that the scan of a frame returns."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return str(leaves.apply(0).schema().simpleString())


CHECKPOINTS: list[tuple[str, dict[str, Any]]] = [
    (ROCKSDB, {}),
    (HDFS, {}),
    (WINDOWS, {}),
    (GROUPS, {}),
    (SESSIONS, {}),
    ("spark4.3.0-aggmulti__hdfs", {}),
    (VARIABLES, {"stateVarName": "val"}),
]


@pytest.mark.parametrize(("name", "options"), mostly_slow(CHECKPOINTS, ()))
def test_operators_of_spark_work_on_rows_as_stored(
    spark: SparkSession, copy_for_spark: Copy, name: str, options: dict[str, Any]
) -> None:
    """Spark sorts, groups, joins, hashes and casts the structs that it gets as bytes."""
    ours, theirs = (
        both(spark, copy_for_spark, name, **options) if name != VARIABLES else with_decoded(spark, name, **options)
    )
    assert rows(ours) == rows(theirs)
    ordered = [
        "SELECT key, count(*), max(value) FROM {t} GROUP BY key",
        "SELECT * FROM {t} ORDER BY key, value, partition_id",
        "SELECT hash(key), hash(value) FROM {t}",
    ]
    asked = [
        "SELECT DISTINCT key.* FROM {t}",
        "SELECT to_json(struct(key, partition_id)) FROM {t}",
        "SELECT a.key, b.value FROM {t} a JOIN {t} b ON a.key = b.key AND a.partition_id = b.partition_id",
        "SELECT key FROM {t} WHERE value IS NOT NULL LIMIT 1000",
        "SELECT collect_list(key) FROM (SELECT key FROM {t} ORDER BY key)",
    ]
    has_map = "map<" in ours.schema["value"].dataType.simpleString()  # which Spark neither orders nor hashes
    for statement in asked if has_map else ordered + asked:
        assert rows(spark.sql(statement, t=ours)) == rows(spark.sql(statement, t=theirs)), statement


@pytest.mark.slow
def test_only_the_fields_that_a_statement_names_are_read(spark: SparkSession, copy_for_spark: Copy) -> None:
    for name in (ROCKSDB, HDFS, WINDOWS):
        ours, theirs = both(spark, copy_for_spark, name)
        inner = ours.schema["value"].dataType
        assert isinstance(inner, StructType)
        theirs = theirs.withColumn("value", theirs["value"].cast(inner))  # Spark's own names may be there twice
        first = inner.names[0]
        one = ours.selectExpr(f"value.{first} AS v")
        assert scanned(one) == f"struct<value:struct<{first}:{inner[first].dataType.simpleString()}>>"
        assert rows(one) == rows(theirs.selectExpr(f"value.{first} AS v"))
        filtered = f"value.{first} > 1"
        assert rows(ours.where(filtered)) == rows(theirs.where(filtered))
        assert rows(ours.where(filtered).select("key")) == rows(theirs.where(filtered).select("key"))
        assert rows(ours.where(f"value.{first} IS NULL")) == rows(theirs.where(f"value.{first} IS NULL"))
    start = "key.window.start"
    assert scanned(ours.select(start)) == "struct<key:struct<window:struct<start:timestamp>>>"
    assert rows(ours.select(start)) == rows(theirs.select(start))
    assert rows(ours.groupBy(start).count()) == rows(theirs.groupBy(start).count())


@pytest.mark.slow
def test_a_field_after_one_of_its_name_is_still_itself(spark: SparkSession, tmp_path: Path) -> None:
    """Spark calls two buffers of maxima ``max``; the later one is ``max_1`` here."""
    source = spark.range(50).selectExpr("id % 7 AS k", "id", "IF(id % 3 = 0, NULL, concat('t', id)) AS t")
    source.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(source.schema).parquet(str(tmp_path / "in"))
    from pyspark.sql import functions as f

    made = stream.groupBy("k").agg(f.max("id"), f.max("t"), f.min(f.lit(None).cast("string")))
    writer = made.writeStream.format("noop").outputMode("update").option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    ours = spark.read.format("statestore").load(str(tmp_path / "c"))
    truth = source.groupBy("k").agg(f.max("id"), f.max("t"))
    assert scanned(ours.select("value.max_1")) == "struct<value:struct<max_1:string>>"
    assert rows(ours.select("key.k", "value.max_1")) == rows(truth.select("k", "max(t)"))
    assert rows(ours.select("key.k", "value.max", "value.max_1")) == rows(truth)
    assert ours.where("value.min IS NULL").count() == 7
    theirs = spark.read.format("statestore").option("provider", "builtin").load(str(tmp_path / "c"))
    assert rows(ours) == rows(theirs)


@pytest.mark.parametrize("partitions", mostly_slow([1, 5, 40], [5]))
def test_tasks_read_several_partitions(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    checkpoint = str(write_checkpoint(tmp_path, 2000, 2, partitions))
    state = spark.read.format("statestore").load(checkpoint)
    cores = spark.sparkContext.defaultParallelism
    assert state.rdd.getNumPartitions() == (partitions if partitions <= cores else max(cores, -(-partitions // 8)))
    truth = statestore.inspect(checkpoint).table("state").scan().read_all()
    assert state.count() == truth.num_rows
    found = sorted((str(row.key), str(row.value), row.partition_id) for row in state.collect())
    assert len(found) == truth.num_rows
    assert sorted(row.partition_id for row in state.select("partition_id").collect()) == sorted(
        truth.column("partition_id").to_pylist()
    )


@pytest.mark.parametrize("name", mostly_slow([ROCKSDB, HDFS, "spark4.3.0-agg__rkcl"], [ROCKSDB]))
def test_one_key_is_read_while_planning(spark: SparkSession, copy_for_spark: Copy, name: str) -> None:
    ours, theirs = both(spark, copy_for_spark, name)
    whole = theirs.collect()
    for row in whole[:3]:
        condition = " AND ".join(
            f"key.{field} <=> {value!r}" for field, value in row.key.asDict().items() if value is not None
        )
        if None in row.key:
            continue
        found = ours.where(condition)
        assert rows(found) == as_text(each for each in whole if each.key == row.key)
        assert "LocalTableScan" in executed(found), executed(found)


def test_rows_are_counted_in_metadata(spark: SparkSession, copy_for_spark: Copy) -> None:
    ours, theirs = both(spark, copy_for_spark, ROCKSDB)
    counted = ours.groupBy().count()
    assert rows(counted) == rows(theirs.groupBy().count())
    assert "LocalTableScan" in executed(counted)
    ours, theirs = both(spark, copy_for_spark, HDFS)
    assert ours.count() == theirs.count()


def test_tasks_aggregate_fields_of_structs(spark: SparkSession, copy_for_spark: Copy) -> None:
    ours, theirs = both(spark, copy_for_spark, ROCKSDB)
    theirs = theirs.withColumn("value", theirs["value"].cast(ours.schema["value"].dataType))  # has names twice
    statement = "SELECT sum(value.sum), count(key.k), min(value.count), max(key.k), count(*) FROM {t}"
    asked = spark.sql(statement, t=ours)
    assert rows(asked) == rows(spark.sql(statement, t=theirs))
    pushed = "aggregates [sum(value.sum), count(key.k), min(value.count), max(key.k), count(*)]"
    assert pushed in executed(asked), executed(asked)
    by_partition = "SELECT partition_id, sum(value.sum), max(value.count) FROM {t} GROUP BY partition_id"
    asked = spark.sql(by_partition, t=ours)
    assert rows(asked) == rows(spark.sql(by_partition, t=theirs))
    assert "aggregates [sum(value.sum), max(value.count) by partition_id]" in executed(asked), executed(asked)
    by_field = "SELECT key.k, sum(value.sum) FROM {t} GROUP BY key.k"
    assert rows(spark.sql(by_field, t=ours)) == rows(spark.sql(by_field, t=theirs))


def test_structs_of_a_store_of_this_package_are_pruned(spark: SparkSession, tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path / "w")
    with catalog.create_store(
        "s", key={"id": "bigint"}, value={"v": "struct<a: bigint, b: string, c: struct<d: double, e: string>>"}
    ) as store:
        for number in range(6):
            inner = None if number == 3 else {"a": number, "b": None if number == 2 else "b", "c": {"d": 0.5, "e": "e"}}
            store.put({"id": number}, {"v": inner}, timestamp=number + 1)
        store.commit()
    statestore.register(spark, tmp_path / "w", "structs")
    state = spark.table("structs.s")
    one = state.selectExpr("id", "v.a", "v.c.d")
    assert scanned(state.selectExpr("v.c.d")) in ("struct<v:struct<c:struct<d:double>>>", "struct<d:double>")
    expected = [(n, None if n == 3 else n, None if n == 3 else 0.5) for n in range(6)]
    assert sorted(map(tuple, one.collect())) == expected
    assert [row.id for row in state.where("v.b IS NULL").orderBy("id").collect()] == [2, 3]

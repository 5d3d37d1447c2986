"""Writes of whole DataFrames: the same rows, order and errors as by the data source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import statestore
from statestore.catalog.stores.versioned import task_writes
from statestore.connector.spark.frame_writer import write_frame
from statestore.connector.spark.session import readers_and_writers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0 = 1_700_000_000_000
TYPES = {
    "b": "boolean",
    "i1": "tinyint",
    "i2": "smallint",
    "i4": "int",
    "i8": "bigint",
    "f4": "float",
    "f8": "double",
    "small": "decimal(9,2)",
    "large": "decimal(38,10)",
    "text": "string",
    "bytes": "binary",
    "day": "date",
    "moment": "timestamp",
    "clock": "timestamp_ntz",
    "list": "array<string>",
    "map": "map<string,bigint>",
    "inner": "struct<a:bigint,b:array<double>>",
}
VALUES = {
    "b": "true",
    "i1": "-128Y",
    "i2": "32767S",
    "i4": "-7",
    "i8": "9223372036854775807L",
    "f4": "float('NaN')",
    "f8": "-0.0D",
    "small": "-1.50BD",
    "large": "cast('1234567890123456789012345678.0123456789' AS decimal(38,10))",
    "text": "'Zürich'",
    "bytes": "X'00FF'",
    "day": "date '0001-01-01'",
    "moment": "timestamp '0001-01-01 00:00:00.000001 UTC'",
    "clock": "timestamp_ntz '1066-10-14 09:00:00.000001'",
    "list": "array('a', null)",
    "map": "map('x', 1L, 'y', null)",
    "inner": "named_struct('a', null, 'b', array(1.5D))",
}


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "a warehouse, 100 %"


def made(warehouse: Path, name: str, value: dict[str, str], **options: Any) -> str:
    statestore.connect(warehouse).create_store(name, key={"k": "string"}, value=value, **options).close()
    return str(warehouse / name)


def history(path: str) -> list[Any]:
    with statestore.connect(Path(path).parent).open_store(Path(path).name) as store:
        return sorted(map(repr, store.history().read_all().to_pylist()))


def both(spark: SparkSession, rows: DataFrame, warehouse: Path, value: dict[str, str]) -> list[Any]:
    """Append the rows both ways, and return the history, which is the same."""
    source, frame = made(warehouse, "source", value), made(warehouse, "frame", value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers_and_writers, "_is_written_whole", lambda *given: False)
        rows.write.format("statestore").mode("append").save(source)
    write_frame(rows, frame, {})
    assert history(frame) == history(source)
    assert not (Path(frame) / "staging").exists()
    return history(frame)


def test_values_of_all_types(spark: SparkSession, warehouse: Path) -> None:
    values = ", ".join(f"{VALUES[name]} AS `{name}`" for name in TYPES)
    nulls = ", ".join(f"CAST(null AS {kind}) AS `{name}`" for name, kind in TYPES.items())
    rows = spark.sql(
        f"SELECT 'a' AS k, {values}, timestamp_millis({T0}) AS timestamp UNION ALL "
        f"SELECT 'b', {nulls}, timestamp_millis({T0 + 1})"
    )
    assert len(both(spark, rows, warehouse, TYPES)) == 2


@pytest.mark.slow
def test_the_last_put_of_a_key_and_time_counts(spark: SparkSession, warehouse: Path) -> None:
    """Rows keep their order within and between partitions, of which some have many rows and some few."""
    each = task_writes.MIN_ROWS + 1_000
    many = spark.range(0, 2 * each, 1, 2).selectExpr(
        "concat('k', id % 1000) AS k",
        "id AS v",
        f"{T0} AS timestamp",
        "IF(id % 1000 = 7, 'delete', 'insert') AS _change_type",
    )
    few = spark.range(0, 100, 1, 3).selectExpr(
        "concat('k', id % 10) AS k", "-id AS v", f"{T0} AS timestamp", "'insert' AS _change_type"
    )
    found = both(spark, many.union(few), warehouse, {"v": "bigint"})
    assert len(found) == 1000 and sum("'v': -9" in row for row in found) == 10


def test_names_that_parquet_does_not_take(spark: SparkSession, warehouse: Path) -> None:
    rows = spark.sql(f"SELECT 'a' AS k, 1L AS `a,b;{{}}()=`, 2L AS `with.dot`, {T0} AS timestamp")
    assert len(both(spark, rows, warehouse, {"a,b;{}()=": "bigint", "with.dot": "bigint"})) == 1


def test_errors_and_transactions(spark: SparkSession, warehouse: Path) -> None:
    path = made(warehouse, "s", {"v": "bigint"})
    rows = spark.sql(f"SELECT * FROM VALUES ('a', 1L, {T0}), (null, 1L, {T0}) AS t(k, v, timestamp)")
    with pytest.raises(statestore.InvalidInputError, match="NULL_KEY"):
        write_frame(rows, path, {})
    with pytest.raises(statestore.InvalidInputError, match="WRONG_SCHEMA"):
        write_frame(rows.drop("v"), path, {})
    with pytest.raises(statestore.InvalidInputError, match="INVALID_OPTION"):
        write_frame(rows, path, {"txnAppId": "job"})
    assert history(path) == [] and not (Path(path) / "staging").exists()
    for _ in range(2):
        write_frame(rows.where("k = 'a'"), path, {"txnAppId": "job", "txnVersion": "1"})
    write_frame(rows.where("k = 'b'"), path, {})
    with statestore.connect(warehouse).open_store("s") as store:
        assert store.version == 1
    assert len(history(path)) == 1


def test_wrong_rows_of_a_large_task(spark: SparkSession, warehouse: Path) -> None:
    path, last = made(warehouse, "s", {"v": "bigint"}), task_writes.MIN_ROWS + 10
    rows = spark.range(0, last + 1, 1, 1).selectExpr(
        f"IF(id = {last}, null, 'x') AS k", "id AS v", f"{T0} AS timestamp"
    )
    with pytest.raises(statestore.InvalidInputError, match="NULL_KEY"):
        write_frame(rows, path, {})
    assert history(path) == [] and not (Path(path) / "staging").exists()


def test_any_setting_of_the_session_gives_the_same_rows(spark: SparkSession, warehouse: Path) -> None:
    rows = spark.sql(f"SELECT 'a' AS k, array(timestamp_millis({T0})) AS v, {T0} AS timestamp, X'FF' AS b")
    value = {"v": "array<timestamp>", "b": "binary"}
    settings = {
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    }
    for name, setting in settings.items():
        before = str(spark.conf.get(name))
        spark.conf.set(name, setting)
        try:
            path = made(warehouse, name.replace(".", "_"), value)
            rows.select("k", "v", "b", "timestamp").write.format("statestore").mode("append").save(path)
        finally:
            spark.conf.set(name, before)
        [row] = statestore.connect(warehouse).open_store(Path(path).name).scan().read_all().to_pylist()
        assert [int(v.timestamp() * 1000) for v in row["v"]] == [T0] and row["b"] == b"\xff"


@pytest.mark.slow
def test_overwrites_and_stores_with_a_hot_tier(spark: SparkSession, warehouse: Path) -> None:
    live = made(warehouse, "live", {"v": "bigint"}, kind="key_value")
    for mode, rows, expected in (
        ("append", "VALUES ('a', 1L), ('b', 2L)", [("a", 1), ("b", 2)]),
        ("append", "VALUES ('a', 3L)", [("a", 3), ("b", 2)]),
        ("overwrite", "VALUES ('c', 4L)", [("c", 4)]),
    ):
        spark.sql(f"SELECT * FROM {rows} AS t(k, v)").write.format("statestore").mode(mode).save(live)
        found = spark.read.format("statestore").load(live).select("k", "v").collect()
        assert sorted(tuple(row) for row in found) == expected


def test_a_failing_query_keeps_its_error_class(spark: SparkSession, warehouse: Path) -> None:
    path = made(warehouse, "s", {"v": "bigint"})
    rows = spark.range(10).selectExpr("'a' AS k", "CAST(1 / (id - 5) AS bigint) AS v", f"{T0} AS timestamp")
    with pytest.raises(PySparkException) as failed:
        rows.write.format("statestore").mode("append").save(path)
    assert failed.value.getCondition() == "DIVIDE_BY_ZERO"
    assert history(path) == [] and not (Path(path) / "staging").exists()

"""As-of joins in Spark with state in which a key has several rows give the rows of the Arrow join or the same
refusals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from support.checkpoints.checkpoint_tables import began, micros, tables
from support.checkpoints.purged_checkpoints import purged
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.keyed.keyed_kinds import keyed
from support.parameters import mostly_slow
from test_asof_rows import all_rows, left_rows

import statestore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "spark4.3.0-twsttl__rkcl"
VARIABLES = ("timers", "lst", "mp", "tlst", "tmp", "tval", "val")


def as_text(rows: pa.Table) -> list[str]:
    return sorted(str(row) for row in rows.to_pylist())


SOME = ("lst", "tmp", "val")  # without a key, with a key of two columns and of one


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "names"), [("left", SOME), *mostly_slow([("inner", VARIABLES), ("left", VARIABLES)], [])]
)
def test_states_of_a_checkpoint(spark: SparkSession, how: str, names: tuple[str, ...]) -> None:
    path = checkpoint_path(NAME)
    assert set(VARIABLES) == set(tables(path))
    for name, table in tables(path).items():
        if name not in names:
            continue
        key = table.table.row_key
        first, last = table.table.kept_versions()
        moments = [micros(began(path, first)) - 1, micros(began(path, first + 1)), micros(began(path, last))]
        if not key:
            left = pa.table({"key": table.scan(columns=["key"]).read_all()["key"][:2], "t": pa.array([0, 0])})
            with pytest.raises(statestore.UnsupportedError, match="JOIN_KIND"):
                statestore.asof_join(spark.createDataFrame(left), table, on="key", left_time="t")
            continue
        left = left_rows(all_rows(table), key, moments).rename_columns([*(f"l_{n}" for n in key), "t"])
        on = {f"l_{n}": n for n in key}
        expected = statestore.asof_join(left, table, on=on, left_time="t", how=how)
        found = statestore.asof_join(spark.createDataFrame(left), table, on=on, left_time="t", how=how)
        assert as_text(found.toArrow()) == as_text(expected), name
        if len(key) > 1:
            with pytest.raises(statestore.UnsupportedError, match="JOIN_KIND"):
                statestore.asof_join(
                    spark.createDataFrame(left), table, on={f"l_{key[0]}": key[0]}, left_time="t", how=how
                )


@pytest.mark.slow
def test_a_left_row_of_before_what_is_kept_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    name = "spark4.3.0-agg__hdfs"
    path = purged(name, tmp_path, 4)
    table = tables(path)["state"]
    first = micros(began(checkpoint_path(name), table.table.kept_versions()[0]))
    for moment, said in ((first, None), (first - 1, "TIME_NOT_KEPT")):
        left = left_rows(all_rows(table), ("key",), [moment]).rename_columns(["k", "t"])
        joined = statestore.asof_join(spark.createDataFrame(left), table, on={"k": "key"}, left_time="t", how="left")
        if said is None:
            expected = statestore.asof_join(left, table, on={"k": "key"}, left_time="t", how="left")
            assert as_text(joined.toArrow()) == as_text(expected)
        else:
            with pytest.raises(Exception, match=said):
                joined.collect()


@pytest.mark.slow
def test_a_map_of_a_keyed_store_and_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    found, times = keyed(tmp_path / "w")
    table = found.table("s.map")
    moments = [round(time.timestamp() * 1e6) for time in times]
    rows = table.scan().read_all()
    left = pa.concat_tables(
        [
            rows.select(["k", "user_key"]).append_column(
                "t", pa.array([moment] * rows.num_rows, pa.timestamp("us", "UTC"))
            )
            for moment in moments
        ]
    )
    expected = statestore.asof_join(left, table, on=["k", "user_key"], left_time="t", how="left")
    frame = spark.createDataFrame(left)
    joined = statestore.asof_join(frame, table, on=["k", "user_key"], left_time="t", how="left")
    assert as_text(joined.toArrow()) == as_text(expected)
    frame.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in"))
    with pytest.raises(statestore.UnsupportedError, match=r"JOIN_KIND.*user_key"):
        statestore.asof_join(stream, table, on="k", left_time="t")
    query = (
        statestore.asof_join(stream, table, on=["k", "user_key"], left_time="t", how="left")
        .writeStream.format("memory")
        .queryName("joined_map")
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert as_text(spark.sql("SELECT * FROM joined_map").toArrow()) == as_text(expected)

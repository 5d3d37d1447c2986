"""``writeStream.toTable`` into a table of a catalog: the commits are those of a stream to the store's path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

import statestore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0 = 1_700_000_000_000
COLUMNS = ["item", "price", f"timestamp_millis({T0} + cast(price AS bigint)) AS valid_from"]


@pytest.fixture
def catalog(spark: SparkSession, tmp_path: Path) -> str:
    """The name of a catalog with an empty versioned store ``prices``."""
    statestore.connect(tmp_path / "w").create_store("prices", key={"item": "string"}, value={"price": "double"}).close()
    statestore.register(spark, str(tmp_path / "w"), "streamed")
    return "streamed"


def arrive(tmp_path: Path, name: str, **prices: float) -> None:
    table = pa.table({"item": list(prices), "price": list(prices.values())})
    pq.write_table(table, tmp_path / "in" / f"{name}.parquet")


def arrivals(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """A stream of the files that arrive, one in each micro-batch."""
    (tmp_path / "in").mkdir()
    rows = spark.readStream.schema("item string, price double").option("maxFilesPerTrigger", 1)
    return rows.parquet(str(tmp_path / "in"))


def write(rows: DataFrame, table: str, checkpoint: Path, mode: str = "append") -> Any:
    """Write all that has arrived; return the query, or raise its error."""
    writer = rows.writeStream.outputMode(mode).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.toTable(table)
    query.awaitTermination()
    return query


@pytest.mark.slow
def test_batches_become_commits_once(spark: SparkSession, catalog: str, tmp_path: Path) -> None:
    rows = arrivals(spark, tmp_path).selectExpr(*COLUMNS)
    arrive(tmp_path, "1", curry=8.0)
    query = write(rows, f"{catalog}.prices", tmp_path / "ck")
    arrive(tmp_path, "2", curry=9.0, naan=2.0)
    for _ in range(2):  # the second time there is nothing new
        write(rows, f"{catalog}.prices", tmp_path / "ck")
    found = spark.table(f"{catalog}.prices.history").orderBy("valid_from").select("item", "price").collect()
    assert [tuple(row) for row in found] == [("naan", 2.0), ("curry", 8.0), ("curry", 9.0)]
    commits = spark.sql(f"SELECT application, batch FROM {catalog}.prices.versions WHERE operation = 'write'").collect()
    assert sorted(tuple(row) for row in commits) == [(str(query.id), 0), (str(query.id), 1)]
    spark.sql(f"TRUNCATE TABLE {catalog}.prices")
    assert spark.table(f"{catalog}.prices").count() == 0


@pytest.mark.quick("update*")
@pytest.mark.parametrize(("mode", "left"), [("update", ["dal", "curry"]), ("complete", ["curry"])])
def test_updates_replace_rows_of_their_keys_and_complete_results_all(
    spark: SparkSession, catalog: str, tmp_path: Path, mode: str, left: list[str]
) -> None:
    spark.sql(
        f"INSERT INTO {catalog}.prices VALUES ('dal', 5, timestamp_millis({T0})), ('curry', 1, timestamp_millis({T0}))"
    )
    sums = arrivals(spark, tmp_path).groupBy("item").agg(f.sum("price").alias("price"))
    rows = sums.selectExpr(*COLUMNS)
    arrive(tmp_path, "1", curry=8.0)
    write(rows, f"{catalog}.prices", tmp_path / "ck", mode)
    found = spark.table(f"{catalog}.prices").orderBy("price").collect()
    assert [row.item for row in found] == left and found[-1].price == 8.0


@pytest.mark.parametrize("table", ["prices.history", "prices.versions"])
def test_a_view_of_a_store_takes_no_stream(spark: SparkSession, catalog: str, tmp_path: Path, table: str) -> None:
    rows = arrivals(spark, tmp_path)
    with pytest.raises(AnalysisException, match=rf"{catalog}\.{table} doesn't support streaming write"):
        write(rows, f"{catalog}.{table}", tmp_path / "ck")

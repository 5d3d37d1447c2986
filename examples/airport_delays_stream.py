"""A streaming query whose state has a history: delays of New York's airports in 2013, month by month.

    pip install 'statestore[spark,demo]'
    python examples/airport_delays_stream.py [folder]

Twelve files arrive, one a month. A Structured Streaming query keeps the number of flights and the mean delay of each
airport, in update mode; it is stopped after May and started again. Every micro-batch is a version of the store, so the
state after each month can still be read at the end.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import statestore
from statestore.connector.demo.data import load

MONTHS = 12


def main(folder: Path) -> pa.Table:
    """Run everything in ``folder``; return the final state: origin, flights, mean_delay (minutes)."""
    flights = load().flights
    year = pc.subtract(pc.year(flights["departed"]), 2013)  # New Year's Eve ends in 2014, in UTC
    month = pc.min_element_wise(pc.add(pc.multiply(year, 12), pc.month(flights["departed"])), MONTHS)
    feed, warehouse = folder / "feed", folder / "warehouse"
    feed.mkdir(parents=True)
    with statestore.connect(warehouse).create_store(
        "delays", key={"origin": "string"}, value={"flights": "bigint", "mean_delay": "double"}
    ):
        pass
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.sql.session.timeZone", "UTC").config("spark.ui.enabled", "false").getOrCreate()
    statestore.register(spark)
    for first, last in ((1, 5), (6, MONTHS)):  # the query is stopped after May
        for number in range(first, last + 1):
            pq.write_table(flights.filter(pc.equal(month, number)), feed / f"{number:02d}.parquet")
            run_query(spark, feed, warehouse / "delays", folder / "checkpoint")
    show(warehouse)
    state = statestore.sql(str(warehouse), "SELECT origin, flights, mean_delay FROM delays ORDER BY origin")
    spark.stop()
    return state


def run_query(spark: SparkSession, feed: Path, store: Path, checkpoint: Path) -> None:
    """Process the files that are new since the last run of the query."""
    rows = spark.readStream.schema("origin string, dep_delay double, departed timestamp").parquet(str(feed))
    totals = rows.groupBy("origin").agg(
        f.count("*").alias("flights"), f.avg("dep_delay").alias("mean_delay"), f.max("departed").alias("timestamp")
    )
    writer = totals.writeStream.format("arrow_statestore").outputMode("update")
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(store)).awaitTermination()


def show(warehouse: Path) -> None:
    print("What each version knew of JFK:")
    for version in range(1, MONTHS + 1):
        text = f"SELECT flights, mean_delay FROM delays VERSION AS OF {version} WHERE origin = 'JFK'"
        (row,) = statestore.sql(str(warehouse), text).to_pylist()
        print(f"  version {version:2}: {row['flights']:7,} flights, {row['mean_delay']:5.2f} minutes late on average")
    print("Airports whose mean changed most from the end of June to the end of December:")
    text = """
        SELECT now.origin, round(old.mean_delay, 2) AS june, round(now.mean_delay, 2) AS december
        FROM delays now JOIN delays TIMESTAMP AS OF '2013-07-01T04:00Z' old USING (origin)
        ORDER BY abs(now.mean_delay - old.mean_delay) DESC
    """
    for row in statestore.sql(str(warehouse), text).to_pylist():
        print(f"  {row['origin']}: {row['june']} to {row['december']} minutes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))

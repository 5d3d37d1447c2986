"""Changelog topics that Spark reads itself, decoded by `statestore.kafka.decode`, in batches and in streams."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.kafka.real_applications import form_of, plain_rows, topic_table
from support.kafka.store_answers import assert_rows_are_the_stores, the_store

from statestore import kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


@pytest.mark.parametrize(("name", "store"), STORES)
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

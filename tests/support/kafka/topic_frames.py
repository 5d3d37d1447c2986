"""Records of recorded changelogs in the columns of Spark's Kafka source, and what a store must answer to them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from support.kafka.real_applications import Row, application, data
from support.kafka.store_answers import cases, expected, missing

BUFFERS = ("grace-join-buffer", "suppression-buffer")
ANSWERED = cases(
    lambda store: store["changelog"] is not None and store["kind"] not in (*BUFFERS, "window-duplicates", "versioned")
)
SPARK_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))


def topic_table(name: str, topic: str) -> pa.Table:
    """A recorded changelog as ``format("kafka")`` with ``includeHeaders`` gives a topic."""
    records = application(name).changelogs[topic]
    headers = [[{"key": k, "value": data(v)} for k, v in each["headers"]] or None for each in records]
    times = pa.array([each["timestamp"] * 1000 for each in records], pa.int64())
    return pa.table(
        {
            "key": pa.array([data(each["key"]) for each in records], pa.binary()),
            "value": pa.array([data(each["value"]) for each in records], pa.binary()),
            "topic": pa.array([topic] * len(records)),
            "partition": pa.array([each["partition"] for each in records], pa.int32()),
            "offset": pa.array([each["offset"] for each in records], pa.int64()),
            "timestamp": times.cast(pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * len(records), pa.int32()),
            "headers": pa.array(headers, SPARK_HEADERS),
        }
    )


def assert_rows_are_the_stores(name: str, store: dict[str, Any], rows: list[Row]) -> None:
    """Each record gives a row, a tombstone where it has no value, and the newest of each key are what the store
    answered; timestamps and headers that an old release did not keep are left out."""
    records = application(name).changelogs[store["changelog"]]
    places = [(each["partition"], each["offset"]) for each in records]
    assert set(places) == {(row["partition"], row["offset"]) for row in rows}
    deleted = {place for place, each in zip(places, records, strict=True) if each["value"] is None}
    assert deleted == {(row["partition"], row["offset"]) for row in rows if row["tombstone"]}
    newest = {(each["partition"], each["key"]): place for place, each in zip(places, records, strict=True)}
    living = set(newest.values()) - deleted
    for part in store["partitions"]:
        wanted = [expected(store, row) for row in part["rows"]]
        if any(row.get("timestamp", 0) is None for row in wanted):
            wanted = [{n: cell for n, cell in row.items() if n not in ("timestamp", "headers")} for row in wanted]
        found = [
            row for row in rows if row["partition"] == part["partition"] and (row["partition"], row["offset"]) in living
        ]
        assert missing(found, wanted) == Counter()

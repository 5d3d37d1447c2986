"""Queries of Spark that keep few batches, fed file by file or left to run, and the batches they ran, as they say."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.capture.models import (
    NEAR_S,
    TTL_MS,
    WINDOW_S,
    Batch,
    JoinModel,
    Model,
    Rows,
    VariablesModel,
    WindowsModel,
    canonical,
    events_of,
)
from support.checkpoints.running_queries import LAYOUTS, conf

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "k string, t timestamp, n bigint, s string"
_BEGAN = 1_780_000_000  # seconds: files are read in the order of their times
SETTINGS = {
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.asyncLogPurge.enabled": "false",  # otherwise it is not known when a batch is gone
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # a function with times has endless ones
}


def windows(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import expr, window

    timed = rows.withWatermark("t", "2 minutes").groupBy(window("t", f"{WINDOW_S} seconds"), "k")
    return timed.agg(expr("count(*) AS c"), expr("sum(n) AS n"))


def joined(rows: DataFrame) -> DataFrame:
    from pyspark.sql.functions import expr

    left = rows.where("s = 'l'").select("k", "t", "n").withWatermark("t", "2 minutes")
    right = rows.where("s = 'r'").selectExpr("k AS rk", "t AS rt", "n AS rn").withWatermark("rt", "2 minutes")
    near = f"rt BETWEEN t - INTERVAL {NEAR_S} SECONDS AND t + INTERVAL {NEAR_S} SECONDS"
    return left.join(right, expr(f"k = rk AND {near}"))


def variables(rows: DataFrame) -> DataFrame:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    ttl = TTL_MS  # the class goes to workers that do not know this module

    class Remember(StatefulProcessor):
        """Does what `VariablesModel` says."""

        def init(self, handle: StatefulProcessorHandle) -> None:
            self._last = handle.getValueState("last", "n bigint", ttlDurationMs=ttl)
            self._recent = handle.getListState("recent", "n bigint", ttlDurationMs=ttl)
            self._listed = handle.getListState("listed", "n bigint")
            self._seen = handle.getMapState("seen", "kind bigint", "n bigint")

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            import pandas as pd

            for n in sorted(n for frame in rows for n in frame["n"].tolist()):
                self._last.update((n,))
                self._recent.appendValue((n,))
                if n % 7 == 5:
                    self._listed.put([(n,)])
                else:
                    self._listed.appendValue((n,))
                self._seen.updateValue((n % 5,), (n,))
                if n % 4 == 1 and self._seen.containsKey((n % 3,)):
                    self._seen.removeKey((n % 3,))
            yield pd.DataFrame({"k": [key[0]]})

        def close(self) -> None:
            pass

    return rows.groupBy("k").transformWithStateInPandas(Remember(), "k string", "Update", "ProcessingTime")


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], str, type[Model]]] = {
    "windows": (windows, "update", WindowsModel),
    "join": (joined, "append", JoinModel),
    "variables": (variables, "update", VariablesModel),
}


@dataclass
class FollowedQuery:
    """A query over the files of ``folder/rows``, each of which is a batch; ``batches`` are those that it has run."""

    spark: SparkSession
    folder: Path
    query: str
    layout: str
    seed: int
    batches: list[Batch] = field(default_factory=list)
    written: int = 0

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(QUERIES[self.query][2].states)

    def feed(self) -> None:
        """Give the query the file of one more batch."""
        name = f"{self.written:05d}.json"
        hidden = self.folder / f".{name}"
        events = events_of(self.seed, self.written)
        hidden.write_text("".join(json.dumps(event.row()) + "\n" for event in events))
        os.utime(hidden, (_BEGAN + self.written, _BEGAN + self.written))
        hidden.rename(self.folder / "rows" / name)
        self.written += 1

    def truth(self) -> list[dict[str, Rows]]:
        """The rows of each state after each batch."""
        model = QUERIES[self.query][2](self.seed)
        return [model.take(batch) for batch in self.batches]

    def first_readable(self, after: int) -> int:
        """The first batch after one that Spark's own reader can read."""
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        for batch in range(after + 1, len(self.batches)):
            try:
                for state in self.states:
                    self.read_by_spark(state, batch)
            except (PySparkException, Py4JJavaError):
                continue
            return batch
        raise AssertionError(f"Spark reads no batch after {after}")

    def read_by_spark(self, state: str, batch: int) -> Rows:
        """The rows of a state after a batch, as Spark's own reader has them."""
        reader = self.spark.read.format("statestore").option("provider", "builtin").option("batchId", batch)
        if self.query == "join":
            reader = reader.option("joinSide", state)
        if self.query == "variables":
            reader = reader.option("stateVarName", state).option("flattenCollectionTypes", "true")
        columns = {
            "listed": ("key", "list_element"),
            "recent": ("key", "list_element"),
            "seen": ("key", "user_map_key", "user_map_value"),
        }.get(state, ("key", "value"))
        table = reader.load(str(self.checkpoint)).select(*columns).toArrow()
        return Rows(map(canonical, table.to_pylist()))

    def ran(self, frame: DataFrame, number: int) -> None:
        """Run a batch, and record what its offsets say."""
        frame.write.format("noop").mode("overwrite").save()
        _, facts, offset, *_ = (self.checkpoint / "offsets" / str(number)).read_text().splitlines()
        said = json.loads(facts)
        files = json.loads(offset)["logOffset"] + 1
        assert number == len(self.batches), "a batch was run again"
        self.batches.append(Batch(number, files, said["batchTimestampMs"], said["batchWatermarkMs"]))


@contextmanager
def running(query: FollowedQuery) -> Iterator[StreamingQuery]:
    """Run a query; it runs a batch for each file that it is given."""
    (query.folder / "rows").mkdir(parents=True)
    result, mode, _ = QUERIES[query.query]
    with conf(query.spark, LAYOUTS[query.layout] | SETTINGS):
        rows = query.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(query.folder / "rows"))
        writer = result(rows).writeStream.outputMode(mode).foreachBatch(query.ran)
        started = writer.option("checkpointLocation", str(query.checkpoint)).trigger(processingTime="0 seconds").start()
        try:
            yield started
        finally:
            started.stop()

"""Streams out of stores, into stores and from store to store, while processes of Spark die at chosen steps.

``python -m support.processes.killed_streams MASTER FOLDER CASES`` prints as JSON what each case of CASES came to: how
often the query was started, and how many processes died. CASES is a list, as JSON, of lists of stream, step, when,
deaths, who, passes. A query that fails is started again from its checkpoint. What the streams have written lies in
FOLDER, by the number of the case. The warehouse FOLDER/w has the stores ``t`` and ``live``; FOLDER/in has files.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException

import statestore
from statestore.tracked import StateSpec, Tracked
from support.dying_workers.deaths import FOLDER, arm, count, reach
from support.dying_workers.session import dying_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MOST_STARTS = 5
FEED = "id bigint, v bigint, valid_from timestamp, _change_type string, _commit_version bigint"


def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A function of a user whose process dies between two rows that it has passed on."""
    reach("function", "first")
    for batch in batches:
        half = batch.num_rows // 2
        yield batch.slice(0, half)
        reach("function", "middle")
        yield batch.slice(half)
    reach("function", "last")


class Streams:
    """The queries, by name, each into the place of a case."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def start(self, stream: str, case: int) -> StreamingQuery:
        build: Callable[[Path], Any] = getattr(self, stream)
        place = self._folder / str(case)
        writer, target = build(place)
        query: StreamingQuery = writer.option("checkpointLocation", str(place / "checkpoint")).start(target)
        return query

    def feed(self, place: Path) -> tuple[Any, str]:
        """A change feed into files, which Spark itself writes exactly once."""
        return self._changes("t").writeStream.format("parquet"), str(place / "found")

    def feed_of_live_store(self, place: Path) -> tuple[Any, str]:
        return self._changes("live").writeStream.format("parquet"), str(place / "found")

    def feed_of_checkpoint(self, place: Path) -> tuple[Any, str]:
        """The changes of the state of another streaming query."""
        reader = self._spark.readStream.format("statestore").option("readChangeFeed", "true")
        rows = reader.load(str(self._folder / "counts"))
        rows = rows.selectExpr("_commit_version", "_change_type", "key.user AS user", "value.count AS n")
        return rows.writeStream.format("parquet"), str(place / "found")

    def counts(self) -> Any:
        return self._files().groupBy("user").count().writeStream.outputMode("update").format("noop")

    def records(self, place: Path) -> tuple[Any, str]:
        """The records that tracked state emitted, into files."""
        return self.tracked().records().writeStream.format("parquet"), str(place / "found")

    def tracked(self) -> Tracked:
        return statestore.track_state_by_key(
            self._files(),
            key="user",
            spec=StateSpec.function(_count),
            store=self._folder / "w" / "users",
            state_type="bigint",
            output_type="user bigint, n bigint",
        )

    def copy(self, place: Path) -> tuple[Any, str]:
        """A change feed through a function into another store."""
        rows = self._changes("t").select("id", "v", "valid_from", "_change_type", "_commit_version")
        rows = rows.mapInArrow(passing, FEED).where("_change_type in ('insert', 'update_postimage')")
        return self._into_store(rows.selectExpr("id", "v", "valid_from AS timestamp")), self._store(place)

    def append(self, place: Path) -> tuple[Any, str]:
        """Files into a store, with tasks that resolve their rows."""
        rows = self._files().selectExpr("user AS id", "amount AS v", "timestamp_millis(amount) AS timestamp")
        return self._into_store(rows), self._store(place)

    def append_few(self, place: Path) -> tuple[Any, str]:
        """Files into a store, with so few rows that the commit resolves them."""
        rows = self._files().where("amount % 100 = 0")
        rows = rows.selectExpr("user AS id", "amount AS v", "timestamp_millis(amount) AS timestamp")
        return self._into_store(rows), self._store(place)

    def live(self, place: Path) -> tuple[Any, str]:
        """Files into a store with a hot tier."""
        rows = self._files().selectExpr("amount AS id", "user AS v")
        return self._into_store(rows), self._store(place, "key_value")

    def complete(self, place: Path) -> tuple[Any, str]:
        """Sums by user, all of them in each batch."""
        return self._into_store(self._sums()).outputMode("complete"), self._store(place, "key_value")

    def update(self, place: Path) -> tuple[Any, str]:
        """Sums by user, those that a batch changes."""
        return self._into_store(self._sums()).outputMode("update"), self._store(place, "key_value")

    def joined(self, place: Path) -> tuple[Any, str]:
        """Files joined as of their time with a store, into files."""
        rows = self._files().selectExpr("user AS id", "amount", "timestamp_millis(amount) AS time")
        joined = statestore.asof_join(rows, self._folder / "w" / "t", on="id", left_time="time", columns=["v"])
        return joined.writeStream.format("parquet"), str(place / "found")

    def joined_with_grace(self, place: Path) -> tuple[Any, str]:
        """The same, with rows that wait in Spark's state."""
        rows = self._files().selectExpr("user AS id", "amount", "timestamp_millis(amount) AS time")
        store = self._folder / "w" / "t"
        joined = statestore.asof_join(rows, store, on="id", left_time="time", columns=["v"], grace=1_000)
        return joined.writeStream.format("parquet"), str(place / "found")

    def _changes(self, store: str) -> DataFrame:
        reader = self._spark.readStream.format("statestore").option("readChangeFeed", "true")
        return reader.option("maxVersionsPerTrigger", 2).load(str(self._folder / "w" / store))

    def _files(self) -> DataFrame:
        reader = self._spark.readStream.schema("user bigint, amount bigint").option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self._folder / "in"))

    def _sums(self) -> DataFrame:
        return self._files().groupBy("user").sum("amount").toDF("id", "v")

    def _into_store(self, rows: DataFrame) -> Any:
        return rows.writeStream.format("statestore")

    def _store(self, place: Path, kind: Any = "versioned") -> str:
        if not (place / "w").exists():
            catalog = statestore.connect(place / "w")
            catalog.create_store("found", kind, key={"id": "bigint"}, value={"v": "bigint"}).close()
        return str(place / "w" / "found")


def _count(batch_time: Any, user: int, amount: int, state: Any) -> tuple[int, int]:
    state.update((state.get_option() or 0) + 1)
    return user, state.get()


def main(master: str, folder: Path, cases: list[tuple[str, str, str, int, str, int]]) -> None:
    spark = dying_session(master)
    streams = Streams(spark, folder)
    if any(stream == "records" for stream, *_ in cases):
        checkpoint = folder / "checkpoint of users"
        streams.tracked().start(checkpoint=checkpoint, retained=9, trigger={"availableNow": True}).awaitTermination()
    if any(stream == "feed_of_checkpoint" for stream, *_ in cases):
        counts = streams.counts().option("checkpointLocation", str(folder / "counts"))
        counts.trigger(availableNow=True).start().awaitTermination()
    answers = []
    for number, (stream, step, when, deaths, who, passes) in enumerate(cases):
        arm(Path(os.environ[FOLDER]), step, when, deaths=deaths, who=who, passes=passes)
        starts, errors = 0, []
        while starts < MOST_STARTS:
            starts += 1
            query = streams.start(stream, number)
            try:
                query.processAllAvailable()
                break
            except PySparkException as error:
                errors.append(str(error)[-1500:])
            finally:
                query.stop()
        answers.append({"starts": starts, "deaths": count(Path(os.environ[FOLDER])), "errors": errors})
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))

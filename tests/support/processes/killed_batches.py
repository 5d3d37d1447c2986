"""Reads, writes and keyed jobs of DataFrames, while processes of Spark die at chosen steps.

``python -m support.processes.killed_batches MASTER FOLDER CASES`` prints as JSON what each case of CASES came to: how
often it was started, how many processes died, and its answer. CASES is a list, as JSON, of lists of what runs, step,
when, deaths, who, passes. What fails is started again. What is written lies in FOLDER, by the number of the case. The
warehouse FOLDER/w has the store ``t``; FOLDER/in has files.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import statestore
from statestore.connector.spark.planner import read_plan
from statestore.connector.spark.source import StateStoreSource
from statestore.tracked import State, StateSpec
from support.dying_workers.deaths import FOLDER, arm, count, reach
from support.dying_workers.session import dying_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_STARTS = 3
OUTPUT = "user bigint, n bigint"
PLAIN = "plain_statestore"


def counting(backend: Any) -> Callable[[int, pa.RecordBatch], Iterator[tuple[int, int]]]:
    seen = backend.value_state("seen", "bigint", default=0)

    def process(user: int, rows: pa.RecordBatch) -> Iterator[tuple[int, int]]:
        for _ in range(rows.num_rows):
            seen.update(seen.value() + 1)
            yield user, seen.value()
        if user % 7 == 3:
            reach("function", "middle")

    return process


def tracking(batch_time: Any, user: int, amount: int, state: State) -> tuple[int, int]:
    state.update((state.get_option() or 0) + 1)
    if user % 7 == 3:
        reach("function", "middle")
    return user, state.get()


class Batches:
    """The reads and writes, by name. Each returns its rows, and may be repeated after a failure."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._t = str(folder / "w" / "t")

    def unplanned(self, _: Path) -> DataFrame:
        """A read that Spark's planner does not shape."""
        return self._spark.read.schema("id bigint, v bigint").format("statestore").load(self._t)

    def unplanned_changes(self, _: Path) -> DataFrame:
        kind = "_commit_version bigint, _change_type string, id bigint, v bigint"
        return self._spark.read.schema(kind).format("statestore").option("readChangeFeed", "true").load(self._t)

    def sql(self, _: Path) -> DataFrame:
        text = "SELECT id, v FROM t TIMESTAMP AS OF '1970-01-01T00:00:03Z'"
        return statestore.sql(str(self._folder / "w"), text, spark=self._spark)

    def joined(self, _: Path) -> DataFrame:
        rows = self._files().selectExpr("user AS id", "amount", "timestamp_millis(amount) AS time")
        found: DataFrame = statestore.asof_join(rows, self._t, on="id", left_time="time", columns=["v"])
        return found.select("id", "amount", "v")

    def appended(self, place: Path) -> None:
        self._write(place, "append", self._files())

    def appended_few(self, place: Path) -> None:
        self._write(place, "append", self._files().where("amount % 100 = 0"))

    def overwritten(self, place: Path) -> None:
        self._write(place, "overwrite", self._files().where("amount >= 8000"))

    def keyed(self, place: Path) -> DataFrame:
        return statestore.run_keyed(
            self._files(),
            counting,
            key="user",
            store=self._keyed_store(place),
            output=OUTPUT,
            tasks=3,
            transaction=("job", 1),
        )

    def tracked(self, place: Path) -> DataFrame:
        tracked = statestore.track_state_by_key(
            self._files(),
            key="user",
            spec=StateSpec.function(tracking).num_partitions(3),
            store=self._keyed_store(place),
            state_type="bigint",
            output_type=OUTPUT,
        )
        return tracked.run(transaction=("job", 1))

    def keyed_stream(self, place: Path) -> DataFrame:
        """A keyed stream in batches of a file, each of which the sink writes to a folder of its own."""
        stream = self._spark.readStream.schema("user bigint, amount bigint").option("maxFilesPerTrigger", 1)
        query = statestore.run_keyed_stream(
            stream.parquet(str(self._folder / "in")),
            counting,
            key="user",
            store=self._keyed_store(place),
            output=OUTPUT,
            checkpoint=place / "checkpoint",
            sink=lambda rows, number: rows.write.mode("overwrite").parquet(str(place / "sunk" / f"batch={number}")),
            tasks=3,
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        return self._spark.read.parquet(str(place / "sunk")).select("user", "n")

    def _files(self) -> DataFrame:
        return self._spark.read.parquet(str(self._folder / "in"))

    def _write(self, place: Path, mode: str, rows: DataFrame) -> None:
        """Write through Spark's own writer of Python sources, which a session takes that is not classic."""
        if not (place / "w").exists():
            types: dict[str, Any] = {"key": {"id": "bigint"}, "value": {"v": "bigint"}}
            with statestore.connect(place / "w").create_store("found", **types) as store:
                store.put(-1, -1, timestamp=0)
                store.commit()
        rows = rows.selectExpr("user AS id", "amount AS v", "timestamp_millis(amount) AS timestamp")
        writer = rows.write.format(PLAIN).mode(mode).option("txnAppId", "job").option("txnVersion", 1)
        writer.save(str(place / "w" / "found"))

    def _keyed_store(self, place: Path) -> Path:
        if not (place / "w").exists():
            statestore.connect(place / "w").create_store("found", "keyed", key={"user": "bigint"}).close()
        return place / "w" / "found"


def main(master: str, folder: Path, cases: list[tuple[str, str, str, int, str, int]]) -> None:
    read_plan.MOST_READ = read_plan.MOST_SUMMED = -1  # all reads by tasks
    spark = dying_session(master)
    spark.dataSource.register(type("PlainSource", (StateStoreSource,), {"name": classmethod(lambda _: PLAIN)}))
    batches = Batches(spark, folder)
    answers = []
    for number, (what, step, when, deaths, who, passes) in enumerate(cases):
        arm(Path(os.environ[FOLDER]), step, when, deaths=deaths, who=who, passes=passes)
        starts, errors = 0, []
        rows: Any = None
        while starts < MOST_STARTS:
            starts += 1
            try:
                found = getattr(batches, what)(folder / str(number))
                rows = None if found is None else [list(row) for row in found.collect()]
                break
            except (PySparkException, Py4JJavaError) as error:
                errors.append(str(error)[-1500:])
        deaths = count(Path(os.environ[FOLDER]))
        answers.append({"starts": starts, "deaths": deaths, "errors": errors, "rows": rows})
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))

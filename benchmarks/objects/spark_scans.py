"""Spark's reads of a store and of plain Parquet, in one session, from one server.

Parquet is read by Spark's own reader through Hadoop's client of S3 with its default settings. That client keeps in
memory what it has read of an object (``fs.s3a.input.stream.type`` is ``analytics`` since Hadoop 3.5), so Parquet, too,
is read cold, each time a new copy of the file, and warm: each temperature has its own floor. Each call is all that a
user waits for: from the path to the last row, with listing or opening, planning and tasks. "all" goes to Spark's sink
``noop``, which takes every column of every row and keeps none: collecting would measure the transfer to Python, and an
aggregate over all columns would be pushed into our read, so that Spark got one row. "sum" is that question, asked where
the push is part of the offer: the sum of one column.
"""

from __future__ import annotations

import gc
import os
import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.loads.oracle import WrongAnswerError, check, live_events
from benchmarks.loads.stream import COLUMNS
from benchmarks.objects.s3a_jars import s3a_jars
from benchmarks.objects.timed import CACHE, GOAL, MOMENTS, STORE, Bench, Cost

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TASKS = 2
SUM = "sum(price) AS price"


class SparkScans:
    """A session with two cores, and what it reads."""

    def __init__(self, spark: SparkSession, bench: Bench, cache: Path) -> None:
        self._spark, self._bench, self._cache = spark, bench, cache
        self._copies: dict[str, int] = {}
        self._bucket = f"s3a://{bench.server.bucket}"

    def store(self, warehouse: str, moment: int | None) -> DataFrame:
        """The rows of the store at a moment (None: now), with the keys that the session has."""
        reader = self._spark.read.format("statestore")
        if moment is not None:
            reader = reader.option("timestampAsOf", moment)
        return reader.load(f"{self._bucket}/{warehouse}/{STORE}").select(*COLUMNS)

    def parquet(self, label: str) -> DataFrame:
        """Return the rows of the moment from plain Parquet: the last copy of the file."""
        return self._spark.read.parquet(f"{self._bucket}/plain/{self._copy(label)}.parquet")

    def renew(self, label: str) -> None:
        """Make a copy of plain Parquet that the session has not seen. It does not expect that a file changes."""
        self._copies[label] = self._copies.get(label, 0) + 1
        self._bench.plain.copy(label, self._copy(label))

    def _copy(self, label: str) -> str:
        return f"{label}-{self._copies[label]}"

    def forget(self) -> None:
        """Let the driver and the workers of the tasks begin as on new machines, with code and workers that are up."""
        self._bench.forget()
        # Workers of RDDs are others than those of SQL. A barrier stage has all its tasks at the same time.
        tasks = self._spark.range(0, TASKS, 1, TASKS)
        reached = tasks.mapInArrow(_forget, "worker bigint", barrier=True).collect()
        assert len(set(reached)) == TASKS, reached
        os.environ[CACHE] = str(self._cache)  # driver and tasks are on one machine

    def check(self, warehouse: str) -> None:
        """Compare the answers of all moments with the truth."""
        for label, share in MOMENTS.items():
            moment = None if share is None else self._bench.stream.moment(share)
            events = live_events(self._bench.stream, moment)
            self.renew(label)
            for side, frame in (("store", self.store(warehouse, moment)), ("Parquet", self.parquet(label))):
                check(self._bench.stream, frame.toArrow(), events, f"Spark, {side}, {warehouse}, {label}")

    def measure(self, warehouse: str, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Scans of all columns and sums of one, against those of plain Parquet. The cache is cold and then warm."""
        for label, share in MOMENTS.items():
            moment = None if share is None else self._bench.stream.moment(share)
            for question in ("all", "sum"):
                yield from self._compared(warehouse, about, label, moment, question)

    def _compared(
        self, warehouse: str, about: dict[str, Any], label: str, moment: int | None, question: str
    ) -> Iterator[dict[str, Any]]:
        def ours() -> Any:
            return _answer(self.store(warehouse, moment), question)

        def plain() -> Any:
            return _answer(self.parquet(label), question)

        found, expected = ours(), plain()  # the first of each also compiles what the JVM runs
        if question == "sum" and abs(found - expected) > 1e-6 * abs(expected):
            raise WrongAnswerError(f"Spark's sum is {found}, that of plain Parquet {expected}.")
        cold = self._bench.cost(ours, self.forget), self._bench.cost(plain, lambda: self.renew(label))
        warm = self._bench.cost(ours), self._bench.cost(plain)
        for temperature, costs in (("cold", cold), ("warm", warm)):
            yield {
                "measure": "scan", **about, "moment": label, "question": question, "side": "Spark",
                "temperature": temperature, **_fields(*costs), "plain_kinds": costs[1].seen.kinds,
            }  # fmt: skip


def _fields(found: Cost, floor: Cost) -> dict[str, Any]:
    """The fields of a figure whose calls open the store themselves."""
    ratio = round(found.ms / floor.ms, 2)
    return {
        "ratio": ratio, "goal": GOAL, "ratio_with_open": ratio,
        "bytes_ratio": round(found.seen.received / floor.seen.received, 2), **found.fields,
        **{f"plain_{name}": value for name, value in floor.fields.items()}, "kinds": found.seen.kinds,
    }  # fmt: skip


def _answer(frame: DataFrame, question: str) -> Any:
    if question == "sum":
        return frame.selectExpr(SUM).collect()[0].price
    return frame.write.format("noop").mode("overwrite").save()


def _forget(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import BarrierTaskContext

    from statestore.catalog.reads import segment_files

    deque(batches, maxlen=0)  # Spark waits until its rows are taken
    segment_files._shared.clear()
    gc.collect()
    shutil.rmtree(os.environ[CACHE], ignore_errors=True)
    BarrierTaskContext.get().barrier()  # no task ends, and leaves its worker to another one, before all are here
    yield pa.record_batch({"worker": [os.getpid()]})


@contextmanager
def spark_scans(bench: Bench, folder: Path) -> Iterator[SparkScans]:
    """A session of Spark until the block ends. Raises NoSparkError where there is none, or no client of S3 for it."""
    cache = folder / "cache-of-spark"
    spark = _session(bench, cache, s3a_jars())
    try:
        yield SparkScans(spark, bench, cache)
    finally:
        spark.stop()


def _session(bench: Bench, cache: Path, jars: Sequence[str]) -> SparkSession:
    from pyspark.sql import SparkSession

    import statestore

    server = bench.server
    settings = {
        "endpoint": server.endpoint, "endpoint.region": server.region, "path.style.access": "true",
        "connection.ssl.enabled": "false", "access.key": server.access_key, "secret.key": server.secret_key,
    }  # fmt: skip
    before = os.environ.get(CACHE)
    os.environ[CACHE] = str(cache)  # of the JVM, which hands it to the workers
    builder = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.jars", ",".join(jars))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.python.factory.idleWorkerMaxPoolSize", TASKS)  # all that there are can be told to forget
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
    )
    for name, value in settings.items():
        builder = builder.config(f"spark.hadoop.fs.s3a.{name}", value)
    spark = builder.getOrCreate()
    os.environ.pop(CACHE)
    os.environ.update({} if before is None else {CACHE: before})
    statestore.register(spark)
    return spark

"""A keyed streaming query in a process of its own, which is killed with everything it started at a chosen batch.

Arguments: input folder, store, checkpoint, folder for what the sink is given, number of tasks, and optionally the batch
to die at and when: ``task`` (a task is at work), ``staged`` (all tasks are done, nothing is committed), ``committed``
(the sink knows nothing yet), ``sunk`` (Spark has not committed). With ``worker`` one worker process dies at the batch's
rows, and another one when it has stored a file of its snapshot, and Spark repeats their tasks.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession

import statestore
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import stored_files, take_snapshot
from support.processes.streaming_process import kill_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_AMOUNTS = 1_000_000
"""Amounts of a batch's rows begin with its number."""
OUTPUT = "user bigint, seen bigint, total bigint"


def totals(died: str, batch: int, when: str, session: int) -> Callable[[KeyedBackend], Any]:
    """Count and sum by user; ``died`` is a file that exists once a worker has died."""

    def factory(backend: KeyedBackend) -> Callable[[int, pa.RecordBatch], Iterator[tuple[int, int, int]]]:
        if when == "worker":
            die_in_snapshot(f"{died}-in-snapshot")
        seen = backend.value_state("seen", "bigint", default=0)
        amounts = backend.list_state("amounts", "bigint")

        def process(key: int, rows: pa.RecordBatch) -> Iterator[tuple[int, int, int]]:
            seen.update(seen.value() + rows.num_rows)
            amounts.add_all(rows.column("amount").to_pylist())
            if rows.column("amount")[0].as_py() // BATCH_AMOUNTS == batch and key % 7 == 3:
                if when == "task":
                    kill_session(session)
                if when == "worker" and not Path(died).exists():
                    Path(died).touch()
                    os.kill(os.getpid(), signal.SIGKILL)
            yield key, seen.value(), sum(amounts.get())

        return process

    return factory


def die_in_snapshot(died: str) -> None:
    """Kill this process when it has stored a file of its snapshot, if no process was killed yet."""
    store = stored_files.store_copy

    def storing(*given: Any) -> Any:
        found = store(*given)
        if not Path(died).exists():
            Path(died).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    setattr(take_snapshot, "store_copy", storing)  # noqa: B010 - a function for a function


def main(source: str, store: str, checkpoint: str, sunk: str, tasks: str, batch: str = "-1", when: str = "") -> None:
    session, commit, numbers = os.getsid(0), KeyedStore.commit, [-1]

    def dying_commit(self: KeyedStore, handles: Any, *, transaction: Any = None, **more: Any) -> int:
        numbers[0] = transaction[1]
        if when == "staged" and numbers[0] == int(batch):
            kill_session(session)
        version = commit(self, handles, transaction=transaction, **more)
        if when == "committed" and numbers[0] == int(batch):
            kill_session(session)
        return version

    setattr(KeyedStore, "commit", dying_commit)  # noqa: B010 - a method for a method

    def sink(rows: DataFrame, number: int) -> None:
        found = sorted(tuple(row) for row in rows.collect())
        with Path(sunk, f"{number:04d}").open("a") as file:
            file.write(json.dumps(found) + "\n")
        if when == "sunk" and number == int(batch):
            kill_session(session)

    builder = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.log.level", "OFF").config("spark.local.dir", f"{checkpoint}-scratch").getOrCreate()
    statestore.register(spark)
    rows = spark.readStream.schema("user bigint, amount bigint").option("maxFilesPerTrigger", 1).parquet(source)
    statestore.run_keyed_stream(
        rows,
        totals(f"{checkpoint}-died", int(batch), when, session),
        key="user",
        store=store,
        output=OUTPUT,
        checkpoint=checkpoint,
        sink=sink,
        tasks=int(tasks),
        trigger={"availableNow": True},
    ).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

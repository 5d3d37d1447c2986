"""A stream with state tracked by key in a process of its own, which is killed with everything it started.

Arguments: input folder, store, checkpoint, folder for what the sink is given, number of partitions, and optionally the
batch to die at and when: ``task`` (a task is at work), ``staged`` (all tasks are done, nothing is committed),
``committed`` (the sink knows nothing yet), ``sunk`` (Spark has not committed).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

import statestore
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.tracked import State, StateSpec
from support.processes.streaming_process import kill_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T0 = 1_700_000_000
TIMEOUT_SECONDS = 3
"""Batches are a second apart."""
OUTPUT = "user bigint, seen bigint, total bigint, why string"
Emitted = tuple[int, int, int, str]


def followed(batch: int, when: str, session: int) -> Callable[[datetime, int, int | None, State], Emitted | None]:
    """Count and sum by user until an amount can be divided by 11; emit each record, and users that are idle."""

    def follow(batch_time: datetime, user: int, amount: int | None, state: State) -> Emitted | None:
        if when == "task" and batch_time.timestamp() - T0 == batch and user % 7 == 3:
            kill_session(session)
        before = state.get_option() or {"seen": 0, "total": 0}
        if amount is None:
            return user, before["seen"], before["total"], "idle"
        if amount % 11 == 0:
            state.remove()
            return (user, before["seen"], before["total"], "left") if before["seen"] else None
        state.update({"seen": before["seen"] + 1, "total": before["total"] + amount})
        return user, before["seen"] + 1, before["total"] + amount, "here"

    return follow


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

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.log.level", "OFF").config("spark.local.dir", f"{checkpoint}-scratch").getOrCreate()
    statestore.register(spark)
    initial = spark.createDataFrame(
        [(user, 1, user) for user in range(0, 40, 3)], "user bigint, seen bigint, total bigint"
    )
    rows = spark.readStream.schema("user bigint, amount bigint").option("maxFilesPerTrigger", 1).parquet(source)
    function = StateSpec.function(followed(int(batch), when, session))
    statestore.track_state_by_key(
        rows,
        key="user",
        spec=function.initial_state(initial).num_partitions(int(tasks)).timeout(TIMEOUT_SECONDS * 1000),
        store=store,
        state_type="seen bigint, total bigint",
        output_type=OUTPUT,
        clock=lambda number: datetime.fromtimestamp(T0 + number, UTC),
    ).start(sink, checkpoint=checkpoint, trigger={"availableNow": True}, retained=3).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Keyed runs of a cluster of processes, in each of which an executor dies while a task of its takes a snapshot.

``python dying_executors.py MASTER STORE MARKS RUNS``: each run adds one for every key, as a transaction. The
executor is killed after a task has stored ``n`` files of the n-th run's snapshot; Spark repeats its tasks elsewhere.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark.cloudpickle
from pyspark.sql import SparkSession

import statestore
from statestore.catalog.keyed.backend import KeyedBackend

KEYS = 50


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def counting(mark: str, after: int) -> Any:
    def factory(backend: KeyedBackend) -> Any:
        from statestore.catalog.keyed.snapshots import stored_files, take_snapshot

        stored = [0]

        def storing(*given: Any) -> Any:
            found = stored_files.store_copy(*given)
            stored[0] += 1
            if stored[0] == after and not Path(mark).exists():
                Path(mark).touch()
                os.kill(parent(os.getppid()), signal.SIGKILL)  # this worker, its daemon, the executor
                signal.pause()
            return found

        setattr(take_snapshot, "store_copy", storing)  # noqa: B010 - a function for a function
        count = backend.value_state("count", "bigint", default=0)

        def process(key: str, rows: pa.RecordBatch) -> Iterator[tuple[str, int]]:
            count.update(count.value() + rows.num_rows)
            yield key, count.value()

        return process

    return factory


def main(master: str, store: str, marks: str, runs: int) -> None:
    by_value: Any = pyspark.cloudpickle.register_pickle_by_value
    by_value(sys.modules["__main__"])
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.executor.memory", "1g").getOrCreate()
    rows = spark.sql(f"SELECT concat('k', id) AS k FROM range(0, {KEYS}, 1, 4)")
    for number in range(1, runs + 1):
        answer = statestore.run_keyed(
            rows,
            counting(f"{marks}/{number}", number),
            key="k",
            store=store,
            output="k string, n bigint",
            tasks=3,
            transaction=("app", number),
        )
        found = sorted((row.k, row.n) for row in answer.collect())
        assert found == sorted((f"k{key}", number) for key in range(KEYS)), found
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

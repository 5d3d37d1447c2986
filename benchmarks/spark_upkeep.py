"""Compaction in the tasks of a Spark session, beside the same compaction in one process. Prints JSON lines.

    python -m benchmarks.spark_upkeep [--quick]

A store of hot keys with late records and deletes is written once, copied for each run, and compacted both ways by
turns. ``ratio`` is this package's wall time in tasks over its wall time in one process; ``cpu_ratio`` the same of CPU
time of all processes. Memory is the peak of the greatest Python process, without mapped files.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

import statestore
from benchmarks.spark_write import measured, session

T0 = 1_700_000_000_000


def main(commits: int, rows: int, runs: int, folder: Path) -> None:
    spark = session()
    statestore.register(spark)
    write(folder / "made", commits, rows)
    costs: dict[str, list[tuple[float, float, int]]] = {"tasks": [], "process": []}
    answers = set()
    for run in range(runs + 1):
        for way, found in costs.items():
            copy = folder / way
            shutil.copytree(folder / "made", copy)
            with statestore.connect(copy).open_store("s", auto_compact=False) as store:
                cost = measured(partial(store.compact, full=True, spark=spark if way == "tasks" else None))
                answers.add(pa.compute.sum(store.scan(columns=["v"]).read_all()["v"]).as_py())
            shutil.rmtree(copy)
            if run:  # the first ones warm up
                found.append(cost)
    assert len(answers) == 1, answers
    cpu, wall = ({way: statistics.median(cost[n] for cost in found) for way, found in costs.items()} for n in (0, 1))
    figure = {
        "measure": "compaction in tasks",
        "rows": commits * rows,
        "ratio": round(wall["tasks"] / wall["process"], 2),
        "cpu_ratio": round(cpu["tasks"] / cpu["process"], 2),
        "seconds": {way: round(value, 2) for way, value in wall.items()},
        "cpu_seconds": {way: round(value, 2) for way, value in cpu.items()},
        "mebibytes": {way: max(cost[2] for cost in found) >> 20 for way, found in costs.items()},
    }
    print(json.dumps(figure), flush=True)
    spark.stop()


def write(warehouse: Path, commits: int, rows: int) -> None:
    random = np.random.default_rng(1)
    catalog = statestore.connect(warehouse)
    catalog.create_store("s", key={"k": "string"}, value={"v": "bigint", "note": "string"}).close()
    keys = commits * rows // 10
    with catalog.open_store("s", auto_compact=False) as store:
        for number in range(commits):
            key = (random.random(rows) ** 3 * keys).astype(np.int64)
            time = T0 + (np.arange(rows) + number * rows) - np.where(random.random(rows) < 0.01, rows, 0)
            change = np.where(random.random(rows) < 0.03, "delete", "insert")
            texts = [f"item-{n:012d}" for n in key.tolist()]
            notes = [f"note {n % 1000} of the row" for n in key.tolist()]
            table = {"k": texts, "v": key, "note": notes, "timestamp": time, "_change_type": change}
            store.write(pa.table(table))


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    with tempfile.TemporaryDirectory() as made_here:
        main(10, 20_000 if quick else 300_000, 1 if quick else 3, Path(made_here))

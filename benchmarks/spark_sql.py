"""Spark SQL over a store against `spark.read.parquet` of the same live rows. Prints JSON lines.

    python benchmarks/spark_sql.py            5M live rows of 10M versions, three commits
    python benchmarks/spark_sql.py --quick    500k live rows

The store has hot keys, 3 % deletes and 1 % late records. Each statement runs in turn over Parquet and over the catalog,
in one session with two cores; figures are the least of the runs. ``cpu`` is user and system time of the JVM, its Python
workers and this process; ``ratio`` is ours to Parquet's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import statestore

TICKS = os.sysconf("SC_CLK_TCK")
STATEMENTS: dict[str, tuple[str, float]] = {
    "sum of one column": ("SELECT sum(price) FROM {t}", 1.3),
    "all columns": ("SELECT * FROM {t}", 1.1),
    "count(*)": ("SELECT count(*) FROM {t}", 0.5),
    "count of different keys": ("SELECT count(DISTINCT item) FROM {t}", 1.3),
    "one key": ("SELECT * FROM {t} WHERE item = 'item-00004711'", 0.3),
    "join on the key": ("SELECT count(*), sum(a.price - b.n) FROM {t} a JOIN {t} b ON a.item = b.item", 0.8),
}


def report(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def processes() -> list[int]:
    """This process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [os.getpid()]
    while queue:
        found.append(queue.pop())
        queue += parents.get(found[-1], [])
    return found


def cpu_seconds() -> dict[int, float]:
    """User and system time of each process of the tree."""
    spent = {}
    for process in processes():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        spent[process] = (int(fields[11]) + int(fields[12])) / TICKS
    return spent


def make_store(folder: Path, keys: int) -> None:
    """Three commits: all keys; half of them again, a tenth of these ten times; deletes and late records."""
    store = statestore.connect(folder).create_store(
        "prices", key={"item": "string"}, value={"price": "double", "n": "bigint", "shop": "string"}
    )
    random = np.random.default_rng(7)
    start = 1_700_000_000_000_000
    numbers = np.arange(keys)
    store.put_all(rows(numbers, np.full(keys, start), random))
    store.commit()
    hot = random.integers(0, keys // 20, keys // 2)
    again = np.concatenate((random.choice(keys, keys // 2, replace=False), hot))
    times = start + 1_000_000 + np.arange(len(again)) * 1_000
    late = random.random(len(again)) < 0.01
    times[late] -= random.integers(1, 900, int(late.sum())) * 1_000
    store.put_all(rows(again, times, random))
    store.commit()
    gone = random.choice(keys, keys * 3 // 100, replace=False)
    deleted = rows(gone, np.full(len(gone), int(times.max()) + 1_000_000), random)
    store.put_all(deleted.append_column("_change_type", pa.array(["delete"] * len(gone))))
    store.commit()
    store.compact()
    store.close()


def rows(numbers: Any, times: Any, random: Any) -> pa.Table:
    names = np.char.add("item-", np.char.zfill(numbers.astype("U8"), 8))
    return pa.table(
        {
            "item": pa.array(names.tolist()),
            "price": random.random(len(numbers)).round(4),
            "n": numbers,
            "shop": pa.array([f"shop {n % 97}" for n in numbers.tolist()]),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def measured(run: Callable[[], Any]) -> tuple[float, float]:
    before, begin = cpu_seconds(), time.perf_counter()
    run()
    wall = time.perf_counter() - begin
    return sum(spent - before.get(process, 0) for process, spent in cpu_seconds().items()), wall


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--runs", type=int, default=4)
    given = arguments.parse_args()
    keys = 500_000 if given.quick else 5_000_000
    folder = Path(tempfile.mkdtemp(prefix="statestore-spark-sql-"))
    try:
        make_store(folder / "warehouse", keys)
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "4g")
            .config("spark.log.level", "ERROR")
            .getOrCreate()
        )
        statestore.register(spark, folder / "warehouse", "state")
        parquet = str(folder / "parquet")
        spark.table("state.prices").write.parquet(parquet)
        spark.read.parquet(parquet).createOrReplaceTempView("plain")
        for name, (statement, goal) in STATEMENTS.items():
            best: dict[str, tuple[float, float]] = {}
            for _ in range(given.runs):
                for table in ("plain", "state.prices"):
                    frame = spark.sql(statement.format(t=table))

                    def run(frame: Any = frame) -> None:
                        frame.write.format("noop").mode("overwrite").save()

                    cpu, wall = measured(run)
                    least = best.get(table, (cpu, wall))
                    best[table] = (min(least[0], cpu), min(least[1], wall))
            (theirs, their_wall), (ours, our_wall) = best["plain"], best["state.prices"]
            report(
                measure=name,
                ratio_cpu=round(ours / theirs, 2),
                ratio_wall=round(our_wall / their_wall, 2),
                goal=goal,
                ours=[round(ours, 2), round(our_wall, 2)],
                parquet=[round(theirs, 2), round(their_wall, 2)],
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

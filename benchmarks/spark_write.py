"""Appends from Spark, beside `DataFrame.write.parquet` of the same rows in the same session. Prints a line a load.

    python benchmarks/spark_write.py [rows [runs]]

The rows are read from Parquet files, which both writes pay for. Loads: keys that are new; a fifth of those keys again;
50,000 hot keys with 3 % deletes and 1 % late records, into an empty store. A ratio is the median of this package over
the median of Parquet, so less is better: of the CPU time of Spark and its Python processes, and of wall time. Memory
is the peak of the greatest Python process, without mapped files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import statestore

RUNS = 5
T0 = 1_700_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")


def main(rows: int, runs: int, folder: Path) -> None:
    spark = session()
    statestore.register(spark)
    print(f"{rows:,} rows; median of {runs} runs, statestore over Parquet")
    new, fifth, hot = (saved(frame, folder / name) for name, frame in loads(spark, rows).items())
    compare("new keys", new, folder, runs)
    compare("a fifth of the keys again", fifth, folder, runs, before=new)
    compare("hot keys, deletes, late records", hot, folder, runs)
    spark.stop()


def session() -> SparkSession:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def loads(spark: SparkSession, rows: int) -> dict[str, DataFrame]:
    def of(count: int, key: str, later: int, late: str = "0") -> DataFrame:
        return spark.range(0, count, 1, 4).select(
            F.format_string("user-%09d", F.expr(key)).alias("user"),
            (F.rand(1) * 100).alias("score"),
            (F.col("id") % 1000).alias("visits"),
            F.expr(f"CAST({T0 + later} + id div 100 - {late} AS bigint)").alias("timestamp"),
        )

    hot = of(rows, "CAST(pow(rand(2), 3) * 50000 AS bigint)", 0, "IF(rand(4) < 0.01, 100000, 0)")
    deletes = F.expr("IF(rand(3) < 0.03, 'delete', 'insert')").alias("_change_type")
    return {"new": of(rows, "id", 0), "fifth": of(rows // 5, "id * 5", rows), "hot": hot.select("*", deletes)}


def saved(frame: DataFrame, folder: Path) -> DataFrame:
    frame.write.parquet(str(folder))
    return frame.sparkSession.read.parquet(str(folder))


def compare(what: str, frame: DataFrame, folder: Path, runs: int, before: DataFrame | None = None) -> None:
    """Write ``frame`` both ways by turns; ``before`` is in the store already."""
    theirs, mine = [], []
    for run in range(runs + 1):
        theirs.append(measured(lambda: frame.write.mode("overwrite").parquet(str(folder / "parquet")))[:2])
        store = made(folder / "warehouse")
        if before is not None:
            append(before, store)
        *costs, peak = measured(lambda store=store: append(frame, store))  # type: ignore[misc]
        mine.append(costs)
        if not run:
            theirs, mine = [], []  # the first ones warm up
        shutil.rmtree(folder / "warehouse")
    (cpu, wall), (cpu_of_parquet, wall_of_parquet) = (
        map(statistics.median, zip(*c, strict=True)) for c in (mine, theirs)
    )
    print(
        f"{what}: CPU {cpu / cpu_of_parquet:.2f} ({cpu:.2f} against {cpu_of_parquet:.2f} s), "
        f"wall {wall / wall_of_parquet:.2f} ({wall:.2f} against {wall_of_parquet:.2f} s), {peak >> 20} MiB",
        flush=True,
    )


def made(warehouse: Path) -> str:
    columns = {"score": "double", "visits": "bigint"}
    statestore.connect(warehouse).create_store("users", key={"user": "string"}, value=columns).close()
    return str(warehouse / "users")


def append(frame: DataFrame, store: str) -> None:
    frame.write.format("statestore").mode("append").save(store)


def measured(write: Callable[[], object]) -> tuple[float, float, int]:
    """Return CPU seconds of this process and all below it, wall seconds, and the peak memory of a Python process."""
    before, used, peak, done = ticks(), {}, 0, threading.Event()
    own = time.process_time()

    def watch() -> None:  # processes may end before the write does
        nonlocal peak
        while not done.wait(0.2):
            used.update(ticks())
            peak = max(peak, greatest())

    watcher = threading.Thread(target=watch)
    start = time.perf_counter()
    watcher.start()
    write()
    wall = time.perf_counter() - start
    done.set()
    watcher.join()
    used.update(ticks())
    spent = sum(count - before.get(process, 0) for process, count in used.items()) / TICKS
    return spent + time.process_time() - own, wall, peak


def ticks() -> dict[tuple[int, str], int]:
    """User and system time of each process below this one, by its number and its start."""
    fields = {pid: stat.rpartition(")")[2].split() for pid, stat in below().items()}
    return {(pid, found[19]): int(found[11]) + int(found[12]) for pid, found in fields.items()}


def greatest() -> int:
    """Anonymous memory (not that of mapped files) of the greatest process among this one and the Python ones below."""
    sizes = [0]
    for pid, stat in {os.getpid(): "(python)", **below()}.items():
        if "(python" in stat:
            with contextlib.suppress(OSError, KeyError):
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                sizes.append(int(dict(line.split(":", 1) for line in lines)["RssAnon"].split()[0]) << 10)
    return max(sizes)


def below() -> dict[int, str]:
    """The line of /proc/…/stat of each process below this one."""
    stats: dict[int, str] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended
                stats[int(folder.name)] = (folder / "stat").read_text()
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(pid)
    found, waiting = {}, children.get(os.getpid(), [])
    while waiting:
        pid = waiting.pop()
        found[pid] = stats[pid]
        waiting += children.get(pid, [])
    return found


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5_000_000
    with tempfile.TemporaryDirectory() as made_here:
        main(count, int(sys.argv[2]) if len(sys.argv) > 2 else RUNS, Path(made_here))

"""The cost of commits under the loads that users have, as ratios to floors measured alternately. Prints JSON lines.

    python benchmarks/commits.py            1M keys, 30 commits of 100k upserts for each load
    python benchmarks/commits.py --quick    200k keys, 16 commits of 20k upserts for each load

Loads of bulk commits: every key once a commit; hot keys (half of the updates by a power law, half uniform); the same
with 3 % deletes, with 1 % late records (by up to 5 % of the stream), and with both, also with compaction as delivered.
Each commit is measured against a raw Arrow write of its upserts without fsync, wall clock and CPU of the process.
Commits of 10 rows are measured against creating a file and two fsyncs. One commit of all rows of a load is measured by
the memory that it takes. Commits of threads that share a handle are measured by their number a second.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import statestore

START_MS = 1_700_000_000_000
KEY = {"item": "string"}
VALUE = {"price": "double", "stock": "int", "shop": "string", "note": "string"}
GOAL_MEDIAN, GOAL_MEAN = 14, 25


@dataclass(frozen=True)
class Load:
    """Shares of hot, deleted and late records in a commit; without ``hot`` each key occurs at most once a commit."""

    name: str
    hot: float = 0.5
    deletes: float = 0.0
    late: float = 0.0
    auto_compact: bool = False
    goal: int = GOAL_MEDIAN


LOADS = (
    Load("each key once", hot=0.0),
    Load("hot keys"),
    Load("hot keys, deletes", deletes=0.03),
    Load("hot keys, late", late=0.01),
    Load("hot keys, deletes, late", deletes=0.03, late=0.01),
    Load("hot keys, deletes, late, compaction as delivered", deletes=0.03, late=0.01, auto_compact=True),
)


@dataclass(frozen=True)
class Cost:
    """Milliseconds of one call: on the clock, and of all threads of the process."""

    wall: float
    cpu: float


def cost_of(call: Callable[[], Any]) -> Cost:
    cpu, wall = time.process_time(), time.perf_counter()
    call()
    return Cost((time.perf_counter() - wall) * 1000, (time.process_time() - cpu) * 1000)


def report(name: str, **fields: Any) -> None:
    print(json.dumps({"measure": name, **fields}), flush=True)


def compared(name: str, ours: list[Cost], theirs: list[Cost], goal: float, **more: Any) -> None:
    """Report the ratios of medians, minima and means of the clock, and of the medians of CPU."""

    def ratio(middle: Callable[[list[float]], float], part: str) -> float:
        left, right = ([getattr(cost, part) for cost in costs] for costs in (ours, theirs))
        return round(middle(left) / max(middle(right), 1e-6), 2)

    report(
        name,
        ratio=ratio(statistics.median, "wall"),
        goal=goal,
        minima=ratio(min, "wall"),
        mean=ratio(statistics.fmean, "wall"),
        cpu=ratio(statistics.median, "cpu"),
        ours_ms=round(statistics.median(cost.wall for cost in ours), 2),
        ours_cpu_ms=round(statistics.median(cost.cpu for cost in ours), 2),
        longest_ms=round(max(cost.wall for cost in ours), 2),
        theirs_ms=round(statistics.median(cost.wall for cost in theirs), 2),
        **more,
    )


class Stream:
    """Commits of one load, in order of time except for the late records."""

    def __init__(self, keys: int, rows: int, load: Load) -> None:
        self.keys, self.rows, self.load = keys, rows, load
        self.random = np.random.default_rng(11)
        widths = self.random.integers(14, 27, keys)
        self.names = pa.array([f"item-{number:09d}".ljust(width, "x") for number, width in enumerate(widths)])
        self.by_heat = self.random.permutation(keys)
        self.shops = pa.array([f"shop-{number}" for number in range(50)])
        self.clock = START_MS

    def commit(self, number: int) -> pa.Table:
        """Return the rows of one commit; the first commits insert every key once."""
        first = number * self.rows
        if first < self.keys:
            return self.table(np.arange(first, min(first + self.rows, self.keys)), plain=True)
        if not self.load.hot:
            return self.table(self.random.choice(self.keys, self.rows, replace=False))
        is_hot = self.random.random(self.rows) < self.load.hot
        rank = np.minimum(self.random.zipf(1.2, self.rows) - 1, self.keys - 1)
        return self.table(np.where(is_hot, self.by_heat[rank], self.random.integers(0, self.keys, self.rows)))

    def table(self, chosen: npt.NDArray[np.int64], plain: bool = False) -> pa.Table:
        rows, random = len(chosen), self.random
        times = self.clock + np.arange(rows, dtype=np.int64)
        self.clock += rows
        deleted = np.zeros(rows, bool)
        if not plain:
            is_late = random.random(rows) < self.load.late
            delay = random.integers(1, max((self.clock - START_MS) // 20, 2), rows)
            times = np.where(is_late, times - delay, times)
            deleted = random.random(rows) < self.load.deletes
        notes = [f"note {number % 977}" if number % 3 else None for number in range(rows)]
        columns = {
            "item": self.names.take(pa.array(chosen)),
            "price": random.random(rows),
            "stock": random.integers(0, 1000, rows).astype(np.int32),
            "shop": self.shops.take(pa.array(random.integers(0, 50, rows))),
            "note": pa.array(notes, pa.string()),
            "timestamp": times,
        }
        if deleted.any():
            columns["_change_type"] = pa.array(np.where(deleted, "delete", "insert"))
        return pa.table(columns)


def write_raw(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def bulk_commits(folder: Path, keys: int, rows: int, commits: int, load: Load) -> None:
    catalog = statestore.connect(folder / "w")
    catalog.create_store("s", key=KEY, value=VALUE).close()
    store: statestore.VersionedStore = catalog.open_store("s", auto_compact=load.auto_compact)
    stream, raw = Stream(keys, rows, load), folder / "raw.arrow"
    filling = -(-keys // rows)
    ours: list[Cost] = []
    theirs: list[Cost] = []

    def commit(table: pa.Table) -> None:
        store.put_all(table)
        store.commit()

    for number in range(filling + commits):
        table = stream.commit(number)
        upserts = table.drop_columns("_change_type") if "_change_type" in table.column_names else table
        mine, other = cost_of(lambda t=table: commit(t)), cost_of(lambda t=upserts: write_raw(raw, t))  # type: ignore[misc]
        if number >= filling + 2:  # the index of open rows is made by the first commits
            ours.append(mine)
            theirs.append(other)
        if number == filling - 1 and not load.auto_compact:
            store.compact(full=True)
    compared(f"commit of {rows} upserts / raw Arrow write: {load.name}", ours, theirs, load.goal)
    store.close()


def small_commits(folder: Path, commits: int) -> None:
    catalog = statestore.connect(folder / "w")
    store = catalog.create_store("s", key=KEY, value=VALUE)
    random = np.random.default_rng(3)
    ours: list[Cost] = []
    theirs: list[Cost] = []
    floor = folder / "floor"
    floor.mkdir()

    def commit(number: int) -> None:
        for row in range(10):
            name = f"item-{int(random.integers(0, 1000)):09d}"
            store.put((name,), (1.5, row, "shop-1", None), START_MS + number * 10 + row)
        store.commit()

    def create_and_sync(number: int) -> None:
        file = os.open(floor / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(file, b"x" * 2000)
        os.fsync(file)
        os.fsync(file)
        os.close(file)

    for number in range(commits):
        mine, other = cost_of(lambda n=number: commit(n)), cost_of(lambda n=number: create_and_sync(n))  # type: ignore[misc]
        if number >= 10:
            ours.append(mine)
            theirs.append(other)
    compared("commit of 10 puts / create and two fsyncs", ours, theirs, 10)
    store.close()


def anonymous_mb() -> float:
    """The anonymous memory of this process."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def huge_commit(folder: Path, rows: int, keys: int, batch: int) -> None:
    """Measure the memory that one commit of many rows takes beside them, while another thread looks at it."""
    catalog = statestore.connect(folder / "w")
    catalog.create_store("s", key=KEY, value=VALUE).close()
    store: statestore.VersionedStore = catalog.open_store("s", auto_compact=False)
    stream = Stream(keys, batch, Load("huge", deletes=0.03, late=0.01))
    for number in range(rows // batch):
        store.put_all(stream.commit(number))
    before, greatest, ended = anonymous_mb(), [0.0], threading.Event()

    def look() -> None:
        while not ended.wait(0.01):
            greatest[0] = max(greatest[0], anonymous_mb())

    looking = threading.Thread(target=look)
    looking.start()
    cost = cost_of(store.commit)
    ended.set()
    looking.join()
    report(
        f"memory of one commit of {rows} rows",
        mb=round(greatest[0] - before),
        mb_before=round(before),
        cpu_us_a_row=round(cost.cpu * 1000 / rows, 2),
    )
    store.close()


def commits_of_threads(folder: Path, seconds: float) -> None:
    for threads in (1, 4, 16):
        catalog = statestore.connect(folder / f"threads-{threads}")
        store = catalog.create_store("s", key=KEY, value=VALUE)
        stop = threading.Event()
        counts = [0] * threads

        def work(thread: int, store: Any = store, stop: threading.Event = stop, counts: list[int] = counts) -> None:
            while not stop.is_set():
                moment = START_MS + counts[thread]
                store.put((f"item-{thread}",), (1.5, counts[thread], "shop-1", None), moment)
                store.commit()
                counts[thread] += 1

        workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
        begin, cpu = time.perf_counter(), time.process_time()
        for worker in workers:
            worker.start()
        stop.wait(seconds)
        stop.set()
        for worker in workers:
            worker.join()
        spent = time.perf_counter() - begin
        report(
            "commits of threads that share a handle",
            threads=threads,
            commits_a_second=round(sum(counts) / spent, 1),
            cpu_ms_a_commit=round((time.process_time() - cpu) * 1000 / sum(counts), 2),
            versions=store.version,
        )
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="", help="measure only what has this in its name")
    options = parser.parse_args()
    keys, rows, commits, small = (200_000, 20_000, 16, 100) if options.quick else (1_000_000, 100_000, 30, 400)
    for load in LOADS:
        if options.only in load.name:
            with tempfile.TemporaryDirectory() as folder:
                bulk_commits(Path(folder), keys, rows, commits, load)
    if options.only in "small":
        with tempfile.TemporaryDirectory() as folder:
            small_commits(Path(folder), small)
    if options.only in "huge":
        with tempfile.TemporaryDirectory() as folder:
            huge_commit(Path(folder), commits * rows, keys, rows)
    if options.only in "threads":
        with tempfile.TemporaryDirectory() as folder:
            commits_of_threads(Path(folder), 3.0)


if __name__ == "__main__":
    main()

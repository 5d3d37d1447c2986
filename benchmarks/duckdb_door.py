"""Queries on a connection of `statestore.attach`, as ratios to DuckDB over a plain file. Prints JSON lines.

    python benchmarks/duckdb_door.py                 100k keys and 1M versions, 1M keys and 10M versions
    python benchmarks/duckdb_door.py --quick         100k keys and 1M versions
    python benchmarks/duckdb_door.py --keep FOLDER   keep the stores there, and use those of an earlier run

The history has hot keys, 3 % deletes and 1 % late records. It is measured as the commits left it, and after
``compact()``. The plain file is a mapped Arrow file of exactly the live rows, registered on the same connection. Each
line holds the ratio (ours / theirs) of the CPU time of the process, medians of alternating runs, warm; the ratio of the
least CPU times; the ratio of wall times; and the times in milliseconds. The answers of both are compared first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import statestore

GOAL = 1.5
START_MS = 1_700_000_000_000
STEP_MS = 10  # one record every ten milliseconds of state time
KEY = {"item": "string"}
VALUE = {"price": "double", "stock": "bigint", "shelf": "string", "note": "string"}
COMMITS = 100

QUESTIONS = {
    "count(*)": "SELECT count(*) FROM {0}",
    "sum of one column": "SELECT sum(price) FROM {0}",
    "three aggregates": "SELECT count(*), sum(price), avg(stock) FROM {0}",
    "group by": "SELECT shelf, count(*), sum(stock) FROM {0} GROUP BY shelf ORDER BY shelf",
    "value filter": "SELECT count(*), sum(stock) FROM {0} WHERE price > 0.9",
    "order by limit": "SELECT item, price FROM {0} ORDER BY price DESC, item LIMIT 10",
    "self join": "SELECT count(*), sum(a.stock + b.stock) FROM {0} a JOIN {0} b USING (item)",
    "least and greatest key": "SELECT min(item), max(item) FROM {0}",
    "one key": "SELECT item, price, stock FROM {0} WHERE item = 'item-0000777'",
    "five keys": "SELECT item, price FROM {0} WHERE item IN ({1}) ORDER BY item",
}
FIVE = ", ".join(f"'item-{n:07d}'" for n in (3, 777, 5_021, 44_444, 99_999))


def report(name: str, **fields: Any) -> None:
    print(json.dumps({"measure": name, **fields}), flush=True)


@dataclass(frozen=True)
class Clock:
    """The wall and CPU times of one call, in milliseconds, of several runs."""

    wall: list[float]
    cpu: list[float]

    def time(self, call: Callable[[], Any]) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        self.cpu.append((time.process_time() - cpu) * 1000)
        self.wall.append((time.perf_counter() - wall) * 1000)


def compare(name: str, goal: float, ours: Callable[[], Any], theirs: Callable[[], Any], runs: int, **more: Any) -> None:
    """Time both in turn and report the ratio of their CPU times."""
    mine, other = Clock([], []), Clock([], [])
    ours(), theirs()
    for _ in range(runs):
        mine.time(ours)
        other.time(theirs)
    middle = statistics.median
    report(
        name,
        ratio=round(middle(mine.cpu) / middle(other.cpu), 2),
        goal=goal,
        minima=round(min(mine.cpu) / min(other.cpu), 2),
        wall=round(middle(mine.wall) / middle(other.wall), 2),
        ours_ms=round(middle(mine.cpu), 2),
        theirs_ms=round(middle(other.cpu), 2),
        **more,
    )


class History:
    """Commits of upserts in order of state time: half of them of hot keys, 3 % deletes, 1 % late."""

    def __init__(self, keys: int, versions: int) -> None:
        self.keys, self.commit_rows = keys, versions // COMMITS
        self.random = np.random.default_rng(7)
        self.names = pa.array([f"item-{n:07d}" for n in range(keys)])
        self.shelves = pa.array([f"shelf {n:03d}" for n in range(200)])
        self.notes = pa.array([None, "reduced", "out of season", "best before tomorrow"])
        self.clock = START_MS

    def commit(self, number: int) -> pa.Table:
        """The rows of one commit; the first commits insert every key once."""
        rows, first = self.commit_rows, number * self.commit_rows
        if first < self.keys:
            chosen = np.arange(first, min(first + rows, self.keys))
        else:
            hot = np.minimum(self.random.zipf(1.3, rows), self.keys) * 7919 % self.keys
            chosen = np.where(self.random.random(rows) < 0.5, hot, self.random.integers(0, self.keys, rows))
        rows = len(chosen)
        times = self.clock + np.arange(rows) * STEP_MS
        self.clock = int(times[-1]) + STEP_MS
        if number:
            span = (self.clock - START_MS) // 20  # late by at most 5 % of the stream
            times = np.where(self.random.random(rows) < 0.01, times - self.random.integers(1, span, rows), times)
        deleted = self.random.random(rows) < (0.03 if first >= self.keys else 0.0)
        return pa.table(
            {
                "item": self.names.take(pa.array(chosen)),
                "price": self.random.random(rows),
                "stock": self.random.integers(0, 1000, rows),
                "shelf": self.shelves.take(pa.array(self.random.integers(0, 200, rows))),
                "note": self.notes.take(pa.array(self.random.integers(0, 4, rows))),
                "timestamp": times,
                "_change_type": np.where(deleted, "delete", "insert"),
            }
        )


def build(path: Path, keys: int, versions: int) -> dict[str, int]:
    """Commit the history unless an earlier run did; return the moments to measure."""
    moments = path / "moments.json"
    if not moments.exists():
        history = History(keys, versions)
        catalog = statestore.connect(path / "delivered")
        catalog.create_store("prices", key=KEY, value=VALUE).close()
        store: statestore.VersionedStore = catalog.open_store("prices")
        for number in range(COMMITS):
            store.put_all(history.commit(number))
            store.commit()
        store.close()
        loaded = START_MS + keys * STEP_MS
        span = history.clock - loaded
        found = {"old": loaded + span // 20, "middle": loaded + span // 2, "now": history.clock}
        moments.write_text(json.dumps(found))
    found = json.loads(moments.read_text())
    return {str(label): int(moment) for label, moment in found.items()}


def write_raw(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, 1 << 17)


def ask(connection: duckdb.DuckDBPyConnection, question: str) -> list[tuple[Any, ...]]:
    return connection.execute(question).fetchall()


def measure(path: Path, state: str, moments: dict[str, int], runs: int, only: str) -> None:
    """Compare every question at every moment. The newest is also asked of views that follow the store."""
    warehouse = str(path / state)
    store = statestore.connect(warehouse).open_store("prices")
    for label, moment in {**moments, "newest": None}.items():
        connection = statestore.attach(warehouse, as_of=moment)
        live = store.scan(as_of=moment).read_all().combine_chunks()
        write_raw(path / "plain.arrow", live)
        connection.register("plain", pa.ipc.open_file(pa.memory_map(str(path / "plain.arrow"))).read_all())
        for name, question in QUESTIONS.items():
            if only not in name:
                continue
            ours, theirs = (question.format(table, FIVE) for table in ("prices", "plain"))
            check_equal(name, ask(connection, ours), ask(connection, theirs))
            compare(
                f"attach, {name}",
                GOAL,
                partial(ask, connection, ours),
                partial(ask, connection, theirs),
                runs,
                store=state,
                moment=label,
                live_rows=live.num_rows,
            )
        connection.close()
    store.close()


def check_equal(name: str, found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    """Raise ValueError unless two answers are equal; sums of floats may differ in their last digits."""
    cells = [(a, b) for ours, theirs in zip(found, expected, strict=True) for a, b in zip(ours, theirs, strict=True)]
    wrong = [(a, b) for a, b in cells if a != b and not (isinstance(a, float) and math.isclose(a, b, rel_tol=1e-9))]
    if wrong:
        raise ValueError(f"{name}: the answers differ: {wrong[:3]}")


def measure_sql(path: Path, moment: int, runs: int) -> None:
    """Compare a call of `statestore.sql` with the same statement on a connection of `attach` that is kept."""
    warehouse = str(path / "delivered")
    connection = statestore.attach(warehouse, as_of=moment)
    answers = {
        "sql(), one key, TIMESTAMP AS OF": (
            f"SELECT price FROM prices TIMESTAMP AS OF {moment} WHERE item = 'item-0000777'",
            "SELECT price FROM prices WHERE item = 'item-0000777'",
        ),
        "sql(), sum, TIMESTAMP AS OF": (
            f"SELECT sum(price) FROM prices TIMESTAMP AS OF {moment}",
            "SELECT sum(price) FROM prices",
        ),
    }
    for name, (ours, theirs) in answers.items():
        compare(name, 3.0, partial(statestore.sql, warehouse, ours), partial(ask, connection, theirs), runs)
    compare(
        "attach and a first query / a new DuckDB connection and a query",
        1.5,
        lambda: ask(statestore.attach(warehouse), "SELECT sum(price) FROM prices"),
        lambda: ask(duckdb.connect(), "SELECT 1"),
        runs,
    )


@contextlib.contextmanager
def folder_of(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100k keys and 1M versions only")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the stores in this folder")
    parser.add_argument("--only", default="", metavar="TEXT", help="measure questions whose name contains this")
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    sizes = [(100_000, 1_000_000)] if options.quick else [(100_000, 1_000_000), (1_000_000, 10_000_000)]
    with folder_of(options.keep) as folder:
        for keys, versions in sizes:
            path = folder / f"{keys}-keys"
            path.mkdir(exist_ok=True)
            moments = build(path, keys, versions)
            report("history", keys=keys, versions=versions, commits=COMMITS, duckdb=duckdb.__version__)
            compacted = path / "compacted"
            if not compacted.exists():
                copy_store(path / "delivered", compacted)
            for state in ("delivered", "compacted"):
                measure(path, state, moments, options.runs, options.only)
            if options.only in "sql()":
                measure_sql(path, moments["middle"], options.runs)


def copy_store(source: Path, target: Path) -> None:
    """Copy a warehouse, and compact the copy."""
    shutil.copytree(source, target)
    with statestore.connect(target).open_store("prices") as store:
        store.compact(full=True)


if __name__ == "__main__":
    main()

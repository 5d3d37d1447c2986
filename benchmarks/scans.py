"""The cost of scans as of old, middle and now under the loads that users have. Prints JSON lines.

    python benchmarks/scans.py            10x and 100x history in commits of 100k changes, 200 commits uncompacted,
                                          and three commits after a compaction
    python benchmarks/scans.py --quick    the same shapes with a tenth of the rows

The loads have hot keys (half of the changes by a power law), 3 % deletes, and 1 % late records (by up to 5 % of the
stream). Each store is measured with compaction as delivered, never compacted, and compacted at the end. A scan is
copied to memory as an Arrow stream, and so is a plain Arrow file of exactly the live rows; both run in turn. Every line
has the ratios of the medians and minima of the clock and of the CPU time of the process, and the goal. The rows of
``scan`` come from a table in the order of its commits, and the answers are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import statestore

START_MS = 1_700_000_000_000
STEP_MS = 10  # one record every ten milliseconds of state time
KEY = {"item": "string"}
VALUE = {"price": "double", "stock": "int", "shop": "string", "note": "string"}
DELETES, LATE, HOT = 0.03, 0.01, 0.5


@dataclass(frozen=True)
class Load:
    """A stream and the way in which it is compacted: "delivered", "never", "after" the last commit, or "before" those
    that change keys."""

    name: str
    keys: int
    commits: int
    commit_rows: int
    compacted: str
    goals: tuple[float, float, float]


def loads(scale: int) -> list[Load]:
    short, long = (1.4, 1.4, 1.1), (2.0, 2.0, 1.1)
    rows = 100_000 // scale
    return [
        Load("10x, as delivered", 10 * rows, 100, rows, "delivered", short),
        Load("100x, as delivered", 2 * rows, 200, rows, "delivered", long),
        Load("100x, never compacted", 2 * rows, 200, rows, "never", long),
        Load("10x, compacted", 10 * rows, 100, rows, "after", short),
        Load("100x, compacted", 2 * rows, 200, rows, "after", long),
        Load("between commits, three after a compaction", 10 * rows, 13, rows, "before", (2.0, 2.0, 1.6)),
    ]


class Stream:
    """Commits of one load, in order of state time except for the late records."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.random = np.random.default_rng(23)
        widths = self.random.integers(14, 27, load.keys)
        self.names = pa.array([f"item-{number:09d}".ljust(width, "x") for number, width in enumerate(widths)])
        self.by_heat = self.random.permutation(load.keys)
        self.shops = pa.array([f"shop-{number}" for number in range(50)])
        self.notes = pa.array([f"note {number}" if number % 3 else None for number in range(977)])
        self.clock = START_MS

    def commit(self, number: int) -> pa.Table:
        """Return the changes of one commit; the first commits insert every key once."""
        rows, keys = self.load.commit_rows, self.load.keys
        first = number * rows
        if first < keys:
            return self._table(np.arange(first, min(first + rows, keys)), 0.0, 0.0)
        rank = (keys ** self.random.random(rows)).astype(np.int64) - 1
        is_hot = self.random.random(rows) < HOT
        return self._table(np.where(is_hot, self.by_heat[rank], self.random.integers(0, keys, rows)), DELETES, LATE)

    def _table(self, chosen: npt.NDArray[np.int64], deletes: float, late: float) -> pa.Table:
        rows, random = len(chosen), self.random
        times = self.clock + np.arange(rows) * STEP_MS
        self.clock = int(times[-1]) + STEP_MS
        delay = random.integers(1, max((self.clock - START_MS) // 20, 2), rows)
        times = np.where(random.random(rows) < late, np.maximum(times - delay, START_MS), times)
        kinds = pa.array(["insert", "delete"]).take(pa.array((random.random(rows) < deletes).astype(np.int8)))
        return pa.table(
            {
                "item": self.names.take(pa.array(chosen)),
                "price": random.random(rows),
                "stock": random.integers(0, 1000, rows).astype(np.int32),
                "shop": self.shops.take(pa.array(random.integers(0, 50, rows))),
                "note": self.notes.take(pa.array(random.integers(0, 977, rows))),
                "timestamp": times,
                "_change_type": kinds,
            }
        )


def report(name: str, **fields: Any) -> None:
    print(json.dumps({"measure": name, **fields}), flush=True)


def compare(name: str, goal: float, ours: Callable[[], Any], theirs: Callable[[], Any], runs: int, **more: Any) -> None:
    """Time both in turn, and report the ratios of the medians and minima of the clock and of CPU time."""
    wall: tuple[list[float], list[float]] = ([], [])
    cpu: tuple[list[float], list[float]] = ([], [])
    begin = time.perf_counter()
    ours()
    first = time.perf_counter() - begin
    theirs()
    for _ in range(runs):
        for side, call in enumerate((ours, theirs)):
            begin, used = time.perf_counter(), time.process_time()
            call()
            wall[side].append((time.perf_counter() - begin) * 1000)
            cpu[side].append((time.process_time() - used) * 1000)
    report(
        name,
        ratio=round(statistics.median(wall[0]) / statistics.median(wall[1]), 2),
        cpu=round(statistics.median(cpu[0]) / max(statistics.median(cpu[1]), 1e-3), 2),
        minima=round(min(wall[0]) / min(wall[1]), 2),
        goal=goal,
        ours_ms=round(statistics.median(wall[0]), 2),
        theirs_ms=round(statistics.median(wall[1]), 2),
        first_ms=round(first * 1000, 1),
        **more,
    )


def build(folder: Path, load: Load) -> None:
    """Commit everything."""
    store: statestore.VersionedStore
    statestore.connect(folder).create_store("s", key=KEY, value=VALUE).close()
    store = statestore.connect(folder).open_store("s", auto_compact=load.compacted == "delivered")
    stream, times, begin = Stream(load), [], time.process_time()
    for number in range(load.commits):
        table = stream.commit(number)
        used = time.process_time()
        store.put_all(table)
        store.commit()
        times.append((time.process_time() - used) * 1000)
        if load.compacted == "before" and (number + 1) * load.commit_rows == load.keys:
            store.compact(full=True)
    if load.compacted == "after":
        store.compact(full=True)
    store.close()
    report(
        f"commits of {load.commit_rows}: {load.name}",
        seconds=round(time.process_time() - begin, 1),
        first_ten_cpu_ms=round(statistics.median(times[:10]), 1),
        last_ten_cpu_ms=round(statistics.median(times[-10:]), 1),
    )


def write_raw(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def memory_copy(reader: pa.RecordBatchReader) -> int:
    """Write the batches as an Arrow stream in memory and return its size."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
    return int(sink.getvalue().size)


def copy_file(path: Path) -> int:
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    return memory_copy(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(1 << 17)))


def ask(connection: duckdb.DuckDBPyConnection, source: str) -> list[Any]:
    return connection.execute(f"SELECT count(*), sum(price), avg(stock) FROM {source}").fetchall()


def aggregate(connection: duckdb.DuckDBPyConnection, store: statestore.VersionedStore, moment: int | None) -> list[Any]:
    reader = store.scan(as_of=moment, columns=["price", "stock"])
    connection.register("ours", reader)
    return ask(connection, "ours")


def measure(folder: Path, load: Load, runs: int) -> None:
    store: statestore.VersionedStore = statestore.connect(folder).open_store("s", auto_compact=False)
    stream_end = int(store.scan(columns=["valid_from"]).read_all()["valid_from"].cast(pa.int64()).to_numpy().max())
    begin = START_MS + load.keys * STEP_MS
    span = stream_end // 1000 - begin
    roles = pc.value_counts(pa.array([m.role for m in store._log_state.segments])).to_pylist()
    report(f"segments: {load.name}", **{r["values"]: r["counts"] for r in roles})
    moments = (("old", begin + span // 20), ("middle", begin + span // 2), ("now", None))
    for (label, moment), goal in zip(moments, load.goals, strict=True):
        plain = folder / f"plain-{label}.arrow"
        live = store.scan(as_of=moment).read_all()
        write_raw(plain, live)
        compare(
            f"copy as of {label}: {load.name}",
            goal,
            lambda moment=moment: memory_copy(store.scan(as_of=moment)),  # type: ignore[misc]
            partial(copy_file, plain),
            runs,
            live_rows=live.num_rows,
            batches=live["item"].num_chunks,
        )
        with duckdb.connect() as connection:
            connection.register("plain", pa.ipc.open_file(pa.memory_map(str(plain))).read_all())
            assert np.allclose(aggregate(connection, store, moment), ask(connection, "plain"))
            compare(
                f"aggregate in DuckDB as of {label}: {load.name}",
                goal,
                partial(aggregate, connection, store, moment),
                partial(ask, connection, "plain"),
                runs,
            )
        plain.unlink()
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    parser.add_argument("--load", default="", help="only loads whose name contains this text")
    parser.add_argument("--keep", type=Path, help="a folder in which the stores are kept, and found by the next run")
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    for number, load in enumerate(loads(10 if options.quick else 1)):
        if options.load not in load.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) if options.keep is None else options.keep / f"{load.commit_rows}-{number}"
            if not (place / "s").exists():
                build(place, load)
            measure(place, load, options.runs)


if __name__ == "__main__":
    main()

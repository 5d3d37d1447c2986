"""The cost of time travel, as ratios to peers and floors measured alternately in the same run. Prints JSON lines.

    python benchmarks/asof.py            1M keys, 10M versions in 100 commits
    python benchmarks/asof.py --quick    100k keys, 1M versions in 100 commits
    python benchmarks/asof.py --spark    also Spark's sum against Parquet (starts Java)

Each line holds a ratio (ours / theirs, medians of interleaved runs, warm), its goal, and both times in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rocksdict import Options, Rdict, WriteBatch

import statestore
from statestore.catalog.checks.invariants import touched
from statestore.connector.duckdb.attach import attach
from statestore.formats.state_table import Query

START_MS = 1_700_000_000_000
STEP_MS = 10  # one record every ten milliseconds of state time
KEY = {"item": "string"}
VALUE = {"price": "double", "stock": "bigint"}


def report(name: str, **fields: Any) -> None:
    print(json.dumps({"measure": name, **fields}), flush=True)


def compare(name: str, goal: float, ours: Callable[[], Any], theirs: Callable[[], Any], runs: int, **more: Any) -> None:
    """Time both in turn and report the ratio of their medians."""
    mine: list[float] = []
    other: list[float] = []
    ours(), theirs()
    for _ in range(runs):
        for call, times in ((ours, mine), (theirs, other)):
            begin = time.perf_counter()
            call()
            times.append((time.perf_counter() - begin) * 1000)
    ratio = statistics.median(mine) / statistics.median(other)
    report(
        name,
        ratio=round(ratio, 3),
        goal=goal,
        ours_ms=round(statistics.median(mine), 3),
        theirs_ms=round(statistics.median(other), 3),
        **more,
    )


class History:
    """Commits of random upserts, in order of state time, with some records late."""

    def __init__(self, keys: int, versions: int, commits: int, late: float) -> None:
        self.keys, self.commit_rows, self.late = keys, versions // commits, late
        self.commits = commits
        self.random = np.random.default_rng(7)
        self.names = pa.array([f"item-{n:07d}" for n in range(keys)])
        self.clock = START_MS

    def commit(self, number: int) -> pa.Table:
        """The rows of one commit; the first commits insert every key once."""
        rows = self.commit_rows
        first = number * rows
        if first < self.keys:
            chosen = np.arange(first, min(first + rows, self.keys))
        else:
            chosen = self.random.choice(self.keys, rows, replace=False)
        rows = len(chosen)
        times = self.clock + np.arange(rows) * STEP_MS
        self.clock = int(times[-1]) + STEP_MS
        if self.late and number:
            moved = self.random.random(rows) < self.late
            span = (self.clock - START_MS) // 100  # late by at most 1 % of the stream
            times = np.where(moved, times - self.random.integers(1, span, rows), times)
        return pa.table(
            {
                "item": self.names.take(pa.array(chosen)),
                "price": self.random.random(rows),
                "stock": self.random.integers(0, 1000, rows),
                "timestamp": times,
            }
        )


def build(catalog: statestore.Catalog, history: History) -> statestore.VersionedStore:
    """Commit everything; report the cost of a commit against a raw Arrow write of its rows, and of compaction."""
    catalog.create_store("prices", key=KEY, value=VALUE).close()
    store: statestore.VersionedStore = catalog.open_store("prices", auto_compact=False)
    raw_file = catalog.root / "raw.arrow"
    commit_ms, raw_ms, compact_s, compacted = [], [], 0.0, 0
    for number in range(history.commits):
        table = history.commit(number)
        begin = time.perf_counter()
        store.put_all(table)
        store.commit()
        middle = time.perf_counter()
        write_raw(raw_file, table)
        end = time.perf_counter()
        commit_ms.append((middle - begin) * 1000)
        raw_ms.append((end - middle) * 1000)
        begin = time.perf_counter()
        before = {m.name for m in store._log_state.segments}
        store.compact()
        compact_s += time.perf_counter() - begin
        compacted += sum(m.rows for m in store._log_state.segments if m.name not in before)
    total = history.commits * history.commit_rows
    later = slice(history.commits // 5, None)
    report(
        "commit of upserts / raw Arrow write",
        ratio=round(statistics.median(commit_ms[later]) / statistics.median(raw_ms[later]), 2),
        goal=14,
        rows=history.commit_rows,
        ours_ms=round(statistics.median(commit_ms[later]), 2),
        theirs_ms=round(statistics.median(raw_ms[later]), 2),
    )
    report(
        "rows written by compaction per row ingested",
        ratio=round(compacted / total, 2),
        goal=3,
        seconds=round(compact_s, 1),
    )
    return store


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


def copy_scan(store: statestore.VersionedStore, moment: int) -> int:
    return memory_copy(store.scan(as_of=moment))


def copy_file(path: Path) -> int:
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    return memory_copy(pa.RecordBatchReader.from_batches(table.schema, table.to_batches(1 << 17)))


def ask(connection: duckdb.DuckDBPyConnection, question: str) -> list[Any]:
    return connection.execute(question).fetchall()


def measure_scans(path: Path, store: statestore.VersionedStore, history: History, runs: int) -> None:
    """Measure as-of scans at old, middle and new T against a plain file of exactly the live rows."""
    load_end = START_MS + history.keys * STEP_MS
    span = history.clock - load_end
    for label, moment in (("old", load_end + span // 20), ("middle", load_end + span // 2), ("new", history.clock)):
        plain = path / f"plain-{label}.arrow"
        live = store.scan(as_of=moment).read_all()
        write_raw(plain, live)
        compare(
            f"as-of scan, copy, {label} T",
            1.4,
            partial(copy_scan, store, moment),
            partial(copy_file, plain),
            runs,
            live_rows=live.num_rows,
        )
        measure_aggregate(path, store, label, moment, runs)
        rows = touched(store._files, store._log_state, moment * 1000)
        report(
            f"rows touched, {label} T",
            ratio=round(rows.rows / rows.live, 3),
            dead=rows.dead,
            bound=rows.bound,
            holds=rows.dead <= rows.bound,
        )


def measure_aggregate(path: Path, store: statestore.VersionedStore, label: str, moment: int, runs: int) -> None:
    """Measure an aggregate over finished batches, which shows the cost of the layout, and through a view of `attach`,
    planning included."""
    connection = attach(str(path / "warehouse"), as_of=moment)
    connection.register("plain", pa.ipc.open_file(pa.memory_map(str(path / f"plain-{label}.arrow"))).read_all())
    query = Query(as_of=moment * 1000)
    batches = [b for split in store.table.splits(query) for b in store.table.read(split, query)]
    connection.register("finished", pa.Table.from_batches(batches))
    question = "SELECT count(*), sum(price), avg(stock) FROM {}"
    sources = {"finished batches": "finished", "attach": "prices"}
    plain = question.format("plain")
    for name, source in sources.items():
        assert np.allclose(ask(connection, question.format(source)), ask(connection, plain))
        compare(
            f"as-of scan, DuckDB aggregate, {name}, {label} T",
            1.3,
            partial(ask, connection, question.format(source)),
            partial(ask, connection, plain),
            runs,
        )


def measure_gets(path: Path, store: statestore.VersionedStore, history: History, runs: int) -> None:
    """Measure point gets as of T through the public call, against rocksdict with a fresh iterator over (key, time)."""
    database = Rdict(str(path / "rocks"), Options(raw_mode=True))
    rows = store.history(columns=["item", "price", "stock", "valid_from"])
    for batch in rows:
        fill_rocks(database, batch)
    database.flush()
    database.compact_range(None, None)
    random = np.random.default_rng(3)
    count = 2_000
    load_end = START_MS + history.keys * STEP_MS
    names = [f"item-{n:07d}" for n in random.integers(0, history.keys, count).tolist()]
    times = random.integers(load_end, history.clock, count).tolist()
    pairs = list(zip(names, times, strict=True))
    for name, moment in pairs[:200]:
        found = store.get(name, as_of=moment)
        assert found is not None
        assert rocks_get(database, name, moment) == (found.value["price"], found.value["stock"])

    def ours() -> None:
        for name, moment in pairs:
            store.get(name, as_of=moment)

    def theirs() -> None:
        for name, moment in pairs:
            rocks_get(database, name, moment)

    compare("point get as of T / rocksdict, fresh iterator", 1.0, ours, theirs, runs, gets=count)
    database.close()


def fill_rocks(database: Rdict, batch: pa.RecordBatch) -> None:
    names = batch.column(0).to_pylist()
    times = (batch.column(3).cast(pa.int64()).to_numpy() // 1000).tolist()
    values = np.column_stack([batch.column(1).to_numpy().view(np.int64), batch.column(2).to_numpy()])
    write = WriteBatch(raw_mode=True)
    for name, moment, value in zip(names, times, values, strict=True):
        write.put(name.encode() + moment.to_bytes(8, "big"), value.tobytes())
    database.write(write)


def rocks_get(database: Rdict, name: str, moment: int) -> tuple[float, int] | None:
    prefix = name.encode()
    iterator = database.iter()
    iterator.seek_for_prev(prefix + moment.to_bytes(8, "big"))
    if not iterator.valid():
        return None
    key = iterator.key()
    if key[:-8] != prefix:
        return None
    return struct.unpack("<dq", iterator.value())


def measure_disk(path: Path, store: statestore.VersionedStore) -> None:
    latest = path / "latest.arrow"
    write_raw(latest, store.scan(columns=["item", "price", "stock"]).read_all())
    store.vacuum(older_than=0)
    data = sum(f.stat().st_size for f in (path / "warehouse" / "prices").rglob("*") if f.is_file())
    versions = sum(m.rows for m in store._log_state.segments if m.role != "belief")
    report(
        "bytes on disk / latest-only",
        ratio=round(data / latest.stat().st_size, 2),
        versions_per_key=round(versions / store.scan(columns=["item"]).read_all().num_rows, 2),
        mib=round(data / 2**20, 1),
    )


def measure_spark(path: Path, store: statestore.VersionedStore, history: History, runs: int) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.driver.memory", "2g").config("spark.log.level", "ERROR").getOrCreate()
    statestore.register(spark)
    moment = (START_MS + history.keys * STEP_MS + history.clock) // 2
    parquet = path / "live.parquet"
    import pyarrow.parquet as pq

    pq.write_table(store.scan(as_of=moment).read_all(), parquet, row_group_size=1 << 17)
    ours = spark.read.format("statestore").option("timestampAsOf", str(moment)).option("columns", "price")
    warehouse = str(path / "warehouse" / "prices")
    compare(
        "Spark sum over pruned columns / Parquet",
        1.2,
        lambda: ours.load(warehouse).selectExpr("sum(price)").collect(),
        lambda: spark.read.parquet(str(parquet)).selectExpr("sum(price)").collect(),
        runs,
    )
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100k keys and 1M versions")
    parser.add_argument("--late", type=float, default=0.0, help="share of late records, for example 0.01")
    parser.add_argument("--spark", action="store_true", help="also measure Spark")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    keys, versions = (100_000, 1_000_000) if options.quick else (1_000_000, 10_000_000)
    history = History(keys, versions, 100, options.late)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        begin = time.perf_counter()
        store = build(statestore.connect(path / "warehouse"), history)
        (path / "warehouse" / "raw.arrow").unlink()
        roles = pc.value_counts(pa.array([m.role for m in store._log_state.segments])).to_pylist()
        report(
            "history",
            keys=keys,
            versions=versions,
            commits=history.commits,
            late=options.late,
            seconds=round(time.perf_counter() - begin, 1),
            segments={r["values"]: r["counts"] for r in roles},
            duckdb=duckdb.__version__,
            pyarrow=pa.__version__,
        )
        measure_scans(path, store, history, options.runs)
        measure_gets(path, store, history, options.runs)
        measure_disk(path, store)
        if options.spark:
            measure_spark(path, store, history, options.runs)


if __name__ == "__main__":
    main()

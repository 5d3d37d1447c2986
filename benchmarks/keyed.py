"""The cost of the keyed backend's snapshots and restores, as ratios measured in the same run. Prints JSON lines.

    python benchmarks/keyed.py            five million entries
    python benchmarks/keyed.py --quick    a tenth of them

Floors: bare ``rocksdict`` with the same bytes, and copying the files of a snapshot.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rocksdict import Options, Rdict, WriteBatch

import statestore
from statestore.catalog.keyed.backend import KeyedBackend
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.rows.state_rows import ONLY, Grouped, encoder
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind, SnapshotPart
from statestore.formats.values.key_groups import key_groups

ROUNDS = 10
BATCH = 65536


def report(name: str, **fields: Any) -> None:
    print(json.dumps({"measure": name, **fields}), flush=True)


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def key_of(number: int) -> str:
    return f"user-{number:09d}"


def stored(store: KeyedStore, backend: KeyedBackend, entries: int) -> list[pa.RecordBatch]:
    """The stored rows of the state ``v``, a key and its number, by key group."""
    backend.value_state("v", "bigint")
    encode = encoder(store.spec.key, backend._states["v"])
    keys = pa.array(map(key_of, range(entries)), pa.string())
    groups = key_groups([keys], store.spec.key_groups)
    order = np.argsort(groups, kind="stable")
    parts = (order[at : at + BATCH] for at in range(0, entries, BATCH))
    return [
        encode(Grouped(groups[part], pa.record_batch({"k": keys.take(pa.array(part)), "value": pa.array(part)})))
        for part in parts
    ]


def update(backend: KeyedBackend, numbers: list[int]) -> None:
    state = backend.value_state("v", "bigint")
    for number in numbers:
        backend.set_current_key(key_of(number))
        state.update(number + 1)


def committed(store: KeyedStore, backend: KeyedBackend, kind: SnapshotKind) -> SnapshotPart:
    part = backend.snapshot(kind).result()
    backend.notify_complete(store.commit([part]))
    return part


def size(part: SnapshotPart, *, new: bool) -> int:
    return sum(file.bytes for name, file in part.files().items() if not (new and name in part.reused))


def measure_incremental(store: KeyedStore, backend: KeyedBackend, entries: int) -> None:
    """Measure a chain of incremental snapshots, each after one key in a hundred was changed."""
    random = np.random.default_rng(1)
    whole = size(backend.snapshot("full").result(), new=False)
    first = size(committed(store, backend, "incremental"), new=False)
    written = []
    for _ in range(ROUNDS):
        update(backend, random.choice(entries, entries // 100, replace=False).tolist())
        written.append(size(committed(store, backend, "incremental"), new=True))
    report(
        "bytes of an incremental snapshot after 1 % of the keys changed / bytes of a full one",
        ratio=round(statistics.mean(written) / whole, 4),
        goal="at most 0.1",
        largest=round(max(written) / whole, 4),
        full_bytes=whole,
        first_incremental_bytes=first,
    )


def measure_restore(store: KeyedStore, backend: KeyedBackend, entries: int, rows: list[pa.RecordBatch]) -> None:
    """Measure opening a backend on all key groups of a snapshot of each kind, and on half of them."""
    for kind in ("full", "incremental"):
        version = store.commit([backend.snapshot(kind).result()])
        for groups, part in ((None, "all"), (range(store.spec.key_groups // 2), "half")):
            taken = [seconds(lambda g=groups, v=version: store.backend(g, version=v).dispose()) for _ in range(3)]  # type: ignore[misc]
            report(
                f"restore of {part} key groups of {entries} entries, {kind}",
                seconds=round(min(taken), 3),
                cold_seconds=round(taken[0], 3),
                entries_per_second=round(entries / (1 if groups is None else 2) / min(taken)),
            )
    with tempfile.TemporaryDirectory() as folder:
        floor = Rdict(folder, _bare())
        taken_bare = seconds(lambda: _write_bare(floor, rows))
        floor.close()
    report("floor: the same rows into bare rocksdict, in batches", seconds=round(taken_bare, 3))


def _bare() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    return options


def _write_bare(database: Rdict, batches: list[pa.RecordBatch]) -> None:
    for rows in batches:
        batch = WriteBatch(raw_mode=True)
        for key, value in zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True):
            batch.put(key, value)
        database.write(batch)


def _load(backend: KeyedBackend, batches: list[pa.RecordBatch]) -> None:
    for rows in batches:
        backend.database.load("v", rows)


def measure_stall(backend: KeyedBackend, entries: int) -> None:
    """Measure single updates while a snapshot is written, and while none is written."""
    random = np.random.default_rng(2)
    state = backend.value_state("v", "bigint")

    def latencies(numbers: list[int], running: Callable[[], bool]) -> list[int]:
        clock, found = time.perf_counter_ns, []
        for number in numbers:
            begin = clock()
            backend.set_current_key(key_of(number))
            state.update(number)
            found.append(clock() - begin)
            if not running():
                break
        return found

    numbers = random.integers(0, entries, entries).tolist()
    alone = latencies(numbers[: entries // 5], lambda: True)
    for kind in ("full", "incremental"):
        begin = time.perf_counter()
        running = backend.snapshot(kind)
        stopped = time.perf_counter() - begin
        during = latencies(numbers, lambda running=running: not running.done())  # type: ignore[misc]
        running.result()
        report(
            f"updates while a {kind} snapshot is written / while none is (median)",
            ratio=round(statistics.median(during) / statistics.median(alone), 2),
            stopped_ms=round(stopped * 1000, 1),
            updates_meanwhile=len(during),
            p999_us=round(float(np.percentile(during, 99.9)) / 1000, 1),
            p999_alone_us=round(float(np.percentile(alone, 99.9)) / 1000, 1),
            longest_ms=round(max(during) / 1e6, 1),
            longest_alone_ms=round(max(alone) / 1e6, 1),
        )


def stored_key_of(backend: KeyedBackend, number: int) -> bytes:
    backend.set_current_key(key_of(number))
    return backend.key_bytes() + ONLY


def measure_updates(backend: KeyedBackend, entries: int, rows: list[pa.RecordBatch], folder: Path) -> None:
    """Measure a read and a write of one key against bare rocksdict with the same rows."""
    random = np.random.default_rng(3)
    state = backend.value_state("v", "bigint")
    floor = Rdict(str(folder / "floor"), _bare())
    _write_bare(floor, rows)
    count = min(entries, 200_000)

    def ours(numbers: list[int]) -> None:
        for number in numbers:
            backend.set_current_key(key_of(number))
            state.update((state.value() or 0) + 1)

    def theirs(numbers: list[int], keys: dict[int, bytes]) -> None:
        for number in numbers:
            key = keys[number]
            floor[key] = floor.get(key)

    pairs = []
    for _ in range(5):
        numbers = random.integers(0, entries, count // 5).tolist()
        keys = {number: stored_key_of(backend, number) for number in numbers}
        pairs.append((seconds(lambda n=numbers: ours(n)), seconds(lambda n=numbers, k=keys: theirs(n, k))))  # type: ignore[misc]
    mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
    report(
        "read and update of a value / the same with bare rocksdict",
        ratio=round(mine / other, 2),
        per_second=round(count / 5 / mine),
    )
    floor.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    entries = 500_000 if parser.parse_args().quick else 5_000_000
    folder = Path(tempfile.mkdtemp())
    try:
        store = statestore.connect(folder / "warehouse").create_store("keyed", kind="keyed", key={"k": "string"})
        with store.backend(directory=folder / "local") as backend:
            rows = stored(store, backend, entries)
            taken = seconds(lambda: _load(backend, rows))
            report("rows loaded", per_second=round(entries / taken))
            measure_incremental(store, backend, entries)
            measure_restore(store, backend, entries, rows)
            measure_stall(backend, entries)
            measure_updates(backend, entries, rows, folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

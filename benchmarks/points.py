"""The cost of reads and writes of single keys, as ratios to RocksDB measured alternately in the same run.

    python benchmarks/points.py                  1M keys, 10M versions in 100 commits
    python benchmarks/points.py --quick          200k keys, 2M versions in 100 commits
    python benchmarks/points.py --folder FOLDER  keep the stores there, and use them again in the next run

Half of the updates go to few keys; 3 % delete and 1 % come late. Each JSON line holds a ratio of processor times (ours
by theirs, medians of interleaved runs, warm), its goal, and both in microseconds for each call or key. The answers of
both sides are compared before they are timed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rocksdict import Options, Rdict, WriteBatch

import statestore

START_MS = 1_700_000_000_000
STEP_MS = 10  # one record every ten milliseconds of state time
HOUR_MS = 3_600_000
KEY = {"item": "string"}
VALUE = {"price": "double", "stock": "int", "shop": "string", "note": "string"}
COMMITS = 100
HEAD = struct.Struct("<diHh")  # price, stock, length of shop, length of note (-1: null)
ROUNDS = 9
SINCE_EPOCH = struct.Struct(">q")


def report(name: str, **fields: Any) -> None:
    print(json.dumps({"measure": name, **fields}), flush=True)


def compare(
    name: str, goal: float, ours: Callable[[], Any], theirs: Callable[[], Any], calls: int, rounds: int = ROUNDS
) -> None:
    """Run both in turn and report the ratio of the medians of their processor times."""
    times: tuple[list[float], list[float]] = ([], [])
    ours(), theirs()
    for _ in range(rounds):
        for call, spent in zip((ours, theirs), times, strict=True):
            begin = time.process_time()
            call()
            spent.append((time.process_time() - begin) / calls * 1e6)
    mine, other = (statistics.median(spent) for spent in times)
    lowest = [round(min(spent), 2) for spent in times]
    report(name, ratio=round(mine / other, 2), goal=goal, ours_us=round(mine, 2), theirs_us=round(other, 2), min=lowest)


class Stream:
    """Commits of upserts and deletes in order of state time, some of them late."""

    def __init__(self, keys: int, versions: int) -> None:
        self.keys, self.rows = keys, versions // COMMITS
        self.random = np.random.default_rng(11)
        self.names = pa.array([f"item-{n:09d}{'x' * (n % 13)}" for n in range(keys)])
        self.clock = START_MS

    def commit(self, number: int) -> pa.Table:
        """Return the rows of one commit; the first commits insert every key once."""
        random, rows, first = self.random, self.rows, number * self.rows
        if first < self.keys:
            chosen = np.arange(first, min(first + rows, self.keys))
        else:
            hot = random.zipf(1.3, rows) % self.keys
            chosen = np.where(random.random(rows) < 0.5, hot, random.integers(0, self.keys, rows))
        rows = len(chosen)
        times = self.clock + np.arange(rows) * STEP_MS
        self.clock = int(times[-1]) + STEP_MS
        if first >= self.keys:
            late = random.random(rows) < 0.01
            times = np.where(late, times - random.integers(1, (self.clock - START_MS) // 20, rows), times)
        deletes = (random.random(rows) < 0.03) & (first >= self.keys)
        numbers = random.integers(0, 1000, rows)
        texts = pa.array([f"shop-{n:03d}" for n in range(1000)])
        return pa.table(
            {
                "item": self.names.take(pa.array(chosen)),
                "price": random.random(rows),
                "stock": pa.array(numbers, pa.int32()),
                "shop": texts.take(pa.array(numbers)),
                "note": texts.take(pa.array(numbers, mask=random.random(rows) < 0.3)),
                "timestamp": times,
                "_change_type": pa.array(["insert", "delete"]).take(pa.array(deletes.astype(np.int64))),
            }
        )


def built(folder: Path, name: str, stream: Stream, compacted: bool) -> statestore.VersionedStore:
    """Commit everything to a store with the compaction that is the default, or to one that is compacted at the end."""
    catalog = statestore.connect(folder / "warehouse")
    if name in catalog.stores():
        for number in range(COMMITS):
            stream.commit(number)
        existing: statestore.VersionedStore = catalog.open_store(name)
        return existing
    catalog.create_store(name, key=KEY, value=VALUE).close()
    store: statestore.VersionedStore = catalog.open_store(name, auto_compact=not compacted)
    for number in range(COMMITS):
        store.write(stream.commit(number))
    if compacted:
        store.compact(full=True)
    return store


def encoded(row: dict[str, Any] | None) -> bytes:
    """Return the bytes of a value in the database to compare with; none for a tombstone."""
    if row is None:
        return b""
    shop, note = row["shop"].encode(), None if row["note"] is None else row["note"].encode()
    head: bytes = HEAD.pack(row["price"], row["stock"], len(shop), -1 if note is None else len(note))
    body: bytes = shop + (note or b"")
    return head + body


def decoded(data: bytes) -> dict[str, Any]:
    price, stock, shop, note = HEAD.unpack_from(data)
    end = HEAD.size + shop
    text = None if note < 0 else data[end : end + note].decode()
    return {"price": price, "stock": stock, "shop": data[HEAD.size : end].decode(), "note": text}


def rocks(folder: Path, store: statestore.VersionedStore) -> Any:
    """Return a database with every version under (key, time), and an empty value where a version ends with none."""
    path = folder / f"rocks-{store.name}"
    is_made = path.is_dir()
    database = Rdict(str(path), Options(raw_mode=True))
    if not is_made:
        for batch in store.history():
            fill(database, batch)
        database.flush()
        database.compact_range(None, None)
    return database


def fill(database: Any, batch: pa.RecordBatch) -> None:
    starts, ends = (batch.column(name).view(pa.int64()).to_pylist() for name in ("valid_from", "valid_to"))
    names = batch.column("item").to_pylist()
    values = batch.select(list(VALUE)).to_pylist()
    lines = list(zip(names, starts, ends, values, strict=True))
    write = WriteBatch(raw_mode=True)
    for name, _, end, _ in lines:  # a later version that begins there replaces it
        key = b"" if end is None else name.encode() + SINCE_EPOCH.pack(end // 1000)
        if key and database.get(key) is None:
            write.put(key, b"")
    for name, start, _, value in lines:
        write.put(name.encode() + SINCE_EPOCH.pack(start // 1000), encoded(value))
    database.write(write)


def rocks_get(iterator_of: Callable[[], Any], name: str, moment: int) -> dict[str, Any] | None:
    prefix = name.encode()
    iterator = iterator_of()
    iterator.seek_for_prev(prefix + SINCE_EPOCH.pack(moment))
    key = iterator.key()
    if key is None or key[:-8] != prefix:
        return None
    value = iterator.value()
    return decoded(value) if value else None


def measure_gets(store: Any, database: Any, stream: Stream, label: str) -> None:
    """Measure gets of any key at any time, and of the first version of keys that changed seldom."""
    random, count = np.random.default_rng(3), 4_000
    load_end = START_MS + stream.keys * STEP_MS
    iterator = database.iter()
    for kind, low, high in (("any key and time", load_end, stream.clock), ("old versions", START_MS, load_end + 10)):
        numbers = random.integers(0, stream.keys, count)
        names = stream.names.take(pa.array(numbers)).to_pylist()
        times = np.maximum(random.integers(low, high, count), START_MS + numbers * STEP_MS).tolist()
        pairs = list(zip(names, times, strict=True))
        for name, moment in pairs[:1000]:
            found = store.get(name, as_of=moment)
            theirs = rocks_get(database.iter, name, moment)
            assert (None if found is None else found.value) == theirs, (name, moment)
        asked = partial(each, store.get, pairs)
        fresh = partial(each, partial(rocks_get, database.iter), pairs)
        compare(f"{label}: get, {kind} / fresh iterator", 1.0, asked, fresh, count)
        reused = partial(each, partial(rocks_get, lambda: iterator), pairs)
        compare(f"{label}: get, {kind} / reused iterator", 1.5, asked, reused, count)


def each(call: Callable[[str, int], Any], pairs: Iterable[tuple[str, int]]) -> None:
    for name, moment in pairs:
        call(name, moment)


def measure_many(store: Any, database: Any, stream: Stream, label: str) -> None:
    """Measure 1,000 keys at one time, in one call where there is one."""
    random, count = np.random.default_rng(4), 1_000
    iterator = database.iter()
    moment = (START_MS + stream.keys * STEP_MS + stream.clock) // 2
    names = stream.names.take(pa.array(random.integers(0, stream.keys, count))).to_pylist()
    pairs = [(name, moment) for name in names]
    ours = partial(store.get_many, names, as_of=moment)
    assert ours() == [store.get(name, as_of=moment) for name in names]
    reused = partial(each, partial(rocks_get, lambda: iterator), pairs)
    compare(f"{label}: get_many, a key / reused iterator", 0.5, ours, reused, count)


def measure_history(store: Any, stream: Stream, label: str) -> None:
    """Measure the history of one key as a table against its versions one by one."""
    names = stream.names.take(pa.array(np.random.default_rng(5).integers(0, stream.keys, 100))).to_pylist()
    for name in names[:20]:
        versions = {(r.valid_from * 1000, r.value["price"]) for r in store.get_versions(name)}
        table = store.history(key=name).read_all()
        starts = table.column("valid_from").cast(pa.int64()).to_pylist()
        assert set(zip(starts, table.column("price").to_pylist(), strict=True)) == versions

    def histories() -> None:
        for name in names:
            store.history(key=name).read_all()

    def versions_of() -> None:
        for name in names:
            list(store.get_versions(name))

    compare(f"{label}: history(key) / get_versions", 1.5, histories, versions_of, len(names))


def measure_histories(store: Any, database: Any, stream: Stream, label: str) -> None:
    """Measure the histories of 1,000 keys, one by one and by one filter, against a scan of each key's prefix."""
    numbers = np.random.default_rng(6).choice(stream.keys - 1_000, 1_000, replace=False) + 1_000  # not the hottest ones
    names = stream.names.take(pa.array(numbers)).to_pylist()
    iterator = database.iter()

    def theirs() -> int:
        return sum(len(rocks_versions(iterator, name)) for name in names)

    def by_key() -> int:
        return sum(store.history(key=name).read_all().num_rows for name in names)

    def by_filter() -> int:
        return int(store.history(filter=("item", "in", names)).read_all().num_rows)

    assert by_key() == by_filter() == theirs()
    compare(f"{label}: 1,000 histories by key / prefix of an iterator", 4.0, by_key, theirs, len(names), 5)
    compare(f"{label}: 1,000 histories by a filter / prefix of an iterator", 4.0, by_filter, theirs, len(names), 5)


def rocks_versions(iterator: Any, name: str) -> list[dict[str, Any]]:
    prefix = name.encode()
    iterator.seek(prefix + bytes(8))
    found = []
    while iterator.valid() and iterator.key()[:-8] == prefix:
        value = iterator.value()
        if value:
            found.append(decoded(value))
        iterator.next()
    return found


def anonymous_mb() -> float:
    """Return the memory of this process that has no file behind it."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Anonymous:")).split()[1]) / 1024


def reader_memory(folder: Path, name: str, keys: int, names: Any, sent: Any) -> None:
    """Send what a new process holds after it has opened a store, after 4,000 gets, and after 1,000 histories."""
    random = np.random.default_rng(8)
    with statestore.connect(folder / "warehouse").open_store(name, read_only=True) as store:
        begin = anonymous_mb()
        last = START_MS + 10 * keys * STEP_MS
        numbers, times = random.integers(0, keys, 4_000), random.integers(START_MS + keys * STEP_MS, last, 4_000)
        for item, moment in zip(names.take(pa.array(numbers)).to_pylist(), times.tolist(), strict=True):
            store.get(item, as_of=moment)
        gets = anonymous_mb() - begin
        for item in names.take(pa.array(random.integers(0, keys, 1_000))).to_pylist():
            store.history(key=item).read_all()
        sent.put((gets, anonymous_mb() - begin))


def measure_memory(folder: Path, stream: Stream, name: str) -> None:
    """Measure the anonymous memory of a reader of its own process."""
    if not Path("/proc/self/smaps_rollup").exists():
        return
    spawn = multiprocessing.get_context("spawn")
    sent = spawn.Queue()
    process = spawn.Process(target=reader_memory, args=(folder, name, stream.keys, stream.names, sent))
    process.start()
    gets, histories = sent.get(timeout=1800)
    process.join()
    report(f"{name}: anonymous memory after 4,000 gets / 100 MB", ratio=round(gets / 100, 2), goal=1.0)
    report(f"{name}: anonymous memory after 1,000 histories, too / 100 MB", ratio=round(histories / 100, 2), goal=1.0)


def measure_composite(folder: Path, keys: int) -> None:
    """Measure gets of keys of two columns, whose keys are named by tuples, against a reused iterator."""
    catalog, database = statestore.connect(folder / "composite"), bare(folder / "floor-composite")
    pairs = [(f"shop-{number % 97:02d}", number) for number in range(keys)]
    shops, items = pa.array([shop for shop, _ in pairs]), pa.array([item for _, item in pairs], pa.int64())
    with catalog.create_store("c", key={"shop": "string", "item": "bigint"}, value={"stock": "bigint"}) as store:
        for version in range(5):
            stock = pa.array(np.arange(keys) * 7 + version)
            times = pa.array(np.full(keys, START_MS + 1_000 * version))
            store.write(pa.table({"shop": shops, "item": items, "stock": stock, "timestamp": times}))
            for shop, item in pairs:
                key = shop.encode() + SINCE_EPOCH.pack(item) + SINCE_EPOCH.pack(START_MS + 1_000 * version)
                database[key] = SINCE_EPOCH.pack(item * 7 + version)
        random = np.random.default_rng(9)
        asked = [
            (pairs[n], START_MS + int(t))
            for n, t in zip(random.integers(0, keys, 4_000), random.integers(0, 5_000, 4_000), strict=True)
        ]
        iterator = database.iter()

        def theirs(pair: tuple[str, int], moment: int) -> int | None:
            prefix = pair[0].encode() + SINCE_EPOCH.pack(pair[1])
            iterator.seek_for_prev(prefix + SINCE_EPOCH.pack(moment))
            found = iterator.key()
            return SINCE_EPOCH.unpack(iterator.value())[0] if found is not None and found[:-8] == prefix else None

        for pair, moment in asked[:500]:
            record = store.get(pair, as_of=moment)
            assert record is not None and record.value == theirs(pair, moment)

        def ours() -> None:
            for pair, moment in asked:
                store.get(pair, as_of=moment)

        def peer() -> None:
            for pair, moment in asked:
                theirs(pair, moment)

        compare("get of a key of two columns, the first ones / reused iterator", 4.0, ours, peer, len(asked))
        for _ in range(10):  # so many gets that compiled loops are loaded
            ours()
        compare("get of a key of two columns / reused iterator", 1.5, ours, peer, len(asked))
    database.close()


def bare(path: Path) -> Any:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    return Rdict(str(path), options)


def measure_puts(folder: Path, rows: int) -> None:
    """Measure puts of the benchmark's values against bare puts of as many bytes, of which a log is kept, too."""
    catalog = statestore.connect(folder / "puts")
    values = [{"price": n / 7, "stock": n % 1000, "shop": f"shop-{n % 1000:03d}", "note": None} for n in range(rows)]
    names = [f"item-{n * 7919 % 1_000_003:09d}{'x' * (n % 13)}" for n in range(rows)]
    calls: dict[str, tuple[dict[str, Any], Callable[[Any, str, Any, int], Any]]] = {
        "versioned": ({}, lambda store, name, value, at: store.put(name, value, START_MS + at)),
        "key_value": ({"kind": "key_value"}, lambda store, name, value, at: store.put(name, value)),
        "window": (
            {"kind": "window", "retention": "1 day", "window_size": 60_000},
            lambda store, name, value, at: store.put(name, value, START_MS + at // 60_000 * 60_000),
        ),
    }
    for kind, (options, put) in calls.items():
        floor = bare(folder / f"floor-{kind}")
        bytes_of = [(name.encode() + bytes(12), encoded(value)) for name, value in zip(names, values, strict=True)]
        with catalog.create_store(kind, key=KEY, value=VALUE, **options) as store:
            clock = itertools.count()  # the stream goes on from round to round

            def ours(store: Any = store, put: Any = put, clock: Any = clock) -> None:
                for name, value, at in zip(names, values, clock, strict=False):
                    put(store, name, value, at)

            def theirs(floor: Any = floor, pairs: Any = bytes_of) -> None:
                for key, value in pairs:
                    floor[key] = value

            compare(f"{kind}: put / bare put (goal: half of its throughput)", 2.0, ours, theirs, rows, 5)
        floor.close()


def measure_windows(folder: Path) -> None:
    """Measure the fetch of an hour of windows of a minute against an iterator over the same rows."""
    catalog = statestore.connect(folder / "windows")
    floor, keys, minutes = bare(folder / "floor-windows"), 500, 120
    with catalog.create_store("w", kind="window", retention="1 day", window_size=60_000, key=KEY, value=VALUE) as store:
        for minute in range(minutes):
            for number in range(keys):
                value = {"price": number / 7, "stock": minute, "shop": "shop-001", "note": None}
                start = START_MS // HOUR_MS * HOUR_MS + minute * 60_000
                store.put(f"item-{number:09d}", value, start)
                floor[f"item-{number:09d}".encode() + SINCE_EPOCH.pack(start)] = encoded(value)
        first = START_MS // HOUR_MS * HOUR_MS + 20 * 60_000
        names = [f"item-{number:09d}" for number in range(keys)]

        def ours(name: str) -> list[Any]:
            return [(row.start, row.value) for row in store.fetch(name, first, first + 59 * 60_000)]

        def theirs(name: str) -> list[Any]:
            low = name.encode()
            iterator, last = floor.iter(), low + SINCE_EPOCH.pack(first + 59 * 60_000)
            iterator.seek(low + SINCE_EPOCH.pack(first))
            found = []
            while iterator.valid() and (key := iterator.key()) <= last:
                found.append((SINCE_EPOCH.unpack_from(key, len(key) - 8)[0], decoded(iterator.value())))
                iterator.next()
            return found

        assert ours(names[3]) == theirs(names[3]) and len(ours(names[3])) == 60
        compare(
            "window: fetch of 60 rows / iterator (goal: half of its throughput)",
            2.0,
            lambda: [ours(name) for name in names],
            lambda: [theirs(name) for name in names],
            len(names),
        )
    floor.close()


def measure_store(folder: Path, name: str, keys: int, versions: int, compacted: bool) -> None:
    stream = Stream(keys, versions)
    store = built(folder, name, stream, compacted)
    metas = store._log_state.segments
    report(
        f"{name}: store",
        segments=len(metas),
        rows=sum(m.rows for m in metas),
        closures=sum(len(c) for c in store._log_state.closures.values()),
    )
    database = rocks(folder, store)
    begin = time.process_time()
    store.get("item-000000100", as_of=stream.clock)
    report(f"{name}: first get of a process that has built the store", ms=round((time.process_time() - begin) * 1e3, 1))
    measure_gets(store, database, stream, name)
    if hasattr(store, "get_many"):
        measure_many(store, database, stream, name)
    measure_history(store, stream, name)
    measure_histories(store, database, stream, name)
    database.close()
    store.close()
    measure_memory(folder, stream, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="200k keys and 2M versions")
    parser.add_argument("--folder", type=Path, help="keep the stores in this folder")
    parser.add_argument("--only", choices=("reads", "writes"), help="measure only the reads of history, or the rest")
    options = parser.parse_args()
    keys, versions = (200_000, 2_000_000) if options.quick else (1_000_000, 10_000_000)
    with tempfile.TemporaryDirectory() as temporary:
        if options.only != "writes":
            for name, compacted in (("delivered", False), ("compacted", True)):
                measure_store(options.folder or Path(temporary), name, keys, versions, compacted)
        if options.only != "reads":
            measure_puts(Path(temporary), 20_000)
            measure_windows(Path(temporary))
            measure_composite(Path(temporary), 20_000)
        if options.folder is None:
            shutil.rmtree(Path(temporary) / "warehouse", ignore_errors=True)


if __name__ == "__main__":
    main()

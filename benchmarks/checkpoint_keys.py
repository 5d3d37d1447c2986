"""Looking keys up in the state of engines, beside RocksDB itself over the same files. Prints JSON lines.

    python benchmarks/checkpoint_keys.py                 500,000 keys in each state
    python benchmarks/checkpoint_keys.py --quick         a tenth of them
    python benchmarks/checkpoint_keys.py --only kafka    of one engine, or whose name has this text

``one key`` is the median of gets of single keys, each of which opens the state anew, ``100 keys`` and ``1000 keys``
one read of so many by a filter, ``history`` the history of a key, ``keys alone`` a scan of the column ``key``. The
floor of keys is rocksdict: it opens a directory of the same table files, and seeks each key with an iterator. Of
Flink's savepoints and Spark's HDFS-backed checkpoints, which have no index, of 200 partitions, histories and ``keys
alone`` the floor is a scan of the whole state, in the same process. ``ratio`` is the processor time over that of the
floor, ``files`` are those that a read opens in Python, ``bytes`` those that it reads in all. Rows are compared with
what was written.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rocksdict import AccessType, Options, Rdict, ReadOptions

sys.path.append(str(Path(__file__).resolve().parents[1]))  # a script has neither of these among its modules
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.checkpoints.large_checkpoints import words, write_checkpoint
from support.checkpoints.rocksdb_checkpoints import write_partitions

import statestore
from benchmarks.engines import flink_snapshots, kafka_directory

ROWS, ROUNDS, ASKED, SINGLE, PARTITIONS = 500_000, 5, 1000, 10, 200


@dataclass(frozen=True)
class Place:
    """A state: ``key`` gives the key of a number, ``stored`` the key in RocksDB; ``tables`` are RocksDB's files."""

    name: str
    path: Path
    table: str
    key: Callable[[int], Any]
    stored: Callable[[int], bytes] | None = None
    tables: Path | None = None
    family: str = "default"
    options: Mapping[str, str] = field(default_factory=dict)
    has_past: bool = True


def flink(folder: Path, rows: int) -> Iterator[Place]:
    groups = flink_snapshots.entries(rows)
    first, state = flink_snapshots.FIRST_KEY, f"{'0' * 31}1.balance"
    incremental, canonical = folder / "chk-1", folder / "savepoint"
    flink_snapshots.write_incremental(incremental, groups)
    flink_snapshots.write_canonical(canonical, groups)

    def stored(number: int) -> bytes:
        group = flink_snapshots.group_of(first + number)
        return bytes((group,)) + (first + number).to_bytes(8, "big") + b"\0"

    yield Place("Flink, RocksDB", incremental, state, lambda n: first + n, stored, incremental, "balance")
    yield Place("Flink, savepoint", canonical, state, lambda n: first + n)


def kafka(folder: Path, rows: int) -> Iterator[Place]:
    kafka_directory.make(folder, rows)
    for name, (kind, where, families) in kafka_directory.STORES.items():
        if name not in ("key-value", "timestamped", "half-upgraded"):
            continue
        family = "default" if name == "key-value" else "keyValueWithTimestamp"
        options = {"kind": kind, "key_serde": "string", "value_serde": "long"}
        tables = folder / "0_0" / where if None not in families.values() else None
        yield Place(
            f"Kafka, {name}", folder, name, lambda n: kafka_directory.key(n).decode(), kafka_directory.key, tables,
            family, options, has_past=False,
        )  # fmt: skip


def spark(folder: Path, rows: int) -> Iterator[Place]:
    """One partition, so that the floor is its scan: others would not be read. Then many partitions."""
    write_checkpoint(folder / "one", rows, 2, 1, snapshots=1)
    write_checkpoint(folder / "many", rows, 2, PARTITIONS, hashed=True)
    write_partitions(folder / "tables", rows, PARTITIONS)
    names = words(np.arange(rows)).tolist()
    for name, place in (
        ("HDFS-backed", "one"),
        (f"HDFS-backed, {PARTITIONS} partitions", "many"),
        (f"RocksDB, {PARTITIONS} partitions", "tables"),
    ):
        yield Place(f"Spark, {name}", folder / place, "state", lambda n: {"word": names[n].decode()})


ENGINES: dict[str, Callable[[Path, int], Iterator[Place]]] = {"flink": flink, "kafka": kafka, "spark": spark}


def floor_of(place: Place, numbers: list[int], folder: Path) -> int:
    """Open the table files with rocksdict, and seek each key."""
    assert place.tables is not None and place.stored is not None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in place.tables.iterdir():
        if file.suffix == ".sst":
            (folder / file.name).symlink_to(file)
        elif file.name.startswith(("CURRENT", "MANIFEST")):
            shutil.copy(file, folder)
    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(folder)) if name != "default"}
    options = Options(raw_mode=True)
    database = Rdict(str(folder), options, column_families=families, access_type=AccessType.read_only())
    table = database if place.family == "default" else database.get_column_family(place.family)
    found = 0
    for number in numbers:
        key, reading = place.stored(number), ReadOptions()
        reading.set_iterate_upper_bound(key + b"\0")
        rows = table.iter(reading)
        rows.seek(key)
        found += rows.valid() and bool(rows.value())
    if table is not database:
        table.close()
    database.close()
    return found


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


def seconds(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


OPENED = [0]
sys.addaudithook(lambda event, given: OPENED.__setitem__(0, OPENED[0] + (event == "open")))


def measure(place: Place, rows: int, scratch: Path) -> None:
    table = statestore.inspect(place.path, **place.options).table(place.table)
    numbers = [number for number in range(1, rows, rows // ASKED) if number % 100 != 6][:ASKED]
    keys = [place.key(number) for number in numbers]

    def read(asked: list[Any]) -> int:
        return len(table.scan(filter=("key", "in", asked)).read_all())

    assert read(keys) == len(keys), (place.name, read(keys), len(keys))
    assert all(table.get(key) is not None for key in keys[:SINGLE]), place.name
    singles, hundred = numbers[:SINGLE], numbers[:: len(numbers) // 100][:100]
    some = [place.key(number) for number in hundred]

    def whole() -> int:
        return sum(batch.num_rows for batch in table.scan())

    def keys_alone() -> int:
        return sum(batch.num_rows for batch in table.scan(columns=["key"]))

    def histories() -> int:
        return sum(len(table.history(key=key).read_all()) for key in keys[:SINGLE])

    assert keys_alone() == whole(), place.name
    loads: list[tuple[str, Callable[[], Any], list[int], int]] = [
        ("one key", lambda: [table.get(key) for key in keys[:SINGLE]], singles, SINGLE),
        ("100 keys", lambda: read(some), hundred, 1),
        ("1000 keys", lambda: read(keys), numbers, 1),
        ("keys alone", keys_alone, [], 1),
    ]
    if place.has_past:
        assert histories() >= SINGLE, place.name
        loads.append(("history", histories, [], SINGLE))
    for name, ours, asked, calls in loads:
        is_seek = place.tables is not None and bool(asked)
        floors: list[Callable[[], Any]] = [whole]
        if is_seek:
            groups = [[each] for each in asked] if calls > 1 else [asked]
            floors = [lambda groups=groups: [floor_of(place, group, scratch) for group in groups]]  # type: ignore[misc]
            assert sum(floor_of(place, group, scratch) for group in groups) == len(asked), place.name
        mine, other = [], []
        for _ in range(ROUNDS):
            begun, opened = bytes_read(), OPENED[0]
            mine.append(seconds(ours) / calls)
            taken, opened = (bytes_read() - begun) // calls, (OPENED[0] - opened) // calls
            other.append(seconds(floors[0]) / (calls if is_seek else 1))
        ours_ms, floor_ms = (statistics.median(each) * 1e3 for each in (mine, other))
        print(
            json.dumps(
                {
                    "measure": f"{place.name}: {name}",
                    "floor": "rocksdict" if is_seek else "scan",
                    "ratio": round(ours_ms / floor_ms, 3),
                    "ms": [round(ours_ms, 2), round(floor_ms, 2)],
                    "files": opened,
                    "bytes": taken,
                    "size": sum(file.stat().st_size for file in place.path.rglob("*") if file.is_file()),
                }
            ),
            flush=True,
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--quick", action="store_true", help="a tenth of the keys")
    arguments.add_argument("--only", default="", help="an engine, or text in the name of a state")
    given = arguments.parse_args()
    rows = ROWS // 10 if given.quick else ROWS
    warnings.simplefilter("ignore", statestore.StateStoreWarning)  # Kafka's directory is without offsets
    with tempfile.TemporaryDirectory(prefix="statestore-keys-") as folder:
        for engine, places in ENGINES.items():
            if given.only in ENGINES and given.only != engine:
                continue
            for place in places(Path(folder) / engine, rows):
                if given.only in (*ENGINES, "") or given.only.lower() in place.name.lower():
                    measure(place, rows, Path(folder) / "floor")


if __name__ == "__main__":
    main()

"""Looking keys up in the state of engines, beside RocksDB itself over the same files. Prints JSON lines.

    python benchmarks/checkpoint_keys.py                 500,000 keys in each state
    python benchmarks/checkpoint_keys.py --quick         a tenth of them
    python benchmarks/checkpoint_keys.py --only kafka    of one engine, or whose name has this text

``one key`` is the median of gets of single keys, each of which opens the state anew, ``keys`` one read of a thousand
keys by a filter. The floor of both is rocksdict: it opens a directory of the same table files, and seeks each key with
an iterator. Of Flink's savepoints and Spark's HDFS-backed checkpoints, which have no index, the floor is a scan of the
whole state, in the same process. ``ratio`` is the processor time over that of the floor, ``files`` are those that a
read opens in Python, ``bytes`` those that it reads in all. Rows are compared with what was written.
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

import statestore
from benchmarks.engines import flink_snapshots, kafka_directory

ROWS, ROUNDS, ASKED, SINGLE = 500_000, 5, 1000, 10


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
            family, options,
        )  # fmt: skip


def spark(folder: Path, rows: int) -> Iterator[Place]:
    """One partition, so that the floor is its scan: others would not be read."""
    write_checkpoint(folder, rows, 2, 1, snapshots=1)
    names = words(np.arange(rows)).tolist()
    yield Place("Spark, HDFS-backed", folder, "state", lambda n: {"word": names[n].decode()})


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

    def many() -> int:
        return len(table.scan(filter=("key", "in", keys)).read_all())

    assert many() == len(keys), (place.name, many(), len(keys))
    assert all(table.get(key) is not None for key in keys[:SINGLE]), place.name
    singles = numbers[:SINGLE]

    def whole() -> int:
        return sum(batch.num_rows for batch in table.scan())

    for name, ours, asked, calls in (
        ("one key", lambda: [table.get(place.key(number)) for number in singles], singles, SINGLE),
        ("keys", many, numbers, 1),
    ):
        floors: list[Callable[[], Any]] = [whole]
        if place.tables is not None:
            groups = [[each] for each in asked] if calls > 1 else [asked]
            floors = [lambda groups=groups: [floor_of(place, group, scratch) for group in groups]]  # type: ignore[misc]
            assert sum(floor_of(place, group, scratch) for group in groups) == len(asked), place.name
        mine, other = [], []
        for _ in range(ROUNDS):
            read, opened = bytes_read(), OPENED[0]
            mine.append(seconds(ours) / calls)
            read, opened = (bytes_read() - read) // calls, (OPENED[0] - opened) // calls
            other.append(seconds(floors[0]) / (calls if place.tables is not None else 1))
        ours_ms, floor_ms = (statistics.median(each) * 1e3 for each in (mine, other))
        print(
            json.dumps(
                {
                    "measure": f"{place.name}: {name}",
                    "floor": "rocksdict" if place.tables is not None else "scan",
                    "ratio": round(ours_ms / floor_ms, 3),
                    "ms": [round(ours_ms, 2), round(floor_ms, 2)],
                    "files": opened,
                    "bytes": read,
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

"""Edits of large checkpoints of Spark, beside a plain copy of their files and a scan of their rows. Prints JSON lines.

    python benchmarks/edits.py                 10 million keys in 20 partitions, HDFS-backed and in RocksDB
    python benchmarks/edits.py --keys 1000000  another number of keys
    python benchmarks/edits.py --rows 1000000  another number of rows that are inserted, 5 million by default
    python benchmarks/edits.py --only rocksdb  measures whose name has this text
    python benchmarks/edits.py --folder PLACE  keep what is edited there, and use it again

``UPDATE`` changes a hundred keys by their names, ``erase`` deletes them in a compacted copy, ``drop`` deletes half of
the keys, and the others move all rows to 30 partitions or to the other provider. ``seed`` inserts the rows of a Parquet
file into a checkpoint of a thousand keys; its ``ratio`` is to the processor time of a scan of the result. Each runs in
a process of its own, with its verification: ``seconds`` on the clock, ``cpu`` of the processors, ``beside`` the seconds
besides those of the copy, ``rows`` a second of a processor, and ``mb`` the most memory that it held, mapped files
included. The copy is that of `shutil`, in the same run. Where table files become hard links, an edit may be sooner done
than the copy.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))

from support.checkpoints.large_checkpoints import words, write_checkpoint
from support.checkpoints.rocksdb_checkpoints import write_partitions

import statestore

KEYS, PARTITIONS, CHANGED = 10_000_000, 20, 100
ROWS, SKELETON, FIRST_NEW = 5_000_000, 1000, 1 << 30
_AT_ONCE = 1 << 19
LAYOUTS = ("hdfs", "rocksdb")
SETTINGS: dict[str, dict[str, str]] = {
    "UPDATE": {},
    "erase": {"compact": "true"},
    "drop": {},
    "30 partitions": {"partitions": "30"},
    "other provider": {"partitions": "30"},
}


def make(folder: Path, layout: str, keys: int) -> Path:
    place = folder / f"{layout}-{keys}"
    if not place.exists():
        if layout == "hdfs":
            write_checkpoint(place, keys, 2, PARTITIONS, hashed=True)
        else:
            write_partitions(place, keys, PARTITIONS)
            shutil.rmtree(place.with_name(f"{place.name}-rocksdb"))
    return place


def statement(name: str, keys: int) -> str:
    """The statement that names keys which both layouts have."""
    numbers = [number for number in range(1, keys, keys // (2 * CHANGED)) if number % 100 != 6][:CHANGED]
    named = ", ".join(f"'{word.decode()}'" for word in words(np.array(numbers)).tolist())
    what = "UPDATE state SET value.count = 7" if name == "UPDATE" else "DELETE FROM state"
    return f"{what} WHERE key.word IN ({named})"


def edited(place: Path, name: str, keys: int, target: Path) -> None:
    settings = dict(SETTINGS[name])
    if name == "other provider":
        settings["provider"] = "rocksdb" if place.name.startswith("hdfs") else "hdfs"
    with statestore.edit(place, target, settings=settings) as edit:
        if name in ("UPDATE", "erase"):
            edit.sql(statement(name, keys))
        if name == "drop":
            edit.sql("DELETE FROM state WHERE key.word < '8'")
    assert edit.receipt is not None
    if name == "drop":
        assert 0.45 < edit.receipt.states[0].removed / keys < 0.55
        return
    changed = [(each.removed, each.changed) for each in edit.receipt.states]
    assert changed == {"UPDATE": [(0, CHANGED)], "erase": [(CHANGED, 0)]}.get(name, []), changed


def rows_file(folder: Path, rows: int) -> Path:
    """The Parquet file of the rows that are inserted."""
    path = folder / f"rows-{rows}.parquet"
    if not path.exists():
        with pq.ParquetWriter(path, pa.schema([("word", pa.string()), ("count", pa.int64())])) as writer:
            for at in range(0, rows, _AT_ONCE):
                numbers = np.arange(FIRST_NEW + at, FIRST_NEW + min(at + _AT_ONCE, rows))
                writer.write_table(pa.table({"word": pa.array(words(numbers)).cast(pa.string()), "count": numbers}))
    return path


def seeded(place: Path, rows: int, target: Path) -> None:
    path = rows_file(target.parent, rows)
    with statestore.edit(place, target, allow_external_access=True) as edit:
        edit.sql(f"INSERT INTO state SELECT {{'word': word}}, {{'count': \"count\"}} FROM '{path}'")
    assert edit.receipt is not None and edit.receipt.states[0].added == rows


def scanned(place: Path) -> None:
    assert sum(batch.num_rows for batch in statestore.inspect(place).table("state").scan())


def one(place: Path, name: str, keys: int, target: Path) -> None:
    """Run a measure, and print what it cost."""
    calls: dict[str, Callable[[], object]] = {
        "copy": lambda: shutil.copytree(place, target),
        "scan": lambda: scanned(place),
        "seed": lambda: seeded(place, keys, target),
        "scan of seed": lambda: scanned(target),
    }
    call = calls.get(name) or (lambda: edited(place, name, keys, target))
    begin, cpu = time.monotonic(), time.process_time()
    call()
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([time.monotonic() - begin, time.process_time() - cpu, used]))


def run(place: Path, name: str, keys: int, target: Path, *, keep: bool = False) -> tuple[float, float, float]:
    if name != "scan of seed":
        shutil.rmtree(target, ignore_errors=True)
    given = ["--one", name, "--keys", str(keys), "--folder", str(place), "--target", str(target)]
    done = subprocess.run([sys.executable, __file__, *given], check=True, stdout=subprocess.PIPE)
    if not keep:
        shutil.rmtree(target, ignore_errors=True)
    seconds, cpu, mb = json.loads(done.stdout)
    return seconds, cpu, mb


def measure(folder: Path, keys: int, only: str) -> None:
    for layout in LAYOUTS:
        names = [name for name in SETTINGS if only in f"{layout}: {name}"]
        if not names:
            continue
        place, target = make(folder, layout, keys), folder / "target"
        floor = run(place, "copy", keys, target)
        for name in ("scan", *names):
            seconds, cpu, mb = run(place, name, keys, target)
            found = {
                "measure": f"{layout}: {name}",
                "seconds": round(seconds, 2),
                "cpu": round(cpu, 2),
                "copy": round(floor[0], 2),
                "beside": round(seconds - floor[0], 2),
                "rows": round(keys / cpu),
                "mb": round(mb),
                "load": round(os.getloadavg()[0], 1),
            }
            print(json.dumps(found), flush=True)


def measure_seeds(folder: Path, rows: int, only: str) -> None:
    for layout in LAYOUTS:
        if only not in f"{layout}: seed":
            continue
        place, target = make(folder, layout, SKELETON), folder / "target"
        rows_file(folder, rows)
        seconds, cpu, mb = run(place, "seed", rows, target, keep=True)
        floor = run(place, "scan of seed", rows, target)
        found = {
            "measure": f"{layout}: seed",
            "ratio": round(cpu / floor[1], 2),
            "seconds": round(seconds, 2),
            "cpu": round(cpu, 2),
            "scan": round(floor[1], 2),
            "rows": round(rows / cpu),
            "mb": round(mb),
            "load": round(os.getloadavg()[0], 1),
        }
        print(json.dumps(found), flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--keys", type=int, default=KEYS, help="keys of each checkpoint")
    arguments.add_argument("--rows", type=int, default=ROWS, help="rows that are inserted")
    arguments.add_argument("--only", default="", help="text in the name of a measure, as `rocksdb: UPDATE`")
    arguments.add_argument("--folder", type=Path, help="where the checkpoints are kept")
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    arguments.add_argument("--target", type=Path, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.one:
        one(given.folder, given.one, given.keys, given.target)
        return
    with tempfile.TemporaryDirectory(prefix="statestore-edits-") as scratch:
        measure(given.folder or Path(scratch), given.keys, given.only)
        measure_seeds(given.folder or Path(scratch), given.rows, given.only)


if __name__ == "__main__":
    main()

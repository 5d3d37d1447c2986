"""Changes and differences of neighbouring checkpoints, beside scans of the same state. Prints JSON lines.

    python benchmarks/checkpoint_changes.py              1,000,000 keys
    python benchmarks/checkpoint_changes.py --quick      a tenth of them

A RocksDB checkpoint of Spark without changelogs has four batches: all keys; a thousandth of them, in a table file of
its own; a thirtieth, too; and a thousandth, after which RocksDB joins all files, so that no file is shared. An
HDFS-backed checkpoint has batches of a tenth of the keys, and snapshots. ``ratio`` is the processor time over that of
one scan of the state, ``peak`` the most memory of a process that does nothing else, in MB. Rows are counted.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))  # a script does not have it among its modules

from support.checkpoints.large_checkpoints import write_checkpoint
from support.checkpoints.rocksdb_checkpoints import write_rocksdb_checkpoint

import statestore
from statestore.formats.kernels.arrays import Ints

ROWS, ROUNDS = 1_000_000, 5
SHARES = (1, 1000, 33, 1000)
STEPS = ((0, 1, "a thousandth, files shared"), (1, 2, "a thirtieth, files shared"), (2, 3, "no file shared"))


def written(batch: int, keys: int) -> tuple[Ints, Ints]:
    """Words to put, and a thirtieth as many to delete."""
    if not batch:
        return np.arange(keys), np.empty(0, np.int64)
    chosen = np.random.default_rng(batch).choice(keys, keys // SHARES[batch], replace=False)
    cut = len(chosen) // 30
    return chosen[cut:], chosen[:cut]


def seconds(call: Callable[[], int]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def measure(path: Path, old: int, new: int, name: str) -> None:
    table = statestore.inspect(path).table("state")

    def scan() -> int:
        return sum(batch.num_rows for batch in table.scan(version=old))

    def changes() -> int:
        return sum(batch.num_rows for batch in table.changes(start_version=new, end_version=new))

    def diff() -> int:
        return sum(batch.num_rows for batch in table.diff(old, new))

    scan()
    for question, call in (("changes", changes), ("diff", diff)):
        rows = call()  # and loads what it needs
        ours, floor = [], []
        for _ in range(ROUNDS):
            floor.append(seconds(scan))
            ours.append(seconds(call))
        asked = [sys.executable, __file__, "--peak", str(path), question, str(old), str(new)]
        peak = int(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
        found = {
            "measure": f"{name}: {question}",
            "ratio": round(statistics.median(ours) / statistics.median(floor), 3),
            "ms": [round(statistics.median(each) * 1e3, 1) for each in (ours, floor)],
            "rows": rows,
            "peak": peak,
        }
        print(json.dumps(found), flush=True)


def peak(path: str, question: str, old: int, new: int) -> None:
    table = statestore.inspect(path).table("state")
    rows = table.diff(old, new) if question == "diff" else table.changes(start_version=new, end_version=new)
    for _ in rows:
        pass
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    arguments.add_argument("--quick", action="store_true", help="a tenth of the keys")
    arguments.add_argument("--peak", nargs=4, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.peak:
        peak(given.peak[0], given.peak[1], int(given.peak[2]), int(given.peak[3]))
        return
    rows = ROWS // 10 if given.quick else ROWS
    with tempfile.TemporaryDirectory(prefix="statestore-changes-") as folder:
        tables, logs = Path(folder) / "rocksdb", Path(folder) / "hdfs"
        write_rocksdb_checkpoint(tables, rows, len(SHARES), written, lambda batch: batch in (0, len(SHARES) - 1))
        for old, new, name in STEPS:
            measure(tables, old, new, f"Spark, RocksDB, {name}")
        write_checkpoint(logs, rows, 3, snapshots=2)
        measure(logs, 1, 2, "Spark, HDFS-backed, a tenth")


if __name__ == "__main__":
    main()

"""Commits of ten rows, ten a second: their cost, and that of opening the store, as the log grows. Prints JSON lines.

    python benchmarks/small_commits.py                  5,000 commits, then the log alone to 100,000
    python benchmarks/small_commits.py --commits 1000   fewer
    python benchmarks/small_commits.py --log 0          without the log alone

CPU times are in milliseconds, of this process. The goals are ratios: the last commits and openings against those at
100 commits. "The log alone" adds commits that hold a transaction and no rows, so that the layout of the segments stays
as it is and only the length of the log differs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import statestore
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.publish_commit import after_publish, new_entry
from statestore.catalog.log.entries import write_entry
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.reads.scan import TimeRange, plan
from statestore.formats.segments.segment_meta import OPEN

ROWS = 10
KEYS = 5_000
MARKS = (100, 1_000, 5_000, 20_000, 100_000)
ROW_BYTES = 12 + 8 + 4 + 8  # key, two values, time


def report(name: str, **fields: Any) -> None:
    print(json.dumps({"measure": name, **fields}), flush=True)


def cpu(call: Callable[[], Any], runs: int) -> float:
    """Return the median of the CPU times of a call."""
    times = []
    for _ in range(runs):
        begin = time.process_time()
        call()
        times.append((time.process_time() - begin) * 1000)
    return round(statistics.median(times), 3)


def opening(folder: Path) -> None:
    """Open the store as a new process would, and plan a scan of now."""
    with statestore.connect(folder).open_store("s") as store:
        files = store._files
        files.forget()
        log_state = files.log_state()
        plan(files, log_state, TimeRange(OPEN - 1, OPEN - 1, log_state.version, newest=True), ())


def log_bytes(folder: Path) -> tuple[int, int]:
    """Return the number of the log's files and the bytes on the disk that they take."""
    files = [path.stat() for path in (folder / "s/log").rglob("*") if path.is_file()]
    return len(files), sum(about.st_blocks * 512 for about in files)


def stored_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in (folder / "s").rglob("*") if path.is_file())


def measure(folder: Path, commits: int, first: dict[str, float]) -> None:
    """Report the opening of a store of ``commits`` commits against that of the first one that was measured."""
    load = cpu(lambda: load_log_state(statestore.connect(folder).locate("s")[0]), 5)
    found = {"open and plan": cpu(lambda: opening(folder), 5), "load the log state": load}
    for name, value in found.items():
        report(name, commits=commits, cpu=value, ratio=round(value / first.setdefault(name, value), 2), goal=2.0)


def ten_rows(store: statestore.VersionedStore, number: int, dice: random.Random) -> float:
    """Commit ten rows; return the CPU time of the commit alone."""
    for row in range(ROWS):
        key = f"key-{dice.randrange(KEYS):08d}"
        store.put(key, {"price": dice.random(), "stock": row}, timestamp=number * 100 + row)
    begin = time.process_time()
    store.commit()
    return (time.process_time() - begin) * 1000


def grow(folder: Path, to: int, first: dict[str, float]) -> None:
    """Add commits without rows until the store has ``to``, measuring at the marks."""
    with statestore.connect(folder).open_store("s") as store:
        storage, log_state = store._storage, store._files.log_state()
        while log_state.version < to:
            transaction = "benchmark", log_state.version
            entry = new_entry(log_state, "write", NewFiles(), transaction=transaction)
            write_entry(storage, entry)
            log_state = after_publish(storage, log_state, entry)
            if log_state.version in MARKS:
                measure(folder, log_state.version, first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=5_000)
    parser.add_argument("--log", type=int, default=100_000, help="commits of the log alone; 0: none")
    options = parser.parse_args()
    dice = random.Random(7)
    first: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = statestore.connect(folder).create_store(
            "s", key={"item": "string"}, value={"price": "double", "stock": "int"}
        )
        times: list[float] = []
        for number in range(1, options.commits + 1):
            times.append(ten_rows(store, number, dice))
            if number in MARKS:
                recent = times[-100:]
                median, mean = statistics.median(recent), statistics.fmean(recent)
                base = first.setdefault("commit", mean)
                report("commit of 10 rows, mean of 100", commits=number, cpu=round(mean, 2), median=round(median, 2),
                       longest=round(max(times), 1), ratio=round(mean / base, 2), goal=1.5)  # fmt: skip
                measure(folder, number, first)
        entries = sorted(path.stat().st_size for path in (folder / "s/log").glob("*.json"))
        report("log entry", median_bytes=entries[len(entries) // 2], longest=entries[-1])
        report("disk", commits=options.commits, input=options.commits * ROWS * ROW_BYTES, stored=stored_bytes(folder))
        store.close()
        if options.log:
            grow(folder, options.log, first)
        for what, call in (("vacuum of the log", lambda: vacuum(folder)), ("again", lambda: vacuum(folder))):
            files, size = log_bytes(folder)
            took = cpu(call, 1)
            left, after = log_bytes(folder)
            report(what, cpu=took, files_before=files, bytes_before=size, files_after=left, bytes_after=after)
        with statestore.connect(folder).open_store("s") as store:
            measure(folder, store.version, first)


def vacuum(folder: Path) -> None:
    with statestore.connect(folder).open_store("s") as store:
        store.vacuum(older_than="0s")


if __name__ == "__main__":
    main()

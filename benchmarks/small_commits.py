"""Commits of ten rows, ten a second: their cost, and that of opening the store, as the log grows. Prints JSON lines.

    python benchmarks/small_commits.py                  5,000 commits, then the log alone to 100,000
    python benchmarks/small_commits.py --commits 1000   fewer
    python benchmarks/small_commits.py --log 0          without the log alone

CPU times are in milliseconds, of this process. The goals are ratios: the last commits and openings against those at
100 commits. Commits are compared by turns: one of the long store, one of a store that has about 100 commits. "The log
alone" adds commits that hold a transaction and no rows, so that the layout of the segments stays as it is and only the
length of the log differs. "Threads" commit at once, each a row of its own: the fewer versions a commit, the more
threads shared one.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import statestore
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.publish_commit import after_publish, new_entry
from statestore.catalog.log.entries import write_entry
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.reads.belief import TimeRange
from statestore.catalog.reads.plan import plan
from statestore.formats.segments.segment_meta import OPEN

ROWS = 10
KEYS = 5_000
MARKS = (100, 1_000, 5_000, 20_000, 100_000)
COPIES = 5
THREAD_COMMITS = 50
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
        log_state = files.log.newest()
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


def compare(folder: Path, store: statestore.VersionedStore, number: int, dice: random.Random) -> None:
    """Commit by turns to the long store and to copies of a store of 50 commits, until these have 150."""
    young = create(folder / "young")
    for early in range(50):
        ten_rows(young, early, dice)
    young.close()
    times: tuple[list[float], list[float]] = [], []
    for copy in range(COPIES):
        shutil.copytree(folder / "young", folder / f"young-{copy}")
        with statestore.connect(folder / f"young-{copy}").open_store("s") as other:
            for early in range(50, 150):
                number += 1
                times[0].append(ten_rows(store, number, dice))
                times[1].append(ten_rows(other, early, dice))
    means, medians = [statistics.fmean(of) for of in times], [statistics.median(of) for of in times]
    report("commit of 10 rows, by turns with a store of 100 commits", commits=number, cpu=round(means[0], 2),
           against=round(means[1], 2), ratio=round(means[0] / means[1], 2), goal=1.5,
           median_ratio=round(medians[0] / medians[1], 2), longest=round(max(times[0]), 1))  # fmt: skip


def create(folder: Path) -> statestore.VersionedStore:
    columns: dict[str, Any] = {"key": {"item": "string"}, "value": {"price": "double", "stock": "int"}}
    store: statestore.VersionedStore = statestore.connect(folder).create_store("s", **columns)
    return store


def threads(folder: Path, kind: str, count: int) -> None:
    """Report the versions and the times of commits that threads make at once."""
    columns: dict[str, Any] = {"key": {"item": "string"}, "value": {"stock": "int"}}
    with statestore.connect(folder).create_store(f"{kind}-{count}", kind=kind, **columns) as store:

        def work(thread: int) -> None:
            for number in range(THREAD_COMMITS):
                moment = {"timestamp": number} if kind == "versioned" else {}
                value = {"stock": number} if kind == "versioned" else number
                store.put(f"key-{thread}", value, **moment)
                store.commit()

        workers = [threading.Thread(target=work, args=(thread,)) for thread in range(count)]
        begin, cpu_begin = time.perf_counter(), time.process_time()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        commits = count * THREAD_COMMITS
        wall, spent = time.perf_counter() - begin, time.process_time() - cpu_begin
        versions = sum(operation == "write" for operation in store._log_state.versions.operation)
        report("threads", kind=kind, threads=count, commits=commits, versions=versions, a_second=round(commits / wall),
               cpu=round(spent * 1000 / commits, 2))  # fmt: skip


def grow(folder: Path, to: int, first: dict[str, float]) -> None:
    """Add commits without rows until the store has ``to``, measuring at the marks."""
    with statestore.connect(folder).open_store("s") as store:
        storage, log_state = store._storage, store._files.log.newest()
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
        store = create(folder)
        times: list[float] = []
        for number in range(1, options.commits + 1):
            times.append(ten_rows(store, number, dice))
            if number in MARKS:
                recent = times[-100:]
                median, mean = statistics.median(recent), statistics.fmean(recent)
                base = first.setdefault("commit", mean)
                report("commit of 10 rows, mean of 100", commits=number, cpu=round(mean, 2), median=round(median, 2),
                       longest=round(max(times[10:]), 1), ratio=round(mean / base, 2), goal=1.5)  # fmt: skip
                measure(folder, number, first)
        entries = sorted(path.stat().st_size for path in (folder / "s/log").glob("*.json"))
        report("log entry", median_bytes=entries[len(entries) // 2], longest=entries[-1])
        report("disk", commits=options.commits, input=options.commits * ROWS * ROW_BYTES, stored=stored_bytes(folder))
        compare(folder, store, options.commits, dice)
        store.close()
        for kind in ("versioned", "key_value"):
            for count in (1, 16):
                threads(folder, kind, count)
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

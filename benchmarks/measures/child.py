"""Programs that run in a process of their own: ``python -m benchmarks.measures.child VERB WAREHOUSE``.

``compact`` prints a line when it begins, and then what it cost. ``open`` prints what opening the store cost.
``changes`` prints a line when it begins, and then how many rows the changes of most commits have.
The name of a size makes a store, uses it in all ways that have compiled loops, and prints what the process has cost.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import statestore
from benchmarks.loads.sizes import SIZES
from benchmarks.loads.stream import Stream
from benchmarks.measures.workbench import STORE, open_reader, write_history
from benchmarks.results.costs import Costs, cpu_ms

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_SECONDS = 0.005
SAY_WHEN_THEY_BEGIN = ("compact", "changes")
MOST_COMMITS = 0.8
GETS, SCANS = 6_000, 15  # after so many, compiled loops are loaded


@dataclass(frozen=True)
class Ended:
    """Last message of a child (None: it was killed), and the greatest growth of its anonymous memory in bytes."""

    said: dict[str, Any] | None
    grown: int


def begin(verb: str, path: Path) -> subprocess.Popen[str]:
    """Start a child."""
    command = [sys.executable, "-m", "benchmarks.measures.child", verb, str(path)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def run(verb: str, path: Path, kill_after: float | None = None) -> Ended:
    """Run a child to its end, or kill it some seconds after it said that it begins; watch its memory meanwhile."""
    child = begin(verb, path)
    assert child.stdout is not None
    lines = [child.stdout.readline()] if verb in SAY_WHEN_THEY_BEGIN else []
    start = highest = anonymous(child.pid)
    since = time.monotonic()
    while child.poll() is None:
        highest = max(highest, anonymous(child.pid))
        if kill_after is not None and time.monotonic() - since > kill_after:
            child.kill()
        time.sleep(SAMPLE_SECONDS)
    lines += child.stdout.readlines()
    child.stdout.close()
    if child.returncode > 0:
        raise ChildProcessError(f"{verb} in a process of its own ended with status {child.returncode}.")
    return Ended(json.loads(lines[-1]) if child.returncode == 0 else None, highest - start)


def anonymous(pid: int) -> int:
    """Bytes of anonymous memory of a process, 0 where Linux does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def compact(path: Path) -> None:
    store = statestore.connect(path).open_store(STORE)
    print(json.dumps({"begins": True}), flush=True)
    costs = Costs()
    costs.add(lambda: store.compact(full=True))
    store.close()
    print(json.dumps({"wall": costs.wall[0], "cpu": costs.cpu[0]}), flush=True)


def open_once(path: Path) -> None:
    """Open in a process that has opened another store, so that no import and no first use of a library counts."""
    statestore.connect(path.with_name("first-use")).open_store(STORE, read_only=True).close()
    costs, scans = Costs(), Costs()
    store = costs.add(lambda: statestore.connect(path).open_store(STORE, read_only=True))
    assert store.version > 0
    scans.add(lambda: store.scan().read_all())
    print(json.dumps({"wall": costs.wall[0], "cpu": costs.cpu[0], "scan_cpu": scans.cpu[0]}), flush=True)


def read_changes(path: Path) -> None:
    """Read the changes of most commits, batch by batch."""
    store = open_reader(path)
    store.scan().read_all()
    print(json.dumps({"begins": True}), flush=True)
    first = int(store.version * (1 - MOST_COMMITS))
    rows = sum(batch.num_rows for batch in store.changes(start_version=first, end_version=store.version))
    store.close()
    print(json.dumps({"rows": rows}), flush=True)


def use(path: Path, size: str) -> None:
    stream = Stream(SIZES[size].first_use, 1)
    write_history(stream, path)
    for _ in range(2):
        store = open_reader(path)
        names = stream.names.slice(0, GETS).to_pylist()
        for moment in (stream.moment(0.5), None):
            for _ in range(SCANS):
                store.scan(as_of=moment).read_all()
                store.scan(version=stream.shape.commits // 2).read_all()
            for name in names:
                store.get(name, as_of=moment)
            store.get_many(names, as_of=moment)
        store.close()
        store = statestore.connect(path).open_store(STORE)
        store.compact(full=True)
        store.close()
    print(json.dumps({"cpu": cpu_ms()}), flush=True)


PROGRAMS: dict[str, Callable[[Path], None]] = {
    "compact": compact,
    "open": open_once,
    "changes": read_changes,
    **{size: partial(use, size=size) for size in SIZES},
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](Path(sys.argv[2]))

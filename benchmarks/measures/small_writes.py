"""Commits of ten rows in a process of their own: ``python -m benchmarks.measures.small_writes WAREHOUSE COMMITS SEED``.

A pass of Python's garbage collector goes through all objects of the process, so the libraries of the other tables would
count. Prints a line of JSON: what each commit cost, and how much of that was the disk and the garbage collector.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.loads.stream import Shape, Stream
from benchmarks.measures.workbench import open_writer
from benchmarks.results.costs import Costs, cpu_ms

ROOT = Path(__file__).resolve().parents[2]
ROWS = 10


@dataclass(frozen=True)
class Written:
    """A store of small commits, in milliseconds: the wall time of each, of which waiting for the disk to sync and
    garbage collection, and the processor time after each of all threads. The rest is the longest sync of all.
    """

    path: Path
    stream: Stream
    wall: list[float]
    synced: list[float]
    collected: list[float]
    cpu: list[float]

    def mean_work(self, commits: slice) -> float:
        """Processor milliseconds a commit."""
        first, last = int(commits.start), int(commits.stop)
        return (self.cpu[last - 1] - self.cpu[first - 1]) / (last - first)


def stream_of(commits: int, seed: int) -> Stream:
    return Stream(Shape(max(commits, 10), ROWS, ROWS), seed)


def write_apart(path: Path, commits: int, seed: int) -> Written:
    """Write a store in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.measures.small_writes", str(path), str(commits), str(seed)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Written(path, stream_of(commits, seed), **json.loads(done.stdout.splitlines()[-1]))


@dataclass
class Waits:
    """Milliseconds that this thread has waited for the disk to sync, and that any garbage collection took."""

    synced: float = 0.0
    collected: float = 0.0
    _thread: int = field(default_factory=threading.get_ident)
    _begin: float = 0.0

    def watch(self) -> None:
        sync = os.fsync

        def timed(file: int) -> None:
            begin = time.perf_counter()
            try:
                sync(file)
            finally:
                if threading.get_ident() == self._thread:
                    self.synced += (time.perf_counter() - begin) * 1000

        os.fsync = timed  # type: ignore[assignment]
        gc.callbacks.append(self._collecting)

    def _collecting(self, phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            self._begin = time.perf_counter()
        else:
            self.collected += (time.perf_counter() - self._begin) * 1000


def write(path: Path, commits: int, seed: int) -> dict[str, Any]:
    stream, store = stream_of(commits, seed), open_writer(path)
    costs, cpu, waits = Costs(), [], Waits()
    synced, collected = [], []
    waits.watch()
    begin = cpu_ms()
    for number in range(commits):
        changes = stream.commit(number)
        before = waits.synced, waits.collected
        costs.add(lambda changes=changes: (store.put_all(changes), store.commit()))  # type: ignore[misc]
        synced.append(waits.synced - before[0])
        collected.append(waits.collected - before[1])
        cpu.append(cpu_ms() - begin)
    store.close()
    return {"wall": costs.wall, "synced": synced, "collected": collected, "cpu": cpu}


if __name__ == "__main__":
    print(json.dumps(write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))

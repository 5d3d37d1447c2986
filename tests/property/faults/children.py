"""Functions run in fresh processes, each forked from a process in which the fault library is preloaded."""

from __future__ import annotations

import atexit
import functools
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.library import PRELOADED, built_library

HERE = Path(__file__).parent.parent
TIME_LIMIT = 60.0


@dataclass(frozen=True)
class Ended:
    """The end of a child: ``value`` is the result of its function; without one, ``bad`` is the reason."""

    value: Any
    bad: str | None = None
    signal: int | None = None


class Zygote:
    """One parent of children; used by one thread at a time. Starts with its first job.

    It has imported the package before, unless it is ``bare``.
    """

    def __init__(self, bare: bool = False) -> None:
        self._bare = bare
        self._process: subprocess.Popen[str] | None = None

    def _start(self) -> subprocess.Popen[str]:
        library = str(built_library())
        self._folder = tempfile.mkdtemp(prefix="statestore-zygote-")
        environment = {
            **os.environ,
            "LD_PRELOAD": library,
            PRELOADED: library,
            "STATESTORE_FAULT_FOLDER": self._folder,
            "TMPDIR": self._folder,
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "ARROW_DEFAULT_MEMORY_POOL": "system",
        }
        paths = [str(HERE), str(HERE.parent)]
        command = [sys.executable, "-W", "ignore::DeprecationWarning"]
        process = subprocess.Popen(
            [*command, str(HERE / "faults" / "zygote.py"), "bare" if self._bare else "loaded", *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        self._process = process
        return process

    def run(
        self, function: str, *, limit: float = TIME_LIMIT, kill_after: float | None = None, **arguments: Any
    ) -> Ended:
        """Run ``module:function`` with these arguments (as JSON) in a child, which is killed after ``kill_after``
        seconds."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        job = {"function": function, "arguments": arguments, "limit": limit, "kill_after": kill_after}
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        ended = json.loads(process.stdout.readline())
        if "hang" in ended:
            return Ended(None, f"HANG: no end after {limit:.0f} s (in the kernel: {ended['where']})")
        if "signal" in ended:
            return Ended(None, f"CRASH: killed by signal {ended['signal']}", ended["signal"])
        if "raised" in ended:
            return Ended(None, f"RAISED: {ended['raised']}\n{ended['trace']}")
        return Ended(ended.get("value"), None if ended.get("exit") == 0 else f"CRASH: exit status {ended.get('exit')}")

    def close(self) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        process.wait(20)
        process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Children:
    """Zygotes for this many children at a time."""

    def __init__(self, count: int, bare: bool) -> None:
        self.count = count
        built_library()
        self._free: queue.LifoQueue[Zygote] = queue.LifoQueue()  # those that run come first
        self._all = [Zygote(bare) for _ in range(count)]
        for zygote in self._all:
            self._free.put(zygote)

    @contextmanager
    def zygote(self) -> Iterator[Zygote]:
        """Lend a zygote to the block."""
        found = self._free.get()
        try:
            yield found
        finally:
            self._free.put(found)

    def run(self, function: str, **arguments: Any) -> Ended:
        """Run a job like `Zygote.run`, on the next free zygote."""
        with self.zygote() as zygote:
            return zygote.run(function, **arguments)

    def each(self, jobs: Iterable[Any], work: Callable[[Zygote, Any], None], go_on: Callable[[], bool]) -> int:
        """Do the jobs in their order, ``count`` at a time, as long as ``go_on`` returns true; return the number
        done."""
        rest, lock, done = iter(jobs), threading.Lock(), 0

        def loop() -> None:
            nonlocal done
            with self.zygote() as zygote:
                while go_on():
                    with lock:
                        job = next(rest, None)
                        if job is None:
                            return
                        done += 1
                    work(zygote, job)

        with ThreadPoolExecutor(self.count) as threads:
            for future in [threads.submit(loop) for _ in range(self.count)]:
                future.result()
        return done

    def close(self) -> None:
        for zygote in self._all:
            zygote.close()


@functools.cache
def children(count: int = 2, bare: bool = False) -> Children:
    """Zygotes for the whole session: starting one costs seconds, unless they are ``bare`` and import nothing."""
    found = Children(count, bare)
    atexit.register(found.close)
    return found

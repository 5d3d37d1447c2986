"""A process that has imported everything, or nothing, opened nothing, and forks a child for each job it is given.

A process that has used RocksDB or its own threads must not fork, and an interpreter with all modules takes a second to
start: so the children are forked from this one, which does neither. Started by `faults.children`; talks JSON lines on
stdin and stdout. A child's answer is a file of its own, its acknowledgements are what it wrote to ``acknowledged``.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any


def preload() -> None:
    """Import the modules that calls would import later."""
    for name in ("duckdb", "sqlglot", "rocksdict", "xxhash", "pandas", "pyarrow.dataset", "pyarrow.compute"):
        importlib.import_module(name)
    import statestore
    import statestore.catalog
    import statestore.connector.duckdb
    import statestore.formats

    for package in (statestore.catalog, statestore.formats, statestore.connector.duckdb):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    for module_name in ("statestore.connector.sql.query", "statestore.connector.sql.sql_duckdb"):
        with contextlib.suppress(ImportError):
            importlib.import_module(module_name)
    from statestore.formats.bytes.crc32c import crc32c

    crc32c(b"")  # the first compiled loop that is called prepares numba, in half of the time that a child takes


def child(job: dict[str, Any], answer: str) -> None:
    """Do the job and write its result; never returns."""
    status = 0
    try:
        module, _, function = job["function"].partition(":")
        value = getattr(importlib.import_module(module), function)(**job["arguments"])
        Path(answer).write_text(json.dumps({"value": value}))
    except BaseException as error:
        status = 7
        text = "".join(traceback.format_exception(error))
        Path(answer).write_text(json.dumps({"raised": f"{type(error).__name__}: {error}", "trace": text[-4000:]}))
    finally:
        os._exit(status)


def wait(pid: int, limit: float, kill_after: float | None) -> dict[str, Any]:
    """The end of the child: {"exit": code}, {"signal": number} or {"hang": seconds}."""
    end = time.monotonic() + limit
    kill_at = None if kill_after is None else time.monotonic() + kill_after
    descriptor = os.pidfd_open(pid)
    try:
        while True:
            now = time.monotonic()
            until = end if kill_at is None else min(end, kill_at)
            if select.select([descriptor], [], [], max(0.0, until - now))[0]:
                _, status = os.waitpid(pid, 0)
                if os.WIFSIGNALED(status):
                    return {"signal": os.WTERMSIG(status)}
                return {"exit": os.WEXITSTATUS(status)}
            if kill_at is not None and time.monotonic() >= kill_at:
                os.kill(pid, signal.SIGKILL)
                kill_at = None
            elif time.monotonic() >= end:
                where = Path(f"/proc/{pid}/wchan").read_text() if Path(f"/proc/{pid}/wchan").exists() else ""
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return {"hang": limit, "where": where}
    finally:
        os.close(descriptor)


def main() -> None:
    sys.path[:0] = sys.argv[2:]
    importlib.import_module("faults.library")  # which every job imports, and with it pytest
    if sys.argv[1] == "loaded":
        preload()
    gc.collect()
    gc.freeze()
    answer = f"{os.environ['STATESTORE_FAULT_FOLDER']}/answer-{os.getpid()}"
    print("ready", flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        with contextlib.suppress(FileNotFoundError):
            Path(answer).unlink()
        pid = os.fork()
        if pid == 0:
            devnull = os.open(os.devnull, os.O_RDWR)
            os.dup2(devnull, 0)
            os.dup2(devnull, 1)
            child(job, answer)
        ended = wait(pid, job["limit"], job.get("kill_after"))
        with contextlib.suppress(FileNotFoundError, ValueError):
            ended |= json.loads(Path(answer).read_text())
        print(json.dumps(ended), flush=True)
    os._exit(0)  # DuckDB's bindings report leaks at an ordinary end


if __name__ == "__main__":
    main()

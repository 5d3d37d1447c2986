"""Times and requests of reads of a store and of plain Parquet on one server."""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import statestore
from benchmarks.loads.stream import Stream
from benchmarks.objects.plain_parquet import PlainParquet
from benchmarks.objects.served import ObjectServer, Seen
from statestore.catalog.reads import segment_files

STORE = "prices"
MOMENTS: dict[str, float | None] = {"old": 0.1, "middle": 0.5, "now": None}
GOAL = 1.3
CACHE = "STATESTORE_CACHE"
Call = Callable[[], Any]


@dataclass(frozen=True)
class Cost:
    """The least time of some runs, in milliseconds, and the requests of the last one."""

    ms: float
    seen: Seen

    @property
    def fields(self) -> dict[str, Any]:
        seen = self.seen
        return {
            "ms": round(self.ms, 1), "requests": seen.requests, "rounds": seen.rounds,
            "mb_received": round(seen.received / 1e6, 3), "mb_sent": round(seen.sent / 1e6, 3),
        }  # fmt: skip


class Bench:
    """A server, the stream of changes, and the folders for caches."""

    def __init__(self, server: ObjectServer, folder: Path, stream: Stream, runs: int) -> None:
        self.server, self.stream, self.runs = server, stream, runs
        self.plain = PlainParquet(server)
        self._folder, self._caches = folder, 0

    def open(self, warehouse: str, read_only: bool = True) -> statestore.VersionedStore:
        catalog = statestore.connect(self.server.warehouse(warehouse))
        store: statestore.VersionedStore = catalog.open_store(STORE, read_only=read_only, auto_compact=False)
        return store

    def forget(self) -> None:
        """Begin as on a new machine."""
        segment_files._shared.clear()
        gc.collect()
        shutil.rmtree(self._folder / f"cache-{self._caches}", ignore_errors=True)
        self._caches += 1
        os.environ[CACHE] = str(self._folder / f"cache-{self._caches}")

    def cost(self, call: Call, before: Call = lambda: None, after: Callable[[Any], Any] = lambda found: None) -> Cost:
        """Run a call some times; ``before`` and ``after`` (with what it returned) are not counted."""
        times: list[float] = []
        for _ in range(self.runs):
            before()
            self.server.seen()
            begin = time.perf_counter()
            found = call()
            times.append((time.perf_counter() - begin) * 1000)
            seen = self.server.seen()
            after(found)
            del found  # views of a file would keep it
        return Cost(min(times), seen)

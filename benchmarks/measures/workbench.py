"""Stores that measures share: histories that are written once in a run, as delivered and compacted."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import statestore
from benchmarks.loads.sizes import Size
from benchmarks.loads.stream import KEY, VALUE, Shape, Stream
from benchmarks.results.costs import Costs, cpu_ms

STORE = "prices"
DELIVERED, COMPACTED = "as delivered", "compacted"
STOPS = (0.05, 0.11, 0.18, 0.26, 0.35)  # shares of the commits before the end
COPY_ATTEMPTS = 8


@dataclass(frozen=True)
class History:
    """A store with all commits of a stream, closed, and what writing it cost.

    ``work_ms`` is the processor time of everything from the first commit to the end of ``close()``, without that of the
    raw writes and of making the changes; it counts the work of other threads and of ended children. ``stops`` are
    copies of the store after so many commits, because the cost of reading the newest state depends on how long ago the
    last compaction was.
    """

    stream: Stream
    path: Path
    commits: Costs
    raw: Costs
    closing: Costs
    work_ms: float
    stops: dict[int, Path] = field(default_factory=dict)


@dataclass
class Workbench:
    """A run: its size and seed, its folder, and the stores that several measures read."""

    folder: Path
    size: Size
    seed: int
    runs: int
    peers: tuple[str, ...] = ()
    absent: list[str] = field(default_factory=list)
    _folders: int = 0
    _histories: dict[tuple[Shape, str], History] = field(default_factory=dict)

    def history(self, shape: Shape, state: str = DELIVERED) -> History:
        """The store of a shape as its commits left it, or after a full compaction."""
        if (shape, state) not in self._histories:
            if state == DELIVERED:
                stops = stops_of(shape) if shape in self.size.long.values() else ()
                made = write_history(Stream(shape, self.seed), self.new_folder("history"), stops=stops)
            else:
                made = compacted_copy(self.history(shape), self.new_folder("compacted"))
            self._histories[shape, state] = made
        return self._histories[shape, state]

    def new_folder(self, name: str) -> Path:
        """A folder of this name and a number, which does not exist yet."""
        self._folders += 1
        return self.folder / f"{name}-{self._folders}"


def open_writer(path: Path, auto_compact: bool = True) -> statestore.VersionedStore:
    """Create the store of this benchmark and open it for writing."""
    catalog = statestore.connect(path)
    catalog.create_store(STORE, key=KEY, value=VALUE).close()
    store: statestore.VersionedStore = catalog.open_store(STORE, auto_compact=auto_compact)
    return store


def open_reader(path: Path) -> statestore.VersionedStore:
    store: statestore.VersionedStore = statestore.connect(path).open_store(STORE, read_only=True)
    return store


def write_history(stream: Stream, path: Path, auto_compact: bool = True, stops: Sequence[int] = ()) -> History:
    """Commit the whole stream, each commit by turns with a raw write of its changes to an Arrow file."""
    store = open_writer(path, auto_compact)
    commits, raw, closing = Costs(), Costs(), Costs()
    scratch = path.with_suffix(".arrow")
    copies: dict[int, Path] = {}
    begin, beside = cpu_ms(), 0.0
    for number in range(stream.shape.commits):
        thread = time.thread_time()
        changes, upserts = stream.commit(number), stream.raw(number)
        beside += (time.thread_time() - thread) * 1000
        commits.add(lambda changes=changes: (store.put_all(changes), store.commit()))  # type: ignore[misc]
        thread, wall = time.thread_time(), time.perf_counter()
        write_arrow(scratch, upserts)
        raw.wall.append((time.perf_counter() - wall) * 1000)
        raw.cpu.append((time.thread_time() - thread) * 1000)
        beside += raw.cpu[-1]
        if number + 1 in stops:
            thread = time.thread_time()
            copies[number + 1] = copy_of_open_store(path, path.with_name(f"{path.name}-{number + 1}"))
            beside += (time.thread_time() - thread) * 1000
    closing.add(store.close)
    work = cpu_ms() - begin - beside
    scratch.unlink()
    return History(stream, path, commits, raw, closing, work, copies)


def stops_of(shape: Shape) -> list[int]:
    """Numbers of commits before the last one, at uneven distances, so that they meet any phase of compaction."""
    return sorted({round(shape.commits * (1 - share)) for share in STOPS} - {0, shape.commits})


def copy_of_open_store(path: Path, copy: Path) -> Path:
    """Copy a store whose writer may be compacting it; begin again where the copy misses a file of the log's."""
    for attempt in range(COPY_ATTEMPTS):
        try:
            shutil.copytree(path, copy)
            reader = open_reader(copy)
            reader.scan(columns=[*KEY]).read_all()
            reader.close()
            return copy
        except (OSError, statestore.StateStoreError):
            if attempt == COPY_ATTEMPTS - 1:
                raise
            shutil.rmtree(copy, ignore_errors=True)
            copy = path.with_name(f"{copy.name}-{attempt}")
    raise AssertionError


def compacted_copy(history: History, path: Path) -> History:
    """A copy of a store after ``compact(full=True)``."""
    shutil.copytree(history.path, path)
    store = statestore.connect(path).open_store(STORE)
    store.compact(full=True)
    store.close()
    return History(history.stream, path, history.commits, history.raw, history.closing, history.work_ms)


def write_arrow(path: Path, table: pa.Table) -> None:
    """Write a plain Arrow file, without fsync."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def segments(path: Path) -> int:
    """The number of segments of the store's newest version."""
    found = statestore.sql(str(path), f'SELECT count(*) AS n FROM "{STORE}$segments"')
    return int(found["n"][0].as_py())


def bytes_in(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())

"""Many rounds in one process, many threads on one handle, forks, and clocks that jump."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import select
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import statestore
from faults.library import Faults
from faults.subjects import SUBJECTS, WrongAnswer
from statestore import StateStoreError

WARM_UP = 20
GROWTH_KB = 100_000


def _descriptors() -> list[str]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(link.readlink()))
    return sorted(name for name in found if not name.startswith(("pipe:", "anon_inode:")) and "/proc/" not in name)


def _temporary() -> list[str]:
    names = (path.name for path in Path(tempfile.gettempdir()).iterdir())
    return sorted(name for name in names if not name.startswith("answer-"))


def rounds(root: str, kind: str, most: int, seconds: float) -> dict[str, Any]:
    """Open, write, commit, read and close, again and again: the resources of the process do not grow."""
    subject, end = SUBJECTS[kind], time.monotonic() + seconds
    subject.create(Path(root)).close()
    catalog = statestore.connect(root)
    before: tuple[list[str], list[str], int, int] | None = None
    done = 0
    while done < most and (done <= WARM_UP or time.monotonic() < end):
        with catalog.open_store("s") as store:
            subject.write(store, done * 4 + 1)
            if done % 3:
                store.commit()
            with catalog.open_store("s", read_only=True) as reader:
                reader.scan().read_all()
                reader.get("k1") if kind in ("versioned", "key_value") else subject.live(reader) if done < 40 else None
            if done % 10 == 0:
                store.compact(full=True)
                store.expire(before=0)
                store.vacuum(older_than=0)
            dropped = catalog.open_store("s", read_only=True)  # and is never closed
            dropped.scan()
            del dropped
        done += 1
        if done == WARM_UP:
            before = (
                _descriptors(),
                _temporary(),
                resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                threading.active_count(),
            )
    assert before is not None
    files, temporary, memory, threads = before
    wrong = []
    more = [name for name in _descriptors() if name not in files]
    if len(_descriptors()) > len(files):
        wrong.append(f"{len(_descriptors()) - len(files)} file descriptors more: {more[:3]}")
    if len(_temporary()) > len(temporary):
        wrong.append(f"temporary folders are left: {_temporary()[:3]}")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    if grown > GROWTH_KB:
        wrong.append(f"{grown} kB more memory after {done} rounds")
    if threading.active_count() > threads:
        wrong.append(f"{threading.active_count()} threads, {threads} before")
    count = sum(1 for path in Path(root).rglob("*") if path.is_file())
    with catalog.open_store("s") as store:
        store.commit()
        store.compact(full=True)
        store.vacuum(older_than=0)
    if kind == "versioned":  # the log grows, data does not
        count = sum(1 for path in (Path(root) / "s" / "segments").rglob("*") if path.is_file())
        if count > 40:
            wrong.append(f"{count} files in segments/ after vacuum")
    return {"rounds": done, "wrong": wrong}


def threads(root: str, kind: str, count: int, seconds: float) -> dict[str, Any]:
    """Threads put, commit, read and flush through one handle."""
    subject, end = SUBJECTS[kind], time.monotonic() + seconds
    store = subject.create(Path(root))
    acknowledged: list[list[int]] = [[] for _ in range(count)]
    wrong: list[str] = []

    def work(mine: int) -> None:
        rng, number = random.Random(mine), (mine + 1) * 10_000
        try:
            while time.monotonic() < end:
                act = rng.random()
                if act < 0.6:
                    number += 1 if (number + 1) % 4 != 3 else 2
                    subject.write(store, number)
                    acknowledged[mine].append(number)
                elif act < 0.75:
                    store.commit()
                elif act < 0.85:
                    store.scan().read_all()
                elif act < 0.9:
                    store.flush()
                elif act < 0.95:
                    lost = set(acknowledged[mine]) - subject.values(store)
                    if lost:
                        raise WrongAnswer(f"a thread does not find its own writes {sorted(lost)[:5]}")
                elif act < 0.965:
                    store.compact()
                elif act < 0.98:
                    store.expire(before=0)
                else:
                    store.vacuum(older_than=0)
        except BaseException as error:
            wrong.append(f"{type(error).__name__}: {str(error)[:200]}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store.commit()
    numbers = sorted(number for mine in acknowledged for number in mine)
    if not wrong and subject.live(store) != subject.expected(numbers):
        wrong.append("LOST: the handle does not have what the threads put")
    if not wrong and subject.table(store) != subject.expected_table(numbers):
        wrong.append("LOST: the table does not have what the threads put")
    store.close()
    return {"writes": len(numbers), "wrong": wrong}


def forks(root: str, kind: str) -> list[str]:
    """A process that has used a store forks; both processes work, with the handle they had and with a new one."""
    subject, wrong = SUBJECTS[kind], []
    store = subject.create(Path(root))
    other = subject.create(Path(root), "other")
    for number in (1, 2):
        subject.write(store, number)
        subject.write(other, number)
    store.commit()
    other.close()

    def in_child(name: str, act: Callable[[], None]) -> None:
        read, write_ = os.pipe()
        pid = os.fork()
        if pid == 0:
            said = "right"
            try:
                act()
            except StateStoreError as error:
                said = f"refused {error.code}"
            except BaseException as error:
                said = f"raw {type(error).__name__}: {str(error)[:150]}"
            os.write(write_, said.encode())
            os._exit(0)
        os.close(write_)
        ready = select.select([read], [], [], 15)[0]
        said = os.read(read, 1000).decode() if ready else "hangs"
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if not said.startswith(("right", "refused")):
            wrong.append(f"{name} in a forked child: {said or 'died'}")

    def inherited() -> None:
        subject.write(store, 5)

    def inherited_reads() -> None:
        found = subject.live(store)
        if found != subject.expected([1, 2]):
            raise WrongAnswer(str(found))

    def new() -> None:
        with statestore.connect(root).open_store("other") as mine:
            subject.write(mine, 6)
            mine.commit()

    def new_reader() -> None:
        with statestore.connect(root).open_store("s", read_only=True) as mine:
            found = subject.live(mine)
            if found != subject.expected([1, 2]):
                raise WrongAnswer(str(found))

    def close() -> None:
        store.close()

    in_child("reading with the inherited handle", inherited_reads)
    in_child("a reader of its own", new_reader)
    in_child("another store of its own", new)
    in_child("closing the inherited handle", close)
    try:
        subject.write(store, 9)
        if 9 not in subject.values(store):
            wrong.append("the parent does not find its own write")
        store.commit()
    except BaseException as error:
        wrong.append(f"the parent afterwards: {type(error).__name__}: {str(error)[:150]}")
    in_child("writing with the inherited handle", inherited)
    try:
        subject.write(store, 10)
        store.commit()
        rows = subject.values(store)
        if not {9, 10} <= rows:
            wrong.append(f"the parent has lost its writes: {rows}")
        store.close()
        with statestore.connect(root).open_store("s") as again:
            again.commit()
            rows = subject.values(again)
            if not {9, 10} <= rows or rows - {1, 2, 5, 9, 10}:
                wrong.append(f"after the forks the store has {rows}")
    except BaseException as error:
        wrong.append(f"the parent after a write of the child: {type(error).__name__}: {str(error)[:150]}")
    return wrong


def clocks(root: str, kind: str, seed: int, count: int) -> list[str]:
    """Jump the clock by up to ten years before each act; versions stay in order, and vacuum spares needed files."""
    faults, rng, subject, wrong = Faults(), random.Random(seed), SUBJECTS[kind], []
    numbers: list[int] = []
    store = subject.create(Path(root))
    for number in range(1, count + 1):
        faults.clock(rng.choice((0, 1, -1)) * rng.randrange(10 * 365 * 86_400))
        act = rng.random()
        subject.write(store, number)
        numbers.append(number)
        if act < 0.4:
            store.commit()
        elif act < 0.5:
            store.compact(full=True)
        elif act < 0.6:
            store.vacuum()
        elif act < 0.7:
            store.close()
            store = statestore.connect(root).open_store("s")
        elif act < 0.8:
            store.flush()
        if subject.live(store) != subject.expected(numbers):
            wrong.append(f"after {number} writes the live store has other rows")
            break
    store.commit()
    if not wrong and subject.table(store) != subject.expected_table(numbers):
        wrong.append("the table has other rows")
    times = [entry["timestamp"] for entry in store.versions().to_pylist()]
    if times != sorted(times):
        wrong.append("the times of commits go back")
    store.close()
    report = statestore.verify(root)[0]
    return wrong if report.ok else [*wrong, f"verify: {report.problems[0].message[:200]}"]

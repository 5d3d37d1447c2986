"""Writers, readers and upkeep on one store at the same time, each in a process of its own; some are killed, and their
clocks jump. See test_soak."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import statestore
from faults.library import Faults
from faults.subjects import SUBJECTS, WrongAnswer, is_delete
from faults.workload import OutsideLog
from statestore import StateStoreError

YEAR = 365 * 86_400
GONE = ("VERSION_NOT_FOUND", "TIME_NOT_KEPT")  # what vacuum(older_than=0) may do to others


def numbers_of(log: Path) -> tuple[list[int], list[int]]:
    """(acknowledged writes, writes that a kill or an error cut off), each in order."""
    acknowledged: list[int] = []
    doubtful: list[int] = []
    under_way: int | None = None
    for line in log.read_bytes().splitlines() if log.exists() else ():
        what, value = json.loads(line)
        if what == "begin":
            doubtful += [] if under_way is None else [under_way]
            under_way = value
        elif what == "done":
            acknowledged.append(value)
            under_way = None
        elif what == "refused":
            under_way = None
    return acknowledged, [*doubtful, *([] if under_way is None else [under_way])]


def write(root: str, kind: str, log: str, seed: int, first: int, seconds: float) -> int:
    """Write rows with numbers from ``first`` until the time is over; return their count. If another process holds the
    lock of a live store, try again."""
    faults, rng, subject, outside = Faults(), random.Random(seed), SUBJECTS[kind], OutsideLog(Path(log))
    acknowledged, doubtful = numbers_of(Path(log))
    number = max([first, *acknowledged, *doubtful])
    end, writes = time.monotonic() + seconds, 0
    catalog = statestore.connect(root)
    while time.monotonic() < end:
        faults.clock(rng.choice((0, 0, YEAR, -YEAR, 3600)))
        try:
            with catalog.open_store("s") as store:
                for act in rng.choices(
                    ("put", "put", "put", "commit", "flush", "compact", "vacuum"), k=rng.randint(3, 30)
                ):
                    if act == "put":
                        number += 2 if is_delete(number + 1) else 1  # an existing row is recognised by its value
                        outside.say("begin", number)
                        subject.write(store, number)
                        outside.say("done", number)
                        writes += 1
                    elif act == "commit":
                        store.commit()
                    elif act == "flush":
                        store.flush()
                    elif act == "compact":
                        store.compact(full=rng.random() < 0.3)
                    else:
                        store.vacuum(older_than=rng.choice((0, "7 days")))
                store.commit()
        except StateStoreError as error:
            if error.code in GONE:  # under a vacuum without a limit; what was put is acknowledged, or doubtful
                continue
            if error.code != "STORE_LOCKED":
                raise
            outside.say("refused", number)
            time.sleep(rng.uniform(0, 0.02))  # not for a result: only so that others get the lock
    return writes


def read(root: str, kind: str, seed: int, seconds: float) -> dict[str, Any]:
    """Read until the time is over; a version that is read twice must have the same rows."""
    faults, rng, subject = Faults(), random.Random(seed), SUBJECTS[kind]
    end, reads, refused = time.monotonic() + seconds, 0, 0
    seen: dict[int, str] = {}
    while time.monotonic() < end:
        faults.clock(rng.choice((0, YEAR, -YEAR)))
        try:
            with statestore.connect(root).open_store("s", read_only=True) as reader:
                for _ in range(rng.randint(1, 5)):
                    version = reader.refresh()
                    rows = repr(subject.table(reader, version))
                    if seen.setdefault(version, rows) != rows:
                        raise WrongAnswer(f"version {version} was {seen[version]:.200}, is {rows:.200}")
                    subject.values(reader)
                    reads += 1
            if rng.random() < 0.2 and not (report := statestore.verify(root)[0]).ok:
                raise WrongAnswer(f"verify: {report.problems[0].code} {report.problems[0].message[:150]}")
        except StateStoreError as error:
            if error.code not in GONE:
                raise
            refused += 1
    return {"reads": reads, "refused": refused}


def check(root: str, kind: str, logs: list[str]) -> list[str]:
    """Check that every acknowledged write is there, and no row that was never written."""
    subject = SUBJECTS[kind]
    acknowledged: set[int] = set()
    doubtful: set[int] = set()
    for log in logs:
        done, open_ = numbers_of(Path(log))
        acknowledged |= set(done)
        doubtful |= set(open_)
    with statestore.connect(root).open_store("s") as store:
        store.commit()
        live = subject.live(store)
        there = {row[1] for row in live}
        numbers = sorted(acknowledged | (doubtful & there))
        if live != subject.expected(numbers):
            lost = sorted(acknowledged - there)
            return [f"LOST {lost[:9]} ({len(lost)}), from nowhere {sorted(there - acknowledged - doubtful)[:9]}"]
        if subject.table(store) != subject.expected_table(numbers):
            return ["the table has other rows than the live store"]
        store.vacuum(older_than=0)
    report = statestore.verify(root)[0]
    return [] if report.ok and not report.unreferenced else [f"verify: {report.problems[:1]} {report.unreferenced[:2]}"]


def create(root: str, kind: str) -> None:
    SUBJECTS[kind].create(Path(root)).close()

"""A writer that records begun and acknowledged writes outside of its store, and the check against that record."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import statestore
from faults.library import CHANGING, Faults
from faults.subjects import SUBJECTS, Subject, WrongAnswer

ACTS = ("put", "put", "put", "put", "put_all", "write", "commit", "transaction", "flush", "compact", "vacuum", "reopen")


class OutsideLog:
    """Lines of JSON, each written with one call, in a file outside of the store."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def say(self, *what: Any) -> None:
        os.write(self._file, json.dumps(what).encode() + b"\n")

    @contextmanager
    def acknowledging(self, numbers: Sequence[int]) -> Iterator[None]:
        """Record the numbers as begun now, and as acknowledged at the end of the block."""
        self.say("begin", list(numbers))
        yield
        self.say("done", list(numbers))


def read_log(path: Path) -> tuple[list[int], list[int], int]:
    """(acknowledged numbers in order, those of the write under way, the greatest version that was acknowledged)."""
    acknowledged: list[int] = []
    begun: list[int] = []
    version = 0
    for line in path.read_bytes().splitlines() if path.exists() else ():
        what, value = json.loads(line)
        if what == "begin":
            begun = value
        elif what == "done":
            acknowledged += value
            begun = []
        elif what == "settled":
            acknowledged, begun = value, []
        elif what == "version":
            version = max(version, value)
    return acknowledged, begun, version


def write_until_killed(
    root: str, kind: str, log: str, seed: int, count: int, way: str = "never", at: int = 1
) -> dict[str, Any]:
    """Do ``count`` random acts on the store, which is created if absent, until killed at the ``at``-th call that
    changes the disk. Returns the number of these calls."""
    faults = Faults()
    faults.below(Path(root))
    rng, subject, outside = random.Random(seed), SUBJECTS[kind], OutsideLog(Path(log))
    acknowledged, begun, _ = read_log(Path(log))
    number = max([*acknowledged, *begun], default=0)
    catalog = statestore.connect(root)
    faults.arm(CHANGING, way, at)
    store = catalog.open_store("s") if "s" in catalog.stores() else subject.create(Path(root))
    for act in rng.choices(ACTS, k=count):
        if act == "put":
            number += 1
            with outside.acknowledging([number]):
                subject.write(store, number)
        elif act in ("put_all", "write"):
            numbers = range(number + 1, number + 5)
            number += 4
            with outside.acknowledging(numbers):
                if act == "put_all":
                    store.put_all(subject.bulk(numbers))
                else:
                    outside.say("version", store.write(subject.bulk(numbers)))
        elif act == "commit":
            outside.say("version", store.commit())
        elif act == "transaction":
            outside.say("version", store.commit(transaction=("app", number)))
        elif act == "reopen":
            store.close()
            store = catalog.open_store("s")
        elif act == "flush":
            store.flush()
        elif act == "compact":
            outside.say("version", store.compact(full=True))
        else:
            store.vacuum(older_than=0)
    store.close()
    faults.disarm()
    return {"calls": faults.count}


def check_after_kill(root: str, kind: str, log: str) -> list[str]:
    """The problems of the store that a killed writer left; a write under way may be there or not, as one."""
    subject = SUBJECTS[kind]
    acknowledged, begun, version = read_log(Path(log))
    if "s" not in statestore.connect(root).stores():
        return ["LOST: the store is not there"] if acknowledged or version else []
    try:
        with statestore.connect(root).open_store("s", read_only=True) as reader:
            subject.table(reader)
        with statestore.connect(root).open_store("s") as store:
            if store.version < version:
                raise WrongAnswer(f"LOST: version {store.version} of {version}")
            found = settled(subject, store, acknowledged, begun)
            OutsideLog(Path(log)).say("settled", found)
            store.commit()
            if subject.table(store) != subject.expected_table(found):
                raise WrongAnswer(f"the table has {subject.table(store)!r:.200}, live are {found}")
            store.vacuum(older_than=0)
        report = statestore.verify(root)[0]
        if not report.ok:
            raise WrongAnswer(f"verify: {report.problems[0].code} {report.problems[0].message[:150]}")
        if report.unreferenced:
            raise WrongAnswer(f"left after vacuum: {[name for name, _ in report.unreferenced][:3]}")
    except WrongAnswer as error:
        return [str(error)]
    except BaseException as error:
        return [f"{type(error).__name__}: {str(error)[:250]}"]
    return []


def settled(subject: Subject, store: Any, acknowledged: list[int], begun: list[int]) -> list[int]:
    """The writes that are there: all acknowledged ones, and all or none of those under way."""
    live = subject.live(store)
    for numbers in (acknowledged, [*acknowledged, *begun]):
        if live == subject.expected(numbers):
            return numbers
    missing = [row for row in subject.expected(acknowledged) if row not in live]
    more = [row for row in live if row not in subject.expected([*acknowledged, *begun])]
    raise WrongAnswer(f"LOST {missing!r:.150}, from nowhere {more!r:.150}")


# --- keyed ---


def keyed_until_killed(root: str, log: str, seed: int, count: int, way: str = "never", at: int = 1) -> dict[str, Any]:
    """Do ``count`` rounds of updates, snapshots, commits and discards; each value is the number of its round."""
    faults = Faults()
    faults.below(Path(root))
    rng, outside = random.Random(seed), OutsideLog(Path(log))
    acknowledged, begun, _ = read_log(Path(log))
    number = max([*acknowledged, *begun], default=0)
    catalog = statestore.connect(Path(root) / "warehouse")
    faults.arm(CHANGING, way, at)
    if "s" in catalog.stores():
        store = catalog.open_store("s")
    else:
        store = catalog.create_store("s", kind="keyed", key={"k": "string"}, key_groups=8)
    backend = store.backend(directory=Path(root) / "local")
    for _ in range(count):
        number += 1
        state = backend.value_state("v", "bigint")
        for key in range(10):
            backend.set_current_key(f"k{key}")
            state.update(number)
        with outside.acknowledging([number]):
            taken = backend.snapshot(rng.choice(("full", "incremental"))).result()
            version = store.commit([taken])
        outside.say("version", version)
        backend.notify_complete(version)
        kept = sorted(store.retained())
        act = rng.random()
        if act < 0.3 and len(kept) > 1:
            store.discard(kept[0])
        elif act < 0.5:
            store.vacuum(older_than=0)
        elif act < 0.6:
            backend.dispose()
            backend = store.backend(directory=Path(root) / "local")
    backend.dispose()
    store.close()
    faults.disarm()
    return {"calls": faults.count}


def check_keyed_after_kill(root: str, log: str) -> list[str]:
    """Check that the newest snapshot is the last acknowledged one, or the one under way, and that local files are
    removed."""
    acknowledged, begun, version = read_log(Path(log))
    warehouse = Path(root) / "warehouse"
    if not warehouse.is_dir() or "s" not in statestore.connect(warehouse).stores():
        return ["LOST: the store is not there"] if acknowledged else []
    try:
        with statestore.connect(warehouse).open_store("s") as store:
            kept = sorted(store.retained())
            if kept and max(kept) < version:
                raise WrongAnswer(f"LOST: version {version}, kept are {kept}")
            with store.backend(directory=Path(root) / "local") as backend:
                state = backend.value_state("v", "bigint")
                values: set[int | None] = set()
                for key in range(10):
                    backend.set_current_key(f"k{key}")
                    values.add(state.value())
            allowed: list[set[int | None]] = [{*acknowledged[-1:]} or {None}, {*begun}]
            if values not in allowed:
                raise WrongAnswer(f"restored {values}, acknowledged is {acknowledged[-1:]}, under way {begun}")
            OutsideLog(Path(log)).say("settled", [*acknowledged, *(begun if values == set(begun) else [])])
            store.vacuum(older_than=0)
        report = statestore.verify(warehouse)[0]
        if not report.ok or report.unreferenced:
            raise WrongAnswer(f"verify: {report.problems[:1]} left: {report.unreferenced[:2]}")
        left = [path.name for path in (Path(root) / "local").iterdir()] if (Path(root) / "local").exists() else []
        if left:
            raise WrongAnswer(f"local files are left: {left[:3]}")
    except WrongAnswer as error:
        return [str(error)]
    except BaseException as error:
        return [f"{type(error).__name__}: {str(error)[:250]}"]
    return []

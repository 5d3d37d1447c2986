"""Two processes on one store, of which one waits before a system call until the other is through.

Every act is right whatever the other did meanwhile: it returns the truth or an error of the tree, and exactly its
acknowledged writes are there. ``act`` runs in a child and returns acknowledged writes and reads; ``judge`` checks them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import statestore
from faults.library import DOING, Faults
from faults.subjects import SUBJECTS, Rows, Subject, WrongAnswer, rebuild_options
from statestore import CorruptError, StateStoreError

BASE = tuple(range(1, 11))
MINE = {"a": (100, 101, 102), "b": (200, 201, 202)}  # what the two processes write
CREATED = (300, 301)  # the rows of a store that was made in the place of another


@dataclass
class Act:
    """A finished act of a process. ``new``: it replaced the old store by another one."""

    acknowledged: list[int] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    read: list[Rows] = field(default_factory=list)
    new: bool = False


def _writes(root: Path, subject: Subject, who: str, done: Act) -> None:
    """Put and commit."""
    with statestore.connect(root).open_store("s", auto_compact=False) as store:
        for number in MINE[who]:
            done.pending = [number]
            subject.write(store, number)
            done.acknowledged.append(number)
            done.pending = []
        store.commit()


def _bulk(root: Path, subject: Subject, who: str, done: Act) -> None:
    with statestore.connect(root).open_store("s", auto_compact=False) as store:
        done.pending = list(MINE[who])
        store.write(subject.bulk(MINE[who]), transaction=(who, 1))
        done.acknowledged.extend(MINE[who])
        done.pending = []


def _compacts(root: Path, subject: Subject, who: str, done: Act) -> None:
    with statestore.connect(root).open_store("s", auto_compact=False) as store:
        store.compact(full=True)


def _expires(root: Path, subject: Subject, who: str, done: Act) -> None:
    with statestore.connect(root).open_store("s", auto_compact=False) as store:
        store.expire(before=0)


def _vacuums(root: Path, subject: Subject, who: str, done: Act) -> None:
    with statestore.connect(root).open_store("s", auto_compact=False) as store:
        store.vacuum(older_than=0)


def _vacuums_later(root: Path, subject: Subject, who: str, done: Act) -> None:
    """Vacuum with the default limit and a clock that is a month ahead."""
    Faults().clock(30 * 86_400)
    with statestore.connect(root).open_store("s", auto_compact=False) as store:
        store.vacuum()


def _drops(root: Path, subject: Subject, who: str, done: Act) -> None:
    catalog = statestore.connect(root)
    catalog.drop_store("s")
    with subject.create(root) as store:
        done.new = True
        for number in CREATED:
            subject.write(store, number)
        store.commit()


def _rebuilds(root: Path, subject: Subject, who: str, done: Act) -> None:
    statestore.connect(root).rebuild("s", key_groups=64, **rebuild_options(subject)).close()


def _reads(root: Path, subject: Subject, who: str, done: Act) -> None:
    with statestore.connect(root).open_store("s", read_only=True) as store:
        done.read.append(subject.table(store))
        done.read.append(subject.live(store))
        store.changes(start_version=store.versions()["version"][0].as_py()).read_all()


def _verifies(root: Path, subject: Subject, who: str, done: Act) -> None:
    for report in statestore.verify(root):
        if not report.ok:
            problem = report.problems[0]
            raise WrongAnswer(f"verify beside others: {problem.code} {problem.message[:160]}")


ACTS: dict[str, Callable[[Path, Subject, str, Act], None]] = {
    "write": _writes,
    "bulk write": _bulk,
    "compact": _compacts,
    "expire": _expires,
    "vacuum": _vacuums,
    "vacuum a month ahead": _vacuums_later,
    "drop and create": _drops,
    "rebuild": _rebuilds,
    "read": _reads,
    "verify": _verifies,
}


def make_template(root: str, kind: str) -> None:
    with SUBJECTS[kind].create(Path(root)) as store:
        for number in BASE:
            SUBJECTS[kind].write(store, number)
            if number % 3 == 0:
                store.commit()
        store.compact(full=True)
        store.commit()


def copy(template: str, root: str) -> None:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template, root)


def act(root: str, kind: str, name: str, who: str, at: int, gate: str) -> dict[str, Any]:
    """Do the act; wait at the ``at``-th call (0: never) at the gate until the other process is through."""
    faults, done, error, code = Faults(), Act(), None, ""
    faults.below(Path(root))
    faults.arm(DOING, "pause" if at else "never", max(at, 1), gate=gate)
    try:
        ACTS[name](Path(root), SUBJECTS[kind], who, done)
    except StateStoreError as caught:
        error, code = f"{type(caught).__name__}: {str(caught)[:200]}", caught.code
        if isinstance(caught, CorruptError):
            error = f"WRONG: an undamaged store is called damaged: {error}"
    except BaseException as caught:
        error = f"WRONG: raw {type(caught).__name__}: {str(caught)[:200]}"
    faults.disarm()
    return {
        "acknowledged": done.acknowledged,
        "pending": done.pending,
        "read": [[list(row) for row in rows] for rows in done.read],
        "new": done.new,
        "error": error,
        "code": code,
        "calls": faults.count,
    }


def judge(root: str, kind: str, a: dict[str, Any], b: dict[str, Any], acts: list[str]) -> list[str]:
    """The problems found after both processes are through."""
    subject, wrong = SUBJECTS[kind], []
    for name, one in zip(acts, (a, b), strict=True):
        if one["error"] and one["error"].startswith("WRONG"):
            wrong.append(f"{name}: {one['error']}")
    try:
        wrong += _judge_rows(Path(root), subject, a, b, acts)
    except BaseException as error:
        wrong.append(f"afterwards: {type(error).__name__}: {str(error)[:250]}")
    return wrong


def _allowed(subject: Subject, a: dict[str, Any], b: dict[str, Any]) -> list[list[int]]:
    """Lists of writes of which the store may hold one: all acknowledged writes, and of acts that raised all or
    nothing."""
    orders = ((a, b), (b, a))
    found = []
    for first, second in orders:
        for with_first in (True, False):
            for with_second in (True, False):
                numbers = [*first["acknowledged"], *(first["pending"] if with_first else [])]
                numbers += [*second["acknowledged"], *(second["pending"] if with_second else [])]
                found.append([*BASE, *numbers])
    return found


def _judge_rows(root: Path, subject: Subject, a: dict[str, Any], b: dict[str, Any], acts: list[str]) -> list[str]:
    created = [one for one in (a, b) if one["new"]]
    catalog = statestore.connect(root)
    if "s" not in catalog.stores():
        return [] if "drop and create" in acts and not created else ["LOST: the store is not there"]
    allowed = _allowed(subject, a, b)
    if "drop and create" in acts:  # what others wrote went to the old store or to the new one
        theirs = [n for one in (a, b) for n in (*one["acknowledged"], *one["pending"])]
        parts = [theirs[:end] for end in range(len(theirs) + 1)] + [theirs[start:] for start in range(len(theirs))]
        allowed += [[*CREATED, *part] for part in parts] + [[*part, *CREATED] for part in parts] + parts
    with catalog.open_store("s", auto_compact=False) as store:
        store.commit()
        live = subject.live(store)
        fitting = [numbers for numbers in allowed if subject.expected(numbers) == live]
        if not fitting:
            return [f"LOST or from nowhere: {live!r:.300} (a {a['acknowledged']}, b {b['acknowledged']})"]
        if not any(subject.table(store) == subject.expected_table(numbers) for numbers in fitting):
            return [f"the table has other rows: {subject.table(store)!r:.300}"]
        store.vacuum(older_than=0)
    wrong = []
    reports = statestore.verify(root)
    if not reports[0].ok:
        wrong.append(f"verify: {reports[0].problems[0].code} {reports[0].problems[0].message[:160]}")
    if reports[0].unreferenced:
        wrong.append(f"left after vacuum: {[name for name, _ in reports[0].unreferenced][:3]}")
    for one in (a, b):
        for rows in one["read"]:
            wrong += _judge_read(subject, [tuple(row) for row in rows], a, b)
    return wrong


def _judge_read(subject: Subject, rows: Rows, a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """A reader sees the old store, with some commits of the other, or the new store."""
    for start in (list(BASE), []):
        for numbers in ([*start, *MINE["a"]], [*start, *MINE["b"]], list(CREATED)):
            for end in range(len(numbers) + 1):
                if subject.expected(numbers[:end]) == rows:
                    return []
    return [f"a reader saw rows that never were together: {rows!r:.300}"]

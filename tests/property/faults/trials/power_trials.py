"""A workload whose calls are recorded, and the check of a disk that a power cut may have left of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import statestore
from faults.library import Faults
from faults.subjects import SUBJECTS, Subject, WrongAnswer, rebuild_options

REBUILT_GROUPS = 64
BOOT_ID = "/proc/sys/kernel/random/boot_id"


def record(kind: str, root: str, trace: str, big: int) -> None:
    """Do the workload in ``root``/warehouse; ``big`` writes before its second commit. Ends without closing."""
    faults = Faults()
    faults.below(Path(root))
    faults.trace(Path(trace))
    if kind == "keyed":
        _keyed_workload(faults, Path(root))
    else:
        _workload(faults, SUBJECTS[kind], Path(root) / "warehouse", big)
    os._exit(0)


class _Writer:
    """Numbered writes, each marked when it is acknowledged."""

    def __init__(self, faults: Faults, subject: Subject, warehouse: Path) -> None:
        self._faults = faults
        self.subject = subject
        self.number = 0
        self._mark("begin")
        self.store = subject.create(warehouse)
        self._mark("created")

    def _mark(self, *what: Any) -> None:
        self._faults.mark(json.dumps(what))

    def put(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            self.subject.write(self.store, self.number)
            self._mark("put", self.number)

    def done(self, what: str, version: int | None = None) -> None:
        self._mark(what, self.number, version)


def _workload(faults: Faults, subject: Subject, warehouse: Path, big: int) -> None:
    writer = _Writer(faults, subject, warehouse)
    store = writer.store
    writer.put(3)
    writer.done("commit", store.commit())
    writer.put(2)
    store.flush()
    writer.done("flush")
    writer.put(big)
    writer.done("commit", store.commit())
    writer.done("compact", store.compact(full=True))
    writer.put(2)
    writer.done("commit", store.commit())
    writer.put(2)
    store.close()
    writer.done("flush")
    writer.store = store = statestore.connect(warehouse).open_store("s")
    writer.put(1)
    writer.done("commit", store.commit())
    writer.put(1)
    store.flush()
    writer.done("flush")
    store.vacuum(older_than=0)
    writer.done("commit", store.commit())
    writer.put(1)
    _replace_others(faults, subject, warehouse)


def _replace_others(faults: Faults, subject: Subject, warehouse: Path) -> None:
    """Drop one store and rebuild another."""
    catalog = statestore.connect(warehouse)
    for name in ("dropped", "rebuilt"):
        with subject.create(warehouse, name) as store:
            for number in (1, 2):
                subject.write(store, number)
            store.commit()
        faults.mark(json.dumps(["made", name]))
    catalog.drop_store("dropped")
    faults.mark(json.dumps(["gone", "dropped"]))
    catalog.rebuild("rebuilt", key_groups=REBUILT_GROUPS, **rebuild_options(subject)).close()
    faults.mark(json.dumps(["changed", "rebuilt"]))


def _keyed_workload(faults: Faults, root: Path) -> None:
    def mark(*what: Any) -> None:
        faults.mark(json.dumps(what))

    mark("begin")
    store = statestore.connect(root / "warehouse").create_store("s", kind="keyed", key={"k": "string"}, key_groups=8)
    mark("created")
    backend = store.backend(directory=root / "local")
    state = backend.value_state("v", "bigint")
    for round_ in range(1, 5):
        for number in range(20):
            backend.set_current_key(f"k{number}")
            state.update(round_ * 100 + number)
        part = backend.snapshot("incremental" if round_ % 2 else "full").result()
        version = store.commit([part])
        mark("commit", round_, version)
        backend.notify_complete(version)
        if round_ == 3:
            store.discard(1)
            mark("discard", round_, None)


def check(kind: str, folder: str, marks: list[list[Any]], other_boot: str) -> list[str]:
    """The problems of this disk, on which ``marks`` were acknowledged."""
    Faults().swap(BOOT_ID, Path(other_boot))  # the machine was started again
    wrong: list[str] = []

    def step(name: str, act: Callable[[], None]) -> bool:
        try:
            act()
        except WrongAnswer as caught:
            wrong.append(f"{name}: {caught}")
        except BaseException as caught:
            wrong.append(f"{name}: {type(caught).__name__}: {str(caught)[:250]}")
        return not wrong

    warehouse = Path(folder) / "warehouse"
    created = any(mark[0] == "created" for mark in marks)
    is_there = warehouse.is_dir() and "s" in statestore.connect(warehouse).stores()
    if not is_there:
        if created:
            return ["LOST: the store is not there"]
        step("creating it again", lambda: _create(kind, warehouse))
        return wrong
    checks: Callable[[], None]
    if kind == "keyed":
        checks = lambda: _check_keyed(warehouse, Path(folder) / "local-2", marks)  # noqa: E731
    else:
        checks = lambda: _check_store(SUBJECTS[kind], warehouse, marks)  # noqa: E731
    if step("opening", checks):
        step("verify", lambda: _check_files(warehouse))
    if kind != "keyed":
        step("stores that were replaced", lambda: _check_others(SUBJECTS[kind], warehouse, marks))
    return wrong


def _create(kind: str, warehouse: Path) -> None:
    if kind == "keyed":
        statestore.connect(warehouse).create_store("s", kind="keyed", key={"k": "string"}).close()
    else:
        SUBJECTS[kind].create(warehouse).close()


def _check_store(subject: Subject, warehouse: Path, marks: list[list[Any]]) -> None:
    durable = max((mark[1] for mark in marks if mark[0] in ("commit", "flush")), default=0)
    begun = max((mark[1] for mark in marks if mark[0] == "put"), default=0) + 1
    versions = {mark[2]: mark[1] for mark in marks if mark[0] in ("commit", "compact")}
    with statestore.connect(warehouse).open_store("s") as store:
        if store.version < max(versions, default=0):
            raise WrongAnswer(f"LOST: version {store.version} of {max(versions)}")
        live = subject.live(store)
        newest = max((row[1] for row in live), default=0)  # the value of a row is the number of its write
        ends = [end for end in (newest, newest + 1) if subject.expected(range(1, end + 1)) == live]
        if not ends:
            raise WrongAnswer(f"rows that no prefix of the writes has: {live!r:.300}")
        if min(ends) > begun:
            raise WrongAnswer(f"{min(ends)} writes of {begun}: rows from nowhere")
        if max(ends) < durable:
            raise WrongAnswer(f"LOST: {max(ends)} of {durable} durable writes")
        store.commit()
        if not any(subject.table(store) == subject.expected_table(range(1, end + 1)) for end in ends):
            raise WrongAnswer(f"the table has other rows than the live store: {subject.table(store)!r:.300}")
        for version, count in versions.items():
            if subject.kind != "key_value" and subject.table(store, version) != subject.expected_table(
                range(1, count + 1)
            ):
                raise WrongAnswer(
                    f"version {version} is not what was committed: {subject.table(store, version)!r:.200}"
                )
        subject.write(store, 1000)
        store.commit()
        store.vacuum(older_than=0)


def _check_keyed(warehouse: Path, local: Path, marks: list[list[Any]]) -> None:
    with statestore.connect(warehouse).open_store("s") as store:
        kept = list(store.retained())
        discarded = any(mark[0] == "discard" for mark in marks)
        rounds = {mark[2]: mark[1] for mark in marks if mark[0] == "commit"}
        newest = max(rounds, default=0)
        if newest > max(kept, default=0) and not (discarded and newest == 1):
            raise WrongAnswer(f"LOST: version {newest}, kept are {kept}")
        for version in kept:
            with store.backend(version=version, directory=local) as backend:
                state = backend.value_state("v", "bigint")
                for number in range(20):
                    backend.set_current_key(f"k{number}")
                    value = state.value()
                    if version in rounds and value != rounds[version] * 100 + number:
                        raise WrongAnswer(f"version {version} has {value} for k{number}")
        with store.backend(directory=local) as backend:
            state = backend.value_state("v", "bigint")
            backend.set_current_key("after")
            state.update(1)
            store.commit([backend.snapshot("incremental").result()])
        store.vacuum(older_than=0)


def _check_others(subject: Subject, warehouse: Path, marks: list[list[Any]]) -> None:
    """Check that a dropped store does not reappear, and that a rebuilt one is there in its old or its new form."""
    catalog = statestore.connect(warehouse)
    if ["gone", "dropped"] in marks and "dropped" in catalog.stores():
        raise WrongAnswer("a dropped store is there again")
    if ["made", "rebuilt"] not in marks:
        return
    with catalog.open_store("rebuilt") as store:
        if subject.values(store) != {1, 2}:
            raise WrongAnswer(f"LOST: a store that was being rebuilt has {subject.values(store)}")
        if ["changed", "rebuilt"] in marks and store.spec.key_groups != REBUILT_GROUPS:
            raise WrongAnswer("LOST: a rebuilt store is the old one again")


def _check_files(warehouse: Path) -> None:
    for report in statestore.verify(warehouse, "s"):
        if not report.ok:
            raise WrongAnswer(f"{report.problems[0].code} {report.problems[0].message[:160]}")
        if report.unreferenced:
            raise WrongAnswer(f"left after vacuum: {[name for name, _ in report.unreferenced][:3]}")

"""Random histories of two machines that put, commit, close, are killed, and take a store from each other, against a
plain model: every committed write is there once, every other one is where the errors say."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from support.parameters import mostly_slow
from support.stores.live_places import machines

from statestore.formats.errors import ConflictError

STEPS, CASES = 60, 60
COLUMNS: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}

Writes = list[tuple[str, int]]


@dataclass
class Machine:
    """State of one machine: the writes that it acknowledged and has not committed, and those that were overtaken."""

    waiting: Writes = field(default_factory=list)
    aside: Writes = field(default_factory=list)
    handle: Any = None
    has_lock: bool = False  # the handle owns, or believes that it owns, the store


@dataclass
class Model:
    """The store as it has to be: ``owner`` is the machine of the newest owner, None when that one closed."""

    committed: dict[str, int] = field(default_factory=dict)
    commits: int = 0
    owner: int | None = None
    newest: int | None = None  # the machine that owned the store last, closed or not
    machines: tuple[Machine, Machine] = field(default_factory=lambda: (Machine(), Machine()))

    def may_own(self, number: int) -> bool:
        return self.owner in (None, number)

    def own(self, number: int) -> None:
        """A machine without the lock becomes the owner."""
        machine = self.machines[number]
        if self.newest not in (None, number):
            machine.aside += machine.waiting
            machine.waiting = []
        self.owner = self.newest = number
        machine.has_lock = True

    def is_overtaken(self, number: int) -> bool:
        return self.machines[number].has_lock and self.owner != number


class History:
    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        *self.catalogs, reader = machines(MemoryStore(), folder, 3)
        self.model = Model()
        self.catalogs[0].create_store("s", "key_value", **COLUMNS).close()
        self.reader = reader.open_store("s", read_only=True)
        self.values = 0

    def run(self) -> None:
        for _ in range(STEPS):
            number = self.random.randrange(2)
            verbs = ["put"] * 6 + ["commit"] * 3 + ["kill", "close", "take_over", "take_back", "flush"]
            getattr(self, self.random.choice(verbs))(number, self.model.machines[number])
            assert self.seen() == self.model.committed
        for number, machine in enumerate(self.model.machines):
            self.kill(number, machine)
        self.settle()

    def settle(self) -> None:
        """In the end, each machine gets the store once, and finds exactly what the model says it has left."""
        for number, machine in enumerate(self.model.machines):
            self.take_over(number, machine)
            self.take_back(number, machine)
            self.commit(number, machine)
            self.close(number, machine)
        assert not any(machine.waiting or machine.aside for machine in self.model.machines)
        assert self.seen() == self.model.committed
        log_state = self.reader.table.files().log.newest()
        operations = [each for each in log_state.versions.operation if each not in ("compact", "create")]
        assert len(operations) == self.model.commits
        assert int(log_state.versions.rows.sum()) == self.values  # each acknowledged write was committed once
        assert self.catalogs[0].verify("s").ok

    def seen(self) -> dict[str, int]:
        self.reader.refresh()
        table = self.reader.scan(columns=["k", "v"]).read_all()
        return dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))

    def handle(self, number: int, machine: Machine) -> Any:
        if machine.handle is None:
            machine.handle = self.catalogs[number].open_store("s", auto_compact=False)
        return machine.handle

    def put(self, number: int, machine: Machine) -> None:
        handle = self.handle(number, machine)
        self.values += 1
        write = f"k{self.values}", self.values
        if machine.has_lock or self.model.may_own(number):
            if not machine.has_lock:
                self.model.own(number)
            handle.put(*write)
            machine.waiting.append(write)
            assert handle.get(write[0]) == write[1]
        else:
            with pytest.raises(ConflictError, match="STORE_LOCKED"):
                handle.put(*write)
            self.values -= 1

    def commit(self, number: int, machine: Machine) -> None:
        handle = self.handle(number, machine)
        if self.model.is_overtaken(number) or not (machine.has_lock or self.model.may_own(number)):
            with pytest.raises(ConflictError, match="STORE_LOCKED") as raised:
                handle.commit()
            assert ("changelog" in raised.value.message) == bool(machine.waiting or machine.aside)
            self.kill(number, machine)
            return
        if not machine.has_lock:
            self.model.own(number)
        before = handle.version
        version = handle.commit()
        assert (version > before) or not machine.waiting
        self.model.commits += bool(machine.waiting)
        self.model.committed |= dict(machine.waiting)
        machine.waiting = []

    def flush(self, number: int, machine: Machine) -> None:
        if machine.has_lock:
            self.handle(number, machine).flush()

    def kill(self, number: int, machine: Machine) -> None:
        """The process ends: its locks are free, and its files are as they were."""
        if machine.handle is not None:
            machine.handle._machine.forget()
            machine.handle._release()
        machine.handle, machine.has_lock = None, False

    def close(self, number: int, machine: Machine) -> None:
        if machine.handle is not None:
            machine.handle.close()
            if machine.has_lock and self.model.owner == number and not machine.waiting:
                self.model.owner = None
        machine.handle, machine.has_lock = None, False

    def take_over(self, number: int, machine: Machine) -> None:
        self.kill(number, machine)
        machine.handle = self.catalogs[number].open_store("s", auto_compact=False, takeover=True)
        self.model.own(number)

    def take_back(self, number: int, machine: Machine) -> None:
        if machine.has_lock and not self.model.is_overtaken(number):
            assert self.handle(number, machine).take_back() == len(machine.aside)
            machine.waiting, machine.aside = machine.aside + machine.waiting, []


@pytest.mark.quick("0")
@pytest.mark.parametrize("seed", mostly_slow(range(CASES), range(6)))
def test_each_committed_write_is_there_once_and_no_other(tmp_path: Path, seed: int) -> None:
    History(tmp_path, seed).run()

"""Live stores whose commits are in an object store, as two machines use them: one writes at a time, nothing committed
is lost or doubled, and what is lost with a machine is what it had not committed.

A machine is a local directory. A process that was killed is a handle that was dropped: its lock is free, its files are
as they were, and it recorded nothing.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from support.parameters import mostly_slow
from support.stores.live_kinds import COLUMNS, WITH_VERSIONED, create, put
from support.stores.live_places import kept_of, machines

import statestore
from statestore.catalog.commits import store_owners
from statestore.catalog.commits.store_owners import newest_record
from statestore.catalog.describe.store_summary import summarize
from statestore.catalog.log.storage import Guard, UnsettledError
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, ConflictError, CorruptError, InvalidInputError, NotFoundError

DAY = 86_400_000
Machines = tuple[statestore.Catalog, statestore.Catalog]


@pytest.fixture
def both(tmp_path: Path) -> Machines:
    first, second = machines(MemoryStore(), tmp_path)
    return first, second


def rows(store: Any) -> dict[str, int]:
    """The rows of the newest version."""
    store.refresh()
    table = store.scan(columns=["k", "v"]).read_all()
    assert len(table) == len(set(table["k"].to_pylist()))
    return dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))


def killed(store: Any) -> None:
    """End the process of a handle, as far as its files and locks are concerned."""
    store._machine.forget()
    store._release()


@pytest.mark.quick("key_value", "versioned")
@pytest.mark.parametrize("kind", WITH_VERSIONED)
def test_a_machine_that_closed_the_store_leaves_it_to_the_next(both: Machines, kind: str) -> None:
    with create(both[0], kind) as store:
        put(store, "a", 1)
        store.commit()
    with both[1].open_store("s") as other:
        put(other, "b", 2)
        assert rows(other) == {"a": 1}
        other.commit()
    with both[0].open_store("s") as store:
        put(store, "c", 3)
        store.commit()
        assert rows(store) == {"a": 1, "b": 2, "c": 3}
        assert not [each for each in store._log_state.versions.transaction if each]  # no fence was needed
    assert both[0].verify("s").ok and both[0].verify("s").unreferenced == ()


@pytest.mark.quick("versioned", "join_window")
@pytest.mark.parametrize("kind", WITH_VERSIONED)
def test_a_killed_owner_loses_nothing_on_its_machine(both: Machines, kind: str) -> None:
    store = create(both[0], kind)
    put(store, "a", 1)
    store.commit()
    put(store, "b", 2)
    killed(store)
    with both[0].open_store("s") as again:
        again.commit()
        assert rows(again) == {"a": 1, "b": 2}


@pytest.mark.quick("key_value", "window")
@pytest.mark.parametrize("kind", WITH_VERSIONED)
def test_another_machine_is_refused_until_it_takes_over(both: Machines, kind: str) -> None:
    store = create(both[0], kind)
    put(store, "a", 1)
    store.commit()
    put(store, "b", 2)
    killed(store)
    other = both[1].open_store("s")
    with pytest.raises(ConflictError, match=r"STORE_LOCKED.*process \d+ of .*since.*only there.*takeover=True"):
        put(other, "c", 3)
    assert rows(other) == {"a": 1}
    other.close()
    with both[1].open_store("s", takeover=True) as other:
        assert other.commit() == other.version  # nothing waits here
        put(other, "c", 3)
        other.commit()
        assert rows(other) == {"a": 1, "c": 3}


@pytest.mark.quick("session", "versioned")
@pytest.mark.parametrize("kind", WITH_VERSIONED)
def test_an_owner_that_was_overtaken_publishes_nothing_and_names_its_writes(both: Machines, kind: str) -> None:
    store = create(both[0], kind)
    put(store, "a", 1)
    store.commit()
    put(store, "b", 2)
    with both[1].open_store("s", takeover=True) as other:
        put(other, "z", 10)
        other.commit()
        (changelog,) = (kept_of(both[0]) / "changelog").iterdir()
        for _ in range(2):
            with pytest.raises(ConflictError, match=r"STORE_LOCKED.*taken over") as raised:
                store.commit()
            assert str(changelog) in raised.value.message
        with pytest.raises(ConflictError, match=r"STORE_LOCKED.*taken over"):
            put(store, "d", 4)
        with pytest.raises(ConflictError, match="STORE_LOCKED"):
            store.write([])
        assert rows(store) == {"a": 1, "z": 10}
        store.close()
        with pytest.raises(ConflictError, match=r"STORE_LOCKED.*changelog"):
            both[0].open_store("s").commit()
        assert changelog.exists()
    with both[0].open_store("s") as again:
        again.commit()
        assert rows(again) == {"a": 1, "z": 10}
        assert not changelog.exists() and "take_back" in "".join(both[0].verify("s").notes)
        assert (again.take_back(), again.take_back()) == (1, 0)
        again.commit()
        assert rows(again) == {"a": 1, "b": 2, "z": 10}
    assert both[0].verify("s").ok


def before_put(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Do something once, just before the first object whose name contains ``name`` is created."""
    create_object, pending = ObjectStorage.create, [act]

    def creating(self: ObjectStorage, target: str, data: Any, guard: Guard | None = None) -> None:
        if name in target and pending:
            pending.pop()()
        create_object(self, target, data, guard)

    monkeypatch.setattr(ObjectStorage, "create", creating)


def test_a_commit_before_the_fence_is_seen_by_the_new_owner(both: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    store = create(both[0])
    store.put("a", 1)
    before_put(monkeypatch, "log/", lambda: None if store.commit() == 1 else pytest.fail())
    with both[1].open_store("s", takeover=True) as other:
        assert (other.get("a"), other.version) == ("a" and 1, 2)
        with pytest.raises(ConflictError, match=r"STORE_LOCKED.*no acknowledged write waited"):
            store.commit()
    store.close()


def test_a_commit_after_the_fence_is_refused(both: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old owner has read the log, and is about to publish when the other machine takes the store over."""
    store = create(both[0])
    store.put("a", 1)
    taken: list[Any] = []
    before_put(monkeypatch, "log/", lambda: taken.append(both[1].open_store("s", takeover=True)))
    with pytest.raises(ConflictError, match=r"STORE_LOCKED.*taken over"):
        store.commit()
    taken[0].put("b", 2)
    taken[0].commit()
    assert rows(taken[0]) == {"b": 2}
    taken[0].close()
    store.close()


@pytest.mark.parametrize("event", ["owners/", "log/"])
def test_of_two_machines_that_take_over_at_once_one_is_the_owner(
    tmp_path: Path, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = machines(MemoryStore(), tmp_path, 3)
    lost = create(first)
    lost.put("a", 1)
    killed(lost)
    taken: list[Any] = []
    before_put(monkeypatch, event, lambda: taken.append(third.open_store("s", takeover=True)))
    try:
        late = second.open_store("s", takeover=True)
    except ConflictError as error:
        assert error.code == "STORE_LOCKED"
        owner = taken[0]
    else:
        owner = late
        with pytest.raises(ConflictError, match="STORE_LOCKED"):
            taken[0].commit()
    owner.put("b", 2)
    owner.commit()
    assert rows(owner) == {"b": 2}


def test_a_lost_answer_of_a_commit_is_settled_before_the_next(both: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """The object store carries a put out after its answer was given up, when the handle already commits again."""
    store = create(both[0])
    store.put("a", 1)
    create_object = ObjectStorage.create
    late: list[Callable[[], None]] = []

    def losing(self: ObjectStorage, name: str, data: Any, guard: Guard | None = None) -> None:
        if name.startswith("log/") and not late:
            late.append(lambda: create_object(self, name, data))
            raise UnsettledError(ErrorCode.REQUEST_FAILED, "no answer; the object may yet appear")
        if name.startswith("log/") and late[0] is not None:
            late[0]()
            late[0] = lambda: None
        create_object(self, name, data, guard)

    monkeypatch.setattr(ObjectStorage, "create", losing)
    with pytest.raises(CommitUnknownError):
        store.commit()
    store.put("b", 2)
    store.commit()
    changes = store.changes(0).read_all()
    assert sorted(zip(changes["k"].to_pylist(), changes["_change_type"].to_pylist(), strict=True)) == [
        ("a", "insert"),
        ("b", "insert"),
    ]
    store.close()


def test_closing_with_writes_that_wait_keeps_the_store_here(both: Machines) -> None:
    with create(both[0]) as store:
        store.put("a", 1)
    with pytest.raises(ConflictError, match=r"STORE_LOCKED.*was closed by.*not committed"):
        both[1].open_store("s").put("b", 2)
    with both[0].open_store("s") as store:
        assert store.get("a") == 1
        store.commit()
    with both[1].open_store("s") as other:
        assert other.get("a") == 1
        other.put("b", 2)
        other.commit()


def test_readers_on_another_machine_need_no_owner(both: Machines) -> None:
    store = create(both[0])
    store.put("a", 1)
    store.commit()
    with both[1].open_store("s", read_only=True) as reader, both[1].open_store("s") as follower:
        assert (reader.get("a"), follower.get("a")) == (1, 1)
        store.put("a", 2)
        assert (reader.get("a"), follower.get("a")) == (1, 1)
        store.commit()
        assert (reader.get("a"), follower.get("a")) == (2, 2)
    store.close()
    assert not (kept_of(both[1]) / "live").exists()


def test_a_restart_uses_the_tier_that_is_there(both: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fence is no reason to make the tier anew."""
    store = create(both[0])
    store.put("a", 1)
    store.flush()
    killed(store)
    monkeypatch.setattr("statestore.catalog.stores.live.live_recovery._rebuild", lambda *_: pytest.fail("rebuilt"))
    with both[0].open_store("s") as again:
        assert again.get("a") == 1
        assert again.version == 1


def test_a_lost_local_directory_is_a_lost_machine(both: Machines) -> None:
    with create(both[0]) as store:
        store.put("a", 1)
        store.commit()
        store.put("b", 2)
    shutil.rmtree(kept_of(both[0]))
    with pytest.raises(ConflictError, match="STORE_LOCKED"):
        both[0].open_store("s").put("b", 2)
    with both[0].open_store("s", takeover=True) as store:
        assert (store.get("a"), store.get("b")) == (1, None)


def test_takeover_is_for_live_stores_in_object_stores(both: Machines, tmp_path: Path) -> None:
    both[0].create_store("plain", **COLUMNS).close()
    with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*takeover"):
        both[0].open_store("plain", takeover=True)
    local = statestore.connect(tmp_path / "w")
    create(local).close()
    with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*takeover"):
        local.open_store("s", takeover=True)


def test_dropping_waits_for_the_owner_and_cleans_up(both: Machines) -> None:
    with create(both[0]) as store:
        store.put("a", 1)
        store.commit()
        with pytest.raises(ConflictError, match="STORE_LOCKED"):
            both[0].drop_store("s")
        with pytest.raises(ConflictError, match=r"STORE_LOCKED.*takeover"):
            both[1].drop_store("s")
        store.put("b", 2)
    kept = kept_of(both[0])
    assert list((kept / "changelog").iterdir())
    both[0].drop_store("s")
    assert not (kept / "live").exists() and not list((kept / "changelog").iterdir())
    with pytest.raises(NotFoundError, match="STORE_NOT_FOUND"):
        both[1].open_store("s")


def test_a_changelog_of_another_store_survives_a_drop(both: Machines) -> None:
    old = create(both[0])
    old.put("a", 1)
    killed(old)
    both[1].open_store("s", takeover=True).close()
    both[1].drop_store("s")
    (left,) = ((both[0].object_storage("s").local or Path()) / "changelog").iterdir()
    with create(both[0]) as new:
        assert new.get("a") is None
        new.put("b", 2)
        new.commit()
    both[0].drop_store("s")
    assert left.exists()


def test_old_records_of_owners_go(both: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_owners, "KEPT_US", -1)
    create(both[0]).close()
    for catalog in (*both, *both):
        with catalog.open_store("s") as store:
            store.put("a", 1)
            store.commit()
    storage = both[0].locate("s")[0]
    record = newest_record(storage)
    assert record is not None and (record.number, record.event) == (8, "closed")
    assert len(storage.list("owners/")) == 2


def test_the_summary_counts_what_this_machine_keeps(both: Machines) -> None:
    with create(both[0]) as store:
        store.put("a", 1)
        store.commit()
        store.put("b", 2)
    here, there = (summarize(*catalog.locate("s")) for catalog in both)
    assert (here.uncommitted, there.uncommitted, there.cache_bytes) == (1, 0, 0)
    assert here.cache_bytes == both[0].verify("s").cache_bytes and (here.cache_bytes or 0) > 0


def test_a_damaged_record_is_that_of_an_owner_that_has_not_closed(both: Machines) -> None:
    create(both[0]).close()
    storage = both[0].locate("s")[0]
    storage.create("owners/00000000000000000001.json", b"{}")
    with pytest.raises(ConflictError, match="STORE_LOCKED"):
        both[0].open_store("s").put("a", 1)
    with both[0].open_store("s", takeover=True) as store:
        store.put("a", 1)
        assert store.commit() == 2


def test_a_missing_changelog_is_noticed(both: Machines) -> None:
    with create(both[0]) as store:
        store.put("a", 1)
        store.flush()
    (changelog,) = (kept_of(both[0]) / "changelog").iterdir()
    changelog.unlink()
    with pytest.raises(CorruptError, match=r"CHANGELOG_CORRUPT.*it is missing"):
        both[0].open_store("s").get("a")
    assert [problem.code for problem in both[0].verify("s").problems] == ["CHANGELOG_CORRUPT"]
    assert both[1].verify("s").ok  # which keeps nothing of the store


def test_vacuum_removes_the_changelogs_of_dropped_stores(both: Machines) -> None:
    old = create(both[0])
    old.put("a", 1)
    killed(old)
    both[1].open_store("s", takeover=True).close()
    both[1].drop_store("s")
    with create(both[0]) as new:
        new.put("b", 2)
        assert len(list((kept_of(both[0]) / "changelog").iterdir())) == 2
        assert new.vacuum(older_than=DAY) == []
        for path in (kept_of(both[0]) / "changelog").iterdir():
            os.utime(path, (1, 1))
        assert [file.name.partition("/")[0] for file in new.vacuum(older_than=DAY)] == ["changelog"]
        new.commit()
        assert rows(new) == {"b": 2}


# Random histories of two machines that put, commit, close, are killed, and take a store from each other, against a
# plain model: every committed write is there once, every other one is where the errors say.

STEPS, CASES = 60, 60

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

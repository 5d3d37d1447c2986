"""Snapshots of keyed backends: what is in them, which files they share and leave, and what restores from them."""

from __future__ import annotations

import gc
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keyed_backends import keyed_store, local, refused
from keyed_model import NAMESPACES, USER_KEYS, Content, Tasks, travelled

import statestore
from statestore import StateStoreError
from statestore.catalog.stores.keyed import keyed_store as keyed_store_module
from statestore.catalog.stores.keyed import local_directory, shared_log, snapshot_log, stored_files, taking
from statestore.catalog.stores.keyed.backend import KeyedBackend
from statestore.catalog.stores.keyed.keyed_store import KeyedStore
from statestore.catalog.stores.keyed.snapshot_handle import SnapshotKind
from statestore.catalog.stores.keyed.snapshot_log import SnapshotLog

KINDS: tuple[SnapshotKind, ...] = ("full", "incremental")
PLACES = ("segments", "shared", "private")
WAIT = 60  # seconds for an event that comes at once


@pytest.fixture
def store(tmp_path: Path) -> KeyedStore:
    return keyed_store(tmp_path)


@pytest.fixture
def tasks(store: KeyedStore, tmp_path: Path) -> Iterator[Tasks]:
    """One task, with nothing in it."""
    found = Tasks(store, local(tmp_path))
    found.open(1)
    yield found
    found.dispose()


def fill(tasks: Tasks, seed: int, keys: range = range(60)) -> None:
    """All states of these keys, other for each seed; some of what was there is cleared."""
    choose = random.Random(seed)
    for number in keys:
        key = f"k{number}"
        tasks.set_total(key, choose.choice([None, seed, number]))
        tasks.set_shape(key, choose.choice([None, number]))
        for state, elements in (("words", [f"w{seed}", ""]), ("joined", list("xy")), ("mean", [seed, number])):
            tasks.add(state, key, choose.choice(NAMESPACES[state]), elements)
        tasks.put_fact(key, choose.choice(NAMESPACES["facts"]), choose.choice(USER_KEYS), choose.choice([None, seed]))
        tasks.remove_fact(key, NAMESPACES["facts"][0], "a")
        cleared = choose.choice(list(NAMESPACES))
        tasks.clear(cleared, key, choose.choice(NAMESPACES[cleared]))


def files(store: KeyedStore) -> set[str]:
    """What is in the store's folder of snapshots, whatever its name."""
    root = store._folder
    return {str(path.relative_to(root)) for place in PLACES for path in (root / place).glob("*")}


def named(store: KeyedStore) -> set[str]:
    """What kept snapshots need."""
    return set(store._read().files())


def reopened(tasks: Tasks, number: int = 1, version: int | None = None) -> Content:
    """What tasks have that begin with a version; they are the ones from now on."""
    tasks.dispose()
    tasks.open(number, version)
    return tasks.content()


# What is in them


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_later_is_not_in_a_snapshot(kind: SnapshotKind, tasks: Tasks, gate: Gate) -> None:
    """Of new keys and of the same ones: updates, elements that are added, and all that is removed; while the snapshot
    has not begun to write."""
    fill(tasks, 1)
    expected = tasks.model.content()
    gate.shut()
    (running,) = tasks.snapshot([kind])
    assert gate.reached() and not running.done()
    fill(tasks, 2, range(30, 90))
    for state, namespaces in NAMESPACES.items():
        for namespace in namespaces:
            tasks.clear(state, "k1", namespace)
    later = tasks.model.content()
    gate.open()
    version = tasks.store.commit(travelled([running]))
    assert own_files(tasks) == {"database", "owner.lock"}, "and no checkpoint"
    assert tasks.content() == later != expected
    assert reopened(tasks, 1, version) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_two_snapshots_may_be_under_way(kind: SnapshotKind, tasks: Tasks, gate: Gate) -> None:
    """Each has what was there when it was asked for, in whatever order they are committed."""
    gate.shut()
    expected = {}
    running = []
    for number in (1, 2):
        fill(tasks, number)
        running += tasks.snapshot([kind])
        expected[number] = tasks.model.content()
    gate.open()
    versions = {number: tasks.store.commit(travelled([running[number - 1]])) for number in (2, 1)}
    for number, version in versions.items():
        assert reopened(tasks, 1, version) == expected[number]


@pytest.mark.parametrize("kind", KINDS)
def test_of_nothing(kind: SnapshotKind, store: KeyedStore, tasks: Tasks) -> None:
    """States without rows need no segment, and are known still; a backend without states has neither."""
    version = tasks.commit(kind)
    if kind == "full":
        assert files(store) == set()
    assert reopened(tasks, 3, version) == {}
    assert store.states(version) == sorted(NAMESPACES)
    assert all(task.backend.num_entries() == 0 for task in tasks.tasks)
    with store.backend(version=0, directory=tasks.directory) as backend:
        version = store.commit(travelled([backend.snapshot(kind)]))
    assert store.states(version) == []
    with store.backend(version=version, directory=tasks.directory) as backend:
        assert backend.states() == [] and backend.num_entries() == 0


def test_kinds_that_there_are_not(tasks: Tasks) -> None:
    with refused("INVALID_OPTION", "'savepoint'"):
        tasks.tasks[0].backend.snapshot("savepoint")  # type: ignore[arg-type]


# Which files they share


def test_an_incremental_snapshot_names_files_again_and_writes_few(store: KeyedStore, tmp_path: Path) -> None:
    """After 1 % of the keys changed at most a tenth of the first one's bytes is written."""
    letters = random.Random(1)
    with store.backend(directory=local(tmp_path)) as backend:
        state = backend.value_state("s", "string")

        def write(keys: range) -> None:
            for number in keys:
                backend.set_current_key(f"k{number}")
                state.update(f"{letters.getrandbits(400):x}")

        write(range(20_000))
        first = backend.snapshot("incremental").result()
        backend.notify_complete(store.commit([first]))
        assert first.reused == frozenset()
        write(range(0, 20_000, 100))
        second = backend.snapshot("incremental").result()
        new = {name: file for name, file in second.files().items() if name not in first.files()}
        assert sum(file.bytes for file in new.values()) <= sum(file.bytes for file in first.files().values()) / 10
        assert second.reused == {file.name for file in first.shared.values()} == set(second.files()) - set(new)
        version = store.commit([second])
        expected = {key: read(backend, state, key) for key in backend.keys("s")}
        assert len(expected) == 20_000
    assert files(store) == named(store) == set(first.files()) | set(second.files())
    with store.backend(version=version, directory=local(tmp_path)) as backend:
        state = backend.value_state("s", "string")
        assert {key: read(backend, state, key) for key in backend.keys("s")} == expected


def read(backend: Any, state: Any, key: str) -> Any:
    backend.set_current_key(key)
    return state.value()


def test_only_confirmed_snapshots_are_built_on(store: KeyedStore, tasks: Tasks) -> None:
    """Not those that were only taken, only committed, are older than the newest confirmed, are full, or of others."""
    (task,) = tasks.tasks
    fill(tasks, 1)

    def built_on() -> frozenset[str]:
        (part,) = travelled(tasks.snapshot(["incremental"]))
        store.discard_files([part])
        return part.reused

    (first,) = travelled(tasks.snapshot(["incremental"]))
    assert built_on() == frozenset(), "one that was only taken"
    one = store.commit([first])
    assert built_on() == frozenset(), "one that was only committed"
    task.backend.notify_complete(one + 7)
    assert built_on() == frozenset(), "no version"
    task.backend.notify_complete(one)
    assert built_on() == {file.name for file in first.shared.values()}

    fill(tasks, 2)
    (second,) = travelled(tasks.snapshot(["incremental"]))
    two = store.commit([second])
    (full,) = travelled(tasks.snapshot(["full"]))
    three = store.commit([full])
    task.backend.notify_complete(three)
    assert built_on() == {file.name for file in first.shared.values()}, "a full one"
    task.backend.notify_complete(two)
    newest = {file.name for file in second.shared.values()}
    assert built_on() == newest > {file.name for file in first.shared.values()}
    task.backend.notify_complete(one)
    assert built_on() == newest, "an older one is ignored"

    with store.backend(version=0, directory=tasks.directory) as other:
        four = store.commit([other.snapshot("incremental").result()])
        task.backend.notify_complete(four)
        assert built_on() == newest, "another backend's"
        other.notify_complete(two)
        assert other.snapshot("incremental").result().reused == frozenset()


def test_a_backend_builds_on_what_it_was_restored_from_in_place(store: KeyedStore, tasks: Tasks) -> None:
    """Its own first snapshot shares the table files; one of other key groups can not."""
    fill(tasks, 1)
    (part,) = travelled(tasks.snapshot(["incremental"]))
    version = store.commit([part])
    assert reopened(tasks, 1, version) == tasks.model.content()
    fill(tasks, 2, range(5))
    (again,) = travelled(tasks.snapshot(["incremental"]))
    assert again.reused == {file.name for file in part.shared.values()}
    assert reopened(tasks, 1, store.commit([again])) == tasks.model.content()
    reopened(tasks, 2)
    parts = travelled(tasks.snapshot(["incremental"]))
    assert [each.reused for each in parts] == [frozenset(), frozenset()]
    store.commit(parts)
    assert reopened(tasks, 2) == tasks.model.content()
    found = [each.reused for each in travelled(tasks.snapshot(["incremental"]))]
    assert found == [{file.name for file in each.shared.values()} for each in parts], "each of several, too"


def test_a_database_in_place_never_writes_to_stored_files(store: KeyedStore, tasks: Tasks) -> None:
    """Table files are linked, not copied, as RocksDB does not write to them; the others are copies."""
    fill(tasks, 1)
    (part,) = travelled(tasks.snapshot(["incremental"]))
    store.commit([part])
    before = {name: (store._folder / name).read_bytes() for name in files(store)}
    reopened(tasks)
    assert {(store._folder / file.name).stat().st_nlink for file in part.shared.values()} == {2}
    assert {(store._folder / file.name).stat().st_nlink for file in part.private.values()} == {1}
    fill(tasks, 2)
    tasks.snapshot(["incremental"])[0].result(WAIT)
    tasks.dispose()
    assert {name: (store._folder / name).read_bytes() for name in before} == before


def test_two_that_go_on_from_one_snapshot_do_not_mix(store: KeyedStore, tasks: Tasks) -> None:
    """Their new table files have the same numbers and other rows."""
    fill(tasks, 1)
    version = tasks.commit("incremental")
    base = tasks.model.content()
    expected = {}
    for seed in (2, 3):
        tasks.model.load(base)
        assert reopened(tasks, 1, version) == base
        fill(tasks, seed)
        expected[tasks.commit("incremental")] = tasks.model.content()
        fill(tasks, seed + 10)
        expected[tasks.commit("incremental")] = tasks.model.content()
    for each, content in expected.items():
        assert reopened(tasks, 1, each) == content


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::3], ids=str)
def test_discards_in_any_order_keep_what_is_named(order: tuple[int, ...], chain: Chain, tmp_path: Path) -> None:
    """After each, the folder has just the files that kept snapshots name, and all of these restore."""
    shutil.copytree(chain.root / "s", tmp_path / "s")
    store = statestore.connect(tmp_path).open_store("s")
    assert isinstance(store, KeyedStore)
    versions = list(chain.expected)
    for number in order:
        before = files(store)
        store.discard(versions[number])
        assert files(store) == named(store) < before
    assert files(store) == set() and store.versions() == []


def test_what_is_left_after_a_discard_restores(chain: Chain, tmp_path: Path) -> None:
    shutil.copytree(chain.root / "s", tmp_path / "s")
    store = statestore.connect(tmp_path).open_store("s")
    assert isinstance(store, KeyedStore)
    tasks = Tasks(store, local(tmp_path))
    left = dict(chain.expected)
    for number in (1, 2, 0):
        version = list(left)[number]
        store.discard(version)
        del left[version]
        for call in (store.discard, lambda version: store.backend(version=version)):
            with refused("VERSION_NOT_FOUND", f"no snapshot {version} ", ", ".join(map(str, left))):
                call(version)
        for kept, content in left.items():
            assert reopened(tasks, 2, kept) == content
    tasks.dispose()


class Chain:
    """A store of four snapshots, three of them incremental, each on the one before."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.expected: dict[int, Content] = {}
        tasks = Tasks(keyed_store(root), local(root))
        tasks.open(1)
        for seed, kind in enumerate(("incremental", "incremental", "full", "incremental")):
            fill(tasks, seed)
            self.expected[tasks.commit(kind)] = tasks.model.content()  # type: ignore[arg-type]
        tasks.dispose()


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    return Chain(tmp_path_factory.mktemp("chain"))


def test_a_snapshot_whose_base_was_discarded(store: KeyedStore, tasks: Tasks) -> None:
    """Between taking and committing: refused, as its files are gone. The next one builds on nothing and is fine."""
    fill(tasks, 1)
    version = tasks.commit("incremental")
    fill(tasks, 2)
    running = tasks.snapshot(["incremental"])
    parts = travelled(running)
    store.discard(version)
    with refused("BASE_DISCARDED", "notify_complete"):
        store.commit(parts)
    store.discard_files(parts)
    assert files(store) == named(store) == set()
    again = tasks.commit("incremental")
    assert files(store) == named(store)
    assert reopened(tasks, 1, again) == tasks.model.content()


def test_a_discarded_snapshot_s_parts_can_not_be_committed_again(store: KeyedStore, tasks: Tasks) -> None:
    fill(tasks, 1)
    (part,) = travelled(tasks.snapshot(["full"]))
    store.discard(store.commit([part]))
    with refused("BASE_DISCARDED", next(iter(part.files()))):
        store.commit([part])
    assert store.versions() == []


def test_files_of_kept_snapshots_outlive_discarded_parts(store: KeyedStore, tasks: Tasks) -> None:
    """A part that is thrown away takes only its own files with it."""
    fill(tasks, 1)
    version = tasks.commit("incremental")
    fill(tasks, 2)
    before = files(store)
    (part,) = travelled(tasks.snapshot(["incremental"]))
    assert part.reused and files(store) > before
    store.discard_files([part])
    assert files(store) == before == named(store)
    store.discard_files([part])
    assert tasks.content() == tasks.model.content() != reopened(tasks, 1, version)


# Cancelled and failed ones


class Gate:
    """Holds snapshots before they write a file, until it is opened."""

    def __init__(self) -> None:
        self._open, self._reached = threading.Event(), threading.Event()
        self.passing = 0
        self.open()

    def shut(self, passing: int = 0) -> None:
        """``passing`` files are written before it holds."""
        self.passing = passing
        self._open.clear()
        self._reached.clear()

    def open(self) -> None:
        self._open.set()

    def reached(self) -> bool:
        """Once somebody waits here."""
        return self._reached.wait(WAIT)

    def wait(self) -> None:
        if self.passing:
            self.passing -= 1
            return
        self._reached.set()
        assert self._open.wait(WAIT)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    found = Gate()

    def held(write: Callable[..., Any]) -> Callable[..., Any]:
        def writing(*arguments: Any) -> Any:
            found.wait()
            return write(*arguments)

        return writing

    monkeypatch.setattr(taking, "store_copy", held(stored_files.store_copy))
    monkeypatch.setattr(taking, "store_batches", held(stored_files.store_batches))
    yield found
    found.open()


@pytest.mark.parametrize("passing", [0, 1, -1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_snapshot_leaves_nothing(
    kind: SnapshotKind, passing: int, store: KeyedStore, tasks: Tasks, gate: Gate
) -> None:
    """Neither in the store, of files that it had written already (none, one, all but one), nor locally; the backend
    goes on."""
    fill(tasks, 1)
    parts = travelled(tasks.snapshot([kind]))
    store.discard_files(parts)
    passing %= len(parts[0].files())
    gate.shut(passing)
    (running,) = tasks.snapshot([kind])
    assert gate.reached()
    assert len(files(store)) == passing
    running.cancel()
    gate.open()
    with refused("SNAPSHOT_CANCELLED"):
        running.result(WAIT)
    assert files(store) == set() and running.done()
    assert own_files(tasks) == {"database", "owner.lock"}
    fill(tasks, 2)
    assert reopened(tasks, 1, tasks.commit(kind)) == tasks.model.content()


def own_files(tasks: Tasks) -> set[str]:
    return {path.name for path in tasks.tasks[0].backend._local.path.iterdir()}


def test_cancelling_one_that_is_done_changes_nothing(store: KeyedStore, tasks: Tasks) -> None:
    fill(tasks, 1)
    (running,) = tasks.snapshot(["incremental"])
    part = running.result(WAIT)
    running.cancel()
    assert running.result(WAIT) is part and files(store) == set(part.files())


def test_cancelled_in_the_middle_of_a_file(store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a region of it: no other one is written, but for an Arrow file's end, and what was goes, too."""
    monkeypatch.setattr(stored_files, "REGION_BYTES", 64)
    fill(tasks, 1)
    running: list[Any] = []
    begun = threading.Event()
    regions = []
    region = stored_files.NewFile._region

    def cancelled(file: stored_files.NewFile) -> None:
        assert begun.wait(WAIT)
        regions.append(file.name)
        running[0].cancel()
        region(file)

    monkeypatch.setattr(stored_files.NewFile, "_region", cancelled)
    for kind in KINDS:
        running[:] = tasks.snapshot([kind])
        begun.set()
        with refused("SNAPSHOT_CANCELLED"):
            running[0].result(WAIT)
        begun.clear()
        assert files(store) == set() and 1 <= len(regions) <= 2
        regions.clear()


@pytest.mark.parametrize("kind", KINDS)
def test_disposal_ends_a_snapshot_that_is_under_way(
    kind: SnapshotKind, store: KeyedStore, tasks: Tasks, gate: Gate
) -> None:
    fill(tasks, 1)
    gate.shut(1)
    (running,) = tasks.snapshot([kind])
    assert gate.reached()
    disposing = threading.Thread(target=tasks.dispose)
    disposing.start()
    assert running.cancelled.wait(WAIT)
    gate.open()
    disposing.join(WAIT)
    assert not disposing.is_alive() and running.done()
    with refused("SNAPSHOT_CANCELLED"):
        running.result()
    assert files(store) == set() and list(tasks.directory.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_outlives_its_backend(kind: SnapshotKind, store: KeyedStore, tasks: Tasks) -> None:
    fill(tasks, 1)
    (running,) = tasks.snapshot([kind])
    running.result(WAIT)
    expected = tasks.model.content()
    tasks.dispose()
    assert reopened(tasks, 2, store.commit(travelled([running]))) == expected


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [0, 1])
def test_a_snapshot_that_fails_leaves_nothing(
    kind: SnapshotKind, after: int, store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full at some file; the same backend's next snapshot is whole."""
    left = itertools.count(-after)

    def full(descriptor: int) -> None:
        if next(left) >= 0:
            raise OSError(28, "No space left on device")

    fill(tasks, 1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        (running,) = tasks.snapshot([kind])
        with pytest.raises(OSError, match="No space left"):
            running.result(WAIT)
    assert files(store) == set() and own_files(tasks) == {"database", "owner.lock"}
    assert reopened(tasks, 1, tasks.commit(kind)) == tasks.model.content()


def test_waiting_for_a_result_may_end(tasks: Tasks, gate: Gate) -> None:
    fill(tasks, 1)
    gate.shut()
    (running,) = tasks.snapshot(["full"])
    with pytest.raises(TimeoutError):
        running.result(0)
    gate.open()
    assert running.result(WAIT).kind == "full"


# Commits


def test_a_transaction_is_committed_once(store: KeyedStore, tasks: Tasks) -> None:
    """Again it answers the same version, and what was written for the repetition is removed."""
    fill(tasks, 1)
    first = travelled(tasks.snapshot(["incremental"]))
    version = store.commit(first, transaction=("app", 7))
    expected = tasks.model.content()
    before = files(store)
    assert store.commit(first, transaction=("app", 7)) == version, "the same parts: their files stay"
    assert files(store) == before
    fill(tasks, 2)
    assert store.commit(travelled(tasks.snapshot(["full"])), transaction=("app", 7)) == version
    assert files(store) == before == named(store) and store.versions() == [version]
    for transaction in (("app", 8), ("other", 7)):
        assert store.transaction_version(transaction) is None
        again = store.commit(travelled(tasks.snapshot(["full"])), transaction=transaction)
        assert again > version and store.transaction_version(transaction) == again
    assert reopened(tasks, 1, version) == expected
    store.discard(version)
    assert store.commit(travelled(tasks.snapshot(["full"])), transaction=("app", 7)) == version, "discarded since"
    assert files(store) == named(store)


def test_parts_have_every_key_group_once(store: KeyedStore, tasks: Tasks) -> None:
    reopened(tasks, 3)
    parts = travelled(tasks.snapshot(["full"]))
    whole = travelled(Tasks(store, tasks.directory, tasks.tasks[:1]).snapshot(["full"]))
    told = [f"{part.key_groups.start} to {part.key_groups.stop - 1}" for part in parts]
    for given in ([], parts[1:], parts[:2], [parts[0], parts[2]], [*parts, *whole], [parts[0], *parts]):
        with refused("INCOMPLETE_SNAPSHOT", "0 to 127", *told[1:2] * (parts[1] in given)):
            store.commit(given)
    with refused("INCOMPLETE_SNAPSHOT", "Running", "result()"):
        store.commit(tasks.snapshot(["full"]))  # type: ignore[arg-type]
    assert store.versions() == []
    assert store.commit(reversed(parts)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_two_writers_each_get_a_version(kind: SnapshotKind, store: KeyedStore, tasks: Tasks, race: Race) -> None:
    """The other one's commit comes between this one's look at the log and its entry in it."""
    fill(tasks, 1)
    expected = {}
    parts = travelled(tasks.snapshot([kind]))
    content = tasks.model.content()
    fill(tasks, 2)
    others = travelled(tasks.snapshot([kind]))
    other = statestore.connect(store._folder.parent).open_store("s")
    assert isinstance(other, KeyedStore)
    race.between = lambda: expected.update({other.commit(others): tasks.model.content()})
    expected[store.commit(parts)] = content
    assert store.versions() == other.versions() == [1, 2] == list(expected)
    assert files(store) == named(store)
    for version, content in expected.items():
        assert reopened(tasks, 1, version) == content


def test_a_base_that_is_discarded_just_before_the_commit(store: KeyedStore, tasks: Tasks, race: Race) -> None:
    fill(tasks, 1)
    version = tasks.commit("incremental")
    parts = travelled(tasks.snapshot(["incremental"]))
    other = statestore.connect(store._folder.parent).open_store("s")
    assert isinstance(other, KeyedStore)
    race.between = lambda: other.discard(version)
    with refused("BASE_DISCARDED"):
        store.commit(parts)
    assert store.versions() == []


def test_a_base_that_is_committed_again_just_before_its_discard(store: KeyedStore, tasks: Tasks, race: Race) -> None:
    """Then the files that both name stay."""
    fill(tasks, 1)
    version = tasks.commit("incremental")
    parts = travelled(tasks.snapshot(["incremental"]))
    other = statestore.connect(store._folder.parent).open_store("s")
    assert isinstance(other, KeyedStore)
    race.between = lambda: other.commit(parts)
    store.discard(version)
    assert files(store) == named(store) == set(parts[0].files())
    assert reopened(tasks, 2) == tasks.model.content()


def test_a_transaction_that_two_commit_at_once(store: KeyedStore, tasks: Tasks, race: Race) -> None:
    fill(tasks, 1)
    parts, others = (travelled(tasks.snapshot(["full"])) for _ in range(2))
    other = statestore.connect(store._folder.parent).open_store("s")
    assert isinstance(other, KeyedStore)
    race.between = lambda: other.commit(others, transaction=("app", 1))
    assert store.commit(parts, transaction=("app", 1)) == 1
    assert store.versions() == [1] and files(store) == named(store) == set(others[0].files())


class Race:
    """``between`` is called once, before the next entry of the log is written."""

    between: Callable[[], Any] | None = None


@pytest.fixture
def race(monkeypatch: pytest.MonkeyPatch) -> Race:
    found = Race()
    publish = snapshot_log.publish

    def raced(storage: Any, known: SnapshotLog, entry: Any) -> SnapshotLog | None:
        call, found.between = found.between, None
        if call is not None:
            call()
        return publish(storage, known, entry)

    monkeypatch.setattr(keyed_store_module, "publish", raced)
    return found


# Restores


@pytest.mark.parametrize("kinds", [("full",), ("incremental",), ("incremental", "full")], ids="-".join)
def test_other_numbers_of_tasks(kinds: tuple[SnapshotKind, ...], tasks: Tasks) -> None:
    """4 tasks, then 2, 7 and 1: each takes over what is of its key groups, and all write on."""
    for seed, number in enumerate((4, 2, 7, 1, 1)):
        assert reopened(tasks, number) == tasks.model.content()
        ranges = [task.backend.key_groups for task in tasks.tasks]
        assert [group for each in ranges for group in each] == list(range(128)) and len(ranges) == number
        fill(tasks, seed)
        tasks.commit(*kinds)


@pytest.mark.parametrize("kinds", [("full",), ("incremental",), ("incremental", "full")], ids="-".join)
def test_a_task_restores_only_its_own_groups(kinds: tuple[SnapshotKind, ...], store: KeyedStore, tasks: Tasks) -> None:
    """Of parts whose edges are elsewhere, of one group, and of several parts."""
    reopened(tasks, 3)
    fill(tasks, 1)
    version = tasks.store.commit(travelled(tasks.snapshot(kinds)))
    expected = tasks.model.content()
    of = {key: tasks.tasks[0].backend.key_group(key) for places in expected.values() for key, _ in places}
    tasks.dispose()
    for groups in (range(0, 1), range(20, 21), range(42, 43), range(43, 44), range(10, 100), range(127, 128)):
        with store.backend(groups, version=version, directory=tasks.directory) as backend:
            states = sorted({name for name, places in expected.items() if places})
            assert set(states) <= set(backend.states())
            total = [key for key, _ in expected["total"] if of[key] in groups]
            assert sorted(backend.keys("total")) == sorted(total)
            assert all(backend.key_group(key) in groups for state in ("total", "shape") for key in backend.keys(state))


ODD_NAMES = [
    " a",
    "a b",
    "a'b",
    'a"b',
    "#a=b",
    "[CFOptions]",
    "a:b;c",
    "états😀",
    "\x7f",
    "x" * 200,
    "-",
    "~",
    "a%2Fb",
    "{a}",
    "{",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [1, 2])
def test_states_of_odd_names(kind: SnapshotKind, number: int, store: KeyedStore, tmp_path: Path) -> None:
    """They are names in RocksDB's own files, too."""
    folder = local(tmp_path)
    with store.backend(directory=folder) as backend:
        backend.set_current_key("a")
        for value, name in enumerate(ODD_NAMES):
            backend.value_state(name, "bigint").update(value)
        store.commit([backend.snapshot(kind).result()])
        group = backend.key_group("a")
    (groups,) = [groups for groups in store.task_groups(number) if group in groups]
    with store.backend(groups, directory=folder) as backend:
        assert backend.states() == sorted(ODD_NAMES) == store.states()
        backend.set_current_key("a")
        for value, name in enumerate(ODD_NAMES):
            assert backend.value_state(name, "bigint").value() == value
            assert store.scan(name).read_all()["value"].to_pylist() == [value]


def test_all_local_files_are_in_the_directory_for_them(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a restore by rows takes for a while, too: another disk may be too small, and nobody would remove them
    there after a kill."""
    fill(tasks, 1)
    tasks.commit("incremental")
    monkeypatch.setattr(tempfile, "tempdir", str(tasks.directory / "nowhere"))
    assert reopened(tasks, 2) == tasks.model.content()
    assert own_files(tasks) == {"database", "owner.lock"}


@pytest.mark.parametrize(
    "groups", [range(0), range(-1, 5), range(0, 129), range(128, 129), range(0, 128, 2), [1, 2], 5, range(5, 0, -1)]
)
def test_key_groups_that_there_are_not(groups: Any, store: KeyedStore, tmp_path: Path) -> None:
    with refused("INVALID_KEY_GROUPS"):
        store.backend(groups, directory=local(tmp_path))
    assert not local(tmp_path).exists() or not list(local(tmp_path).iterdir())


@pytest.mark.parametrize("groups", [1, 7, 128, 300])
def test_tasks_have_the_key_groups_that_flink_gives_them(groups: int, tmp_path: Path) -> None:
    """``KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex``, statement by statement."""
    store = keyed_store(tmp_path, key_groups=groups)
    for tasks in range(1, groups + 1):
        expected = []
        for task in range(tasks):
            first = (task * groups + tasks - 1) // tasks
            last = ((task + 1) * groups - 1) // tasks
            expected.append(range(first, last + 1))
        assert store.task_groups(tasks) == expected
    assert store.task_groups(groups) == [range(group, group + 1) for group in range(groups)]


@pytest.mark.parametrize("number", [0, -1, 129, 1.0, True, None])
def test_numbers_of_tasks_that_there_are_not(number: Any, store: KeyedStore) -> None:
    with refused("INVALID_KEY_GROUPS"):
        store.task_groups(number)


# Damage


def flipped(path: Path, at: float) -> None:
    data = bytearray(path.read_bytes())
    data[min(int(len(data) * at), len(data) - 1)] ^= 0x10
    path.write_bytes(data)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "first byte": lambda path: flipped(path, 0),
    "middle": lambda path: flipped(path, 0.5),
    "last byte": lambda path: flipped(path, 1),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\x00"),
    "removed": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(("kind", "number"), [("full", 1), ("incremental", 1), ("incremental", 2)])
def test_damaged_files_are_refused_or_harmless(
    damage: str, kind: SnapshotKind, number: int, store: KeyedStore, tasks: Tasks
) -> None:
    """Each stored file by turns: restoring, in place and by rows, says so and leaves nothing locally; or has the same
    rows."""
    fill(tasks, 1)
    tasks.commit(kind)
    expected = tasks.model.content()
    reopened(tasks, number)
    tasks.dispose()
    refusals = 0
    for name in sorted(files(store)):
        path = store._folder / name
        whole = path.read_bytes()
        DAMAGES[damage](path)
        try:
            tasks.open(number)
            assert tasks.content() == expected
        except StateStoreError as error:
            assert error.code in ("SNAPSHOT_FILE_MISSING", "SEGMENT_CORRUPT", "SEGMENT_TRUNCATED"), error
            assert name in str(error) or path.name in str(error)
            refusals += 1
            assert number > 1 or list(tasks.directory.iterdir()) == []
        tasks.dispose()
        path.write_bytes(whole)
    assert refusals > len(files(store)) / 2
    gc.collect()
    assert list(tasks.directory.iterdir()) == []
    assert reopened(tasks, number) == expected


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_log_is_refused(damage: str, store: KeyedStore, tasks: Tasks) -> None:
    """The last entry, by a process that reads it for the first time."""
    fill(tasks, 1)
    tasks.commit("full")
    tasks.commit("full")
    entry = store._folder / "log" / f"{2:020d}.json"
    DAMAGES[damage](entry)
    tasks.dispose()
    if damage == "removed":
        expected = [1]
        assert fresh(store).versions() == expected
        return
    for call in (
        lambda: fresh(store).versions(),
        lambda: fresh(store).backend(directory=tasks.directory),
        lambda: fresh(store).scan("total"),
    ):
        with refused("LOG_CORRUPT", entry.name):
            call()
    assert list(tasks.directory.iterdir()) == []


def fresh(store: KeyedStore) -> KeyedStore:
    """The store as another process opens it: in a folder that nobody has read."""
    copy = store._folder.parent / f"copy{next(COPIES)}"
    shutil.copytree(store._folder, copy / "s")
    found = statestore.connect(copy).open_store("s")
    assert isinstance(found, KeyedStore)
    return found


COPIES = itertools.count()


@pytest.mark.parametrize("follows", [None, "bigint", "string"])
def test_what_was_opened_on_a_dropped_store_does_not_go_on_with_another(
    follows: str | None, store: KeyedStore, tasks: Tasks
) -> None:
    """Neither with none; else it would write rows of other types, and a log that begins in the middle."""
    fill(tasks, 1)
    version = tasks.commit("incremental")
    parts = [tasks.tasks[0].backend.snapshot("full").result()]
    catalog = statestore.connect(store._folder.parent)
    catalog.drop_store("s")
    if follows is not None:
        catalog.create_store("s", kind="keyed", key={"k": follows})
    before = set(store._folder.rglob("*"))
    for call in (
        lambda: tasks.tasks[0].backend.snapshot("full"),
        lambda: tasks.tasks[0].backend.snapshot("incremental"),
        lambda: tasks.tasks[0].backend.notify_complete(version + 1),
        lambda: store.commit(parts),
        lambda: store.discard(version),
        lambda: store.discard_files(parts),
        lambda: store.backend(directory=tasks.directory),
        lambda: store.scan("total"),
        store.versions,
    ):
        with refused("STORE_NOT_FOUND", str(store._folder), "dropped"):
            call()
    assert set(store._folder.rglob("*")) == before
    assert len(list(tasks.directory.iterdir())) == 1
    if follows is not None:
        assert opened_again(store).versions() == []


def opened_again(store: KeyedStore) -> KeyedStore:
    """By another handle."""
    found = statestore.connect(store._folder.parent).open_store("s")
    assert isinstance(found, KeyedStore)
    return found


def test_a_part_of_a_discarded_snapshot_is_not_committed_again(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its files are still there: who discards is about to remove them."""
    fill(tasks, 1)
    parts = travelled(tasks.snapshot(["full"]))
    version = store.commit(parts)
    other = opened_again(store)
    remove = KeyedStore._remove

    def late(self: KeyedStore, names: Any) -> None:
        monkeypatch.setattr(KeyedStore, "_remove", remove)
        with refused("BASE_DISCARDED", next(iter(parts[0].files()))):
            other.commit(parts)
        remove(self, names)

    monkeypatch.setattr(KeyedStore, "_remove", late)
    store.discard(version)
    assert store.versions() == []
    assert files(store) == set()


def test_a_process_forgets_the_parts_of_discarded_snapshots(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it goes on, whether it commits or only looks."""
    monkeypatch.setattr(snapshot_log, "CHECKPOINT_INTERVAL", 4)
    monkeypatch.setattr(shared_log, "CHECKPOINT_INTERVAL", 4)
    reader = opened_again(store)
    fill(tasks, 1)
    for _ in range(10):
        store.discard(tasks.commit("full"))
        assert reader.versions() == []
        for handle in (store, reader):
            remembered = [entry.version for entry in handle._read().entries if entry.handles]
            assert len(remembered) <= 2, remembered


# Discarded while it is read


def overtaken(store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> int:
    """A snapshot that is discarded, with another one committed, when the first of its files has just been compared."""
    fill(tasks, 1)
    version = tasks.commit("incremental")
    fill(tasks, 2)
    parts = travelled(tasks.snapshot(["full"]))
    whole = stored_files.checked

    def late(folder: Path, file: Any) -> Path:
        found = whole(folder, file)
        if version in store.versions():
            store.commit(parts)
            store.discard(version)
        return found

    monkeypatch.setattr(stored_files, "checked", late)
    return version


@pytest.mark.parametrize("groups", [range(128), range(64)])
def test_a_backend_begins_with_the_newest_though_another_was(
    groups: range, store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = overtaken(store, tasks, monkeypatch)
    with store.backend(groups, directory=tasks.directory) as backend:
        assert store.versions() == [version + 1]
        found = list(backend.keys("total"))
    assert found == [
        key for key in tasks.tasks[0].backend.keys("total") if tasks.tasks[0].backend.key_group(key) in groups
    ]
    assert found


def test_a_version_that_is_discarded_while_it_is_read_is_refused(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = overtaken(store, tasks, monkeypatch)
    with refused("VERSION_NOT_FOUND", f"snapshot {version} of s.total", f"there are {version + 1}"):
        store.scan("total").read_all()
    assert files(store) == named(store)


def test_a_backend_of_a_version_that_is_discarded_meanwhile_is_refused(
    store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = overtaken(store, tasks, monkeypatch)
    with refused("VERSION_NOT_FOUND", str(version), f"there are {version + 1}"):
        store.backend(version=version, directory=tasks.directory)
    assert len(list(tasks.directory.iterdir())) == 1, "that of the tasks"


# Local directories


def test_a_backend_that_nobody_has_any_more_leaves_no_files(store: KeyedStore, tmp_path: Path) -> None:
    """Though it was not disposed of."""
    backend: KeyedBackend | None = store.backend(directory=local(tmp_path))
    assert backend is not None
    backend.value_state("s", "bigint")
    backend.set_current_key("a")
    assert len(list(local(tmp_path).iterdir())) == 1
    backend = None
    gc.collect()
    assert list(local(tmp_path).iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_holds_its_backend(
    kind: SnapshotKind, store: KeyedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose local files are needed until it is written, though nobody else has the backend any more."""
    dropped = threading.Event()
    whole = getattr(taking, f"_{kind}")

    def late(*arguments: Any) -> Any:
        assert dropped.wait(WAIT)
        return whole(*arguments)

    monkeypatch.setattr(taking, f"_{kind}", late)
    backend: KeyedBackend | None = store.backend(directory=local(tmp_path))
    assert backend is not None
    backend.set_current_key("a")
    backend.value_state("s", "bigint").update(1)
    running = backend.snapshot(kind)
    backend = None
    gc.collect()
    dropped.set()
    version = store.commit([running.result(WAIT)])
    assert store.scan("s", version=version).read_all().to_pylist() == [{"k": "a", "value": 1}]


FORKING = """
import os, sys
import statestore
backend = statestore.connect(sys.argv[1]).open_store("s").backend(directory=sys.argv[2])
state = backend.value_state("s", "bigint")
backend.set_current_key("a")
state.update(1)
child = os.fork()
if child == 0:
    try:
        state.value()
    except statestore.InvalidInputError as error:
        assert error.code == "BACKEND_CLOSED"
        backend.dispose()
        del state
        del backend
        sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
state.update(state.value() + 1)
assert state.value() == 2
assert backend._local.path.is_dir()
backend.snapshot("full").result()
"""


def test_in_a_fork_a_backend_is_closed(store: KeyedStore, tmp_path: Path) -> None:
    """Its database has threads, which are not in the fork; it stays its parent's."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING, str(tmp_path), str(local(tmp_path))],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT,
    )
    assert done.returncode == 0, done.stderr


DYING = """
import os, signal, sys
import statestore
backend = statestore.connect(sys.argv[1]).open_store("s").backend(directory=sys.argv[2])
os.write(1, backend._local.path.name.encode())
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_directories_of_dead_processes_are_removed_and_no_others(store: KeyedStore, tmp_path: Path) -> None:
    """Those of living backends stay, and whatever else somebody has in the folder, however old and like ours."""
    folder = local(tmp_path)
    for name in ("new-orders", "dead-letters", "data", "0" * 31, "owner.lock"):
        (folder / name).mkdir(parents=True)
        (folder / name / "precious").touch()
        os.utime(folder / name, (0, 0))
    (folder / "data/owner.lock").touch()
    (folder / ("f" * 32)).touch()
    before = {path.name for path in folder.iterdir()}
    with store.backend(directory=folder) as backend:
        living = {path.name for path in folder.iterdir()} - before
        died = subprocess.run(
            [sys.executable, "-c", DYING, str(tmp_path), str(folder)], capture_output=True, text=True, check=False
        )
        assert died.returncode == -signal.SIGKILL, died.stderr
        name = died.stdout
        assert (folder / name / "database").is_dir(), "the dead process's"
        with store.backend(directory=folder):
            assert not (folder / name).exists()
        assert {path.name for path in folder.iterdir()} == before | living
        assert backend.num_entries() == 0
    assert {path.name for path in folder.iterdir()} == before
    assert all((folder / name / "precious").exists() for name in ("new-orders", "dead-letters", "data"))


def test_one_part_is_enough_where_there_is_one(tmp_path: Path) -> None:
    store = statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "string"})
    with store.backend() as backend:
        assert store.commit(backend.snapshot("full").result()) == 1
        for wrong in (None, 7):
            with pytest.raises(statestore.InvalidInputError, match="INCOMPLETE_SNAPSHOT"):
                store.commit(wrong)  # type: ignore[arg-type]
        with pytest.raises(statestore.InvalidInputError, match="INVALID_VERSION"):
            backend.notify_complete("1")  # type: ignore[arg-type]


def test_a_default_directory_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with monkeypatch.context() as other:
        other.setattr(os, "getuid", lambda: 12345)
        with pytest.raises(statestore.InvalidInputError, match="FOREIGN_DIRECTORY"):
            local_directory.take_directory(None)

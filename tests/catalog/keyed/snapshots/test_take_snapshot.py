"""Snapshots of keyed backends: their contents, the files that they share and leave, and those that are cancelled, fail,
or whose backend is disposed of."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import obstore
import pytest
from support.keyed.keyed_backends import folder_of, keyed_store, local, refused
from support.keyed.keyed_gates import KINDS, WAIT, Gate, files, fill, named, own_files, reopened
from support.keyed.keyed_model import NAMESPACES, Content, Tasks, travelled
from support.places import DIRECTORY, MEMORY, in_places

import statestore
from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import stored_files, written_file
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind

pytest_plugins = ["support.keyed.keyed_fixtures"]
PLACES = (DIRECTORY, MEMORY)
EACH_KIND = pytest.mark.quick("directory-full", "memory-incremental")
"""Each kind of snapshot in one place, and each place with one kind; the slow cases are the others."""


# What is in them


@EACH_KIND
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_later_is_not_in_a_snapshot(kind: SnapshotKind, tasks: Tasks, gate: Gate) -> None:
    """Later writes of new and existing keys, added elements and removals are not in a snapshot, even before the
    snapshot begins to write."""
    fill(tasks, 1)
    expected = tasks.model.content()
    gate.shut()
    (running,) = tasks.snapshot([kind])
    assert gate.reached() and not running.done()
    fill(tasks, 2, range(10, 30))
    for state, namespaces in NAMESPACES.items():
        for namespace in namespaces:
            tasks.clear(state, "k1", namespace)
    later = tasks.model.content()
    gate.open()
    version = tasks.store.commit(travelled([running]))
    assert own_files(tasks) == {"database", "owner.lock"}, "and no checkpoint"
    assert tasks.content() == later != expected
    assert reopened(tasks, 1, version) == expected


@EACH_KIND
@pytest.mark.parametrize("kind", KINDS)
def test_two_snapshots_may_be_under_way(kind: SnapshotKind, tasks: Tasks, gate: Gate) -> None:
    """Each holds the state at the moment it was requested, in whatever order they are committed."""
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


@pytest.mark.quick("directory-full")
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


@pytest.mark.quick("directory")
def test_an_incremental_snapshot_names_files_again_and_writes_few(store: KeyedStore, tmp_path: Path) -> None:
    """After 1 % of the keys changed at most a tenth of the first one's bytes is written."""
    letters = random.Random(1)
    with store.backend(directory=local(tmp_path)) as backend:
        state = backend.value_state("s", "string")

        def write(keys: range) -> None:
            for number in keys:
                backend.set_current_key(f"k{number}")
                state.update(f"{letters.getrandbits(400):x}")

        write(range(4_000))
        first = backend.snapshot("incremental").result()
        backend.notify_complete(store.commit([first]))
        assert first.reused == frozenset()
        write(range(0, 4_000, 100))
        second = backend.snapshot("incremental").result()
        new = {name: file for name, file in second.files().items() if name not in first.files()}
        assert sum(file.bytes for file in new.values()) <= sum(file.bytes for file in first.files().values()) / 10
        assert second.reused == {file.name for file in first.shared.values()} == set(second.files()) - set(new)
        version = store.commit([second])
        expected = {key: read(backend, state, key) for key in backend.keys("s")}
        assert len(expected) == 4_000
    assert files(store) == named(store) == set(first.files()) | set(second.files())
    with store.backend(version=version, directory=local(tmp_path)) as backend:
        state = backend.value_state("s", "string")
        assert {key: read(backend, state, key) for key in backend.keys("s")} == expected


def read(backend: Any, state: Any, key: str) -> Any:
    backend.set_current_key(key)
    return state.value()


@pytest.mark.quick("directory")
def test_only_confirmed_snapshots_are_built_on(store: KeyedStore, tasks: Tasks) -> None:
    """Snapshots that were only taken or committed, older confirmed ones, full ones and those of others are no base."""
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


@pytest.mark.quick("directory")
def test_a_backend_builds_on_what_it_was_restored_from_in_place(store: KeyedStore, tasks: Tasks) -> None:
    """Its own first snapshot shares the table files; one of other key groups cannot."""
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


@in_places(DIRECTORY)
def test_a_database_in_place_never_writes_to_stored_files(store: KeyedStore, tasks: Tasks) -> None:
    """Table files are linked, not copied, as RocksDB does not write to them; the others are copies."""
    fill(tasks, 1)
    (part,) = travelled(tasks.snapshot(["incremental"]))
    store.commit([part])
    before = {name: (folder_of(store) / name).read_bytes() for name in files(store)}
    reopened(tasks)
    assert {(folder_of(store) / file.name).stat().st_nlink for file in part.shared.values()} == {2}
    assert {(folder_of(store) / file.name).stat().st_nlink for file in part.private.values()} == {1}
    fill(tasks, 2)
    tasks.snapshot(["incremental"])[0].result(WAIT)
    tasks.dispose()
    assert {name: (folder_of(store) / name).read_bytes() for name in before} == before


@pytest.mark.quick("directory")
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
    assert files(store) == set() and store.retained() == []


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
            assert reopened(tasks, 1, kept) == content
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


@pytest.mark.quick("memory")
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


@pytest.mark.quick("memory")
def test_a_discarded_snapshot_s_parts_can_not_be_committed_again(store: KeyedStore, tasks: Tasks) -> None:
    fill(tasks, 1)
    (part,) = travelled(tasks.snapshot(["full"]))
    store.discard(store.commit([part]))
    with refused("BASE_DISCARDED", next(iter(part.files()))):
        store.commit([part])
    assert store.retained() == []


@pytest.mark.quick("memory")
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


@pytest.mark.quick("memory-full--1", "directory-incremental-1")
@pytest.mark.parametrize("passing", [0, 1, -1])
@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_snapshot_leaves_nothing(
    kind: SnapshotKind, passing: int, store: KeyedStore, tasks: Tasks, gate: Gate
) -> None:
    """No file is left in the store or locally, whether none, one or all but one were written; the backend still
    works."""
    fill(tasks, 1)
    parts = travelled(tasks.snapshot([kind]))
    store.discard_files(parts)
    passing %= len(parts[0].files())
    gate.shut(passing)
    (running,) = tasks.snapshot([kind])
    assert gate.reached()
    deadline = time.monotonic() + WAIT
    while len(files(store)) < passing and time.monotonic() < deadline:  # those that pass may be on their way
        time.sleep(0.01)
    assert len(files(store)) == passing
    running.cancel()
    gate.open()
    with refused("SNAPSHOT_CANCELLED"):
        running.result(WAIT)
    assert files(store) == set() and running.done()
    assert own_files(tasks) == {"database", "owner.lock"}
    fill(tasks, 2)
    assert reopened(tasks, 1, tasks.commit(kind)) == tasks.model.content()


def test_cancelling_one_that_is_done_changes_nothing(store: KeyedStore, tasks: Tasks) -> None:
    fill(tasks, 1)
    (running,) = tasks.snapshot(["incremental"])
    part = running.result(WAIT)
    running.cancel()
    assert running.result(WAIT) is part and files(store) == set(part.files())


def test_cancelled_in_the_middle_of_a_file(store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a region of a file no other one is written, except the end of an Arrow file, and written regions are
    removed."""
    monkeypatch.setattr(written_file, "REGION_BYTES", 64)
    monkeypatch.setattr(stored_files, "PARALLEL_UPLOADS", 1)
    fill(tasks, 1)
    running: list[Any] = []
    begun = threading.Event()
    regions = []
    region = written_file.NewFile._region

    def cancelled(file: written_file.NewFile) -> None:
        assert begun.wait(WAIT)
        regions.append(file.name)
        running[0].cancel()
        region(file)

    monkeypatch.setattr(written_file.NewFile, "_region", cancelled)
    for kind in KINDS:
        running[:] = tasks.snapshot([kind])
        begun.set()
        with refused("SNAPSHOT_CANCELLED"):
            running[0].result(WAIT)
        begun.clear()
        assert files(store) == set() and 1 <= len(regions) <= 2
        regions.clear()


@EACH_KIND
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


@pytest.mark.quick("memory-incremental")
@pytest.mark.parametrize("kind", KINDS)
def test_a_result_outlives_its_backend(kind: SnapshotKind, store: KeyedStore, tasks: Tasks) -> None:
    fill(tasks, 1)
    (running,) = tasks.snapshot([kind])
    running.result(WAIT)
    expected = tasks.model.content()
    tasks.dispose()
    assert reopened(tasks, 2, store.commit(travelled([running]))) == expected


@pytest.mark.quick("directory-0-full", "memory-1-incremental")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("after", [0, 1])
def test_a_snapshot_that_fails_leaves_nothing(
    kind: SnapshotKind, after: int, store: KeyedStore, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk or the object store is full at some file; the same backend's next snapshot is whole."""
    left, put = itertools.count(-after), obstore.put

    def full(*given: Any, **options: Any) -> None:
        if next(left) >= 0:
            raise OSError(28, "No space left on device")
        if options:
            put(*given, **options)

    fill(tasks, 1)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        patched.setattr(obstore, "put", full)
        (running,) = tasks.snapshot([kind])
        with pytest.raises(OSError, match="No space left"):
            running.result(WAIT)
    assert files(store) == set() and own_files(tasks) == {"database", "owner.lock"}
    assert reopened(tasks, 1, tasks.commit(kind)) == tasks.model.content()


@pytest.mark.quick("directory")
def test_waiting_for_a_result_may_end(tasks: Tasks, gate: Gate) -> None:
    fill(tasks, 1)
    gate.shut()
    (running,) = tasks.snapshot(["full"])
    with pytest.raises(TimeoutError):
        running.result(0)
    gate.open()
    assert running.result(WAIT).kind == "full"

"""Restores from keyed snapshots by other numbers of tasks, from parts of both kinds, with odd names."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from support.keyed.keyed_backends import keyed_store, local, refused
from support.keyed.keyed_gates import KINDS, fill, own_files, reopened
from support.keyed.keyed_model import Tasks, travelled
from support.places import DIRECTORY, MEMORY

from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotKind

pytest_plugins = ["support.keyed.keyed_fixtures"]
PLACES = (DIRECTORY, MEMORY)


@pytest.mark.quick("directory*")
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("full",), marks=pytest.mark.slow),
        ("incremental",),
        pytest.param(("incremental", "full"), marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def test_other_numbers_of_tasks(kinds: tuple[SnapshotKind, ...], tasks: Tasks) -> None:
    """3 tasks, then 2, 5 and 1: each takes over the rows of its key groups, and all continue to write."""
    for seed, number in enumerate((3, 2, 5, 1, 1)):
        assert reopened(tasks, number) == tasks.model.content()
        ranges = [task.backend.key_groups for task in tasks.tasks]
        assert [group for each in ranges for group in each] == list(range(128)) and len(ranges) == number
        fill(tasks, seed)
        tasks.commit(*kinds)


@pytest.mark.quick("directory-incremental-full")
@pytest.mark.parametrize("kinds", [("full",), ("incremental",), ("incremental", "full")], ids="-".join)
def test_a_task_restores_only_its_own_groups(kinds: tuple[SnapshotKind, ...], store: KeyedStore, tasks: Tasks) -> None:
    """A task restores its groups from parts whose borders differ, from parts of one group, and from several parts."""
    reopened(tasks, 3)
    fill(tasks, 1, range(60))
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


@pytest.mark.quick("directory-2-incremental")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [1, 2])
def test_states_of_odd_names(kind: SnapshotKind, number: int, store: KeyedStore, tmp_path: Path) -> None:
    """Names of states are names in RocksDB's own files, too."""
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


@pytest.mark.quick("memory")
def test_all_local_files_are_in_the_directory_for_them(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even the temporary files of a restore by rows are in that directory. Another disk may be too small, and files
    there would stay after a kill."""
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

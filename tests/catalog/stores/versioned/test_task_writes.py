"""Writes whose rows tasks resolve, against the plain-Python model and against `store.write` of the same rows."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.object_stores.doubles import memory_location
from support.places import vacuumed
from support.properties import few_or_many
from support.stores.versioned_checks import INTERVAL, as_table, check_everything, check_points, create, rows_of
from support.stores.versioned_model import Model
from support.stores.versioned_pair import Pair, small_thresholds

import statestore
from statestore.catalog.checks.verification import verify_store
from statestore.catalog.commits import new_files, publish_commit, record_timelines
from statestore.catalog.commits.parts import join_parts, publish_parts, resolve_part
from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.log.log_state import file_names
from statestore.catalog.log.storage import LocalStorage
from statestore.catalog.reads import segment_files
from statestore.catalog.stores.versioned import task_writes
from statestore.catalog.stores.versioned.natural_versioned import write_parts
from statestore.catalog.stores.versioned.task_writes import TaskWrite, task_write
from statestore.formats.errors import ConflictError, InvalidInputError, NotFoundError, StorageError

__all__ = ["small_thresholds"]  # a fixture: few rows reach compactions, too

Rows = list[tuple[str, int | None, int]]


@pytest.fixture(autouse=True, scope="module")
def small_parts() -> Iterator[None]:
    """Parts, ranges and indexes of few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_writes, "PART_ROWS", 4)
        patch.setattr(join_parts, "RANGE_ROWS", 3)
        patch.setattr(publish_parts, "INDEX_MIN_ROWS", 3)
        yield


def plan_of(store: Any, name: str = "write") -> TaskWrite:
    folder = StagingFolder(store._storage, f"staging/{name}")
    folder.make()
    plan = task_write(store._storage, store.spec)
    assert plan is not None
    return plan.in_folder(folder)


def stage(plan: TaskWrite, tasks: list[Rows], batch: int = 2) -> list[Any]:
    """Stage the rows of each task, the last task first: the order in which tasks end must not matter."""
    staged = [plan.stage((n,), iter(as_table(rows).to_batches(batch))) for n, rows in reversed(list(enumerate(tasks)))]
    return [part for parts in staged for part in parts]


class TaskPair(Pair):
    """A pair in which writes are made by tasks, with commits of others between their resolution and the commit."""

    def __init__(self, folder: str, retention: int | None, auto_compact: bool) -> None:
        super().__init__(folder, retention, auto_compact)
        self.writes = 0

    def tasks(self, argument: tuple[list[Rows], tuple[str, Any] | None]) -> None:
        tasks, between = argument
        self.commit(None)
        self.follow()
        self.writes += 1
        parts = stage(plan_of(self.store, str(self.writes)), tasks)
        if between is not None:
            self.step(*between)
        if not parts:
            return
        for rows in tasks:
            for row in rows:
                self.model.put(*row)
        write_parts(self.store, parts)
        self.model.commit()


keys = st.sampled_from(["a", "b", "c", "d"])
values = st.one_of(st.none(), st.integers(0, 9))
times = st.integers(0, 23)
puts = st.tuples(keys, values, times)
rows_of_tasks = st.lists(st.lists(puts, max_size=7), min_size=1, max_size=4)
commits = st.one_of(
    st.tuples(st.just("write"), st.lists(puts, min_size=1, max_size=5)), st.tuples(st.just("compact"), st.booleans())
)
steps = st.one_of(
    st.tuples(st.just("tasks"), st.tuples(rows_of_tasks, st.none())),
    st.tuples(st.just("tasks"), st.tuples(rows_of_tasks, st.none())),
    st.tuples(st.just("tasks"), st.tuples(rows_of_tasks, commits)),
    st.tuples(st.just("write"), st.lists(puts, min_size=1, max_size=6)),
    st.tuples(st.just("put"), puts),
    st.tuples(st.just("compact"), st.booleans()),
    st.tuples(st.just("reopen"), st.none()),
)


@pytest.mark.slow
@few_or_many(6, 30, st.lists(steps, min_size=1, max_size=12), st.sampled_from([None, None, 5, 0]), st.booleans())
def test_random_writes_of_tasks(program: list[tuple[str, Any]], retention: int | None, auto_compact: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pair = TaskPair(folder, retention, auto_compact)
        for name, argument in program:
            pair.step(name, argument)
        check_points(pair.store, pair.model)
        pair.step("commit", None)
        check_everything(pair.store, pair.model)
        pair.step("compact", True)
        check_everything(pair.store, pair.model)
        pair.store.close()


@pytest.fixture(params=["directory", "objects"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "directory":
        return str(tmp_path)
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "local"))
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "cache"))
    return memory_location().uri


@pytest.fixture
def store(warehouse: str) -> Iterator[Any]:
    create(statestore.connect(warehouse)).close()
    with statestore.connect(warehouse).open_store("s", auto_compact=False) as opened:
        yield opened


@pytest.fixture
def plan(store: Any) -> TaskWrite:
    return plan_of(store)


def is_local(store: Any) -> bool:
    return isinstance(store._storage, LocalStorage)


def history(store: Any) -> set[Any]:
    return set(rows_of(store.history(), *INTERVAL))


def problems(store: Any) -> Any:
    return verify_store(store._storage, "s").problems


def data_files(store: Any) -> list[str]:
    return [item.name for item in store._storage.list("segments/")]


def unnamed(store: Any) -> set[str]:
    """Data files that the newest version does not name."""
    return set(data_files(store)) - file_names(store._log_state)


def test_new_keys_are_committed_as_the_tasks_wrote_them(store: Any, plan: TaskWrite) -> None:
    parts = stage(plan, [[("a", 1, 1), ("b", 2, 2)], [("c", 3, 1), ("d", None, 2)]])
    staged = [name for part in parts for name in part.names]
    root = store._storage.root if is_local(store) else None
    inodes = set() if root is None else {(root / name).stat().st_ino for name in staged}
    assert write_parts(store, parts) == 1
    if root is None:
        assert {meta.name for meta in store._log_state.segments} <= set(staged)
    else:
        assert {path.stat().st_ino for path in (root / "segments").iterdir()} <= inodes
    assert unnamed(store) == set()
    assert history(store) == {("a", 1, 1, None), ("b", 2, 2, None), ("c", 3, 1, None)}


def test_a_key_of_several_tasks_has_one_timeline(store: Any, plan: TaskWrite) -> None:
    parts = stage(plan, [[("a", 1, 1), ("a", 3, 9), ("b", 5, 5)], [("a", 2, 5), ("a", 4, 9)], [("a", None, 7)]])
    write_parts(store, parts)
    assert history(store) == {("a", 1, 1, 5), ("a", 2, 5, 7), ("a", 4, 9, None), ("b", 5, 5, None)}
    assert problems(store) == ()


def test_the_last_task_counts_where_two_have_one_key_and_time(store: Any, plan: TaskWrite) -> None:
    write_parts(store, stage(plan, [[("a", 1, 5)], [("a", 2, 5)], [("b", 3, 5)]]))
    assert history(store) == {("a", 2, 5, None), ("b", 3, 5, None)}
    assert int(store._log_state.versions.rows[1]) == 2


def test_retention_refuses_by_the_order_of_the_tasks(tmp_path: Path) -> None:
    tasks: list[Rows] = [[("a", 1, 10)], [("b", 2, 3), ("b", 3, 3), ("c", 4, 8), ("d", None, 4)], [("e", 5, 1)]]
    model = Model(5)
    for row in [row for rows in tasks for row in rows]:
        model.put(*row)
    created: Any = create(statestore.connect(tmp_path), retention=5)
    with created as store:
        write_parts(store, stage(plan_of(store), tasks))
        assert store.dropped_records == model.dropped == 4
        assert history(store) == {("a", 1, 10, None), ("c", 4, 8, None)}
        assert store.observed_stream_time == model.stream_time


def test_a_commit_between_resolution_and_commit_is_part_of_the_result(store: Any, plan: TaskWrite) -> None:
    parts = stage(plan, [[("a", 1, 1), ("b", 1, 9)], [("c", 1, 1)]])
    store.write(as_table([("a", 2, 5), ("b", 2, 5), ("d", 2, 5)]))
    assert write_parts(store, parts) == 2
    expected = {("a", 1, 1, 5), ("a", 2, 5, None), ("b", 2, 5, 9), ("b", 1, 9, None)}
    assert history(store) == expected | {("c", 1, 1, None), ("d", 2, 5, None)}
    assert problems(store) == ()


def test_a_commit_that_takes_the_version_is_part_of_the_result(
    store: Any, plan: TaskWrite, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, others = publish_commit.publish, [("a", 2, 5)]

    def late(*arguments: Any) -> bool:
        if others:
            with statestore.connect(warehouse).open_store("s") as other:
                other.write(as_table([others.pop()]))
        return publish(*arguments)

    monkeypatch.setattr(publish_parts, "publish", late)
    parts = stage(plan, [[("a", 1, 1), ("b", 1, 1)], [("c", 1, 1)]])
    assert write_parts(store, parts) == 2
    assert history(store) == {("a", 1, 1, 5), ("a", 2, 5, None), ("b", 1, 1, None), ("c", 1, 1, None)}
    assert problems(store) == ()
    assert unnamed(store) == set()
    left = [item.name for item in store.vacuum(older_than=0, dry_run=True)]
    assert left and all(name.startswith("staging/") for name in left)


def test_a_transaction_is_committed_once(store: Any, plan: TaskWrite) -> None:
    parts = stage(plan, [[("a", 1, 1)]])
    assert write_parts(store, parts, ("job", 1)) == write_parts(store, parts, ("job", 1)) == 1
    assert history(store) == {("a", 1, 1, None)}


def test_keys_that_share_a_hash(store: Any, plan: TaskWrite, monkeypatch: pytest.MonkeyPatch) -> None:
    def colliding(columns: Any) -> Any:
        return np.array([int(key in "ab") for key in columns[0].to_pylist()], np.uint64)

    for module in (resolve_part, record_timelines, join_parts, new_files, segment_files):
        monkeypatch.setattr(module, "hash_keys", colliding)
    model = Model()
    writes: list[list[Rows]] = [
        [[("a", 1, 1), ("b", 2, 1)], [("c", 3, 1)]],
        [[("b", 4, 2)], [("a", 5, 2), ("d", 6, 1), ("c", None, 3)]],
    ]
    for tasks in writes:
        for row in [row for rows in tasks for row in rows]:
            model.put(*row)
        model.commit()
        write_parts(store, stage(plan, tasks))
        assert set(rows_of(store.history(), *INTERVAL, "_commit_version")) == model.history(store.version)


@pytest.mark.parametrize("rows", [{"k": ["a", None]}, {"timestamp": [1, None]}, {"_change_type": ["insert", "upsert"]}])
def test_wrong_rows_are_refused_by_the_task(plan: TaskWrite, rows: dict[str, Any]) -> None:
    table = {"k": ["a", "b"], "v": [1, 2], "timestamp": [1, 2], "_change_type": ["insert", "delete"], **rows}
    with pytest.raises(InvalidInputError, match=r"NULL_KEY|NULL_TIMESTAMP|WRONG_CHANGE_TYPE"):
        plan.stage((0,), iter(pa.table(table).to_batches()))


def test_a_folder_that_is_gone_is_reported(store: Any, plan: TaskWrite) -> None:
    parts = stage(plan, [[("a", 1, 1)], [("a", 2, 2)]])
    plan.storage.delete_many([name for part in parts for name in part.names])
    with pytest.raises(ConflictError, match="STAGED_FILE_MISSING"):
        write_parts(store, parts)
    if not is_local(store):
        return
    StagingFolder(plan.storage, plan.folder).remove()
    with pytest.raises(ConflictError, match="STAGED_FILE_MISSING"):
        stage(plan, [[("a", 1, 1)]])
    assert store.version == 0 and history(store) == set()


def test_parts_that_vacuum_may_take_for_those_of_a_dead_writer_are_not_committed(store: Any, plan: TaskWrite) -> None:
    parts = [replace(part, begun=part.begun - 13 * 3600) for part in stage(plan, [[("a", 1, 1)]])]
    if is_local(store):
        assert write_parts(store, parts) == 1
        return
    with pytest.raises(ConflictError, match="FILES_TOO_OLD"):
        write_parts(store, parts)


def test_parts_of_a_store_that_was_replaced_are_refused(store: Any, plan: TaskWrite, warehouse: str) -> None:
    parts = stage(plan, [[("a", 1, 1)]])
    with create(statestore.connect(warehouse), "other") as other, pytest.raises(NotFoundError, match="STORE_REPLACED"):
        write_parts(other, parts)  # type: ignore[arg-type]


@pytest.mark.parametrize("module", [publish_parts, join_parts])
def test_a_folder_that_vacuum_removes_during_the_commit_is_reported(
    store: Any, plan: TaskWrite, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    """Vacuum may remove what tasks staged while the commit joins it or names it."""
    target, name = (publish_parts, "_in_the_store") if module is publish_parts else (StagingFolder, "copied")
    go_on = getattr(target, name)

    def after_vacuum(*arguments: Any) -> Any:
        vacuumed(store)
        return go_on(*arguments)

    parts = stage(plan, [[("a", 1, 1)], [("a", 2, 2)]])
    monkeypatch.setattr(target, name, after_vacuum)
    if not is_local(store) and module is join_parts:  # has copies of all that it needs
        assert write_parts(store, parts) == 1 and problems(store) == ()
        return
    with pytest.raises(ConflictError, match="STAGED_FILE_MISSING"):
        write_parts(store, parts)
    assert store.refresh() == 0 and data_files(store) == []


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damaged_staged_files_are_refused(store: Any, plan: TaskWrite, damage: str) -> None:
    parts = stage(plan, [[("a", 1, 1), ("b", 2, 2)], [("a", 3, 3)]])
    for part in parts:
        for name in part.names:
            data = bytearray(plan.storage.read(name))
            data[len(data) // 2] ^= 1
            plan.storage.delete(name)
            plan.storage.create_many({name: bytes(data if damage == "flip" else data[:-9])})
    with pytest.raises(statestore.CorruptError, match=r"SEGMENT_CORRUPT|SEGMENT_TRUNCATED"):
        write_parts(store, parts)
    assert store.refresh() == 0


@pytest.mark.parametrize("call", ["link", "fsync", "posix_fallocate"])
def test_a_disk_that_fails_leaves_nothing(
    store: Any, plan: TaskWrite, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    if call != "posix_fallocate" and not is_local(store):
        pytest.skip("object stores have no such call")
    store.write(as_table([("a", 0, 0)]))
    parts = stage(plan, [[("a", 1, 1), ("b", 2, 2)], [("a", 3, 3)], [("c", 1, 1)]])
    before = data_files(store)

    def fail(*arguments: Any, **named: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, call, fail)
        with pytest.raises(StorageError, match="DISK_FAILED"):
            write_parts(store, parts)
    assert data_files(store) == before and store.refresh() == 1
    assert write_parts(store, parts) == 2
    assert history(store) == {("a", 0, 0, 1), ("a", 1, 1, 3), ("a", 3, 3, None), ("b", 2, 2, None), ("c", 1, 1, None)}


def test_vacuum_removes_what_a_killed_commit_left(store: Any, plan: TaskWrite, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*arguments: Any) -> bool:
        raise KeyboardInterrupt

    parts = stage(plan, [[("a", 1, 1), ("b", 1, 1)], [("a", 2, 2)]])
    with monkeypatch.context() as dying:
        dying.setattr(publish_parts, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            write_parts(store, parts)
    assert data_files(store)
    vacuumed(store)
    assert not data_files(store) and not store._storage.list("staging/")
    if is_local(store):
        assert not (store._storage.root / "staging").exists()
    assert store.version == 0


def test_a_store_with_a_hot_tier_resolves_no_rows_in_tasks(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store(
        "live", kind="key_value", key={"k": "string"}, value={"v": "bigint"}
    ) as live:
        assert task_write(live._storage, live.spec) is None

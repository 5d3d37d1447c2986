"""Writes whose rows tasks resolve, against the plain-Python model and against `store.write` of the same rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from support.properties import few_or_many
from support.stores.versioned_checks import as_table, check_everything, check_points
from support.stores.versioned_pair import Pair, small_thresholds

from statestore.catalog.commits import join_parts, publish_parts
from statestore.catalog.stores.versioned import task_writes
from statestore.catalog.stores.versioned.task_writes import TaskWrite, task_write
from statestore.catalog.stores.versioned.versioned_store import write_parts

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


def plan_of(store: Any, folder: Path) -> TaskWrite:
    folder.mkdir(parents=True)
    plan = task_write(Path(store._storage.root), store.spec)
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
        self.folder = Path(folder)
        self.writes = 0

    def tasks(self, argument: tuple[list[Rows], tuple[str, Any] | None]) -> None:
        tasks, between = argument
        self.commit(None)
        self.follow()
        self.writes += 1
        parts = stage(plan_of(self.store, self.folder / "s" / "staging" / str(self.writes)), tasks)
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


@few_or_many(40, 300, st.lists(steps, min_size=1, max_size=12), st.sampled_from([None, None, 5, 0]), st.booleans())
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

"""Statements find the same rows in tasks as in one process, in the same order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.flink.fixtures import fixture, manifest
from support.stores.attempted_tasks import AttemptedTasks

import statestore
from statestore.catalog.upkeep.ranges import task_runs
from statestore.connector.edit import edited_state
from statestore.connector.edit.edit import Edit

AGG = "spark4.3.0-agg__hdfs"


def savepoint() -> Path:
    (found,) = [each["path"] for each in manifest("hashmap")["snapshots"] if "savepoint" in each["path"]][-1:]
    return fixture("hashmap") / str(found)


SOURCES: dict[str, Callable[[], Any]] = {
    "agg": lambda: checkpoint_path(AGG),
    "variables": lambda: checkpoint_path("spark4.3.0-twsttl__rkcl"),
    "savepoint": savepoint,
}
IN_TASKS = {
    "update": ("agg", "UPDATE state SET value.count = value.count + 1 WHERE value.sum > 500"),
    "delete": ("agg", "DELETE FROM state AS s WHERE S.key.k LIKE 'key-1%' OR s.value.count IS NULL"),
    "none": ("agg", "DELETE FROM state WHERE value.sum < -1000000"),
    "all, by a condition": ("agg", "DELETE FROM state WHERE value.count < 1000"),
    "what others left": (
        "agg",
        "UPDATE state SET value.count = 77 WHERE key.k = 'key-00-';"
        "INSERT INTO state SELECT {'k': 'new'}, value FROM state WHERE key.k = 'key-00-';"
        "UPDATE state SET value.sum = 1 WHERE value.count = 77;"
        "DELETE FROM state WHERE value.count = 3",
    ),
    "rows of a list": ("savepoint", "DELETE FROM \"kv-long.history\" WHERE value::VARCHAR LIKE '%1%'"),
}
IN_THIS_PROCESS = {
    "a query": ("agg", "DELETE FROM state WHERE value.sum > (SELECT avg(value.sum) FROM state)"),
    "another table": ("agg", "DELETE FROM state USING (SELECT 3 AS n) AS o WHERE value.count = o.n"),
    "with": ("agg", "WITH o AS (SELECT 3 AS n) DELETE FROM state WHERE value.count IN (SELECT n FROM o)"),
    "the moment": ("agg", "DELETE FROM state WHERE value.sum > 500 AND now() > TIMESTAMPTZ '2020-01-01 00:00:00Z'"),
    "today": ("agg", "DELETE FROM state WHERE value.sum > 500 AND current_date > DATE '2020-01-01'"),
    "everything": ("agg", "UPDATE state SET value.count = 1"),
    "few keys": ("agg", "DELETE FROM state WHERE key.k IN ('key-00-', 'key-16-')"),
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(task_runs, "_made", [lambda session: session])
    return Told(parallelism=1, attempts=2)


@dataclass
class Told(AttemptedTasks):
    """Tasks of which the names of the works are kept."""

    works: list[str] = field(default_factory=list)

    def run(self, work: Any, count: int) -> list[str]:
        self.works.append(work.func.__name__)
        return super().run(work, count)


def changes(edit: Edit) -> list[Any]:
    return [(each.state, each.removed.to_pylist(), each.added.to_pylist()) for each in edit.edits()]


@pytest.mark.parametrize("case", [*IN_TASKS, *IN_THIS_PROCESS])
def test_the_same_rows_change(case: str, runs: Any) -> None:
    source, statements = {**IN_TASKS, **IN_THIS_PROCESS}[case]
    found = []
    for spark in (None, runs):
        edit = statestore.edit(SOURCES[source](), spark=spark)
        edit.sql(statements)
        found.append(changes(edit))
    assert repr(found[0]) == repr(found[1])
    assert ("_chosen_in_share" in runs.works) is (case in IN_TASKS)
    assert bool(found[0]) is (case != "none")


def test_an_error_of_a_row_is_told(runs: Any) -> None:
    edit = statestore.edit(checkpoint_path(AGG), spark=runs)
    for statement, told in (
        ("DELETE FROM state WHERE key.k::INT = 3", "INVALID_SQL.*Could not convert string"),
        ("DELETE FROM state WHERE key.nothing = 3", "INVALID_SQL|COLUMN_NOT_FOUND"),
    ):
        with pytest.raises(statestore.StateStoreError, match=told):
            edit.sql(statement)
    assert not edit.edits()


@pytest.mark.parametrize("case", ["update", "rows of a list"])
def test_units_that_are_too_many_to_be_looked_up(case: str, runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts are read for them, by tasks, and rows keep the order of the state."""
    monkeypatch.setattr(edited_state, "MAX_LOOKUPS", 1)
    source, statement = IN_TASKS[case]
    found = []
    for spark in (None, runs):
        edit = statestore.edit(SOURCES[source](), spark=spark)
        edit.sql(statement)
        found.append(changes(edit))
    assert repr(found[0]) == repr(found[1])
    assert runs.works == ["_chosen_in_share", "_rows_of_share"]


def test_rows_of_a_filter_are_found_in_tasks(runs: Any) -> None:
    found = []
    for spark in (None, runs):
        edit = statestore.edit(savepoint(), spark=spark)
        assert edit.table("kv-long.balance").delete(filter=[("value", ">", 3)]) > 3
        found.append(changes(edit))
    assert found[0] == found[1] and "_rows_of_share" in runs.works

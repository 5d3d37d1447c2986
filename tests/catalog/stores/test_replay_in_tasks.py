"""Rebuilding in tasks: the new store has the history that a rebuild in one process gives it, in one commit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from support.stores.attempted_tasks import AttemptedTasks
from support.stores.versioned_checks import INTERVAL, as_table, rows_of
from support.stores.versioned_model import Model

import statestore
from statestore.catalog.stores.versioned import replay_in_tasks
from statestore.catalog.upkeep.ranges import task_runs


@pytest.fixture(autouse=True)
def tasks(monkeypatch: pytest.MonkeyPatch) -> AttemptedTasks:
    made = AttemptedTasks(parallelism=3, attempts=2, counts=1)
    monkeypatch.setattr(task_runs, "_made", [lambda session: session])
    monkeypatch.setattr(replay_in_tasks, "MIN_RANGE_ROWS", 4)
    return made


def written(folder: Path, late: bool = False, **options: Any) -> Model:
    """A store with deletes and records of one time, and its model; times ascend unless records are ``late``."""
    chosen, model = random.Random(3), Model()
    with statestore.connect(folder).create_store("s", key={"k": "string"}, value={"v": "bigint"}, **options) as store:
        for number in range(8):
            times = sorted(chosen.randrange(24) if late else 3 * number + chosen.randrange(3) for _ in range(25))
            rows = [
                (f"k{chosen.randrange(20)}", None if chosen.random() < 0.2 else chosen.randrange(9), time)
                for time in times
            ]
            for row in rows:
                model.put(*row)
            model.commit()
            store.write(as_table(rows))
    return model


def test_the_values_of_every_moment(tmp_path: Path, tasks: AttemptedTasks) -> None:
    model = written(tmp_path)
    with statestore.connect(tmp_path).rebuild("s", key_groups=7, spark=tasks) as store:
        assert tasks.jobs == [3]
        assert store.spec.key_groups == 7 and store.version == 1
        assert set(rows_of(store.history(), *INTERVAL)) == {row[:4] for row in model.history(8)}
        for time in range(-1, 25):
            assert set(rows_of(store.scan(as_of=time), *INTERVAL)) == model.state_at(8, time), f"as of {time}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]
    assert not (tmp_path / "s" / "staging").exists()
    [verified] = statestore.verify(tmp_path)
    assert verified.ok and verified.unreferenced == ()


def test_late_records_are_replayed_as_in_one_process(tmp_path: Path, tasks: AttemptedTasks) -> None:
    found = []
    for folder, session in (("tasks", tasks), ("one", None)):
        written(tmp_path / folder, late=True)
        with statestore.connect(tmp_path / folder).rebuild("s", spark=session) as store:
            found.append(sorted(map(repr, rows_of(store.history(), *INTERVAL, "_commit_version"))))
    assert found[0] == found[1] != []


def test_a_history_that_has_expired(tmp_path: Path, tasks: AttemptedTasks) -> None:
    model = written(tmp_path)
    with statestore.connect(tmp_path).open_store("s") as store:
        store.expire(before=11)
    with statestore.connect(tmp_path).rebuild("s", spark=tasks) as store:
        for time in range(11, 25):
            found, expected = set(rows_of(store.scan(as_of=time), "k", "v")), model.state_at(8, time)
            assert found == {row[:2] for row in expected}, f"as of {time}"
    assert tasks.jobs == [3]


@pytest.mark.parametrize("options", [{"history_retention": 5}, {"kind": "key_value"}])
def test_stores_of_which_the_order_counts_are_replayed_in_this_process(
    tmp_path: Path, tasks: AttemptedTasks, options: dict[str, Any]
) -> None:
    written(tmp_path / "tasks", late=True)
    written(tmp_path / "one", late=True)
    answers = []
    for folder, session in (("tasks", tasks), ("one", None)):
        with statestore.connect(tmp_path / folder).rebuild("s", spark=session, **options) as store:
            answers.append(sorted(rows_of(store.scan(), "k", "v")))
    assert answers[0] == answers[1] != [] and tasks.jobs == []


def test_a_failing_task_leaves_the_store_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = written(tmp_path)

    class Failing(AttemptedTasks):
        def run(self, work: task_runs.Work, count: int) -> list[str]:
            super().run(work, count)
            raise RuntimeError("the cluster is gone")

    with pytest.raises(RuntimeError, match="gone"):
        statestore.connect(tmp_path).rebuild("s", spark=Failing(parallelism=3))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s"]
    with statestore.connect(tmp_path).open_store("s") as store:
        assert set(rows_of(store.history(), *INTERVAL)) == {row[:4] for row in model.history(8)}

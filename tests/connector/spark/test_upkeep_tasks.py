"""Compaction, expiry and rebuilding in the tasks of a session: the same answers, one commit, and no file left."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from support.parameters import mostly_slow
from support.places import PLACES, below, left_by_tasks, unnamed, vacuumed, warehouse_in
from support.stores.versioned_checks import as_table, create, rows_of

import statestore
from statestore.catalog.stores.versioned.versioned_store import VersionedStore
from statestore.catalog.upkeep import compaction_rules
from statestore.catalog.upkeep.compaction_rules import Rules
from statestore.catalog.upkeep.ranges import task_runs
from statestore.connector.spark.upkeep_tasks import UpkeepTasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS, COMMITS, ROWS = 300, 8, 400


class Truth:
    """The values of each key at every moment."""

    def __init__(self) -> None:
        self.random = random.Random(7)
        self.clock = 0
        self.values: dict[str, dict[int, int | None]] = {}

    def rows(self) -> list[tuple[str, int | None, int]]:
        rows = []
        for _ in range(ROWS):
            self.clock += 1
            time = self.random.randrange(self.clock) if self.random.random() < 0.05 else self.clock
            key, value = f"k{self.random.randrange(KEYS)}", None if self.random.random() < 0.05 else self.clock
            rows.append((key, value, time))
            self.values.setdefault(key, {})[time] = value
        return rows

    def at(self, time: int) -> set[tuple[str, int]]:
        found = ((key, [t for t in values if t <= time], values) for key, values in self.values.items())
        valid = ((key, values[max(begun)]) for key, begun, values in found if begun)
        return {(key, value) for key, value in valid if value is not None}

    def count(self) -> int:
        """The number of intervals in which a key has a value of one record."""
        return sum(value is not None for values in self.values.values() for value in values.values())

    def check(self, store: VersionedStore, first: int = 0) -> None:
        for time in range(first, self.clock + 1, 331):
            assert set(rows_of(store.scan(as_of=time), "k", "v")) == self.at(time), f"as of {time}"


@pytest.fixture
def truth() -> Truth:
    return Truth()


@pytest.fixture(params=PLACES)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return warehouse_in(request.param, request, tmp_path)


@pytest.fixture
def store(warehouse: str, truth: Truth, monkeypatch: pytest.MonkeyPatch) -> Iterator[VersionedStore]:
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(task_rows=100))
    with create(statestore.connect(warehouse)) as made:
        made.auto_compact = False
        for _ in range(COMMITS):
            made.write(as_table(truth.rows()))
        yield made


def test_compaction_then_expiry(spark: SparkSession, store: VersionedStore, truth: Truth, warehouse: str) -> None:
    assert store.compact(full=True, spark=spark) == COMMITS + 1
    assert len({m.key_groups for m in store._log_state.segments if m.role == "closed"}) > 1
    truth.check(store)
    assert unnamed(below(warehouse, "s")) == []
    store.write(as_table(truth.rows()))
    horizon = truth.clock // 2
    store.expire(before=horizon, spark=spark)
    truth.check(store, horizon)
    assert [row["operation"] for row in _versions(warehouse)][-2:] == ["expire", "compact"]


def _versions(warehouse: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = statestore.inspect(warehouse).table("s$versions").scan().read_all().to_pylist()
    return sorted(found, key=lambda row: row["version"])


@pytest.fixture
def tasks_of(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of tasks of the jobs that ran; few rows are worth a task."""
    run, jobs = UpkeepTasks.run, []

    def counting(tasks: UpkeepTasks, work: task_runs.Work, count: int) -> list[str]:
        jobs.append(count)
        return run(tasks, work, count)

    monkeypatch.setattr(UpkeepTasks, "run", counting)
    monkeypatch.setattr(compaction_rules, "DEFAULT", Rules(task_rows=100))
    return jobs


@pytest.mark.parametrize("retention", mostly_slow([None, 10_000], [10_000]))
def test_a_rebuild(
    spark: SparkSession,
    store: VersionedStore,
    truth: Truth,
    warehouse: str,
    tasks_of: list[int],
    retention: int | None,
) -> None:
    store.close()
    with statestore.connect(warehouse).rebuild("s", key_groups=16, history_retention=retention, spark=spark) as rebuilt:
        assert len(tasks_of) == 2 and tasks_of[0] > 1
        assert rebuilt.spec.key_groups == 16
        assert [row["operation"] for row in _versions(warehouse)] == ["create", "write", "compact"]
        truth.check(rebuilt)
    assert unnamed(below(warehouse, "s")) == [] and statestore.connect(warehouse).stores() == ["s"]


@pytest.mark.quick("directory-worker")
@pytest.mark.parametrize("death", ["error", "worker", "executor"])
def test_a_task_of_a_rebuild_that_dies_at_first(
    death: str,
    spark: SparkSession,
    store: VersionedStore,
    truth: Truth,
    warehouse: str,
    tasks_of: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The files of first attempts make no second row, and none of them is left, whoever removes it.

    In one process there is no executor that can die alone.
    """
    store.close()
    run, catalog = UpkeepTasks.run, statestore.connect(warehouse)
    is_cluster = str(spark.sparkContext.master).startswith("local-cluster")
    dying = _failing_at_first if death == "error" else partial(_killed_at_first, death == "executor" and is_cluster)
    monkeypatch.setattr(UpkeepTasks, "run", lambda tasks, work, count: run(tasks, dying(work), count))
    if is_cluster:
        catalog.rebuild("s", key_groups=16, spark=spark).close()
    else:
        with pytest.raises((PySparkException, Py4JJavaError)):
            catalog.rebuild("s", key_groups=16, spark=spark)
    assert len(tasks_of) == (2 if is_cluster else 1)
    with catalog.open_store("s", auto_compact=False) as found:
        assert found.spec.key_groups == (16 if is_cluster else 128)
        assert left_by_tasks(below(warehouse, "s"), found) == []
        truth.check(found)
        assert found.history().read_all().num_rows == truth.count()


@pytest.fixture
def later_write(warehouse: str, truth: Truth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another writer commit when the tasks of a job have ended, before their upkeep does."""
    run = UpkeepTasks.run

    def then_write(tasks: UpkeepTasks, work: task_runs.Work, count: int) -> list[str]:
        answers = run(tasks, work, count)
        with statestore.connect(warehouse).open_store("s", auto_compact=False) as other:
            other.write(as_table(truth.rows()))
        return answers

    monkeypatch.setattr(UpkeepTasks, "run", then_write)


@pytest.mark.usefixtures("later_write")
def test_a_rebuild_that_a_writer_overtakes_in_its_tasks(
    spark: SparkSession,
    store: VersionedStore,
    truth: Truth,
    warehouse: str,
    tasks_of: list[int],
) -> None:
    store.close()
    catalog = statestore.connect(warehouse)
    with pytest.raises(statestore.ConflictError, match="REBUILD_OVERTAKEN"):
        catalog.rebuild("s", key_groups=16, spark=spark)
    with catalog.open_store("s", auto_compact=False) as found:
        assert (found.version, found.spec.key_groups) == (COMMITS + len(tasks_of), 128)
        truth.check(found)
        assert vacuumed(found) == []


@pytest.mark.slow
@pytest.mark.usefixtures("later_write")
def test_a_writer_goes_on_meanwhile(spark: SparkSession, store: VersionedStore, truth: Truth, warehouse: str) -> None:
    assert store.compact(full=True, spark=spark) == COMMITS + 2
    truth.check(store)
    assert any(store._log_state.closures.values())  # of the other writer, on rows that moved
    assert unnamed(below(warehouse, "s")) == []


@pytest.mark.slow
def test_a_task_that_fails_at_first(
    spark: SparkSession, store: VersionedStore, truth: Truth, warehouse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster repeats the task. A master without retries fails the job, and the store stays as it was."""
    run = UpkeepTasks.run

    def dying(tasks: UpkeepTasks, work: task_runs.Work, count: int) -> list[str]:
        return run(tasks, _failing_at_first(work), count)

    monkeypatch.setattr(UpkeepTasks, "run", dying)
    if str(spark.sparkContext.master).startswith("local-cluster"):
        assert store.compact(full=True, spark=spark) == COMMITS + 1
    else:
        with pytest.raises(PySparkException):
            store.compact(full=True, spark=spark)
        assert store.refresh() == COMMITS
    assert left_by_tasks(below(warehouse, "s"), store) == []
    truth.check(store)


def _failing_at_first(work: task_runs.Work) -> task_runs.Work:
    def failing(number: int) -> str:
        from pyspark import TaskContext

        context = TaskContext.get()
        answer = work(number)
        if context is None or context.attemptNumber() == 0:
            raise RuntimeError("the first attempt fails when its files are written")
        return answer

    return failing


def _killed_at_first(executor: bool, work: task_runs.Work) -> task_runs.Work:
    def dying(number: int) -> str:
        from pyspark import TaskContext

        context = TaskContext.get()
        answer = work(number)
        if context is None or context.attemptNumber() == 0:
            daemon = os.getppid()
            status = Path(f"/proc/{daemon}/status").read_text()
            parent = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))
            os.kill(parent if executor else os.getpid(), signal.SIGKILL)
            signal.pause()  # the worker of a dead executor ends with it
        return answer

    return dying


def test_an_error_of_a_task_is_the_error_of_the_call(spark: SparkSession, store: VersionedStore) -> None:
    segment = max(store._log_state.segments, key=lambda meta: meta.rows)
    data = bytearray(store._storage.read(segment.name))
    data[len(data) // 2] ^= 1
    store._storage.delete(segment.name)
    store._storage.create_many({segment.name: bytes(data)})
    with pytest.raises(statestore.CorruptError, match="SEGMENT_CORRUPT"):
        store.compact(full=True, spark=spark)


@pytest.mark.slow
def test_verification_reports_what_one_process_reports(
    spark: SparkSession, store: VersionedStore, warehouse: str
) -> None:
    catalog = statestore.connect(warehouse)
    assert catalog.verify("s", spark=spark) == catalog.verify("s")
    assert catalog.verify("s", spark=spark).ok
    largest, other, *_ = sorted(store._log_state.segments, key=lambda meta: -meta.rows)
    data = bytearray(store._storage.read(largest.name))
    data[len(data) // 2] ^= 1
    store._storage.delete_many([largest.name, other.name])
    store._storage.create_many({largest.name: bytes(data)})
    found = catalog.verify("s", spark=spark)
    assert {problem.code for problem in found.problems} == {"SEGMENT_CORRUPT", "FILE_NOT_FOUND"}
    assert found == catalog.verify("s")


def test_what_is_no_session_is_refused(store: VersionedStore, warehouse: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.compact(spark="local[2]"),
        lambda: store.expire(before=1000, spark="local[2]"),
        lambda: statestore.connect(warehouse).verify("s", spark="local[2]"),
    ]
    for call in calls:
        with pytest.raises(statestore.InvalidInputError, match="WRONG_INPUT"):
            call()
    assert store.refresh() == COMMITS

"""Compaction and expiry in the tasks of a session: the same answers, one commit, and no file left behind."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from support.stores.versioned_checks import as_table, create, rows_of

import statestore
from statestore.catalog.stores.versioned import replay_in_tasks
from statestore.catalog.stores.versioned.versioned_kind import VersionedStore
from statestore.catalog.upkeep.ranges import compact_ranges, task_runs
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

    def check(self, store: VersionedStore, first: int = 0) -> None:
        for time in range(first, self.clock + 1, 331):
            assert set(rows_of(store.scan(as_of=time), "k", "v")) == self.at(time), f"as of {time}"


@pytest.fixture
def truth() -> Truth:
    return Truth()


@pytest.fixture
def store(tmp_path: Path, truth: Truth, monkeypatch: pytest.MonkeyPatch) -> Iterator[VersionedStore]:
    monkeypatch.setattr(compact_ranges, "MIN_RANGE_ROWS", 100)
    with create(statestore.connect(tmp_path)) as made:
        made.auto_compact = False
        for _ in range(COMMITS):
            made.write(as_table(truth.rows()))
        yield made


def unnamed(folder: Path) -> list[str]:
    [verified] = statestore.verify(folder)
    assert verified.ok, verified.problems
    return [name for name, _ in verified.unreferenced]


def test_compaction_then_expiry(spark: SparkSession, store: VersionedStore, truth: Truth, tmp_path: Path) -> None:
    assert store.compact(full=True, spark=spark) == COMMITS + 1
    assert len({m.key_groups for m in store._log_state.segments if m.role == "closed"}) > 1
    truth.check(store)
    assert unnamed(tmp_path) == []
    store.write(as_table(truth.rows()))
    horizon = truth.clock // 2
    store.expire(before=horizon, spark=spark)
    truth.check(store, horizon)
    assert [row["operation"] for row in _versions(tmp_path)][-2:] == ["expire", "compact"]


def _versions(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = statestore.inspect(folder).table("s$versions").scan().read_all().to_pylist()
    return sorted(found, key=lambda row: row["version"])


def test_a_rebuild(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_in_tasks, "MIN_RANGE_ROWS", 100)
    rows = [(f"k{n % 90}", None if n % 17 == 0 else n, n) for n in range(1_000)]
    with create(statestore.connect(tmp_path)) as made:
        for start in range(0, 1_000, 250):
            made.write(as_table(rows[start : start + 250]))
    with statestore.connect(tmp_path).rebuild("s", key_groups=16, spark=spark) as store:
        for time in range(0, 1_000, 83):
            newest = {key: value for key, value, moment in rows if moment <= time}
            expected = {(key, value) for key, value in newest.items() if value is not None}
            assert set(rows_of(store.scan(as_of=time), "k", "v")) == expected, f"as of {time}"
    assert unnamed(tmp_path) == [] and [path.name for path in tmp_path.iterdir()] == ["s"]


def test_a_writer_goes_on_meanwhile(
    spark: SparkSession, store: VersionedStore, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = UpkeepTasks.run

    def then_write(tasks: UpkeepTasks, work: task_runs.Work, count: int) -> list[str]:
        answers = run(tasks, work, count)
        with statestore.connect(tmp_path).open_store("s", auto_compact=False) as other:
            other.write(as_table(truth.rows()))
        return answers

    monkeypatch.setattr(UpkeepTasks, "run", then_write)
    assert store.compact(full=True, spark=spark) == COMMITS + 2
    truth.check(store)
    assert any(store._log_state.closures.values())  # of the other writer, on rows that moved
    assert unnamed(tmp_path) == []


def test_a_task_that_fails_at_first(
    spark: SparkSession, store: VersionedStore, truth: Truth, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    assert unnamed(tmp_path) == []
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


def test_an_error_of_a_task_is_the_error_of_the_call(spark: SparkSession, store: VersionedStore) -> None:
    segment = max(store._log_state.segments, key=lambda meta: meta.rows)
    path = Path(store._storage.root) / segment.name  # type: ignore[attr-defined]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(statestore.CorruptError, match="SEGMENT_CORRUPT"):
        store.compact(full=True, spark=spark)


def test_what_is_no_session_is_refused(store: VersionedStore) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.compact(spark="local[2]"),
        lambda: store.expire(before=1000, spark="local[2]"),
    ]
    for call in calls:
        with pytest.raises(statestore.InvalidInputError, match="WRONG_INPUT"):
            call()
    assert store.refresh() == COMMITS

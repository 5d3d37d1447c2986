"""Edits in the tasks of a session: the same rows as without it, one target, and nothing beside it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.parameters import mostly_slow

import statestore
from statestore.catalog.upkeep.ranges.task_runs import Read, Work, Write
from statestore.connector.spark.upkeep_tasks import UpkeepTasks
from statestore.formats.error_codes import ErrorCode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = "spark4.3.0-agg__hdfs"
SHUFFLE = 0
"""The place of the shuffle among jobs that die: it is none of those that are counted."""
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "edit": ("UPDATE state SET value.count = 7 WHERE key.k < 'key-2'; DELETE FROM state WHERE value.count = 3", {}),
    "rescale": ("", {"settings": {"partitions": "5"}}),
}
"""The source has two partitions, so that rows of each go to all five."""


def edit(target: Path, case: str, spark: SparkSession | None) -> list[dict[str, Any]]:
    """Make a target; return its rows in an order of their own."""
    statements, given = CASES[case]
    with statestore.edit(checkpoint_path(SOURCE), target, spark=spark, **given) as begun:
        if statements:
            begun.sql(statements)
    rows = statestore.inspect(str(target))["state"].scan().to_arrow().to_pylist()
    return sorted(({name: row[name] for name in ("key", "value")} for row in rows), key=repr)


@pytest.mark.parametrize("case", mostly_slow(CASES, quick=("edit",)))
def test_tasks_make_the_target(case: str, spark: SparkSession, tmp_path: Path) -> None:
    assert edit(tmp_path / "tasks", case, spark) == edit(tmp_path / "threads", case, None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tasks", "threads"]


def dying(how: str, job: int, is_cluster: bool) -> Callable[[UpkeepTasks, Work, int], list[str]]:
    """Return a run of tasks of which the first attempts of one job die behind their work."""
    run, jobs = UpkeepTasks.run, []

    def dying_run(tasks: UpkeepTasks, work: Work, count: int) -> list[str]:
        jobs.append(count)
        return run(tasks, partial(_dying_at_first, how, is_cluster, work) if len(jobs) == job else work, count)

    return dying_run


def dying_move(how: str, is_cluster: bool) -> Callable[[UpkeepTasks, Read, int, Write, int], list[str]]:
    """Return a shuffle of which the first attempts to write die behind their work."""
    move = UpkeepTasks.move

    def dying_writes(tasks: UpkeepTasks, read: Read, count: int, write: Write, destinations: int) -> list[str]:
        return move(tasks, read, count, partial(_dying_at_first, how, is_cluster, write), destinations)

    return dying_writes


def _dying_at_first(how: str, is_cluster: bool, work: Callable[..., str], number: int, *rows: Any) -> str:
    from pyspark import TaskContext

    context = TaskContext.get()
    answer = work(number, *rows)
    if context is None or context.attemptNumber() == 0:
        if how == "error":
            raise RuntimeError("the first attempt fails when its files are written")
        daemon = os.getppid()
        status = Path(f"/proc/{daemon}/status").read_text()
        parent = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))
        os.kill(parent if how == "executor" and is_cluster else os.getpid(), signal.SIGKILL)
        signal.pause()  # the worker of a dead executor ends with it
    return answer


@pytest.mark.parametrize(
    ("how", "case", "job"),
    mostly_slow(
        [("error", "edit", 1), ("worker", "rescale", 1), ("executor", "edit", 1), ("executor", "rescale", SHUFFLE)],
        quick=[("error", "edit", 1)],
    ),
)
def test_tasks_that_die_at_first(
    how: str, case: str, job: int, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster repeats them. A master without retries fails, and there is no target: in one process no executor can
    die alone."""
    is_cluster = str(spark.sparkContext.master).startswith("local-cluster")
    if job == SHUFFLE:
        monkeypatch.setattr(UpkeepTasks, "move", dying_move(how, is_cluster))
    else:
        monkeypatch.setattr(UpkeepTasks, "run", dying(how, job, is_cluster))
    if is_cluster:
        found = edit(tmp_path / "target", case, spark)
        assert found == edit(tmp_path / "threads", case, None)
        (tmp_path / "threads").rename(tmp_path / "other")
    else:
        with pytest.raises((PySparkException, Py4JJavaError)):
            edit(tmp_path / "target", case, spark)
    assert sorted(path.name for path in tmp_path.iterdir()) == (["other", "target"] if is_cluster else [])


def test_an_error_of_a_task_is_the_error_of_the_call(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = UpkeepTasks.run

    def without_folder(tasks: UpkeepTasks, work: Work, count: int) -> list[str]:
        for attempts in tmp_path.glob(".target.edit/*/attempts"):
            attempts.rmdir()
        return run(tasks, work, count)

    monkeypatch.setattr(UpkeepTasks, "run", without_folder)
    with pytest.raises(statestore.UnsupportedError, match=r"UNSUPPORTED_PATH.*name a target in a file system"):
        edit(tmp_path / "target", "rescale", spark)
    assert not list(tmp_path.iterdir())


def test_rows_of_each_destination_come_to_one_task(spark: SparkSession) -> None:
    """All rows come, from any task, and an answer of those without rows; an error of a read is raised."""

    def read(number: int) -> Iterator[pa.RecordBatch]:
        to = pa.array([(number * 7 + row) % 11 for row in range(20)], pa.int32())
        cells = pa.array([b"%d-%d" % (number, row) for row in range(20)], pa.binary())
        yield pa.RecordBatch.from_arrays([to, cells, cells], names=["destination", "key", "value"])
        if number == failing:
            raise statestore.UnsupportedError(ErrorCode.EDIT_UNSUPPORTED, "this row has no place")

    def write(destination: int, rows: Iterator[pa.RecordBatch]) -> str:
        found = [pair for batch in rows for pair in zip(*(each.to_pylist() for each in batch.columns), strict=True)]
        assert all(key == value for key, value in found)
        return f"{destination}: {sorted(key.decode() for key, _ in found)}"

    def expected(destination: int) -> str:
        keys = [f"{number}-{row}" for number in range(3) for row in range(20) if (number * 7 + row) % 11 == destination]
        return f"{destination}: {sorted(keys)}"

    failing = -1
    assert UpkeepTasks(spark).move(read, 3, write, 13) == [expected(destination) for destination in range(13)]
    failing = 2
    with pytest.raises(statestore.UnsupportedError, match=r"EDIT_UNSUPPORTED.*no place"):
        UpkeepTasks(spark).move(read, 3, write, 13)

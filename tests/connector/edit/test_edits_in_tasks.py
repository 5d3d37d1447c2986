"""The edits of every engine in tasks, which run twice in this process, make the targets that threads make."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.flink.fixtures import fixture, manifest
from support.kafka.unpacked import stores_file, unpack
from support.parameters import mostly_slow
from support.stores.attempted_tasks import AttemptedTasks

import statestore
from statestore.catalog.edits.copied_files import copy_files
from statestore.catalog.edits.receipt import RECEIPT_FILE
from statestore.catalog.edits.target_folder import TargetFolder
from statestore.catalog.edits.task_writing import write_in_tasks
from statestore.catalog.upkeep.ranges import task_runs
from statestore.formats.edits import EditOptions
from statestore.formats.flink.edit_plan import FlinkEditPlan

Source = Callable[[Path], tuple[Path, dict[str, Any]]]


def of_spark(name: str) -> Source:
    return lambda folder: (checkpoint_path(name), {})


def of_flink(run: str, form: str) -> Source:
    return lambda folder: (fixture(run) / snapshot(run, form), {})


@cache
def snapshot(run: str, form: str) -> str:
    return str([each["path"] for each in manifest(run)["snapshots"] if form in each["path"]][-1])


def of_kafka(folder: Path) -> tuple[Path, dict[str, Any]]:
    unpacked = unpack("orders", folder)
    return unpacked / "state" / "orders", {"stores_file": str(stores_file("orders", unpacked / "stores.toml"))}


CASES: Mapping[str, tuple[Source, str, dict[str, Any]]] = {
    "amended": (of_spark("spark4.3.0-agg__hdfs"), "UPDATE state SET value.count = 7 WHERE key.k < 'key-2'", {}),
    "as a batch": (of_spark("spark4.3.0-agg__rkcl"), "DELETE FROM state WHERE value.count = 3", {"as_batch": True}),
    "join": (of_spark("spark4.3.0-join__rkj4"), "", {}),
    "variables": (of_spark("spark4.3.0-twsttl__rkcl"), "", {}),
    "partitions": (of_spark("spark4.3.0-agg__rkcl"), "", {"settings": {"partitions": "3"}}),
    "provider": (of_spark("spark4.3.0-agg__hdfs"), "", {"settings": {"partitions": "4", "provider": "rocksdb"}}),
    "savepoint": (of_flink("hashmap", "savepoint"), 'DELETE FROM "kv-long.balance" WHERE value > 3', {}),
    "operator state": (of_flink("operator-rocksdb", "savepoint"), 'DELETE FROM "buffers.split" WHERE position = 0', {}),
    "kafka": (of_kafka, "DELETE FROM prices", {}),
}
QUICK = ("amended", "partitions")
SAME_FILES = ("amended", "savepoint", "operator state")
"""Cases whose files have no name, time or path of their own."""


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != RECEIPT_FILE
    }


def rows_of(target: Path) -> dict[str, list[str]]:
    warehouse = statestore.inspect(str(target))
    return {name: sorted(map(repr, warehouse[name].scan().to_arrow().to_pylist())) for name in warehouse}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(task_runs, "_made", [lambda session: session])
    return AttemptedTasks(parallelism=2, attempts=2)


@pytest.mark.parametrize("case", mostly_slow(CASES, quick=QUICK))
def test_the_target_is_the_same(case: str, runs: Any, tmp_path: Path) -> None:
    found, statement, given = CASES[case]
    source, options = found(tmp_path)
    for how, session in (("threads", None), ("tasks", runs)):
        with statestore.edit(source, tmp_path / how, spark=session, **given, **options) as edit:
            if statement:
                edit.sql(statement)
                assert edit.edits()
    assert runs.jobs
    assert not list(tmp_path.glob(".*"))
    if case in SAME_FILES:
        assert contents(tmp_path / "threads") == contents(tmp_path / "tasks")
    if case != "kafka":  # its target is records, which no state is
        assert rows_of(tmp_path / "threads") == rows_of(tmp_path / "tasks")


def test_streams_of_a_savepoint_are_gone_over_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``_metadata`` needs of them comes from the tasks, and the files are those that this process writes."""
    stream = FlinkEditPlan._write
    parts: list[Any] = []

    def counted(plan: FlinkEditPlan, part: Any, put: Any) -> Any:
        parts.append(part)
        return stream(plan, part, put)

    monkeypatch.setattr(FlinkEditPlan, "_write", counted)
    found, statement, _ = CASES["savepoint"]
    edit = statestore.edit(found(tmp_path)[0])
    edit.sql(statement)
    for runs in (None, AttemptedTasks()):
        plan, root = edit._editing.source.edit_plan(edit.version, edit.edits(), EditOptions()), tmp_path / str(runs)[:4]
        (root / "files").mkdir(parents=True)
        target, begun = TargetFolder("target", str(root / "files")), len(parts)
        if runs is None:
            for part in plan.parts():
                plan.write(part, target)
            copy_files(list(plan.copied()), target)
        else:
            write_in_tasks(plan, list(plan.copied()), target, runs, {})
        plan.finish(target)
        assert len(parts[begun:]) == len(set(parts[begun:])) > 0
    assert contents(tmp_path / "None") == contents(tmp_path / "Atte")


def test_what_is_no_session_is_refused(tmp_path: Path) -> None:
    session: Any = "local[2]"
    with pytest.raises(statestore.InvalidInputError, match="WRONG_INPUT"):
        statestore.edit(checkpoint_path("spark4.3.0-agg__hdfs"), tmp_path / "target", spark=session)
    assert not list(tmp_path.iterdir())

"""An edit of which an executor or the driver is killed makes the target of an edit without Spark, or none."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.engines.toy_edits import tree
from support.local_cluster import MASTER, linked_home
from support.parameters import SHARE
from support.processes.killed_edits import STATEMENTS
from support.processes.scripts import command
from support.written_files import nothing_written

import statestore

EXECUTORS = [
    ("executor", "copy", 3),
    ("executor", "file", 1),
    ("executor", "answer", 1),
    ("executor", "search", 1),
    ("executor", "sums", 1),
]
"""Each costs a new executor."""


def rows_of(target: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = statestore.inspect(str(target))["state"].scan().to_arrow().to_pylist()
    return sorted(found, key=repr)


def by_threads(source: Path, target: Path) -> list[dict[str, Any]]:
    with statestore.edit(source, target) as edit:
        edit.sql(STATEMENTS)
    return rows_of(target)


def names(folder: Path) -> set[str]:
    """The names in a folder but for marks of deaths and the homes of clusters."""
    return {path.name for path in folder.iterdir()} - {"spark"} - {path.name for path in folder.glob("mark *")}


def run(folder: Path, source: Path, cases: list[tuple[str, str, int]]) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(linked_home(folder))}
    arguments = (MASTER, source, folder, json.dumps(cases))
    return subprocess.run(
        command("killed_edits", *arguments), cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases",
    [[("driver", "file", 1)], EXECUTORS if SHARE == 1 else EXECUTORS[:2], [("driver", "sums", 1)]],
    ids=["driver writing", "executors", "driver comparing"],
)
def test_a_process_that_is_killed(cases: list[tuple[str, str, int]], tmp_path: Path) -> None:
    """What a killed driver leaves beside the target, the next edit to this target removes."""
    source = Path(shutil.copytree(checkpoint_path("spark4.3.0-agg__rkcl"), tmp_path / "source"))
    before = tree(source)
    with nothing_written(source):
        done = run(tmp_path, source, cases)
    if cases[0][0] == "driver":
        assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
        assert not (tmp_path / "0").exists()
        targets = [tmp_path / "0"]
        expected = by_threads(source, targets[0])
    else:
        assert done.returncode == 0, done.stderr[-3000:]
        assert json.loads(done.stdout.splitlines()[-1]) == list(range(len(cases)))
        targets = [tmp_path / str(number) for number in range(len(cases))]
        expected = by_threads(source, tmp_path / "threads")
    for target, case in zip(targets, cases, strict=True):
        assert rows_of(target) == expected, case
    assert names(tmp_path) - {"threads"} == {"source", *(target.name for target in targets)}
    assert tree(source) == before

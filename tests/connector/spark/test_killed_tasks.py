"""A worker or an executor that dies while it reads or writes is replaced by Spark; no row is lost, read or written
twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.local_cluster import MASTER, linked_home
from support.paths import TESTS
from support.processes.killed_tasks import OF_EXECUTORS, READS, ROWS, TABLES

import statestore

EVEN = range(0, ROWS, 2)
SUM = sum(range(ROWS))
ROWS_READ: dict[str, list[Any]] = {
    "read": [len(EVEN), sum(EVEN), 500],
    "join on the key": [ROWS, 2 * SUM],
    "groups": [7, ROWS],
    "aggregate": [ROWS, SUM, ROWS - 1],
}
WRITTEN = [len(EVEN), sum(EVEN) + len(EVEN)]


@pytest.mark.slow
@pytest.mark.parametrize(("master", "who", "deaths"), [("local[2,4]", "worker", 2), (MASTER, "executor", 1)])
def test_a_killed_task_loses_and_repeats_no_row(tmp_path: Path, master: str, who: str, deaths: int) -> None:
    catalog = statestore.connect(tmp_path / "w")
    types: dict[str, Any] = {"key": {"id": "bigint"}, "value": {"v": "bigint"}, "key_groups": 4}
    with catalog.create_store("t", **types) as store:
        ids = pa.array(range(ROWS))
        store.write(pa.table({"id": ids, "v": ids, "timestamp": pa.array([1000] * ROWS)}))
    for name in ("inserted", "resolved", "overwritten", "saved"):
        catalog.create_store(name, **types).close()
    script = TESTS / "support" / "processes" / "killed_tasks.py"
    home = {"SPARK_HOME": str(linked_home(tmp_path))} if master == MASTER else {}
    done = subprocess.run(
        [sys.executable, str(script), master, who, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **home},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = {name: {"rows": [ROWS_READ[name]], "deaths": deaths} for name in READS}
    expected |= {name: {"rows": [WRITTEN], "deaths": deaths, "versions": 1} for name in [*TABLES, "save"]}
    cases = expected if who == "worker" else OF_EXECUTORS
    assert json.loads(done.stdout.splitlines()[-1]) == {name: expected[name] for name in cases}

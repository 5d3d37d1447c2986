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
from support.parameters import SHARE
from support.paths import TESTS
from support.places import DIRECTORY, S3, below, unnamed, vacuumed, warehouse_in
from support.processes.killed_tasks import CASES, FEW_CASES, READS, ROWS, TABLES

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


COMMITS = 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("master", "who", "deaths", "place"),
    [("local[2,4]", "worker", 2, DIRECTORY), (MASTER, "executor", 1, DIRECTORY), (MASTER, "executor", 1, S3)],
)
def test_a_killed_task_loses_and_repeats_no_row(
    request: pytest.FixtureRequest, tmp_path: Path, master: str, who: str, deaths: int, place: str
) -> None:
    """Executors of a warehouse in S3 see no folder of the driver."""
    (tmp_path / "w").mkdir()
    warehouse = warehouse_in(place, request, tmp_path / "w")
    catalog = statestore.connect(warehouse)
    types: dict[str, Any] = {"key": {"id": "bigint"}, "value": {"v": "bigint"}, "key_groups": 4}
    ids = pa.array(range(ROWS))
    rows = pa.table({"id": ids, "v": ids, "timestamp": pa.array([1000] * ROWS)})
    with catalog.create_store("t", **types) as store:
        store.write(rows)
    for name in ("inserted", "resolved", "overwritten", "saved", "compacted"):
        catalog.create_store(name, **types).close()
    with catalog.open_store("compacted", auto_compact=False) as store:
        for number in range(COMMITS):
            store.write(rows.slice(number * ROWS // COMMITS, ROWS // COMMITS))
    cases = CASES if who == "worker" and SHARE == 1 else FEW_CASES
    script = TESTS / "support" / "processes" / "killed_tasks.py"
    home = {"SPARK_HOME": str(linked_home(tmp_path))} if master == MASTER else {}
    done = subprocess.run(
        [
            *(sys.executable, str(script), master, who, ",".join(cases), str(tmp_path), warehouse),
            *hidden_folder(place, tmp_path),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path if place == DIRECTORY else tmp_path / "of the driver",
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, **home, **places_in(tmp_path / "of the driver")},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    expected = {name: {"rows": [ROWS_READ[name]], "deaths": deaths} for name in READS}
    expected |= {name: {"rows": [WRITTEN], "deaths": deaths, "versions": 1} for name in [*TABLES, "save"]}
    expected["compact"] = {"rows": [[ROWS, SUM]], "deaths": deaths, "versions": COMMITS + 1}
    assert json.loads(done.stdout.splitlines()[-1]) == {name: expected[name] for name in cases}
    for name in catalog.stores():
        left = unnamed(below(warehouse, name))
        with catalog.open_store(name, auto_compact=False) as store:
            assert set(left) <= set(vacuumed(store))
        assert unnamed(below(warehouse, name)) == []


def hidden_folder(place: str, folder: Path) -> list[str]:
    """The folder of the driver in which tasks see nothing, where they need nothing of this machine."""
    hidden = folder / "of the driver"
    hidden.mkdir()
    (hidden / "file").touch()
    can_hide = subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False, capture_output=True)
    return [str(hidden)] if place == S3 and can_hide.returncode == 0 else []


def places_in(folder: Path) -> dict[str, str]:
    return {"STATESTORE_CACHE": str(folder / "objects"), "STATESTORE_LOCAL": str(folder / "stores")}

"""A job of SQL over random columns, run anew: all keyed state that it leaves, against what Flink's serializers read.

No records come between the snapshots of a run, so the state in each of them is that of its canonical savepoint, which
``DumpSavepoint`` prints.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.flink.running.java_project import class_path
from support.flink.running.job import OPENED, Job, Run, run_job
from support.flink.snapshot_reads import rows_of, source_at
from support.flink.truth_rows import lines_of, lines_of_truth

from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.source import FlinkSource
from statestore.formats.flink.state_at import KeyedAt

pytestmark = pytest.mark.slow

NETWORK = "taskmanager.memory.network.min=128mb#taskmanager.memory.network.max=128mb"
COMMON = (("extra", NETWORK), ("managed", "256mb"))


def random_sql(seed: int, backend: str, queries: str, *options: tuple[str, str]) -> Job:
    asked = (("seed", str(seed)), ("backend", backend), ("queries", queries.replace(" ", "+")))
    return Job("RandomSqlFromTwo", "emit:60,canonical,native,chk", (*asked, *COMMON, *options))


JOB = random_sql(
    3,
    "rocksdb",
    "top last-row join-unique join-keys semi",
    ("set", "table.optimizer.multi-join.enabled=true"),
)
PATIENCE_S = 200


@dataclass(frozen=True)
class Dumped:
    run: Run
    truth: dict[tuple[str, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Dumped:
    path = class_path("sql", tmp_path_factory.mktemp("programs"))
    folder = tmp_path_factory.mktemp("run")
    run = run_job(path, folder, JOB, PATIENCE_S)
    opened = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in OPENED]
    subprocess.run(["java", *opened, "-cp", path, "DumpSavepoint", str(folder / "state")], check=True)
    (canonical,) = [each.folder for each in run.snapshots if each.kind == "savepoint-canonical"]
    truth: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in Path(f"{canonical}.jsonl").read_text().splitlines():
        row = json.loads(line)
        truth.setdefault((row["operator"], row["state"]), []).append(row)
    return Dumped(run, truth)


def in_order(value: Any) -> Any:
    """JSON whose maps are in one order."""
    if isinstance(value, dict):
        return {
            name: sorted(map(in_order, each), key=json.dumps) if name == "$map" else in_order(each)
            for name, each in value.items()
        }
    return [in_order(each) for each in value] if isinstance(value, list) else value


def without_opaque(mine: Any, told: Any) -> Any:
    """Return a cell that Flink printed, without objects of the job's classes, whose parts are in no column."""
    if mine == "opaque":
        return mine
    if isinstance(mine, list) and isinstance(told, list) and len(mine) == len(told):
        return [without_opaque(*pair) for pair in zip(mine, told, strict=True)]
    return told


def parsed(lines: Mapping[str, str], state: str) -> dict[str, Any]:
    found = {
        json.dumps(in_order(json.loads(key))): value and in_order(json.loads(value)) for key, value in lines.items()
    }
    if state != "nfaStateName":
        return found
    return {key: [sorted(part, key=json.dumps) for part in value] for key, value in found.items()}  # a heap of matches


def read(folder: Path, source: FlinkSource, state: str, options: list[str]) -> tuple[KeyedAt, pa.Table]:
    """A state and its rows. Where maps of SQL have null keys, it is read by the option that the error names, which is
    added to ``options``.
    """
    at = source.at(state, source.newest(state))
    assert isinstance(at, KeyedAt)
    try:
        return at, rows_of(source, state)
    except UnsupportedError as error:
        option = re.search(r"null key.*; give --type '(.*)'$", error.message)
        assert option is not None, error
    assert option[1] not in options
    options.append(option[1])
    return read(folder, source_at(folder, {"type": option[1]}), state, options)


def test_every_state_has_the_rows_that_flink_reads(dumped: Dumped) -> None:
    options: list[str] = []
    for snapshot in dumped.run.snapshots:
        options.clear()
        source, seen = source_at(snapshot.folder), set()
        for name, state in source.opened(source.refs[-1][0]).states().items():
            place = state.identity[0], state.identity[2]
            if not isinstance(source.at(state.name, source.newest(state.name)), KeyedAt):
                continue
            at, rows = read(snapshot.folder, source, state.name, options)
            seen.add(place)
            mine = parsed(lines_of(at.form, rows), place[1])
            told = parsed(lines_of_truth(dumped.truth.get(place, ())), place[1])
            told = {key: without_opaque(mine.get(key), value) for key, value in told.items()}
            assert mine == told, (snapshot.kind, name)
        assert seen >= set(dumped.truth)
        assert any("map_key=" in each for each in options)
    assert len(dumped.truth) >= 10

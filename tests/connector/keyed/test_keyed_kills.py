"""A keyed stream that is killed in a task, before its sink is called, or before Spark's own commit ends with the
results of an undisturbed run.

Each restart has another number of tasks; once only a worker dies, and Spark repeats its task.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.local_cluster import MASTER, linked_home
from support.parameters import SHARE
from support.paths import TESTS
from support.places import DIRECTORY, S3, below, in_places
from support.processes.scripts import command

import statestore

pytest_plugins = ["support.keyed.keyed_place_fixtures"]
BATCHES, ROWS, USERS = 8, 3_000, 700
RUNS = (
    *(((3, 2, "committed"),) if SHARE == 1 else ()),
    (2, 4, "task"),
    *(((4, 5, "sunk"),) if SHARE == 1 else ()),
    (3, 7, "worker"),
)
"""Tasks of each run, and the batch at which it dies, or a worker of it.

Each run starts Spark. Where a share of the slow cases is run, `test_tracked_kills` has one around a commit.
"""
DYING_EXECUTORS = 3 if SHARE == 1 else 1
"""Each costs a new one."""


def write_input(folder: Path) -> tuple[Counter[int], Counter[int], list[list[list[int]]]]:
    """Write rows by user; return their counts and sums, and the rows that each batch must emit."""
    folder.mkdir()
    random, seen, total, emitted = np.random.default_rng(7), Counter[int](), Counter[int](), []
    for number in range(BATCHES):
        users = random.integers(0, USERS, ROWS)
        amounts = number * 1_000_000 + np.arange(ROWS)
        path = folder / f"{number:04d}.parquet"
        pq.write_table(pa.table({"user": users, "amount": amounts}), path)
        os.utime(path, (1_700_000_000 + number,) * 2)
        for user, amount in zip(users.tolist(), amounts.tolist(), strict=True):
            seen[user] += 1
            total[user] += amount
        emitted.append([[user, seen[user], total[user]] for user in sorted(set(users.tolist()))])
    return seen, total, emitted


@in_places(DIRECTORY, S3)
@pytest.mark.slow
def test_kills_do_not_show(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, total, emitted = write_input(tmp_path / "in")
    warehouse = below(place, "w")
    catalog = statestore.connect(warehouse)
    catalog.create_store("users", "keyed", key={"user": "bigint"}).close()
    (tmp_path / "sunk").mkdir()
    places = [
        str(tmp_path / "in"),
        below(warehouse, "users"),
        *(str(tmp_path / name) for name in ("checkpoint", "sunk")),
    ]
    inherited = os.environ.get("PYTHONPATH")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), inherited)))}  # for Spark's workers
    for tasks, batch, when in RUNS:
        run = command("keyed_streaming_process", *places, tasks, batch, when)
        ended = subprocess.run(run, start_new_session=True, capture_output=True, timeout=600, check=False, env=env)
        assert ended.returncode == (0 if when == "worker" else -9), ended.stderr.decode()[-2000:]
    assert (tmp_path / "checkpoint-died").exists() and (tmp_path / "checkpoint-died-in-snapshot").exists()
    with catalog.open_store("users") as store:
        found = {row["user"]: row["value"] for row in store.scan("seen").read_all().to_pylist()}
        amounts = Counter[int]()
        for row in store.scan("amounts").read_all().to_pylist():
            amounts[row["user"]] += row["value"]
        assert len(store.retained()) == 2
        now = time.time_ns
        with monkeypatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: now() + 25 * 3_600_000_000_000)
            assert store.vacuum("1 day")
        assert store.vacuum(0, dry_run=True) == []
    assert found == seen
    assert amounts == total
    calls = [
        [json.loads(line) for line in file.read_text().splitlines()] for file in sorted((tmp_path / "sunk").iterdir())
    ]
    assert [answers[0] for answers in calls] == emitted
    sunk_twice = {batch: [emitted[batch]] * 2 for _, batch, when in RUNS if when == "sunk"}
    assert {number: answers for number, answers in enumerate(calls) if len(answers) > 1} == sunk_twice
    assert catalog.verify("users").ok


@in_places(S3)
@pytest.mark.slow
def test_executors_that_die_in_snapshots(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every committed snapshot is complete, no run counts twice, and vacuum finds what the dead ones left."""
    catalog, runs = statestore.connect(place), DYING_EXECUTORS
    catalog.create_store("s", "keyed", key={"k": "string"}, key_groups=8).close()
    (tmp_path / "marks").mkdir()
    script = TESTS / "support" / "processes" / "keyed" / "dying_executors.py"
    done = subprocess.run(
        [sys.executable, str(script), MASTER, below(place, "s"), str(tmp_path / "marks"), str(runs)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(linked_home(tmp_path))},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(list((tmp_path / "marks").iterdir())) == runs
    with catalog.open_store("s") as store:
        assert store.retained() == list(range(1, runs + 1))
        for version in store.retained():
            rows = store.scan("count", version=version).read_all().to_pylist()
            assert len(rows) == 50 and {row["value"] for row in rows} == {version}
        verified = catalog.verify("s")
        spare = {each.name for each in store.vacuum(0, dry_run=True)}
        assert verified.ok and spare and spare == {name for name, _ in verified.unreferenced}

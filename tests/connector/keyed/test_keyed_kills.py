"""A keyed stream that is killed in a task, before its sink is called, or before Spark's own commit ends with the
results of an undisturbed run.

Each restart has another number of tasks; once only a worker dies, and Spark repeats its task.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.paths import TESTS
from support.processes.scripts import command

import statestore

BATCHES, ROWS, USERS = 8, 3_000, 700
RUNS = ((3, 2, "committed"), (2, 4, "task"), (4, 5, "sunk"), (3, 7, "worker"))
"""Tasks of each run, and the batch at which it dies, or a worker of it."""


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


@pytest.mark.slow
def test_kills_do_not_show(tmp_path: Path) -> None:
    seen, total, emitted = write_input(tmp_path / "in")
    catalog = statestore.connect(tmp_path / "w")
    catalog.create_store("users", "keyed", key={"user": "bigint"}).close()
    (tmp_path / "sunk").mkdir()
    places = [str(tmp_path / name) for name in ("in", "w/users", "checkpoint", "sunk")]
    inherited = os.environ.get("PYTHONPATH")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), inherited)))}  # for Spark's workers
    for tasks, batch, when in RUNS:
        run = command("keyed_streaming_process", *places, tasks, batch, when)
        ended = subprocess.run(run, start_new_session=True, capture_output=True, timeout=600, check=False, env=env)
        assert ended.returncode == (0 if when == "worker" else -9), ended.stderr.decode()[-2000:]
    assert (tmp_path / "checkpoint-died").exists()
    with catalog.open_store("users") as store:
        found = {row["user"]: row["value"] for row in store.scan("seen").read_all().to_pylist()}
        amounts = Counter[int]()
        for row in store.scan("amounts").read_all().to_pylist():
            amounts[row["user"]] += row["value"]
        assert len(store.retained()) == 2
        store.vacuum(0)
        assert store.vacuum(0) == []
    assert found == seen
    assert amounts == total
    calls = [
        [json.loads(line) for line in file.read_text().splitlines()] for file in sorted((tmp_path / "sunk").iterdir())
    ]
    assert [answers[0] for answers in calls] == emitted
    assert [number for number, answers in enumerate(calls) if len(answers) > 1] == [5]
    assert calls[5][0] == calls[5][1]
    assert catalog.verify("users").ok

"""A stream of 12 batches with tracked state, killed in a task, before and after our commit, and before Spark's own.

It ends with the state and the records of a plain dict, as undisturbed streams do (`test_track`). Each restart
has another number of partitions.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.parameters import SHARE
from support.paths import TESTS
from support.processes.scripts import command
from support.processes.tracked_streaming_process import T0, TIMEOUT_SECONDS, Emitted

import statestore

BATCHES, ROWS, USERS = 12, 40, 40
EARLY = (("2", "-1", "committed"), ("3", "3", "task"), ("2", "5", "staged"), ("1", "7", "committed"))
RUNS = (*(EARLY if SHARE == 1 else ()), ("4", "9", "sunk"), ("2",))
"""Partitions of each run, and the batch at which it dies; the initial state is batch -1.

Each run starts Spark. Where a share of the slow cases is run, `test_keyed_kills` has the death in a task.
"""
States = dict[int, dict[str, int]]


def write_input(folder: Path) -> tuple[States, list[list[Emitted]]]:
    """Write the input; return the final states, and the records that each batch must emit."""
    folder.mkdir()
    random = np.random.default_rng(11)
    states: States = {user: {"seen": 1, "total": user} for user in range(0, USERS, 3)}
    last, emitted = dict.fromkeys(states, 0), []
    for number in range(BATCHES):
        users, amounts = random.integers(0, USERS, ROWS if number % 6 else 3), random.integers(1, 100, ROWS)
        rows = list(zip(users.tolist(), amounts.tolist(), strict=False))
        path = folder / f"{number:04d}.parquet"
        pq.write_table(pa.table({"user": [user for user, _ in rows], "amount": [amount for _, amount in rows]}), path)
        os.utime(path, (T0 + number,) * 2)
        emitted.append(sorted(batch(rows, number, states, last)))
    return states, emitted


def batch(rows: list[tuple[int, int]], time: int, states: States, last: dict[int, int]) -> list[Emitted]:
    found: list[Emitted] = []
    for user, amount in rows:
        before = states.get(user)
        if amount % 11 == 0:
            if before is not None:
                found.append((user, before["seen"], before["total"], "left"))
                del states[user]
            continue
        seen, total = (before["seen"] + 1, before["total"] + amount) if before else (1, amount)
        states[user], last[user] = {"seen": seen, "total": total}, time
        found.append((user, seen, total, "here"))
    for user in [user for user in states if last[user] < time - TIMEOUT_SECONDS]:
        gone = states.pop(user)
        found.append((user, gone["seen"], gone["total"], "idle"))
    return found


def run(folder: Path, *arguments: str) -> int:
    """Run one process; return how it ended."""
    places = [str(folder / each) for each in ("in", "w/users", "w/checkpoint", "w/sunk")]
    (folder / "w" / "sunk").mkdir(parents=True, exist_ok=True)
    inherited = os.environ.get("PYTHONPATH")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(TESTS), inherited)))}  # for workers
    ended = subprocess.run(
        command("tracked_streaming_process", *places, *arguments),
        start_new_session=True,
        capture_output=True,
        timeout=600,
        check=False,
        env=env,
    )
    assert ended.returncode in (0, -9), ended.stderr.decode()[-2000:]
    return ended.returncode


def told(folder: Path) -> list[list[Any]]:
    """The records that the sink received, call by call, for each batch."""
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in sorted(folder.iterdir())]


def state(folder: Path) -> States:
    with statestore.connect(folder).open_store("users") as store:
        found = {row["user"]: row["value"] for row in store.scan("state").read_all().to_pylist()}
        assert {store.scan(name).read_all().num_rows for name in ("updated", "idle")} == {len(found)}
        assert len(store.retained()) == 3
        store.vacuum(0)
        assert store.vacuum(0) == []
    assert statestore.connect(folder).verify("users").ok
    return found


@pytest.mark.slow
def test_kills_do_not_show(tmp_path: Path) -> None:
    states, emitted = write_input(tmp_path / "in")
    assert {why for each in emitted for *_, why in each} == {"here", "left", "idle"}
    for arguments in RUNS:
        assert run(tmp_path, *arguments) == (-9 if len(arguments) > 1 else 0)
    expected = [[list(record) for record in each] for each in emitted]
    received = told(tmp_path / "w" / "sunk")
    assert [calls[0] for calls in received] == expected
    assert {number: calls for number, calls in enumerate(received) if len(calls) > 1} == {9: [expected[9]] * 2}
    assert state(tmp_path / "w") == states

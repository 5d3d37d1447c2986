"""Commits of many processes in a real object store: none is lost, none is there twice, whatever happens on the way."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.object_stores.faults import Faults
from support.object_stores.proxy import proxy_before
from support.object_stores.s3_server import S3Server, running_s3_server
from support.parameters import SHARE
from support.processes import object_store_writer

import statestore

pytestmark = pytest.mark.slow

PROCESSES, COMMITS = 8, 50 if SHARE == 1 else 20
TURNS = 6 if SHARE == 1 else 2
"""In each turn writers are killed, in each second one the server too."""
FAULTS = {
    "one answer in ten is lost": Faults(lose_every=10),
    "one answer in ten is lost by a reset": Faults(lose_every=10, reset=True, seed=1),
    "one request in seven is refused": Faults(refuse_every=7, seed=2),
    "one body in eight is cut": Faults(cut_every=8, seed=3),
}


def made(warehouse: str) -> None:
    with statestore.connect(warehouse).create_store("counts", key={"name": "string"}, value={"n": "int"}):
        pass


def writer(warehouse: str, name: str, local: Path, commits: int = COMMITS) -> subprocess.Popen[str]:
    """Start a process on a machine of its own: its changelogs and its cache are in ``local``."""
    script = Path(object_store_writer.__file__)
    around = {**os.environ, "STATESTORE_LOCAL": str(local / "local"), "STATESTORE_CACHE": str(local / "cache")}
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, str(script), warehouse, name, str(commits)],
        env={**around, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check(warehouse: str, acknowledged: Sequence[tuple[str, int]], attempted: set[str]) -> None:
    """Check that each acknowledged commit is there once, whole, and that no version is missing."""
    with statestore.connect(warehouse).open_store("counts", read_only=True) as store:
        table = statestore.inspect(warehouse).table("counts$versions").scan().read_all()
        assert table["version"].to_pylist() == list(range(store.version + 1))
        changes = store.changes(start_version=1).read_all().to_pylist()
        assert {row["_change_type"] for row in changes} == {"insert"}
        names = [row["name"] for row in changes]
        assert len(names) == len(set(names))
        of_commit: dict[str, set[str]] = {}
        versions: dict[str, set[int]] = {}
        for row in changes:
            commit, _, part = row["name"].rpartition("-")
            of_commit.setdefault(commit, set()).add(part)
            versions.setdefault(commit, set()).add(row["_commit_version"])
        assert all(parts == {"a", "b"} for parts in of_commit.values())
        assert {commit for commit, _ in acknowledged} <= of_commit.keys() <= attempted
        assert all(versions[commit] == {version} for commit, version in acknowledged)
        writes = [operation for operation in table["operation"].to_pylist() if operation == "write"]
        assert len(writes) == len({version for found in versions.values() for version in found})
    (found,) = statestore.verify(warehouse)
    assert found.ok, found.problems


def answers(process: subprocess.Popen[str], name: str) -> list[tuple[str, int]]:
    """Wait for the process, and return the commits that were acknowledged to it with their versions."""
    out, error = process.communicate(timeout=400)
    assert process.returncode in (0, -signal.SIGKILL), error
    lines = [json.loads(line) for line in out.splitlines() if line.endswith("]")]
    return [(f"{name}-{number}", version) for number, version in lines]


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_no_commit_is_lost_or_doubled(s3_server: S3Server, tmp_path: Path, faults: Faults) -> None:
    warehouse = s3_server.warehouse(f"many/{tmp_path.name}")
    made(warehouse)
    commits = COMMITS if faults.lose_every else COMMITS // 5
    with proxy_before(s3_server.endpoint, faults) as proxy:
        through = s3_server.warehouse(f"many/{tmp_path.name}", endpoint=proxy.endpoint)
        names = [f"w{number}" for number in range(PROCESSES)]
        processes = {name: writer(through, name, tmp_path / name, commits) for name in names}
        acknowledged = [commit for name, process in processes.items() for commit in answers(process, name)]
    assert len(acknowledged) == PROCESSES * commits
    check(warehouse, acknowledged, {commit for commit, _ in acknowledged})


def test_writers_and_the_server_are_killed_at_random(tmp_path: Path) -> None:
    """Each acknowledged commit is there; what a killed writer had put is taken over by the next one of its machine."""
    chance = random.Random(5)
    folder = tmp_path / "server"
    folder.mkdir()
    acknowledged: list[tuple[str, int]] = []
    attempted: set[str] = set()
    with running_s3_server(folder) as server:
        port = server.port
        warehouse = server.warehouse("killed")
        made(warehouse)
    for turn in range(TURNS):
        with running_s3_server(folder, port=port) as server:
            names = [f"t{turn}w{number}" for number in range(3)]
            processes = {name: writer(warehouse, name, tmp_path / f"machine{name[-1]}", 12) for name in names}
            attempted |= {f"{name}-{number}" for name in names for number in range(12)}
            said = [process.stdout for process in processes.values() if process.stdout is not None]
            select.select(said, [], [])  # until a commit is acknowledged
            time.sleep(chance.uniform(0, 2))
            if turn % 2:
                server.kill()
            for process in processes.values():
                process.kill()
            for name, process in processes.items():
                acknowledged += answers(process, name)
    with running_s3_server(folder, port=port) as server:
        for machine in range(3):
            assert answers(writer(warehouse, f"last{machine}", tmp_path / f"machine{machine}", 1), f"last{machine}")
            attempted.add(f"last{machine}-0")
        taken_over(warehouse, acknowledged, attempted)
    assert acknowledged


def taken_over(warehouse: str, acknowledged: Sequence[tuple[str, int]], attempted: set[str]) -> None:
    """Check as `check` does, but for commits that have the writes of a killed process beside their own."""
    with statestore.connect(warehouse).open_store("counts", read_only=True) as store:
        changes = store.changes(start_version=1).read_all().to_pylist()
        names = [row["name"] for row in changes]
        assert len(names) == len(set(names))
        there = {row["name"]: row["_commit_version"] for row in changes}
        assert {name.rpartition("-")[0] for name in there} <= attempted
        for commit, version in acknowledged:
            assert there[f"{commit}-a"] == there[f"{commit}-b"] == version
        versions = statestore.inspect(warehouse).table("counts$versions").scan().read_all()["version"].to_pylist()
        assert versions == list(range(store.version + 1))
    (found,) = statestore.verify(warehouse)
    assert found.ok, found.problems

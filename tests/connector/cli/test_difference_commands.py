"""`watch`: the changes of each new version, once, as they appear."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import run

import statestore
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.cli.difference_commands import changes_of, new_versions

KEYS = {"user": "string", "page": "string"}


@pytest.fixture
def store(tmp_path: Path) -> statestore.VersionedStore:
    made = statestore.connect(tmp_path).create_store("visits", key=KEYS, value={"n": "bigint"})
    commit(made, 0)
    return made


def commit(store: statestore.VersionedStore, number: int) -> None:
    store.put(("ada", "home"), number, timestamp=1_000 * number)
    store.put(("bob", f"page{number}"), number, timestamp=1_000 * number)
    store.commit()


def test_each_new_version_is_found_once(store: statestore.VersionedStore, tmp_path: Path) -> None:
    """None is left out where several appear between two looks, and the count ends it within them."""
    table = open_warehouse(tmp_path).open("visits")
    waited: list[int] = []

    def wait() -> None:
        waited.append(0)
        for _ in range(len(waited)):
            commit(store, store.version)

    ranges = list(new_versions(table, 5, wait))
    assert ranges == [(2, 2), (3, 4), (5, 6)]
    rows = [
        row for first, last in ranges for batch in changes_of(table, None, (), first, last) for row in batch.to_pylist()
    ]
    assert [row["_commit_version"] for row in rows if row["user"] == "bob"] == [2, 3, 4, 5, 6]
    assert {row["_change_type"] for row in rows if row["user"] == "ada"} == {"update_preimage", "update_postimage"}


def test_the_command_prints_through_a_pipe_and_ends_at_ctrl_c(store: statestore.VersionedStore, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "statestore", "watch", str(tmp_path), "--json", "--interval", "20"]
    with subprocess.Popen(
        [*command[:5], "visits", '{"user": "bob"}', *command[5:]],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": ""},
    ) as watching:  # fmt: skip
        try:
            assert watching.stdout is not None and watching.stderr is not None
            assert "is at version 1" in watching.stderr.readline()
            for number in (1, 2):
                commit(store, number)
                row = json.loads(watching.stdout.readline())
                assert (row["user"], row["n"], row["_commit_version"]) == ("bob", number, number + 1)
            watching.send_signal(signal.SIGINT)
            assert watching.wait(60) == 0
            assert watching.stdout.read() == "" and watching.stderr.read() == ""
        finally:
            watching.kill()  # else the end of the block waits for a process that a failed assertion left running


def test_wrong_calls(store: statestore.VersionedStore, tmp_path: Path) -> None:
    assert run("watch", tmp_path, "--interval", "soon").code == 2
    assert run("watch", tmp_path, "--count", "0").code == 2
    code, _, err = run("watch", tmp_path, "visits", '{"page": "home"}')
    assert code == 2 and "WRONG_KEY" in err

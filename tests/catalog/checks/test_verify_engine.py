"""Verification of the state of engines: each is called what it is, and damage is reported as by a read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run
from support.flink.fixtures import copied, fixture, manifest

import statestore
from statestore.formats.errors import NotFoundError

AGGREGATION, STATELESS = "spark4.3.0-agg__hdfs", "spark4.3.0-join__rkcl"


def test_a_whole_checkpoint_is_read_in_full() -> None:
    found = statestore.verify(checkpoint_path(AGGREGATION))
    assert [(each.store, each.ok, each.rows, each.versions) for each in found] == [("state", True, 57, (5, 5))]
    assert "all 57 rows of version 5" in found[0].verified and "other versions were not read" in found[0].verified
    assert [each.store for each in statestore.verify(checkpoint_path(STATELESS))] == ["left", "right"]
    assert [each.store for each in statestore.verify(checkpoint_path(STATELESS), "right")] == ["right"]
    with pytest.raises(NotFoundError, match="TABLE_NOT_FOUND"):
        statestore.verify(checkpoint_path(AGGREGATION), "nothing")


def test_damage_of_a_checkpoint_is_reported(tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path(AGGREGATION), tmp_path / "checkpoint"))
    for file in (*path.glob("state/0/0/*.delta"), *path.glob("state/0/0/*.snapshot")):
        file.write_bytes(file.read_bytes()[:-7])
    (found,) = statestore.verify(path)
    assert not found.ok and found.problems[0].code == "SPARK_STATE_FILE" and "state/0/0" in found.problems[0].message
    assert found.verified == "nothing: see the problems"
    said = run("verify", path)
    assert said.code == 1 and "SPARK_STATE_FILE" in said.out and "state: not verified" in said.out


@pytest.mark.slow
def test_missing_files_of_a_savepoint_are_reported(tmp_path: Path) -> None:
    folder = copied("rocksdb", tmp_path) / manifest("rocksdb")["snapshots"][-1]["path"]
    assert all(each.ok for each in statestore.verify(fixture("rocksdb") / folder.relative_to(tmp_path / "rocksdb")))
    largest = max((file for file in folder.iterdir() if file.name != "_metadata"), key=lambda file: file.stat().st_size)
    largest.unlink()
    damaged = [each for each in statestore.verify(folder) if not each.ok]
    assert damaged and all(largest.name in each.problems[0].message for each in damaged)


def test_a_folder_without_state_is_called_as_by_inspect(tmp_path: Path) -> None:
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "metadata").write_text('{"id": "b6a8e5a5-6c2f-4b0a-8d2b-5ed0a2a0f3a1"}')
    for name in ("offsets", "commits", "state"):
        (tmp_path / "begun" / name).mkdir()
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "begun", tmp_path / "empty", tmp_path, checkpoint_path(AGGREGATION).parent):
        errors = []
        for ask in (statestore.verify, statestore.inspect):
            with pytest.raises(NotFoundError) as error:
                ask(folder)
            errors.append(error.value.message)
        assert errors[0] == errors[1]

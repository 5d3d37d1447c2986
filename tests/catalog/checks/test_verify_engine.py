"""Verification of the state of engines: each is called what it is, and damage is reported as by a read."""

from __future__ import annotations

import json
import shutil
import zlib
from pathlib import Path

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run
from support.flink.fixtures import copied, fixture, manifest
from support.parameters import mostly_slow

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


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        ("spark4.3.0-agg__hdfs", {"snapshot": (2, 2), "delta": (4, 4)}),  # blocks of LZ4 have checksums
        ("spark4.3.0-agg__hdfsz", {"snapshot": (2, 0), "delta": (4, 0)}),
        ("spark4.3.0-agg__rkcl", {"zip": (2, 2), "table": (4, 4)}),
    ],
)
def test_files_without_a_checksum_are_counted(name: str, covered: dict[str, tuple[int, int]]) -> None:
    (found,) = statestore.verify(checkpoint_path(name))
    assert {each.kind: (each.files, each.checked_files) for each in found.coverage} == covered
    assert sum(each.files for each in found.coverage) == found.files
    assert sum(each.bytes for each in found.coverage) == found.bytes
    unchecked = sum(files - checked for files, checked in covered.values())
    assert ("have no checksum" in found.verified) == bool(unchecked)
    assert f"; {unchecked} of the files (" in found.verified or not unchecked
    (said,) = [json.loads(line) for line in run("verify", checkpoint_path(name), "--json").out.splitlines()]
    assert [each["kind"] for each in said["coverage"]] == list(covered)


def test_a_checksum_beside_a_file_counts(tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path("spark4.3.0-agg__hdfsz"), tmp_path / "checkpoint"))
    for file in path.glob("state/0/0/*.snapshot"):
        content = file.read_bytes()
        chunks = [content[at : at + 512] for at in range(0, len(content), 512)]
        sums = b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
        file.with_name(f".{file.name}.crc").write_bytes(b"crc\0" + (512).to_bytes(4, "big") + sums)
    (found,) = statestore.verify(path)
    assert {each.kind: (each.files, each.checked_files) for each in found.coverage} == {
        "snapshot": (2, 1),
        "delta": (4, 0),
    }


@pytest.mark.parametrize(
    ("name", "kinds"), mostly_slow([("hashmap", {"keyed state": False}), ("rocksdb", {"table": True})], 2)
)
def test_coverage_of_a_savepoint(name: str, kinds: dict[str, bool]) -> None:
    folder = fixture(name) / manifest(name)["snapshots"][-1]["path"]
    found = [each for verified in statestore.verify(folder) for each in verified.coverage if each.kind in kinds]
    assert found and all((each.checked_files == each.files) == kinds[each.kind] for each in found)


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

"""Damage to each kind of file of an engine's state is told by verify, with the file and the versions that need it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run
from support.flink.fixtures import copied, manifest
from support.kafka.applications import unpacked

import statestore

Damage = Callable[[Path], None]


def flip(file: Path) -> None:
    """Change one bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])


def empty(file: Path) -> None:
    file.write_bytes(b"")


DAMAGES: tuple[Damage, ...] = (flip, cut, empty, Path.unlink)


def spark(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(checkpoint_path(name), folder / "checkpoint"))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("name", "file", "newest"),
    [
        ("spark4.3.0-agg__hdfs", "state/0/1/6.delta", True),
        ("spark4.3.0-agg__hdfs", "state/0/0/2.delta", False),
        ("spark4.3.0-agg__rkcl", "state/0/1/5.changelog", False),
        ("spark4.3.0-agg__rkcl", "state/0/0/2.changelog", False),
    ],
)
def test_a_file_of_a_checkpoint(tmp_path: Path, name: str, file: str, newest: bool, damage: Damage) -> None:
    path = spark(name, tmp_path)
    assert all(each.ok for each in statestore.verify(path, deep=True))
    damage(path / file)
    (found,) = statestore.verify(path)
    assert found.ok != (newest or damage is Path.unlink)  # names of files alone show that a batch is lost
    (found,) = statestore.verify(path, deep=True)
    assert not found.ok
    told = [problem for problem in found.problems if file.rpartition("/")[0] in problem.message]
    assert told and all(problem.versions is not None and "batch" in problem.affects for problem in told)


def test_what_is_missing_before_all_others_is_a_note(tmp_path: Path) -> None:
    path = spark("spark4.3.0-agg__hdfs", tmp_path)
    (path / "state/0/0/1.delta").unlink()
    (found,) = statestore.verify(path)
    assert found.ok and any("batches 0 to 2 are known" in note for note in found.notes)


def test_each_damaged_part_is_told_once_with_its_versions(tmp_path: Path) -> None:
    path = spark("spark4.3.0-agg__hdfs", tmp_path)
    for partition in (0, 1):
        flip(path / f"state/0/{partition}/1.delta")
    (found,) = statestore.verify(path, deep=True)
    told = {problem.message.partition(": ")[0]: problem for problem in found.problems}
    assert set(told) == {str(path / f"state/0/{partition}/1.delta") for partition in (0, 1)}
    assert all(problem.versions is not None and problem.versions[0] == 0 for problem in told.values())
    assert all("batches 0 to" in problem.affects for problem in told.values())


@pytest.mark.parametrize("damage", [cut, empty, Path.unlink])  # files of the heap have no checksums
def test_a_file_of_a_savepoint(tmp_path: Path, damage: Damage) -> None:
    folder = copied("sql", tmp_path) / manifest("sql")["snapshots"][-1]["path"]
    files = [each for each in folder.iterdir() if each.is_file() and each.name != "_metadata"]
    file = max(files, key=lambda each: each.stat().st_size)
    damage(file)
    problems = [problem for each in statestore.verify(folder) for problem in each.problems]
    assert problems and all(file.name in problem.message for problem in problems)


@pytest.mark.parametrize("damage", [flip, cut])
def test_a_segment_of_a_changelog(tmp_path: Path, damage: Damage) -> None:
    name = "orders-audited-changelog"
    for partition in (0, 1):
        shutil.copytree(unpacked("orders") / "log" / f"{name}-{partition}", tmp_path / f"{name}-{partition}")
    (file,) = (tmp_path / f"{name}-1").glob("*.log")
    assert all(each.ok for each in statestore.verify(tmp_path))
    damage(file)
    (found,) = statestore.verify(tmp_path)
    if damage is flip:
        assert not found.ok and file.name in found.problems[0].message
    else:  # a log that was copied while its broker wrote ends so
        assert found.ok and any(f"{file.name} ends in" in note and "partition 1" in note for note in found.notes)


def test_an_export_is_verified_with_its_options(tmp_path: Path) -> None:
    file = tmp_path / "a-s-changelog.txt"
    file.write_text("k|v\n")
    assert run("verify", tmp_path).code == 1
    options = ("--record-columns", "key,value", "--record-separator", "|")
    assert run("verify", tmp_path, *options).code == 0
    file.write_text("k|v\nk\n")
    said = run("verify", tmp_path, *options, "--json")
    assert said.code == 1 and "line 2" in json.loads(said.out)["problems"][0]["message"]


def test_the_command_reads_all_versions(tmp_path: Path) -> None:
    path = spark("spark4.3.0-agg__hdfs", tmp_path)
    flip(path / "state/0/0/1.delta")
    assert run("verify", path).code == 0
    said = run("verify", path, "--deep")
    assert said.code == 1 and "state/0/0/1.delta" in said.out

"""Snapshots that were forged, copied or half destroyed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.flink.fixtures import fixture, manifest

import statestore
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.flink.snapshot.file_places import places, places_outside
from statestore.formats.flink.snapshot.handles import FileHandle
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location

JOB = "b1d1aedd435a0263c71fffd747f0fa48"
STATE = "kv-string.count"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return Path(shutil.copytree(fixture("rocksdb") / JOB, tmp_path / "base" / JOB))


def test_files_outside_of_the_job_are_read_if_that_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "base" / "chk-1").mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_bytes(b"abc")
    folder, handle = folder_at(parse_location(tmp_path / "base" / "chk-1")), FileHandle(f"file:{secret}", 4)
    folder_above = folder_at(parse_location(tmp_path / "base" / "job" / "chk-1"))
    assert str(secret) not in places(folder_above, handle)
    assert places_outside(folder_above, handle) == [str(secret)]
    with pytest.raises(NotFoundError, match=r"secret lies outside.*option allowOutsideFiles") as raised:
        SnapshotFiles(folder_above).locate(handle)
    secret.unlink()
    with pytest.raises(NotFoundError) as absent:
        SnapshotFiles(folder_above).locate(handle)
    assert str(raised.value) == str(absent.value), "whether the file is there is not told"
    secret.write_bytes(b"abc")
    with pytest.raises(CorruptError, match="found 3 bytes, expected 4"):
        SnapshotFiles(folder_above, outside=True).locate(handle)
    assert SnapshotFiles(folder).locate(FileHandle(f"file:{secret}", 3)).path == str(secret), "beside the job's folder"


def test_the_option_lets_a_snapshot_have_its_files_elsewhere(tmp_path: Path) -> None:
    """The path of the fixture's shared files is not that of this machine, so the option changes the error alone."""
    name = next(each["path"] for each in manifest("rocksdb")["snapshots"] if each["path"].endswith("chk-2"))
    alone = Path(shutil.copytree(fixture("rocksdb") / name, tmp_path / "a" / "b" / "chk-2"))
    with pytest.raises(NotFoundError, match="allowOutsideFiles"):
        statestore.inspect(alone).table(STATE).scan().read_all()
    with pytest.raises(NotFoundError, match=r"looked for .*/srv/flink"):
        statestore.inspect(alone, allow_outside_files=True).table(STATE).scan().read_all()


@pytest.mark.parametrize("target", ["_metadata", "nowhere"], ids=["loop", "nowhere"])
def test_a_link_in_place_of_the_newest_metadata_is_told(job: Path, target: str) -> None:
    metadata = job / "chk-3" / "_metadata"
    metadata.unlink()
    metadata.symlink_to(target)
    found = statestore.inspect(job)
    summary = found.summary(STATE)
    assert summary.damaged and "the _metadata of chk-3, which is newer than chk-2" in summary.problems[0]
    with pytest.raises(CorruptError, match=r"is a link that leads to no file.*read version 2"):
        found.table(STATE).scan()
    assert found.table(STATE).scan(version=2).read_all().num_rows == 20


@pytest.mark.parametrize(("seconds", "is_known"), [(-5, True), (0.01, False), (7200, True)])
def test_a_file_that_is_newer_than_its_metadata_was_copied(job: Path, seconds: float, is_known: bool) -> None:
    for number in (2, 3):
        os.utime(job / f"chk-{number}" / "_metadata", (10**9 + number * 60,) * 2)
    (beside,) = [each for each in (job / "chk-3").iterdir() if each.name != "_metadata"][:1]
    os.utime(beside, (10**9 + 180 + seconds,) * 2)
    times = statestore.inspect(job).table(STATE).versions()["timestamp"].to_pylist()
    assert [time is not None for time in times] == [is_known] * 2


@pytest.mark.parametrize(("milliseconds", "is_known"), [(41, False), (5_000, True)])
def test_times_of_a_copy_are_unknown(job: Path, milliseconds: int, is_known: bool) -> None:
    for number in (2, 3):
        os.utime(job / f"chk-{number}" / "_metadata", ns=(10**18 + number * milliseconds * 10**6,) * 2)
    table = statestore.inspect(job).table(STATE)
    assert [time is not None for time in table.versions()["timestamp"].to_pylist()] == [is_known] * 2
    assert table.diff(2, 3).read_all().num_rows
    if not is_known:
        assert table.history().read_all().schema.names[-1] == "_end_version"
        with pytest.raises(NotFoundError, match=r"TIME_NOT_KEPT.*too close together"):
            table.history(start_time=0)

"""Snapshots below a folder: which job took them, which did not complete, and what is not Flink's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.flink.fixtures import NAMES, fixture, manifest, taken_us
from support.flink.metadata_bytes import Operator, metadata

import statestore
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, NotFoundError
from statestore.formats.flink.snapshot import job_snapshots
from statestore.formats.flink.snapshot.file_places import places, places_outside
from statestore.formats.flink.snapshot.handles import FileHandle
from statestore.formats.flink.snapshot.job_snapshots import JobSnapshots, find_jobs, incomplete, recognises
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.locations import parse_location

A, B, C = "abcdef" + "0" * 26, "abcdef" + "1" * 26, "012345" + "2" * 26


def at(path: Path) -> Folder:
    return folder_at(parse_location(path))


def make(root: Path, *snapshots: str) -> None:
    """Snapshots by their paths, each taken a minute after the one before; a path with a question mark is incomplete."""
    for minute, path in enumerate(snapshots):
        folder = root / path.rstrip("?")
        folder.mkdir(parents=True)
        (folder / "uuid").write_bytes(b"state")
        if not path.endswith("?"):
            file = folder / "_metadata"
            file.write_bytes(metadata(Operator()))
            os.utime(file, ns=(taken_us(minute) * 1000, taken_us(minute) * 1000))


def shown(jobs: tuple[JobSnapshots, ...]) -> dict[str, list[str]]:
    """The names of snapshots by job, and with a question mark those that did not complete."""
    return {
        job.job: [snapshot.name for snapshot in job.snapshots] + [f"{name}?" for name in job.incomplete] for job in jobs
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_snapshots_of_a_run_of_flink_are_found_in_its_folder(name: str) -> None:
    assert recognises(at(fixture(name)))
    (job,) = find_jobs(at(fixture(name)))
    facts = sorted(manifest(name)["snapshots"], key=lambda each: each["checkpoint_id"])
    assert [snapshot.folder.path for snapshot in job.snapshots] == [str(fixture(name) / each["path"]) for each in facts]
    assert [snapshot.kind for snapshot in job.snapshots] == [each["kind"].split("-")[0] for each in facts]
    assert [snapshot.time_us for snapshot in job.snapshots] == [taken_us(each["checkpoint_id"]) for each in facts]
    ids = {each["path"].split("/")[0] for each in facts if each["kind"] == "checkpoint"}
    assert job.job == (ids.pop() if ids else "4a6628")
    assert job.incomplete == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_is_found_by_its_folder_and_by_its_metadata(name: str) -> None:
    for facts in manifest(name)["snapshots"]:
        folder = at(fixture(name) / facts["path"])
        for place in (folder, folder.at("_metadata")):
            assert recognises(place)
            ((snapshot,),) = [job.snapshots for job in find_jobs(place)]
            assert snapshot.folder == folder
            assert snapshot.time_us == taken_us(facts["checkpoint_id"])


def test_a_snapshot_without_metadata_says_which_beside_it_are_complete(tmp_path: Path) -> None:
    make(tmp_path / A, "chk-9", "chk-10", "chk-11?", "shared?")
    make(tmp_path, "savepoint-4a6628-0123456789ab?")
    assert incomplete(at(tmp_path / A / "chk-11")) == (
        "is a checkpoint of Flink that is not complete: it has no _metadata, which Flink writes last; it was aborted, "
        "or is still being taken; complete beside it: chk-10, chk-9"
    )
    assert "is a savepoint of Flink that is not complete" in incomplete(at(tmp_path / "savepoint-4a6628-0123456789ab"))
    (tmp_path / A / "chk-12").mkdir()
    for other in (tmp_path, tmp_path / A, tmp_path / A / "chk-9", tmp_path / A / "chk-12", tmp_path / A / "shared"):
        assert incomplete(at(other)) == ""
    (tmp_path / A / "chk-11" / "_metadata").symlink_to("nowhere")
    assert "_metadata is a link that leads to no file" in incomplete(at(tmp_path / A / "chk-11"))


def test_snapshots_beside_one_are_not_known_where_nothing_may_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(folder: Folder) -> tuple[JobSnapshots, ...]:
        raise InvalidInputError(ErrorCode.NO_ACCESS, "refused")

    make(tmp_path / A, "chk-9", "chk-11?")
    monkeypatch.setattr(job_snapshots, "find_jobs", refused)
    assert incomplete(at(tmp_path / A / "chk-11")).endswith(
        f"; {tmp_path / A} cannot be listed, so that complete ones are not known"
    )


def test_the_first_checkpoint_of_a_job_may_not_be_complete(tmp_path: Path) -> None:
    make(tmp_path / A, "chk-1?", "shared?")
    assert incomplete(at(tmp_path / A / "chk-1")).endswith("; no snapshot beside it is complete")


def test_the_folder_of_a_job_has_its_checkpoints(tmp_path: Path) -> None:
    make(tmp_path / A, "chk-9", "chk-10", "chk-11?", "shared?", "taskowned?")
    assert recognises(at(tmp_path / A))
    assert shown(find_jobs(at(tmp_path / A))) == {A: ["chk-9", "chk-10", "chk-11?"]}


def test_checkpoints_may_lie_in_a_folder_that_is_not_named_by_the_job(tmp_path: Path) -> None:
    """With ``execution.checkpointing.create-subdir`` off there is no folder of the job."""
    make(tmp_path / "orders", "chk-1", "shared?")
    assert shown(find_jobs(at(tmp_path / "orders"))) == {"orders": ["chk-1"]}
    assert shown(find_jobs(at(tmp_path / "orders" / "chk-1"))) == {"orders": ["chk-1"]}


def test_a_savepoint_belongs_to_the_one_job_with_the_digits_in_its_name(tmp_path: Path) -> None:
    savepoint = "savepoint-{}-0123456789ab"
    make(tmp_path, f"{A}/chk-1", f"{C}/chk-5", savepoint.format("012345"), savepoint.format("ffffff"))
    assert shown(find_jobs(at(tmp_path))) == {
        A: ["chk-1"],
        C: ["chk-5", savepoint.format("012345")],
        "ffffff": [savepoint.format("ffffff")],
    }


def test_a_savepoint_that_may_be_of_two_jobs_stands_alone(tmp_path: Path) -> None:
    make(tmp_path, f"{A}/chk-1", f"{B}/chk-1", "savepoint-abcdef-0123456789ab")
    assert shown(find_jobs(at(tmp_path))) == {
        A: ["chk-1"],
        B: ["chk-1"],
        "abcdef": ["savepoint-abcdef-0123456789ab"],
    }


def test_a_savepoint_in_the_folder_of_its_job_belongs_to_it(tmp_path: Path) -> None:
    make(tmp_path / A, "chk-1", "savepoint-abcdef-0123456789ab", "savepoint-012345-0123456789ab")
    expected = {A: ["chk-1", "savepoint-abcdef-0123456789ab"], "012345": ["savepoint-012345-0123456789ab"]}
    assert shown(find_jobs(at(tmp_path / A))) == expected
    assert shown(find_jobs(at(tmp_path))) == expected


def test_checkpoints_that_did_not_complete_are_facts_of_their_job(tmp_path: Path) -> None:
    make(tmp_path, f"{A}/chk-3?", f"{A}/chk-4?", "savepoint-012345-0123456789ab?")
    (tmp_path / A / "chk-4" / "_metadata").mkdir()
    assert shown(find_jobs(at(tmp_path))) == {A: ["chk-3?", "chk-4?"], "012345": ["savepoint-012345-0123456789ab?"]}


def test_snapshots_are_in_the_order_in_which_they_were_taken(tmp_path: Path) -> None:
    """A job that was restored from its savepoint counts on from it, or anew."""
    make(tmp_path / A, "chk-20", "savepoint-abcdef-0123456789ab", "chk-3", "chk-100")
    assert shown(find_jobs(at(tmp_path))) == {A: ["chk-20", "savepoint-abcdef-0123456789ab", "chk-3", "chk-100"]}


def test_a_savepoint_under_another_name_is_one_of_its_own(tmp_path: Path) -> None:
    make(tmp_path, "before upgrade")
    assert recognises(at(tmp_path / "before upgrade"))
    (job,) = find_jobs(at(tmp_path / "before upgrade"))
    assert job.job == "before upgrade"
    assert [(snapshot.name, snapshot.kind) for snapshot in job.snapshots] == [("before upgrade", "savepoint")]


def test_other_folders_are_not_recognised(tmp_path: Path) -> None:
    strange = ["chk-01", "chk-", "chk-1a", "savepoint-abcdef", "savepoint-ABCDEF-0123456789ab", "x" * 32, A.upper()]
    make(tmp_path, *strange)
    (tmp_path / C).mkdir()
    assert not recognises(at(tmp_path))
    assert find_jobs(at(tmp_path)) == ()
    for place in ("nothing", "nothing/_metadata", C):
        assert not recognises(at(tmp_path / place))
        assert find_jobs(at(tmp_path / place)) == ()


def test_the_metadata_file_of_a_data_set_of_parquet_files_is_not_recognised(tmp_path: Path) -> None:
    (tmp_path / "_metadata").write_bytes(b"PAR1 and so on")
    assert not recognises(at(tmp_path))
    assert not recognises(at(tmp_path / "_metadata"))
    (tmp_path / "_metadata").write_bytes(b"damaged")
    assert recognises(at(tmp_path))


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

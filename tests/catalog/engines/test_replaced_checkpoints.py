"""Checkpoints that Flink replaces while they are read: files go at exact moments, by the events of the interpreter."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run
from support.flink.fixtures import fixture, taken_us

import statestore
from statestore.connector.cli.difference_commands import changes_of, new_versions
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.flink.snapshot import held_files
from statestore.formats.flink.snapshot.handles import FileHandle, RocksHandle
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location
from statestore.formats.replaced_versions import ATTEMPTS, again

JOB = "b1d1aedd435a0263c71fffd747f0fa48"
STATE = "kv-string.count"
_hooks: list[Callable[[str, Any], None]] = []
_added: list[bool] = []


def _audit(event: str, given: Any) -> None:
    for hook in _hooks:
        hook(event, given)


@pytest.fixture(autouse=True)
def no_hooks() -> Iterator[None]:
    yield
    _hooks.clear()


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job with checkpoint 2, and checkpoint 3 beside it, which is not there yet."""
    folder = tmp_path / JOB
    source = fixture("rocksdb") / JOB
    for name in ("chk-2", "shared"):
        shutil.copytree(source / name, folder / name)
    shutil.copytree(source / "chk-3", tmp_path / "next")
    return folder


@cache
def used_by_the_next() -> set[str]:
    """The names of the files that checkpoint 3 needs."""
    metadata = SnapshotFiles(folder_at(parse_location(fixture("rocksdb") / JOB / "chk-3"))).metadata()
    handles = [
        handle
        for operator in metadata.operators
        for subtask in operator.subtasks
        if isinstance(subtask.managed_keyed, RocksHandle)
        for _, handle in (*subtask.managed_keyed.shared, *subtask.managed_keyed.private)
    ]
    return {handle.uri.rpartition("/")[2] for handle in handles if isinstance(handle, FileHandle)}


def replace(job: Path) -> None:
    """Complete checkpoint 3, then remove the files of checkpoint 2, as Flink does."""
    _hooks.clear()
    (job.parent / "next").rename(job / "chk-3")
    shutil.rmtree(job / "chk-2")
    for file in (job / "shared").iterdir():
        if file.name not in used_by_the_next():
            file.unlink()


def replace_at(job: Path, event: str, part: str, times: int = 1) -> None:
    """Replace checkpoint 2 as soon as a file of this name is opened, or listed."""
    if not _added:
        _added.append(True)
        sys.addaudithook(_audit)
    left = [times]

    def hook(found: str, given: Any) -> None:
        if found == event and given and part in str(given[0]):
            left[0] -= 1
            if not left[0]:
                replace(job)

    _hooks.append(hook)


@pytest.mark.quick("scan", "sql")
@pytest.mark.parametrize(
    "read",
    [
        lambda job: statestore.inspect(job).table(STATE).scan().read_all().num_rows,
        lambda job: statestore.sql(job, f'SELECT count(*)::INT n FROM "{STATE}"').to_pylist()[0]["n"],
        lambda job: statestore.attach(job).execute(f'SELECT count(*) FROM "{STATE}"').fetchall()[0][0],
        lambda job: (statestore.inspect(job).table(STATE).get("user-5") or {})["value"] + (20 - 12),
    ],
    ids=["scan", "sql", "attach", "get"],
)
def test_a_read_of_which_nothing_was_handed_out_is_done_again(job: Path, read: Callable[[Path], int]) -> None:
    replace_at(job, "open", "OPTIONS")
    assert read(job) in (20, 20 - 4)  # 16: the value of checkpoint 2, whose files were open


def test_rows_asked_for_before_and_read_after(job: Path) -> None:
    rows = statestore.inspect(job).table(STATE).scan(filter=("key", "=", "user-5"))
    replace(job)
    assert [row["value"] for row in rows.read_all().to_pylist()] == [8]
    assert [row["value"] for row in rows.read_all().to_pylist()] == [8]


def open_files(job: Path) -> list[str]:
    """Return the files of a job that this process has open; the name of a removed one ends with "(deleted)"."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(each.readlink()))
    return [each for each in found if each.startswith(str(job))]


def test_what_was_pinned_is_read_after_its_files_were_removed(job: Path) -> None:
    """Nothing stays open, and takes space on the disk, when the last reference to what was pinned is gone."""
    truth = statestore.inspect(fixture("rocksdb") / JOB / "chk-2").table(STATE).scan().read_all()
    pinned = statestore.inspect(job).pin()
    replace(job)
    assert STATE in pinned.tables()
    assert pinned.table(STATE).scan().read_all().sort_by("key") == truth.sort_by("key")
    assert pinned.table(STATE).versions()["version"].to_pylist() == [2]
    assert pinned.table(STATE).history(key="user-5").read_all()["value"].to_pylist() == [8]
    assert pinned.summary(STATE).damaged is False
    assert pinned.table(f"{STATE}$segments").scan().read_all().num_rows > 0
    assert open_files(job)
    del pinned
    assert not open_files(job)


def test_a_transaction_keeps_its_checkpoint(tmp_path: Path) -> None:
    """Each checkpoint of this job has all its files in its own folder; few states are attached in no time."""
    (source,) = fixture("in-flight").glob("*/")
    shutil.copytree(source / "chk-2", tmp_path / source.name / "chk-2")
    numbers = 'SELECT key FROM "slow.seen" ORDER BY key'
    connection = statestore.attach(str(tmp_path / source.name))
    connection.execute("BEGIN")
    assert connection.execute(numbers).fetchall() == [(0,), (1,), (2,), (4,), (6,), (8,)]
    shutil.copytree(source / "chk-4", tmp_path / source.name / "chk-4")
    shutil.rmtree(tmp_path / source.name / "chk-2")
    assert connection.execute(numbers).fetchall() == [(0,), (1,), (2,), (4,), (6,), (8,)]
    assert connection.execute('SELECT count(*) FROM "src.SourceReaderState"').fetchall() != [(0,)]
    connection.execute("COMMIT")
    assert len(connection.execute(numbers).fetchall()) == 10


def test_no_more_than_the_last_checkpoints_stay_open(job: Path) -> None:
    """The files that each has open are the same number, as nothing is replaced meanwhile."""
    pinned, counts = [], []
    for _ in range(held_files.MOST_HELD + 2):
        pinned.append(statestore.inspect(job).pin())
        counts.append(len(open_files(job)))
    assert counts == [counts[0] * min(number, held_files.MOST_HELD) for number in range(1, len(counts) + 1)]
    replace(job)
    assert pinned[-1].table(STATE).scan().read_all().num_rows == 20
    with pytest.raises(NotFoundError, match="VERSION_GONE"):
        pinned[0].table(STATE)


def test_a_pinned_read_without_open_files_names_the_checkpoint_that_replaced_its_own(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_files, "_PART", 1_000_000)
    pinned = statestore.inspect(job).pin()
    replace(job)
    gone = r"VERSION_GONE.*checkpoint 2 of .* is gone: the job has replaced it by checkpoint 3; read again"
    for ask in (
        pinned.tables,
        lambda: pinned.table(STATE),
        lambda: pinned.summary(STATE),
        lambda: pinned.table(f"{STATE}$segments").scan().read_all(),
    ):
        with pytest.raises(NotFoundError, match=gone):
            ask()


def test_a_summary_is_of_the_checkpoint_that_is_there(job: Path) -> None:
    found = statestore.inspect(job)
    found.tables()
    replace(job)
    summary = found.summary(STATE)
    assert (summary.version, summary.damaged) == (3, False)


def test_the_oldest_checkpoint_is_left_out_when_it_is_gone(job: Path) -> None:
    (job.parent / "next").rename(job / "chk-3")
    for number in (2, 3):
        os.utime(job / f"chk-{number}" / "_metadata", ns=(taken_us(number) * 1000,) * 2)
    pinned = statestore.inspect(job).pin()
    table = pinned.table(STATE)
    assert table.schema.names
    shutil.rmtree(job / "chk-2")
    assert table.versions()["version"].to_pylist() == [3]
    assert table.history(key="user-5").read_all().num_rows == 1
    assert table.changes().read_all().num_rows == 0
    assert (table.get("user-5", version=3) or {})["value"] == 12
    with pytest.raises(NotFoundError, match="VERSION_GONE"):
        table.scan(version=2)


def test_a_lost_header_hides_one_operator_alone(tmp_path: Path) -> None:
    (source,) = (path.parent for path in fixture("heap-timers").glob("*/chk-2"))
    job = Path(shutil.copytree(source, tmp_path / source.name))
    files = statestore.inspect(job / "chk-2").table("win-tumble.window-contents$segments").scan().read_all().to_pylist()
    header = next(row["name"] for row in files if row["role"] == "header")
    (job / "chk-2" / header).unlink()
    connection = statestore.attach(str(job))
    assert connection.execute('SELECT count(*) > 0 FROM "timers.event_user-timers"').fetchall() == [(True,)]
    with pytest.raises(Exception, match="FLINK_FILE_MISSING"):
        connection.execute('SELECT count(*) FROM "win-tumble.window-contents"').fetchall()


def test_a_file_lost_for_good_is_no_replacement(job: Path) -> None:
    shutil.rmtree(job / "shared")
    with pytest.raises(StateStoreError, match="FLINK_FILE_MISSING"):
        statestore.inspect(job).table(STATE).scan().read_all()


def test_watch_goes_on_behind_a_gap(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = statestore.inspect(job).table(STATE).table
    looks = iter([job])

    def look() -> None:
        there = next(looks, None)
        if there is None:
            raise KeyboardInterrupt
        replace(there)

    with pytest.raises(KeyboardInterrupt):
        list(new_versions(table, None, look))
    assert "no version 2 any more: the changes up to version 3 are not known" in capsys.readouterr().err


def test_watch_goes_on_where_a_version_goes_between_its_look_and_its_read(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = statestore.inspect(job).table(STATE).table
    replace(job)
    assert list(changes_of(table, None, (), 3, 3)) == []
    assert "the changes of versions 3 to 3 are not known: " in capsys.readouterr().err


def test_the_command_line_reads_again(job: Path) -> None:
    replace_at(job, "open", "OPTIONS")
    assert '"value": ' in run("get", str(job), STATE, "user-5", "--json").out


def test_a_question_is_asked_again_while_its_answer_changes() -> None:
    asked: list[int] = []

    def moving() -> None:
        asked.append(1)
        raise NotFoundError(ErrorCode.VERSION_GONE, f"checkpoint {len(asked)} is gone")

    with pytest.raises(NotFoundError, match=f"checkpoint {ATTEMPTS} is gone"):
        again(moving)
    asked.clear()

    def bound() -> None:
        asked.append(1)
        raise NotFoundError(ErrorCode.VERSION_GONE, "checkpoint 2 is gone")

    with pytest.raises(NotFoundError):
        again(bound)
    assert len(asked) == 2

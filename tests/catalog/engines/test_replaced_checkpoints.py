"""Checkpoints that Flink replaces while they are read: files go at exact moments, by the events of the interpreter."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path, multiset
from support.command_line import run
from support.flink.fixtures import fixture, taken_us
from support.object_store import object_store
from support.parameters import mostly_slow
from support.replaced_places import S3, Files, Fsspec, Local, Place, replaced_at, stop_listening

import statestore
from statestore.catalog.summaries import summaries
from statestore.connector.cli.watch_commands import changes_of, new_versions
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.flink.snapshot import held_files
from statestore.formats.flink.snapshot.handles import FileHandle, RocksHandle
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location
from statestore.formats.replaced_versions import ATTEMPTS, again
from statestore.formats.state_table import Query

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


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only the last reference frees an object: the collector may come at any time, or late."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
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
    assert "the changes of version 3 are not known: " in capsys.readouterr().err


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


# Reads beside an engine that keeps one version, on this machine, in S3 and behind fsspec.
#
# The version that is read is replaced before the n-th request of the read. A question has the answer of the old or of
# the new version, whatever n is; a read that has begun names the new one.

QUERY = "spark4.3.0-agg__rk"
STATES = {"spark": "state", "flink": "kv-string.count"}
PLACES = ["local", "s3", "fsspec"]


def files_below(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@cache
def versions_of(engine: str) -> tuple[str, Files, Files]:
    """The name of a folder, and its files with the version before the last, and with the last alone."""
    if engine == "spark":
        return QUERY, _batch(4), _batch(5)
    return JOB, _checkpoint(2), _checkpoint(3)


def _batch(number: int) -> Files:
    whole = files_below(checkpoint_path(QUERY))
    zips = {name: data for name, data in whole.items() if name.endswith(f"/{number + 1}.zip")}
    listed = b"".join(zipfile.ZipFile(BytesIO(data)).read("metadata") for data in zips.values())

    def is_needed(name: str) -> bool:
        folder, _, file = name.rpartition("/")
        bare = file.removeprefix(".").removesuffix(".crc")
        if folder in ("commits", "offsets", "sources/0"):
            return bare == str(number)
        return bare.encode() in listed if folder.endswith("SSTs") else bare == f"{number + 1}.zip" or "." not in bare

    return {name: data for name, data in whole.items() if is_needed(name)}


def _checkpoint(number: int) -> Files:
    folder = fixture("rocksdb") / JOB
    metadata = SnapshotFiles(folder_at(parse_location(folder / f"chk-{number}"))).metadata()
    needed = {
        handle.uri.rpartition("/")[2]
        for operator in metadata.operators
        for subtask in operator.subtasks
        if isinstance(subtask.managed_keyed, RocksHandle)
        for _, handle in (*subtask.managed_keyed.shared, *subtask.managed_keyed.private)
        if isinstance(handle, FileHandle)
    }
    whole = files_below(folder)
    return {
        name: whole[name] for name in whole if name.startswith(f"chk-{number}/") or name.partition("/")[2] in needed
    }


def _scanned(path: str, state: str) -> object:
    return multiset(statestore.inspect(path).table(state).scan().read_all())


def _numbers(path: str, state: str, table: str) -> object:
    return [row["version"] for row in statestore.inspect(path).table(f"{state}${table}").scan().read_all().to_pylist()]


QUESTIONS: dict[str, Callable[[str, str], object]] = {
    "tables": lambda path, state: statestore.inspect(path).tables(),
    "scan": _scanned,
    "sql": lambda path, state: multiset(statestore.sql(path, f'SELECT * FROM "{state}"')),
    "attach": lambda path, state: statestore.attach(path).execute(f'SELECT count(*) FROM "{state}"').fetchall(),
    "summaries": lambda path, state: [(each["version"], each["status"]) for each in summaries(path)][:1],
    "versions": lambda path, state: statestore.inspect(path).table(state).versions()["version"].to_pylist(),
    "changes": lambda path, state: statestore.inspect(path).table(state).changes().read_all().num_rows,
    "$snapshots": lambda path, state: _numbers(path, state, "snapshots"),
    "$segments": lambda path, state: statestore.inspect(path).table(f"{state}$segments").scan().read_all().num_rows,
    "inspect": lambda path, state: [row["status"] for row in run("inspect", path, "--json").rows][:1],
}


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with object_store() as store:
        yield S3(store)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    found: dict[str, Callable[[], Place]] = {
        "local": lambda: Local(tmp_path), "s3": lambda: request.getfixturevalue("s3"), "fsspec": Fsspec,
    }  # fmt: skip
    yield found[request.param]()
    stop_listening()


def answers(place: Place, engine: str, ask: Callable[[str, str], object], step: int) -> Iterator[tuple[int, object]]:
    """Each ``step``-th number of a request before which the version is replaced, with the answer."""
    name, old, new = versions_of(engine)
    for at in count(0, step):
        path = place.lay(name, old)
        requests = replaced_at(place, old, new, at)
        found = ask(path, STATES[engine])
        stop_listening()
        if not requests.done:
            return
        yield at, found


CASES = [
    *((place, "spark", question) for place in ("local", "fsspec") for question in QUESTIONS),
    *(("s3", "spark", question) for question in ("scan", "changes", "$segments")),
    *(("fsspec", "flink", question) for question in ("tables", "scan", "versions")),
]
QUICK = [
    ("local", "spark", "scan"),
    ("s3", "spark", "scan"),
    *(("fsspec", "spark", question) for question in ("scan", "summaries")),
    ("fsspec", "flink", "tables"),
]


@pytest.mark.parametrize(("place", "engine", "question"), mostly_slow(CASES, QUICK), indirect=["place"])
def test_a_question_has_the_answer_of_one_of_both_versions(place: Place, engine: str, question: str) -> None:
    ask = QUESTIONS[question]
    name, *versions = versions_of(engine)
    truths = [ask(place.lay(name, files), STATES[engine]) for files in versions]
    step = 11 if engine == "spark" else 41
    for at, found in answers(place, engine, ask, step):
        assert found in truths, at


BOTH = [(place, engine) for place in PLACES for engine in STATES]


@pytest.mark.parametrize(
    ("place", "engine"),
    mostly_slow(BOTH, [("local", "spark"), ("fsspec", "flink"), ("s3", "spark")]),
    indirect=["place"],
)
def test_a_task_names_the_version_that_replaced_its_own(place: Place, engine: str) -> None:
    """Tasks of Spark get pickled splits, and have no other version to go on with."""
    name, old, new = versions_of(engine)
    table: Any = statestore.inspect(place.lay(name, old)).table(STATES[engine]).table.pin()
    queries = [Query(), Query(mode="history")] if engine == "spark" else [Query()]
    planned = [(split, query) for query in queries for split in table.splits(query)[:1]]
    tasks = [pickle.dumps((table.for_tasks(), *each)) for each in planned]
    place.change(new, [each for each in old if each not in new])
    newer = {"spark": "batch 4 of .* is gone: .* batch 5;", "flink": "checkpoint 2 of .* is gone: .* checkpoint 3;"}
    for task in tasks:
        with pytest.raises(NotFoundError, match=f"VERSION_GONE.*{newer[engine]}.*read again"):
            _read_task(task)


def _read_task(task: bytes) -> None:
    reader, split, query = pickle.loads(task)
    list(reader.read(split, query))


@pytest.mark.parametrize("place", ["fsspec"], indirect=True)
def test_what_is_lost_for_good_is_not_replaced(place: Place) -> None:
    name, old, _ = versions_of("spark")
    path = place.lay(name, old)
    table: Any = statestore.inspect(path).table("state").table.pin()
    (split, *_) = table.splits(Query())
    place.change({}, [each for each in old if each.endswith(".zip")])
    with pytest.raises(StateStoreError, match=r"SPARK_STATE_NOT_FOUND.*no batch can be read now"):
        list(table.read(split, Query()))

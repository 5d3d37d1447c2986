"""Reads beside an engine that keeps one version, on this machine, in S3 and behind fsspec.

The version that is read is replaced before the n-th request of the read. A question has the answer of the old or of the
new version, whatever n is; a read that has begun names the new one.
"""

from __future__ import annotations

import pickle
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
from support.flink.fixtures import fixture
from support.object_store import object_store
from support.parameters import mostly_slow
from support.replaced_places import S3, Files, Fsspec, Local, Place, replaced_at, stop_listening

import statestore
from statestore.catalog.summaries import summaries
from statestore.formats.errors import NotFoundError, StateStoreError
from statestore.formats.flink.snapshot.handles import FileHandle, RocksHandle
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import parse_location
from statestore.formats.state_table import Query

QUERY, JOB = "spark4.3.0-agg__rk", "b1d1aedd435a0263c71fffd747f0fa48"
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

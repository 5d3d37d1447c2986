"""Checkpoints of the changelog backend and of ForSt in a real object store: every cell, and the requests for a key."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support.command_line import run
from support.flink.fixtures import fixture, manifest, truth
from support.flink.snapshot_reads import rows_of, source_at
from support.flink.truth_rows import lines_of, lines_of_truth
from support.object_stores.request_record import recorded
from support.object_stores.s3_server import S3Server

import statestore
from statestore.formats.flink.state_at import ElementsAt, KeyedAt

pytestmark = pytest.mark.slow

RUNS = (
    "async-forst", "async-forst-local", "async-sql-2.1", "logged-rocksdb", "logged-hashmap-snappy",
    "logged-windows-1.20",
)  # fmt: skip
BUCKET = "states"


@pytest.fixture(scope="module", params=RUNS)
def moved(request: pytest.FixtureRequest, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run that was copied into a bucket, with the paths of the disk in its metadata."""
    name: str = request.param
    _copy(fixture(name), s3_server.folder / BUCKET / "moved" / name)
    return name, s3_server.warehouse


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=shutil.copyfile)


def rows_are_those_of_the_job(name: str, path: Any) -> int:
    """Compare every state of every snapshot of a run with what the job recorded; return how many were compared."""
    facts, compared = manifest(name), 0
    names = {number: uid for uid, number in facts["operator_ids"].items()}
    for snapshot in facts["snapshots"]:
        known: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in truth(name, snapshot["truth"]):
            known.setdefault((row["operator"], row["state"]), []).append(row)
        source = source_at(path(snapshot["path"]))
        for state in source.opened(source.refs[-1][0]).states().values():
            place = (names.get(state.identity[0], state.identity[0]), state.identity[2])
            at = source.at(state.name, source.newest(state.name))
            if place in known and isinstance(at, KeyedAt | ElementsAt):
                assert lines_of(at.form, rows_of(source, state.name)) == lines_of_truth(known.pop(place)), place
                compared += 1
        assert not known
    return compared


def test_a_moved_run_has_the_rows_that_the_job_recorded(moved: Any) -> None:
    name, warehouse = moved
    assert rows_are_those_of_the_job(name, lambda path: warehouse(f"moved/{name}/{path}")) > 0


def rewritten(name: str, scheme: str, prefix: str) -> dict[bytes, bytes]:
    """The beginning of the URIs of a run, and one of the same length in the bucket, which begins with ``prefix``."""
    written = f"file:/tmp/flink/{name}/".encode()
    start = f"{scheme}://{BUCKET}/{prefix}"
    return {written: (start + "x" * (len(written) - len(start) - 1) + "/").encode()}


@pytest.mark.parametrize("name", ["async-forst", "logged-rocksdb"])
@pytest.mark.parametrize("scheme", ["s3", "s3p", "s3a"])
def test_files_are_found_where_the_job_wrote_them(name: str, scheme: str, s3_server: S3Server) -> None:
    """The folders of checkpoints were copied, and the files that they share were not."""
    bucket = s3_server.folder / BUCKET
    ((old, new),) = rewritten(name, scheme, scheme[-1]).items()
    place = bucket / new.decode().partition(f"{BUCKET}/")[2]
    copied = bucket / "copied" / scheme / name
    _copy(fixture(name), copied)
    found = 0
    for each in copied.rglob("_metadata"):
        found += each.read_bytes().count(old)
        each.write_bytes(each.read_bytes().replace(old, new))
    assert found
    for kept in ("shared", "taskowned", "dstl"):
        for folder in copied.glob(f"*/{kept}"):
            target = place / folder.relative_to(copied)
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(target)
    assert rows_are_those_of_the_job(name, lambda path: s3_server.warehouse(f"copied/{scheme}/{name}/{path}")) > 0


@pytest.mark.parametrize("name", ["async-forst", "logged-hashmap-snappy"])
def test_each_door_reads_a_job_in_the_bucket_as_on_a_disk(name: str, s3_server: S3Server) -> None:
    here = fixture(name)
    _copy(here, s3_server.folder / BUCKET / "doors" / name)
    folder = next(each for each in sorted(here.iterdir()) if len(each.name) == 32)
    there = s3_server.warehouse(f"doors/{name}/{folder.name}")
    local, remote = statestore.inspect(folder), statestore.inspect(there)
    assert remote.tables() == local.tables()
    for table in local.tables()[:6]:
        one, other = local.table(table), remote.table(table)
        # Objects have no time of the job, and rows by id.
        assert other.versions()["version"] == one.versions()["version"]
        assert sorted(other.history().read_all()["key"].to_pylist(), key=str) == sorted(
            one.history().read_all()["key"].to_pylist(), key=str
        )
    assert run("verify", there).code == run("verify", folder).code == 0


@pytest.mark.parametrize("name", ["async-forst", "logged-rocksdb"])
def test_a_key_takes_no_more_requests_than_the_whole_state(name: str, s3_server: S3Server) -> None:
    _copy(fixture(name), s3_server.folder / BUCKET / "keys" / name)
    path = manifest(name)["snapshots"][-1]["path"]
    where = s3_server.warehouse(f"keys/{name}/{path}")
    here = statestore.inspect(fixture(name) / path)
    table = next(each for each in here.tables() if here.table(each).scan().schema.names[:1] == ["key"])
    key = here.table(table).scan().read_all()["key"].to_pylist()[0]
    assert statestore.inspect(where).table(table).scan().read_all().num_rows  # the headers of all states are known then
    with recorded() as record:
        found = statestore.inspect(where).table(table).scan(filter=("key", "=", key)).read_all()
    expected = here.table(table).scan(filter=("key", "=", key)).read_all()
    assert sorted(found.to_pylist(), key=str) == sorted(expected.to_pylist(), key=str)
    with recorded() as whole:
        statestore.inspect(where).table(table).scan().read_all()
    assert 0 < len(record) <= len(whole), f"{record}\n{whole}"

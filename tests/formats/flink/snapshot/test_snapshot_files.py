"""Files of a snapshot: found where it is now, of the size that its handles say, and nothing else is opened."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.flink.fixtures import NAMES, copied, fixture, manifest, snapshots
from support.flink.snapshot_reads import files_at, rocks_of, streams_of, tree_of
from support.object_store import BUCKET, ObjectStore, object_store
from support.open_files import open_below
from support.rocksdb.rocksdb_scans import pairs

from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.flink.snapshot.handles import (
    EmptyHandle,
    FileHandle,
    InPlace,
    RelativeHandle,
    SegmentHandle,
    StreamHandle,
    stream_size,
)
from statestore.formats.flink.snapshot.job_snapshots import find_jobs, recognises
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER, opened_database
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.places.fetched_parts import forget_parts
from statestore.formats.places.folder import MAX_SMALL_BYTES, Folder, folder_at
from statestore.formats.places.locations import parse_location
from statestore.formats.rocksdb.manifest import read_families
from statestore.formats.rocksdb.scan import scan_rocksdb

JOB, OTHER = "0" * 31 + "a", "0" * 31 + "b"
SAVEPOINT = "savepoint-00000a-0123456789ab"


def snapshot(tmp_path: Path) -> SnapshotFiles:
    """The files of checkpoint 7 of a job in folder ``base``, with an empty ``_metadata``."""
    folder = tmp_path / "base" / JOB / "chk-7"
    folder.mkdir(parents=True)
    (folder / "_metadata").write_bytes(b"")
    return files_at(folder)


def written(path: Path, data: bytes = b"content") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_every_handle_of_a_snapshot_that_was_moved_is_read(name: str, tmp_path: Path) -> None:
    moved = tmp_path / "else where"
    shutil.copytree(fixture(name), moved)
    before = tree_of(moved)
    for facts in manifest(name)["snapshots"]:
        files = pickle.loads(pickle.dumps(files_at(moved / facts["path"])))
        handles = list(streams_of(files.metadata()))
        assert handles or name == "changelog"
        for handle in handles:
            assert len(files.read(handle)) == stream_size(handle)
            if isinstance(handle, FileHandle | RelativeHandle | SegmentHandle):
                assert files.locate(handle).path.startswith(f"{moved}/")
    assert tree_of(moved) == before


def test_a_savepoint_needs_only_its_own_folder(tmp_path: Path) -> None:
    for name, facts in snapshots():
        if facts["kind"].startswith("savepoint"):
            alone = tmp_path / f"{name}-{facts['checkpoint_id']}"
            shutil.copytree(fixture(name) / facts["path"], alone)
            files = files_at(alone)
            assert all(len(files.read(handle)) == stream_size(handle) for handle in streams_of(files.metadata()))


PLACES: dict[str, tuple[str, str]] = {
    "shared": (f"file:/gone/{OTHER}/shared/uuid", f"base/{JOB}/shared/uuid"),
    "merged": (f"hdfs://node:80/gone/{OTHER}/taskowned/job_x/uuid", f"base/{JOB}/taskowned/job_x/uuid"),
    "checkpoint": (f"s3://bucket/gone/{OTHER}/chk-3/uuid", f"base/{JOB}/chk-3/uuid"),
    "folder named shared above": (f"file:/shared/{OTHER}/shared/uuid", f"base/{JOB}/shared/uuid"),
    "another job": (f"file:/gone/{OTHER}/shared/uuid", f"base/{OTHER}/shared/uuid"),
    "savepoint": (f"file:/gone/{SAVEPOINT}/uuid", f"base/{SAVEPOINT}/uuid"),
    "beside metadata": ("file:/gone/uuid", f"base/{JOB}/chk-7/uuid"),
    "all in one folder": (f"file:/gone/{OTHER}/shared/uuid", f"base/{JOB}/chk-7/uuid"),
    "encoded": ("file:/gone/shared/a%20b", f"base/{JOB}/shared/a b"),
    "percent": ("file:/gone/shared/a%20b", f"base/{JOB}/shared/a%20b"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_uri_of_another_machine_is_found_beside_the_metadata(place: str, tmp_path: Path) -> None:
    uri, expected = PLACES[place]
    files = snapshot(tmp_path)
    path = written(tmp_path / expected)
    assert files.locate(FileHandle(uri, 7)).path == str(path)
    assert files.read(FileHandle(uri, 7)) == b"content"
    assert files.read(SegmentHandle(uri, 2, 3, "")) == b"nte"


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "file://host{}", "{}", "FILE:{}"])
def test_a_uri_of_this_machine_is_read_as_it_stands(form: str, tmp_path: Path) -> None:
    files = replace(snapshot(tmp_path), outside=True)
    path = written(tmp_path / "other base" / "files" / "uu%id")
    assert files.read(FileHandle(form.format(path), 7)) == b"content"
    encoded = str(tmp_path / "other%20base" / "files" / "uu%25id")
    assert files.read(FileHandle(form.format(encoded), 7)) == b"content"


def test_files_beside_the_metadata_come_before_those_that_the_uri_names(tmp_path: Path) -> None:
    files = replace(snapshot(tmp_path), outside=True)
    old = written(tmp_path / "old" / OTHER / "shared" / "uuid", b"old one")
    handle = FileHandle(f"file:{old}", 7)
    assert files.read(handle) == b"old one"
    written(tmp_path / "base" / JOB / "chk-7" / "uuid", b"by name")
    assert files.read(handle) == b"by name"
    written(tmp_path / "base" / OTHER / "shared" / "uuid", b"sibling")
    assert files.read(handle) == b"sibling"
    written(tmp_path / "base" / JOB / "shared" / "uuid", b"of this")
    assert files.read(handle) == b"of this"


def test_a_missing_file_is_named_with_the_places_that_were_tried(tmp_path: Path) -> None:
    files = snapshot(tmp_path)
    with pytest.raises(NotFoundError) as raised:
        files.locate(FileHandle(f"file:/gone/{OTHER}/shared/uuid", 7))
    message = raised.value.message
    assert raised.value.code == "FLINK_FILE_MISSING"
    assert f"found no file 'file:/gone/{OTHER}/shared/uuid' of 7 bytes" in message
    for place in (f"{tmp_path}/base/{JOB}/shared/uuid", f"{tmp_path}/base/{JOB}/chk-7/uuid", f"/gone/{OTHER}/shared"):
        assert place in message
    assert "folders shared and taskowned" in message
    with pytest.raises(NotFoundError, match="FLINK_FILE_MISSING"):
        files_at(tmp_path / "nothing").metadata()


def test_a_checkpoint_that_was_copied_without_its_shared_files_is_refused(tmp_path: Path) -> None:
    root = copied("rocksdb", tmp_path)
    facts = manifest("rocksdb")["snapshots"][1]
    shutil.rmtree(root / facts["path"].split("/")[0] / "shared")
    files = files_at(root / facts["path"])
    errors = []
    for handle in streams_of(files.metadata()):
        try:
            files.read(handle)
        except NotFoundError as error:
            errors.append(error.code)
    assert set(errors) == {"FLINK_FILE_MISSING"}


@pytest.mark.parametrize("found", [b"", b"conten", b"content and more"])
def test_a_file_of_another_size_is_refused(found: bytes, tmp_path: Path) -> None:
    files = snapshot(tmp_path)
    written(tmp_path / "base" / JOB / "chk-7" / "uuid", found)
    for handle in (RelativeHandle("uuid", 7), FileHandle("file:/gone/uuid", 7)):
        with pytest.raises(CorruptError, match=f"found {len(found)} bytes, expected 7") as raised:
            files.open_at(handle)
        assert raised.value.code == "FLINK_FILE"


def test_a_segment_beyond_the_end_of_its_file_is_refused(tmp_path: Path) -> None:
    files = snapshot(tmp_path)
    written(tmp_path / "base" / JOB / "chk-7" / "uuid")
    assert files.read(SegmentHandle("file:/gone/uuid", 4, 3, "")) == b"ent"
    for start, size in ((4, 4), (8, 0), (2**62, 2**62)):
        with pytest.raises(CorruptError, match="found 7 bytes, expected at least") as raised:
            files.open_at(SegmentHandle("file:/gone/uuid", start, size, ""))
        assert raised.value.code == "FLINK_FILE"


def test_a_handle_that_is_cut_while_it_is_read_is_refused(tmp_path: Path) -> None:
    files = snapshot(tmp_path)
    path = written(tmp_path / "base" / JOB / "chk-7" / "uuid", bytes(1 << 20))
    with files.open_at(RelativeHandle("uuid", 1 << 20)) as part:
        os.truncate(path, 10)
        with pytest.raises(CorruptError, match="found 10 bytes at byte 0, expected 1048576"):
            part.read_at(0, 1 << 20)


HOSTILE_PATHS = ["", ".", "..", "../uuid", "/etc/passwd", "a/b", "a/../b", "a\0b", "uuid/", "file:/etc/passwd"]
HOSTILE_URIS = [
    "",
    "uuid",
    "file:uuid",
    "file:",
    "file:/",
    "file:/a/",
    "file:/gone/shared/../../secret/uuid",
    "file:/gone/shared/%2e%2e/%2E%2E/secret/uuid",
    "file:/gone/shared/..",
    "file:/gone/shared/a\0b",
    "file:" + "/a" * 5000,
]


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_a_relative_path_is_the_name_of_a_file(path: str, tmp_path: Path) -> None:
    files = snapshot(tmp_path)
    written(tmp_path / "base" / JOB / "uuid")
    with pytest.raises(CorruptError, match=r"_metadata: found a handle with path .*expected the name of a file"):
        files.read(RelativeHandle(path, 7))


@pytest.mark.parametrize("uri", HOSTILE_URIS)
def test_a_uri_that_leads_out_of_its_folder_is_refused(uri: str, tmp_path: Path) -> None:
    files = snapshot(tmp_path)
    written(tmp_path / "base" / "secret" / "uuid")
    for handle in (FileHandle(uri, 7), SegmentHandle(uri, 0, 7, "")):
        with pytest.raises(CorruptError, match=r"found a handle with path .*expected the URI of a file") as raised:
            files.read(handle)
        assert raised.value.code == "FLINK_METADATA"


@pytest.mark.parametrize("scheme", ["s3:/", "hdfs://node", "http://host", "s3://bucket", "jar:"])
def test_a_uri_of_another_storage_is_not_read_from_this_machine(scheme: str, tmp_path: Path) -> None:
    files = snapshot(tmp_path)
    path = written(tmp_path / "else" / "uuid")
    with pytest.raises(NotFoundError):
        files.read(FileHandle(f"{scheme}{path}", 7))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_not_opened(make: Callable[[str], None], tmp_path: Path) -> None:
    files = snapshot(tmp_path)
    make(f"{tmp_path}/base/{JOB}/chk-7/uuid")
    with pytest.raises(NotFoundError):
        files.read(RelativeHandle("uuid", 0))


def test_metadata_that_is_no_file_is_refused(tmp_path: Path) -> None:
    files = snapshot(tmp_path)
    metadata = tmp_path / "base" / JOB / "chk-7" / "_metadata"
    metadata.unlink()
    os.mkfifo(metadata)
    with pytest.raises(CorruptError, match="FLINK_FILE"):
        files.metadata()


def test_a_name_that_the_file_system_refuses_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StateStoreError):
        snapshot(tmp_path).read(RelativeHandle("x" * 5000, 7))


def test_ranges_of_every_kind_of_handle(tmp_path: Path) -> None:
    files = snapshot(tmp_path)
    written(tmp_path / "base" / JOB / "chk-7" / "uuid", b"0123456789")
    handles: list[tuple[StreamHandle, bytes]] = [
        (InPlace("name", b"0123456789"), b"0123456789"),
        (RelativeHandle("uuid", 10), b"0123456789"),
        (FileHandle("file:/gone/uuid", 10), b"0123456789"),
        (SegmentHandle("file:/gone/uuid", 3, 4, ""), b"3456"),
        (EmptyHandle(), b""),
    ]
    for handle, data in handles:
        with files.open_at(handle) as part:
            assert part.size == len(data)
            for offset in range(12):
                for size in range(12):
                    assert part.read_at(offset, size) == data[offset : offset + size]
            assert part.read_at(-1, 3) == b""
            assert part.read_at(1, -3) == b""


def test_a_small_read_has_a_bound(tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match=f"expected at most {MAX_SMALL_BYTES} bytes"):
        snapshot(tmp_path).read(RelativeHandle("uuid", MAX_SMALL_BYTES + 1))


def test_no_file_stays_open(tmp_path: Path) -> None:
    files = snapshot(tmp_path)
    written(tmp_path / "base" / JOB / "chk-7" / "uuid")
    for _ in range(20):
        files.read(RelativeHandle("uuid", 7))
        files.locate(RelativeHandle("uuid", 7))
    assert open_below(tmp_path) == []


RUNS = ("rocksdb", "file-merging", "heap-timers")


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        for name in RUNS:
            found.upload(fixture(name), f"base/{name}")
        yield found


def at(store: ObjectStore, path: str) -> Folder:
    forget_parts()
    store.clear()
    return folder_at(parse_location(store.uri(path)))


def test_jobs_are_found_with_a_request_each(store: ObjectStore) -> None:
    folder = at(store, "base/rocksdb")
    assert recognises(folder)
    assert len(store.requests) == 1
    store.clear()
    (job,) = find_jobs(folder)
    checkpoints = {snapshot.name for snapshot in job.snapshots if snapshot.kind == "checkpoint"}
    assert checkpoints == {"chk-2", "chk-3"}  # in the order of the upload, which differs from run to run
    assert {snapshot.name for snapshot in job.snapshots} == {
        each["path"].split("/")[-1] for each in manifest("rocksdb")["snapshots"]
    }
    assert all(snapshot.time_us for snapshot in job.snapshots)
    assert len(store.requests) == 6  # two listings, four snapshots
    one = at(store, f"base/rocksdb/{job.job}/chk-3/_metadata")
    assert recognises(one)
    assert len(store.requests) == 1
    assert [snapshot.name for snapshot in find_jobs(one)[0].snapshots] == ["chk-3"]
    assert not recognises(at(store, "base/nothing"))
    assert find_jobs(at(store, "base/nothing")) == ()


@pytest.mark.parametrize("name", RUNS)
def test_everything_in_an_object_store_is_what_it_is_on_this_machine(name: str, store: ObjectStore) -> None:
    for facts in manifest(name)["snapshots"][-1:]:
        here = files_at(fixture(name) / facts["path"])
        at(store, "base")
        there = pickle.loads(pickle.dumps(files_at(store.uri(f"base/{name}/{facts['path']}"))))
        metadata = there.metadata()
        assert metadata == here.metadata()
        handles = list(streams_of(metadata))[:40]
        stored = [each for each in handles if isinstance(each, FileHandle | RelativeHandle | SegmentHandle)]
        assert len(there.locate_all(stored)) == len(stored)
        for handle in handles:
            assert there.read(handle) == here.read(handle)
        for _, rocks in list(rocks_of(metadata))[:2]:
            with opened_database(there, rocks) as copy, opened_database(here, rocks) as linked:
                assert read_families(copy) == read_families(linked)
                for family in read_families(copy):
                    rows = [
                        list(scan_rocksdb(each, pairs, family=family, delimiter=DELIMITER)) for each in (copy, linked)
                    ]
                    assert rows[0] == rows[1]


def test_a_missing_object_and_one_of_another_size_are_refused(store: ObjectStore) -> None:
    path = manifest("rocksdb")["snapshots"][1]["path"]
    files = files_at(store.uri(f"base/rocksdb/{path}"))
    with pytest.raises(NotFoundError, match="FLINK_FILE_MISSING"):
        files.read(RelativeHandle("nothing", 7))
    with pytest.raises(CorruptError, match="FLINK_FILE"):
        files.read(RelativeHandle("_metadata", 7))
    with pytest.raises(NotFoundError, match="FLINK_FILE_MISSING"):
        files_at(store.uri("base/nothing")).metadata()


def test_a_uri_is_read_as_it_stands_from_the_same_bucket_only(store: ObjectStore) -> None:
    with store.filesystem.open_output_stream(f"{BUCKET}/entropy/uuid") as file:
        file.write(b"content")
    store.filesystem.create_dir("other")
    with store.filesystem.open_output_stream("other/entropy/uuid") as file:
        file.write(b"content")
    files = files_at(store.uri("base/job/chk-1"))
    for scheme in ("s3", "s3a"):
        assert files.read(FileHandle(f"{scheme}://{BUCKET}/entropy/uuid", 7)) == b"content"
        with pytest.raises(NotFoundError):
            files.read(FileHandle(f"{scheme}://other/entropy/uuid", 7))
    for uri in ("file:/entropy/uuid", f"file:/{BUCKET}/entropy/uuid", f"gs://{BUCKET}/entropy/uuid", "/etc/hostname"):
        with pytest.raises(NotFoundError):
            files.read(FileHandle(uri, 7))

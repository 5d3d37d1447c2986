"""Snapshots in an object store: all that is read on this machine is read there, with few requests."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import files_at, rocks_of, streams_of
from support.object_store import BUCKET, ObjectStore, object_store
from support.rocksdb.rocksdb_scans import pairs

from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.flink.snapshot.handles import FileHandle, RelativeHandle, SegmentHandle
from statestore.formats.flink.snapshot.job_snapshots import find_jobs, recognises
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER, opened_database
from statestore.formats.places.fetched_parts import forget_parts
from statestore.formats.places.folder import Folder, folder_at
from statestore.formats.places.locations import parse_location
from statestore.formats.rocksdb.manifest import read_families
from statestore.formats.rocksdb.scan import scan_rocksdb

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

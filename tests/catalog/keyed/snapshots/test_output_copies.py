"""`outputs` returns paths of the files that a batch emitted: the store's own, or copies from an object store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from support.keyed.keyed_backends import catalog_of, refused
from support.keyed.keyed_gates import KINDS, fill, reopened
from support.keyed.keyed_model import Tasks
from support.places import DIRECTORY, MEMORY, S3, in_places

from statestore.catalog.keyed.keyed_store import KeyedStore
from statestore.catalog.keyed.snapshots import stored_objects
from statestore.catalog.keyed.snapshots.snapshot_part import EMITTED
from statestore.catalog.keyed.snapshots.stored_files import _KNOWN_GOOD, store_batches
from statestore.formats.segments.segment_meta import FileRef

pytest_plugins = ["support.keyed.keyed_fixtures"]
PLACES = (DIRECTORY, MEMORY)
ROWS = 400_000  # so many numbers take more than a region, which is compared by itself


@pytest.fixture
def batch(store: KeyedStore, tasks: Tasks) -> Iterator[Any]:
    """Function that commits a batch with one output for each of these numbers."""

    def committed(number: int, *firsts: int) -> int:
        tasks.set_total("k0", number)
        part = tasks.snapshot(["incremental"])[0].result()
        return store.commit(part, transaction=("app", number), outputs=[output(store, first) for first in firsts])

    yield committed


def output(store: KeyedStore, first: int) -> FileRef:
    rows = pa.record_batch({"n": pa.array(range(first, first + ROWS), pa.int64())})
    file = store_batches(store.files(), EMITTED, rows.schema, iter([rows]))
    assert file is not None
    return file


def firsts(paths: list[Path]) -> list[int]:
    tables = [pa.ipc.open_file(path).read_all() for path in paths]
    assert all(table.num_rows == ROWS for table in tables)
    return [table["n"][0].as_py() for table in tables]


@pytest.mark.quick("directory", "memory")
@in_places(DIRECTORY, MEMORY, S3)
def test_outputs_have_paths(store: KeyedStore, batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_objects, "FETCHED_BYTES", 0)
    one, two = batch(1, 1, 2), batch(2)
    three = batch(3, 3)
    assert firsts(store.outputs(one)) == [1, 2]
    assert store.outputs(two) == []
    assert all(path.suffix == ".arrow" for path in store.outputs(one))
    store.discard(one)
    with refused("VERSION_NOT_FOUND", "only the outputs of these are kept"):
        store.outputs(one)
    store.discard(three)
    assert firsts(store.outputs(three)) == [3], "of the application's last batch"


def test_another_handle_has_them_too(store: KeyedStore, batch: Any) -> None:
    version = batch(1, 5)
    with catalog_of(store).open_store("s", read_only=True) as reader:
        assert isinstance(reader, KeyedStore)
        assert firsts(reader.outputs(version)) == [5] and reader.outputs(version) == store.outputs(version)


def test_outputs_that_are_gone_or_damaged(
    store: KeyedStore, batch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = batch(1, 1)
    (file,) = store._read().outputs(version)
    data = bytearray(store._storage.map(file.name))
    data[len(data) // 2] ^= 1
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "empty"))  # where what was put is not
    store._storage.delete(file.name)
    with refused("SNAPSHOT_FILE_MISSING", file.name):
        store.outputs(version)
    store._storage.create(file.name, bytes(data))
    with refused("SEGMENT_CORRUPT", "region 1"):
        store.outputs(version)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the objects that are fetched."""
    paths: list[str] = []
    get = obstore.get

    def counted(bucket: Any, path: str, *given: Any, **options: Any) -> Any:
        paths.append(path)
        return get(bucket, path, *given, **options)

    monkeypatch.setattr(obstore, "get", counted)
    return paths


@in_places(MEMORY)
def test_copies_are_fetched_once_and_repaired(
    store: KeyedStore, batch: Any, asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = batch(1, 1, 2)
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "empty"))
    asked.clear()
    paths = store.outputs(version)
    assert len({path for path in asked if "/emitted/" in path}) == 2
    asked.clear()
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "empty, too"))
    assert store.outputs(version) == paths and not [path for path in asked if "/emitted/" in path]
    whole = paths[0].read_bytes()
    paths[0].unlink()
    paths[0].write_bytes(whole[:-1] + b"?")
    paths[1].unlink()
    assert firsts(store.outputs(version)) == [1, 2] and paths[0].read_bytes() == whole
    with paths[0].open("r+b") as copy:  # which is a link to the one in the cache
        copy.write(b"???")
    _KNOWN_GOOD.clear()
    assert store.outputs(version) == paths and paths[0].read_bytes() == whole
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(path.name for path in paths)


@in_places(MEMORY)
def test_copies_go_with_the_outputs(store: KeyedStore, batch: Any) -> None:
    one, two = batch(1, 1), batch(2, 2)
    (first,), (second,) = store.outputs(one), store.outputs(two)
    killed, being_made = (first.with_name(f".tmp-{name}") for name in ("killed", "made"))
    for path in (killed, being_made):
        path.write_bytes(b"1")
    os.utime(killed, (0, 0))
    other = first.parents[1].with_name("another store")
    other.mkdir()
    store.discard(one)
    assert store.outputs(two) == [second]
    assert not first.exists() and not killed.exists() and second.exists() and being_made.exists() and not other.exists()
    catalog_of(store).drop_store("s")
    assert not second.exists()


@in_places(MEMORY)
def test_a_copy_of_a_later_version_stays(store: KeyedStore, batch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has it already, before this one reads of the version."""
    version = batch(1, 1)
    (path,) = store.outputs(version)
    read = store._read
    late: list[Path] = []

    def between() -> Any:
        log = read()
        if not late:
            late.append(path.with_name("0" * 32 + ".arrow"))
            late[0].write_bytes(b"1")
        return log

    monkeypatch.setattr(store, "_read", between)
    assert store.outputs(version) == [path] and late[0].exists()


@in_places(MEMORY)
@pytest.mark.parametrize("kind", KINDS)
def test_what_this_machine_wrote_is_not_fetched(store: KeyedStore, tasks: Tasks, kind: Any, asked: list[str]) -> None:
    fill(tasks, 1)
    version = tasks.commit(kind)
    fill(tasks, 2)
    later = tasks.commit(kind)
    asked.clear()
    assert reopened(tasks, 1, later) == tasks.model.content()
    assert version and not [path for path in asked if "/log/" not in path and not path.endswith("store.json")]

"""Checkpoints in an object store, through the real S3 client and every door; the truth is the rows that Spark read."""

from __future__ import annotations

import pickle
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from support.checkpoints.small_checkpoints import write_small_checkpoint
from support.checkpoints.spark_state_fixtures import checkpoint_path, index, multiset, truth
from support.command_line import run
from support.object_store import BUCKET, ObjectStore, object_store
from support.parameters import mostly_slow
from support.refusals import refused

import statestore
from statestore.catalog.summaries import summaries
from statestore.catalog.warehouse import open_table
from statestore.formats.errors import CorruptError, InvalidInputError, NotFoundError
from statestore.formats.notices import StateStoreWarning
from statestore.formats.places import fetched_parts
from statestore.formats.places.folder import PARALLEL_REQUESTS
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.checkpoint.opened_checkpoints import open_located
from statestore.formats.spark.providers import snapshot_repair
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter

ROCKSDB, DELTAS = "spark4.3.0-agg__rkcl", "spark4.3.0-agg__hdfs"
FORMAT_2, JOIN = "spark4.3.0-agg__rkv2", "spark4.3.0-join__hdfs"
STRANGE = "a b%20ü/checkpoint"


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        yield found


@pytest.fixture(autouse=True)
def _nothing_is_refused_any_more(store: ObjectStore) -> Iterator[None]:
    given = store.refuses
    yield
    store.refuses = given


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which copies are made."""
    checkpoint_path(ROCKSDB)  # is unpacked once, elsewhere
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def last(name: str, read: str = "op0~last") -> object:
    return multiset(truth(index()[name]["reads"][read]))


@pytest.mark.parametrize("name", mostly_slow([ROCKSDB, DELTAS, FORMAT_2], [FORMAT_2]))
def test_every_provider_reads_as_spark_did(store: ObjectStore, name: str, temporary: Path) -> None:
    uri = store.upload(checkpoint_path(name), name)
    before = store.contents(name)
    assert before
    rows = statestore.inspect(uri).table("state").scan().read_all()
    assert multiset(rows) == last(name)
    assert store.contents(name) == before
    assert list(temporary.iterdir()) == []


def test_python_sql_duckdb_and_the_command_line(store: ObjectStore) -> None:
    """The folder's name has a space, a percent sign and a letter that is not ASCII."""
    uri = store.upload(checkpoint_path(DELTAS), STRANGE)
    found = statestore.inspect(uri)
    assert (found.path, found.tables()) == (f"s3://{BUCKET}/{STRANGE}", ["state"])
    expected = found.table("state").scan().read_all()
    assert multiset(expected) == last(DELTAS)
    assert multiset(statestore.sql(uri, "SELECT * FROM state")) == multiset(expected)
    assert statestore.attach(uri).sql("SELECT count(*) FROM state").fetchall() == [(len(expected),)]
    old = statestore.sql(uri, "SELECT * FROM state VERSION AS OF 0")
    assert multiset(old) == multiset(found.table("state").scan(version=0).read_all())
    table = open_table(parse_location(uri).at("state").uri)
    assert table == open_table(uri) == pickle.loads(pickle.dumps(table))

    summary = run("inspect", uri, "--json")
    assert (summary.code, [row["store"] for row in summary.rows]) == (0, ["state"])
    assert len(run("scan", uri, "state", "--json").rows) == len(expected)
    assert run("sql", uri, "SELECT count(*) AS n FROM state", "--json").rows == [{"n": len(expected)}]


def test_both_sides_of_a_join(store: ObjectStore) -> None:
    uri = store.upload(checkpoint_path(JOIN), "join")
    found = statestore.inspect(uri)
    assert found.tables() == ["left", "right"]
    assert multiset(found.table("left").scan().read_all()) == last(JOIN, "op0~last~left")
    error = refused(NotFoundError, "TABLE_NOT_FOUND", lambda: open_table(uri), f"s3://{BUCKET}/join/left")
    assert "us:er" not in str(error)
    assert open_table(parse_location(uri).at("right").uri).name == "right"


def test_opening_waits_for_few_answers_and_again_for_one(store: ObjectStore) -> None:
    location = parse_location(store.upload(checkpoint_path(ROCKSDB), "waits"))
    store.clear()
    first = open_located(location)
    # Listings of commits, offsets, state and of an operator's four folders, a partition and a schema; five small files.
    assert len(store.requests) <= 9 + 5
    assert {method for method, _ in store.requests} == {"GET"}
    store.clear()
    assert open_located(location).operators is open_located(location, 5).operators is first.operators
    assert store.requests == [("GET", f"/{BUCKET}")] * 2
    assert store.listed == ["waits/commits/"] * 2


@pytest.mark.parametrize("name", mostly_slow([ROCKSDB, DELTAS, FORMAT_2], [ROCKSDB]))
def test_what_cannot_change_is_fetched_once(store: ObjectStore, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One GET a file and no HEAD; a repeated read lists each folder once and fetches nothing."""
    monkeypatch.setattr(fetched_parts, "SETTLED_SECONDS", -60)
    table = statestore.inspect(store.upload(checkpoint_path(name), f"once-{name}")).table("state")
    for read in (table.scan, table.history):
        store.clear()
        first = multiset(read().read_all())
        assert {method for method, _ in store.requests} == {"GET"}
        files = [path for _, path in store.requests if path != f"/{BUCKET}"]
        assert files
        assert len(files) == len(set(files))
        assert len(store.listed) == len(set(store.listed))
        store.clear()
        assert multiset(read().read_all()) == first
        assert [path for _, path in store.requests if path != f"/{BUCKET}"] == []
        assert 0 < len(store.listed) == len(set(store.listed))


def test_what_was_missing_is_read_once_it_is_restored() -> None:
    """A checkpoint that lacks a partition is not kept open, so restoring the partition mends the read."""
    files = pafs.PyFileSystem(pafs.FSSpecHandler(__import__("fsspec").filesystem("memory")))
    pafs.copy_files(str(checkpoint_path(ROCKSDB)), "/mended/c", pafs.LocalFileSystem(), files)
    files.delete_dir("/mended/c/state/0/1")
    refused(
        NotFoundError, "SPARK_STATE_NOT_FOUND", lambda: statestore.inspect("memory://mended/c").table("state").scan()
    )
    pafs.copy_files(str(checkpoint_path(ROCKSDB) / "state/0/1"), "/mended/c/state/0/1", pafs.LocalFileSystem(), files)
    assert multiset(statestore.inspect("memory://mended/c").table("state").scan().read_all()) == last(ROCKSDB)


def test_another_checkpoint_in_the_same_place() -> None:
    """A file system without times cannot show that the files in commits are others."""
    files = pafs.PyFileSystem(pafs.FSSpecHandler(__import__("fsspec").filesystem("memory")))
    for name in (DELTAS, "spark4.3.0-distinct2__hdfs"):
        files.delete_dir_contents("/same", missing_dir_ok=True)
        pafs.copy_files(str(checkpoint_path(name)), "/same/c", pafs.LocalFileSystem(), files)
        found = statestore.inspect("memory://same/c").table("state").scan().read_all()
        assert multiset(found) == multiset(statestore.inspect(checkpoint_path(name)).table("state").scan().read_all())


def test_a_table_file_that_was_damaged_and_restored(store: ObjectStore) -> None:
    """The changes of all batches are there, so the rows are the same without it."""
    uri = store.upload(checkpoint_path(ROCKSDB), "restored")
    path = next(path for path in store.contents("restored") if path.endswith(".sst") and "/0/0/SSTs/" in path)
    data = store.filesystem.open_input_file(path).read()
    for content in (data[:40] + b"damage" + data[46:], data):
        with store.filesystem.open_output_stream(path) as file:
            file.write(content)
        table = statestore.inspect(uri).table("state")
        with nullcontext() if content == data else pytest.warns(StateStoreWarning, match=r"000008\.sst"):
            assert multiset(table.scan().read_all()) == last(ROCKSDB)


def test_a_file_in_the_place_of_another_is_read(store: ObjectStore) -> None:
    """A query that repeats a batch writes its files again, perhaps of the same length and within a second."""
    uri = store.upload(checkpoint_path(DELTAS), "replaced")
    table = statestore.inspect(uri).table("state")
    before = multiset(table.scan(version=0).read_all())
    one = f"{BUCKET}/replaced/state/0/0/1.delta"
    data = store.filesystem.open_input_file(one).read()
    with store.filesystem.open_output_stream(one) as file:
        file.write(b"x" * len(data))
    refused(CorruptError, "SPARK_STATE_FILE", lambda: table.scan(version=0).read_all(), "1.delta")
    with store.filesystem.open_output_stream(one) as file:
        file.write(data)
    assert multiset(table.scan(version=0).read_all()) == before


def test_a_new_batch_is_seen(store: ObjectStore) -> None:
    uri = store.upload(checkpoint_path(DELTAS), "running")
    files = store.filesystem
    files.move(f"{BUCKET}/running/commits/5", f"{BUCKET}/later")
    table = open_table(uri)
    assert table.kept_versions() == (0, 4)
    files.move(f"{BUCKET}/later", f"{BUCKET}/running/commits/5")
    assert table.kept_versions() == (0, 5)
    assert multiset(statestore.inspect(uri).table("state").scan().read_all()) == last(DELTAS)


def test_the_times_of_batches_are_fetched_at_once(store: ObjectStore) -> None:
    uri = store.upload(checkpoint_path(ROCKSDB), "times")
    table = statestore.inspect(uri).table("state")
    begun = statestore.sql(str(checkpoint_path(ROCKSDB)), "SELECT * FROM state VERSION AS OF 2")
    first = open_located(parse_location(uri), 2).batch.timestamp_ms
    assert first is not None
    under_way, lock = [0], threading.Lock()
    together = threading.Event()

    def refuses(method: str, path: str) -> int:
        if "/offsets/" in path and method == "GET":
            with lock:
                under_way[0] += 1
                if under_way[0] == 6:
                    together.set()
            assert together.wait(30)
        return 0

    store.refuses = refuses
    assert multiset(table.scan(as_of=first).read_all()) == multiset(begun)


def test_what_pruning_leaves_out_is_not_fetched(store: ObjectStore) -> None:
    table = open_table(store.upload(checkpoint_path(ROCKSDB), "pruned"))
    query = Query(filters=(Filter("partition_id", "=", 1),))
    store.clear()
    rows = [batch for split in table.splits(query) for batch in table.read(split, query)]
    assert {number for batch in rows for number in batch["partition_id"].to_pylist()} == {1}
    files = [path for _, path in store.requests if "/state/0/1/" in path]
    assert files
    assert [path for _, path in store.requests if "/state/0/0/" in path and "_metadata" not in path] == []


def test_copies_are_of_one_partition_and_go_with_the_reader(
    store: ObjectStore, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_repair, "HELD_BYTES", 0)  # so that a reader is under way with these few rows
    table = open_table(store.upload(checkpoint_path(ROCKSDB), "copies"))
    splits = table.splits(Query())
    assert len(splits) == 2
    readers = [table.read(split, Query()) for split in splits]
    next(readers[0])
    (copies,) = temporary.iterdir()
    assert len(list(copies.rglob("*.sst"))) == 2
    del readers[0]
    assert list(temporary.iterdir()) == []
    next(readers[0])
    assert len(list(temporary.iterdir())) == 1
    del readers
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("ending", [".sst", ".zip", ".delta"])
def test_a_file_that_vanishes(store: ObjectStore, temporary: Path, ending: str) -> None:
    """Before its first byte: listed it was. The rows of a snapshot are also those of the changes before it."""
    name = DELTAS if ending == ".delta" else ROCKSDB
    table = open_table(store.upload(checkpoint_path(name), f"vanishing{ending}"))
    gone = set()

    def refuses(asked: str, path: str) -> int:
        if path.endswith(ending):
            gone.add(path)
        return 404 if path in gone else 0

    splits = table.splits(Query())
    store.refuses = refuses
    rows = table.read(splits[0], Query())
    if ending == ".delta":
        said = refused(NotFoundError, "SPARK_STATE_NOT_FOUND", lambda: list(rows), "purged", ending).message
    else:
        local = open_table(checkpoint_path(name))
        expected = pa.Table.from_batches(local.read(local.splits(Query())[0], Query()))
        with pytest.warns(StateStoreWarning, match="purged") as notices:
            assert multiset(pa.Table.from_batches(rows)) == multiset(expected)
        said = str(notices[0].message)
    assert any(path.removeprefix("/") in said for path in gone)
    assert list(temporary.iterdir()) == []


@pytest.mark.slow  # a file of this size with other bytes is repaired above
def test_a_table_file_of_another_size(store: ObjectStore, temporary: Path) -> None:
    table = open_table(store.upload(checkpoint_path(ROCKSDB), "sizes"))
    path = next(path for path in store.contents("sizes") if path.endswith(".sst") and "/0/0/SSTs/" in path)
    with store.filesystem.open_output_stream(path) as file:
        file.write(b"short")
    split = table.splits(Query())[0]
    with pytest.warns(StateStoreWarning, match=f"{path}: found 5 bytes"):
        assert list(table.read(split, Query()))
    assert list(temporary.iterdir()) == []


def test_refused_access_names_the_place(store: ObjectStore) -> None:
    uri = store.upload(checkpoint_path(DELTAS), "secret")
    table = open_table(uri)
    splits = table.splits(Query())
    store.refuses = lambda method, path: 403
    error = refused(InvalidInputError, "NO_ACCESS", lambda: statestore.inspect(uri), f"{BUCKET}/secret", "credentials")
    assert "us:er" not in str(error)
    refused(InvalidInputError, "NO_ACCESS", lambda: list(table.read(splits[0], Query())), f"{BUCKET}/secret")
    assert run("inspect", uri).code == 2
    store.refuses = lambda method, path: 403 if path.endswith(".delta") else 0
    refused(InvalidInputError, "NO_ACCESS", lambda: list(table.read(splits[0], Query())), ".delta")


def test_places_without_a_checkpoint(store: ObjectStore) -> None:
    uri = store.upload(checkpoint_path(DELTAS), "whole")
    inner = parse_location(uri).at("offsets").uri
    for call in (
        partial(statestore.inspect, store.uri("nothing/here")),
        partial(statestore.inspect, _without_bucket(store)),
        partial(open_table, store.uri("nothing/here")),
    ):
        refused(NotFoundError, "PATH_NOT_FOUND", call, "nothing", "does not exist")
    refused(NotFoundError, "NOTHING_HERE", lambda: statestore.inspect(inner), f"s3://{BUCKET}/whole/offsets")
    refused(NotFoundError, "TABLE_NOT_FOUND", lambda: open_table(inner), "'offsets'")


def _without_bucket(store: ObjectStore) -> str:
    return store.uri("nothing").replace(BUCKET, "no-such-bucket")


@pytest.mark.slow
def test_a_table_where_no_bucket_is(store: ObjectStore) -> None:
    """The client of S3 repeats the look for the bucket, and waits in between."""
    call = partial(open_table, _without_bucket(store))
    refused(NotFoundError, "PATH_NOT_FOUND", call, "nothing", "does not exist")


def test_other_file_systems_through_fsspec() -> None:
    files = pafs.PyFileSystem(pafs.FSSpecHandler(__import__("fsspec").filesystem("memory")))
    pafs.copy_files(str(checkpoint_path(ROCKSDB)), "/held/a b", pafs.LocalFileSystem(), files)
    assert multiset(statestore.inspect("memory://held/a b").table("state").scan().read_all()) == last(ROCKSDB)


def test_changes_are_fetched_ahead_in_order(store: ObjectStore) -> None:
    """All deltas of a partition are asked for before the first was answered."""
    table = open_table(store.upload(checkpoint_path(DELTAS), "ahead"))
    query = Query(version=5)
    asked, second = [], threading.Event()

    def refuses(method: str, path: str) -> int:
        if method == "GET" and path.endswith(".delta"):
            asked.append(path)
            if len(asked) == 2:
                second.set()
            assert second.wait(30)
        return 0

    splits = table.splits(query)
    store.refuses = refuses
    assert list(table.read(splits[0], query))
    assert 2 <= len(asked) <= PARALLEL_REQUESTS


@pytest.mark.parametrize("ask", [summaries, lambda uri: statestore.inspect(uri).table("state").scan().read_all()])
def test_partitions_are_listed_at_the_same_time(store: ObjectStore, tmp_path: Path, ask: Callable[[str], Any]) -> None:
    """Each folder of a partition is listed once, several of them together, and none that is not there."""
    made = write_small_checkpoint(tmp_path / "checkpoint", 3, 6, checksums=False)
    prefix = f"together-{tmp_path.name}"
    uri = store.upload(made.folder, prefix)
    later = {f"{prefix}/state/0/{number}/" for number in range(1, 6)}
    together = threading.Event()

    def refuses(method: str, path: str) -> int:
        begun = later.intersection(store.listed)
        if len(begun) > 1:
            together.set()
        assert not begun or together.wait(30)
        return 0

    store.clear()
    store.refuses = refuses
    Context().run(ask, uri)  # reads of Spark's tasks in this process limit the threads of its other reads
    listed = Counter(name for name in store.listed if name.startswith(f"{prefix}/state/0/"))
    assert [listed[name] for name in later] == [1] * 5
    assert [name for name in listed if "SSTs" in name] == []

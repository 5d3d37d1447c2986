"""Copies of checkpoints with other partitions, providers and codecs, compared with their sources and with Spark's own
repartition."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints.large_checkpoints import words, write_checkpoint
from support.checkpoints.running_queries import rows_of
from support.checkpoints.small_checkpoints import partition_of_word
from support.checkpoints.spark_state_fixtures import (
    ARCHIVE,
    LOCAL,
    MORE,
    checkpoint_path,
    index,
    multiset,
    place_without_hash,
)
from support.checkpoints.stored_state import Stored, stored
from support.edited_copies import write_copy
from support.parameters import mostly_slow
from support.refusals import refused

import statestore
from statestore.catalog.edits.apply import apply_edit
from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.engine import StateAt
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.places.locations import parse_location
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, open_checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import LOGS
from statestore.formats.spark.checkpoint.query_metadata import committed_batches
from statestore.formats.spark.checkpoint.state_views import state_views
from statestore.formats.spark.edits.rerouted_rows import ReroutedRows, in_key_order
from statestore.formats.spark.misplaced_keys import placement_check
from statestore.formats.spark.source import CheckpointSource, open_source
from statestore.formats.spark.state_rows import read_state

REPARTITIONED = ARCHIVE.with_name("repartitioned_checkpoints.tar.xz")
LATE = EditOptions(allow_late=True)
ROCKSDB, HDFS = {"provider": "rocksdb"}, {"provider": "hdfs"}


def opened(path: str | Path) -> CheckpointSource:
    return open_source(parse_location(path))


def rescaled(source: Path, target: Path, **settings: str) -> CheckpointSource:
    found = opened(source)
    plan = found.edit_plan(found.checkpoint.batch.batch_id, [], EditOptions(settings=settings))
    sizes = write_copy(plan, target)
    assert sizes
    return opened(target)


def without_places(rows: Stored) -> dict[tuple[int, str, str], dict[bytes, bytes]]:
    return {place: {key: value for key, (_, value) in found.items()} for place, found in rows.items()}


def shown(source: CheckpointSource) -> dict[str, Counter[str]]:
    found = {}
    for state in source.states():
        at: StateAt = source.at(state, source.newest(state))
        names = [name for name in at.schema.names if name != "partition_id"]
        batches = (batch for part in at.parts(()) for batch in at.rows(part, names, ()))
        found[state] = Counter(repr(row) for batch in batches for row in batch.to_pylist())
    return found


def misplaced(checkpoint: Checkpoint) -> int:
    """The keys of users' states that are not in the partition of their hash."""
    found = 0
    for operator in checkpoint.operators:
        for view in state_views(checkpoint, operator):
            for number in view.store.partitions if view.user else ():
                check = placement_check(checkpoint, view, number)
                assert check is not None or view.store.written.single
                for batch in read_state(checkpoint, view, number, columns=("key",)) if check else ():
                    assert check is not None
                    check.add(batch)
                found += 0 if check is None else check.misplaced
    return found


def counts(checkpoint: Checkpoint) -> set[int]:
    return {len(store.folders) for operator in checkpoint.operators for store in operator.stores}


QUICK = [
    ("spark4.3.0-agg__hdfs", ARCHIVE),
    ("spark4.0.1-agg__rk2", ARCHIVE),
    ("spark4.3.0-agg__rkv2", ARCHIVE),
    ("spark4.3.0-aggmulti__rkcl", ARCHIVE),
    ("spark4.3.0-join__hdfs", ARCHIVE),
    ("spark4.3.0-join__rkj4", ARCHIVE),
    ("spark4.3.0-limit__rkcl", ARCHIVE),
    ("spark4.3.0-sess__rkck", ARCHIVE),
    ("spark4.3.0-twsttl__rkav", ARCHIVE),
    ("spark3.5.9-session__rkcl", MORE),
]
NAMES = [(name, archive) for archive in (ARCHIVE, MORE) for name in sorted(index(archive))]


@pytest.mark.parametrize(("name", "archive"), mostly_slow(NAMES, QUICK))
def test_copies_have_the_same_rows_each_in_its_place(name: str, archive: Path, tmp_path: Path) -> None:
    path = checkpoint_path(name, archive)
    source = opened(path)
    rows, seen = without_places(stored(source.checkpoint)), shown(source)
    five = rescaled(path, tmp_path / "5", partitions="5")
    assert without_places(stored(five.checkpoint)) == rows and shown(five) == seen
    two = rescaled(tmp_path / "5", tmp_path / "2", partitions="2")
    assert without_places(stored(two.checkpoint)) == rows
    seven = rescaled(tmp_path / "2", tmp_path / "7", partitions="7", codec="zstd")
    assert without_places(stored(seven.checkpoint)) == rows and shown(seven) == seen
    for copy, count in ((five, 5), (two, 2), (seven, 7)):
        assert counts(copy.checkpoint) <= {1, count} and misplaced(copy.checkpoint) == 0
        assert copy.checkpoint.batch.partitions == count
        assert copy.newest(copy.states()[0]) == source.newest(source.states()[0])


TO_AND_FRO = [
    ("spark4.3.0-agg__hdfs", ARCHIVE),
    ("spark4.3.0-agg__hdfsck", ARCHIVE),
    ("spark4.3.0-agg__rkck", ARCHIVE),
    ("spark4.3.0-join__hdfs", ARCHIVE),
    ("spark4.3.0-limit__rkcl", ARCHIVE),
    ("spark4.3.0-sess__rkck", ARCHIVE),
    ("spark3.5.9-session__hdfs", MORE),
    ("spark3.5.9-session__rkcl", MORE),
]


@pytest.mark.parametrize(("name", "archive"), TO_AND_FRO)
def test_a_provider_is_changed_and_changed_back(name: str, archive: Path, tmp_path: Path) -> None:
    path = checkpoint_path(name, archive)
    source = opened(path)
    own, other = (HDFS, ROCKSDB) if source.checkpoint.provider == "hdfs" else (ROCKSDB, HDFS)
    copy = rescaled(path, tmp_path / "other", partitions="3", **other)
    assert copy.checkpoint.provider == other["provider"] and shown(copy) == shown(source)
    assert misplaced(copy.checkpoint) == 0
    back = rescaled(tmp_path / "other", tmp_path / "back", partitions="2", codec="snappy", **own)
    assert stored(back.checkpoint) == stored(source.checkpoint)


def spark_repartitioned(name: str, folder: Path) -> tuple[Path, int]:
    """A copy of a checkpoint as it was before Spark repartitioned it first, and the batch that did."""
    path = checkpoint_path(name, REPARTITIONED)
    batches = committed_batches(opened(path).checkpoint.root)
    numbers = {batch: open_checkpoint(LOCAL, str(path), batch).batch.partitions for batch in batches}
    first = next(batch for batch in batches if numbers[batch] != numbers[batches[0]])
    shutil.copytree(path, folder)
    for log in ("offsets", "commits"):
        for each in (folder / log).iterdir():
            if each.name.isdigit() and int(each.name) >= first:
                each.unlink()
    return path, first


@pytest.mark.parametrize("name", ["agg__cl", "sess__cl", "join2__f2", "join3__cl", "tws__cl", "pws__cl", "two__f2"])
def test_rows_lie_where_a_repartition_by_spark_puts_them(name: str, tmp_path: Path) -> None:
    path, batch = spark_repartitioned(name, tmp_path / "source")
    theirs = open_checkpoint(LOCAL, str(path), batch)
    ours = rescaled(tmp_path / "source", tmp_path / "target", partitions=str(theirs.batch.partitions))
    rows = stored(ours.checkpoint)
    assert any(rows.values()) and rows == stored(theirs)


def copied(name: str, tmp_path: Path, archive: Path = ARCHIVE) -> Path:
    return Path(shutil.copytree(checkpoint_path(name, archive), tmp_path / "source"))


def conf_of(checkpoint: Path, batch: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checkpoint / "offsets" / str(batch)).read_text().split("\n")[1])["conf"]
    return found


def test_the_newest_logs_say_what_the_copy_is_and_nothing_else_changes(tmp_path: Path) -> None:
    source = copied("spark4.3.0-agg__hdfs", tmp_path)
    newest = max(int(each.name) for each in (source / "commits").iterdir() if each.name.isdigit())
    (source / "commits" / str(newest)).unlink()  # a batch that was begun
    target = tmp_path / "target"
    rescaled(source, target, partitions="3", provider="rocksdb", codec="zstd")
    numbers = {log: [each.name for each in (target / log).iterdir() if each.name.isdigit()] for log in LOGS}
    assert {log: sorted(map(int, found)) for log, found in numbers.items()} == {
        "commits": [newest - 1],
        "offsets": [newest - 2, newest - 1, newest],  # Spark reads the offsets of the batch before, too
    }
    for batch in range(newest - 2, newest + 1):
        before, after = ((folder / "offsets" / str(batch)).read_text().split("\n") for folder in (source, target))
        assert before[0] == after[0] and before[2:] == after[2:]
        expected = conf_of(source, batch)
        if batch >= newest - 1:
            expected |= {
                "spark.sql.shuffle.partitions": "3",
                "spark.sql.streaming.stateStore.compression.codec": "zstd",
                "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
                "RocksDBStateStoreProvider",
            }
        assert conf_of(target, batch) == expected
        documents = [json.loads(each[1]) for each in (before, after)]
        assert {**documents[0], "conf": None} == {**documents[1], "conf": None}
    metadata = json.loads((target / "state/0/_metadata/metadata").read_text().split("\n")[1])
    assert [store["numPartitions"] for store in metadata["stateStoreInfo"]] == [3]
    for name in ("metadata", f"commits/{newest - 1}", "state/0/0/_metadata/schema"):
        assert (source / name).read_bytes() == (target / name).read_bytes()
    found = {str(each.relative_to(target / "state/0")) for each in (target / "state/0").rglob("*") if each.is_file()}
    places = {name for name in found if "SSTs" not in name and not name.endswith("crc")}
    assert places == {"_metadata/metadata", "0/_metadata/schema", *(f"{number}/{newest}.zip" for number in range(3))}


def test_format_2_names_the_files_of_new_partitions_in_the_commit(tmp_path: Path) -> None:
    copy = rescaled(checkpoint_path("spark4.3.0-join__rkv2"), tmp_path / "target", partitions="3")
    uids = copy.checkpoint.batch.uids["0"]
    was = opened(checkpoint_path("spark4.3.0-join__rkv2")).checkpoint.batch.uids["0"]
    assert [len(stores) for stores in uids] == 3 * [len(was[0])]
    every = [uid for stores in uids for uid in stores]
    assert len(set(every)) == len(every) and not set(every) & {uid for stores in was for uid in stores}
    names = {each.name for each in (tmp_path / "target/state/0").rglob("*.zip")}
    assert names == {f"{copy.checkpoint.batch.version}_{uid}.zip" for uid in every}


def test_a_copy_has_no_history_before_its_batch(tmp_path: Path) -> None:
    source = opened(checkpoint_path("spark4.3.0-agg__hdfs"))
    copy = rescaled(checkpoint_path("spark4.3.0-agg__hdfs"), tmp_path / "target", partitions="3")
    newest = source.newest("state")
    assert len(source.kept("state")) > 1 and list(copy.kept("state")) == [newest]
    table = statestore.inspect(tmp_path / "target").table("state")
    assert table.scan().read_all().num_rows == sum(shown(source)["state"].values())


def test_rows_elsewhere_than_their_hash_says_are_refused(tmp_path: Path) -> None:
    source = copied("spark4.3.0-agg__hdfs", tmp_path)
    (source / "state/0/1").rename(tmp_path / "one")
    schema = source / "state/0/0/_metadata"
    shutil.copytree(schema, tmp_path / "one/_metadata")
    (source / "state/0/0").rename(source / "state/0/1")
    (tmp_path / "one").rename(source / "state/0/0")
    call = lambda: rescaled(source, tmp_path / "target", partitions="3")  # noqa: E731
    refused(InvalidInputError, "EDIT_REFUSED", call, "state/0/0", "rows are stored in partition 0 of 2")


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"partitions": "0"}, ("partitions", "'0'")),
        ({"partitions": "many"}, ("partitions", "'many'")),
        ({"partitions": "100001"}, ("partitions", "100000")),
        ({"provider": "leveldb"}, ("provider", "rocksdb")),
        ({"codec": "gzip"}, ("codec", "zstd")),
        ({"changelogs": "yes", "provider": "rocksdb"}, ("changelogs", "true")),
        ({"changelogs": "true"}, ("changelogs", "HDFS-backed")),
        ({"changelogs": "true", "provider": "hdfs"}, ("changelogs", "rocksdb")),
        ({"compact": "yes"}, ("compact", "'yes'", "true")),
    ],
)
def test_settings_are_checked(settings: dict[str, str], parts: tuple[str, ...], tmp_path: Path) -> None:
    call = lambda: rescaled(checkpoint_path("spark4.3.0-agg__hdfs"), tmp_path / "target", **settings)  # noqa: E731
    refused(InvalidInputError, "INVALID_OPTION", call, *parts)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("spark4.3.0-agg__rkv2", "checkpoint format 2"),
        ("spark4.3.0-join__rkj3", "column families"),
        ("spark4.3.0-twsttl__rkcl", "column families"),
    ],
)
def test_what_cannot_be_converted_is_refused(name: str, part: str, tmp_path: Path) -> None:
    call = lambda: rescaled(checkpoint_path(name), tmp_path / "target", partitions="3", **HDFS)  # noqa: E731
    refused(UnsupportedError, "EDIT_UNSUPPORTED", call, part)


def test_only_the_newest_batch_is_changed_and_no_batch_is_added() -> None:
    source = opened(checkpoint_path("spark4.3.0-agg__hdfs"))
    newest = source.checkpoint.batch.batch_id
    older = lambda: source.edit_plan(newest - 1, [], EditOptions(settings={"partitions": "3"}))  # noqa: E731
    refused(InvalidInputError, "EDIT_REFUSED", older, f"batch {newest - 1}")
    added = lambda: source.edit_plan(newest, [], EditOptions(as_batch=True, settings={"compact": "true"}))  # noqa: E731
    refused(InvalidInputError, "EDIT_REFUSED", added, "with compact", "leave out as_batch")


def test_queries_that_need_not_place_rows_by_their_hash_are_refused(tmp_path: Path) -> None:
    source = copied("spark4.3.0-agg__hdfs", tmp_path)
    place_without_hash(source)
    call = lambda: rescaled(source, tmp_path / "target", partitions="3")  # noqa: E731
    refused(UnsupportedError, "EDIT_UNSUPPORTED", call, "before Spark 3.3")


def test_many_rows_go_to_their_partitions_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition of each word is that of a plain computation of Spark's hash."""
    monkeypatch.setattr("statestore.formats.spark.edits.rerouted_rows.HELD_BYTES", 1 << 16)
    source = write_checkpoint(tmp_path / "source", 4000, 3, 6, hashed=True)
    copy = rescaled(source, tmp_path / "target", partitions="4")
    again = rescaled(tmp_path / "target", tmp_path / "rocksdb", partitions="3", provider="rocksdb")
    for each, count in ((copy, 4), (again, 3)):
        at: StateAt = each.at("state", 2)
        rows = [
            row for part in at.parts(()) for batch in at.rows(part, at.schema.names, ()) for row in batch.to_pylist()
        ]
        found = {row["key"]["word"]: row["partition_id"] for row in rows}
        assert len(found) == len(rows)
        assert found == {word: partition_of_word(word, count) for word in found}
        assert shown(each) == shown(opened(source))
    assert len(words(np.arange(4000))) == 4000


CELLS = st.binary(max_size=6)


@given(st.lists(st.lists(st.tuples(st.integers(0, 4), CELLS, CELLS), max_size=8), max_size=6), st.integers(1, 400))
def test_rerouted_rows_are_those_that_came(batches: list[list[tuple[int, bytes, bytes]]], held: int) -> None:
    import pyarrow as pa

    with temporary_directory() as directory, ReroutedRows(directory, held) as rows:
        for batch in batches:
            numbers = np.array([number for number, _, _ in batch], np.int64)
            cells = (cells_of(pa.array([row[each] for row in batch], pa.binary())) for each in (1, 2))
            rows.add(numbers, *cells)
        for number in range(5):
            expected = Counter((key, value) for batch in batches for at, key, value in batch if at == number)
            for found in (rows.of(number), in_key_order(rows.of(number), 100)):
                runs = [list(zip(*(column.to_pylist() for column in run.columns), strict=True)) for run in found]
                assert Counter(row for run in runs for row in run) == expected
            for run in in_key_order(rows.of(number), 100):
                keys = run.column(0).to_pylist()
                assert keys == sorted(keys)


@pytest.mark.parametrize("name", ["spark4.3.0-agg__rkcl", "spark4.3.0-join__rkv2", "spark4.3.0-twsttl__rkcl"])
def test_a_copy_that_is_verified_has_a_receipt(name: str, tmp_path: Path) -> None:
    source = opened(checkpoint_path(name))
    batch = source.checkpoint.batch.batch_id
    options = EditOptions(settings={"partitions": "6"})
    receipt = apply_edit(source, batch, [], tmp_path / "target", options)
    assert receipt.target_version == batch and receipt.options["settings"] == {"partitions": "6"}
    assert shown(opened(tmp_path / "target")) == shown(source)


ALONG = [
    ("spark4.3.0-agg__hdfs", {"partitions": "5"}),
    ("spark4.3.0-agg__hdfs", {"partitions": "3", **ROCKSDB}),
    ("spark4.3.0-agg__rkck", HDFS),
    ("spark4.3.0-agg__rkv2", {"partitions": "5", "compact": "true"}),
    ("spark4.3.0-sess__rkck", {"partitions": "5", **HDFS}),
    ("spark4.3.0-twsttl__rkcl", {"partitions": "3"}),
]


@pytest.mark.parametrize(("name", "settings"), ALONG)
def test_rows_are_edited_along_with_settings(name: str, settings: dict[str, str], tmp_path: Path) -> None:
    """Some rows go, others have the values of these, and their keys; the copy is what an edit after the other makes."""
    source = opened(checkpoint_path(name))
    newest = source.checkpoint.batch.batch_id
    state = "val" if "tws" in name else "state"
    rows = rows_of(source, state)
    goes, gets = rows.slice(0, 3), rows.slice(3, 2)
    gotten = gets.set_column(1, rows.schema.field(1), goes.slice(0, 2).column(1))
    edit = StateEdit(state, ("key",), pa.concat_tables([goes, gets]), gotten)
    apply_edit(source, newest, [edit], tmp_path / "edited", LATE)
    rescaled(tmp_path / "edited", tmp_path / "twice", **settings)
    apply_edit(source, newest, [edit], tmp_path / "once", EditOptions(allow_late=True, settings=settings))
    once, twice = opened(tmp_path / "once"), opened(tmp_path / "twice")
    assert multiset(rows_of(once, state)) == multiset(pa.concat_tables([rows.slice(5), gotten]))
    assert stored(once.checkpoint) == stored(twice.checkpoint) and misplaced(once.checkpoint) == 0

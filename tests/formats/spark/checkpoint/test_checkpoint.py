"""Checkpoints that were moved, purged, damaged or written by older releases; other file systems; hostile zips."""

from __future__ import annotations

import io
import json
import pickle
import random
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from support.checkpoints.spark_state_fixtures import LOCAL, MORE, checkpoint_path, index, multiset, opened, truth

import statestore
from statestore.formats.errors import CorruptError, InvalidInputError, NotFoundError, StateStoreError, UnsupportedError
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, open_checkpoint
from statestore.formats.spark.checkpoint.schema_files import read_schema_file
from statestore.formats.spark.checkpoint.state_views import find_state_view, state_views
from statestore.formats.spark.feed_source import read_changes
from statestore.formats.spark.providers.partition_load import open_partition, readable_batches
from statestore.formats.spark.providers.zip_files import Zip, read_zip
from statestore.formats.spark.state_rows import read_state

AGGREGATION, ROCKSDB, CHANGELOG = "spark4.3.0-agg__hdfs", "spark4.3.0-agg__rk", "spark4.3.0-agg__rkcl"
SESSION, JOIN, FORMAT_2 = "spark4.3.0-sess__rkcl", "spark4.3.0-join__hdfs", "spark4.3.0-agg__rkv2"
VARIABLES = "spark4.3.0-twsttl__rkcl"


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(checkpoint_path(name), tmp_path / name))

    return copy


def rows(checkpoint: Checkpoint, name: str | None = None, **options: Any) -> pa.Table:
    found = find_state_view(checkpoint, 0, name)
    batches = [batch for part in found.store.partitions for batch in read_state(checkpoint, found, part, **options)]
    return pa.Table.from_batches(batches, found.schema)


def at(path: Path, batch_id: int | None = None) -> Checkpoint:
    return open_checkpoint(LOCAL, str(path), batch_id)


def expected(name: str, read: str = "op0~last") -> Counter[Any]:
    return multiset(truth(index()[name]["reads"][read]))


def test_a_path_may_end_with_a_slash() -> None:
    checkpoint = open_checkpoint(LOCAL, f"{checkpoint_path(AGGREGATION)}/")
    assert multiset(rows(checkpoint)) == expected(AGGREGATION)


@pytest.mark.parametrize("name", [None, "tlst", "tmp", "timers"])
def test_only_the_columns_asked_for_are_decoded(name: str | None) -> None:
    checkpoint = opened(VARIABLES if name else AGGREGATION)
    whole = rows(checkpoint, name)
    for column in whole.column_names:
        found = find_state_view(checkpoint, 0, name)
        batches = [b for part in found.store.partitions for b in read_state(checkpoint, found, part, columns=[column])]
        assert pa.Table.from_batches(batches) == whole.select([column])


def test_a_batch_has_its_times() -> None:
    batch = opened("spark4.3.0-win__rkcl", 3).batch
    assert (batch.batch_id, batch.version) == (3, 4)
    assert batch.timestamp_ms is not None and batch.timestamp_ms > 1_700_000_000_000
    assert batch.watermark_ms is not None and batch.watermark_ms > 0


def test_views_are_named_for_users_first() -> None:
    checkpoint = opened(JOIN)
    assert [each.name for each in state_views(checkpoint, checkpoint.operator(0)) if each.user] == ["left", "right"]
    checkpoint = opened(VARIABLES)
    found = {each.name: each.shape for each in state_views(checkpoint, checkpoint.operator(0)) if each.user}
    assert found == {
        "tlst": "list", "tval": "rows", "tmp": "map", "timers": "timers", "val": "rows", "mp": "map", "lst": "list",
    }  # fmt: skip


@pytest.mark.parametrize("name", [AGGREGATION, CHANGELOG, FORMAT_2])
def test_any_file_system_will_do(name: str) -> None:
    """The file system is not a local one by its type, so table files are copied."""
    remote = pafs.SubTreeFileSystem(str(checkpoint_path(name)), LOCAL)
    assert multiset(rows(open_checkpoint(remote, ""))) == expected(name)


def test_checkpoints_and_views_can_be_sent_to_workers() -> None:
    checkpoint = opened(AGGREGATION)
    again, found = pickle.loads(pickle.dumps((checkpoint, find_state_view(checkpoint, 0))))
    assert sum(batch.num_rows for part in found.store.partitions for batch in read_state(again, found, part)) == 57


@pytest.mark.parametrize("name", [SESSION, JOIN, AGGREGATION, CHANGELOG])
def test_releases_that_write_no_operator_metadata(name: str, copied: Callable[[str], Path]) -> None:
    """Spark 3.5: stores and the prefix of session keys are found by looking."""
    path = copied(name)
    shutil.rmtree(path / "state/0/_metadata")
    read = "op0~last~left" if name == JOIN else "op0~last"
    assert multiset(rows(at(path), "left" if name == JOIN else None)) == expected(name, read)


@pytest.mark.parametrize("trace", ["5/0/_metadata", "5/0/x/_metadata"])
@pytest.mark.parametrize("name", [AGGREGATION, SESSION])
def test_folders_of_an_operator_that_was_only_asked_for_are_none(
    name: str, trace: str, copied: Callable[[str], Path]
) -> None:
    """Spark 4.1's own state source makes folders before it refuses an operator that is not there."""
    path = copied(name)
    (path / "state" / trace).mkdir(parents=True)
    assert list(statestore.inspect(path).tables()) == ["state"]
    assert multiset(rows(at(path))) == expected(name)
    with pytest.raises(NotFoundError, match=r"operator 5 .* expected one of \[0\]"):
        at(path).operator(5)


def test_folders_of_a_store_that_was_only_asked_for_are_none(tmp_path: Path) -> None:
    """Spark 3.5 lists no stores, so their folders are what there is."""
    path = Path(shutil.copytree(checkpoint_path("spark3.5.9-join1__hdfs", MORE), tmp_path / "c"))
    known = [store.name for store in at(path).operator(0).stores]
    assert len(known) == 4
    (path / "state/0/0/x/_metadata").mkdir(parents=True)
    assert [store.name for store in at(path).operator(0).stores] == known
    for file in (path / "state/0/0" / known[0]).rglob("*.*"):
        file.unlink()
    (path / "state/0/0" / known[0] / "_metadata/schema").unlink()
    with pytest.raises(NotFoundError, match=f"{known[0]}/_metadata/schema"):  # lost: partition 1 has it
        at(path)


@pytest.mark.parametrize("lost", ["state/0/_metadata", "state/0/0", "state/0/1"])
def test_an_operator_that_lost_files_is_still_one(lost: str, copied: Callable[[str], Path]) -> None:
    path = copied(AGGREGATION)
    for file in (path / "state").rglob("*"):
        if file.is_file() and not file.is_relative_to(path / lost):
            file.unlink()
    with pytest.raises(StateStoreError):
        rows(at(path))


@pytest.mark.parametrize("name", [AGGREGATION, CHANGELOG])
def test_without_its_offsets_a_checkpoint_is_still_read(name: str, copied: Callable[[str], Path]) -> None:
    path = copied(name)
    shutil.rmtree(path / "offsets")
    checkpoint = at(path)
    assert checkpoint.batch.timestamp_ms is None
    assert multiset(rows(checkpoint)) == expected(name)


def test_an_uncommitted_batch_is_not_shown(copied: Callable[[str], Path]) -> None:
    path = copied(AGGREGATION)
    (path / "commits/5").unlink()
    assert at(path).batches == (0, 1, 2, 3, 4)
    with pytest.raises(NotFoundError, match=r"batch 5 .* expected one of 0 to 4"):
        at(path, 5)


@pytest.mark.parametrize("path", ["nowhere", "state"])
def test_what_is_no_checkpoint_is_refused(path: str) -> None:
    with pytest.raises(NotFoundError, match="SPARK_STATE_NOT_FOUND"):
        at(checkpoint_path(AGGREGATION) / path)


@pytest.mark.parametrize(("operator", "name"), [(7, None), (0, "nothing"), (0, "val2")])
def test_unknown_names_are_refused_with_the_known_ones(operator: int, name: str | None) -> None:
    with pytest.raises(NotFoundError, match="expected one of"):
        find_state_view(opened(VARIABLES), operator, name)
    with pytest.raises(NotFoundError, match=r"partition 9 .* \[0, 1\]"):
        list(read_state(opened(AGGREGATION), find_state_view(opened(AGGREGATION), 0), 9))


def test_purged_versions_are_refused_with_the_readable_ones(copied: Callable[[str], Path]) -> None:
    path = copied(AGGREGATION)
    for partition in (0, 1):
        (path / f"state/0/{partition}/2.delta").unlink()
    checkpoint = at(path, 1)
    found = find_state_view(checkpoint, 0)
    kept = readable_batches(open_partition(checkpoint, found.store, 0, "default"))
    snapshots = sorted(int(file.stem) for file in (path / "state/0/0").glob("*.snapshot"))
    assert kept == [0, *range(snapshots[0] - 1, 6)]
    with pytest.raises(NotFoundError, match="no file of version 2"):
        rows(checkpoint)


def test_files_of_failed_attempts_are_passed_over(copied: Callable[[str], Path]) -> None:
    """Checkpoint format 2: only the files that commits lead to count."""
    path = copied(FORMAT_2)
    for file in [*(path / "state/0").glob("*/*.zip"), *(path / "state/0").glob("*/*.changelog")]:
        version = file.name.split("_")[0]
        file.with_name(f"{version}_00000000-0000-0000-0000-000000000000{file.suffix}").write_bytes(b"failed attempt")
    assert multiset(rows(at(path))) == expected(FORMAT_2)
    for file in (path / "state/0/0").glob("6_*.changelog"):
        if "0000-0000" not in file.name:
            file.unlink()
            for snapshot in (path / "state/0/0").glob("6_*.zip"):
                snapshot.unlink()
    with pytest.raises(NotFoundError, match="no file of version"):
        rows(at(path))


def test_a_feed_needs_batches_in_order() -> None:
    checkpoint = opened(AGGREGATION)
    with pytest.raises(InvalidInputError, match="SPARK_STATE_RANGE"):
        list(read_changes(checkpoint, find_state_view(checkpoint, 0), 0, 3, 1))
    with pytest.raises(NotFoundError, match="batch 6"):
        list(read_changes(checkpoint, find_state_view(checkpoint, 0), 0, 5, 6))


def test_entries_of_lists_are_appended_in_a_feed() -> None:
    checkpoint = opened(VARIABLES)
    found = find_state_view(checkpoint, 0, "lst")
    feed = pa.Table.from_batches([b for part in (0, 1) for b in read_changes(checkpoint, found, part, 0, 3)])
    assert set(feed["change_type"].to_pylist()) == {"append"}
    state = rows(opened(VARIABLES, 3), "lst")
    columns = ["key", "list_element", "partition_id"]
    assert multiset(feed.select(columns)) == multiset(state.select(columns))


def test_deletions_in_a_feed_have_no_value() -> None:
    checkpoint = opened("spark4.3.0-win__hdfsck")
    batches = [b for part in (0, 1) for b in read_changes(checkpoint, find_state_view(checkpoint, 0), part, 1, 6)]
    feed = pa.Table.from_batches(batches)
    deleted = [kind == "delete" for kind in feed["change_type"].to_pylist()]
    assert any(deleted)
    assert [value is None for value in feed["value"].to_pylist()] == deleted


@pytest.mark.parametrize("name", [AGGREGATION, CHANGELOG, "spark4.3.0-agg__hdfsck"])
def test_damaged_changes_are_refused_or_harmless(name: str, copied: Callable[[str], Path]) -> None:
    path, rng, refused = copied(name), random.Random(7), 0
    files = [*(path / "state/0").glob("*/*.delta"), *(path / "state/0").glob("*/*.changelog")]
    for file in files:
        whole = file.read_bytes()
        for _ in range(2):
            damaged = bytearray(whole)
            damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            file.write_bytes(damaged)
            try:
                assert multiset(rows(at(path), base_version=0)) == expected(name)
            except StateStoreError as error:
                assert error.code.startswith("SPARK_STATE")
                refused += 1
            file.write_bytes(whole[: rng.randrange(len(whole))])
            with pytest.raises(CorruptError, match="SPARK_STATE_FILE"):
                rows(at(path), base_version=0)
        file.write_bytes(whole)
    assert refused > 15  # what is harmless is the size class of a block and the mark behind the last one


def zipped(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in members.items():
            target.writestr(name, data)
    return stream.getvalue()


def metadata(**changes: Any) -> bytes:
    table = {
        "localFileName": "000008.sst",
        "dfsSstFileName": "000008-a.sst",
        "sizeBytes": 9,
        **changes.pop("table", {}),
    }
    return b"v1\n" + json.dumps({"sstFiles": [table], "numKeys": 1, **changes}).encode()


def with_bad_name() -> bytes:
    """A zip in which a name that is said to be UTF-8 is none."""
    data = bytearray(zipped({"a": b"", "metadata": metadata()}))
    entry = data.find(b"PK\x01\x02")
    data[entry + 9] |= 8
    data[entry + 46] = 0xFF
    return bytes(data)


HOSTILE_ZIPS: dict[str, tuple[bytes, type[StateStoreError]]] = {
    "no zip": (b"damaged", CorruptError),
    "empty": (zipped({}), CorruptError),
    "path out": (zipped({"../out": b"", "metadata": metadata()}), CorruptError),
    "absolute path": (zipped({"/tmp/out": b"", "metadata": metadata()}), CorruptError),
    "folder": (zipped({"a/MANIFEST-1": b"", "metadata": metadata()}), CorruptError),
    "table outside": (zipped({"metadata": metadata(table={"dfsSstFileName": "../../x.sst"})}), CorruptError),
    "table to outside": (zipped({"metadata": metadata(table={"localFileName": "../x.sst"})}), CorruptError),
    "table missing": (zipped({"metadata": metadata()}), NotFoundError),
    "no version": (zipped({"metadata": b"{}"}), CorruptError),
    "no json": (zipped({"metadata": b"v1\n{"}), CorruptError),
    "no tables": (zipped({"metadata": b"v1\n{}"}), CorruptError),
    "a list": (zipped({"metadata": b"v1\n[]"}), CorruptError),
    "bomb": (b"", CorruptError),  # made where it is used
    "name that is no text": (with_bad_name(), CorruptError),
    "log files": (zipped({"metadata": metadata(logFiles=[{"dfsLogFileName": "1.log"}])}), UnsupportedError),
}


@pytest.mark.parametrize("case", HOSTILE_ZIPS)
def test_hostile_zips_are_refused(case: str, copied: Callable[[str], Path]) -> None:
    data, error = HOSTILE_ZIPS[case]
    if case == "bomb":
        data = zipped({"MANIFEST-1": bytes(65 << 20), "metadata": metadata()})
    path = copied(ROCKSDB)
    before = {file for file in path.parent.rglob("*") if file.is_file()}
    for partition in (0, 1):
        (path / f"state/0/{partition}/6.zip").write_bytes(data)
    with pytest.raises(error, match="SPARK_STATE"):
        rows(at(path))
    assert {file for file in path.parent.rglob("*") if file.is_file()} == before


def test_table_files_of_another_size_are_refused(copied: Callable[[str], Path]) -> None:
    path = copied(ROCKSDB)
    for table in (path / "state/0").glob("*/SSTs/*.sst"):
        table.write_bytes(table.read_bytes() + b"\0")
    with pytest.raises(CorruptError, match=r"sst: found \d+ bytes, expected"):
        rows(at(path))


def test_a_zip_tells_the_ids_of_column_families() -> None:
    checkpoint = opened(VARIABLES)
    source = open_partition(checkpoint, find_state_view(checkpoint, 0, "val").store, 0, "val")
    found = read_zip(source.folder, next(file for file in source.files if file.kind == "zip"))
    assert isinstance(found, Zip)
    assert found.families["default"] == 1 and found.families["val"] > 1


@pytest.mark.parametrize("file", ["commits/5", "state/0/_metadata/metadata", "metadata", "offsets/5"])
@pytest.mark.parametrize("data", [b"", b"v1\n", b"v1\n[", b"v1\n7", b"{", b"\xff\xfe"])
def test_damaged_metadata_is_refused(file: str, data: bytes, copied: Callable[[str], Path]) -> None:
    path = copied(AGGREGATION)
    (path / file).write_bytes(data)
    with pytest.raises(CorruptError, match=f"SPARK_STATE_FILE.*{file}"):
        at(path)


def test_unknown_providers_are_named(copied: Callable[[str], Path]) -> None:
    path = copied(AGGREGATION)
    offsets = path / "offsets/5"
    offsets.write_text(offsets.read_text().replace("HDFSBackedStateStoreProvider", "LakeProvider"))
    with pytest.raises(UnsupportedError, match="LakeProvider"):
        at(path)


def utf(text: bytes) -> bytes:
    return len(text).to_bytes(2) + text


def test_schema_files_of_the_first_version() -> None:
    schema = b'{"type":"struct","fields":[{"name":"a","type":"long"}]}'
    (found,) = read_schema_file(utf(b"v1") + utf(schema) + utf(schema), "f")
    assert found.key.names == found.value.names == ("a",)


@pytest.mark.parametrize("name", [AGGREGATION, VARIABLES])
def test_damaged_schema_files_are_refused(name: str) -> None:
    folder = checkpoint_path(name) / "state/0"
    (file, *_) = [*folder.glob("_stateSchema/default/*"), *folder.glob("0/_metadata/schema")]
    whole, rng = file.read_bytes(), random.Random(3)
    for _ in range(100):
        with pytest.raises(StateStoreError, match="SPARK_STATE"):
            read_schema_file(whole[: rng.randrange(len(whole))], "f")
        damaged = bytearray(whole)
        damaged[rng.randrange(len(whole))] = rng.randrange(256)
        try:
            read_schema_file(bytes(damaged), "f")
        except StateStoreError as error:
            assert error.code in ("SPARK_STATE_FILE", "SPARK_STATE_UNSUPPORTED")

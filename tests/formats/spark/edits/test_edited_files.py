"""Stored rows of checkpoints that Spark wrote, erased and replaced in copies, compared with plain dictionaries."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import opened
from support.checkpoints.spark_state_fixtures import ARCHIVE, MORE, QUICK, checkpoint_path, index
from support.edited_copies import write_copy
from support.parameters import mostly_slow

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.places.locations import parse_location
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.checkpoint_files import data_files
from statestore.formats.spark.checkpoint.opened_checkpoints import open_now
from statestore.formats.spark.checkpoint.state_views import StateView, state_views
from statestore.formats.spark.edit_plan import AppendingPlan, SparkEditPlan
from statestore.formats.spark.edits.appended_files import all_partitions, new_uids
from statestore.formats.spark.edits.change_file_edits import edited_pieces
from statestore.formats.spark.edits.packed_streams import packed
from statestore.formats.spark.edits.stored_edits import PartitionEdit, StoredEdit, by_partition
from statestore.formats.spark.providers.partition_load import open_partition, stored_rows
from statestore.formats.spark.rows.row_framing import with_checksums, with_sized_checksums
from statestore.formats.spark.source import CheckpointSource

Place = tuple[int, str, str, int]
Rows = dict[bytes, bytes]
NOTHING = pa.RecordBatch.from_arrays([pa.array([], pa.binary())] * 2, schema=ROW_SCHEMA)


def views(checkpoint: Checkpoint) -> Iterator[tuple[StateView, int, Place]]:
    """Each family of each store in each partition, once."""
    seen = set()
    for operator in checkpoint.operators:
        for view in state_views(checkpoint, operator):
            for number in view.store.partitions:
                place = operator.operator_id, view.store.name, view.family.name, number
                if place not in seen:
                    seen.add(place)
                    yield view, number, place


def rows_of(checkpoint: Checkpoint) -> dict[Place, Rows]:
    """The stored rows of all families."""
    found = {}
    for view, number, place in views(checkpoint):
        partition = open_partition(checkpoint, view.store, number, view.family.name)
        batches = list(stored_rows(partition, lambda rows: rows.batch))
        found[place] = {key: value for batch in batches for key, value in zip(*_lists(batch), strict=True)}
    return found


def _lists(batch: pa.RecordBatch) -> list[list[bytes]]:
    return [column.to_pylist() for column in batch.columns]


def binary(*cells: bytes) -> pa.BinaryArray:
    return pa.array(cells, pa.binary())


def edits_of(checkpoint: Checkpoint, rows: Mapping[Place, Rows]) -> list[StoredEdit]:
    """For each family: its first key erased, the value of its second replaced, a key added that sorts behind all."""
    edits = []
    for place, stored in rows.items():
        keys = sorted(stored)
        if len(keys) < 2:
            continue
        put = (keys[1], keys[-1] + b"\0" * 8)
        values = binary(b"replaced", b"added")
        if checkpoint.has_checksums:
            sealed = with_checksums if checkpoint.provider == "hdfs" else with_sized_checksums
            values = sealed(cells_of(binary(*put)), cells_of(values)).copied()
        batch = pa.RecordBatch.from_arrays([binary(*put), values], schema=ROW_SCHEMA)
        edits.append(StoredEdit(*place, batch, binary(keys[0])))
    return edits


def edited(rows: Mapping[Place, Rows], edits: list[StoredEdit]) -> dict[Place, Rows]:
    found = {place: dict(stored) for place, stored in rows.items()}
    for edit in edits:
        mine = found[edit.operator_id, edit.store, edit.family, edit.partition]
        for key in edit.erased.to_pylist():
            del mine[key]
        mine.update(zip(*_lists(edit.put), strict=True))
    return found


def reopened(path: str) -> CheckpointSource:
    return opened(Path(path))


def plan_of(source: CheckpointSource, edits: list[StoredEdit]) -> SparkEditPlan:
    return SparkEditPlan(source.checkpoint, (), reopened, frozenset(), tuple(by_partition(edits)))


def copied(checkpoint: Path, folder: Path) -> tuple[CheckpointSource, list[StoredEdit], CheckpointSource]:
    """A checkpoint, the edits of all its families, and the copy that has them."""
    source = opened(checkpoint)
    edits = edits_of(source.checkpoint, rows_of(source.checkpoint))
    plan = plan_of(source, edits)
    write_copy(plan, folder)
    return source, edits, opened(folder)


NAMES = [(name, archive) for archive in (ARCHIVE, MORE) for name in sorted(index(archive))]
"""All checkpoints of the archives."""


@pytest.mark.parametrize(("name", "archive"), mostly_slow(NAMES, [(name, ARCHIVE) for name in QUICK]))
def test_a_copy_has_the_stored_rows_of_the_edit_and_no_others(name: str, archive: Path, tmp_path: Path) -> None:
    source, edits, copy = copied(checkpoint_path(name, archive), tmp_path / "copy")
    assert rows_of(copy.checkpoint) == edited(rows_of(source.checkpoint), edits)
    assert copy.checkpoint.batches == source.checkpoint.batches


@pytest.mark.parametrize(("name", "archive"), mostly_slow(NAMES, [(name, ARCHIVE) for name in QUICK[:4]]))
def test_a_batch_of_its_own_has_the_edit_and_the_one_before_has_not(name: str, archive: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(checkpoint_path(name, archive), tmp_path / "source"))
    for begun in (path / "offsets").iterdir():
        if begun.name.isdigit() and not (path / "commits" / begun.name).exists():
            begun.unlink()
    checkpoint = opened(path).checkpoint
    before = rows_of(checkpoint)
    edits = edits_of(checkpoint, before)
    placed = {(each.operator_id, each.store, each.partition): each for each in by_partition(edits)}
    uids = new_uids(checkpoint.batch.uids)
    every = tuple(all_partitions(checkpoint, placed))
    write_copy(AppendingPlan(checkpoint, (), reopened, frozenset(), every, uids), tmp_path / "c")
    copy = opened(tmp_path / "c").checkpoint
    newest = checkpoint.batches[-1]
    assert copy.batches == (*checkpoint.batches, newest + 1)
    assert rows_of(copy) == edited(before, edits)
    older = open_now(parse_location(tmp_path / "c"), newest)
    assert rows_of(older) == before
    assert copy.batch.offsets == older.batch.offsets and copy.batch.settings == older.batch.settings
    assert (copy.batch.timestamp_ms or 0) > (older.batch.timestamp_ms or 0)


@pytest.mark.parametrize("name", ["spark4.3.0-agg__rk", "spark4.0.1-agg__rk2"])
def test_zips_count_the_keys_that_they_have(name: str, tmp_path: Path) -> None:
    _, edits, copy = copied(checkpoint_path(name), tmp_path / "copy")
    assert edits
    for view, number, place in views(copy.checkpoint):
        partition = open_partition(copy.checkpoint, view.store, number, view.family.name)
        zips = [file for file in partition.files if file.version == copy.checkpoint.batch.version]
        with zipfile.ZipFile(Path(partition.folder.path) / zips[0].name) as members:
            document = json.loads(members.read("metadata").split(b"\n", 1)[1])
        assert document["numKeys"] == len(rows_of(copy.checkpoint)[place])
        for table in document["sstFiles"]:
            stored = Path(partition.folder.path, "SSTs", table["dfsSstFileName"])
            assert stored.stat().st_size == table["sizeBytes"]


def test_a_snapshot_beside_the_last_delta_has_the_edit_too(tmp_path: Path) -> None:
    """Spark loads the snapshot, and reads changes from the delta."""
    checkpoint = Path(shutil.copytree(checkpoint_path("spark4.3.0-agg__hdfs"), tmp_path / "source"))
    source = opened(checkpoint)
    rows = rows_of(source.checkpoint)
    version = source.checkpoint.batch.version
    for (operator, store, _, number), stored in rows.items():
        folder = source.checkpoint.folder(source.checkpoint.operator(operator).stores[0], number)
        assert store == "default"
        delta = next(file for file in data_files(folder) if file.version == version)
        put = pa.RecordBatch.from_arrays([binary(*stored), binary(*stored.values())], schema=ROW_SCHEMA)
        whole = PartitionEdit(operator, store, number, put, binary(), 0)
        content = b"".join(packed("lz4", edited_pieces(folder, delta, whole, checksums=False)))
        Path(folder.path, f"{version}.snapshot").write_bytes(content)
    before = opened(checkpoint)
    assert rows_of(before.checkpoint) == rows
    edits = edits_of(before.checkpoint, rows)
    sizes = write_copy(plan_of(before, edits), tmp_path / "copy")
    written = sorted(path for path in sizes if path.startswith("state/0/0/"))
    assert written == [f"state/0/0/{version}.delta", f"state/0/0/{version}.snapshot"]
    assert rows_of(opened(tmp_path / "copy").checkpoint) == edited(rows, edits)
    for snapshot in (tmp_path / "copy").rglob("*.snapshot"):
        snapshot.unlink()
    assert rows_of(opened(tmp_path / "copy").checkpoint) == edited(rows, edits)


def test_files_of_a_batch_without_a_commit_stay_behind_and_all_others_are_copied(tmp_path: Path) -> None:
    checkpoint = Path(shutil.copytree(checkpoint_path("spark4.3.0-agg__rkcl"), tmp_path / "source"))
    newest = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    (checkpoint / "commits" / str(newest)).unlink()
    files = {str(each.relative_to(checkpoint)) for each in checkpoint.rglob("*") if each.is_file()}
    source, edits, _ = copied(checkpoint, tmp_path / "copy")
    touched = {f"state/0/{edit.partition}/{newest}.changelog" for edit in edits}
    assert touched <= files
    later = {name for name in files if Path(name).name.split(".")[0] == str(newest + 1) and name.startswith("state/")}
    assert later and source.newest("state") == newest - 1
    found = {str(each.relative_to(tmp_path / "copy")) for each in (tmp_path / "copy").rglob("*") if each.is_file()}
    assert files - found == later
    assert f"offsets/{newest}" in found
    for name in (files & found) - touched:
        assert (checkpoint / name).read_bytes() == (tmp_path / "copy" / name).read_bytes(), name


def test_checksums_go_with_the_files_that_are_written_anew(tmp_path: Path) -> None:
    checkpoint = Path(shutil.copytree(checkpoint_path("spark4.3.0-agg__hdfs"), tmp_path / "source"))
    version = opened(checkpoint).checkpoint.batch.version
    for number in (version - 1, version):
        for name in (f"{number}.delta.crc", f".{number}.delta.crc.crc"):
            (checkpoint / "state/0/0" / name).write_text("of the whole file")
    copied(checkpoint, tmp_path / "copy")
    names = {each.name for each in (tmp_path / "copy/state/0/0").iterdir()}
    assert {f"{version}.delta", f"{version - 1}.delta.crc", f".{version - 1}.delta.crc.crc"} <= names
    assert not names & {f"{version}.delta.crc", f".{version}.delta.crc.crc", f".{version}.delta.crc"}


def test_metadata_names_schema_files_of_the_copy(tmp_path: Path) -> None:
    copied(checkpoint_path("spark4.3.0-twsttl__rkav"), tmp_path / "copy")
    files = list((tmp_path / "copy/state/0/_metadata/v2").iterdir())
    assert files
    for file in files:
        document = json.loads(file.read_text().split("\n", 1)[1])
        for uri in document["stateStoreInfo"][0]["stateSchemaFilePaths"]:
            assert uri.startswith(f"file:{tmp_path}/copy/state/0/_stateSchema/default/")
            assert Path(uri.removeprefix("file:")).exists()


def test_an_erased_row_is_in_no_file_of_the_version(tmp_path: Path) -> None:
    """Records of the batch itself are left out, so that the delta does not hold what is erased."""
    source = opened(checkpoint_path("spark4.3.0-agg__hdfs"))
    folder = source.checkpoint.folder(source.checkpoint.operators[0].stores[0], 0)
    delta = next(file for file in data_files(folder) if file.version == source.checkpoint.batch.version)
    nothing = PartitionEdit(0, "default", 0, NOTHING, binary(), 0)
    plain = b"".join(edited_pieces(folder, delta, nothing, checksums=False))
    rows = rows_of(source.checkpoint)[0, "default", "default", 0]
    key, value = next((key, value) for key, value in rows.items() if key + len(value).to_bytes(4) + value in plain)
    erased = PartitionEdit(0, "default", 0, NOTHING, binary(key), 0)
    found = b"".join(edited_pieces(folder, delta, erased, checksums=False))
    record = len(key).to_bytes(4) + key
    assert record + len(value).to_bytes(4) + value not in found
    assert found == plain[:-4].replace(record + len(value).to_bytes(4) + value, b"") + record + b"\xff" * 8

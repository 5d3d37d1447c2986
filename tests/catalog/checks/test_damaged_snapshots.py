"""Damage of a Flink snapshot beside its states is told by verify: headers, records in flight, files of its folder."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.flink.fixtures import copied, manifest
from support.parameters import mostly_slow

import statestore
from statestore.catalog.checks.verify_report import Verification
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.flink.snapshot.handles import FileHandle, KeyGroupHandle, RelativeHandle
from statestore.formats.flink.snapshot.metadata import SnapshotMetadata, parse_metadata
from statestore.formats.flink.snapshot.snapshot_files import described_name

STORED = (FileHandle, RelativeHandle)


def newest(name: str, folder: Path) -> Path:
    return copied(name, folder) / str(manifest(name)["snapshots"][-1]["path"])


def parsed(folder: Path) -> SnapshotMetadata:
    return parse_metadata((folder / "_metadata").read_bytes(), "_metadata")


def told(found: Sequence[Verification]) -> list[str]:
    return [problem.message for each in found for problem in each.problems]


def notes(found: Sequence[Verification]) -> list[str]:
    return [note for each in found for note in each.notes]


def test_lost_records_in_flight(tmp_path: Path) -> None:
    """The fixture is without the files of its records in flight, which no state has."""
    folder = newest("in-flight", tmp_path)
    handles = [each for op in parsed(folder).operators for task in op.subtasks for each in task.in_flight]
    names = {Path(described_name(each)).name: each.size for each in handles if isinstance(each, STORED)}
    assert names
    messages = told(statestore.verify(folder))
    assert len(messages) == len(names)
    assert all("records in flight" in message and str(folder / "_metadata") in message for message in messages)
    assert all(any(name in message for message in messages) for name in names)
    for name, size in names.items():
        (folder / name).write_bytes(bytes(size))
    found = statestore.verify(folder)
    assert not told(found) and not notes(found)
    (folder / name).write_bytes(bytes(size - 1))
    (message,) = told(statestore.verify(folder))
    assert f"{name}: found {size - 1} bytes, expected {size}" in message


def test_a_file_that_metadata_does_not_name(tmp_path: Path) -> None:
    folder = newest("operator-rocksdb", tmp_path)
    (folder / "left-over").touch()
    found = statestore.verify(folder)
    assert not told(found)
    (note,) = notes(found)
    assert str(folder / "_metadata") in note and "does not name left-over" in note


def test_a_folder_that_was_renamed(tmp_path: Path) -> None:
    folder = newest("hashmap", tmp_path)
    number = parsed(folder).checkpoint_id
    other = folder.rename(folder.with_name("chk-77"))
    (note,) = notes(statestore.verify(other))
    assert f"is that of checkpoint {number}, and its folder is called chk-77" in note


def test_a_damaged_header_is_named_with_its_file(tmp_path: Path) -> None:
    folder = newest("heap-timers", tmp_path)
    timers = [
        task.raw_keyed.stream
        for op in parsed(folder).operators
        for task in op.subtasks
        if isinstance(task.raw_keyed, KeyGroupHandle)
    ]
    streams = timers or [
        task.managed_keyed.stream
        for op in parsed(folder).operators
        for task in op.subtasks
        if isinstance(task.managed_keyed, KeyGroupHandle)
    ]
    file = folder / Path(described_name(streams[0])).name  # type: ignore[arg-type]
    content = file.read_bytes()
    file.write_bytes(bytes([content[0] ^ 0x80]) + content[1:])
    messages = told(statestore.verify(folder))
    assert messages and all(file.name in message for message in messages)


def test_a_lost_file_of_an_older_checkpoint_is_named(tmp_path: Path) -> None:
    """The job may have replaced the checkpoint, or somebody has removed one of its files."""
    run = copied("file-merging", tmp_path)
    first = run / manifest("file-merging")["snapshots"][0]["path"]
    shared = max((first.parent / "shared").rglob("*"), key=lambda each: each.stat().st_size if each.is_file() else 0)
    shared.unlink()
    try:
        messages = told(statestore.verify(first))
    except NotFoundError as error:
        assert error.code == ErrorCode.VERSION_GONE
        messages = [error.message]
    assert messages and all(shared.name in message for message in messages)


def test_a_savepoint_is_opened_when_it_is_read(tmp_path: Path) -> None:
    """Opening a folder takes the id of each snapshot from the first bytes of its ``_metadata``."""
    folder = tmp_path / "savepoints"
    run = copied("rocksdb", tmp_path)
    paths = [run / each["path"] for each in manifest("rocksdb")["snapshots"]]
    savepoints = [each for each in paths if each.name.startswith("savepoint-")]
    assert len(savepoints) > 1
    for each in savepoints:
        shutil.copytree(each, folder / each.name)
    ids = {parsed(each).checkpoint_id: each.name for each in savepoints}
    first, last = ids[min(ids)], ids[max(ids)]
    damaged = folder / first / "_metadata"
    damaged.write_bytes(damaged.read_bytes()[:40])
    warehouse = statestore.inspect(folder)
    name = next(each for each in warehouse.tables() if each.endswith(".sum"))
    assert warehouse.table(name).scan(version=max(ids)).read_all().num_rows
    with pytest.raises(CorruptError, match=first):
        warehouse.table(name).scan(version=min(ids)).read_all()
    assert any(first in message for message in told(statestore.verify(folder, deep=True)))
    assert last in str(folder / last)


def test_a_lost_offset_of_a_key_group(tmp_path: Path) -> None:
    """Zero stands for a key group without data: only the bytes that nobody reads then tell that there were some."""
    folder = newest("heap-timers", tmp_path)
    metadata = (folder / "_metadata").read_bytes()
    handles = [task.managed_keyed for op in parsed(folder).operators for task in op.subtasks]
    offsets = [each.offsets for each in handles if isinstance(each, KeyGroupHandle) and each.form == "savepoint"]
    tried = 0
    for each in offsets:
        row = struct.pack(f">{len(each)}q", *each)
        assert metadata.count(row) == 1
        present = [number for number, offset in enumerate(each) if offset]
        for number in (present[0], present[-1]):
            lost = struct.pack(f">{len(each)}q", *each[:number], 0, *each[number + 1 :])
            (folder / "_metadata").write_bytes(metadata.replace(row, lost))
            assert told(statestore.verify(folder))
            tried += 1
    assert tried >= 4


@pytest.mark.parametrize("name", mostly_slow(["operator-rocksdb", "custom-rocksdb", "async-forst"], 3))
def test_a_table_of_another_database(tmp_path: Path, name: str) -> None:
    """It has the size that metadata says, and right checksums: keys and sequence numbers are those of another one."""
    job = copied(name, tmp_path) / Path(str(manifest(name)["snapshots"][-1]["path"])).parent
    tables: dict[int, dict[bytes, Path]] = {}
    for file in sorted(job.rglob("*")):
        content = file.read_bytes() if file.is_file() else b""
        if content.endswith(bytes.fromhex("f7cff485b741e288")):
            tables.setdefault(len(content), {})[content] = file
    pairs = [list(each.items())[:2] for each in tables.values() if len(each) > 1][:2]
    assert pairs
    for (own, file), (other, _) in pairs:
        file.write_bytes(other)
        assert any(not each.ok for each in statestore.verify(job, deep=True)), file
        file.write_bytes(own)

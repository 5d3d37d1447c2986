"""Damaged data files: an error of ours, or the right rows; never another exception, and no wrong rows where data is
checked. Damage that other readers take for the end of the data is refused, too: there are never fewer rows."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.flink.fixtures import copied, manifest
from support.flink.metadata_bytes import utf
from support.flink.snapshot_reads import files_at, rocks_of, rows_of, source_at
from support.parameters import mostly_slow

from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.flink.snapshot.handles import InPlace, KeyGroupHandle, RelativeHandle

# (run, place among its snapshots): canonical, heap, raw timers, operator state; those with checksums.
PLAIN = [("hashmap", 1), ("hashmap", 0), ("heap-timers", 0), ("operator-rocksdb", 1), ("sql", 1)]
CHECKED = [("wide-hashmap", 0), ("operator-hashmap-snappy", 0)]
QUICK = [("operator-rocksdb", 1), ("sql", 1)]
FLIPS = 4


def rows_by_state(folder: Path) -> dict[str, Any]:
    """The rows of each state, or the error of its read. Other exceptions than ours are raised."""
    source = source_at(folder)
    found: dict[str, Any] = {}
    for state in source.states():
        try:
            found[state] = rows_of(source, state)
        except StateStoreError as error:
            found[state] = error
    return found


def largest(folder: Path) -> Path:
    """The file with the most state; small state lies in ``_metadata``, whose damage has tests of its own."""
    files = [each for each in folder.iterdir() if each.is_file() and each.name != "_metadata"]
    sized: list[tuple[int, str]] = sorted((each.stat().st_size, each.name) for each in files)
    return folder / sized[-1][1]


def snapshot(run: str, number: int, tmp_path: Path) -> Path:
    path: str = manifest(run)["snapshots"][number]["path"]
    return copied(run, tmp_path) / path


@pytest.mark.parametrize(("run", "number"), mostly_slow([*PLAIN, *CHECKED], [*QUICK, CHECKED[1]]))
def test_a_file_that_was_cut_is_an_error_of_the_states_in_it(run: str, number: int, tmp_path: Path) -> None:
    folder = snapshot(run, number, tmp_path)
    whole, path = rows_by_state(folder), largest(folder)
    size = path.stat().st_size
    for kept in (0, size // 2, size - 1):
        os.truncate(path, kept)
        try:
            found = rows_by_state(folder)
        except StateStoreError as error:
            assert error.code == "FLINK_FILE"
            continue
        failed = [state for state, rows in found.items() if isinstance(rows, StateStoreError)]
        assert any(found[state].code == "FLINK_FILE" for state in failed)
        assert all(found[state] == whole[state] for state in found if state in whole and state not in failed)


@pytest.mark.parametrize(("run", "number"), mostly_slow(PLAIN, [*QUICK, ("heap-timers", 0)]))
def test_changed_bytes_are_rows_or_errors_of_ours(run: str, number: int, tmp_path: Path) -> None:
    folder = snapshot(run, number, tmp_path)
    path, chance = largest(folder), random.Random(run)
    data = path.read_bytes()
    for _ in range(FLIPS):
        changed = bytearray(data)
        for _ in range(8):
            changed[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(changed))
        try:
            rows_by_state(folder)
        except StateStoreError:
            continue


@pytest.mark.parametrize(("run", "number"), mostly_slow(CHECKED, [CHECKED[0]]))
def test_a_changed_byte_of_compressed_state_gives_no_wrong_row(run: str, number: int, tmp_path: Path) -> None:
    folder = snapshot(run, number, tmp_path)
    whole, path, chance = rows_by_state(folder), largest(folder), random.Random(run)
    data = path.read_bytes()
    failed = 0
    for _ in range(FLIPS // 2):
        at = chance.randrange(len(data) // 2, len(data))  # behind the header, which has no checksum
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        found = rows_by_state(folder)
        failed += any(isinstance(rows, StateStoreError) for rows in found.values())
        for state, rows in found.items():
            assert isinstance(rows, StateStoreError) or rows == whole[state], (state, at)
    assert failed


def test_a_key_in_the_block_of_another_key_group_is_refused(tmp_path: Path) -> None:
    folder = snapshot("hashmap", 1, tmp_path)
    files = files_at(folder)
    changed = 0
    for operator in files.metadata().operators:
        for handle in (subtask.managed_keyed for subtask in operator.subtasks):
            if not isinstance(handle, KeyGroupHandle) or not isinstance(handle.stream, RelativeHandle):
                continue
            path = folder / handle.stream.path
            data = bytearray(path.read_bytes())
            for offset in filter(None, handle.offsets):
                data[offset + 6] ^= 1  # behind the state's number and the length of its first key
                changed += 1
            path.write_bytes(bytes(data))
    assert changed
    errors = [rows for rows in rows_by_state(folder).values() if isinstance(rows, StateStoreError)]
    assert errors and {error.code for error in errors} == {"FLINK_ROW"}
    assert all("key group" in error.message for error in errors)


def test_a_file_of_zeros_is_called_damaged_by_its_name(tmp_path: Path) -> None:
    """A disk that lost its blocks returns zeros. It is no state of another version of Flink."""
    folder = snapshot("hashmap", 0, tmp_path)
    path = largest(folder)
    path.write_bytes(bytes(path.stat().st_size))
    errors = [found for found in rows_by_state(folder).values() if isinstance(found, StateStoreError)]
    assert errors
    assert all(f"{path.name}: at byte" in str(error) and error.code == "FLINK_METADATA" for error in errors)


def manifests(place: Path) -> Iterator[bytes]:
    for _, handle in rocks_of(files_at(place).metadata()):
        for name, each in handle.private:
            if name.startswith("MANIFEST-") and isinstance(each, InPlace):
                yield each.data


def test_a_record_of_the_manifest_that_seems_to_break_off_is_refused(tmp_path: Path) -> None:
    run = "rescaled-small"
    place = copied(run, tmp_path) / manifest(run)["snapshots"][0]["path"]
    assert rows_of(source_at(place), "alarms.processing_user-timers").num_rows
    file = place / "_metadata"
    data = file.read_bytes()
    for found in manifests(place):
        data = data.replace(found, found[:5] + b"\x7f" + found[6:])  # the high byte of the first record's length
    file.write_bytes(data)
    with pytest.raises(CorruptError, match=r"MANIFEST-0.* of RocksDB: byte 0: found a record of type 1 and"):
        rows_of(source_at(place), "alarms.processing_user-timers")


def test_elements_of_a_state_that_the_header_does_not_have_are_refused(tmp_path: Path) -> None:
    run = "operator-rocksdb"
    place = copied(run, tmp_path) / manifest(run)["snapshots"][0]["path"]
    assert rows_of(source_at(place), "buffers.split").num_rows
    file = place / "_metadata"
    data = file.read_bytes()
    file.write_bytes(data.replace(utf("split") + b"\0", utf("splat") + b"\0"))
    with pytest.raises(CorruptError, match="found elements of operator state 'splat', expected only those of"):
        rows_of(source_at(place), "buffers.unreadable")

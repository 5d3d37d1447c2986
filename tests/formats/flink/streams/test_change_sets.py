"""Sets of changes: frames, both forms of files, and bytes that no Flink wrote."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from support.flink.change_bytes import i32
from support.flink.snapshot_reads import files_at
from support.parameters import mostly_slow

from statestore.formats.bytes.crc32c import crc32c
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.flink.changelog.stored_entries import scopes
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader
from statestore.formats.flink.serializers.flink_types import Basic
from statestore.formats.flink.snapshot.handles import ChangeSet, ChangesFile, PlainChanges
from statestore.formats.flink.streams.change_sets import read_changes
from statestore.formats.flink.streams.state_form import Typed, form_of
from statestore.formats.kernels import compiled_use

Set = list[tuple[int, list[bytes]]]


@pytest.fixture(params=[False, True], ids=["plain", "compiled"], autouse=True)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        pytest.importorskip("numba")
        __import__(compiled_use.COMPILED)
    monkeypatch.setattr(compiled_use, "is_loaded", lambda: request.param)


def set_bytes(groups: Set) -> bytes:
    body = [i32(len(each)) + group.to_bytes(4, "big", signed=True) + frames(each) for group, each in groups]
    return i32(len(groups)) + b"".join(body)


def frames(changes: list[bytes]) -> bytes:
    return b"".join(i32(len(each)) + each for each in changes)


def snappy(data: bytes) -> bytes:
    """The bytes in snappy's framing format, in chunks of plain data with their checksums."""
    found = b"\xff\x06\0\0sNaPpY"
    for at in range(0, len(data), 100):
        part = data[at : at + 100]
        crc = crc32c(part)
        masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
        found += b"\x01" + (len(part) + 4).to_bytes(3, "little") + masked.to_bytes(4, "little") + part
    return found


def read(folder: Path, sets: list[ChangeSet | PlainChanges]) -> list[tuple[int, int, bytes]]:
    found = []
    for changes in read_changes(files_at(folder), sets):
        for place, group in enumerate(changes.groups.tolist()):
            found.append((changes.number, group, changes.cells.cell(place)))
    return found


ONE: Set = [(-1, [b"meta"]), (3, [b"a" * 300, b"", b"c"]), (7, [b"d"])]
OTHER: Set = [(0, [b"other"])]


def written(folder: Path, packed: bool) -> list[ChangeSet | PlainChanges]:
    """A file with a set, that of another subtask and a further set, as handles of the first and the last."""
    first, last = set_bytes(ONE), set_bytes([(3, [b"e"])])
    plain = first + set_bytes(OTHER) + last
    (folder / "changes").write_bytes(b"\1" + snappy(plain) if packed else b"\0" + plain)
    file = ChangesFile(f"file:{folder}/changes", len(plain))
    return [ChangeSet(file, 0), ChangeSet(file, len(plain) - len(last))]


@pytest.mark.parametrize("packed", [False, True])
def test_sets_are_read_from_where_they_begin(tmp_path: Path, packed: bool) -> None:
    folder = tmp_path / "job" / "chk-1"
    folder.mkdir(parents=True)
    sets = written(folder, packed)
    expected = [(0, group, change) for group, changes in ONE for change in changes]
    assert read(folder, sets) == [*expected, (1, 3, b"e")]
    backwards = read(folder, sets[::-1])
    assert backwards == [(0, 3, b"e"), *((1, group, change) for _, group, change in expected)]


def test_changes_in_the_metadata_need_no_file(tmp_path: Path) -> None:
    assert read(tmp_path, [PlainChanges(((2, b"x"), (1, b"")))]) == [(0, 2, b"x"), (0, 1, b"")]


def test_a_file_that_has_lost_its_end_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "job" / "chk-1"
    folder.mkdir(parents=True)
    sets = written(folder, False)
    whole = (folder / "changes").read_bytes()
    (folder / "changes").write_bytes(whole[:-1])
    with pytest.raises(CorruptError, match=r"FLINK_FILE.*expected"):
        read(folder, sets)


@pytest.mark.parametrize("seed", mostly_slow(list(range(200)), list(range(8))))
def test_damaged_sets_are_changes_or_a_clear_error(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    folder = tmp_path / "job" / "chk-1"
    folder.mkdir(parents=True)
    sets = written(folder, random.random() < 0.5)
    data = bytearray((folder / "changes").read_bytes())
    for _ in range(random.randint(1, 3)):
        data[random.randrange(len(data))] = random.randrange(256)
    (folder / "changes").write_bytes(data)
    try:
        read(folder, sets)
    except StateStoreError as error:
        assert error.code in ("FLINK_FILE",), error


@pytest.mark.parametrize("count", [0, 3])
def test_zeros_are_no_changes(tmp_path: Path, count: int) -> None:
    """A file that a crash has filled with zeros does not count as one without changes."""
    folder = tmp_path / "job" / "chk-1"
    folder.mkdir(parents=True)
    sets = written(folder, False)
    size = (folder / "changes").stat().st_size
    (folder / "changes").write_bytes((b"\0" + i32(count)).ljust(size, b"\0"))
    with pytest.raises(CorruptError, match="FLINK_FILE"):
        read(folder, sets)


def test_an_offset_beyond_the_changes_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "job" / "chk-1"
    folder.mkdir(parents=True)
    first = written(folder, True)[0]
    assert isinstance(first, ChangeSet)
    with pytest.raises(CorruptError, match="FLINK_FILE"):
        read(folder, [ChangeSet(first.stream, 2**40)])


def test_numbers_are_bounded_by_the_bytes_that_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "job" / "chk-1"
    folder.mkdir(parents=True)
    plain = i32(2**31 - 1) + i32(2**31 - 1) + i32(1) + i32(2**31 - 1)
    (folder / "changes").write_bytes(b"\0" + plain)
    with pytest.raises(CorruptError, match="FLINK_FILE"):
        read(folder, [ChangeSet(ChangesFile(f"file:{folder}/changes", len(plain)), 0)])


def test_lengths_of_more_than_one_byte_are_told_in_keys() -> None:
    text = Basic("string")
    form = form_of(KeyedStateHeader("a", "value", text, Basic("long"), {}), text, Typed({}, "a"))
    keys, spaces = pa.array([b"k" * 300, b"k"], pa.binary()), pa.array([b"n", b"n" * 70000], pa.binary())
    found = scopes(form, np.array([1, 2]), keys, spaces, 2).to_pylist()
    assert found[0] == b"\0\1" + b"k" * 300 + (300).to_bytes(2, "little") + b"n\1"
    assert found[1] == b"\0\2" + b"k\1" + b"n" * 70000 + (70000).to_bytes(3, "little")

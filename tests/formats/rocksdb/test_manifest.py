"""MANIFESTs of RocksDB directories: the facts that the scanner reads from them, and its refusals."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from support.rocksdb.rocksdb_scans import REFUSALS, outcome, scanned
from support.rocksdb.rocksdb_tables import (
    PUT,
    Form,
    expected,
    log_bytes,
    new_file,
    runs,
    stored,
    table,
    varint,
    write_directory,
    write_manifest,
)

from statestore.formats.errors import CorruptError
from statestore.formats.rocksdb.manifest import broken_frame, next_file_number, read_families
from statestore.formats.rocksdb.rocksdb_errors import Unreadable


def test_manifests_that_break_off(tmp_path: Path) -> None:
    """Behind a record it is the MANIFEST of an earlier time; anywhere else it is refused."""
    directory = stored(tmp_path / "db", Form())
    data = (directory / "MANIFEST-000005").read_bytes()
    found = {}
    for size in range(len(data)):
        (directory / "MANIFEST-000005").write_bytes(data[:size])
        if (rows := outcome(directory)) is not None:
            found[size] = len(rows)
    assert list(found.values()) == [0, 150] and 0 not in found


@pytest.mark.parametrize("missing", [2, 3, 4])
def test_a_manifest_without_what_each_has(missing: int, tmp_path: Path) -> None:
    """RocksDB refuses one without log number, next file or last sequence: its edits are not all there."""
    directory = stored(tmp_path / "db", Form())
    assert outcome(directory) is not None
    write_manifest(directory, [varint(tag) + varint(9) for tag in (2, 3, 4) if tag != missing])
    assert outcome(directory) is None


def test_a_manifest_with_zeros_behind(tmp_path: Path) -> None:
    """Space set aside is no damage, but something behind it is, and so is a record that ends in it."""
    directory = stored(tmp_path / "db", Form())
    manifest = directory / "MANIFEST-000005"
    data = manifest.read_bytes()
    manifest.write_bytes(data + bytes(5000))
    assert outcome(directory) == expected()
    manifest.write_bytes(data[:50] + bytes(len(data) - 50))
    assert outcome(directory) is None
    manifest.write_bytes(data + bytes(500) + data[-20:])
    assert outcome(directory) is None


GOOD_EDIT = varint(2) + varint(0) + varint(3) + varint(9) + varint(4) + varint(99)
ONE = [(b"a", 1, PUT, b"")]
EDITS = {
    "field 77": varint(77) + b"x",
    "no number": varint(2) + b"\xff" * 12,
    "100 bytes wanted": varint(1) + varint(100) + b"x",
    "ordered by b'other'": varint(1) + varint(5) + b"other",
    "unknown column family 7": varint(200) + varint(7) + new_file(10, 0, 10, ONE),
    "on level 65": new_file(10, 65, 10, ONE),
    "within a group": varint(300) + varint(3),
    "refers to blob files": new_file(10, 0, 10, ONE, varint(4) + varint(1) + b"x"),
    "in another folder": new_file(10, 0, 10, ONE, varint(65) + varint(1) + b"\1"),
    "a field 66": new_file(10, 0, 10, ONE, varint(66) + varint(1) + b"x"),
    "field 402": varint(402) + b"\1\1\1\1\1",
    "a blob file has a field 66": varint(400) + b"\1\1\1\0\0" + varint(66) + varint(1) + b"x\0",
    "a key of 7 bytes": varint(7) + varint(0) + varint(10) + varint(9) + (varint(7) + b"7 bytes") * 2,
}


@pytest.mark.parametrize("message", EDITS)
def test_version_edits_that_are_refused(message: str, tmp_path: Path) -> None:
    directory = stored(tmp_path / "db", Form())
    write_manifest(directory, [GOOD_EDIT, EDITS[message]])
    with pytest.raises(REFUSALS, match=message):
        read_families(directory)


def test_edits_behind_blob_files_count(tmp_path: Path) -> None:
    """Values in blob files hinder a scan, and only while a table file refers to them."""
    directory = stored(tmp_path / "db", Form())
    blobs = varint(400) + b"\1\1\1\0\0\0" + varint(401) + b"\1\1\1\0"
    refers = blobs + new_file(10, 0, 10, ONE, varint(4) + varint(1) + b"x")
    write_manifest(directory, [GOOD_EDIT, refers, varint(3) + varint(70)])
    assert next_file_number(directory) == 70
    write_manifest(directory, [GOOD_EDIT, refers, varint(6) + varint(0) + varint(10)])
    assert not read_families(directory)["default"].files


@pytest.mark.parametrize("number", [10, 99, (1 << 64) - 1])
def test_table_files_of_another_size_or_none(number: int, tmp_path: Path) -> None:
    directory = stored(tmp_path / "db", Form())
    write_manifest(directory, [GOOD_EDIT, new_file(number, 0, 10, ONE)])
    with pytest.raises(CorruptError, match=r"found \d+ bytes, expected 10|cannot be opened"):
        scanned(directory)


def test_files_of_a_level_that_begin_with_one_key(tmp_path: Path) -> None:
    """Versions of a key may be cut between two files of a level, in which the newer ones come first."""
    newer, older = [(b"k", 9, PUT, b"new")], [(b"k", 8, PUT, b"old"), (b"l", 1, PUT, b"")]
    for number, order in enumerate(([newer, older], [older, newer])):
        files = [(1, entries, table(entries)) for entries in order]
        assert scanned(write_directory(tmp_path / str(number), files)) == [(b"k", b"new"), (b"l", b"")]


@pytest.mark.parametrize("smallest", [b"a", b"b", b"z"])
def test_a_file_with_keys_before_its_least_one(smallest: bytes, tmp_path: Path) -> None:
    """Ranges are read without files whose least key is behind them, so it must be the least."""
    entries, told = [(b"b", 1, PUT, b"1"), (b"y", 2, PUT, b"")], [(smallest, 9, PUT, b""), (b"zz", 1, PUT, b"")]
    directory = write_directory(tmp_path / "db", [(0, told, table(entries))])
    if smallest > b"b":
        with pytest.raises(CorruptError, match="keys that belong elsewhere"):
            scanned(directory)
    else:
        assert len(scanned(directory)) == 2


def test_edits_of_several_families(tmp_path: Path) -> None:
    """Families are added, dropped and added again under the name; files are deleted and moved to another level."""
    directory = stored(tmp_path / "db", Form())
    sizes = [(directory / name).stat().st_size for name in ("000010.sst", "000011.sst")]
    other = varint(200) + varint(1)
    files = [new_file(number, 1, size, run) for number, size, run in zip((10, 11), sizes, runs(), strict=True)]
    write_manifest(
        directory,
        [
            GOOD_EDIT + files[0],
            other + varint(201) + varint(5) + b"other",
            other + files[1],
            other + varint(202),
            varint(200) + varint(2) + varint(201) + varint(5) + b"other",
            varint(6) + varint(1) + varint(10),
            varint(200) + varint(2) + files[0],
            # A move is a deletion and an addition in one edit, in whatever order they are written.
            varint(200) + varint(2) + new_file(10, 3, sizes[0], runs()[0]) + varint(6) + varint(1) + varint(10),
        ],
    )
    found = read_families(directory)
    assert found["default"].files == ()
    assert [(entry.name, entry.level) for entry in found["other"].files] == [("000010.sst", 3)]
    assert scanned(directory, "other") == [(key, value) for key, _, _, value in runs()[0]]
    with pytest.raises(Unreadable, match="no column family 'third'"):
        scanned(directory, "third")


def test_a_version_edit_of_several_pages(tmp_path: Path) -> None:
    """A record in parts is put together, and any byte of any part counts."""
    directory = stored(tmp_path / "db", Form())
    # A field that may be skipped, of 80,000 bytes: it reaches over three pages of 32 KiB.
    fields = varint(1 << 13) + varint(80_000) + bytes(range(250)) * 320
    edits = [GOOD_EDIT + fields]
    for number, run in enumerate(runs(), 10):
        edits.append(new_file(number, 11 - number, (directory / f"{number:06d}.sst").stat().st_size, run))
    write_manifest(directory, edits)
    assert outcome(directory) == expected()
    long = log_bytes(edits)
    assert len(long) > 80_000
    for at in (10, 32760, 32768, 40_000, 65_540, len(long) - 1):
        (directory / "MANIFEST-000005").write_bytes(long[:at] + bytes([long[at] ^ 1]) + long[at + 1 :])
        assert outcome(directory) is None


# MANIFESTs that RocksDB would take for older ones without a word: a frame that is not whole is found before


PAGE = 32768


def record(size: int, kind: int = 1) -> bytes:
    return bytes(4) + struct.pack("<HB", size, kind) + b"x" * size


def numbered(size: int, kind: int) -> bytes:
    return bytes(4) + struct.pack("<HBI", size, kind, 9) + b"x" * size


@pytest.mark.parametrize(
    "data",
    [
        record(0) + record(5),
        record(10, 2) + record(0, 3) + record(10, 4),
        numbered(3, 5) + numbered(3, 6) + numbered(3, 8),
        record(PAGE - 7) + record(1),
        record(PAGE - 7 - 6) + bytes(6) + record(1),
        record(PAGE - 7 - 7) + record(0, 2) + record(9, 4),
    ],
)
def test_whole_frames_are_whole(data: bytes) -> None:
    assert broken_frame(data) is None


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "not whole"),
        (record(5) + record(9)[:-1], "byte 12: found a record of type 1 and 9 bytes"),
        (record(5) + record(9)[:3], "byte 12: found a record of type 0"),
        (record(5) + bytes(20) + record(1), "byte 12: found a record of type 0 and 0 bytes"),
        (record(5) + bytes(20), "byte 12: found a record of type 0 and 0 bytes"),
        (record(5, 9), "byte 0: found a record of type 9"),
        (record(5, 2), "not whole"),
        (record(5, 2) + record(5), "byte 12: found part 1 of a record in the wrong place"),
        (record(5, 4), "byte 0: found part 4 of a record in the wrong place"),
        (record(PAGE - 7 - 6) + b"\0\0x\0\0\0" + record(1), "behind the last record of a page"),
        (record(PAGE - 6), "found a record of type 1"),
    ],
)
def test_broken_frames_are_named(data: bytes, found: str) -> None:
    assert found in (broken_frame(data) or "")

"""Table files that an edit removes from a private MANIFEST; RocksDB itself opens the directory afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.rocksdb.rocksdb_scans import pairs, scanned
from support.rocksdb.rocksdb_tables import (
    FIRST_EDIT,
    PUT,
    Entry,
    Form,
    log_bytes,
    new_file,
    string,
    table,
    varint,
    write_manifest,
)

from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.rocksdb.manifest import broken_frame, read_families
from statestore.formats.rocksdb.manifest_edits import keep_tables
from statestore.formats.rocksdb.scan import scan_rocksdb

PAGE = 32768
NUMBERS = (b"\x00", b"\x01", b"\x7f", b"\xff")
FIRST_FILE = 10


def entries(prefix: bytes) -> list[Entry]:
    return [(prefix + b"%02d" % number, number + 1, PUT, prefix + b" %d" % number) for number in range(20)]


def written(path: Path, size: int = 0) -> Path:
    """A database with a file for each prefix in family ``kept`` and another in ``default``, and its MANIFEST's size."""
    path.mkdir()
    edits = [FIRST_EDIT + varint(3) + varint(100) + varint(4) + varint(1 << 40)]
    edits.append(varint(200) + varint(1) + varint(201) + string(b"kept") + varint(2) + varint(0))
    for number, prefix in enumerate((*NUMBERS, b"other"), FIRST_FILE):
        name = b"default" if prefix == b"other" else b"kept"
        file = table(entries(prefix), Form(properties={b"rocksdb.column.family.name": name}))
        (path / f"{number:06d}.sst").write_bytes(file.data)
        edit = new_file(number, 1 + number % 2, len(file.data), entries(prefix))
        edits.append(edit if name == b"default" else varint(200) + varint(1) + edit)
    if size:  # one more record, with a field that may be skipped: its number takes two bytes, its length three
        edits.append(varint(1 << 13) + string(bytes(size - len(log_bytes(edits)) - 7 - 2 - 3)))
    write_manifest(path, edits)
    return path


def rows(path: Path, within: KeyRange, family: str = "kept") -> list[tuple[bytes, bytes]]:
    return [row for batch in scan_rocksdb(path, pairs, family=family, key_ranges=[within]) for row in batch]


@pytest.mark.parametrize("prefix", NUMBERS)
def test_the_files_of_a_range_are_kept_and_the_others_can_be_removed(prefix: bytes, tmp_path: Path) -> None:
    path = written(tmp_path / "db")
    within = KeyRange(prefix + b"03", successor(prefix + b"1"))
    expected = rows(path, within)
    assert len(expected) == 17
    assert keep_tables(path, "kept", [within]) == {FIRST_FILE + NUMBERS.index(prefix)}
    for number in range(len(NUMBERS) + 1):
        if number != NUMBERS.index(prefix):
            (path / f"{FIRST_FILE + number:06d}.sst").unlink()
    assert rows(path, within) == expected == scanned(path, "kept")[3:]
    assert not rows(path, within, "default")


def test_ranges_that_meet_several_files_or_none(tmp_path: Path) -> None:
    path = written(tmp_path / "db")
    for ranges, kept in (
        ([KeyRange(b"\x0019", b"\x0100")], [0]),  # ends before the first key of the next
        ([KeyRange(b"\x0019", b"\x0100\0")], [0, 1]),
        ([KeyRange(b"\x0020", b"\x01")], []),
        ([KeyRange(None, b"\x0000\0"), KeyRange(b"\xff19", None)], [0, 3]),
        ([KeyRange()], [0, 1, 2, 3]),
    ):
        copy = written(tmp_path / f"db-{kept}-{len(ranges)}-{ranges[0].stop!r}".replace("\\", ""))
        assert keep_tables(copy, "kept", ranges) == {FIRST_FILE + number for number in kept}
        assert [each.number - FIRST_FILE for each in read_families(copy)["kept"].files] == sorted(
            kept, key=lambda number: (number % 2, number)
        ), ranges
    assert keep_tables(path, "default", [KeyRange(b"other", b"other05")]) == {FIRST_FILE + len(NUMBERS)}
    assert rows(path, KeyRange(b"other03", b"other05"), "default") == [
        (b"other03", b"other 3"),
        (b"other04", b"other 4"),
    ]


@pytest.mark.parametrize("left", [*range(1, 12), 20, 40])
def test_an_edit_at_the_end_of_a_page(left: int, tmp_path: Path) -> None:
    path = written(tmp_path / "db", PAGE - left)
    manifest = path / "MANIFEST-000005"
    before = manifest.read_bytes()
    assert len(before) == PAGE - left
    within = KeyRange(b"\x7f05", b"\x7f06")
    assert keep_tables(path, "kept", [within]) == {FIRST_FILE + 2}
    after = manifest.read_bytes()
    assert after.startswith(before) and broken_frame(after) is None
    assert [each.number for each in read_families(path)["kept"].files] == [FIRST_FILE + 2]
    for number in (0, 1, 3, 4):
        (path / f"{FIRST_FILE + number:06d}.sst").unlink()
    assert rows(path, within) == [(b"\x7f05", b"\x7f 5")]

"""Every codec of RocksDB through every way to its rows: the same rows, from databases that RocksDB's Java wrote.

`codecs.tar.xz` has a database for each codec and table format with the same writes, in four table files of two levels,
by RocksDB 9.7.3: <codec>-v<format>, zlib-two (two-level index), zlib-hash (hash index), zlib-wal (write-ahead log).
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from support.paths import DATA

from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.rocksdb.kept_tables import opened_lazily
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.manifest import read_families
from statestore.formats.rocksdb.opened_families import family_names, opened_family
from statestore.formats.rocksdb.plain_tables import opened_plain
from statestore.formats.rocksdb.scan import READER, scan_rocksdb
from statestore.formats.rocksdb.table_head import codec_without_rocksdict

NEWEST = ("none-v5", "snappy-v5", "zlib-v5", "bzip2-v5", "lz4-v5", "lz4hc-v5", "zstd-v5")
ZLIB = ("zlib-v0", "zlib-v1", "zlib-v2", "zlib-v3", "zlib-v4", "zlib-v6", "zlib-two", "zlib-hash")
READABLE = (*NEWEST, *ZLIB, "bzip2-v1", "lz4-v1", "lz4-v6")
Rows = dict[bytes, bytes]
Pairs = list[tuple[bytes, bytes]]


def written() -> Rows:
    """The rows that the writes of the program leave: puts, puts, deletes, merges with a comma, merges of new keys."""
    rows = {b"key-%05d" % i: b"first value of %d%s%s" % (i, b" " * (i % 7), b"a" * 24) for i in range(150)}
    rows |= {b"key-%05d" % i: b"second value of %d" % i for i in range(0, 150, 10)}
    for i in range(5, 150, 10):
        del rows[b"key-%05d" % i]
    for i in range(3, 150, 50):
        rows[b"key-%05d" % i] += b",m1-%d,m2-%d" % (i, i)
    return rows | {b"key-%05d" % i: b"alone-%d" % i for i in range(303, 306)}


@pytest.fixture(scope="module")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codecs")
    with tarfile.open(DATA / "rocksdb" / "codecs.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def pairs(batch: pa.RecordBatch) -> Pairs:
    return list(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))


def scanned(directory: Path, ranges: Sequence[KeyRange]) -> Pairs:
    batches = scan_rocksdb(directory, pairs, key_ranges=ranges, delimiter=b",")
    return [row for rows in batches for row in rows]


def by_plain(directory: Path, ranges: Sequence[KeyRange]) -> Pairs:
    with opened_plain(directory, ["default"], b",") as opened:
        table = opened["default"]
        for within in ranges:
            assert list(table.pairs(within, backwards=True)) == list(table.pairs(within))[::-1]
        return [row for within in ranges for row in table.pairs(within)]


def by_family(directory: Path, ranges: Sequence[KeyRange]) -> Pairs:
    with opened_family(directory, "default", delimiter=b",") as table:
        return [row for within in ranges for row in table.pairs(within)]


def by_scanner(directory: Path, ranges: Sequence[KeyRange]) -> Pairs:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(READER, "scanner")
        return scanned(directory, ranges)


def by_kept(directory: Path, ranges: Sequence[KeyRange]) -> Pairs:
    family = read_families(directory)["default"]
    with opened_lazily(family, lambda entry: str(directory / entry.name), b",") as table:
        return [row for within in ranges for row in table.pairs(within)]


WAYS: tuple[Callable[[Path, Sequence[KeyRange]], Pairs], ...] = (scanned, by_plain, by_family, by_scanner, by_kept)
RANGES = (
    KeyRange(),
    KeyRange(b"key-00042", b"key-00042\0"),
    KeyRange(b"key-0010", b"key-0011"),
    KeyRange(b"key-00003", b"key-00003\0"),
    KeyRange(b"key-00145", b"key-00145\0"),
    KeyRange(b"key-00148", None),
    KeyRange(None, b"key-00004"),
    KeyRange(b"key-00303", b"key-00305"),
    KeyRange(b"z", None),
)
SINGLE = tuple(KeyRange(b"key-%05d" % i, b"key-%05d\0" % i) for i in range(310))


@pytest.mark.parametrize("name", READABLE)
def test_every_way_reads_the_rows_that_were_written(databases: Path, name: str) -> None:
    directory, rows = databases / name, written()
    assert family_names(directory) == ["default", "other"]
    wanted = [
        (key, rows[key])
        for within in RANGES
        for key in sorted(rows)
        if (within.first is None or within.first <= key) and (within.stop is None or key < within.stop)
    ]
    for way in WAYS:
        assert way(directory, RANGES) == wanted, way.__name__
    for way in (by_plain, by_kept, by_kept):
        assert way(directory, SINGLE) == sorted(rows.items()), way.__name__
    with opened_family(directory, "other") as table:
        assert list(table.pairs(KeyRange())) == [(b"o1", b"other 1 " + b"a" * 53), (b"o2", b"x")]
        assert table.estimated_rows == 2


def test_the_codec_that_rocksdict_lacks_is_found(databases: Path) -> None:
    found = {path.name: codec_without_rocksdict(path) for path in databases.iterdir()}
    assert {name for name, codec in found.items() if codec == "Zlib"} == {*ZLIB, "zlib-v5", "zlib-wal"}
    assert {name for name, codec in found.items() if codec is None} == {*READABLE} - {*ZLIB, "zlib-v5"}


def test_what_only_rocksdb_reads_is_refused_by_the_name_of_the_codec(databases: Path) -> None:
    with (
        pytest.raises(UnsupportedError, match=r"ROCKSDB_UNSUPPORTED.*zlib-wal.*Zlib.*another compression"),
        opened_family(databases / "zlib-wal", "default"),
    ):
        raise AssertionError
    with (
        pytest.raises(UnsupportedError, match=r"ROCKSDB_UNSUPPORTED.*operands to merge"),
        opened_family(databases / "zlib-v5", "default") as table,
    ):
        list(table.pairs(KeyRange()))


@pytest.mark.parametrize("name", ["zlib-v5", "zlib-v6", "bzip2-v5", "zstd-v5"])
def test_a_changed_byte_is_never_another_row(databases: Path, name: str, tmp_path: Path) -> None:
    rows = sorted(written().items())
    source = max((databases / name).glob("*.sst"), key=lambda path: path.stat().st_size)
    for path in (databases / name).iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    whole = source.read_bytes()
    refused = 0
    for at in range(0, len(whole), 97):
        (tmp_path / source.name).write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        for way, ranges in ((by_plain, [KeyRange()]), (by_kept, SINGLE)):
            try:
                assert way(tmp_path, ranges) == rows
            except CorruptError as error:
                assert error.code == "ROCKSDB_FILE"
                refused += 1
            except Exception as error:
                assert type(error).__name__ in ("Malformed", "Unreadable")
                refused += 1
    assert refused > len(whole) // 97

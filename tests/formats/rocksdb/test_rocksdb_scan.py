"""Rows of RocksDB through the public door: the reader that is used, abandoned reads, what is left to RocksDB itself."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    ChecksumType,
    DBCompressionType,
    Options,
    Rdict,
    SliceTransform,
    SstFileWriter,
)
from support.open_files import open_below
from support.rocksdb.rocksdb_scans import Rows, pairs, scanned
from support.rocksdb.rocksdb_tables import (
    MERGE,
    PUT,
    ZSTD,
    Entry,
    Form,
    expected,
    stored,
    table,
    u32,
    varint,
    write_directory,
)

from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.places.reading_threads import in_order
from statestore.formats.rocksdb import opened_families, range_read, scan, table_scan
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rocksdb_errors import Unreadable
from statestore.formats.rocksdb.scan import scan_family, scan_rocksdb
from statestore.formats.rocksdb.table_scan import plan_scan, scan_ranges


def rows_of(directory: Path) -> Rows:
    return [row for batch in scan_rocksdb(directory, pairs) for row in batch]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return stored(tmp_path / "db", Form())


@pytest.mark.parametrize("value", ["Scanner", "numba", "0", " "])
def test_an_unknown_reader_is_refused(value: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scan.READER, value)
    with pytest.raises(InvalidInputError, match=r"STATESTORE_ROCKSDB_READER.*expected scanner or rocksdict") as caught:
        rows_of(directory)
    assert caught.value.code == "INVALID_SETTING"


@pytest.mark.parametrize("reader", ["scanner", "rocksdict"])
def test_the_reader_that_is_asked_for(reader: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scan.READER, reader)
    if reader == "scanner":
        monkeypatch.setattr(scan, "scan_family", None)
    else:
        monkeypatch.setattr(table_scan, "plan_scan", None)
    assert rows_of(directory) == expected()


class NoNumba:
    """An import hook for a process where numba is not installed, or refuses to load beside a newer numpy."""

    def find_spec(self, name: str, *_: object) -> None:
        if name.split(".")[0] in ("numba", "llvmlite"):
            raise ImportError(f"{name} does not load")


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith(("numba", "llvmlite", "statestore.formats.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoNumba(), *sys.meta_path])


@pytest.mark.usefixtures("without_numba")
def test_without_numba_rocksdb_reads(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(scan.READER, raising=False)
    monkeypatch.setattr(scan, "wants_scanner", lambda *_: True)
    assert rows_of(directory) == expected()


@pytest.mark.usefixtures("without_numba")
def test_without_numba_the_scanner_can_not_be_asked_for(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scan.READER, "scanner")
    with pytest.raises(InvalidInputError, match="needs numba"):
        rows_of(directory)


# Reads that are given up ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("reader", ["scanner", "rocksdict"])
def test_a_read_that_is_given_up(threads: int, reader: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that is given up leaves no thread and no open file, and the next one reads all rows."""
    monkeypatch.setenv(scan.READER, reader)
    monkeypatch.setattr(scan, "reading_threads", lambda: threads)
    monkeypatch.setattr(table_scan, "RANGE_BYTES", 300)
    before = set(threading.enumerate())
    batches = scan_rocksdb(directory, pairs, batch_rows=3)
    assert next(batches) == expected()[:3]
    batches.close()  # type: ignore[attr-defined]
    assert set(threading.enumerate()) <= before and not open_below(directory)
    for batch in scan_rocksdb(directory, pairs, batch_rows=3):
        assert batch
        break
    del batch
    assert set(threading.enumerate()) <= before and not open_below(directory)
    assert rows_of(directory) == expected()
    assert set(threading.enumerate()) <= before and not open_below(directory)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_of_who_takes_the_batches(threads: int, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scan.READER, "scanner")
    monkeypatch.setattr(scan, "reading_threads", lambda: threads)
    monkeypatch.setattr(table_scan, "RANGE_BYTES", 300)
    seen: list[int] = []

    def each(batch: pa.RecordBatch) -> int:
        if batch.column("key")[0].as_py() > b"key-0070":
            raise ZeroDivisionError
        return int(batch.num_rows)

    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError):
        for count in scan_rocksdb(directory, each, batch_rows=10):
            seen.append(count)
    assert 50 < sum(seen) < 75
    assert set(threading.enumerate()) <= before and not open_below(directory)


def test_pieces_are_few_steps_ahead() -> None:
    """Memory holds the results of twice the threads, however slowly they are taken; order is that of the pieces."""
    begun: list[int] = []

    def work(piece: int) -> int:
        begun.append(piece)
        return piece

    results = in_order(work, iter(range(1000)), 2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert len(begun) <= 5 + 2 * 2 + 1
    results.close()  # type: ignore[attr-defined]
    assert len(begun) < 20


def test_memory_follows_what_is_plain(tmp_path: Path) -> None:
    """Values that compress a hundredfold would make a range of raw blocks a hundred times as large."""
    entries: list[Entry] = [(b"%04d" % number, number + 1, PUT, bytes(100_000)) for number in range(600)]
    directory = write_directory(tmp_path / "db", [(0, entries, table(entries, Form(codec=ZSTD, block_entries=1)))])
    plan = plan_scan(directory, "default", KeyRange())
    sizes = [sum(rows) for _, rows in scan_ranges(plan, lambda batch: batch.nbytes, delimiter=None, batch_rows=1000)]
    assert sum(sizes) > 60_000_000 and max(sizes) < 2 * table_scan.RANGE_PLAIN


# Databases that the scanner leaves to RocksDB: it refuses before any row, and the door returns RocksDB's rows


ROWS = {b"key-%04d" % number: b"value %d" % number * 5 for number in range(400)}


@pytest.fixture(autouse=True)
def scanner_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scan.READER, "scanner")


def options() -> Options:
    own = Options(raw_mode=True)
    own.create_if_missing(True)
    own.set_disable_auto_compactions(True)
    return own


def written(path: Path, own: Options, more: Callable[[Rdict], None] = lambda _: None, *, flush: bool = True) -> None:
    database = Rdict(str(path), own)
    for key, value in ROWS.items():
        database[key] = value
    if flush:
        database.flush()
    more(database)
    if flush:
        database.flush()
    database.close()


def range_deletion(path: Path) -> Rows:
    written(path, options(), lambda database: database.delete_range(b"key-0100", b"key-0200"))
    return [row for row in ROWS.items() if not b"key-0100" <= row[0] < b"key-0200"]


def blob_files(path: Path) -> Rows:
    own = options()
    own.set_enable_blob_files(True)
    own.set_min_blob_size(10)
    written(path, own)
    return list(ROWS.items())


def log_with_records(path: Path) -> Rows:
    """A database copied while it is open, because closing it writes a table file."""
    database = Rdict(str(path.with_name("open")), options())
    for number, (key, value) in enumerate(ROWS.items()):
        database[key] = value
        if number == 300:
            database.flush()
    database.flush_wal(True)
    shutil.copytree(path.with_name("open"), path)
    database.close()
    return list(ROWS.items())


def ingested_file(path: Path) -> Rows:
    writer = SstFileWriter(options())
    writer.open(str(path.with_name("ingested.sst")))
    writer[b"key-0007"] = b"ingested"
    writer[b"new"] = b"ingested"
    writer.finish()
    written(path, options(), lambda database: database.ingest_external_file([str(path.with_name("ingested.sst"))]))
    return sorted((ROWS | {b"key-0007": b"ingested", b"new": b"ingested"}).items())


def lz4_of_format_1(path: Path) -> Rows:
    own, blocks = options(), BlockBasedOptions()
    blocks.set_format_version(0)
    blocks.set_checksum_type(ChecksumType.crc32c())
    own.set_block_based_table_factory(blocks)
    own.set_compression_type(DBCompressionType.lz4())
    written(path, own)
    return list(ROWS.items())


def compression_dictionary(path: Path) -> Rows:
    own = options()
    own.set_compression_type(DBCompressionType.zstd())
    own.set_compression_options(-14, 3, 0, 4096)
    written(path, own)
    return list(ROWS.items())


def wide_column_at_the_end(path: Path) -> Rows:
    """A database in which the scanner returns most rows before it meets an unsupported one."""
    own, blocks = options(), BlockBasedOptions()
    blocks.set_block_size(256)
    own.set_block_based_table_factory(blocks)
    written(path, own, lambda database: database.put_entity(b"key-0390", names=[b"", b"b"], values=[b"1", b"2"]))
    return sorted((ROWS | {b"key-0390": b"1"}).items())


CASES = [
    range_deletion, blob_files, log_with_records, ingested_file, compression_dictionary, lz4_of_format_1,
    wide_column_at_the_end,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_left_to_rocksdb(case: Callable[[Path], Rows], tmp_path: Path) -> None:
    rows = case(tmp_path / "db")
    with pytest.raises(Unreadable):
        scanned(tmp_path / "db")
    found = [row for batch in scan.scan_rocksdb(tmp_path / "db", pairs) for row in batch]
    assert found == rows
    ranges = [(b"key-0050", b"key-0150"), (b"key-0380", b"key-0395"), (b"key-0395", None)]
    within = [row for batch in scan.scan_rocksdb(tmp_path / "db", pairs, key_ranges=ranges) for row in batch]
    assert within == [
        row for first, stop in ranges for row in rows if first <= row[0] and (stop is None or row[0] < stop)
    ]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("stop", [None, b"key-0399"])
def test_left_to_rocksdb_in_the_middle(
    threads: int, stop: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ranges before the first one with something unknown come from the scanner, the others from RocksDB, each once."""
    rows = wide_column_at_the_end(tmp_path / "db")
    left: list[KeyRange] = []

    def spied(
        directory: Path, family: str, ranges: Sequence[KeyRange], batch_rows: int, *, delimiter: bytes | None
    ) -> Iterator[pa.RecordBatch]:
        left.extend(ranges)
        return scan_family(directory, family, ranges, batch_rows, delimiter=delimiter)

    monkeypatch.setattr(table_scan, "RANGE_BYTES", 500)
    monkeypatch.setattr(scan, "reading_threads", lambda: threads)
    monkeypatch.setattr(scan, "scan_family", spied)
    ranges = [(b"key-0010", stop), (b"key-0000", b"key-0002")]
    found = [row for batch in scan.scan_rocksdb(tmp_path / "db", pairs, key_ranges=ranges) for row in batch]
    assert found == [row for row in rows if row[0] >= b"key-0010" and (stop is None or row[0] < stop)] + rows[:2]
    assert left[0].first is not None and b"key-0300" < left[0].first <= b"key-0390"
    assert left[0].stop == stop and left[1:] == [KeyRange(b"key-0000", b"key-0002")]


@pytest.mark.parametrize("most", [1, 7, 8, 9, 25, None])
def test_a_batch_has_rows_of_several_ranges(most: int | None, tmp_path: Path) -> None:
    """The rest after so many rows are the ranges behind the last one, in whatever order they are."""
    written(tmp_path / "db", options())
    names = sorted(ROWS)
    ranges = [KeyRange(names[9], names[20]), *(KeyRange(name, name + b"\0") for name in (*names[30:40], names[2]))]
    wanted = [(name, ROWS[name]) for name in (*names[9:20], *names[30:40], names[2])]
    read = scan_family(tmp_path / "db", "default", ranges, 8, most)
    batches = []
    try:
        while True:
            batches.append(pairs(next(read)))
    except StopIteration as end:
        left: list[KeyRange] = end.value
    found = [row for batch in batches for row in batch]
    assert found == wanted[: len(found)] and all(len(batch) == 8 for batch in batches[:-1])
    assert len(found) == len(wanted) if most is None else most <= len(found) < most + 8 or len(found) == len(wanted)
    rest = [row for batch in scan_family(tmp_path / "db", "default", left, 8) for row in pairs(batch)]
    assert found + rest == wanted


def test_seeks_between_prefixes(tmp_path: Path) -> None:
    """RocksDB looks into a hash index by the prefix of what it seeks, unless it is told that keys are in one order."""
    own, blocks = options(), BlockBasedOptions()
    blocks.set_index_type(BlockBasedIndexType.hash_search())
    own.set_block_based_table_factory(blocks)
    own.set_prefix_extractor(SliceTransform.create_max_len_prefix(8))
    written(tmp_path / "db", own)
    with opened_families.opened_family(tmp_path / "db", "default") as family:
        assert [key for key, _ in family.pairs(KeyRange(b"key-030/", None))] == sorted(ROWS)[300:]


def test_no_fallback_where_none_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "db", options())
    monkeypatch.setattr(scan, "scan_family", None)
    assert [row for batch in scan.scan_rocksdb(tmp_path / "db", pairs) for row in batch] == list(ROWS.items())


PROPERTIES = {
    b"rocksdb.external_sst_file.version": u32(2),
    b"rocksdb.num.range-deletions": varint(1),
    b"rocksdb.comparator": b"rocksdb.ReverseBytewiseComparator",
    b"rocksdb.block.based.table.index.type": u32(3),
}
META = [b"rocksdb.range_del", b"rocksdb.range_del2", b"rocksdb.compression_dict"]
ENTRIES: list[Entry] = [(b"a", 1, PUT, b"1"), (b"b", 2, PUT, b"2")]


@pytest.mark.parametrize(
    "form",
    [
        *(Form(properties={name: value}) for name, value in PROPERTIES.items()),
        *(Form(meta={name: b""}) for name in META),
    ],
    ids=[name.decode() for name in (*PROPERTIES, *META)],
)
def test_table_files_for_rocksdb_alone(form: Form, tmp_path: Path) -> None:
    assert scanned(write_directory(tmp_path / "plain", [(0, ENTRIES, table(ENTRIES))])) == [(b"a", b"1"), (b"b", b"2")]
    directory = write_directory(tmp_path / "db", [(0, ENTRIES, table(ENTRIES, form))])
    with pytest.raises(Unreadable):
        scanned(directory)


FOOTERS = {
    "plain table": (-8, (0x8242229663BF9564).to_bytes(8, "little")),
    "cuckoo table": (-8, (0x926789D0C5F17873).to_bytes(8, "little")),
    "encrypted": (-8, b"8 bytes."),
    "format 7": (-12, u32(7)),
    "checksums of type 5": (-53, b"\5"),
}


@pytest.mark.parametrize("name", FOOTERS)
def test_footers_for_rocksdb_alone(name: str, tmp_path: Path) -> None:
    at, new = FOOTERS[name]
    data = table(ENTRIES).data
    at += len(data)
    directory = write_directory(tmp_path / "db", [(0, ENTRIES, table(ENTRIES))])
    (directory / "000010.sst").write_bytes(data[:at] + new + data[at + len(new) :])
    with pytest.raises(Unreadable):
        scanned(directory)


@pytest.mark.parametrize("kind", [0x03, 0x0F, 0x11, 0x14, 0x16, 0x18, 0x7F, 0xFF])
def test_types_of_entries_for_rocksdb_alone(kind: int, tmp_path: Path) -> None:
    entries: list[Entry] = [(b"a", 1, PUT, b"1"), (b"b", 2, kind, b"2")]
    directory = write_directory(tmp_path / "db", [(0, entries, table(entries))])
    with pytest.raises(Unreadable, match=f"type {kind}"):
        scanned(directory)


def test_operands_without_an_operator(tmp_path: Path) -> None:
    entries: list[Entry] = [(b"a", 1, MERGE, b"1")]
    directory = write_directory(tmp_path / "db", [(0, entries, table(entries))])
    with pytest.raises(Unreadable, match="operands to merge"):
        scanned(directory)
    assert scanned(directory, delimiter=b",") == [(b"a", b"1")]


@pytest.mark.parametrize(
    ("limit", "message"), [("_MAX_PLAIN", "in a range"), ("_MAX_BATCH_BYTES", "a row of more than")]
)
def test_more_than_memory_should_hold(
    limit: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries: list[Entry] = [(b"a", 1, PUT, b"1" * 500)]
    directory = write_directory(tmp_path / "db", [(0, entries, table(entries))])
    monkeypatch.setattr(range_read, limit, 400)
    with pytest.raises(Unreadable, match=message):
        scanned(directory)


def test_a_missing_table_file(tmp_path: Path) -> None:
    written(tmp_path / "db", options())
    next((tmp_path / "db").glob("*.sst")).unlink()
    with pytest.raises(CorruptError, match=r"cannot be opened"):
        list(scan.scan_rocksdb(tmp_path / "db", pairs))


def test_no_database(tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match="cannot be opened as RocksDB"):
        list(scan.scan_rocksdb(tmp_path, pairs))


@pytest.mark.parametrize(("bytes_each", "expected"), [(10, [9, 1]), (40, [3, 3, 3, 1]), (100, [1] * 10)])
def test_batches_of_wide_rows_end_early(
    bytes_each: int, expected: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """65,536 rows of a megabyte are more than a column holds, and than memory."""
    table = Rdict(str(tmp_path / "wide"), Options(raw_mode=True))
    for number in range(10):
        table[b"%d" % number] = bytes(bytes_each)
    table.close()
    monkeypatch.setattr(opened_families, "BATCH_BYTES", 90)
    monkeypatch.setenv(scan.READER, "rocksdict")
    assert list(scan.scan_rocksdb(tmp_path / "wide", lambda batch: batch.num_rows)) == expected

"""Merge operands and single deletes, in tables written by hand: the scanner against RocksDB itself."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from rocksdict import Options, Rdict
from support.parameters import mostly_slow
from support.rocksdb.rocksdb_scans import Rows, pairs, scanned
from support.rocksdb.rocksdb_tables import (
    CRC32C,
    DELETE,
    LZ4,
    MERGE,
    NO_CHECKSUM,
    PUT,
    SINGLE_DELETE,
    SNAPPY,
    XXHASH,
    XXHASH64,
    ZSTD,
    Entry,
    Form,
    expected,
    sorted_entries,
    stored,
    table,
    write_directory,
)

from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.scan import scan_family

FORMS = [
    Form(),
    Form(codec=LZ4, checksum=CRC32C, block_entries=3),
    Form(codec=SNAPPY, version=6, checksum=XXHASH64, two_level=True, index_restarts=4),
    Form(codec=ZSTD, version=2, checksum=XXHASH, index_restarts=16),
    Form(checksum=NO_CHECKSUM, version=3, restarts=1),
    Form(checksum=NO_CHECKSUM, version=6),
]


def by_rocksdb(directory: Path, within: KeyRange = KeyRange()) -> Rows:  # noqa: B008 (frozen)
    return [row for batch in scan_family(directory, "default", [within], 1000) for row in pairs(batch)]


@pytest.mark.parametrize("form", FORMS)
def test_rocksdb_reads_what_the_tests_write(form: Form, tmp_path: Path) -> None:
    """Else the tables of these tests would prove nothing."""
    directory = stored(tmp_path / "db", form)
    assert by_rocksdb(directory) == expected() == scanned(directory)


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An OPTIONS file as RocksDB writes it."""
    path = tmp_path_factory.mktemp("options") / "db"
    own = Options(raw_mode=True)
    own.create_if_missing(True)
    Rdict(str(path), own).close()
    return max(path.glob("OPTIONS-*")).read_text()


def with_operator(options: str, delimiter: bytes) -> str:
    operator = f"{{id=StringAppendOperator;delimiter={delimiter.decode()};}}"
    return options.replace("merge_operator=nullptr", f"merge_operator={operator}")


def histories(chance: random.Random, keys: int, changes: int) -> list[list[Entry]]:
    """Four runs of random changes; a single delete may follow one put only, so a key has either kind of delete."""
    runs: list[list[Entry]] = [[], [], [], []]
    alive: dict[bytes, bool] = {}
    for sequence in range(1, changes):
        number = chance.randrange(keys)
        key = b"key-%03d" % number + bytes(number % 3)
        run = runs[chance.randrange(4)]
        if number % 5 == 0:  # put and single delete in turn
            kind = SINGLE_DELETE if alive.get(key) else PUT
            alive[key] = kind == PUT
        else:
            kind = chance.choice((PUT, DELETE, MERGE, MERGE, MERGE))
        value = b"" if kind in (DELETE, SINGLE_DELETE) else b"v%d" % sequence * chance.randrange(3)
        run.append((key, sequence, kind, value))
    return [sorted_entries(run) for run in runs]


@pytest.mark.parametrize("delimiter", [b",", b""])
@pytest.mark.parametrize("form", [Form(), Form(codec=LZ4, block_entries=2), Form(version=2, block_entries=40)])
def test_operands_and_single_deletes(form: Form, delimiter: bytes, options: str, tmp_path: Path) -> None:
    runs = histories(random.Random(form.block_entries), 40, 900)
    # Two runs of level 0, one of each level below: whichever is newer, the sequence decides.
    files = [(level, run, table(run, form)) for level, run in zip((0, 0, 1, 2), runs, strict=True)]
    directory = write_directory(tmp_path / "db", files)
    (directory / "OPTIONS-000007").write_text(with_operator(options, delimiter))
    rows = by_rocksdb(directory)
    assert len(rows) > 20
    for range_bytes in (1, 500, 1 << 20):
        assert scanned(directory, delimiter=delimiter, range_bytes=range_bytes, threads=2) == rows
    for bounds in ((b"key-003", b"key-017"), (b"key-004\0", b"key-008"), (b"key-002\0\0", b"key-002\0\0\0")):
        within = KeyRange(*bounds)
        assert scanned(directory, within=within, delimiter=delimiter, range_bytes=1) == by_rocksdb(directory, within)


def test_operands_of_a_key_over_many_blocks(options: str, tmp_path: Path) -> None:
    """Separators of adjacent blocks are then one user key; a range begins or ends there, and no operand is lost."""
    run = [(b"k", sequence, MERGE, b"%d" % sequence) for sequence in range(1, 60)]
    run = sorted_entries([(b"a", 70, PUT, b"1"), *run, (b"k\0", 80, PUT, b"2"), (b"z", 90, PUT, b"3")])
    for version in (2, 5):
        file = table(run, Form(version=version, block_entries=4))
        directory = write_directory(tmp_path / str(version), [(0, run, file)])
        (directory / "OPTIONS-000007").write_text(with_operator(options, b","))
        rows = by_rocksdb(directory)
        assert rows[1] == (b"k", b",".join(b"%d" % sequence for sequence in range(1, 60)))
        assert scanned(directory, delimiter=b",", range_bytes=1) == rows
        for bounds, some in (((b"k", b"k\0"), slice(1, 2)), ((b"b", b"k"), slice(0)), ((b"k\0", b"z"), slice(2, 3))):
            assert scanned(directory, within=KeyRange(*bounds), delimiter=b",", range_bytes=1) == rows[some]


@pytest.mark.parametrize(
    ("index_restarts", "version"), mostly_slow(product((1, 3), (2, 3, 4, 5, 6)), [(1, 2), (3, 4), (1, 6)])
)
def test_long_keys_in_indexes(version: int, index_restarts: int, options: str, tmp_path: Path) -> None:
    """Separators that share a long beginning: together they are far larger than the index."""
    run = [(b"k" * 3000 + b"%05d" % number, number + 1, PUT, b"%d" % number) for number in range(300)]
    form = replace(Form(version=version, block_entries=1), index_restarts=index_restarts * 50)
    directory = write_directory(tmp_path / "db", [(0, run, table(run, form))])
    assert scanned(directory, range_bytes=5000) == by_rocksdb(directory) == [(key, value) for key, _, _, value in run]

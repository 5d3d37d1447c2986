"""The scanner of table files against databases that RocksDB wrote, whose contents a dictionary remembers, and against
RocksDB itself.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    ChecksumType,
    DataBlockIndexType,
    DBCompactionStyle,
    DBCompressionType,
    Options,
    Rdict,
)
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
from statestore.formats.rocksdb.manifest import read_families
from statestore.formats.rocksdb.scan import scan_family
from statestore.formats.rocksdb.table_scan import plan_scan

FAMILY = "other"
Model = dict[bytes, bytes]


@dataclass(frozen=True)
class Layout:
    """The form in which a database is written; the defaults are those of a Spark checkpoint."""

    compression: str = "lz4"
    format_version: int = 5
    checksum: str = "xxh3"
    index: str = "binary_search"
    index_restarts: int = 1
    restarts: int = 16
    block_size: int = 1024
    buckets: bool = False
    universal: bool = False
    compact: bool = False
    long_keys: bool = False


def options_of(layout: Layout) -> Options:
    table = BlockBasedOptions()
    table.set_format_version(layout.format_version)
    table.set_checksum_type(getattr(ChecksumType, layout.checksum)())
    table.set_index_type(getattr(BlockBasedIndexType, layout.index)())
    table.set_index_block_restart_interval(layout.index_restarts)
    table.set_block_restart_interval(layout.restarts)
    table.set_block_size(layout.block_size)
    table.set_metadata_block_size(256)
    if layout.buckets:
        table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
        table.set_data_block_hash_ratio(0.75)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(getattr(DBCompressionType, layout.compression)())
    options.set_target_file_size_base(1 << 15)
    options.set_max_bytes_for_level_base(1 << 17)
    options.set_disable_auto_compactions(not layout.compact)
    if layout.index == "hash_search":
        from rocksdict import SliceTransform

        options.set_prefix_extractor(SliceTransform.create_max_len_prefix(4))
    if layout.universal:
        options.set_compaction_style(DBCompactionStyle.universal())
    return options


def keys_of(layout: Layout, chance: random.Random) -> list[bytes]:
    """Keys that are hard to order: empty, prefixes of one another, zero bytes at the end, of very different lengths."""
    keys = [b"", b"\0", b"\0\0", b"\xff" * 9, b"\xff" * 8]
    for stem in (b"k", b"prefix-8", b"prefix-89", b"prefix-of-sixteen"):
        keys += [stem + bytes(zeros) for zeros in range(10)]
    keys += [b"state-store-%06d" % number for number in range(0, 2400, 3)]
    keys += [chance.randbytes(chance.choice((1, 3, 7, 8, 9, 15, 16, 17, 40))) for _ in range(300)]
    if layout.long_keys:
        keys += [b"long" + chance.randbytes(2) + bytes(chance.randrange(4990, 5000)) for _ in range(60)]
    return keys


def filled(path: Path, layout: Layout, runs: int = 3, changes: int = 900) -> dict[str, Model]:
    """A database of two column families and its expected rows, written in overlapping runs."""
    chance = random.Random(repr(layout))
    keys = keys_of(layout, chance)
    database = Rdict(str(path), options_of(layout))
    families = {"default": database, FAMILY: database.create_column_family(FAMILY, options_of(layout))}
    models: dict[str, Model] = {name: {} for name in families}
    for run in range(runs):
        for name, family in families.items():
            model = models[name]
            for number in range(changes if name == "default" else changes // 5):
                key = chance.choice(keys)
                if chance.random() < 0.25:
                    family.delete(key)
                    model.pop(key, None)
                else:
                    # Blocks of the first keys pay to compress, the others mostly not: files hold both kinds.
                    size = chance.choice((0, 1, 8, 30, 100))
                    value = b"%03d" % number * (size // 3) if key.startswith(b"state") else chance.randbytes(size)
                    family[key] = value
                    model[key] = value
            family.flush()
        if layout.compact and run == 1:
            for family in families.values():
                family.compact_range(None, None)
    for family in families.values():
        family.flush()
    families[FAMILY].close()
    database.close()
    return models


def inside(rows: Rows, within: KeyRange) -> Rows:
    """The rows whose keys are in a range."""
    first, stop = within.first, within.stop
    return [row for row in rows if (first is None or row[0] >= first) and (stop is None or row[0] < stop)]


def check(path: Path, models: dict[str, Model], chance: random.Random) -> None:
    """Read whole families in one range and in many, on one thread and on three, and stretches between arbitrary
    keys."""
    for name, model in models.items():
        expected = sorted(model.items())
        assert scanned(path, name) == expected
        assert scanned(path, name, range_bytes=1500, threads=3) == expected
        assert scanned(path, name, range_bytes=20_000, batch_rows=7) == expected
        bounds = [key for key, _ in expected] + [b"", b"\0", b"prefix-8\0\0", b"state-store-00", b"\xff" * 10]
        for number in range(6):
            first, stop = (chance.choice([*chance.choices(bounds, k=4), None]) for _ in range(2))
            rows = scanned(
                path, name, KeyRange(first, stop), range_bytes=(2000, 30_000)[number % 2], threads=1 + number % 2
            )
            assert rows == [
                row for row in expected if (first is None or row[0] >= first) and (stop is None or row[0] < stop)
            ]


BASE = Layout()
LAYOUTS = [
    BASE,
    *(replace(BASE, compression=name) for name in ("none", "snappy", "lz4hc", "zstd")),
    *(replace(BASE, format_version=version) for version in (2, 3, 4, 6)),
    *(replace(BASE, format_version=0, compression=name, checksum="crc32c") for name in ("none", "snappy")),
    replace(BASE, format_version=1, compression="snappy", checksum="xxhash"),
    *(replace(BASE, checksum=name) for name in ("crc32c", "xxhash", "xxhash64", "no_checksum")),
    *(replace(BASE, format_version=6, checksum=name) for name in ("crc32c", "xxhash", "xxhash64", "no_checksum")),
    *(
        replace(BASE, index=index, index_restarts=restarts, format_version=version)
        for index in ("binary_search", "hash_search", "two_level_index_search")
        for restarts, version in ((16, 2), (16, 5), (1, 6))
    ),
    replace(BASE, buckets=True),
    replace(BASE, buckets=True, compression="none", restarts=4),
    replace(BASE, restarts=1),
    replace(BASE, restarts=100),
    replace(BASE, block_size=256),
    replace(BASE, block_size=1 << 16),
    replace(BASE, long_keys=True, index_restarts=16),
    replace(BASE, long_keys=True, compression="snappy", block_size=256),
    replace(BASE, compact=True),
    replace(BASE, compact=True, universal=True, compression="zstd"),
]


def facts_of(file: bytes) -> tuple[int, int]:
    """Format version and kind of checksum from the footer."""
    old = file.endswith((0xDB4775248B80FB57).to_bytes(8, "little"))
    return (0, 1) if old else (int.from_bytes(file[-12:-8], "little"), file[-53])


def differences(layout: Layout) -> str:
    return (
        " ".join(f"{name}={value}" for name, value in vars(layout).items() if value != getattr(BASE, name)) or "spark"
    )


@pytest.mark.parametrize("layout", mostly_slow(LAYOUTS, 3), ids=differences)
def test_rows_are_those_of_a_dictionary(layout: Layout, tmp_path: Path) -> None:
    models = filled(tmp_path / "db", layout)
    levels = {entry.level for entry in read_families(tmp_path / "db")["default"].files}
    assert (levels != {0}) == layout.compact
    checksum = ["no_checksum", "crc32c", "xxhash", "xxhash64", "xxh3"].index(layout.checksum)
    for file in (tmp_path / "db").glob("*.sst"):
        assert facts_of(file.read_bytes()) == (layout.format_version, checksum)
    check(tmp_path / "db", models, random.Random(1))


def test_ranges_are_many_where_they_are_small(tmp_path: Path) -> None:
    filled(tmp_path / "db", BASE)
    assert len(plan_scan(tmp_path / "db", "default", KeyRange()).ranges) == 1
    ranges = plan_scan(tmp_path / "db", "default", KeyRange(b"a", b"z"), range_bytes=1).ranges
    assert len(ranges) > 20 and (ranges[0].first, ranges[-1].stop) == (b"a", b"z")
    assert all(before.stop == after.first for before, after in itertools.pairwise(ranges))


def test_versions_that_a_snapshot_keeps_are_one_row(tmp_path: Path) -> None:
    """A key of which one file holds many versions, over several blocks that share a separator."""
    database = Rdict(str(tmp_path / "db"), options_of(replace(BASE, block_size=256)))
    snapshots = []
    model = {b"key%03d" % number: bytes(30) for number in range(100)}
    for key, value in model.items():
        database[key] = value
    for version in range(60):
        for key in (b"key041", b"key042", b"key042\0"):
            database[key] = model[key] = b"%d" % version * 20
        snapshots.append(database.snapshot())
    database.delete(b"key042")
    del model[b"key042"]
    database.flush()
    del snapshots
    database.close()
    expected = sorted(model.items())
    for range_bytes in (1, 300, None):
        assert scanned(tmp_path / "db", range_bytes=range_bytes) == expected
    for bounds in ((b"key041", b"key042"), (b"key042", b"key042\0"), (b"key042", b"key043"), (b"key041\0", None)):
        rows = scanned(tmp_path / "db", within=KeyRange(*bounds), range_bytes=1)
        assert rows == inside(expected, KeyRange(*bounds))


KEYS = st.sampled_from([b"", b"a", b"a\0", b"a" * 7, b"a" * 8, b"a" * 8 + b"\0", b"a" * 9, b"b" * 300]) | st.binary(
    max_size=10
)
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), min_size=1, max_size=30)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=st.lists(CHANGES, min_size=1, max_size=3), first=st.none() | KEYS, stop=st.none() | KEYS)
def test_any_changes(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[list[tuple[bytes, bytes | None]]],
    first: bytes | None,
    stop: bytes | None,
) -> None:
    path = tmp_path_factory.mktemp("db") / "db"
    database, model = Rdict(str(path), options_of(replace(BASE, block_size=64))), Model()
    for run in runs:
        for key, value in run:
            if value is None:
                database.delete(key)
                model.pop(key, None)
            else:
                database[key] = model[key] = value
        database.flush()
    database.close()
    expected = sorted(model.items())
    assert scanned(path, range_bytes=1) == expected
    assert scanned(path, within=KeyRange(first, stop)) == inside(expected, KeyRange(first, stop))


# Merge operands and single deletes, in tables written by hand: the scanner against RocksDB itself


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

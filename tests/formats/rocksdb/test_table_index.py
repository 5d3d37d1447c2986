"""Copies of table files that have only what a read needs give the rows that whole files give; truth is RocksDB."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from rocksdict import BlockBasedOptions, DBCompressionType, Options, Rdict
from support.parameters import mostly_slow

from statestore.formats.errors import CorruptError
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.scan import READER, scan_rocksdb
from statestore.formats.rocksdb.table_index import read_index, spans_of, split_points
from statestore.formats.spark.checkpoint.checkpoint_files import spark_folder
from statestore.formats.spark.providers.rocksdb_provider import copy_tables, opened_tables
from statestore.formats.spark.providers.stored_rows import KeyBounds

ROWS, FILES = 30_000, 2
FEW = 0.15
"""A look-up fetches less of the files than this share."""


def key(number: int) -> bytes:
    return b"key-%08d" % number


@pytest.fixture(scope="module", params=[5, 6])
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two overlapping files of 4 MiB; the newer one has deleted a third of the older one's keys, all in one stretch."""
    folder = tmp_path_factory.mktemp("rocksdb")
    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.none())
    options.set_disable_auto_compactions(True)
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_format_version(request.param)
    options.set_block_based_table_factory(table)
    database = Rdict(str(folder / "db"), options)
    noise = random.Random(1)
    for step in range(FILES):
        for number in range(step, ROWS, 2):
            database[key(number)] = noise.randbytes(250)
        if step:
            for number in range(ROWS // 3, 2 * ROWS // 3):
                del database[key(number)]
        database.flush()
    database.close()
    (folder / "store" / "SSTs").mkdir(parents=True)
    for path in (folder / "db").glob("*.sst"):
        path.rename(folder / "store" / "SSTs" / f"shared-{path.name}")
    for path in (folder / "db").glob("LOG*"):
        path.unlink()
    return folder


def tables(database: Path) -> dict[str, tuple[str, int]]:
    files = (database / "store" / "SSTs").iterdir()
    return {path.name.removeprefix("shared-"): (path.name, path.stat().st_size) for path in files}


def placed(database: Path, target: Path, ranges: Sequence[KeyBounds], *, local: bool = False) -> Path:
    """The database with its table files copied for ``ranges``, or linked."""
    shutil.copytree(database / "db", target)
    filesystem = pafs.LocalFileSystem() if local else pafs.SubTreeFileSystem("/", pafs.LocalFileSystem())
    copy_tables(spark_folder(filesystem, str(database / "store")), tables(database), target, ranges)
    return target


def rows(directory: Path, ranges: Sequence[KeyBounds]) -> list[tuple[bytes, bytes]]:
    batches: Iterator[pa.RecordBatch] = scan_rocksdb(directory, lambda batch: batch, key_ranges=ranges)
    return [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def cut(data: bytes, offset: int, size: int) -> bytes:
    return data[offset : offset + size]


def fetched(directory: Path) -> int:
    """Bytes that are not holes."""
    return sum(path.stat().st_blocks * 512 for path in directory.glob("*.sst"))


STRETCHES: list[list[KeyBounds]] = [
    [(key(100), key(101))],
    [(key(0), key(40))],
    [(None, key(3))],
    [(key(ROWS - 5), None)],
    [(key(500), key(520)), (key(29_000), key(29_010))],
    [(key(ROWS // 3 - 4), key(ROWS // 3 + 4))],  # what follows the range is deleted, for many blocks
    [(key(ROWS // 2), key(ROWS // 2 + 1))],  # nothing but deleted keys
    [(b"a", b"b")],
    [(b"z", None)],
]


@pytest.mark.parametrize("reader", ["scanner", "rocksdict"])
@pytest.mark.parametrize("ranges", mostly_slow(STRETCHES, STRETCHES[::3]))
def test_a_look_up_needs_few_blocks(
    database: Path, tmp_path: Path, ranges: list[KeyBounds], reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = rows(placed(database, tmp_path / "whole", ranges, local=True), ranges)
    monkeypatch.setenv(READER, reader)
    copy = placed(database, tmp_path / "copy", ranges)
    assert rows(copy, ranges) == expected
    assert 0 < fetched(copy) < FEW * sum(size for _, size in tables(database).values())


@pytest.mark.parametrize("seed", range(4))
def test_ranges_of_any_size(database: Path, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(seed)
    edges = sorted(random_.sample(range(ROWS), 4))
    ranges = [(key(edges[0]), key(edges[1])), (key(edges[2]), key(edges[3]))]
    expected = rows(placed(database, tmp_path / "whole", ranges, local=True), ranges)
    monkeypatch.setenv(READER, ("scanner", "rocksdict")[seed % 2])
    assert rows(placed(database, tmp_path / "copy", ranges), ranges) == expected


def test_everything_is_copied_where_everything_is_read(database: Path, tmp_path: Path) -> None:
    copy = placed(database, tmp_path / "copy", [(None, None)])
    for local, (name, _) in tables(database).items():
        assert (copy / local).read_bytes() == (database / "store" / "SSTs" / name).read_bytes()


@pytest.mark.parametrize("reader", ["scanner", "rocksdict"])
def test_a_hole_is_never_taken_for_data(
    database: Path, tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read more than was copied: an error, not fewer rows."""
    copy = placed(database, tmp_path / "copy", [(key(100), key(101))])
    monkeypatch.setenv(READER, reader)
    with pytest.raises(CorruptError):
        rows(copy, [(key(100), key(9_000))])


def test_spans_of_a_file_hold_its_index_and_the_blocks_asked_for(database: Path) -> None:
    name, size = next(iter(tables(database).values()))
    data = (database / "store" / "SSTs" / name).read_bytes()
    index = read_index(size, partial(cut, data))
    assert index is not None
    (begin, end), (meta, last) = spans_of(index, size, [(key(9_000), key(9_001))])
    assert data[begin:end].count(b"key-") < 200
    assert key(9_000)[:9] in data[begin:end]
    assert (meta, last) == (index.data_bytes, size)
    assert spans_of(index, size, [(None, None)]) == [(0, size)]


def test_an_index_that_can_not_be_read_is_none(database: Path) -> None:
    name, size = next(iter(tables(database).values()))
    data = (database / "store" / "SSTs" / name).read_bytes()
    for broken in (b"", data[:40], bytes(size), data[:-1] + b"x", bytes(size - 53) + data[-53:]):
        assert read_index(len(broken), partial(cut, broken)) is None


def test_parts_are_cut_at_the_same_keys_wherever_the_files_are(database: Path) -> None:
    found = []
    for filesystem in (pafs.LocalFileSystem(), pafs.SubTreeFileSystem("/", pafs.LocalFileSystem())):
        folder = spark_folder(filesystem, str(database / "store"))
        with opened_tables(folder, sorted(tables(database).values())) as files:
            found.append(split_points(files, 4, KeyRange()))
    assert found[0] == found[1]
    assert len(found[0]) == 3

"""Rows of RocksDBStateStoreProvider: a RocksDB checkpoint whose table files lie beside its zip, shared by versions.

A zip is unpacked into a private folder that is removed afterwards.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of, gather
from statestore.formats.bytes.crc32c import crc32c_of_cells
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.fetched_parts import forget_parts
from statestore.formats.places.folder import PARALLEL_REQUESTS, Folder
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.places.reading_threads import for_each
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rocksdb_errors import in_terms_of
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.rocksdb.sparse_copies import TailReader, copy_parts, have_range_deletions
from statestore.formats.rocksdb.table_index import ReadAt, split_points
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, corrupt_row, missing
from statestore.formats.spark.providers.file_records import Changes
from statestore.formats.spark.providers.stored_rows import KeyBounds
from statestore.formats.spark.providers.zip_files import Zip, read_zip, unzipped
from statestore.formats.spark.rows.row_encoding import CHECKSUM_BYTES, SIZE_BYTES, split_values, verify_checksums

if TYPE_CHECKING:
    from statestore.formats.rocksdb.stored_difference import Differing

# Table files on the local disk: links to local files, copies of others.
#
# Copies live in the caller's folder and are removed with it.


_NO_TABLE = "no such table file: it was purged or not copied; restore it"


def copy_tables(
    folder: Folder, tables: Mapping[str, tuple[str, int]], directory: Path, ranges: Sequence[KeyBounds]
) -> None:
    """Put table files (local name to name in ``SSTs``, size) from ``folder`` into ``directory``.

    Copies hold the parts that reads of ``ranges`` need. Raises NotFoundError SPARK_STATE_NOT_FOUND, CorruptError
    SPARK_STATE_FILE for another size, InvalidInputError NO_ACCESS.
    """
    shared = folder.at("SSTs")
    if folder.is_local:
        _link(shared, tables, directory)
        return
    _copy_all(shared, tables, directory, ranges)
    if have_range_deletions(directory / local for local in tables):
        _copy_all(shared, tables, directory, [(None, None)])


def _copy_all(
    shared: Folder, tables: Mapping[str, tuple[str, int]], directory: Path, ranges: Sequence[KeyBounds]
) -> None:
    def copy(table: tuple[str, tuple[str, int]]) -> None:
        local, (name, size) = table
        with shared.random_access(name, size, unique=True) as file:
            copy_parts(file, directory / local, ranges, partial(_shorter, file.path))

    for_each(copy, tables.items(), PARALLEL_REQUESTS)


def _link(shared: Folder, tables: Mapping[str, tuple[str, int]], directory: Path) -> None:
    sizes = shared.files() if tables else {}
    for local, (name, size) in tables.items():
        path = shared.at(name).path
        if name not in sizes:
            raise missing(path, _NO_TABLE)
        if sizes[name] != size:
            raise corrupt_file(path, f"found {sizes[name]} bytes, expected {size}")
        (directory / local).symlink_to(Path(path).absolute())


@contextmanager
def opened_tables(folder: Folder, tables: Iterable[tuple[str, int]]) -> Iterator[list[tuple[int, ReadAt]]]:
    """Size and reader of each table file (name in ``SSTs``, size), to read its metadata. Raises as `copy_tables`."""
    shared = folder.at("SSTs")
    with ExitStack() as opened:
        if folder.is_local:
            files = [opened.enter_context(shared.random_access(name, size)) for name, size in tables]
            yield [(file.size, file.read_at) for file in files]
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            readers = list(pool.map(lambda table: _with_tail(shared, *table), tables))
        for reader in readers:
            opened.callback(reader.close)
        yield [(reader.size, reader) for reader in readers]


def _with_tail(folder: Folder, name: str, size: int) -> TailReader:
    reader = TailReader(folder.random_access(name, size, unique=True))
    reader(reader.size - 1, 1)
    return reader


def _shorter(path: str, found: int, at: int, expected: int) -> CorruptError:
    return corrupt_file(path, f"found {found} bytes at {at}, expected {expected}")


_MERGE_OPERATOR = re.compile(rb"^(\s*merge_operator)=.*$", re.MULTILINE)
T = TypeVar("T")


def zip_rows(
    folder: Folder,
    file: DataFile,
    each: Callable[[pa.RecordBatch], T],
    *,
    delimiter: bytes,
    family_id: int | None = None,
    key_ranges: Sequence[KeyBounds | KeyRange] | None = None,
) -> Iterator[T]:
    """Yield ``each`` of the batches (key, value) of a zip's version in key order, of one column family if it has them.

    ``delimiter`` stands between merged values; the OPTIONS file does not contain it. ``key_ranges`` are [from, to) of
    stored keys, with the id of their family, in place of all keys of the family.

    Raises CorruptError SPARK_STATE_FILE, NotFoundError SPARK_STATE_NOT_FOUND, UnsupportedError SPARK_STATE_UNSUPPORTED.
    """
    ranges: Sequence[KeyBounds | KeyRange] = [family_range(family_id)] if key_ranges is None else key_ranges
    bounds = [(keys.first, keys.stop) if isinstance(keys, KeyRange) else keys for keys in ranges]
    with unpacked_zip(folder, file, delimiter, bounds) as opened, _explaining([opened]):
        yield from scan_rocksdb(opened.directory, each, key_ranges=ranges, delimiter=delimiter)


def zip_difference(
    old: tuple[Folder, DataFile],
    new: tuple[Folder, DataFile],
    each: Callable[[Differing], T],
    *,
    delimiter: bytes,
    within: KeyBounds,
) -> Iterator[T]:
    """Yield ``each`` of what differs between two zips, in key order, of the stored keys in ``within``.

    Each comes with its folder; one of the same partition in a copy of the checkpoint has the same table files. Of table
    files that both zips name, only the parts are read that may have a key with an entry in another file.
    Raises as `zip_rows`.
    """
    from statestore.formats.rocksdb.table_difference import rocksdb_difference

    with (
        unpacked_zip(*old, delimiter, [within]) as before,
        unpacked_zip(*new, delimiter, [within], before) as after,
        _explaining([after, before]),
    ):
        ranges = [KeyRange(*within)]
        yield from rocksdb_difference(before.directory, after.directory, each, key_ranges=ranges, delimiter=delimiter)


@dataclass(frozen=True)
class UnpackedZip:
    """A private directory with the members of a zip, and links to its table files or copies of them."""

    path: str
    directory: Path
    found: Zip

    @property
    def places(self) -> Mapping[tuple[str, int], Path]:
        """The table files by name in ``SSTs`` and size."""
        return {table: self.directory / local for local, table in self.found.tables.items()}


@contextmanager
def unpacked_zip(
    folder: Folder, file: DataFile, delimiter: bytes, bounds: Sequence[KeyBounds], beside: UnpackedZip | None = None
) -> Iterator[UnpackedZip]:
    """Unpack a zip; table files that are there ``beside`` it already are links to these. Raises as `zip_rows`."""
    path, given = folder.at(file.name).path, {} if beside is None else beside.places
    with temporary_directory() as directory:
        found, members = unzipped(folder, file)
        for name, content in members.items():
            data = _with_delimiter(content, delimiter) if name.startswith("OPTIONS-") else content
            (directory / name).write_bytes(data)
        own = {local: table for local, table in found.tables.items() if table not in given}
        copy_tables(folder, own, directory, bounds)
        for local in found.tables.keys() - own.keys():
            (directory / local).symlink_to(given[found.tables[local]])
        yield UnpackedZip(path, directory, found)


@contextmanager
def _explaining(opened: Sequence[UnpackedZip]) -> Iterator[None]:
    """Let errors of table files name the zip, or the first of them where the directory does not tell which."""
    try:
        yield
    except StateStoreError as error:
        own = [each for each in opened if str(each.directory) in error.message]
        one = (*own, *opened)[0]
        text = in_terms_of(one.path, one.directory, error.message)
        if isinstance(error, CorruptError):
            forget_parts()  # a table file that is restored has the name of the damaged one
            raise corrupt_file(one.path, f"{text}{_stored(text, one.found)}") from error
        error.message, error.args = text, (error.code, text)
        raise


def _stored(text: str, found: Zip) -> str:
    """The names in ``SSTs/`` of the table files that a text names as they are called in a zip."""
    return "".join(f"; {local} is SSTs/{stored}" for local, (stored, _) in found.tables.items() if local in text)


def split_keys(folder: Folder, file: DataFile, family_id: int | None, part_bytes: int, most: int) -> list[KeyBounds]:
    """Split all keys of a zip, or of a family in it, into ranges of about ``part_bytes`` of table files each.

    At most ``most`` ranges are returned, and often one.
    """
    first, stop = family_range(family_id)
    tables = read_zip(folder, file).tables.values()
    parts = min(most, sum(size for _, size in tables) // part_bytes)
    if parts < 2:
        return [(first, stop)]
    try:
        with opened_tables(folder, tables) as files:
            points = split_points(files, parts, KeyRange(first, stop))
    except StateStoreError:  # the reader of the rows reports the error
        points = []
    return list(itertools.pairwise([first, *points, stop]))


def family_prefix(family_id: int) -> bytes:
    """The bytes with which keys of a column family start."""
    return struct.pack("<h", family_id)


def family_range(family_id: int | None) -> KeyBounds:
    """The range of stored keys of a column family, or of all keys without one."""
    if family_id is None:
        return None, None
    prefix = family_prefix(family_id)
    after = (int.from_bytes(prefix) + 1).to_bytes(3)[1:]
    return prefix, after if after > prefix else None


def _with_delimiter(options: bytes, delimiter: bytes) -> bytes:
    """OPTIONS with the delimiter that Spark uses for merges; Spark writes the operator's name without it."""
    return _MERGE_OPERATOR.sub(rb"\1={id=StringAppendOperator;delimiter=" + delimiter + rb";}", options)


# Conversion of stored rows to another id of their column family.
#
# Keys of a family begin with its id, and checksums of rows cover it, too. When Spark repartitions a state, families
# get new ids. Rows from before and after can be compared once those of one side have the ids of the other.


def rows_of_family(rows: pa.RecordBatch, family_id: int, delimiter: bytes | None) -> pa.RecordBatch:
    """Replace the id in front of the keys of rows (key, value).

    ``delimiter`` is that of merged values if rows have checksums, else None. Raises CorruptError SPARK_STATE_ROW.
    """
    keys, values = _renamed(cells_of(rows.column(0)), cells_of(rows.column(1)), family_id, delimiter)
    return pa.RecordBatch.from_arrays([keys.copied(corrupt_row), values.copied(corrupt_row)], schema=ROW_SCHEMA)


def changes_of_family(changes: Changes, family_id: int, delimiter: bytes | None) -> Changes:
    """Replace the id in front of the keys of changes.

    Deletions have no values, and their checksums are already removed.
    """
    return Changes(changes.kind, *_renamed(changes.keys, changes.values, family_id, delimiter))


def _renamed(keys: Cells, values: Cells, family_id: int, delimiter: bytes | None) -> tuple[Cells, Cells]:
    data = keys.data.copy()
    for index, byte in enumerate(family_prefix(family_id)):
        data[keys.start + index] = byte
    renamed = Cells(data, keys.start, keys.size)
    return renamed, values if delimiter is None else _checked_again(keys, renamed, values, delimiter)


def _checked_again(keys: Cells, renamed: Cells, values: Cells, delimiter: bytes) -> Cells:
    """Values with their checksums recomputed for other keys."""
    counts, rows = split_values(values, delimiter, front=CHECKSUM_BYTES)
    owners = np.repeat(np.arange(len(values)), counts)
    positions: Ints = rows.start - (SIZE_BYTES + CHECKSUM_BYTES)
    verify_checksums(gather(rows.data, positions, "<u4"), keys.select(owners), rows)
    found = crc32c_of_cells(rows, crc32c_of_cells(renamed.select(owners))).astype("<u4")
    data = values.data.copy()
    data[positions[:, None] + np.arange(CHECKSUM_BYTES)] = found.view(np.uint8).reshape(-1, CHECKSUM_BYTES)
    return Cells(data, values.start, values.size)

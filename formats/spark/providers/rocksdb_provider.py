"""Zips of RocksDBStateStoreProvider: a RocksDB checkpoint whose table files lie beside it, shared by versions.

``<version>.zip`` holds MANIFEST, CURRENT, OPTIONS and ``metadata``: a line "v1", then JSON that maps each local file
name to one in ``SSTs/``, and names of column families to their ids. A zip is unpacked into a private folder that is
removed afterwards. No name, size or path in it is trusted.
"""

from __future__ import annotations

import itertools
import re
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of, gather
from statestore.formats.bytes.crc32c import crc32c_of_cells
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.fetched_parts import forget_parts
from statestore.formats.places.folder import MAX_SMALL_BYTES, PARALLEL_REQUESTS, Folder
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rocksdb_errors import in_terms_of
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.rocksdb.sparse_copies import TailReader, copy_parts, have_range_deletions
from statestore.formats.rocksdb.table_index import ReadAt, split_points
from statestore.formats.spark.checkpoint.checkpoint_files import PURGED, DataFile, parse_json
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, corrupt_row, missing, unsupported
from statestore.formats.spark.providers.file_records import Changes
from statestore.formats.spark.providers.stored_rows import KeyBounds
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
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        copies = [
            pool.submit(_copy, shared, name, size, directory / local, ranges) for local, (name, size) in tables.items()
        ]
        try:
            for copy in copies:
                copy.result()
        finally:
            for copy in copies:
                copy.cancel()


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
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            readers = list(pool.map(lambda table: _with_tail(shared, *table), tables))
        for reader in readers:
            opened.callback(reader.close)
        yield [(reader.size, reader) for reader in readers]


def _with_tail(folder: Folder, name: str, size: int) -> TailReader:
    reader = TailReader(folder.random_access(name, size, unique=True))
    reader(reader.size - 1, 1)
    return reader


def _copy(folder: Folder, name: str, size: int, target: Path, ranges: Sequence[KeyBounds]) -> None:
    with folder.random_access(name, size, unique=True) as file:
        copy_parts(file, target, ranges, partial(_shorter, file.path))


def _shorter(path: str, found: int, at: int, expected: int) -> CorruptError:
    return corrupt_file(path, f"found {found} bytes at {at}, expected {expected}")


_MEMBER = re.compile(r"MANIFEST-\d{1,20}|CURRENT|OPTIONS-\d{1,20}|\d{1,20}\.log|metadata")
_LOCAL_TABLE = re.compile(r"\d{1,20}\.sst")
_SHARED_TABLE = re.compile(r"[0-9A-Za-z-]{1,200}\.sst")
_MERGE_OPERATOR = re.compile(rb"^(\s*merge_operator)=.*$", re.MULTILINE)
_MAX_MEMBERS = 1000
_FAMILY_IDS = 1 << 15
T = TypeVar("T")


@dataclass(frozen=True)
class Zip:
    """Contents of a zip's metadata; ``tables`` maps local names of table files to names in ``SSTs/`` and sizes.

    ``keys`` is the number of keys of all families that are not Spark's own; None if Spark did not count them.
    """

    tables: Mapping[str, tuple[str, int]]
    families: Mapping[str, int]
    keys: int | None = None


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
    with _unpacked(folder, file, delimiter, bounds) as opened, _explaining([opened]):
        yield from scan_rocksdb(opened.directory, each, key_ranges=ranges, delimiter=delimiter)


def zip_difference(
    folder: Folder,
    old: DataFile,
    new: DataFile,
    each: Callable[[Differing], T],
    *,
    delimiter: bytes,
    within: KeyBounds,
) -> Iterator[T]:
    """Yield ``each`` of what differs between two zips, in key order, of the stored keys in ``within``.

    Of table files that both zips name, only the parts are read that may have a key with an entry in another file.
    Raises as `zip_rows`.
    """
    from statestore.formats.rocksdb.table_difference import rocksdb_difference

    with (
        _unpacked(folder, old, delimiter, [within]) as before,
        _unpacked(folder, new, delimiter, [within], before) as after,
        _explaining([after, before]),
    ):
        ranges = [KeyRange(*within)]
        yield from rocksdb_difference(before.directory, after.directory, each, key_ranges=ranges, delimiter=delimiter)


@dataclass(frozen=True)
class _Unpacked:
    """A private directory with the members of a zip, and links to its table files or copies of them."""

    path: str
    directory: Path
    found: Zip

    @property
    def places(self) -> Mapping[tuple[str, int], Path]:
        """The table files by name in ``SSTs`` and size."""
        return {table: self.directory / local for local, table in self.found.tables.items()}


@contextmanager
def _unpacked(
    folder: Folder, file: DataFile, delimiter: bytes, bounds: Sequence[KeyBounds], beside: _Unpacked | None = None
) -> Iterator[_Unpacked]:
    """Unpack a zip; table files that are there ``beside`` it already are links to these. Raises as `zip_rows`."""
    path, given = folder.at(file.name).path, {} if beside is None else beside.places
    with temporary_directory() as directory:
        with _opened(folder, file.name, path) as members:
            found = _zip_metadata(members, path)
            _unpack(members, directory, delimiter, path)
        own = {local: table for local, table in found.tables.items() if table not in given}
        copy_tables(folder, own, directory, bounds)
        for local in found.tables.keys() - own.keys():
            (directory / local).symlink_to(given[found.tables[local]])
        yield _Unpacked(path, directory, found)


@contextmanager
def _explaining(opened: Sequence[_Unpacked]) -> Iterator[None]:
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


def read_zip(folder: Folder, file: DataFile) -> Zip:
    """Read the metadata of a zip, and no rows."""
    path = folder.at(file.name).path
    with _opened(folder, file.name, path) as members:
        return _zip_metadata(members, path)


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


@contextmanager
def _opened(folder: Folder, name: str, path: str) -> Iterator[zipfile.ZipFile]:
    data = BytesIO(folder.read_small(name, gone=PURGED))
    try:
        members = zipfile.ZipFile(data)
    except Exception as error:  # BadZipFile, and errors of struct and of UTF-8 for what it does not check
        raise corrupt_file(path, f"not a readable zip ({error})") from error
    with members:
        yield members


def _member(members: zipfile.ZipFile, name: str, path: str, most: int = MAX_SMALL_BYTES) -> bytes:
    """Read a member of at most ``most`` bytes."""
    try:
        with members.open(name) as stream:
            found = stream.read(most + 1)
    except KeyError as error:
        raise corrupt_file(path, f"found no member {name}") from error
    except Exception as error:  # zlib.error, BadZipFile and other errors of a damaged stream
        raise corrupt_file(path, f"member {name} cannot be read ({error})") from error
    if len(found) > most:
        raise corrupt_file(path, f"found members of more than {MAX_SMALL_BYTES} bytes, up to {name}")
    return found


def _zip_metadata(members: zipfile.ZipFile, path: str) -> Zip:
    lines = _member(members, "metadata", path).decode("utf-8", "replace").split("\n", 1)
    if lines[0].strip() != "v1" or len(lines) < 2:
        raise corrupt_file(path, f"found metadata of version {lines[0][:20]!r}, expected v1 and a line of JSON")
    document = parse_json(lines[1], path)
    try:
        if document.get("logFiles"):
            raise unsupported(
                f"{path}: state in write-ahead log files; expected table files only, as Spark writes by default"
            )
        tables = {
            str(f["localFileName"]): (str(f["dfsSstFileName"]), int(f["sizeBytes"])) for f in document["sstFiles"]
        }
        families = {str(name): int(number) for name, number in (document.get("columnFamilyMapping") or {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise corrupt_file(path, "expected sstFiles and columnFamilyMapping in its metadata") from error
    strange = [number for number in families.values() if not 0 <= number < _FAMILY_IDS]
    if strange:
        raise corrupt_file(path, f"found column family id {strange[0]}, expected one of 16 bits")
    for local, (shared, _) in tables.items():
        if not _LOCAL_TABLE.fullmatch(local) or not _SHARED_TABLE.fullmatch(shared):
            raise corrupt_file(
                path, f"found table file {local[:80]!r} as {shared[:80]!r}, expected plain names of .sst files"
            )
    keys = document.get("numKeys")
    return Zip(tables, families, keys if type(keys) is int and keys >= 0 else None)


def _unpack(members: zipfile.ZipFile, directory: Path, delimiter: bytes, path: str) -> None:
    names = members.namelist()
    strange = [name for name in names if not _MEMBER.fullmatch(name)]
    if strange or len(names) > _MAX_MEMBERS or len(set(names)) < len(names):
        raise corrupt_file(
            path, f"found {len(names)} members, {strange[:3]} among them; expected those of a RocksDB checkpoint"
        )
    left = MAX_SMALL_BYTES  # limit for all members together: a small zip may claim to hold terabytes
    for name in names:
        data = _member(members, name, path, left)
        left -= len(data)
        if name.startswith("OPTIONS-"):
            data = _with_delimiter(data, delimiter)
        (directory / name).write_bytes(data)


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

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.places.fetched_parts import forget_parts
from statestore.formats.places.folder import MAX_SMALL_BYTES, Folder
from statestore.formats.places.local_directory import temporary_directory
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.key_samples import split_points
from statestore.formats.rocksdb.reader_errors import naming
from statestore.formats.rocksdb.scan import scan_rocksdb
from statestore.formats.spark.checkpoint.checkpoint_files import PURGED, DataFile, parse_json
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, unsupported
from statestore.formats.spark.providers.key_bounds import KeyBounds
from statestore.formats.spark.providers.table_copies import copy_tables, opened_tables

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
    path = folder.at(file.name).path
    with temporary_directory() as directory:
        with _opened(folder, file.name, path) as members:
            found = _zip_metadata(members, path)
            _unpack(members, directory, delimiter, path)
        ranges: Sequence[KeyBounds | KeyRange] = [family_range(family_id)] if key_ranges is None else key_ranges
        bounds = [(keys.first, keys.stop) if isinstance(keys, KeyRange) else keys for keys in ranges]
        copy_tables(folder, found.tables, directory, bounds)
        try:
            with naming(directory, path):
                yield from scan_rocksdb(directory, each, key_ranges=ranges, delimiter=delimiter)
        except CorruptError as error:
            forget_parts()  # a table file that is restored has the name of the damaged one
            raise corrupt_file(path, error.message) from error


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

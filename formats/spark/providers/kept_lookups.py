"""Look-ups of few keys in a local version of RocksDBStateStoreProvider, with what was parsed kept between questions,
and reads of the whole of a small one.

No private folder is made and RocksDB opens nothing: the zip says which table files there are, and of these only the
ones are opened that may hold a key. What this way does not read, also damage, is left to RocksDB and its errors.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa

from statestore.formats.errors import StateStoreError
from statestore.formats.notices import is_verification
from statestore.formats.places.folder import Folder
from statestore.formats.places.kept_results import kept_result
from statestore.formats.rocksdb.fields import Malformed
from statestore.formats.rocksdb.kept_tables import opened_lazily
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.manifest import FamilyFiles, TableEntry, families_of
from statestore.formats.rocksdb.rocksdb_errors import Unreadable
from statestore.formats.rocksdb.rows import DEFAULT_FAMILY
from statestore.formats.rocksdb.scan import LOOKUP_ROWS, READER, is_lookup, scan_opened
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.checkpoint.crc_files import side_name
from statestore.formats.spark.providers.zip_files import Zip, unzipped

_BYTES_OF_A_TABLE = 1024
"""About what the names, the size and the bounds of a table file take."""

_SMALL_BYTES = 32 << 10
"""Of all table files of a version that is read in whole. For RocksDB a folder is made, which takes six milliseconds."""


def looked_up(
    folder: Folder, file: DataFile, ranges: Sequence[KeyRange], delimiter: bytes
) -> tuple[list[pa.RecordBatch], list[KeyRange]]:
    """The rows (key, value) of ranges in a zip's version, in their order, and the ranges that are left to RocksDB.

    ``delimiter`` stands between merged values.
    """
    if not folder.is_local or is_verification() or os.environ.get(READER):
        return [], list(ranges)
    try:
        found, family = _kept_zip(folder, file)
        is_small = sum(size for _, size in found.tables.values()) <= _SMALL_BYTES
        if not (is_small or all(map(is_lookup, ranges))):
            return [], list(ranges)
        shared = folder.at("SSTs")

        def place(entry: TableEntry) -> str:
            name, size = found.tables[entry.name]
            if size != entry.size:
                raise Unreadable(f"{name} has {size} bytes by the zip, and {entry.size} by its MANIFEST")
            return shared.at(name).path

        batches: list[pa.RecordBatch] = []
        with opened_lazily(family, place, delimiter) as table:
            rows = scan_opened(table, ranges, LOOKUP_ROWS, LOOKUP_ROWS)
            while True:
                try:
                    batches.append(next(rows))
                except StopIteration as end:
                    return batches, end.value
    except (OSError, StateStoreError, Unreadable, Malformed, KeyError):
        return [], list(ranges)


def _kept_zip(folder: Folder, file: DataFile) -> tuple[Zip, FamilyFiles]:
    """The metadata of a zip, and the files of its only column family."""
    path = folder.at(file.name).path

    def read() -> tuple[tuple[Zip, FamilyFiles], int]:
        found, members = unzipped(folder, file)
        return (found, families_of(members, path)[DEFAULT_FAMILY]), _BYTES_OF_A_TABLE * len(found.tables)

    return kept_result(("zip", path), [path, folder.at(side_name(file.name)).path], read)

"""Look-ups of few keys in a local version of RocksDBStateStoreProvider, with what was parsed kept between questions,
and reads of the whole of a small one.

The zip says which table files there are, and of these only the ones are opened that may hold a key (`kept_tables`).
"""

from __future__ import annotations

from collections.abc import Sequence

from statestore.formats.places.folder import Folder
from statestore.formats.places.kept_results import kept_result
from statestore.formats.rocksdb.kept_tables import BYTES_OF_A_TABLE, Files, Found, looked_up
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.manifest import FamilyFiles, TableEntry, families_of
from statestore.formats.rocksdb.rocksdb_errors import Unreadable
from statestore.formats.rocksdb.rows import DEFAULT_FAMILY
from statestore.formats.rocksdb.scan import is_lookup
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.checkpoint.crc_files import side_name
from statestore.formats.spark.providers.zip_files import Zip, unzipped

_SMALL_BYTES = 32 << 10
"""Bytes of all table files up to which a version is read in whole. RocksDB needs a folder, which takes six ms."""


def looked_up_rows(folder: Folder, file: DataFile, ranges: Sequence[KeyRange], delimiter: bytes) -> Found:
    """Return what ranges have in a zip's version, and the ranges that are left to RocksDB.

    ``delimiter`` stands between merged values.
    """
    if not folder.is_local:
        return [], list(ranges)

    def find() -> list[Files]:
        found, family = _kept_zip(folder, file)
        is_small = sum(size for _, size in found.tables.values()) <= _SMALL_BYTES
        if not (is_small or all(map(is_lookup, ranges))):
            raise Unreadable(f"{file.name} has too many rows for this way")
        shared = folder.at("SSTs")

        def place(entry: TableEntry) -> str:
            name, size = found.tables[entry.name]
            if size != entry.size:
                raise Unreadable(f"{name} has {size} bytes by the zip, and {entry.size} by its MANIFEST")
            return shared.at(name).path

        return [(family, place)]

    found = looked_up(find, ranges, delimiter, few=True)
    return ([], list(ranges)) if found is None else found[0]


def _kept_zip(folder: Folder, file: DataFile) -> tuple[Zip, FamilyFiles]:
    """The metadata of a zip, and the files of its only column family."""
    path = folder.at(file.name).path

    def read() -> tuple[tuple[Zip, FamilyFiles], int]:
        found, members = unzipped(folder, file)
        return (found, families_of(members, path)[DEFAULT_FAMILY]), BYTES_OF_A_TABLE * len(found.tables)

    return kept_result(("zip", path), [path, folder.at(side_name(file.name)).path], read)

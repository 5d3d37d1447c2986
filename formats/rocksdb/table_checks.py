"""Checks of table files that reads do without, for a verification.

RocksDB verifies the blocks that a read needs. A damaged filter, and a file under the name of another one, show only
when they are looked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from statestore.formats.errors import shown
from statestore.formats.places.regular_files import open_regular
from statestore.formats.rocksdb.fields import Malformed
from statestore.formats.rocksdb.manifest import TableEntry, read_families
from statestore.formats.rocksdb.plain_tables import PlainTable
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt
from statestore.formats.rocksdb.table_head import check_readable, read_head


def check_heads(directory: Path) -> None:
    """Verify the head of each table file of a directory, with the blocks that no read needs.

    A file whose form is unknown is passed over. Raises CorruptError ROCKSDB_FILE.
    """
    for path in sorted(directory.glob("*.sst")):
        with suppress(OSError, Unreadable), _opened(path):
            pass


def check_places(directory: Path) -> None:
    """Compare the first and the last key of each table file with those in the MANIFEST.

    The files must be whole. Forms that only RocksDB reads are passed over. Raises CorruptError ROCKSDB_FILE.
    """
    with suppress(Unreadable):
        for family in read_families(directory).values():
            for entry in family.files:
                with suppress(OSError, Unreadable):
                    _check_place(directory / entry.name, entry)


def _check_place(path: Path, entry: TableEntry) -> None:
    with _opened(path) as table:
        check_readable(table.head)
        found = table.bounds()
    if found != ((entry.smallest, entry.newest), (entry.greatest, entry.oldest)):
        (first, _), (last, _) = found
        raise corrupt(
            str(path),
            f"found keys {shown(first)} to {shown(last)}, expected {shown(entry.smallest)} to {shown(entry.greatest)} "
            "in the versions that the MANIFEST says: the file has the name of another one",
        )


@contextmanager
def _opened(path: Path) -> Iterator[PlainTable]:
    descriptor = open_regular(path)
    try:
        yield PlainTable(read_head(descriptor, os.fstat(descriptor).st_size, str(path)), descriptor)
    except Malformed as error:
        raise corrupt(str(path), f"its metadata is malformed: {error}") from error
    finally:
        os.close(descriptor)

"""Table files of a database that its MANIFEST does not list, so that neither RocksDB nor a read has their rows.

RocksDB takes a MANIFEST that breaks off for the end of what was written before a crash. It then opens an older state of
the database, removes the table files that are not listed there, and says nothing. A running application has such files
for a moment, between the end of a flush and the edit that lists it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from statestore.formats.engine import FileFinding
from statestore.formats.errors import StateStoreError
from statestore.formats.kafka.directory.applications import Database
from statestore.formats.kafka.directory.database_copies import FIXED, opened_copy
from statestore.formats.kafka.directory.listings import entries_of
from statestore.formats.places.folder import Folder
from statestore.formats.rocksdb.manifest import UnlistedTables, unlisted_tables
from statestore.formats.rocksdb.rocksdb_errors import Unreadable

_SETTLING = 0.1  # seconds
_MOST_SHOWN = 5
_NO_FAMILY = ""  # of a copy that needs no table files


def unlisted_files(application: Folder, database: Database) -> Iterator[FileFinding]:
    """Yield what is wrong with the MANIFEST of a database. One that cannot be read at all is left to its reads."""
    folder = application.at(*database.path.split("/"))
    found = _unlisted(folder)
    if found is None or not (found.is_cut or found.newer or found.others):
        return
    if found.newer and folder.is_local and not found.is_cut:  # perhaps of a flush that is under way
        time.sleep(_SETTLING)
        found = _unlisted(folder) or found
    path = f"{folder.path}/{found.name}"
    spare = (*found.others, *found.newer)
    ends = "ends within a record" if found.is_cut else "ends with a whole record"
    if spare and (found.is_cut or found.newer):
        yield FileFinding(
            path,
            f"{path}: {ends}, and does not list the table files {_listed(spare)}: it was cut, and rows in them are not "
            "read, or the application was killed or copied before it wrote them down; restore it from a copy, or the "
            "store from its changelog",
        )
    elif spare:
        text = f"{folder.path}: {found.name} does not list the table files {_listed(spare)}: left over, or it lost them"
        yield FileFinding(path, text, damaged=False)
    elif found.is_cut:
        text = f"{path}: {ends}, as after a crash; all table files are listed before"
        yield FileFinding(path, text, damaged=False)


def _unlisted(folder: Folder) -> UnlistedTables | None:
    """Compare the listing with the MANIFEST, which is only read, so a local one needs no private copy."""
    try:
        tables = [name for name in entries_of(folder) if FIXED.fullmatch(name)]
        if folder.is_local:
            with suppress(StateStoreError, Unreadable):  # it may just be replaced, which a copy waits for
                return unlisted_tables(Path(folder.path), tables)
        with opened_copy(folder, family=_NO_FAMILY) as copy:
            return unlisted_tables(copy, tables)
    except (StateStoreError, Unreadable):
        return None


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
    return ", ".join(names[:_MOST_SHOWN]) + more

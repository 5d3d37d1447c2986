"""Files in a keyed store that no kept snapshot needs, such as those of killed tasks."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING, cast

from statestore.catalog.keyed.snapshots.commit_lock import LEAST_US, commit_lock
from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotLog, newer_log, read_log
from statestore.catalog.keyed.snapshots.snapshot_part import STORED_FILE
from statestore.catalog.keyed.snapshots.stored_files import UNFINISHED
from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.storage import TEMPORARY, LocalStorage, ObjectInfo, Storage
from statestore.catalog.upkeep.vacuum import Unneeded
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.local_directory import remove_abandoned

if TYPE_CHECKING:
    from statestore.catalog.log.storage_objects import ObjectStorage

# Files that tasks create and may leave behind when they die. No other file is considered, so foreign files stay.
OURS = re.compile(rf"{STORED_FILE.pattern}(?:{re.escape(UNFINISHED)})?|(?:.*/)?{re.escape(TEMPORARY)}\w+")
_OTHER_FOLDER = re.compile(r"([0-9a-f]{32}/).+")


def unneeded_files(storage: Storage) -> list[ObjectInfo]:
    """Return all unneeded files of any age, including those of snapshots that are being taken."""
    listed = storage.list("")  # before the log is read: files committed meanwhile are then known to be needed
    needed = read_log(storage).files()
    return [item for item in listed if item.name not in needed and OURS.fullmatch(item.name)]


def remove_unneeded(storage: Storage, store_id: str, older_than_us: int, dry_run: bool) -> list[Unneeded]:
    """Remove (or only list) the unneeded files that were not changed for ``older_than_us`` microseconds.

    The call waits for a commit that is under way in a local store, so that no file is removed that the log then names;
    from an object store nothing younger than LEAST_US is removed. Raises ConflictError STORE_BUSY, InvalidInputError
    INVALID_DURATION, NotFoundError STORE_REPLACED if the store no longer exists.
    """
    if not isinstance(storage, LocalStorage):
        return _remove_objects(cast("ObjectStorage", storage), store_id, older_than_us, dry_run)
    cutoff = time.time_ns() // 1000 - older_than_us
    with contextlib.nullcontext() if dry_run else commit_lock(storage, alone=True):
        found = [Unneeded(item.name, item.bytes) for item in unneeded_files(storage) if item.modified_us <= cutoff]
        newest = newer_log(storage, store_id, SnapshotLog(())).newest
        if not dry_run:
            storage.settle(entry_name(newest))  # a log that a power failure leaves must not need removed files
            for item in found:
                storage.delete(item.name)
            remove_abandoned()  # files of killed processes' backends in the temporary folder
    return found


def _remove_objects(storage: ObjectStorage, store_id: str, older_than_us: int, dry_run: bool) -> list[Unneeded]:
    if older_than_us < LEAST_US and not dry_run:
        raise InvalidInputError(
            ErrorCode.INVALID_DURATION,
            f"{storage}: vacuum of a keyed store in an object store, where no lock keeps it from removing the files of "
            f"a commit that is under way, needs an age of at least {LEAST_US // 3_600_000_000} hours; found "
            f"{older_than_us / 3_600_000_000:g} hours: give older_than='1 day' or more, or list the files with dry_run",
        )
    cutoff = time.time_ns() // 1000 - older_than_us
    found = [item for item in unneeded_files(storage) if item.modified_us <= cutoff]
    others = [item for item in _of_other_folders(storage) if item.modified_us <= cutoff]
    newer_log(storage, store_id, SnapshotLog(()))  # the listed files are those of this store
    if not dry_run:
        storage.delete_many([item.name for item in found])
        storage.within("").delete_many([item.name for item in others])
        remove_abandoned()
    return [Unneeded(item.name, item.bytes) for item in (*found, *others)]


def _of_other_folders(storage: ObjectStorage) -> list[ObjectInfo]:
    """Return the files of stores that never got this store's name, as of an import that died, or that had it before."""
    return [
        item
        for item in storage.within("").list("")
        if (folder := _OTHER_FOLDER.fullmatch(item.name)) and folder[1] != storage.folder
    ]

"""Files in a keyed store's folder that no kept snapshot needs, such as those of killed tasks."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

from statestore.catalog.keyed.snapshots.commit_lock import commit_lock
from statestore.catalog.keyed.snapshots.shared_log import newer_log
from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotLog, read_log
from statestore.catalog.keyed.snapshots.snapshot_part import STORED_FILE
from statestore.catalog.keyed.snapshots.stored_files import UNFINISHED
from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.storage import TEMPORARY, LocalStorage, ObjectInfo, Storage
from statestore.catalog.upkeep.vacuum import Unneeded
from statestore.formats.places.local_directory import remove_abandoned

# Files that tasks create and may leave behind when they die. No other file is considered, so foreign files stay.
OURS = re.compile(rf"{STORED_FILE.pattern}(?:{re.escape(UNFINISHED)})?|(?:.*/)?{re.escape(TEMPORARY)}\w+")


def unneeded_files(storage: Storage) -> list[ObjectInfo]:
    """Return all unneeded files of any age, including those of snapshots that are being taken."""
    listed = storage.list("")  # before the log is read: files committed meanwhile are then known to be needed
    needed = read_log(storage).files()
    return [item for item in listed if item.name not in needed and OURS.fullmatch(item.name)]


def remove_unneeded(root: Path, store_id: str, older_than_us: int, dry_run: bool) -> list[Unneeded]:
    """Remove (or only list) the unneeded files that were not changed for ``older_than_us`` microseconds.

    The call waits for a commit that is under way, so that no file is removed that the log then names. Raises
    ConflictError STORE_BUSY, NotFoundError STORE_NOT_FOUND if the store no longer exists.
    """
    storage = LocalStorage(root)
    cutoff = time.time_ns() // 1000 - older_than_us
    with contextlib.nullcontext() if dry_run else commit_lock(root, alone=True):
        found = [Unneeded(item.name, item.bytes) for item in unneeded_files(storage) if item.modified_us <= cutoff]
        newest = newer_log(storage, store_id, SnapshotLog(())).newest
        if not dry_run:
            storage.settle(entry_name(newest))  # a log that a power failure leaves must not need removed files
            for item in found:
                storage.delete(item.name)
            remove_abandoned()  # files of killed processes' backends in the temporary folder
    return found

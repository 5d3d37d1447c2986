"""Files in a keyed store's folder that no kept snapshot needs, such as those of tasks that were killed."""

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
from statestore.catalog.upkeep.maintenance import Unneeded
from statestore.formats.places.local_directory import remove_abandoned

# What tasks make and may leave behind when they die; nothing else is looked at, so no file of somebody else is removed.
OURS = re.compile(rf"{STORED_FILE.pattern}(?:{re.escape(UNFINISHED)})?|(?:.*/)?{re.escape(TEMPORARY)}\w+")


def unneeded_files(storage: Storage) -> list[ObjectInfo]:
    """All of them, whatever their age; those of snapshots that are being taken are among them."""
    listed = storage.list("")  # before the log: what is committed meanwhile is then known to be needed
    needed = read_log(storage).files()
    return [item for item in listed if item.name not in needed and OURS.fullmatch(item.name)]


def remove_unneeded(root: Path, store_id: str, older_than_us: int, dry_run: bool) -> list[Unneeded]:
    """Remove (or only list) those that were not changed for ``older_than_us`` microseconds.

    A commit that is under way is waited for, so that no file goes which the log names in the end. Raises ConflictError
    STORE_BUSY, NotFoundError STORE_NOT_FOUND if the store is not there any more.
    """
    storage = LocalStorage(root)
    cutoff = time.time_ns() // 1000 - older_than_us
    with contextlib.nullcontext() if dry_run else commit_lock(root, alone=True):
        found = [Unneeded(item.name, item.bytes) for item in unneeded_files(storage) if item.modified_us <= cutoff]
        newest = newer_log(storage, store_id, SnapshotLog(())).newest
        if not dry_run:
            storage.settle(entry_name(newest))  # what is removed must not be needed by what a power failure leaves
            for item in found:
                storage.delete(item.name)
            remove_abandoned()  # what backends of processes that were killed left in the temporary folder
    return found

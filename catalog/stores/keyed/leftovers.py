"""Files in a keyed store's folder that no kept snapshot needs, such as those of tasks that were killed."""

from __future__ import annotations

import contextlib
import re
import time

from statestore.catalog.maintenance import Unneeded
from statestore.catalog.storage import TEMPORARY, ObjectInfo, Storage, local_root
from statestore.catalog.stores.keyed.snapshot_handle import STORED_FILE
from statestore.catalog.stores.keyed.snapshot_log import read_log
from statestore.catalog.stores.keyed.stored_files import UNFINISHED

# What tasks make and may leave behind when they die; nothing else is looked at, so no file of somebody else is removed.
OURS = re.compile(rf"{STORED_FILE.pattern}(?:{re.escape(UNFINISHED)})?|(?:.*/)?{re.escape(TEMPORARY)}\w+")


def unneeded_files(storage: Storage) -> list[ObjectInfo]:
    """All of them, whatever their age; those of snapshots that are being taken are among them."""
    listed = storage.list("")  # before the log: what is committed meanwhile is then known to be needed
    needed = read_log(storage).files()
    return [item for item in listed if item.name not in needed and OURS.fullmatch(item.name)]


def remove_unneeded(storage: Storage, older_than_us: int, dry_run: bool) -> list[Unneeded]:
    """Remove (or only list) those that were not changed for ``older_than_us`` microseconds."""
    cutoff = time.time_ns() // 1000 - older_than_us
    found = [Unneeded(item.name, item.bytes) for item in unneeded_files(storage) if item.modified_us <= cutoff]
    return found if dry_run else [item for item in found if _removed(storage, item.name, cutoff)]


def _removed(storage: Storage, name: str, cutoff: int) -> bool:
    """Unless somebody commits it this very moment: a commit renews the times of its files first."""
    root = local_root(storage)
    with contextlib.suppress(FileNotFoundError):
        if root is not None and (root / name).stat().st_mtime_ns // 1000 > cutoff:
            return False
    storage.delete(name)
    return True

"""The space that the hot tier of a live store takes, on the machine that asks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from statestore.catalog.log.storage import ObjectInfo, Storage, local_root, own_folder

FOLDER = "live"
CACHE = f"{FOLDER}/"


def tier_bytes(storage: Storage, listed: Iterable[ObjectInfo]) -> int:
    """Return the bytes of the hot tier; ``listed`` are the files of the store, which has it where it is local."""
    if local_root(storage) is not None:
        return sum(item.bytes for item in listed if item.name.startswith(CACHE))
    own, size = own_folder(storage), 0
    if own is not None:
        for folder, _, names in os.walk(own / CACHE):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    size += os.stat(f"{folder}/{name}", follow_symlinks=False).st_size  # noqa: PTH116
    return size

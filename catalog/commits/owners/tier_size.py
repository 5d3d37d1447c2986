"""The space that writers of the machine that asks take: the hot tier of a live store, and what lies beside it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from statestore.catalog.log.storage import ObjectInfo, Storage, local_root, own_folder

FOLDER = "live"
CACHE = f"{FOLDER}/"


def tier_bytes(storage: Storage, listed: Iterable[ObjectInfo]) -> int:
    """Return the bytes of the hot tier; ``listed`` are the files of the store, which has it where it is local."""
    if local_root(storage) is not None:
        return sum(item.bytes for item in listed if item.name.startswith(CACHE))
    own = own_folder(storage)
    return 0 if own is None else _bytes_below(own / CACHE)


def own_bytes(storage: Storage) -> int:
    """Return the bytes that a store in an object store has on this machine; 0 for a local store, which lists them."""
    own = own_folder(storage)
    return 0 if own is None or local_root(storage) is not None else _bytes_below(own)


def _bytes_below(root: Path) -> int:
    size = 0
    for folder, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.stat(f"{folder}/{name}", follow_symlinks=False).st_size  # noqa: PTH116
    return size

"""Names of the files of a store and its log that tell what is there and what was committed, without reading them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from statestore.catalog.log.storage import Storage

STORE_FILE = "store.json"
"""The description of a store, in its folder."""
ENTRY = re.compile(r"log/[0-9]{20}\.json")
LOG_CHECKPOINTS = "log/_checkpoint/"
LOG_CHECKPOINT = re.compile(re.escape(LOG_CHECKPOINTS) + r"([0-9]{20})\.arrow")
REPLACEMENT = re.compile(re.escape(LOG_CHECKPOINTS) + r"([0-9]{20})-([0-9a-f]{32})\.json")
"""An object that says in which version a rebuild wants to replace the store, and by which folder. It lies among the log
checkpoints because everybody who opens a store lists these."""


def replacement_name(version: int, folder: str) -> str:
    return f"{LOG_CHECKPOINTS}{version:020d}-{folder}.json"


def log_checkpoint_name(version: int) -> str:
    return f"{LOG_CHECKPOINTS}{version:020d}.arrow"


def checkpoint_versions(storage: Storage) -> list[int]:
    """Return the versions that have a log checkpoint, newest first. Each of them was committed."""
    matches = (LOG_CHECKPOINT.fullmatch(item.name) for item in storage.list(LOG_CHECKPOINTS))
    return sorted((int(match[1]) for match in matches if match is not None), reverse=True)

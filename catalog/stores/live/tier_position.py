"""How far a hot tier has come: the file that makes a restart cost the tail of the changelog only.

The tier holds everything up to commit ``version`` and, of the rows after it, those of changelogs before ``changelog``
and of that one up to ``offset``. It may hold later ones, too; replaying them again changes nothing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import xxhash

from statestore.catalog.log.storage import sync_folder
from statestore.catalog.stores.live.database_marks import DatabaseMark
from statestore.formats.errors import StateStoreError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.regular_files import read_regular

FILE = "checkpoint.json"
_MOST_BYTES = 1 << 24
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class TierPosition:
    """``stream_time`` in epoch milliseconds, ``sequence`` the last number given to a row, ``dropped`` the records
    refused since the last commit, ``segments`` the databases there are: one that holds less than its mark says is not
    used.

    ``boot`` is the run of the machine it was written in: rows that were never forced to the disk end with it, in the
    changelog and perhaps not in the tier. ``held`` are the changelogs that were waiting for a commit: name, how much of
    it was forced to the disk, how much was written. So a changelog that loses its end, or is lost, is missed.
    """

    store_id: str
    version: int
    changelog: str
    offset: int
    stream_time: int
    sequence: int
    dropped: int
    segments: tuple[DatabaseMark, ...]
    boot: str
    held: tuple[tuple[str, int, int], ...] = ()


def this_boot() -> str:
    """An id of the machine's current run; empty where the system has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def write_position(folder: Path, checkpoint: TierPosition) -> None:
    """Replace the checkpoint, all at once."""
    folder.mkdir(parents=True, exist_ok=True)
    body = json.dumps(asdict(checkpoint), sort_keys=True)
    temporary = folder / f"{FILE}.new"
    temporary.write_text(json.dumps({"checksum": xxhash.xxh3_64_hexdigest(body.encode()), "tier": body}))
    temporary.replace(folder / FILE)


def remove_position(folder: Path) -> None:
    """Have the tier made anew the next time, and forget which changelogs there must be: durably, before they go."""
    path = folder / FILE
    with disk_errors("remove", path):
        try:
            path.unlink()
        except FileNotFoundError:
            return
        sync_folder(folder)


def read_position(folder: Path) -> TierPosition | None:
    """None if there is none or it cannot be trusted: then the tier is made anew."""
    try:
        document = json.loads(read_regular(folder / FILE, _MOST_BYTES))
        if xxhash.xxh3_64_hexdigest(document["tier"].encode()) != document["checksum"]:
            return None
        fields = json.loads(document["tier"])
        held = tuple((str(name), int(synced), int(written)) for name, synced, written in fields.pop("held", ()))
        segments = tuple(DatabaseMark(**mark) for mark in fields["segments"])
        return TierPosition(**{**fields, "segments": segments, "held": held})
    except (OSError, StateStoreError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None

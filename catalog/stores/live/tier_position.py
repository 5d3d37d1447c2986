"""The position of a hot tier: a file that reduces a restart to the tail of the changelog.

The tier holds everything up to commit ``version``. Of later rows it holds those of changelogs before ``changelog``, and
those of that changelog up to ``offset``. It may hold further rows; replaying them again changes nothing.
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
    """The position of a hot tier.

    ``stream_time`` is in epoch milliseconds, ``sequence`` is the last number given to a row, ``dropped`` counts the
    records refused since the last commit, and ``segments`` are the existing databases; a database that holds less than
    its mark is not used.

    ``boot`` is the run of the machine in which the position was written: rows that were never forced to the disk are
    lost at its end from the changelog, but perhaps not from the tier. ``held`` are the changelogs that waited for a
    commit: name, length forced to the disk, length written. By it a changelog that is missing or has lost its end is
    noticed. ``time_ordered`` is whether rows are stored by time, as in a `TimeOrderedTier`.
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
    time_ordered: bool = False


def this_boot() -> str:
    """Return an id of the machine's current run; empty where the system has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def write_position(folder: Path, position: TierPosition) -> None:
    """Replace the position file atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    body = json.dumps(asdict(position), sort_keys=True)
    temporary = folder / f"{FILE}.new"
    temporary.write_text(json.dumps({"checksum": xxhash.xxh3_64_hexdigest(body.encode()), "tier": body}))
    temporary.replace(folder / FILE)


def remove_position(folder: Path) -> None:
    """Remove the position, so that the tier is recreated the next time and no changelog is expected.

    The removal is durable before the changelogs are removed.
    """
    path = folder / FILE
    with disk_errors("remove", path):
        try:
            path.unlink()
        except FileNotFoundError:
            return
        sync_folder(folder)


def read_position(folder: Path) -> TierPosition | None:
    """Return the position; None if there is none or it cannot be trusted, after which the tier is recreated."""
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

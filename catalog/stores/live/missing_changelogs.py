"""Acknowledged writes that are gone: a hot tier's checkpoint says how long the changelogs were that it read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from statestore.catalog.commits.changelog_ownership import FOLDER
from statestore.catalog.commits.consumed_changelogs import consumed_ends
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, local_root
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.live.tier_position import FILE, TierPosition, this_boot
from statestore.formats.errors import CorruptError


class Extent(NamedTuple):
    """How much there must be of a changelog: ``synced`` bytes on the disk, whole frames up to ``end``."""

    name: str
    synced: int
    end: int


def is_of_this_boot(checkpoint: TierPosition) -> bool:
    """Whether nothing that was written when it was made can have been lost with the machine."""
    return checkpoint.boot == this_boot() != ""


def expected_extents(
    checkpoint: TierPosition, storage: Storage, spec: StoreSpec, snapshot: LogState
) -> Iterator[Extent]:
    """What there must be of the changelogs that the checkpoint names and no commit has taken in.

    After a restart of the machine that is what had been forced to the disk. A checkpoint of another store, or of a
    version that the log does not have, says nothing.
    """
    if checkpoint.store_id != spec.store_id or checkpoint.version > snapshot.version:
        return
    done = consumed_ends(storage, snapshot, [name for name, _, _ in checkpoint.held])
    for name, synced, written in checkpoint.held:
        end = written if is_of_this_boot(checkpoint) else synced
        if end > done.get(name, 0):
            yield Extent(name, synced, end)


def missing(storage: Storage, extent: Extent, found: int | None) -> CorruptError:
    """The error for a changelog that has whole frames up to ``found`` only (None: it is gone)."""
    root = local_root(storage) or Path()
    there = "it is missing" if found is None else f"there are {found}"
    return CorruptError(
        "CHANGELOG_CORRUPT",
        f"{root / FOLDER / extent.name}: {extent.end} bytes of acknowledged writes were there when "
        f"{root / 'live' / FILE} was written, {there} now. Restore the file from a copy; or move {root / 'live'} away, "
        "which is a cache, to go on without the writes that are missing",
    )

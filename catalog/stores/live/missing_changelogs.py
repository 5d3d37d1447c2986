"""Detection of lost acknowledged writes, by the lengths of changelogs that a hot tier's position records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from statestore.catalog.commits.changelogs import CHANGELOGS, consumed_ends
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, own_folder
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.live.tier_position import FILE, TierPosition, this_boot
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError


class Extent(NamedTuple):
    """The minimum content of a changelog: ``synced`` bytes on the disk, whole frames up to ``end``."""

    name: str
    synced: int
    end: int


def is_of_this_boot(position: TierPosition) -> bool:
    """Return whether the position was written in this run of the machine, so that no write before it can have been
    lost.
    """
    return position.boot == this_boot() != ""


def expected_extents(
    position: TierPosition, storage: Storage, spec: StoreSpec, log_state: LogState
) -> Iterator[Extent]:
    """Yield the minimum content of the changelogs that the position names and no commit has taken in.

    After a restart of the machine that is the content that had been forced to the disk. A position of another store, or
    of a version that the log does not have, gives nothing.
    """
    if position.store_id != spec.store_id or position.version > log_state.version:
        return
    done = consumed_ends(storage, log_state, [name for name, _, _ in position.held])
    for name, synced, written in position.held:
        end = written if is_of_this_boot(position) else synced
        if end > done.get(name, 0):
            yield Extent(name, synced, end)


def missing(storage: Storage, extent: Extent, found: int | None) -> CorruptError:
    """Return the error for a changelog that has whole frames only up to ``found`` (None: it is missing)."""
    root = own_folder(storage) or Path()
    there = "it is missing" if found is None else f"there are {found}"
    return CorruptError(
        ErrorCode.CHANGELOG_CORRUPT,
        f"{root / CHANGELOGS / extent.name}: {extent.end} bytes of acknowledged writes were there when "
        f"{root / 'live' / FILE} was written, {there} now. Restore the file from a copy; or move {root / 'live'} away, "
        "which is a cache, to go on without the writes that are missing",
    )

"""Upkeep of a store's files, once for each store and not for each table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from statestore.catalog.keyed.snapshots.unneeded_files import remove_unneeded
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import KEYED, StoreSpec
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.vacuum import KEPT_US, Unneeded, run_vacuum
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError


class Upkeep(Protocol):
    """The upkeep of one store."""

    def files(self) -> SegmentFiles:
        """Return the files on which compaction and expiry work. Raises UnsupportedError SNAPSHOTS_ONLY for a keyed
        store.
        """

    def vacuum(self, older_than_us: int | None, dry_run: bool) -> list[Unneeded]:
        """Remove, or only list, files that are not needed and were not changed for so many microseconds (None: what is
        safe, see `run_vacuum`).
        """


@dataclass(frozen=True)
class StoreUpkeep:
    """The upkeep of a store whose commits add rows."""

    storage: Storage
    spec: StoreSpec

    def files(self) -> SegmentFiles:
        return SegmentFiles(self.storage, self.spec)

    def vacuum(self, older_than_us: int | None, dry_run: bool) -> list[Unneeded]:
        files = self.files()
        return run_vacuum(files, files.log.newest(), older_than_us, dry_run)


@dataclass(frozen=True)
class SnapshotsUpkeep:
    """The upkeep of a keyed store: snapshots are never rewritten, only discarded."""

    storage: Storage
    spec: StoreSpec

    def files(self) -> SegmentFiles:
        raise UnsupportedError(
            ErrorCode.SNAPSHOTS_ONLY,
            f"{self.spec.name!r} is a keyed store, which has nothing to compact or to expire: its "
            "snapshots stay as they were written until store.discard(version) removes them; vacuum "
            "removes files that tasks left behind",
        )

    def vacuum(self, older_than_us: int | None, dry_run: bool) -> list[Unneeded]:
        older_than_us = KEPT_US if older_than_us is None else older_than_us
        return remove_unneeded(self.storage, self.spec.store_id, older_than_us, dry_run)


def upkeep_of(storage: Storage, spec: StoreSpec) -> Upkeep:
    """Return the upkeep of a store."""
    return (SnapshotsUpkeep if spec.kind == KEYED else StoreUpkeep)(storage, spec)

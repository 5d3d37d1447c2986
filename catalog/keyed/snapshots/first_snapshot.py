"""The time of a commit, and the first snapshot of a store that nobody knows of yet."""

from __future__ import annotations

import time
from collections.abc import Sequence

from statestore.catalog.commits.publish_commit import writer_name
from statestore.catalog.keyed.rows.state_spec import widest
from statestore.catalog.keyed.snapshots.snapshot_log import SnapshotEntry, SnapshotLog, check_complete, publish
from statestore.catalog.keyed.snapshots.snapshot_part import SnapshotPart
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError


def commit_time(log: SnapshotLog) -> int:
    """Return the current time in epoch microseconds, but at least the time of the newest version."""
    now = time.time_ns() // 1_000_000 * 1_000
    return max(now, log.entries[-1].timestamp) if log.entries else now


def first_snapshot(storage: Storage, spec: StoreSpec, parts: Sequence[SnapshotPart]) -> int:
    """Commit the first snapshot of a store that nobody knows of, because its description is not written yet.

    Raises InvalidInputError INCOMPLETE_SNAPSHOT or INCOMPATIBLE_STATE.
    """
    check_complete(parts, spec.key_groups)
    widest(state for part in parts for state in part.states)
    log = SnapshotLog(())
    entry = SnapshotEntry(1, commit_time(log), "snapshot", writer_name(), None, tuple(parts))
    if publish(storage, log, entry, "") is None:
        raise ConflictError(ErrorCode.STORE_BUSY, f"{storage}: another writer uses the folder {spec.folder!r}")
    return 1

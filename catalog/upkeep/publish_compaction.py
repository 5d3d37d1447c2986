"""Publishing of compactions, which cost no commit: a compaction that races with a commit lets the commit win, and moves
the closures that arrived meanwhile to the rows' new locations.
"""

from __future__ import annotations

from statestore.catalog.commits.claims import claim
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.open_rows import Moves, note_moves
from statestore.catalog.commits.publish_commit import after_publish, new_entry, remove_files
from statestore.catalog.log.entries import CommitEntry, write_entry
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.compaction import MINOR_DELTAS, SEAL_MIN_ROWS, Rewrite, compact, moved_closures
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, ConflictError, StateStoreError

MAX_ATTEMPTS = 20


def may_be_due(log_state: LogState) -> bool:
    """Return False if no compaction can be due, from statistics alone."""
    recent = [m for m in log_state.segments if m.role in ("open", "delta")]
    deltas = [m for m in recent if m.role == "delta"]
    closures = sum(c.count for m in log_state.segments for c in log_state.closures.get(m.name, ()))
    return len(deltas) >= MINOR_DELTAS or closures + sum(m.rows for m in deltas) >= SEAL_MIN_ROWS


def run_compaction(files: SegmentFiles, base: LogState, full: bool) -> LogState:
    """Compact and publish; return the newest log state, which is unchanged if nothing is due.

    Raises ConflictError COMPACTION_OVERTAKEN if other compactions keep removing the same segments.
    """
    log_state = base
    for _ in range(MAX_ATTEMPTS):
        log_state = load_log_state(files.storage, base=log_state)
        with claim(files.storage) as claimed:
            rewrite = compact(files, log_state, full, claimed)
            if not rewrite.removed:
                return log_state
            published = _publish_rewrite(files, log_state, rewrite)
        if published is not None:
            return published
    raise ConflictError(
        ErrorCode.COMPACTION_OVERTAKEN,
        f"store {files.spec.name!r}: other compactions removed the same segments {MAX_ATTEMPTS} times; "
        "let one process compact a store",
    )


def _publish_rewrite(files: SegmentFiles, base: LogState, rewrite: Rewrite) -> LogState | None:
    """Publish a rewrite; return None if another compaction or an expiry removed a segment that it read."""
    storage = files.storage
    removed = tuple(m.name for m in rewrite.removed)
    at, carried = base, NewFiles(rewrite.new.claim)
    try:
        storage.create_many(rewrite.new.buffers)
        while True:
            entry = _rewrite_entry(at, rewrite, carried, removed)
            try:
                write_entry(storage, entry)
                published = after_publish(storage, at, entry)
                names = tuple(m.name for m in rewrite.new.segments)
                note_moves(files, published, {name: Moves(names, *to) for name, to in rewrite.moved.items()})
                return published
            except ConflictError:
                remove_files(storage, carried)
            at = load_log_state(storage, base=at)
            if not set(removed) <= {m.name for m in at.segments}:
                remove_files(storage, rewrite.new)
                return None
            carried = _carry(files, base, at, rewrite)
    except CommitUnknownError:
        raise
    except StateStoreError:
        remove_files(storage, rewrite.new)
        remove_files(storage, carried)
        raise


def _rewrite_entry(at: LogState, rewrite: Rewrite, carried: NewFiles, removed: tuple[str, ...]) -> CommitEntry:
    new = NewFiles(
        rewrite.new.claim,
        {**rewrite.new.buffers, **carried.buffers},
        rewrite.new.segments,
        [*rewrite.new.closures, *carried.closures],
    )
    return new_entry(at, "compact", new, removed=removed)


def _carry(files: SegmentFiles, base: LogState, at: LogState, rewrite: Rewrite) -> NewFiles:
    """Return closures that commits after ``base`` put on the rewritten segments, at the rows' new locations."""
    carried = NewFiles(rewrite.new.claim)
    pieces = [c for m in rewrite.removed for c in at.closures.get(m.name, ()) if c.version > base.version]
    carried.add_closures(moved_closures(files, rewrite, pieces))
    files.storage.create_many(carried.buffers)
    return carried

"""Publishing of compactions and expiry, and removal of files that no reader needs; none of them costs a commit.

A compaction that races with a commit lets the commit win, and moves the closures that arrived meanwhile to the rows'
new locations. Expiry drops whole files (docs/format.md, "Expiry").
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from statestore.catalog.commits.changelog_ownership import FOLDER as CHANGELOGS
from statestore.catalog.commits.changelog_ownership import OURS
from statestore.catalog.commits.claims import CLAIMED_FILE, claim, held_claims, remove_abandoned_claims
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.publish_commit import after_publish, new_entry, remove_files
from statestore.catalog.log.entries import CommitEntry, Horizon, entry_name, read_entry, write_entry
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import TEMPORARY, local_root
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.compaction import MINOR_DELTAS, SEAL_MIN_ROWS, Rewrite, compact, moved_closures
from statestore.formats.changelogs.changelog import store_of
from statestore.formats.changelogs.changelog_writer import try_adopt
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, ConflictError, StateStoreError
from statestore.formats.places.file_presence import names_in
from statestore.formats.places.local_directory import remove_abandoned
from statestore.formats.segments.segment_meta import FileRef, SegmentMeta

MAX_ATTEMPTS = 20

# Files that writers create and may leave behind when they die. Vacuum considers no other file, so it never removes a
# foreign file from the directory.
STAGING = "staging"
LEFT_BEHIND = re.compile(
    rf"segments/[0-9a-f]{{32}}(\.index|\.closures)?\.arrow|{STAGING}/.*|(.*/)?{re.escape(TEMPORARY)}\w+"
)


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
                return after_publish(storage, at, entry)
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


def run_expiry(files: SegmentFiles, base: LogState, horizon_time: int) -> LogState:
    """Expire moments before ``horizon_time`` (epoch microseconds): refuse them, and drop files that hold only them."""
    log_state = base
    while True:
        log_state = load_log_state(files.storage, base=log_state)
        horizon = _horizon(log_state, horizon_time)
        if horizon is None:
            return log_state
        removed = tuple(m.name for m in log_state.segments if _can_drop(log_state, m, horizon))
        entry = new_entry(log_state, "expire", NewFiles(), removed=removed, horizon=horizon)
        try:
            write_entry(files.storage, entry)
        except ConflictError:
            continue
        return after_publish(files.storage, log_state, entry)


def _horizon(log_state: LogState, time_us: int) -> Horizon | None:
    """Return the new horizon, or None if it would not be later than the present one."""
    current = log_state.horizon
    if current is not None and time_us <= current.time:
        return None
    before = np.flatnonzero(log_state.versions.stream_time <= time_us)
    return Horizon(time_us, int(before[-1]) if len(before) else 0)


def _can_drop(log_state: LogState, meta: SegmentMeta, horizon: Horizon) -> bool:
    if meta.role == "belief":
        return meta.max_dropped <= horizon.version
    pending = log_state.closures.get(meta.name, ())
    return meta.max_valid_to <= horizon.time and meta.last_closed <= horizon.version and not pending


@dataclass(frozen=True)
class Unneeded:
    """A file to which no version after the cutoff refers."""

    name: str
    bytes: int


def run_vacuum(files: SegmentFiles, base: LogState, older_than_us: int, dry_run: bool) -> list[Unneeded]:
    """Remove (or only list) files that were unneeded for ``older_than_us`` microseconds and are at least that old.

    Regardless of the clock, no file is removed that a commit under way may still name (`claims`).
    """
    storage = files.storage
    cutoff = time.time_ns() // 1000 - older_than_us
    # The order matters: a claim that is not held after its file was listed belongs to a commit that is in the log by
    # now or never will be.
    listed = [item for item in storage.list("") if LEFT_BEHIND.fullmatch(item.name) and item.modified_us <= cutoff]
    root = local_root(storage)
    claimed = set() if root is None else held_claims(root, {c for item in listed if (c := _claim_of(item.name))})
    newest = load_log_state(storage, base=base)
    files.check_identity()  # the listed files belong to this store, not to one that replaced it
    if not dry_run:
        storage.settle(entry_name(newest.version))  # a log that a power failure leaves must not need removed files
    needed = _needed_since(files, newest, cutoff)
    unneeded = [
        Unneeded(item.name, item.bytes)
        for item in listed
        if item.name not in needed and _claim_of(item.name) not in claimed and not _is_locked(root, item.name)
    ]
    if root is not None:
        unneeded += _of_other_stores(files, root, cutoff, dry_run)
    if not dry_run:
        folders = [] if root is None else _old_folders(root / STAGING, cutoff)
        for item in unneeded:  # changelogs are removed already
            storage.delete(item.name)
        if root is not None:
            remove_abandoned_claims(root)
            remove_abandoned()  # copies of the state that killed readers left in the temporary folder
            for folder in folders:
                with contextlib.suppress(OSError):  # not empty: a write is staged there
                    folder.rmdir()
    return unneeded


def _of_other_stores(files: SegmentFiles, root: Path, cutoff: int, dry_run: bool) -> list[Unneeded]:
    """Remove (or only list) changelogs that dead writers of a dropped store left in the folder of its successor.

    They are removed at once, under their locks. Raises NotFoundError STORE_REPLACED.
    """
    unneeded = []
    for name in names_in(root / CHANGELOGS):
        path = root / CHANGELOGS / name
        if (
            not OURS.fullmatch(name)
            or not _is_of_another(path, files.spec.store_id)
            or (adopted := try_adopt(path)) is None
        ):
            continue
        try:
            # Otherwise it may be the changelog of a store that replaced this one since the last look.
            files.check_identity()
            with contextlib.suppress(FileNotFoundError):
                about = path.stat()
                if about.st_mtime_ns // 1000 <= cutoff:
                    unneeded.append(Unneeded(f"{CHANGELOGS}/{name}", about.st_size))
                    if not dry_run:
                        adopted.discard()
        finally:
            adopted.close()
    return unneeded


def _is_of_another(path: Path, store_id: str) -> bool:
    try:
        return store_of(path) not in ("", store_id)
    except (StateStoreError, FileNotFoundError):  # reading the file reports the damage
        return False


def _claim_of(name: str) -> str | None:
    match = CLAIMED_FILE.fullmatch(name)
    return None if match is None else match[1]


def _is_locked(root: Path | None, name: str) -> bool:
    """Return whether a writer holds the lock of a temporary file, as of a changelog that is being made.

    A file that already has its final name is not locked.
    """
    if root is None or TEMPORARY not in name:
        return False
    try:
        file = os.open(root / name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        if os.fstat(file).st_nlink > 1:
            return False
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _old_folders(staging: Path, cutoff: int) -> list[Path]:
    """Return folders of Spark's writes that were not changed since ``cutoff``, innermost first, then their parent."""
    folders = []
    for folder, _, _ in os.walk(staging, topdown=False):
        with contextlib.suppress(OSError):
            if folder == str(staging) or Path(folder).stat().st_mtime_ns // 1000 <= cutoff:
                folders.append(Path(folder))
    return folders


def _needed_since(files: SegmentFiles, newest: LogState, cutoff: int) -> set[str]:
    """Return the files of every version that was the newest at some moment since ``cutoff``."""
    older = np.flatnonzero(newest.versions.timestamp <= cutoff)
    first = int(older[-1]) if len(older) else 0
    needed = file_names(newest)
    if first < newest.version:
        needed |= file_names(load_log_state(files.storage, version=first, store=files.spec.store_id))
        for version in range(first + 1, newest.version + 1):
            entry = read_entry(files.storage, version)
            refs = [ref for m in entry.added for ref in (m.file, m.index)] + [c.file for c in entry.closures]
            needed |= {ref.name for ref in refs if ref is not None}
    return needed


def file_names(log_state: LogState) -> set[str]:
    """Return the data files of a log state: segments, key indexes and closure lists."""
    refs: list[FileRef | None] = [ref for m in log_state.segments for ref in (m.file, m.index)]
    refs += [c.file for slices in log_state.closures.values() for c in slices]
    return {ref.name for ref in refs if ref is not None}

"""Vacuum: removal of files that no reader needs, and trimming of the log, without a cost for commits under way."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from statestore.catalog.commits.changelogs import CHANGELOGS, OURS
from statestore.catalog.commits.claims import CLAIMED_FILE, held_claims, remove_abandoned_claims
from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.leases import held_from, leased_versions, remove_expired_leases
from statestore.catalog.log.log_checkpoint import load_log_state
from statestore.catalog.log.log_state import LogState, file_names
from statestore.catalog.log.storage import TEMPORARY, ObjectInfo, Storage, local_root, own_folder
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.upkeep.log_trimming import PORTION, data_files_since, trim_log
from statestore.formats.changelogs.changelog import store_of
from statestore.formats.changelogs.changelog_writer import try_adopt
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.places.file_presence import names_in
from statestore.formats.places.local_directory import remove_abandoned

if TYPE_CHECKING:
    from statestore.catalog.upkeep.store_objects import ObjectsBelow

# Files that writers create and may leave behind when they die. Vacuum considers no other file, so it never removes a
# foreign file from the directory.
STAGING = "staging"
KEPT_US = 7 * 86_400_000_000  # how long files stay for which there are no leases
GRACE_US = 86_400_000_000  # least age of a file that is removed in an object store
LEFT_BEHIND = re.compile(
    rf"segments/[0-9a-f]{{32}}(\.index|\.closures|\.moves)?\.arrow|{STAGING}/.*|(.*/)?{re.escape(TEMPORARY)}\w+"
)


@dataclass(frozen=True)
class Unneeded:
    """A file that no version needs any more."""

    name: str
    bytes: int


def run_vacuum(
    files: SegmentFiles,
    base: LogState,
    older_than_us: int | None,
    dry_run: bool,
    pause: Callable[[], None] = lambda: None,
) -> list[Unneeded]:
    """Remove (or only list) files that were unneeded for ``older_than_us`` microseconds and are at least that old.

    None: data files go as soon as no version needs them which a reader has leased, all others after KEPT_US. Where
    readers cannot take leases, as in object stores, all files stay for KEPT_US. In any case no file is removed that a
    commit under way may still name (`claims`), or that a reader has leased (`leases`), whatever the clock says. In an
    object store, what rebuilds left below the store's name goes, too, by its name there.
    ``pause`` is called after each portion of files. Raises InvalidInputError INVALID_DURATION as `check_grace` does.
    """
    storage, root = files.storage, local_root(files.storage)
    if root is None and older_than_us is not None:
        check_grace(older_than_us, dry_run)
    cutoff = time.time_ns() // 1000 - (KEPT_US if older_than_us is None else older_than_us)
    below = None if root is not None else _objects_below(storage)
    listed = [i for i in (storage.list("") if below is None else below.own) if LEFT_BEHIND.fullmatch(i.name)]
    found = _unneeded(files, listed, base, cutoff, at_once=older_than_us is None)
    unneeded = found.unneeded
    if not dry_run:
        storage.settle(entry_name(found.newest.version))  # a log that a power failure leaves needs no removed file
    remains = [] if below is None else [Unneeded(item.name, item.bytes) for item in below.remains(cutoff)]
    own = own_folder(storage)
    if own is not None:
        unneeded += _of_other_stores(files, own, cutoff, dry_run)
    if not dry_run:
        folders = [] if root is None else _old_folders(root / STAGING, cutoff)
        _delete(storage, unneeded, pause)  # changelogs are removed already
        if below is not None:
            _delete(below.whole, remains, pause)
        files.close_replaced(found.newest)
        remove_abandoned()  # copies of the state that killed readers left in the temporary folder
        if root is not None:
            remove_abandoned_claims(root)
            remove_expired_leases(root)
            for folder in folders:
                with contextlib.suppress(OSError):  # not empty: a write is staged there
                    folder.rmdir()
    trimmed = trim_log(files, found.newest, cutoff, dry_run, pause)
    return unneeded + remains + [Unneeded(item.name, item.bytes) for item in trimmed]


def _objects_below(storage: Storage) -> ObjectsBelow:
    from statestore.catalog.upkeep.store_objects import ObjectsBelow  # loads what object stores need

    return ObjectsBelow.of(storage)


def check_grace(older_than_us: int, dry_run: bool) -> None:
    """Check the age from which vacuum removes files in an object store.

    There are no claims there, so the files of a commit that is under way are known by their age alone. Raises
    InvalidInputError INVALID_DURATION for less than GRACE_US, unless the files are only listed.
    """
    if older_than_us < GRACE_US and not dry_run:
        raise InvalidInputError(
            ErrorCode.INVALID_DURATION,
            f"older_than is {older_than_us // 1_000_000} s; expected at least {GRACE_US // 3_600_000_000} hours (or "
            "dry_run=True): in an object store only their age tells the files of a commit under way from those of a "
            "dead writer",
        )


def remove_replaced(files: SegmentFiles, base: LogState, pause: Callable[[], None] = lambda: None) -> int:
    """Remove the data files that neither the newest version needs, nor one that a reader has leased; return the bytes.

    These are the files that compactions replaced. Where readers cannot take leases, nothing is removed. ``pause`` is
    called after each portion of files.
    """
    if not files.is_local:
        return 0
    listed = files.storage.list("segments/")
    names = file_names(base)
    if all(item.name in names for item in listed):
        return 0
    listed = [item for item in listed if CLAIMED_FILE.fullmatch(item.name)]
    found = _unneeded(files, listed, base, cutoff=-(2**63), at_once=True)
    if found.unneeded:
        files.storage.settle(entry_name(found.newest.version))
    _delete(files.storage, found.unneeded, pause)
    files.close_replaced(found.newest)
    return sum(item.bytes for item in found.unneeded)


def _delete(storage: Storage, unneeded: Sequence[Unneeded], pause: Callable[[], None]) -> None:
    for first in range(0, len(unneeded), PORTION):
        storage.delete_many([item.name for item in unneeded[first : first + PORTION]])
        if first + PORTION <= len(unneeded):
            pause()


@dataclass(frozen=True)
class _NotNeeded:
    """The listed files that are not needed, and the log state that decided."""

    unneeded: list[Unneeded]
    newest: LogState


def _unneeded(
    files: SegmentFiles, listed: Sequence[ObjectInfo], base: LogState, cutoff: int, at_once: bool
) -> _NotNeeded:
    """Return those of the listed files that no commit under way, no version since ``cutoff`` (epoch microseconds) and
    no reader with a lease needs, and that are as old.

    ``at_once``: the age of data files and versions does not matter where readers can take leases.
    """
    root = local_root(files.storage)
    # The order matters: a claim that is not held after its file was listed belongs to a commit that is in the log by
    # now or never will be. A lease that is not there after the log was read is one on a version that is not older.
    claims = {claim for item in listed if (claim := _claim_of(item.name)) is not None}
    claimed = set() if root is None else held_claims(root, claims)
    newest = load_log_state(files.storage, base=base)
    files.log.check_identity()  # the listed files belong to this store, not to one that replaced it
    leased = None if root is None else leased_versions(root)
    at_once = at_once and leased is not None
    names = {item.name for item in listed if item.modified_us <= cutoff or (at_once and _claim_of(item.name))}
    needed = file_names(newest)
    if not names <= needed:
        if not at_once:
            needed |= _needed_since(files, newest, cutoff, names - needed)
        needed |= _leased(files, newest, leased or (), names - needed)
        held = None if root is None else held_from(root)
        if held is not None:
            needed |= _needed_from(files, newest, held, names - needed)
    unneeded = [
        Unneeded(item.name, item.bytes)
        for item in listed
        if item.name in names
        and item.name not in needed
        and _claim_of(item.name) not in claimed
        and not _is_locked(root, item.name)
    ]
    return _NotNeeded(unneeded, newest)


def _leased(files: SegmentFiles, newest: LogState, versions: Iterable[int], names: set[str]) -> set[str]:
    """Return those of the files that a leased version needs; all of them if such a version cannot be loaded."""
    needed: set[str] = set()
    log_state = None
    for version in sorted(version for version in versions if version < newest.version):
        try:
            log_state = load_log_state(files.storage, version=version, base=log_state, store=files.spec.store_id)
        except NotFoundError:
            return names
        needed |= names & file_names(log_state)
    return needed


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
            files.log.check_identity()
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


def _needed_since(files: SegmentFiles, newest: LogState, cutoff: int, names: set[str]) -> set[str]:
    """Return those of the files that a version needs which was the newest at some moment since ``cutoff``."""
    return _needed_from(files, newest, max(0, newest.versions.last_until("timestamp", cutoff)), names)


def _needed_from(files: SegmentFiles, newest: LogState, first: int, names: set[str]) -> set[str]:
    """Return those of the files that a version from ``first`` on needs, and that the newest does not need."""
    if first >= newest.version:
        return set()
    needed = names & file_names(load_log_state(files.storage, version=first, store=files.spec.store_id))
    return needed | data_files_since(files.storage, first, newest.version, names - needed)

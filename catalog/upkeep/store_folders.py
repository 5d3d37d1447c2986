"""Removal and replacement of a store's folder, so that no process ever sees half of it.

A folder is renamed first and removed after that. The parent is forced to the disk in between: otherwise a power failure
could bring the name back with half of the files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from statestore.catalog.commits.changelogs import CHANGELOGS
from statestore.catalog.commits.claims import FOLDER as CLAIMS
from statestore.catalog.commits.claims import alone_at_gates, any_claim_held
from statestore.catalog.commits.writer_lock import take_writer_lock
from statestore.catalog.log.entries import entry_name
from statestore.catalog.log.log_names import STORE_FILE
from statestore.catalog.log.storage import POLL, sync_folder
from statestore.catalog.log.store_spec import ID_DIGITS, REPLACED, stored_identity
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.file_presence import names_in
from statestore.formats.places.regular_files import MAX_METADATA_BYTES, read_regular

DROPPED = ".dropped-"
REBUILT = ".rebuilt-"
CLAIM_WAIT = 30.0  # seconds that a rebuild waits for commits that were under way


def remove_store(root: Path, name: str) -> None:
    """Remove the store ``name`` of the warehouse at ``root``, and the remains of its interrupted rebuilds.

    Raises ConflictError STORE_LOCKED while a writer holds it.
    """
    with disk_errors("remove the store in", root / name), _writer_kept_out(root, name):
        # The store itself goes last: a replaced store comes back if no store has its name.
        _remove_unfinished(root, name)
        for left in (*_of_store(root, REPLACED, name), name):
            (root / left).rename(root / f"{DROPPED}{uuid.uuid4().hex}")
            sync_folder(root)
        for doomed in names_in(root):  # also the remains of an interrupted drop
            if doomed.startswith(DROPPED):
                shutil.rmtree(root / doomed, ignore_errors=True)


@contextlib.contextmanager
def rebuilt_folder(root: Path, name: str) -> Iterator[Path]:
    """Create a folder in which a rebuild makes the new store.

    The folder is removed if the block fails, and by the next rebuild or drop if the process dies.
    """
    folder = root / f"{REBUILT}{uuid.uuid4().hex}-{name}"
    with disk_errors("rebuild the store in", folder):
        _remove_unfinished(root, name)
        folder.mkdir()
        try:
            with _held(folder):
                yield folder
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _remove_unfinished(root: Path, name: str) -> None:
    """Remove the folders of rebuilds that died."""
    for left in _of_store(root, REBUILT, name):
        with contextlib.suppress(FileNotFoundError), _held(root / left) as mine:
            if mine:
                shutil.rmtree(root / left, ignore_errors=True)


def replace_store(root: Path, name: str, folder: Path, store_id: str, version: int) -> None:
    """Replace the store ``name`` by the one in ``folder``, unless it is not ``store_id`` or has writes after
    ``version``.

    Writers that begin meanwhile wait for the outcome at the gates of the store. Raises ConflictError REBUILD_OVERTAKEN,
    which nobody else notices, STORE_LOCKED or STORE_BUSY.
    """
    target = root / name
    with disk_errors("replace the store in", target), _writer_kept_out(root, name):
        deadline = time.monotonic() + CLAIM_WAIT
        while True:
            if _was_written_to(target, store_id, version):
                raise _overtaken(name)
            with _held(target) as mine, alone_at_gates((target / CLAIMS, target / CHANGELOGS)) as alone:
                # Nobody takes a claim or makes a changelog from here on.
                if mine and alone and not any_claim_held(target):
                    if _was_written_to(target, store_id, version):
                        raise _overtaken(name)
                    _exchange(root, name, folder, store_id, version)
                    break
            if time.monotonic() > deadline:
                raise _busy(root, name) if not mine else _overtaken(name)
            time.sleep(POLL)
        for left in _of_store(root, REPLACED, name):  # also the remains of an interrupted rebuild
            shutil.rmtree(root / left, ignore_errors=True)


def _exchange(root: Path, name: str, folder: Path, store_id: str, version: int) -> None:
    """Move the store away, and the new one to its place."""
    target, replaced = root / name, root / f"{REPLACED}{uuid.uuid4().hex}-{name}"
    target.rename(replaced)
    # Writers of earlier releases know no gate. Their commits that had begun are waited for, and are then visible.
    if not _claims_given_up(replaced) or _was_written_to(replaced, store_id, version):
        replaced.rename(target)
        raise _overtaken(name)
    folder.rename(target)
    sync_folder(root)


def _overtaken(name: str) -> ConflictError:
    return ConflictError(
        ErrorCode.REBUILD_OVERTAKEN,
        f"store {name!r} was written to, or replaced, while it was rebuilt; close the writer, then rebuild again",
    )


def undo_replacement(root: Path, name: str) -> None:
    """Restore the store that an interrupted rebuild had moved away.

    Raises ConflictError STORE_BUSY while the rebuild is still running.
    """
    for folder_name in _of_store(root, REPLACED, name):
        path = root / folder_name
        deadline = time.monotonic() + CLAIM_WAIT
        while not (root / name).exists() and path.exists():
            with contextlib.suppress(FileNotFoundError), _held(path) as mine:
                if mine and not (root / name).exists():
                    path.rename(root / name)
                    return
            if time.monotonic() > deadline:
                raise _busy(root, name)
            time.sleep(POLL)


def _of_store(root: Path, prefix: str, name: str) -> list[str]:
    """Return the folders that rebuilds of a store have made."""
    return [
        folder_name
        for folder_name in names_in(root)
        if folder_name.startswith(prefix) and folder_name[len(prefix) + ID_DIGITS :] == f"-{name}"
    ]


@contextlib.contextmanager
def _writer_kept_out(root: Path, name: str) -> Iterator[None]:
    """Hold the lock of the store's writer, even while its folder is renamed."""
    lock = take_writer_lock(root / name, name)
    try:
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Hold a lock on a folder, also while its name is changed; yield False if another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _busy(root: Path, name: str) -> ConflictError:
    return ConflictError(
        ErrorCode.STORE_BUSY, f"store {name!r} in {root} is being rebuilt; try again when that has ended"
    )


def _claims_given_up(folder: Path) -> bool:
    deadline = time.monotonic() + CLAIM_WAIT
    while any_claim_held(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def _was_written_to(folder: Path, store_id: str, version: int) -> bool:
    if stored_identity(read_regular(folder / STORE_FILE, MAX_METADATA_BYTES)) != store_id:
        return True
    # Vacuum removes an entry only if there are thousands after it.
    later = (folder / entry_name(version + 1)).exists() or not (folder / entry_name(version)).exists()
    return later or bool(names_in(folder / CHANGELOGS))

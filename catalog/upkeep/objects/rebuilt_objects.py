"""Replacement of a store in an object store by a rebuilt one, of which nobody ever sees a half.

The new store is made in a folder of its own, with a description of its own. One create-only put then replaces the old
store: the last entry of its log, which names the folder. A commit of another writer that was first makes the rebuild
fail, and one that comes later finds its version taken, reads the entry, and is refused. So nothing is overwritten or
renamed, the store is there at each moment, and whoever opens it after that follows the entry.

An *intent* below ``log/_checkpoint/`` says in which version the entry may be found, because reading a whole old log to
its end would take too long. It is made first, and what it names belongs to the new store if the entry says so, and to
nobody if that version is another commit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from statestore.catalog.commits.changelogs import waiting_changelogs
from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.publish_commit import MOST_SECONDS, new_entry
from statestore.catalog.commits.store_owners import fence
from statestore.catalog.log.entries import REPLACE, decode_entry, entry_name, write_entry
from statestore.catalog.log.log_names import LOG_CHECKPOINTS, REPLACEMENT, replacement_name
from statestore.catalog.log.storage import make_directories, own_folder
from statestore.catalog.log.storage_objects import ObjectStorage
from statestore.catalog.log.storage_places import replaced_stores
from statestore.catalog.log.store_spec import StoreSpec, identity_guard
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CommitUnknownError, ConflictError, NotFoundError, StateStoreError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.file_presence import names_in

LOCAL = "rebuilt-"
"""The beginning of the names of directories in which this machine makes a new store."""
DELETED_AT_ONCE = 1_000


def replace_store(
    root: ObjectStorage, files: SegmentFiles, version: int, make: Callable[[ObjectStorage], None]
) -> None:
    """Replace the store of ``files``, whose newest version is ``version``, by the one that ``make`` makes.

    ``root`` is the storage of the store's name. Raises ConflictError, after which the store is as it was:
    REBUILD_OVERTAKEN if it was written to meanwhile, FILES_TOO_OLD if the rebuild took longer than a commit may.
    """
    old, folder, begun = files.storage, uuid.uuid4().hex, time.monotonic()
    assert isinstance(old, ObjectStorage)
    intent = replacement_name(version + 1, folder)
    with _private(root, folder) as local:
        new = replace(old.beside(root, folder), local=local)
        old.create(intent, b"", identity_guard(files.spec.store_id))
        try:
            make(new)
            _check_waiting(files)
            _check_age(files.spec, begun)
        except BaseException:
            _forget(root, old, intent, folder)
            raise
        _publish(root, files, version, intent, folder)
    with contextlib.suppress(StateStoreError, OSError):  # the store is replaced, whatever remains of the old one
        _remove_remains(root)


def _publish(root: ObjectStorage, files: SegmentFiles, version: int, intent: str, folder: str) -> None:
    """Write the entry that replaces the store."""
    old = files.storage
    try:
        log_state = files.log_state()
        if log_state.version != version:
            raise _overtaken(files.spec)
        write_entry(old, new_entry(log_state, REPLACE, NewFiles(), replacement=folder))
    except CommitUnknownError:
        if not _is_replaced(files):
            _forget(root, old, intent, folder)
            raise _overtaken(files.spec) from None
    except StateStoreError as error:  # any other exception, such as an interrupt, leaves the outcome unknown
        _forget(root, old, intent, folder)
        if error.code in (ErrorCode.VERSION_TAKEN, ErrorCode.STORE_REPLACED):
            raise _overtaken(files.spec) from None
        raise


def _is_replaced(files: SegmentFiles) -> bool:
    """Return whether an entry whose put was not answered is there; if not, it never will be."""
    try:
        fence(files, None)
    except NotFoundError as error:
        if error.code != ErrorCode.STORE_REPLACED:
            raise
        return True
    return False


def _check_waiting(files: SegmentFiles) -> None:
    """Raise ConflictError REBUILD_OVERTAKEN if writers of this machine have acknowledged writes meanwhile."""
    own = own_folder(files.storage)
    if own is not None and waiting_changelogs(files.storage, files.spec, files.log_state(), own):
        raise _overtaken(files.spec)


def _check_age(spec: StoreSpec, begun: float) -> None:
    """Raise ConflictError FILES_TOO_OLD if vacuum may soon take the new store for one of a dead rebuild."""
    if time.monotonic() - begun > MOST_SECONDS:
        raise ConflictError(
            ErrorCode.FILES_TOO_OLD,
            f"store {spec.name!r}: the rebuild began more than {MOST_SECONDS // 3600} hours ago, and vacuum removes "
            "files of that age that no commit names; the store is as it was; rebuild it with more cores (spark=), or "
            "write a new store in several commits",
        )


def _overtaken(spec: StoreSpec) -> ConflictError:
    return ConflictError(
        ErrorCode.REBUILD_OVERTAKEN,
        f"store {spec.name!r} was written to, or replaced, while it was rebuilt; close the writer, then rebuild again",
    )


def _forget(root: ObjectStorage, old: Any, intent: str, folder: str) -> None:
    """Remove what a rebuild made that replaced nothing; the next rebuild removes what remains."""
    with contextlib.suppress(Exception):
        _remove_folder(root, folder)
        old.delete(intent)


def _remove_folder(root: ObjectStorage, folder: str) -> None:
    whole = root.within("")
    _remove(whole, [item.name for item in whole.list(f"{folder}/")])


def _remove_remains(root: ObjectStorage) -> None:
    """Remove the data files of the stores that were replaced, and what rebuilds left that replaced none.

    A rebuild may have died just after it replaced a store, so those that were replaced earlier are looked at, too. The
    logs stay: they tell late writers and readers that the store was replaced.
    """
    for old in replaced_stores(root):
        assert isinstance(old, ObjectStorage)
        _remove(old, [item.name for item in old.list("segments/")])
        intents = [match for item in old.list(LOG_CHECKPOINTS) if (match := REPLACEMENT.fullmatch(item.name))]
        names = [entry_name(int(match[1])) for match in intents]
        for match, name, data in zip(intents, names, old.read_many(names), strict=True):
            # The entry that replaced the store is its last one, so a version that was trimmed was another commit.
            if data is None or decode_entry(name, data).replacement != match[2]:
                _forget(root, old, match[0], match[2])


def _remove(storage: ObjectStorage, names: list[str]) -> None:
    for first in range(0, len(names), DELETED_AT_ONCE):
        storage.delete_many(names[first : first + DELETED_AT_ONCE])


@contextmanager
def _private(root: ObjectStorage, folder: str) -> Iterator[Path | None]:
    """Make a directory for what this machine keeps of the new store until it is there, and remove it after that.

    Those of rebuilds that died are removed, too.
    """
    own = own_folder(root, make=True)
    if own is None:
        yield None
        return
    for left in names_in(own):
        if left.startswith(LOCAL):
            with contextlib.suppress(OSError), _held(own / left):
                shutil.rmtree(own / left, ignore_errors=True)
    path = own / f"{LOCAL}{folder}"
    with disk_errors("make the directory", path):
        make_directories(path)
    try:
        with _held(path):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a lock on a directory. Raises BlockingIOError if another process holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)

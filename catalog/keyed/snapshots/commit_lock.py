"""Mutual exclusion of a keyed store's commits and its vacuum by a system lock on the log's folder, not by a clock.

A commit shares the lock with other commits from the check of its files until the log names them. Vacuum holds the lock
alone while it reads the log and removes the files that the log does not name.

An object store has no locks. There a commit refuses files that are older than MOST_AGE_US, and vacuum removes none that
is younger than LEAST_US, twice as much. So a file that vacuum may remove has been named for half a day, or never will
be, unless a commit takes as long between its check and its log entry, or clocks differ by as much.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from statestore.catalog.log.storage import POLL, LocalStorage, Storage
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError
from statestore.formats.places.disk_errors import disk_errors, storage_error

LOCKED_FOLDER = "log"
LOCK_WAIT = 30.0  # seconds
MOST_AGE_US = 43_200_000_000
LEAST_US = 2 * MOST_AGE_US


@contextlib.contextmanager
def commit_lock(storage: Storage, *, alone: bool) -> Iterator[None]:
    """Hold the lock of a keyed store, if it can have one. Raises ConflictError STORE_BUSY after LOCK_WAIT,
    StorageError.
    """
    if not isinstance(storage, LocalStorage):
        yield
        return
    path = storage.root / LOCKED_FOLDER
    with disk_errors("open", path):
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + LOCK_WAIT
        while not _locked(file, path, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                holder = "a commit" if alone else "a vacuum"
                raise ConflictError(
                    ErrorCode.STORE_BUSY,
                    f"{path} has been held by {holder} for more than {LOCK_WAIT:.0f} seconds; try again later",
                )
            time.sleep(POLL)
        yield
    finally:
        os.close(file)


def _locked(file: int, path: Path, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise storage_error(error, "lock", path) from error
    return True

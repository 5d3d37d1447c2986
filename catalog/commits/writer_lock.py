"""A lock that allows one writer for each store directory; the operating system releases the lock of an owner that
dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import ConflictError, CorruptError
from statestore.formats.places.disk_errors import disk_errors

LOCK_FILE = "writer.lock"


def take_writer_lock(root: Path, store: str) -> int:
    """Take the lock of the store at ``root`` and return its file descriptor; closing the descriptor releases the lock.

    Raises, without waiting, ConflictError STORE_LOCKED, which names the process that holds the lock; StorageError
    DISK_FAILED; CorruptError LOCK_FILE if the lock's name belongs to something that is not a file.
    """
    path = root / LOCK_FILE
    with disk_errors("lock the store for writing", path):
        _refuse_other_than_file(path)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(file)
            os.close(file)
            who = "this process, by another handle" if owner == str(os.getpid()) else f"process {owner}"
            raise ConflictError(
                ErrorCode.STORE_LOCKED,
                f"store {store!r} is open for writing in {who} ({path}); close it there, or open it "
                "here with read_only=True to read the committed state",
            ) from None
        except BaseException:
            os.close(file)
            raise
        with contextlib.suppress(OSError):  # the lock is held even if its owner cannot be recorded
            os.ftruncate(file, 0)
            os.write(file, str(os.getpid()).encode())
        return file


def _refuse_other_than_file(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.stat().st_mode):
            raise CorruptError(
                ErrorCode.LOCK_FILE,
                f"{path} is not a regular file, so the store cannot be locked for writing; remove it",
            )


def _owner(file: int) -> str:
    with contextlib.suppress(OSError):
        return os.read(file, 32).decode("ascii", "replace").strip() or "unknown"
    return "unknown"

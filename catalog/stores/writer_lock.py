"""One writer per store directory: a lock that the system takes back from an owner that dies."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from statestore.formats.errors import ConflictError
from statestore.formats.regular_files import open_regular

LOCK_FILE = "writer.lock"


def take_writer_lock(root: Path, store: str) -> int:
    """The lock of the store at ``root``: a file descriptor, to be closed to give it up.

    Raises ConflictError STORE_LOCKED, naming the process that holds it, without waiting.
    """
    path = root / LOCK_FILE
    file = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(file, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(file)
        who = "this process, by another handle" if owner == str(os.getpid()) else f"process {owner}"
        raise ConflictError(
            "STORE_LOCKED",
            f"store {store!r} is open for writing in {who} ({path}); close it there, or open it here with "
            "read_only=True to read what is committed",
        ) from None
    os.ftruncate(file, 0)
    os.write(file, str(os.getpid()).encode())
    return file

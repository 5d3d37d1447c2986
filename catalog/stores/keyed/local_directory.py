"""Directories for the local files of backends: each belongs to a process, and those of dead processes are removed.

A directory is held by a lock that the system takes back from an owner that dies, so nobody has to tell the dead from
the living by their names or ages.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from statestore.formats.errors import InvalidInputError

_FOLDER = "statestore-keyed"
_LOCK = "owner.lock"
_NEW, _DEAD = "new-", "dead-"
_NEW_SECONDS = 3600
"""How long a directory may be without its lock."""
_OURS = re.compile(r"(new-|dead-|)[0-9a-f]{32}")
"""Nothing else is touched: users choose the folder, and may have their own ``new-orders`` in it."""


@dataclass(frozen=True)
class LocalDirectory:
    """A directory that is this process's until `remove`."""

    path: Path
    lock: int

    def remove(self) -> None:
        """With everything in it; to be called once."""
        _remove(self.path)
        os.close(self.lock)

    def remove_in(self, process: int) -> None:
        """The same, but nothing in a fork of the process whose it is."""
        if os.getpid() == process:
            self.remove()


def take_directory(parent: str | Path | None) -> LocalDirectory:
    """A new directory below ``parent``, by default in the system's temporary directory.

    Raises InvalidInputError FOREIGN_DIRECTORY.
    """
    root = Path(tempfile.gettempdir(), f"{_FOLDER}-{os.getuid()}") if parent is None else Path(parent)
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    if parent is None and root.stat(follow_symlinks=False).st_uid != os.getuid():
        raise InvalidInputError(
            "FOREIGN_DIRECTORY", f"{root} belongs to another user, who could change the state in it; give a directory="
        )
    remove_abandoned(root)
    name = uuid.uuid4().hex
    unfinished = root / f"{_NEW}{name}"
    unfinished.mkdir()
    lock = os.open(unfinished / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    unfinished.rename(root / name)
    return LocalDirectory(root / name, lock)


def remove_abandoned(root: Path) -> None:
    """Remove directories whose owners are dead; others that somebody put there stay."""
    for path in root.iterdir():
        name = _OURS.fullmatch(path.name)
        if name is None:
            continue
        if name[1] == _DEAD:
            shutil.rmtree(path, ignore_errors=True)
        elif name[1] == _NEW:
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < time.time() - _NEW_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)
        else:
            _remove_unless_held(path)


def _remove_unless_held(path: Path) -> None:
    with contextlib.suppress(OSError):  # held, no directory of ours, or removed meanwhile
        lock = os.open(path / _LOCK, os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        finally:
            os.close(lock)


def _remove(path: Path) -> None:
    """Under a name that says so first: who dies on the way may have removed the lock and not the rest."""
    doomed = path.with_name(f"{_DEAD}{path.name}")
    with contextlib.suppress(OSError):
        path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)

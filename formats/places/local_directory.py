"""Directories for local files that end with their process.

They hold a reader's own hot tier, a keyed backend's database, or copies of files for RocksDB to read. A directory is
held by a lock, which the system releases when its owner dies. So no process has to judge by names or ages which
directories are in use. Taking a directory removes those of dead processes, and so does vacuum.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.rocksdb_forks import leave_in_forks, nothing_to_leave

_FOLDER = "statestore-local"
_LOCK = "owner.lock"
_NEW, _DEAD = "new-", "dead-"
_ATTEMPTS = 100
_OURS = re.compile(r"(new-|dead-|)[0-9a-f]{32}")
"""The pattern of names that may be removed. Users choose the folder, and may have their own ``new-orders`` in it."""


@dataclass(frozen=True)
class LocalDirectory:
    """A directory that belongs to this process until `remove`."""

    path: Path
    lock: int
    process: int
    in_temporary: bool

    def remove(self) -> None:
        """Remove the directory with everything in it; call it once. Does nothing in a fork of the owner."""
        if os.getpid() != self.process:
            return
        nothing_to_leave(self.leave)
        remove_tree(self.path)
        os.close(self.lock)
        if self.in_temporary:
            _remove_empty(self.path.parent)

    def leave(self) -> None:
        """Give up the directory in a forked child: the lock belongs to the parent and ends with it."""
        with contextlib.suppress(OSError):
            os.close(self.lock)


def take_directory(parent: str | Path | None = None) -> LocalDirectory:
    """Make a new directory below ``parent``, by default in the system's temporary directory.

    Raises InvalidInputError FOREIGN_DIRECTORY, StorageError DISK_FAILED.
    """
    root = _temporary() if parent is None else Path(parent)
    with disk_errors("make a directory for local files", root):
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(FileNotFoundError):  # the folder or the directory was removed meanwhile
                try:
                    root.mkdir(mode=0o700, parents=True, exist_ok=True)
                except FileExistsError:
                    if root.exists() and not root.is_dir():
                        raise
                    continue  # the directory was removed meanwhile
                if parent is None and not _is_own_folder(root):
                    raise InvalidInputError(
                        ErrorCode.FOREIGN_DIRECTORY,
                        f"{root} belongs to another user, who could change the state in it; set TMPDIR, or give a "
                        "directory=",
                    )
                _sweep(root)
                return _taken(root, parent is None)
        raise FileNotFoundError(2, "each new directory is removed at once", str(root))


@contextlib.contextmanager
def temporary_directory() -> Iterator[Path]:
    """An empty folder in the system's temporary directory, removed after the block or after the process has died."""
    directory = take_directory()
    try:
        files = directory.path / "files"
        with disk_errors("make a folder", files):
            files.mkdir()
        yield files
    finally:
        directory.remove()


def remove_abandoned(root: Path | None = None) -> None:
    """Remove directories whose owners are dead, by default those in the system's temporary directory.

    Other directories stay, and so do those that cannot be removed.
    """
    with contextlib.suppress(OSError):
        if root is not None:
            _sweep(root)
        elif _is_own_folder(_temporary()):
            _sweep(_temporary())
            _remove_empty(_temporary())


def _temporary() -> Path:
    return Path(tempfile.gettempdir(), f"{_FOLDER}-{os.getuid()}")


def _is_own_folder(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _taken(root: Path, in_temporary: bool) -> LocalDirectory:
    name = uuid.uuid4().hex
    unfinished = root / f"{_NEW}{name}"
    unfinished.mkdir(mode=0o700)
    lock = -1
    try:
        lock = os.open(unfinished / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        unfinished.rename(root / name)
    except BaseException:
        if lock >= 0:
            os.close(lock)
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    found = LocalDirectory(root / name, lock, os.getpid(), in_temporary)
    leave_in_forks(found.leave)
    return found


def _sweep(root: Path) -> None:
    for path in list(root.iterdir()):
        name = _OURS.fullmatch(path.name)
        if name is None or path.is_symlink():
            continue
        if name[1] == _DEAD:
            shutil.rmtree(path, ignore_errors=True)
        elif name[1] == _NEW and _is_empty(path):  # the process that was about to lock it makes another one
            _remove_empty(path)
        else:
            _remove_unless_held(path)


def _is_empty(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return not any(path.iterdir())
    return False


def _remove_unless_held(path: Path) -> None:
    with contextlib.suppress(OSError):  # locked, not a directory of ours, or removed meanwhile
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(path)
        finally:
            os.close(lock)


def remove_tree(path: Path) -> None:
    """Rename the directory to a name that marks it for removal, then remove it.

    A process that dies on the way may have removed the lock and not the rest. Where nothing can be renamed, such as on
    a full disk, the lock is removed last.
    """
    doomed = path.with_name(f"{_DEAD}{path.name.removeprefix(_NEW)}")
    try:
        path.rename(doomed)
    except OSError:
        doomed = path
        with contextlib.suppress(OSError):
            for each in path.iterdir():
                if each.name != _LOCK:
                    shutil.rmtree(each, ignore_errors=True)
    shutil.rmtree(doomed, ignore_errors=True)


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not empty: other processes have directories there
        folder.rmdir()

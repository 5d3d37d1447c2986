"""Leases, which keep the files of a version from vacuum while a reader may still open some of them.

A reader that has planned a read takes a lease on the version whose log state it used, and gives it up when the read
ends. The lease is a shared lock of the operating system on one byte of the store's description: byte `FIRST` plus the
version, far behind the end of the file. So a lease needs no file of its own and no permission to write, two reads of
one version share nothing, and a process that dies has none. Vacuum asks which of these bytes are locked, and takes no
lock itself.

A *hold* is a lease on a version and all later ones, for tools that copy the store's folder file by file. It locks a
byte of its own, `HELD` plus the version.

A process that plans a read for others may end before they have read. It leaves a *timed lease*, an empty file below
``leases/`` whose name says the version and until when. On object stores, which have no locks, all leases would be
timed, and their readers would renew them.

The order of steps decides, and no clock (except for timed leases):

- A reader loads the newest log state, takes the lease, and looks again. If there is a newer version, it starts again.
- Vacuum loads the newest log state, and reads the leases after that: first the locks, then the timed ones, because a
  process gives up its lock after it has left a timed lease.

So vacuum sees the lease of each reader whose version was replaced before vacuum loaded the log.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import struct
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from statestore.catalog.log.log_names import STORE_FILE
from statestore.formats.places.disk_errors import storage_error
from statestore.formats.places.file_presence import names_in

Item = TypeVar("Item")

FIRST = 1 << 62  # the byte whose lock is a lease on version 0; versions are smaller than 10^18
HELD = FIRST + (1 << 60)
FOLDER = "leases"
LONGEST_US = 86_400_000_000  # a timed lease that claims to last longer is wrong, and ignored
TIMED = re.compile(r"([0-9]{20})-([0-9]{20})-[0-9a-f]{16}")

_COUNT = 1 << 60
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux
_HAS_LOCKS = sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK") and struct.calcsize("l") == 8
# File systems that have no such locks, and users who may not open the file although they can read the store.
_NOT_POSSIBLE = (errno.ENOLCK, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EACCES, errno.EPERM)


class _Lock:
    """Closes the file that has a lock.

    It is an object of its own, because an object whose ``__del__`` runs can still be had by a weak reference, and the
    locks of leases are shared by such references.
    """

    __slots__ = ("_file",)

    def __init__(self, file: int) -> None:
        self._file = file

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._file)


class Lease:
    """Keeps the files of a version from vacuum as long as the object, or a fork's copy of it, exists.

    A lease does not leave its process: it is pickled as None.
    """

    __slots__ = ("__weakref__", "_lock", "is_sure", "version")

    def __init__(self, version: int, file: int) -> None:
        self.version = version
        self.is_sure = False  # no later version existed when the lease was there
        self._lock = _Lock(file)

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _none, ()


def _none() -> None:
    """Return what a lease is in another process."""


def take_lease(root: Path, version: int, first: int = FIRST) -> Lease | None:
    """Take a lease (``first`` = HELD: a hold) on a version of the store at ``root``; None where that is not possible.

    Raises StorageError if the system refuses for another reason, such as too many open files.
    """
    if not _HAS_LOCKS:
        return None
    path = f"{root}/{STORE_FILE}"  # every read takes a lease, and a Path costs as much as the lock
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):  # the next look at the log reports that the store is gone
        return None
    except OSError as error:
        if error.errno in _NOT_POSSIBLE:
            return None
        raise storage_error(error, "lease a version by", path) from error
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, first + version, 1, 0))
    except OSError as error:
        os.close(file)
        if error.errno in _NOT_POSSIBLE:
            return None
        raise storage_error(error, "lease a version by", path) from error
    return Lease(version, file)


def holding(lease: Lease | None, items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items, and hold a lease until the last one."""
    yield from items
    del lease


def leave_lease(root: Path, version: int, seconds: float) -> None:
    """Leave a timed lease for readers in other processes; call it while a lease on the version is held.

    Where the store cannot be written, nothing is left, and a read that comes too late raises FILES_REPLACED.
    """
    expires = time.time_ns() // 1000 + round(seconds * 1_000_000)
    path = root / FOLDER / f"{version:020}-{expires:020}-{uuid.uuid4().hex[:16]}"
    with contextlib.suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def leased_versions(root: Path) -> set[int] | None:
    """Return the versions on which there is a lease; None where readers cannot take leases."""
    locked = _locked_versions(root, FIRST)
    if locked is None:
        return None
    return locked | {version for version, expires in _timed(root).values() if _lasts(expires)}


def held_from(root: Path) -> int | None:
    """Return the least version with a hold, None if there is none."""
    return min(_locked_versions(root, HELD) or (), default=None)


def remove_expired_leases(root: Path) -> None:
    """Remove timed leases that have expired."""
    for name, (_, expires) in _timed(root).items():
        if not _lasts(expires):
            with contextlib.suppress(OSError):
                (root / FOLDER / name).unlink()


def _lasts(expires: int) -> bool:
    now = time.time_ns() // 1000
    return now < expires <= now + LONGEST_US


def _timed(root: Path) -> dict[str, tuple[int, int]]:
    """Return (version, time of the end in epoch microseconds) of each timed lease, by name."""
    matches = {name: TIMED.fullmatch(name) for name in names_in(root / FOLDER)}
    return {name: (int(match[1]), int(match[2])) for name, match in matches.items() if match is not None}


def _locked_versions(root: Path, first: int) -> set[int] | None:
    if not _HAS_LOCKS:
        return None
    try:
        file = os.open(root / STORE_FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return {byte - first for byte in _locked_in(file, first, _COUNT)}
    except OSError:
        return None
    finally:
        os.close(file)


def _locked_in(file: int, first: int, count: int) -> Iterator[int]:
    """Yield the locked bytes among ``count`` bytes; the system names one of them at a time."""
    ranges = [(first, count)]
    while ranges:
        first, count = ranges.pop()
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, first, count, 0)
        kind, _, start, length, _ = _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            continue
        if length != 1:
            raise OSError(errno.EINVAL, "no lease of this release")  # so nothing is known
        yield start
        ranges += [(at, end - at) for at, end in ((first, start), (start + 1, first + count)) if at < end]

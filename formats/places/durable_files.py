"""Files and names that last: what was written below a folder reaches the disk before this returns.

A sync of one file waits for the disk, and a folder may have a hundred thousand. Linux writes a whole file system at
once (syncfs), and since 5.8 reports what failed. That is relied on for many files, where the file system is one of a
disk. Over the network, or in a layer above another one, the call need not reach the disk, and files are synced one by
one; so are few files, which need not wait for what other programs have written.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import stat
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from statestore.formats.places.reading_threads import for_each

_OF_DISKS = {"ext2", "ext3", "ext4", "xfs", "f2fs", "tmpfs"}
_FIRST_THAT_REPORTS = (5, 8)
_FEW = 512
_THREADS = 16
"""Syncs under way at a time, which the journal of a file system writes together."""


def sync_tree(root: str) -> None:
    """Make a folder durable, with all files and folders below it. Raises OSError."""
    paths = _below(root)
    first = list(islice(paths, _FEW))
    if len(first) == _FEW:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if _is_of_disk(os.fstat(descriptor).st_dev) and _sync_file_system(descriptor):
                return
        finally:
            os.close(descriptor)
    for_each(sync_path, chain(first, paths), _THREADS)


def _below(root: str) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118 (many paths)
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield path
        yield folder


def sync_path(path: str) -> None:
    """Make one file durable, or the names in a folder. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_of_disk(device: int) -> bool:
    """Return whether a device is a file system that one call syncs, and says so if that failed."""
    numbers = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _FIRST_THAT_REPORTS:
        return False
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    found = {line.partition(" - ")[2].split(" ")[0] for line in mounts if line.split(" ")[2] == wanted}
    return bool(found) and found <= _OF_DISKS


def _sync_file_system(descriptor: int) -> bool:
    """Write the file system of an open file to its disk; return False where there is no such call. Raises OSError."""
    call = _syncfs()
    if call is None:
        return False
    if call(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True


@functools.cache
def _syncfs() -> ctypes._NamedFuncPointer | None:
    try:
        return ctypes.CDLL(None, use_errno=True).syncfs
    except (AttributeError, OSError):
        return None

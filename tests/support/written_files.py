"""Writes to the files of a folder, by any process and under any name of a file, as Linux tells them (inotify)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MODIFIED, _CLOSED_AFTER_WRITING, _MOVED, _CREATED, _DELETED = 0x2, 0x8, 0xC0, 0x100, 0x200
_OVERFLOWN = 0x4000
_EVENT = struct.Struct("iIII")


@contextmanager
def nothing_written(folder: Path) -> Iterator[None]:
    """Fail unless the files below a folder stay as they are in the block, and none of them is opened for writing."""
    library = ctypes.CDLL(None, use_errno=True)
    watcher = library.inotify_init1(os.O_NONBLOCK)
    assert watcher >= 0, os.strerror(ctypes.get_errno())
    try:
        names = {}
        for path in (folder, *folder.rglob("*")):
            kinds = _MODIFIED | _CLOSED_AFTER_WRITING
            if path.is_dir():
                kinds |= _MOVED | _CREATED | _DELETED
            number = library.inotify_add_watch(watcher, os.fsencode(path), kinds)
            assert number >= 0, os.strerror(ctypes.get_errno())
            names[number] = path
        yield
        found = sorted({f"{names.get(number, '')}: {name}" for number, name in _events(watcher)})
        assert not found, found
    finally:
        os.close(watcher)


def _events(watcher: int) -> Iterator[tuple[int, str]]:
    """Yield the numbers of watches that have seen something, with what it was."""
    while True:
        try:
            data = os.read(watcher, 1 << 16)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            number, kinds, _, length = _EVENT.unpack_from(data, at)
            assert not kinds & _OVERFLOWN
            at += _EVENT.size + length
            yield number, f"{kinds:#x} {data[at - length : at].rstrip(bytes(1)).decode()}"

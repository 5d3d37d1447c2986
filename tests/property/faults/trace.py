"""The calls that a process made, as the fault library recorded them, as changes of files and names."""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

HEAD = struct.Struct("<IiqqIII")


class Call(IntEnum):
    """A call, as defined in syscalls.c."""

    OPEN = 1
    CLOSE = 2
    WRITE = 3
    TRUNCATE = 4
    SYNC = 5
    LINK = 6
    RENAME = 7
    UNLINK = 8
    MKDIR = 9
    RMDIR = 10
    MARK = 11
    LOCK = 12


@dataclass(frozen=True)
class Step:
    """One change. ``do``: "mark" (``name`` the text), "add" (``name`` for ``file``; ``folder``: whether it is one),
    "move" (``source`` to ``name``), "remove", "write" (``data`` at ``offset`` of ``file``), "cut" (to ``offset``) or
    "sync" (of ``file``, which at this moment is called ``name``)."""

    do: str
    name: str = ""
    source: str = ""
    file: int = -1
    folder: bool = False
    offset: int = 0
    data: bytes = b""


def read_trace(path: Path, root: str) -> list[Step]:
    """The changes of everything below ``root``, which is file 0."""
    data = path.read_bytes()
    follower = _Follower(root)
    at = 0
    while at < len(data):
        what, fd, first, second, name, other, size = HEAD.unpack_from(data, at)
        at += HEAD.size
        texts = data[at : at + name].decode("utf-8", "surrogateescape"), data[at + name : at + name + other].decode()
        at += name + other
        follower.take(Call(what), fd, first, second, *texts, data[at : at + size])
        at += size
    return follower.steps


class _Follower:
    """Tracks the file behind each name and descriptor."""

    def __init__(self, root: str) -> None:
        self.steps: list[Step] = []
        self._files = {root: 0}
        self._names: dict[int, list[str]] = defaultdict(list, {0: [root]})
        self._open: dict[int, int] = {}
        self._next = 1

    def take(self, what: Call, fd: int, first: int, second: int, name: str, other: str, data: bytes) -> None:
        if what is Call.MARK:
            self.steps.append(Step("mark", name))
        elif what is Call.OPEN:
            self._take_open(fd, first, second, name)
        elif what is Call.CLOSE:
            self._open.pop(fd, None)
        elif what is Call.WRITE and fd in self._open:
            self.steps.append(Step("write", file=self._open[fd], offset=first, data=data))
        elif what is Call.TRUNCATE:
            file = self._open.get(fd, -1) if fd >= 0 else self._files.get(name, -1)
            self.steps.append(Step("cut", file=file, offset=first))
        elif what is Call.SYNC and fd in self._open:
            file = self._open[fd]
            self.steps.append(Step("sync", name=next(iter(self._names[file]), ""), file=file))
        elif what is Call.LINK:
            self._link(self._source(name), other)
        elif what is Call.RENAME:
            self._rename(name, other)
        elif what in (Call.UNLINK, Call.RMDIR):
            self._remove(name)
        elif what is Call.MKDIR:
            self._add(name, folder=True)

    def _take_open(self, fd: int, flags: int, created: int, name: str) -> None:
        if created == 2:  # without a name
            self._open[fd] = self._next
            self._next += 1
            return
        if created or name not in self._files:
            if not created:
                return  # was there before the trace began, and is no file of ours
            self._add(name, folder=False)
        self._open[fd] = self._files[name]
        if flags & os.O_TRUNC:
            self.steps.append(Step("cut", file=self._files[name], offset=0))

    def _source(self, name: str) -> int:
        prefix = "/proc/self/fd/"
        return self._open.get(int(name[len(prefix) :]), -1) if name.startswith(prefix) else self._files.get(name, -1)

    def _add(self, name: str, folder: bool) -> None:
        self._files[name] = self._next
        self._names[self._next].append(name)
        self.steps.append(Step("add", name, file=self._next, folder=folder))
        self._next += 1

    def _link(self, file: int, name: str) -> None:
        if file >= 0:
            self._files[name] = file
            self._names[file].append(name)
            self.steps.append(Step("add", name, file=file))

    def _rename(self, source: str, name: str) -> None:
        self._forget(name)
        self.steps.append(Step("move", name, source, self._files.get(source, -1)))
        for old in [path for path in self._files if path == source or path.startswith(source + "/")]:
            file, new = self._files.pop(old), name + old[len(source) :]
            self._files[new] = file
            self._names[file] = [new if path == old else path for path in self._names[file]]

    def _remove(self, name: str) -> None:
        self._forget(name)
        self.steps.append(Step("remove", name))

    def _forget(self, name: str) -> None:
        file = self._files.pop(name, None)
        if file is not None:
            self._names[file].remove(name)

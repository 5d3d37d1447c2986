"""Counting of what reads take from storage: rows before any filter is applied to them, files, and bytes."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest

from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.reads import scan

P = ParamSpec("P")
T = TypeVar("T")
_OPENED, _IS_FOLDER, _NEVER_WAIT = 0x20, 0x40000000, 0o4000
_EVENT = struct.Struct("iIII")


class RowsRead:
    """``rows``: the number that engines decoded, or that were taken from segments, by the read of the last `of`;
    ``batches``: the number of batches of them that had rows."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.rows = self.batches = 0
        for owner, name in ((EngineTable, "_rows"), (scan, "_all_rows")):
            patch.setattr(owner, name, self._counted(getattr(owner, name)))
        taken = scan._columns_at

        def counted(*given: Any) -> Any:
            return self._count(taken(*given))

        patch.setattr(scan, "_columns_at", counted)

    def of(self, read: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Return the answer of a read, and count what it takes."""
        self.rows = self.batches = 0
        return read(*given, **named)

    def _counted(self, read: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def counted(*given: Any) -> Iterator[Any]:
            for found in read(*given):
                self._count(found[1] if isinstance(found, tuple) else found)
                yield found

        return counted

    def _count(self, batch: Any) -> Any:
        self.rows += batch.num_rows
        self.batches += batch.num_rows > 0
        return batch


class BytesRead:
    """The bytes and files that this process reads, whatever library reads them.

    ``bytes``: those that the read of the last `of` asked the system for, in any file, and with ``mapped`` the pages
    that it touched of files below the folder that were mapped before. ``opened``: the files below the folder that it
    opened, sorted.
    """

    def __init__(self, folder: Path, *, mapped: bool = False) -> None:
        self.folder = folder.resolve()
        self.mapped = mapped
        self.bytes = 0
        self.opened: list[Path] = []

    def of(self, read: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Return the answer of a read, and count what it takes."""
        libc = ctypes.CDLL(None, use_errno=True)
        watch = libc.inotify_init1(_NEVER_WAIT)
        assert watch >= 0, os.strerror(ctypes.get_errno())
        try:
            folders = [self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())]
            numbers = {libc.inotify_add_watch(watch, os.fsencode(path), _OPENED): path for path in folders}
            if self.mapped:
                Path("/proc/self/clear_refs").write_text("1")  # no page is touched now
            asked = _asked()
            found = read(*given, **named)
            self.bytes = _asked() - asked + (_touched(str(self.folder)) if self.mapped else 0)
            self.opened = sorted(set(_opened(watch, numbers)))
        finally:
            os.close(watch)
        return found


def _asked() -> int:
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


def _touched(folder: str) -> int:
    """Return the bytes of the pages of mapped files below a folder that were touched since the marks were cleared."""
    total, is_below = 0, False
    for line in Path("/proc/self/smaps").read_text(errors="surrogateescape").splitlines():
        name, *rest = line.split(None, 5)
        if not name.endswith(":"):
            is_below = rest[-1].startswith(folder)
        elif is_below and name == "Referenced:":
            total += int(rest[0]) << 10
    return total


def _opened(watch: int, folders: dict[int, Path]) -> Iterator[Path]:
    while True:
        try:
            events = os.read(watch, 1 << 20)
        except BlockingIOError:
            return
        at = 0
        while at < len(events):
            number, kind, _, length = _EVENT.unpack_from(events, at)
            name = events[at + _EVENT.size :][:length].rstrip(b"\0")
            at += _EVENT.size + length
            if name and not kind & _IS_FOLDER:
                yield folders[number] / os.fsdecode(name)

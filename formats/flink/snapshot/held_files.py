"""Files of a checkpoint that are kept open, so that they can be read after Flink has removed them.

A job with ``num-retained: 1`` removes a checkpoint as soon as the next one is complete, which may be sooner than a
statement over several states has read it. An open file keeps its bytes, and changes nothing that others see. A hard
link would change the file's time of change, which backups look at.

A removed file takes space on the disk as long as it is open, and handles may live long. So a process keeps the files of
the MOST_HELD checkpoints that were opened last, and of those that are being read. Of older ones, and on a system that
does not show open files as paths, a read that loses its files is begun again.
"""

from __future__ import annotations

import contextlib
import os
import resource
import stat
import threading
import weakref
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

MOST_HELD = 4
OPEN_FILES = Path("/proc/self/fd")  # of Linux
_PART = 3  # of the files that the process may open, one in so many is for those that are kept
_lock = threading.Lock()
_kept: list[weakref.ref[HeldFiles]] = []  # the one opened last at the end
_all: weakref.WeakSet[OpenFiles] = weakref.WeakSet()


class OpenFiles:
    """Open files by the path that they had. They are closed with the last reference to this object."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = dict(numbers)
        _all.add(self)
        weakref.finalize(self, _close, tuple(numbers.values())).atexit = False

    def __len__(self) -> int:
        return len(self._numbers)

    def size(self, path: str) -> int | None:
        """The bytes of a file that had this path, None where it is not open."""
        number = self._numbers.get(path)
        return None if number is None else os.fstat(number).st_size

    def path(self, path: str) -> str | None:
        """A path by which this process can open a file that had this one, None where it is not open."""
        number = self._numbers.get(path)
        return None if number is None else str(OPEN_FILES / str(number))


class HeldFiles:
    """The open files of a checkpoint, until others take their place.

    ``open``: who reads keeps a reference to it meanwhile; None: they are not kept any more. ``lacks``: for some of the
    files that were asked for there was none.
    """

    def __init__(self, files: OpenFiles, *, lacks: bool) -> None:
        self.open: OpenFiles | None = files
        self.lacks = lacks


def hold(wanted: Collection[Sequence[str]]) -> HeldFiles | None:
    """Open the first file that is there of each of these series of local paths.

    None where the system does not show open files, or where the process would keep too many of them open.
    """
    if not wanted or not OPEN_FILES.is_dir() or not _has_room(len(wanted)):
        return None
    numbers: dict[str, int] = {}
    lacks = False
    for paths in wanted:
        found = _first(paths)
        lacks = lacks or found is None
        if found is not None and found[0] not in numbers:
            numbers[found[0]] = found[1]
        elif found is not None:
            os.close(found[1])
    held = HeldFiles(OpenFiles(numbers), lacks=lacks)
    with _lock:
        _kept.append(weakref.ref(held))
    _let_go(MOST_HELD)
    return held


def _let_go(most: int) -> None:
    """Keep the files of so many checkpoints, beside those that are being read."""
    with _lock:
        kept = [(each, held) for each in _kept if (held := each()) is not None and held.open is not None]
        _kept[:] = [each for each, _ in kept[len(kept) - min(most, len(kept)) :]]
    for _, held in kept[: len(kept) - min(most, len(kept))]:
        held.open = None


def _first(paths: Sequence[str]) -> tuple[str, int] | None:
    for path in paths:
        with contextlib.suppress(OSError):
            # Opening a pipe would wait for a writer.
            number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            if stat.S_ISREG(os.fstat(number).st_mode):
                return path, number
            os.close(number)
    return None


def _has_room(number: int) -> bool:
    """Let go of others until so many more files can be kept open; False where that is not enough."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _PART
    for kept in (MOST_HELD, 1, 0) if number <= most else ():
        _let_go(kept)
        if sum(map(len, list(_all))) + number <= most:
            return True
    return False


def _close(numbers: tuple[int, ...]) -> None:
    for number in numbers:
        os.close(number)

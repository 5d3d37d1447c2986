"""RocksDB and forks.

A forked child lacks the threads with which RocksDB flushes and compacts. A database in the child would wait for them
for ever: at its first flush, when it is closed, and when the process ends. A child of a process that has opened a
database may open databases to read, and none to write. Databases that it inherited are left to the parent: no call of
RocksDB is made for them, not even by the garbage collector.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable
from typing import Any

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError


class _Process:
    """Use of RocksDB by this process; a fork inherits ``used``."""

    used = False  # RocksDB was used, so its threads may exist
    forked = False  # the process is a fork of one that used RocksDB: the threads do not exist and cannot be started
    at_exit: tuple[Any, ...] = ()  # C's on_exit, _exit and fcloseall; loading them may block in a fork


_inherited: set[weakref.WeakMethod[Callable[[], None]]] = set()


def using_rocksdb() -> None:
    """Note that this process uses RocksDB. Call it before opening a database in any mode."""
    if not _Process.used:
        with contextlib.suppress(AttributeError, OSError):  # on_exit is glibc's
            library = ctypes.CDLL(None)
            end, flush = (ctypes.cast(found, ctypes.c_void_p) for found in (library._exit, library.fcloseall))
            _Process.at_exit = library.on_exit, end, flush
        _Process.used = True


def writing_rocksdb() -> None:
    """Note that this process writes with RocksDB. Call it before opening a database for writing.

    Raises UnsupportedError FORKED.
    """
    if _Process.forked:
        raise forked_error("a RocksDB database cannot be opened for writing")
    using_rocksdb()


def forked_error(what: str) -> UnsupportedError:
    """The error for an operation that a forked child cannot do."""
    return UnsupportedError(
        ErrorCode.FORKED,
        f"{what} in process {os.getpid()}: it was forked from a process that had used RocksDB, whose threads are not "
        'in the fork; start processes with multiprocessing\'s method "spawn" or "forkserver", or fork before the first '
        "live store or keyed backend is used",
    )


def leave_in_forks(leave: Callable[[], None]) -> None:
    """Call a method in forked children, right after the fork, if its object is alive then.

    The method gives up what belongs to the parent, without a call of RocksDB. An object that is used further in the
    child registers again there.
    """
    _inherited.add(weakref.WeakMethod(leave, _inherited.discard))


def nothing_to_leave(leave: Callable[[], None]) -> None:
    """Take back `leave_in_forks` once the object has given up what it held.

    Its descriptors may soon be those of other files, which a child must not close.
    """
    _inherited.discard(weakref.WeakMethod(leave))


def keep_for_ever(*natives: object) -> None:
    """Keep objects from ever being freed: their destructors would call RocksDB."""
    for native in natives:
        if native is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))


def _after_fork() -> None:
    methods = [found for each in list(_inherited) if (found := each()) is not None]
    _inherited.clear()
    for leave in methods:
        leave()
    if _Process.used:
        _Process.forked = True
        _exit_without_destructors()


def _exit_without_destructors() -> None:
    """Flush C's streams and end the process with its status, in place of RocksDB's destructors.

    The destructors would join threads that do not exist, which aborts the process. By then Python has run its own exit
    handlers. (`os._exit`, as in multiprocessing's children, runs no destructors anyway.)
    """
    if _Process.at_exit:
        on_exit, end, flush = _Process.at_exit
        on_exit(end, None)  # called last: on_exit runs functions in reverse order
        on_exit(flush, None)


os.register_at_fork(after_in_child=_after_fork)

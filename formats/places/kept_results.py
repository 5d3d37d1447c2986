"""Cache of what was made of local files, such as parsed indexes, for later questions; it is bounded in bytes.

What is kept is used as long as the files of which it was made are as they were, by their stamps. What was not used for
the longest time goes first. Nothing that is kept holds a file open.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

from statestore.formats.places.file_stamps import FileStamps, settled_stamps

MOST_BYTES = 64 << 20
"""Upper bound of what is kept by a process."""
MOST_OF_A_RESULT = 8 << 20
OVERHEAD = 2048
"""Bytes that any result takes besides its content: its stamps and objects."""
T = TypeVar("T")


@dataclass(frozen=True)
class _Kept:
    stamps: FileStamps
    result: Any
    bytes: int


_results: OrderedDict[Hashable, _Kept] = OrderedDict()
_lock = Lock()
_bytes = 0


def kept_result(key: Hashable, paths: Sequence[str], make: Callable[[], tuple[T, int]]) -> T:
    """Return what ``make`` makes of the files at ``paths``, or made of them before and nobody may change.

    ``make`` also returns how many bytes its result takes; a result of more than MOST_OF_A_RESULT is not kept. Raises
    its errors.
    """
    with _lock:
        found = _results.get(key)
        if found is not None:
            _results.move_to_end(key)
    if found is not None and found.stamps.still_hold():
        result: T = found.result
        return result
    begun = time.time()
    result, size = make()
    stamps = settled_stamps(paths, begun) if size <= MOST_OF_A_RESULT else None
    _forget(key)
    if stamps is not None:
        _keep(key, _Kept(stamps, result, size + OVERHEAD))
    return result


def kept_bytes() -> int:
    """Return how many bytes are kept."""
    return _bytes


def forget_results() -> None:
    """Forget all results."""
    global _bytes
    with _lock:
        _results.clear()
        _bytes = 0


def _keep(key: Hashable, kept: _Kept) -> None:
    global _bytes
    with _lock:
        before = _results.pop(key, None)
        _bytes += kept.bytes - (0 if before is None else before.bytes)
        _results[key] = kept
        while _bytes > MOST_BYTES:
            _bytes -= _results.popitem(last=False)[1].bytes


def _forget(key: Hashable) -> None:
    global _bytes
    with _lock:
        before = _results.pop(key, None)
        _bytes -= 0 if before is None else before.bytes


def _new_lock() -> None:
    """Replace the lock in a fork: a thread that the child lacks may have held it."""
    global _lock
    _lock = Lock()


os.register_at_fork(after_in_child=_new_lock)

"""Parts of objects that this process has fetched, so that nothing that cannot change is fetched twice.

A part is kept under the object's path, length and time of change. An object of a second ago may be replaced by another
one of the same length and time, so it is not kept (`is_settled`).
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock

MOST_BYTES = 64 << 20
"""Upper bound of what is kept by a process; the parts that were not used for the longest time go first."""
MOST_OF_A_PART = 4 << 20
SETTLED_SECONDS = 2.0
"""Storages report times of change in whole seconds."""

_parts: OrderedDict[Hashable, bytes] = OrderedDict()
_lock = Lock()
_bytes = 0


def is_settled(modified: float, since: float | None = None) -> bool:
    """Return whether an object with this time of change (epoch seconds) gets another one if it is replaced from now on.

    ``since``: the moment from which on, in place of now.
    """
    return (time.time() if since is None else since) - modified >= SETTLED_SECONDS


def kept_part(key: Hashable) -> bytes | None:
    """Return a part that was fetched before, if it is still kept."""
    with _lock:
        found = _parts.get(key)
        if found is not None:
            _parts.move_to_end(key)
        return found


def keep_part(key: Hashable, data: bytes) -> None:
    """Keep a part, unless it is larger than MOST_OF_A_PART."""
    global _bytes
    if len(data) > MOST_OF_A_PART:
        return
    with _lock:
        _bytes += len(data) - len(_parts.pop(key, b""))
        _parts[key] = data
        while _bytes > MOST_BYTES:
            _bytes -= len(_parts.popitem(last=False)[1])


def _new_lock() -> None:
    """Replace the lock in a fork: a thread that the child lacks may have held it."""
    global _lock
    _lock = Lock()


os.register_at_fork(after_in_child=_new_lock)


def forget_parts() -> None:
    """Forget all parts."""
    global _bytes
    with _lock:
        _parts.clear()
        _bytes = 0

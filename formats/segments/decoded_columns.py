"""Columns of segments that took time or memory to make, kept within a bound in bytes and shared by a process.

Arrow counts the references to memory, so arrays that were handed out stay valid when they are no longer kept here.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

DECODED_BYTES = 256 << 20
SEARCHED_BYTES = 16 << 20
ONCE = 1 << 12  # keys of arrays that were needed once

_numbers = count()


class DecodedColumns:
    """Arrays by segment and column, of at most ``limit`` bytes together; those that were used last are kept.

    One array that is larger than all of ``limit`` is kept until the next comes.
    """

    def __init__(self, limit: int = DECODED_BYTES) -> None:
        self.limit = limit
        self.bytes = 0
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, ...], tuple[Any, int]] = OrderedDict()
        self._once: OrderedDict[tuple[int, ...], None] = OrderedDict()
        self._gone: deque[int] = deque()

    def keep_for(self, owner: object) -> int:
        """Return the first member of all keys of an object; its arrays are dropped after the object has gone."""
        number = next(_numbers)
        # The collector may run this in the middle of any other call here, which holds the lock.
        weakref.finalize(owner, self._gone.append, number).atexit = False
        return number

    def get(self, key: tuple[int, ...], make: Callable[[], tuple[Any, int]], for_few: bool = False) -> Any:
        """Return the array of ``key``, and make it if it is not kept; ``make`` returns it and its size in bytes.

        An array of no bytes of its own is not kept, nor one that is needed ``for_few`` of its cells the first time:
        memory that is used again at once costs less than memory that grows. Two threads may make the same array at the
        same time.
        """
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found[0]
        array, size = make()
        with self._lock:
            while self._gone:
                self._drop(self._gone.popleft())
            if for_few and not self._was_needed(key):
                return array
            if size and key not in self._kept:
                self._kept[key] = array, size
                self.bytes += size
                while self.bytes > self.limit and len(self._kept) > 1:
                    _, (_, dropped) = self._kept.popitem(last=False)
                    self.bytes -= dropped
        return array

    def _was_needed(self, key: tuple[int, ...]) -> bool:
        """Return whether an array was needed before, and note that it is needed now."""
        if key in self._once:
            return True
        self._once[key] = None
        if len(self._once) > ONCE:
            self._once.popitem(last=False)
        return False

    def get_kept(self, keys: Sequence[tuple[int, ...]]) -> list[Any]:
        """Return the arrays of these keys, None for those that are not kept."""
        kept = self._kept
        with self._lock:
            found = [kept.get(key) for key in keys]
            for key, array in zip(keys, found, strict=True):
                if array is not None:
                    kept.move_to_end(key)
        return [None if array is None else array[0] for array in found]

    def forget(self, owner: int) -> None:
        """Drop the arrays of an object that `keep_for` numbered."""
        with self._lock:
            self._drop(owner)

    def _drop(self, owner: int) -> None:
        for key in [key for key in self._kept if key[0] == owner]:
            self.bytes -= self._kept.pop(key)[1]

    def renew_lock(self) -> None:
        """Replace the lock, which a thread that a forked child does not have may have held."""
        self._lock = threading.Lock()


decoded = DecodedColumns()
# Times in which plans search: a read of all columns does not displace them, and a plan of thirty blocks takes ten times
# as long where it has to decompress them.
searched_times = DecodedColumns(SEARCHED_BYTES)
for _each in (decoded, searched_times):
    os.register_at_fork(after_in_child=_each.renew_lock)

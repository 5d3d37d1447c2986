"""A scan of one database of a hot tier, which detects whether it has seen all rows.

The scan is one native iterator from its first row to its status at the end. rocksdict's row iterators end at an
unreadable block as they end behind the last row, and its snapshots show later writes: a second look at the end cannot
distinguish damage from a row that another thread has put meanwhile.
"""

from __future__ import annotations

import threading
from typing import Any

from rocksdict import ReadOptions

from statestore.catalog.stores.live.tier_errors import TierBrokenError
from statestore.formats.places.rocksdb_forks import keep_for_ever

SCAN_ROWS = 256

Row = tuple[bytes, bytes]


class TierScan:
    """Rows with ``low`` <= key < ``high``, as of `begin`.

    While its native iterator lives, RocksDB keeps its lock on the directory. Use and removal of the iterator take
    turns: when `close` returns, no thread has the iterator and none gets one.
    """

    def __init__(self, low: bytes | None, high: bytes | None, backwards: bool) -> None:
        self._low, self._backwards = low, backwards
        self._options = ReadOptions()  # kept alive: an iterator reads its bound from their memory
        if high is not None:
            self._options.set_iterate_upper_bound(high)
        self._turn = threading.RLock()  # a signal handler may close the store in the middle of a turn
        self._native: Any = None
        self._closed = False

    def begin(self, database: Any) -> None:
        """Create the view of the database from which all rows come."""
        with self._turn:
            if self._closed:
                raise TierBrokenError("the tier was closed during an iteration")
            self._native = database.iter(self._options)
            # rocksdict takes a lower bound for an upper one, so ``low`` is where to begin or, backwards, to end.
            if self._backwards:
                self._native.seek_to_last()
            elif self._low is None:
                self._native.seek_to_first()
            else:
                self._native.seek(self._low)

    def some(self) -> list[Row]:
        """Return the next rows, none at the end. Raises an exception where damage ends the scan."""
        with self._turn:
            native = self._native
            if native is None:
                raise TierBrokenError("the tier was closed during an iteration")
            key_at, value_at, step = native.key, native.value, native.prev if self._backwards else native.next
            end = self._low if self._backwards else None
            found: list[Row] = []
            while len(found) < SCAN_ROWS and (key := key_at()) is not None and (end is None or key >= end):
                found.append((key, value_at()))
                step()
            if not found:
                native.status()
            return found

    def close(self) -> None:
        """Release the iterator after the turn of any other thread."""
        with self._turn:
            self._closed = True
            self._native = None

    def leave(self) -> None:
        """Forget the native iterator in a forked child, without freeing it."""
        self._turn = threading.RLock()  # a thread that the child does not have may have held it
        keep_for_ever(self._native, self._options)
        self.close()

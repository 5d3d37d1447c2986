"""A scan of one database of a hot tier, which knows whether it has seen all rows.

It is one native iterator from its first row to its status at the end. rocksdict's iterators of rows end at a block that
cannot be read as they end behind the last row, and its snapshots show what is written after them: a second look at the
end cannot tell damage from a row that another thread has put meanwhile.
"""

from __future__ import annotations

import threading
from typing import Any

from rocksdict import ReadOptions

from statestore.catalog.stores.live.tier_errors import TierBrokenError
from statestore.formats.places.forks import keep_for_ever

SCAN_ROWS = 256

Row = tuple[bytes, bytes]


class TierScan:
    """Rows with ``low`` <= key < ``high``, as of `begin`.

    While its native iterator lives, RocksDB keeps its lock on the directory. The iterator is used and taken away in
    turns: when `close` returns no thread has it, and none gets one.
    """

    def __init__(self, low: bytes | None, high: bytes | None, backwards: bool) -> None:
        self._low, self._backwards = low, backwards
        self._options = ReadOptions()  # held: an iterator reads its bound out of the options' own memory
        if high is not None:
            self._options.set_iterate_upper_bound(high)
        self._turn = threading.RLock()  # a handler of signals may close the store in the middle of a turn
        self._native: Any = None
        self._closed = False

    def begin(self, database: Any) -> None:
        """Take the view of the database that all rows come from."""
        with self._turn:
            if self._closed:
                raise TierBrokenError("the tier was closed under an iterator")
            self._native = database.iter(self._options)
            # rocksdict takes a lower bound for an upper one, so it is a place to begin or, backwards, to end.
            if self._backwards:
                self._native.seek_to_last()
            elif self._low is None:
                self._native.seek_to_first()
            else:
                self._native.seek(self._low)

    def some(self) -> list[Row]:
        """The next rows, none at the end; raises an exception where damage ends the scan."""
        with self._turn:
            native = self._native
            if native is None:
                raise TierBrokenError("the tier was closed under an iterator")
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
        """Give up the iterator; a turn of another thread ends first."""
        with self._turn:
            self._closed = True
            self._native = None

    def leave(self) -> None:
        """In a forked child: forget the native iterator, without freeing it."""
        self._turn = threading.RLock()  # a thread that is not here may have had its turn
        keep_for_ever(self._native, self._options)
        self.close()

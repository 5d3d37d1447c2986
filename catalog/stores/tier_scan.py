"""A scan of one database of a hot tier, which knows whether it has seen all rows.

rocksdict's iterators of rows end at a block that cannot be read as they end behind the last row. So at its end a scan
asks a second iterator, which has a status, whether the first one had any right to end there.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from typing import Any

from rocksdict import ReadOptions

from statestore.catalog.stores.tier_errors import TierBrokenError
from statestore.formats.rocksdb.forks import keep_for_ever

SCAN_ROWS = 256

Row = tuple[bytes, bytes]


class TierScan:
    """Rows with ``low`` <= key < ``high``, as of now. Closing takes its native iterator away: while one lives, RocksDB
    keeps its lock."""

    def __init__(self, database: Any, low: bytes | None, high: bytes | None, backwards: bool) -> None:
        self._low, self._backwards = low, backwards
        self._options = ReadOptions()  # held: an iterator reads its bound out of the options' own memory
        if high is not None:
            self._options.set_iterate_upper_bound(high)
        self._snapshot = database.snapshot()
        # rocksdict takes a lower bound for an upper one, so it is a place to begin or, backwards, to end.
        begin = None if backwards else low
        found = iter(self._snapshot.items(backwards=backwards, from_key=begin, read_opt=self._options))
        self._rows: Iterator[Row] | None = (
            found if not backwards or low is None else takewhile(lambda row: row[0] >= low, found)
        )
        self._last: bytes | None = None

    def some(self) -> list[Row]:
        """The next rows; none at the end, which `check_end` has to confirm."""
        rows = self._rows
        if rows is None:
            raise TierBrokenError("the tier was closed under an iterator")
        found = list(islice(rows, SCAN_ROWS))
        if found:
            self._last = found[-1][0]
        return found

    def check_end(self) -> None:
        """Raise an exception unless no row follows the last one that was given."""
        if self._snapshot is None:
            raise TierBrokenError("the tier was closed under an iterator")
        behind = self._snapshot.iter(self._options)
        if self._backwards:
            self._seek_before(behind)
            more = behind.valid() and (self._low is None or behind.key() >= self._low)
        else:
            first = self._low if self._last is None else self._last + b"\0"
            behind.seek_to_first() if first is None else behind.seek(first)
            more = behind.valid()
        if more:
            raise TierBrokenError(f"a scan ended before the row {behind.key().hex()}")
        if not behind.valid():
            behind.status()

    def _seek_before(self, behind: Any) -> None:
        if self._last is None:
            behind.seek_to_last()
            return
        behind.seek_for_prev(self._last)
        if behind.valid() and behind.key() == self._last:
            behind.prev()

    def close(self) -> None:
        self._rows = self._snapshot = None

    def leave(self) -> None:
        """In a forked child: forget the native iterator, without freeing it."""
        keep_for_ever(self._rows, self._snapshot, self._options)
        self.close()

"""The state of one table that each transaction reads, the same for all views and macros over the table.

A transaction is known by its *pin*, the number that DuckDB gives it. Later transactions have greater numbers.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import MarksDeadRows, StateTable

KEPT_PINS = 4096  # transactions whose state is kept; an older one that reads again is refused


class PinnedTable:
    """A table as it was when a transaction first read it; ``used``: rows of it were handed out."""

    used = False

    def __init__(self, table: StateTable) -> None:
        self.table = table.pin()
        # Only the log decides what such a table reads, so a version without a later commit is the same state.
        self.is_named_by_versions = isinstance(table, MarksDeadRows)

    @cached_property
    def kept(self) -> tuple[int, int]:
        """The (oldest, newest) version."""
        return self.table.kept_versions()


class Transactions:
    """The state of one table that the first read of each transaction found, which its later reads have, too."""

    def __init__(self, table: StateTable) -> None:
        self.table = table
        self._pinned: OrderedDict[int, PinnedTable] = OrderedDict()
        self._newest: PinnedTable | None = None
        self._forgotten = -1
        self._lock = threading.Lock()

    def state_of(self, pin: int) -> PinnedTable:
        """The state that a transaction reads. Raises UnsupportedError TRANSACTION_TOO_OLD."""
        with self._lock:
            if pin in self._pinned:
                self._pinned.move_to_end(pin)
                return self._pinned[pin]
            check_remembered(self.table.name, pin, self._forgotten)
            state, last = PinnedTable(self.table), self._newest
            if last is None or not state.is_named_by_versions or last.kept != state.kept:
                self._newest = last = state
            self._pinned[pin] = last
            if len(self._pinned) > KEPT_PINS:
                oldest, _ = self._pinned.popitem(last=False)
                self._forgotten = max(self._forgotten, oldest)
            return last

    def forget(self, pin: int) -> None:
        """Let a transaction read a newer state, because the engine has replaced that which it found, unless it has rows
        of it."""
        with self._lock:
            found = self._pinned.get(pin)
            if found is not None and not found.used:
                del self._pinned[pin]
                self._newest = None if self._newest is found else self._newest


def check_remembered(name: str, pin: int, forgotten: int) -> None:
    """Raise UnsupportedError TRANSACTION_TOO_OLD for a transaction that may be one of those that were forgotten."""
    if pin <= forgotten:
        raise UnsupportedError(
            ErrorCode.TRANSACTION_TOO_OLD,
            f"table {name!r}: more than {KEPT_PINS} transactions have read it since this one began; "
            "commit and read again",
        )

"""The version of each source that a transaction reads, the same for all views and macros over tables of the source.

A transaction is known by its *pin*, the number that DuckDB gives it. Later transactions have greater numbers.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property, partial

from statestore.catalog.warehouse import Warehouse, pinned_anew
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import MarksDeadRows, StateTable

KEPT_PINS = 4096  # transactions whose state is kept; an older one that reads again is refused


class PinnedTable:
    """A table as it was when a transaction first read its source."""

    def __init__(self, table: StateTable) -> None:
        self.table = table.pin()
        # Only the log decides what such a table reads, so a version without a later commit is the same state.
        self.is_named_by_versions = isinstance(table, MarksDeadRows)

    @cached_property
    def kept(self) -> tuple[int, int]:
        """The (oldest, newest) version."""
        return self.table.kept_versions()


class PinnedWarehouses:
    """A warehouse as each transaction reads it: every source is looked at once, when the transaction first names it."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._pinned: OrderedDict[int, Warehouse] = OrderedDict()
        self._forgotten = -1
        self._lock = threading.Lock()

    def table_of(self, pin: int, name: str) -> StateTable:
        """The table of this name that a transaction reads. Raises UnsupportedError TRANSACTION_TOO_OLD."""
        with self._lock:
            found = self._pinned.pop(pin, None)
            if found is None:
                check_remembered(name, pin, self._forgotten)
                found = pinned_anew(self._warehouse)
            self._pinned[pin] = found
            if len(self._pinned) > KEPT_PINS:
                oldest, _ = self._pinned.popitem(last=False)
                self._forgotten = max(self._forgotten, oldest)
        return found.open(name)

    def of(self, name: str, table: StateTable) -> Transactions:
        """The transactions of one table, which was opened by this name."""
        return Transactions(table, partial(self.table_of, name=name))


class Transactions:
    """The state of one table that the first read of each transaction found, which its later reads have, too.

    ``found`` returns the table as a transaction reads it; without it, each transaction pins the table by itself.
    """

    def __init__(self, table: StateTable, found: Callable[[int], StateTable] | None = None) -> None:
        self.table = table
        self._found = found or (lambda _: table)
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
            state, last = PinnedTable(self._found(pin)), self._newest
            if last is None or not state.is_named_by_versions or last.kept != state.kept:
                self._newest = last = state
            self._pinned[pin] = last
            if len(self._pinned) > KEPT_PINS:
                oldest, _ = self._pinned.popitem(last=False)
                self._forgotten = max(self._forgotten, oldest)
            return last


def check_remembered(name: str, pin: int, forgotten: int) -> None:
    """Raise UnsupportedError TRANSACTION_TOO_OLD for a transaction that may be one of those that were forgotten."""
    if pin <= forgotten:
        raise UnsupportedError(
            ErrorCode.TRANSACTION_TOO_OLD,
            f"table {name!r}: more than {KEPT_PINS} transactions have read it since this one began; "
            "commit and read again",
        )

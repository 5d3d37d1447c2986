"""The version of each source that a transaction reads, the same for all views and macros over tables of the source.

A transaction is known by its *pin*, the number that DuckDB gives it. Later transactions have greater numbers.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property

from statestore.catalog.warehouse import Warehouse, pinned_anew
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import StateTable

KEPT_PINS = 4096  # transactions whose state is kept; an older one that reads again is refused


class PinnedTable:
    """A table as it was when a transaction first read its source; ``used``: rows of it were handed out."""

    used = False

    def __init__(self, table: StateTable) -> None:
        self.table = table.pin()
        # A version without a later commit is the same state.
        self.is_named_by_versions = table.has_log

    @cached_property
    def kept(self) -> tuple[int, int]:
        """The (oldest, newest) version."""
        return self.table.kept_versions()


class PinnedWarehouses:
    """A warehouse as each transaction reads it: every source is looked at once, when the transaction first names it."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._pinned: OrderedDict[int, Warehouse] = OrderedDict()
        self._used: set[int] = set()
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
                self._used.discard(oldest)
                self._forgotten = max(self._forgotten, oldest)
        return found.open(name)

    def use(self, pin: int) -> None:
        """Bind a transaction to what it reads, because rows of it were handed out."""
        with self._lock:
            if pin in self._pinned:
                self._used.add(pin)

    def forget(self, pin: int) -> bool:
        """Let a transaction look again, and return True, unless it is bound to what it found (`use`)."""
        with self._lock:
            if pin in self._used:
                return False
            self._pinned.pop(pin, None)
            return True

    def of(self, name: str, table: StateTable) -> Transactions:
        """The transactions of one table, which was opened by this name."""
        return Transactions(table, self, name)


class Transactions:
    """The state of one table that the first read of each transaction found, which its later reads have, too.

    ``warehouses`` has the table by ``name`` as each transaction reads it; without, each pins the table by itself.
    """

    def __init__(self, table: StateTable, warehouses: PinnedWarehouses | None = None, name: str = "") -> None:
        self.table = table
        self._warehouses = warehouses
        self._name = name
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
            found = self.table if self._warehouses is None else self._warehouses.table_of(pin, self._name)
            state, last = PinnedTable(found), self._newest
            if last is None or not state.is_named_by_versions or last.kept != state.kept:
                self._newest = last = state
            self._pinned[pin] = last
            if len(self._pinned) > KEPT_PINS:
                oldest, _ = self._pinned.popitem(last=False)
                self._forgotten = max(self._forgotten, oldest)
            return last

    def use(self, pin: int) -> None:
        """Bind a transaction to the state that it found, and to that of all tables, because it has rows of it."""
        with self._lock:
            if pin in self._pinned:
                self._pinned[pin].used = True
            if self._warehouses is not None:
                self._warehouses.use(pin)

    def forget(self, pin: int) -> None:
        """Let a transaction read a newer state, because the engine has replaced that which it found, unless it is bound
        to that one."""
        with self._lock:
            found = self._pinned.get(pin)
            if found is None or found.used or (self._warehouses is not None and not self._warehouses.forget(pin)):
                return
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

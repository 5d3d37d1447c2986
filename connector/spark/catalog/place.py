"""The tables at one path under the names that SQL can say.

    prices                      a table
    sessions.clicks             a state of the keyed store ``sessions``
    prices.history              every version of its rows, with intervals
    prices.changes              the change feed
    prices.versions             a metadata table: also segments, snapshots, schema; `prices$versions` in backticks

Case is ignored unless two names differ by case only. The namespace ``main`` stands for none: Spark needs a
name for the namespace in which a session begins.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from statestore.catalog.describe.metadata_table import TABLES
from statestore.catalog.named_stores import is_name
from statestore.catalog.pinned_stores import PinnedStores
from statestore.catalog.store_tables import named_table
from statestore.catalog.warehouse import Warehouse, open_warehouse, pinned_with
from statestore.connector.spark.jvm import Jvm
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.places.locations import is_object_store, parse_location
from statestore.formats.state_table import Mode, StateTable

DEFAULT = "main"  # not "default", which Spark looks for in its own catalog first
MODES: dict[str, Mode] = {"history": "history", "changes": "changes"}


@dataclass(frozen=True)
class Named:
    """A table that a name means, and the read that the name asks for."""

    name: str
    table: StateTable
    mode: Mode = "state"


@dataclass(frozen=True)
class Place:
    """A path with the options of engines that select state.

    Every question looks at its present content, except that of a place that is `pinned`: there each source is looked at
    once.
    """

    path: str
    options: Mapping[str, str] = field(default_factory=dict)
    _stores: PinnedStores | None = field(default=None, repr=False, compare=False)

    def pinned(self) -> Place:
        """The place for one statement: its tables of one source are of one version."""
        return Place(self.path, self.options, PinnedStores())

    def warehouse(self) -> Warehouse | None:
        """The tables at the path; None for a directory without any."""
        return self._opened() if self._stores is None else self._opened_once

    @cached_property
    def _opened_once(self) -> Warehouse | None:
        warehouse = self._opened()
        return warehouse if warehouse is None or self._stores is None else pinned_with(warehouse, self._stores)

    def _opened(self) -> Warehouse | None:
        try:
            return open_warehouse(self.path, self.options)
        except NotFoundError as error:
            if error.code != ErrorCode.NOTHING_HERE:
                raise
            return None

    def find(self, parts: Sequence[str]) -> Named | None:
        """The table of a name of several parts; None if there is none.

        Raises CorruptError for a damaged table.
        """
        parts = _without_default(parts)
        known = self._store_named(*parts) if len(parts) == 1 else None
        if known is not None:
            return known
        warehouse = self.warehouse()
        if warehouse is None:
            return None
        warehouse = warehouse.pin()
        return _find(warehouse, parts) or (_find(warehouse, parts[1:]) if parts[:1] == [DEFAULT] else None)

    def _store_named(self, name: str) -> Named | None:
        """The store of a name in an object store, where a look at all stores takes many requests."""
        root = parse_location(self.path)
        if self.options or not is_object_store(root) or not is_name(name):
            return None
        table = named_table(root, name)
        if table is None:
            return None
        return Named(name, table if self._stores is None else table.at(self._stores.log(name)))

    def tables(self, namespace: Sequence[str]) -> list[str] | None:
        """The names in a namespace; None if there is no such namespace."""
        warehouse = self.warehouse()
        names = [] if warehouse is None else warehouse.tables()
        namespace = _without_default(namespace)
        if not namespace:
            return [name for name in names if not _owner(warehouse, name)]
        joined = ".".join(namespace).lower()
        if warehouse is not None and joined in map(str.lower, warehouse.schemas()):
            owned = [name for name in names if _owner(warehouse, name).lower() == joined]
            return [name[len(joined) + 1 :] for name in owned]
        if joined in map(str.lower, names):
            return [*MODES, *TABLES]
        return None

    def namespaces(self) -> list[str]:
        """The namespace of tables without one, and the keyed stores, whose states are tables."""
        warehouse = self.warehouse()
        return [DEFAULT, *([] if warehouse is None else warehouse.schemas())]


def _without_default(parts: Sequence[str]) -> list[str]:
    given = list(parts)
    return given[1:] if given and given[0].lower() == DEFAULT else given


def _owner(warehouse: Warehouse | None, name: str) -> str:
    """The keyed store to which a table belongs; empty for others."""
    store = name.rpartition(".")[0]
    return store if warehouse is not None and store in warehouse.schemas() else ""


def _find(warehouse: Warehouse, parts: Sequence[str]) -> Named | None:
    if not parts:
        return None
    name = _spelled(warehouse, ".".join(parts))
    if name is not None:
        return Named(name, warehouse.open(name))
    base = _spelled(warehouse, ".".join(parts[:-1])) if len(parts) > 1 else None
    last = parts[-1].lower()
    if base is None or "$" in base:
        return None
    if last in MODES:
        return Named(f"{base}.{last}", warehouse.open(base), MODES[last])
    return Named(f"{base}.{last}", warehouse.open(f"{base}${last}")) if last in TABLES else None


def _spelled(warehouse: Warehouse, name: str) -> str | None:
    """The table's name as it is written there; a state that only older snapshots have is found by its exact name."""
    names = (*warehouse.tables(), *warehouse.metadata_tables())
    same: list[Any] = [known for known in names if known.lower() == name.lower()]
    if name in same or (not same and "$" not in name and warehouse.held.knows(name)):
        return name
    return same[0] if len(same) == 1 else None


# A place as each statement of a session sees it.
#
# Spark loads the tables of a statement one after the other. What is the same in all these calls is the tracker of the
# plan, an object that Spark makes for each statement and each DataFrame, and holds for the thread that analyses it.
# Tables that are loaded with one tracker come from one pinned place. Without a tracker, as where no plan is analysed, a
# table comes from the present content of the place.

KEPT = 64  # statements whose places are kept, which is more than are analysed at a time


@dataclass(frozen=True)
class _Statement:
    """The place of one statement. It holds the tracker, so that no other one gets its number."""

    tracker: Any
    place: Place


class Statements:
    """The places of the last statements, by the numbers of their trackers."""

    def __init__(self, jvm: Jvm, place: Place) -> None:
        self._jvm = jvm
        self._place = place
        self._known: OrderedDict[int, list[_Statement]] = OrderedDict()
        self._lock = threading.Lock()

    def place(self) -> Place:
        """The place of the statement that is analysed now."""
        found = self._jvm.static("org.apache.spark.sql.catalyst.QueryPlanningTracker", "get")()
        if not found.isDefined():
            return self._place.pinned()
        tracker = found.get()
        number = int(self._jvm.static("java.lang.System", "identityHashCode")(tracker))
        with self._lock:
            alike = self._known.setdefault(number, [])
            self._known.move_to_end(number)
            known = next((each.place for each in alike if each.tracker.equals(tracker)), None)
            if known is None:
                known = self._place.pinned()
                alike.append(_Statement(tracker, known))
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            return known

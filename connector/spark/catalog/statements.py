"""A place as each statement of a session sees it.

Spark loads the tables of a statement one after the other. What is the same in all these calls is the tracker of the
plan, an object that Spark makes for each statement and each DataFrame, and holds for the thread that analyses it.
Tables that are loaded with one tracker come from one pinned place. Without a tracker, as where no plan is analysed, a
table comes from the present content of the place.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from statestore.connector.spark.catalog.place import Place
from statestore.connector.spark.jvm import Jvm

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

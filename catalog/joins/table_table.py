"""The table-table join, record by record (KIP-914): both sides are tables, the result is a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from statestore.catalog.joins.table_side import Change, Emitted, TableSide, milliseconds, table_side
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.values.times import Time

Joiner = Callable[[Any, Any], Any]
How = Literal["inner", "left", "outer"]


class TableTableJoin:
    """Joins two tables by key; each record of either side emits the changed result of its key, or nothing.

    A record is joined with the newest value of the other side: by time in a versioned store, by arrival in a key-value
    store (which needs a value column ``event_time``). Late records of a versioned side do not change its newest value
    and emit nothing. A result that ceases to exist is a tombstone. As in Kafka, a record that deletes also emits a
    tombstone if the other side has a value and there was no result. The time of every result, tombstones included, is
    the later of the two inputs' times.

    Raises InvalidInputError INVALID_OPTION.
    """

    def __init__(self, left: Any, right: Any, joiner: Joiner, how: How = "inner") -> None:
        if how not in ("inner", "left", "outer"):
            raise InvalidInputError(ErrorCode.INVALID_OPTION, f"how is {how!r}; expected 'inner', 'left' or 'outer'")
        self._left, self._right = table_side(left), table_side(right)
        self._joiner = joiner
        self._how = how

    def left_record(self, key: Any, value: Any, timestamp: Time) -> list[Emitted]:
        """Take in a record of the left table (None deletes); return the records that it emits."""
        return self._record(self._left, self._right, key, value, milliseconds(timestamp), from_left=True)

    def right_record(self, key: Any, value: Any, timestamp: Time) -> list[Emitted]:
        """Take in a record of the right table (None deletes); return the records that it emits."""
        return self._record(self._right, self._left, key, value, milliseconds(timestamp), from_left=False)

    def _record(
        self, mine: TableSide, others: TableSide, key: Any, value: Any, time: int, *, from_left: bool
    ) -> list[Emitted]:
        change = None if key is None else mine.put(key, value, time)
        if change is None or (mine.is_versioned and not change.is_latest):
            return []
        other = others.newest(key)
        if not self._emits(change, other is not None, from_left):
            return []
        found = None if other is None else other[0]
        result = self._result(change.new, found) if from_left else self._result(found, change.new)
        return [Emitted(key, result, time if other is None else max(time, other[1]))]

    def _emits(self, change: Change, is_matched: bool, from_left: bool) -> bool:
        """Return whether a change emits a record: always where the other side has a value, else only on a side whose
        values are results by themselves, if there is one or was one.
        """
        if is_matched:
            return True
        is_alone = self._how == "outer" or (self._how == "left" and from_left)
        return is_alone and (change.new is not None or change.old is not None)

    def _result(self, left: Any, right: Any) -> Any:
        """Return the row of the result table for these two values; None if there is none."""
        missing = {
            "inner": left is None or right is None,
            "left": left is None,
            "outer": left is None and right is None,
        }[self._how]
        return None if missing else self._joiner(left, right)

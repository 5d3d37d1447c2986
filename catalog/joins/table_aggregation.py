"""The aggregation of a table, record by record (KIP-914): a changed row leaves its old group and enters its new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore.catalog.joins.table_side import CurrentSide, Emitted, milliseconds, table_side
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.values.times import Time

Step = Callable[[Any, Any, Any], Any]  # (group, value, aggregate so far) -> aggregate


class TableAggregation:
    """Groups the rows of a table and keeps one aggregate for each group in a key-value store.

    ``table`` is a versioned store, and then a record that is not the newest of its key by time changes nothing; or it
    is a key-value store with a value column ``event_time``, and then the newest record is the last to arrive.
    ``aggregates`` is a key-value store, keyed by the group, with a value column ``event_time`` beside the column of the
    aggregate. ``group(key, value)`` returns the group of a row.

    For each change, ``subtract`` takes the old row out of its group and ``add`` brings the new row into its group; both
    happen in one step if the group is the same (KIP-904). ``initial()`` is the aggregate of an empty group. A group
    that becomes empty stays, with the result of ``subtract``. The time of an aggregate is the latest time of all its
    records.
    """

    def __init__(
        self,
        table: Any,
        aggregates: Any,
        group: Callable[[Any, Any], Any],
        add: Step,
        subtract: Step,
        initial: Callable[[], Any],
    ) -> None:
        self._table = table_side(table)
        side = table_side(aggregates)
        if not isinstance(side, CurrentSide):
            raise UnsupportedError(
                ErrorCode.JOIN_KIND, f"store {aggregates.name!r} is versioned; aggregates need a key_value store"
            )
        self._aggregates = side
        self._group, self._add, self._subtract, self._initial = group, add, subtract, initial

    def record(self, key: Any, value: Any, timestamp: Time) -> list[Emitted]:
        """Take in a record of the table (None deletes); return the aggregates that it changed."""
        time = milliseconds(timestamp)
        change = None if key is None else self._table.put(key, value, time)
        if change is None or (self._table.is_versioned and not change.is_latest):
            return []
        before = None if change.old is None else self._group(key, change.old)
        after = None if change.new is None else self._group(key, change.new)
        if before is not None and before == after:
            return [self._apply(before, [(self._subtract, change.old), (self._add, change.new)], time)]
        emitted = []
        if before is not None:
            emitted.append(self._apply(before, [(self._subtract, change.old)], time))
        if after is not None:
            emitted.append(self._apply(after, [(self._add, change.new)], time))
        return emitted

    def _apply(self, group: Any, steps: list[tuple[Step, Any]], time: int) -> Emitted:
        found = self._aggregates.newest(group)
        aggregate, latest = (self._initial(), time) if found is None else (found[0], max(found[1], time))
        for step, value in steps:
            aggregate = step(group, value, aggregate)
        self._aggregates.put(group, aggregate, latest)
        return Emitted(group, aggregate, latest)


def count_by(group: Callable[[Any, Any], Any], table: Any, counts: Any) -> TableAggregation:
    """Return an aggregation that counts the rows of each group."""
    return TableAggregation(
        table, counts, group, add=lambda g, v, n: n + 1, subtract=lambda g, v, n: n - 1, initial=lambda: 0
    )

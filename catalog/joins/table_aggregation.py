"""The aggregation of a table, record by record (KIP-914): a row that changes leaves its old group for its new one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore.catalog.joins.table_side import CurrentSide, Emitted, Time, milliseconds, table_side
from statestore.formats.errors import InvalidInputError

Step = Callable[[Any, Any, Any], Any]  # (group, value, aggregate so far) -> aggregate


class TableAggregation:
    """Groups the rows of a table and keeps one aggregate a group, in a key-value store.

    ``table`` is versioned, then records that are not their key's newest by time change nothing; or key-value with a
    value column ``event_time``, then the newest is the last to arrive. ``aggregates`` is a key-value store, keyed by
    the group, with a value column ``event_time`` beside that of the aggregate. ``group(key, value)`` names a group.
    For each change ``subtract`` takes the old row out of its group and ``add`` brings the new one into its; both in one
    step where the group is the same (KIP-904). ``initial()`` is the aggregate of an empty group; a group that is empty
    again stays, with what ``subtract`` left. An aggregate's time is the latest of all records that made it.
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
            raise InvalidInputError(
                "JOIN_KIND", f"store {aggregates.name!r} is versioned; aggregates need a key_value store"
            )
        self._aggregates = side
        self._group, self._add, self._subtract, self._initial = group, add, subtract, initial

    def record(self, key: Any, value: Any, timestamp: Time) -> list[Emitted]:
        """Takes in a record of the table (None deletes); the aggregates it has changed."""
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
    """An aggregation that counts the rows of each group."""
    return TableAggregation(
        table, counts, group, add=lambda g, v, n: n + 1, subtract=lambda g, v, n: n - 1, initial=lambda: 0
    )

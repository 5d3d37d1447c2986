"""Joins and aggregation of tables, record by record, with the semantics of Kafka Streams.

A stream-table join meets versions (KIP-914), and waits for them with a grace period (KIP-923). Both sides of a
table-table join are tables, as is its result (KIP-914). In an aggregation, a changed row leaves its old group and
enters its new one (KIP-914).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Literal

from statestore.catalog.joins.table_side import Change, CurrentSide, Emitted, TableSide, milliseconds, table_side
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.values.times import Time, duration_ms

Joiner = Callable[[Any, Any], Any]


class StreamTableJoin:
    """Joins records of a stream with a table.

    ``table`` is an open versioned store, and a record meets the value that was valid at its own time; or it is a
    key-value store with a value column ``event_time``, and a record meets the newest value by arrival. ``joiner(record,
    value)`` makes a result. Where the table has no value, it is called with None if ``how`` is "left", and nothing is
    emitted if it is "inner". Table records never emit. Stream records with a null value are skipped. A null key has no
    value in the table: without ``grace``, a left join emits its records (KIP-962); other joins skip them.

    With ``grace`` (a duration; it needs a versioned table that keeps at least as much history) stream records wait, in
    order of (time, key, arrival), until the stream has moved past their time by the grace. They meet the table as it is
    then. A record that is later than the grace is joined at once. Waiting records are in memory: after a restart, send
    the records again that were not emitted. One operator is one partition, with a stream time of its own.

    Raises InvalidInputError INVALID_OPTION, INVALID_DURATION or GRACE_TOO_LONG.
    """

    def __init__(
        self,
        table: Any,
        joiner: Joiner,
        how: Literal["inner", "left"] = "inner",
        grace: int | timedelta | str | None = None,
    ) -> None:
        if how not in ("inner", "left"):
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION, f"how is {how!r}; a stream-table join is 'inner' or 'left'"
            )
        self._table = table_side(table)
        self._joiner = joiner
        self._how = how
        self._grace = duration_ms(grace, "grace")
        self._waiting: list[tuple[int, bytes, int, Any, Any]] = []
        self._arrivals = 0
        self._stream_time = -1
        if self._grace is not None:
            self._check_grace(self._grace)

    def table_record(self, key: Any, value: Any, timestamp: Time) -> None:
        """Take in a record of the table; None deletes. Waiting stream records see it."""
        if key is not None:
            self._table.put(key, value, milliseconds(timestamp))

    def stream_record(self, key: Any, value: Any, timestamp: Time) -> list[Emitted]:
        """Take in a record of the stream; return the results that can be emitted now, in order."""
        time = milliseconds(timestamp)
        if value is None:
            return []
        if key is None:
            is_result = self._how == "left" and self._grace is None
            return [Emitted(None, self._joiner(value, None), time)] if is_result else []
        if self._grace is None or time < self._stream_time - self._grace:
            return self._joined(key, value, time)
        self._arrivals += 1
        heapq.heappush(self._waiting, (time, self._table.key_bytes(key), self._arrivals, key, value))
        self._stream_time = max(self._stream_time, time)
        return list(self._due(self._stream_time - self._grace))

    @property
    def waiting(self) -> int:
        """Number of stream records that are not joined yet."""
        return len(self._waiting)

    def _due(self, until: int) -> Iterator[Emitted]:
        while self._waiting and self._waiting[0][0] <= until:
            time, _, _, key, value = heapq.heappop(self._waiting)
            yield from self._joined(key, value, time)

    def _joined(self, key: Any, value: Any, time: int) -> list[Emitted]:
        other = self._table.at(key, time)
        if other is None and self._how == "inner":
            return []
        return [Emitted(key, self._joiner(value, other), time)]

    def _check_grace(self, grace: int) -> None:
        if not self._table.is_versioned:
            raise InvalidInputError(
                ErrorCode.GRACE_TOO_LONG, "grace needs a versioned table; one without history has nothing to wait for"
            )
        retention = self._table.history_retention
        if retention is not None and grace > retention:
            raise InvalidInputError(
                ErrorCode.GRACE_TOO_LONG,
                f"grace is {grace} ms, but the table's history_retention is {retention} ms; expected "
                "a grace of at most that, because a record must be joined while the value of its "
                "time is kept",
            )


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

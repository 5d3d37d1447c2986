"""The stream-table join, record by record: KIP-914 with a versioned table, KIP-923 with a grace period."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Literal

from statestore.catalog.joins.table_side import Emitted, milliseconds, table_side
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
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

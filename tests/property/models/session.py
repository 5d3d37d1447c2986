"""The session store (rules since Kafka 3.5) as dictionaries: a session is kept and judged by its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from models.rows import Encode, LoggedRow, PhysicalRow, SessionRow, no_value_bytes
from models.segments import LATEST_TIME, SegmentedRows, default_interval


@dataclass
class SessionModel:
    """Durations are milliseconds; ``encode(key)`` gives the bytes that order keys.

    ``0 <= start <= end``, keys are never None, a value of None removes.
    """

    encode: Encode
    retention: int
    segment_interval: int | None = None
    name: str = "session"
    encode_value: Encode = no_value_bytes
    log: list[SessionRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start_empty()

    def _start_empty(self) -> None:
        self._rows = SegmentedRows(self.retention, self.segment_interval or default_interval(self.retention))
        self._dropped = 0

    @property
    def observed_stream_time(self) -> int:
        return self._rows.stream_time

    @property
    def dropped_records(self) -> int:
        return self._dropped

    def put(self, key: Any, start: int, end: int, value: Any) -> None:
        session = SessionRow(key, start, end, value)
        self.log.append(session)  # also when it is dropped: the log is written without knowing
        self._rows.observe(end)
        if not self._write(session):
            self._dropped += 1

    def _write(self, session: SessionRow) -> bool:
        row = None if session.value is None else session
        return self._rows.write(session.end, self.row_key(session.key, session.start, session.end), row)

    def remove(self, key: Any, start: int, end: int) -> None:
        """Move stream time to the session's end; drop nothing and count nothing."""
        self.log.append(SessionRow(key, start, end, None))
        self._rows.observe(end)
        self._rows.discard(end, self.row_key(key, start, end))

    def row_key(self, key: Any, start: int, end: int) -> bytes:
        """``key | end:int64 | start:int64``, big-endian, the end first: on disk and in the changelog."""
        return self.encode(key) + end.to_bytes(8, "big", signed=True) + start.to_bytes(8, "big", signed=True)

    def _earliest_visible_end(self) -> int:
        return self.observed_stream_time - self.retention + 1

    def fetch_session(self, key: Any, start: int, end: int) -> Any:
        if end < self._earliest_visible_end():
            return None
        row = self._rows.get(end, self.row_key(key, start, end))
        return None if row is None else row.value

    def find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> list[SessionRow]:
        """The sessions that overlap the time from ``earliest_end`` to ``latest_start``."""
        return self.find_sessions_range(key, key, earliest_end, latest_start)

    def find_sessions_range(self, low: Any, high: Any, earliest_end: int, latest_start: int) -> list[SessionRow]:
        """Keys from ``low`` to ``high``, both inclusive, None an open end; by segment, key, end, start."""
        earliest = max(earliest_end, self._earliest_visible_end())
        return [
            row
            for _, _, row in self._rows.in_order()
            if row.end >= earliest
            and row.start <= latest_start
            and (low is None or self.encode(low) <= self.encode(row.key))
            and (high is None or self.encode(row.key) <= self.encode(high))
        ]

    def fetch(self, key: Any) -> list[SessionRow]:
        return self.find_sessions(key, 0, LATEST_TIME)

    def fetch_range(self, low: Any, high: Any) -> list[SessionRow]:
        return self.find_sessions_range(low, high, 0, LATEST_TIME)

    def backward_find_sessions(self, key: Any, earliest_end: int, latest_start: int) -> list[SessionRow]:
        return self.find_sessions(key, earliest_end, latest_start)[::-1]

    def backward_find_sessions_range(
        self, low: Any, high: Any, earliest_end: int, latest_start: int
    ) -> list[SessionRow]:
        return self.find_sessions_range(low, high, earliest_end, latest_start)[::-1]

    def backward_fetch(self, key: Any) -> list[SessionRow]:
        return self.fetch(key)[::-1]

    def backward_fetch_range(self, low: Any, high: Any) -> list[SessionRow]:
        return self.fetch_range(low, high)[::-1]

    def restore(self, records: Iterable[tuple[Any, int, int, Any]]) -> None:
        """One batch of (key, start, end, value); a removal is a value of None.

        Stream time first moves to the batch's greatest end; then records of dead segments are skipped and not counted.
        """
        sessions = [SessionRow(*record) for record in records]
        for session in sessions:
            self._rows.observe(session.end)
        for session in sessions:
            self._write(session)

    def wipe_and_restore(self) -> None:
        """Another instance of the store, its counters anew, restored from the changelog as one batch."""
        self._start_empty()
        self.restore(self.log)

    def segments(self) -> list[str]:
        return self._rows.names(self.name)

    def changelog(self) -> list[LoggedRow]:
        return [
            LoggedRow(self.row_key(key, start, end), None if value is None else self.encode_value(value))
            for key, start, end, value in self.log
        ]

    def physical(self) -> list[PhysicalRow]:
        return [
            PhysicalRow(self._rows.name(self.name, segment), row_key, self.encode_value(row.value))
            for segment, row_key, row in self._rows.in_order()
        ]

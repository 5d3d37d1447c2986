"""The join window store of 2016 (KAFKA-3016) as dictionaries, with the change logger it had then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from models.rows import Encode, LoggedRow, no_value_bytes
from models.segments import SHORTEST_INTERVAL, segment_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class ChangeLogger:
    """Collects keys, and sends their values as they are when one of the two sets holds more than ``threshold`` keys."""

    value_of: Callable[[Any], Any]
    threshold: int = 100
    dirty: dict[Any, None] = field(default_factory=dict)  # sets that keep their order
    removed: dict[Any, None] = field(default_factory=dict)
    sent: list[tuple[Any, Any]] = field(default_factory=list)

    def add(self, key: Any) -> None:
        self.dirty[key] = None
        self.removed.pop(key, None)

    def delete(self, key: Any) -> None:
        self.removed[key] = None
        self.dirty.pop(key, None)

    def send_if_many(self) -> None:
        if len(self.dirty) > self.threshold or len(self.removed) > self.threshold:
            self.send()

    def send(self) -> None:
        self.sent += [(key, None) for key in self.removed]
        self.sent += [(key, self.value_of(key)) for key in self.dirty]
        self.dirty = {}
        self.removed = {}


class JoinRow(NamedTuple):
    """One put; two puts with equal key and time differ in ``seqnum``."""

    key: Any
    timestamp: int
    seqnum: int
    value: Any


@dataclass
class JoinWindowModel:
    """Durations are milliseconds; ``encode(key)`` gives the bytes of a key. Keys are never None, times at least 0."""

    encode: Encode
    window_before: int
    window_after: int
    retention: int
    num_segments: int
    name: str = "window"
    encode_value: Encode = no_value_bytes
    log: list[tuple[bytes, Any]] = field(default_factory=list)  # (row key, value when sent)
    puts: dict[bytes, JoinRow] = field(default_factory=dict)  # every row as it was put

    def __post_init__(self) -> None:
        self.retention = max(self.retention, 2 * (self.window_before + self.window_after + 1))
        self.segment_interval = max(self.retention // (self.num_segments - 1), SHORTEST_INTERVAL)
        self._start_empty()

    def _start_empty(self) -> None:
        self._segments: dict[int, dict[bytes, JoinRow]] = {}
        self._newest_segment = -1
        self._seqnum = 0
        self._stream_time = -1
        self._refused = 0
        self._logger = ChangeLogger(self._value_now)

    @property
    def observed_stream_time(self) -> int:
        """The stream time as in the other stores; a store of 2016 has none."""
        return self._stream_time

    @property
    def dropped_records(self) -> int:
        """The number of puts that were not stored; a store of 2016 counts none."""
        return self._refused

    def put(self, key: Any, value: Any, timestamp: int) -> bytes | None:
        """The row's key, or None where it was too late to be stored; that uses up no sequence number.

        Nothing is overwritten. A value of None stores nothing, but is logged as the row that is not there.
        """
        self._stream_time = max(self._stream_time, timestamp)
        if not self._is_live(timestamp):
            self._refused += 1
            return None
        self._seqnum = (self._seqnum + 1) & 0x7FFFFFFF
        row = JoinRow(key, timestamp, self._seqnum, value)
        row_key = self.row_key(row)
        self.puts[row_key] = row
        self._store(row)
        self._logger.add(row_key)
        self._logger.send_if_many()
        self._take_sent()
        return row_key

    def _is_live(self, timestamp: int) -> bool:
        """Return whether one of the newest n segments is this time's, after the time has advanced the newest
        segment."""
        segment = segment_of(timestamp, self.segment_interval)
        if segment > self._newest_segment:
            self._newest_segment = segment
            for old in [s for s in self._segments if s <= segment - self.num_segments]:
                del self._segments[old]
        return segment > self._newest_segment - self.num_segments

    def _store(self, row: JoinRow) -> None:
        rows = self._segments.setdefault(segment_of(row.timestamp, self.segment_interval), {})
        if row.value is None:
            rows.pop(self.row_key(row), None)
        else:
            rows[self.row_key(row)] = row

    def _value_now(self, row_key: bytes) -> Any:
        """The value of the row; None if its segment has been removed since."""
        return next((rows[row_key].value for rows in self._segments.values() if row_key in rows), None)

    def _take_sent(self) -> None:
        self.log += self._logger.sent
        self._logger.sent = []

    def row_key(self, row: JoinRow) -> bytes:
        """``key | timestamp:int64 | seqnum:int32``, big-endian."""
        return self.encode(row.key) + row.timestamp.to_bytes(8, "big") + row.seqnum.to_bytes(4, "big")

    def fetch(self, key: Any, timestamp: int) -> list[Any]:
        """The key's values from ``window_before`` before to ``window_after`` after, both inclusive, by time and put."""
        first, last = max(0, timestamp - self.window_before), max(0, timestamp + self.window_after)
        found = [
            row
            for rows in self._segments.values()
            for row in rows.values()
            if self.encode(row.key) == self.encode(key) and first <= row.timestamp <= last
        ]
        return [row.value for row in sorted(found, key=lambda row: (row.timestamp, row.seqnum))]

    def flush(self) -> None:
        """Send the values that the change logger still holds."""
        self._logger.send()
        self._take_sent()

    def restore(self, records: Iterable[tuple[Any, Any, int, int]]) -> None:
        """(key, value, timestamp, sequence number), one after the other: only the newest n segments come back."""
        for key, value, timestamp, seqnum in records:
            if self._is_live(timestamp):
                self._store(JoinRow(key, timestamp, seqnum, value))
            self._stream_time = max(self._stream_time, timestamp)

    def wipe_and_restore(self) -> None:
        """Another instance of the store, restored from what was sent. Sequence numbers start anew."""
        self._start_empty()
        sent = [(self.puts[row_key], value) for row_key, value in self.log]
        self.restore([(row.key, value, row.timestamp, row.seqnum) for row, value in sent])

    def segment_ids(self) -> list[int]:
        return sorted(self._segments)

    def segments(self) -> list[str]:
        """Directory names: the store's and the UTC minute in which the segment starts."""
        starts = (EPOCH + timedelta(milliseconds=s * self.segment_interval) for s in self.segment_ids())
        return [f"{self.name}-{start:%Y%m%d%H%M}" for start in starts]

    def config(self) -> dict[str, int]:
        return {"retention_ms": self.retention, "segment_interval_ms": self.segment_interval}

    def changelog(self) -> list[LoggedRow]:
        return [LoggedRow(key, None if value is None else self.encode_value(value)) for key, value in self.log]

    def changelog_size(self) -> int:
        return len(self.log)

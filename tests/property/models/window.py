"""The window store (rules since Kafka 3.5) as dictionaries: writes are judged by segment, reads by exact time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from models.rows import Encode, LoggedRow, PhysicalRow, WindowRow, no_value_bytes
from models.segments import LATEST_TIME, SegmentedRows, default_interval


class WindowPut(NamedTuple):
    """A changelog record before it is bytes. The sequence number is 0 in a store without duplicates."""

    key: Any
    value: Any
    start: int
    seqnum: int


@dataclass
class WindowModel:
    """Durations are milliseconds; ``encode(key)`` gives the bytes that order keys.

    Starts are at least 0, keys are never None, a value of None deletes (where duplicates are kept, it is only logged).
    """

    encode: Encode
    retention: int
    window_size: int
    segment_interval: int | None = None
    retain_duplicates: bool = False
    time_ordered: bool = False  # decides the order of several keys, and by one millisecond what is visible
    name: str = "window"
    encode_value: Encode = no_value_bytes
    log: list[WindowPut] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._start_empty()

    def _start_empty(self) -> None:
        self._rows = SegmentedRows(self.retention, self.segment_interval or default_interval(self.retention))
        self._seqnum = 0
        self._asked = 0  # the number that a point fetch looks for
        self._dropped = 0

    def restarted(self) -> None:
        """A restart that keeps the rows: a point fetch among duplicates finds nothing before the next put."""
        self._asked = 0

    @property
    def observed_stream_time(self) -> int:
        return self._rows.stream_time

    @property
    def dropped_records(self) -> int:
        return self._dropped

    def put(self, key: Any, value: Any, window_start: int) -> None:
        if self.retain_duplicates:
            self._seqnum = (self._seqnum + 1) & 0x7FFFFFFF
        put = WindowPut(key, value, window_start, self._seqnum)
        self.log.append(put)  # also when it is dropped: the log is written without knowing
        if self.retain_duplicates and value is None:
            return
        self._asked = put.seqnum
        self._rows.observe(window_start)
        if not self._write(put):
            self._dropped += 1

    def _write(self, put: WindowPut) -> bool:
        end = min(put.start + self.window_size, LATEST_TIME)
        row = None if put.value is None else WindowRow(put.key, put.start, end, put.value)
        return self._rows.write(put.start, self.row_key(put.key, put.start, put.seqnum), row)

    def row_key(self, key: Any, start: int, seqnum: int) -> bytes:
        """``key | start:int64 | seqnum:int32``, big-endian: the row key on disk and in the changelog."""
        return self.encode(key) + start.to_bytes(8, "big", signed=True) + seqnum.to_bytes(4, "big")

    def _earliest_visible(self) -> int:
        return self.observed_stream_time - self.retention + (0 if self.time_ordered else 1)

    def _visible(self, start: int, end: int) -> list[WindowRow]:
        """All keys' rows with a window start from ``start`` to ``end``, both inclusive, in the store's order."""
        first = max(start, self._earliest_visible())
        rows = self._rows.in_order()
        if self.time_ordered:
            rows = iter(sorted(rows, key=lambda row: (row[2].start, row[1][:-12] + row[1][-4:])))
        return [row for _, _, row in rows if first <= row.start <= end]

    def fetch(self, key: Any, start: int, end: int | None = None) -> Any:
        """Return the rows of a key by start if there is an ``end``, else the value of the window that begins at
        ``start``.

        The latter finds only the last put in a store with duplicates, because it looks for the number of that.
        """
        if end is not None:
            return [row for row in self._visible(start, end) if self.encode(row.key) == self.encode(key)]
        if start < self._earliest_visible():
            return None
        row = self._rows.get(start, self.row_key(key, start, self._asked))
        return None if row is None else row.value

    def fetch_range(self, low: Any, high: Any, start: int, end: int) -> list[WindowRow]:
        """Keys from ``low`` to ``high``, both inclusive, None an open end."""
        return [
            row
            for row in self._visible(start, end)
            if (low is None or self.encode(low) <= self.encode(row.key))
            and (high is None or self.encode(row.key) <= self.encode(high))
        ]

    def fetch_all(self, start: int, end: int) -> list[WindowRow]:
        return self._visible(start, end)

    def all(self) -> list[WindowRow]:
        return self._visible(0, LATEST_TIME)

    def backward_fetch(self, key: Any, start: int, end: int) -> list[WindowRow]:
        rows: list[WindowRow] = self.fetch(key, start, end)
        return rows[::-1]

    def backward_fetch_range(self, low: Any, high: Any, start: int, end: int) -> list[WindowRow]:
        return self.fetch_range(low, high, start, end)[::-1]

    def backward_fetch_all(self, start: int, end: int) -> list[WindowRow]:
        return self.fetch_all(start, end)[::-1]

    def backward_all(self) -> list[WindowRow]:
        return self.all()[::-1]

    def restore(self, records: Iterable[tuple[Any, Any, int] | tuple[Any, Any, int, int]]) -> None:
        """One batch of (key, value, window start[, sequence number]).

        Stream time first moves to the batch's greatest; then records of dead segments are skipped and not counted.
        """
        puts = [WindowPut(*record[:3], seqnum=record[3] if len(record) > 3 else 0) for record in records]
        for put in puts:
            self._rows.observe(put.start)
        for put in puts:
            if put.value is not None or not self.retain_duplicates:
                self._write(put)

    def wipe_and_restore(self) -> None:
        """Another instance of the store, restored from the changelog as one batch.

        Its counters start anew: also sequence numbers, so that a later put may overwrite a restored duplicate.
        """
        self._start_empty()
        self.restore(self.log)

    def segments(self) -> list[str]:
        return self._rows.names(self.name)

    def changelog(self) -> list[LoggedRow]:
        return [
            LoggedRow(self.row_key(key, start, seqnum), None if value is None else self.encode_value(value))
            for key, value, start, seqnum in self.log
        ]

    def physical(self) -> list[PhysicalRow]:
        if self.time_ordered:
            raise NotImplementedError("rows of a time-ordered store have another layout")
        return [
            PhysicalRow(self._rows.name(self.name, segment), row_key, self.encode_value(row.value))
            for segment, row_key, row in self._rows.in_order()
        ]

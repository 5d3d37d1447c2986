"""The session store of Kafka Streams 3.5 and later: rows (key, session start, session end) -> value.

Rows live by the session's end, which is also the state time of its table. Both ends of a session are inclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import Any

from statestore.catalog.stores.latency import SAMPLE
from statestore.catalog.stores.live.time_segmented import TimeSegmentedStore, Windowed, key_range, one_key, within
from statestore.formats.kafka_rows.window_keys import MAX_TIME
from statestore.formats.kafka_rows.window_keys import SESSION_SUFFIX as SUFFIX
from statestore.formats.values.times import Time

SUFFIX_BYTES = SUFFIX.size
LAST = b"\x7f" + b"\xff" * 15


class SessionStore(TimeSegmentedStore):
    """A live handle on a session store; `LiveStore` describes which handle may write. Range ends are inclusive."""

    def put(self, key: Any, start: Time, end: Time, value: Any) -> None:
        """Set the value of a session, or (None) remove it. The put survives the end of this process when the call
        returns.

        It is refused and counted in ``dropped_records`` if the segment of the session's end is older than the
        retention.
        """
        key_bytes = self._forms.serde.key_bytes(key)
        cells = None if value is None else self._forms.serde.value_bytes(value)
        first, last = self._time(start, "start"), self._time(end, "end")
        puts = self._latencies["put"]
        puts.count = number = puts.count + 1
        begin = 0 if number & SAMPLE else perf_counter_ns()
        with self._mutex:
            self._own()
            time_segment = self._live_time_segment(last)
            if time_segment is None:
                self._dropped += 1
            else:
                self._put_row(time_segment, key_bytes + SUFFIX.pack(last, first), cells, last)
        if begin:
            puts.add(perf_counter_ns() - begin)

    def remove(self, key: Any, start: Time, end: Time) -> None:
        """Remove a session. The stream time moves to its end in any case; nothing is counted as dropped."""
        row_key = self._forms.serde.key_bytes(key)
        first, last = self._time(start, "start"), self._time(end, "end")
        with self._mutex:
            self._own()
            time_segment = self._live_time_segment(last)
            if time_segment is not None:
                self._put_row(time_segment, row_key + SUFFIX.pack(last, first), None, last)

    def fetch_session(self, key: Any, start: Time, end: Time) -> Any:
        """Return the value of exactly this session, or None."""
        with self._latencies.time("fetch"):
            first, last = self._bound(start, "start"), self._bound(end, "end")
            row_key = self._forms.serde.key_bytes(key) + SUFFIX.pack(last, first)
            return self._stored_value(last, row_key) if last >= self._first_visible() else None

    def find_sessions(self, key: Any, earliest_end: Time, latest_start: Time) -> Iterator[Windowed]:
        """Return the sessions of a key with end >= ``earliest_end`` and start <= ``latest_start``, by end and then
        start.

        These are the sessions that overlap the span between the two times.
        """
        return self._find_of(key, earliest_end, latest_start, backwards=False)

    def backward_find_sessions(self, key: Any, earliest_end: Time, latest_start: Time) -> Iterator[Windowed]:
        """Return the sessions of ``find_sessions`` in the opposite order."""
        return self._find_of(key, earliest_end, latest_start, backwards=True)

    def find_sessions_range(self, low: Any, high: Any, earliest_end: Time, latest_start: Time) -> Iterator[Windowed]:
        """Return sessions like ``find_sessions``, for the keys from ``low`` to ``high`` (None: without end)."""
        return self._find(low, high, earliest_end, latest_start, backwards=False)

    def backward_find_sessions_range(
        self, low: Any, high: Any, earliest_end: Time, latest_start: Time
    ) -> Iterator[Windowed]:
        """Return the sessions of ``find_sessions_range`` in the opposite order."""
        return self._find(low, high, earliest_end, latest_start, backwards=True)

    def fetch(self, key: Any) -> Iterator[Windowed]:
        """Return all visible sessions of a key."""
        return self._find_of(key, 0, None, backwards=False)

    def backward_fetch(self, key: Any) -> Iterator[Windowed]:
        """Return the sessions of ``fetch`` in the opposite order."""
        return self._find_of(key, 0, None, backwards=True)

    def fetch_range(self, low: Any, high: Any) -> Iterator[Windowed]:
        """Return all visible sessions of the keys from ``low`` to ``high`` (None: without end)."""
        return self._find(low, high, 0, None, backwards=False)

    def backward_fetch_range(self, low: Any, high: Any) -> Iterator[Windowed]:
        """Return the sessions of ``fetch_range`` in the opposite order."""
        return self._find(low, high, 0, None, backwards=True)

    def restore(self, records: Iterable[tuple[Any, Time, Time, Any]]) -> None:
        """Replay changelog records (key, start, end, value or None) as one batch.

        The stream time moves first; then records in dead segments are left out, uncounted.
        """
        with self._mutex, self._latencies.time("restore"):
            self._own()
            serde, rows = self._forms.serde, []
            for key, start, end, value in records:
                first, last = self._time(start, "start"), self._time(end, "end")
                cells = None if value is None else serde.value_bytes(value)
                rows.append((serde.key_bytes(key) + SUFFIX.pack(last, first), cells, last))
            self._observe(max((end for _, _, end in rows), default=self._ost))
            self._restore_rows(rows)

    def _find_of(self, key: Any, earliest_end: Time, latest_start: Time | None, backwards: bool) -> Iterator[Windowed]:
        self._latencies["fetch"].count += 1
        first, latest = self._span(earliest_end, latest_start)
        name = self._forms.serde.key_bytes(key)
        length = len(name) + SUFFIX_BYTES

        def take(row: bytes) -> bool:
            return len(row) == length and row.startswith(name) and SUFFIX.unpack_from(row, len(name))[1] <= latest

        bounds = one_key(name, SUFFIX.pack(first, 0), LAST)
        return map(self._session, self._stored(first, MAX_TIME, bounds, take, backwards))

    def _find(
        self, low: Any, high: Any, earliest_end: Time, latest_start: Time | None, backwards: bool
    ) -> Iterator[Windowed]:
        self._latencies["range"].count += 1
        first, latest = self._span(earliest_end, latest_start)
        key_bytes = self._forms.serde.key_bytes
        lowest, highest = (None if key is None else key_bytes(key) for key in (low, high))
        if lowest is not None and highest is not None and lowest > highest:
            return iter(())

        def take(row: bytes) -> bool:
            end, start = SUFFIX.unpack_from(row, len(row) - SUFFIX_BYTES)
            return end >= first and start <= latest and within(row[:-SUFFIX_BYTES], lowest, highest)

        bounds = key_range(lowest, highest, LAST)
        return map(self._session, self._stored(first, MAX_TIME, bounds, take, backwards))

    def _span(self, earliest_end: Time, latest_start: Time | None) -> tuple[int, int]:
        """Return (the earliest end that is requested and visible, the latest start)."""
        first = max(self._bound(earliest_end, "earliest_end"), self._first_visible(), 0)
        return first, MAX_TIME if latest_start is None else self._bound(latest_start, "latest_start")

    def _session(self, row: tuple[bytes, bytes]) -> Windowed:
        row_key, value = row
        end, start = SUFFIX.unpack_from(row_key, len(row_key) - SUFFIX_BYTES)
        serde = self._forms.serde
        return Windowed(serde.key_of(row_key[:-SUFFIX_BYTES]), start, end, serde.value_of(value))

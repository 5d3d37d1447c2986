"""The window store of Kafka Streams 3.5 and later: rows (key, window start) -> value, and a table of windows.

A put at an existing (key, start) overwrites, and a null deletes. If the store retains duplicates, each put is a row of
its own and nulls are ignored. ``time_ordered`` (the emit-final stores) shows one millisecond more of the retention. The
state time of its table is the start of the window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import Any

from statestore.catalog.stores.handle import Time
from statestore.catalog.stores.latency import SAMPLE
from statestore.catalog.stores.live.live_tables import SEQUENCE_MASK
from statestore.catalog.stores.live.tier_handle import MAX_TIME
from statestore.catalog.stores.live.time_segmented import TimeSegmentedStore, Windowed, key_range, one_key, within
from statestore.formats.kafka_rows.byte_reader import INT64
from statestore.formats.kafka_rows.window_keys import SUFFIX

START = INT64
SUFFIX_BYTES = SUFFIX.size
LAST = b"\x7f" + b"\xff" * 11  # no suffix of a time from 0 on is greater


class WindowStore(TimeSegmentedStore):
    """A live handle on a window store; `LiveStore` describes which handle may write. Range ends are inclusive."""

    def put(self, key: Any, value: Any, window_start: Time) -> None:
        """Set the value of a window, or (None) delete it. The put survives the end of this process when the call
        returns.

        It is refused and counted in ``dropped_records`` if the window's segment is older than the retention.
        """
        key_bytes = self._forms.serde.key_bytes(key)
        cells = None if value is None else self._forms.serde.value_bytes(value)
        start = self._time(window_start, "window_start")
        puts = self._latencies["put"]
        puts.count = number = puts.count + 1
        begin = 0 if number & SAMPLE else perf_counter_ns()
        with self._mutex:
            self._own()
            sequence = 0
            if self._rule.duplicates:
                if cells is None:
                    return
                sequence = self._sequence = (self._sequence + 1) & SEQUENCE_MASK
            time_segment = self._live_time_segment(start)
            if time_segment is None:
                self._dropped += 1
            else:
                self._put_row(time_segment, key_bytes + SUFFIX.pack(start, sequence), cells, start)
        if begin:
            puts.add(perf_counter_ns() - begin)

    def fetch(self, key: Any, start: Time, end: Time | None = None) -> Any:
        """Return the windows of a key that start from ``start`` to ``end``, ascending.

        Without ``end``, return the value of the window that starts exactly at ``start``, or None (always None if
        duplicates are retained).
        """
        if end is not None:
            return self._fetch(key, start, end, backwards=False)
        with self._latencies.time("fetch"):
            at = self._bound(start, "start")
            row_key = self._forms.serde.key_bytes(key) + SUFFIX.pack(at, 0)
            return self._stored_value(at, row_key) if at >= self._first_visible() else None

    def backward_fetch(self, key: Any, start: Time, end: Time) -> Iterator[Windowed]:
        """Return the windows of a range of ``fetch`` in the opposite order."""
        return self._fetch(key, start, end, backwards=True)

    def fetch_range(self, low: Any, high: Any, start: Time, end: Time) -> Iterator[Windowed]:
        """Return windows of the keys from ``low`` to ``high`` (None: without end) that start from ``start`` to
        ``end``."""
        return self._range(low, high, start, end, backwards=False)

    def backward_fetch_range(self, low: Any, high: Any, start: Time, end: Time) -> Iterator[Windowed]:
        """Return the windows of ``fetch_range`` in the opposite order."""
        return self._range(low, high, start, end, backwards=True)

    def all(self) -> Iterator[Windowed]:
        """Return all visible windows."""
        return self._range(None, None, None, None, backwards=False)

    def backward_all(self) -> Iterator[Windowed]:
        """Return the windows of ``all`` in the opposite order."""
        return self._range(None, None, None, None, backwards=True)

    def fetch_all(self, start: Time, end: Time) -> Iterator[Windowed]:
        """Return the windows of all keys that start from ``start`` to ``end``."""
        return self._range(None, None, start, end, backwards=False)

    def backward_fetch_all(self, start: Time, end: Time) -> Iterator[Windowed]:
        """Return the windows of ``fetch_all`` in the opposite order."""
        return self._range(None, None, start, end, backwards=True)

    def restore(self, records: Iterable[tuple[Any, Any, Time]]) -> None:
        """Replay changelog records (key, value or None, window start) as one batch.

        The stream time moves first; then records in dead segments are left out, uncounted.
        """
        with self._mutex, self._latencies.time("restore"):
            self._own()
            serde, duplicates = self._forms.serde, self._rule.duplicates
            rows = []
            for key, value, window_start in records:
                if value is None and duplicates:
                    continue
                if duplicates:
                    self._sequence = (self._sequence + 1) & SEQUENCE_MASK
                start = self._time(window_start, "window_start")
                row_key = serde.key_bytes(key) + SUFFIX.pack(start, self._sequence if duplicates else 0)
                rows.append((row_key, None if value is None else serde.value_bytes(value), start))
            self._observe(max((start for _, _, start in rows), default=self._ost))
            self._restore_rows(rows)

    def _fetch(self, key: Any, start: Time, end: Time, backwards: bool) -> Iterator[Windowed]:
        self._latencies["fetch"].count += 1
        first, last = self._visible(start, end)
        if first > last:
            return iter(())
        name = self._forms.serde.key_bytes(key)
        length = len(name) + SUFFIX_BYTES
        bounds = one_key(name, SUFFIX.pack(first, 0), SUFFIX.pack(last, SEQUENCE_MASK))
        rows = self._stored(first, last, bounds, lambda row: len(row) == length and row.startswith(name), backwards)
        return map(self._windowed, rows)

    def _range(self, low: Any, high: Any, start: Time | None, end: Time | None, backwards: bool) -> Iterator[Windowed]:
        self._latencies["range"].count += 1
        first, last = self._visible(start, end)
        if first > last:
            return iter(())
        key_bytes = self._forms.serde.key_bytes
        lowest, highest = (None if key is None else key_bytes(key) for key in (low, high))
        if lowest is not None and highest is not None and lowest > highest:
            return iter(())

        def take(row: bytes) -> bool:
            begin: int = START.unpack_from(row, len(row) - SUFFIX_BYTES)[0]
            return first <= begin <= last and within(row[:-SUFFIX_BYTES], lowest, highest)

        return map(self._windowed, self._stored(first, last, key_range(lowest, highest, LAST), take, backwards))

    def _visible(self, start: Time | None, end: Time | None) -> tuple[int, int]:
        """Return the bounds of the requested starts: at least 0, and within the retention."""
        first = 0 if start is None else max(0, self._bound(start, "start"))
        last = MAX_TIME if end is None else self._bound(end, "end")
        return max(first, self._first_visible()), last

    def _windowed(self, row: tuple[bytes, bytes]) -> Windowed:
        row_key, value = row
        start: int = START.unpack_from(row_key, len(row_key) - SUFFIX_BYTES)[0]
        end = min(start + self._rule.window_size, MAX_TIME)
        serde = self._forms.serde
        return Windowed(serde.key_of(row_key[:-SUFFIX_BYTES]), start, end, serde.value_of(value))

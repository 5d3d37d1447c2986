"""The window store of Kafka Streams 3.5 and later: rows (key, window start) -> value, and a table of windows.

A put at an existing (key, start) overwrites, and a null deletes. If the store retains duplicates, each put is a row of
its own, and a null changes nothing but is logged. ``time_ordered`` (the emit-final stores) returns the windows of
several keys by start and then key, and shows one millisecond more of the retention. The state time of its table is the
start of the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.latency import SAMPLE
from statestore.catalog.stores.live.hot_tier import HotTier, TimeOrderedTier
from statestore.catalog.stores.live.live_tables import SEQUENCE_MASK, Accepted
from statestore.catalog.stores.live.time_segmented import (
    Take,
    TimeSegmentedStore,
    Windowed,
    key_range,
    one_key,
    within,
)
from statestore.catalog.stores.store_handle import AutoCompact
from statestore.formats.kafka_rows.byte_reader import INT64
from statestore.formats.kafka_rows.window_keys import MAX_TIME, SUFFIX, key_and_start, time_first_bounds
from statestore.formats.values.times import Time

START = INT64
_new_tuple = tuple.__new__  # of a Windowed, without keyword arguments
SUFFIX_BYTES = SUFFIX.size
LAST = b"\x7f" + b"\xff" * 11  # no suffix of a time from 0 on is greater


class WindowStore(TimeSegmentedStore):
    """A live handle on a window store; `LiveStore` describes which handle may write. Range ends are inclusive."""

    def __init__(
        self, storage: Storage, spec: StoreSpec, *, auto_compact: AutoCompact = True, read_only: bool = False
    ) -> None:
        super().__init__(storage, spec, auto_compact=auto_compact, read_only=read_only)
        self._parts_of: Callable[[bytes], tuple[bytes, int]] = (
            key_and_start if self._rule.time_ordered else _parts_of_row_key
        )
        self._last_put: tuple[bytes, int, bytes] | None = None  # key, start, value; only where duplicates are kept

    def put(self, key: Any, value: Any, window_start: Time) -> None:
        """Set the value of a window, or (None) delete it. The put survives the end of this process when the call
        returns.

        It is refused and counted in ``dropped_records`` if the window's segment is older than the retention. Where
        duplicates are retained, None removes nothing, but is logged under a number of its own.
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
                sequence = self._sequence = (self._sequence + 1) & SEQUENCE_MASK
                if cells is None:
                    append = self._append or self._open_changelog()
                    append(key_bytes + SUFFIX.pack(start, sequence), None, min(start, self._ost))
                    return
                self._last_put = None
            time_segment = self._live_time_segment(start)
            if time_segment is None:
                self._dropped += 1
            else:
                self._put_row(time_segment, key_bytes + SUFFIX.pack(start, sequence), cells, start)
                if cells is not None and self._rule.duplicates:
                    self._last_put = key_bytes, start, cells
        if begin:
            puts.add(perf_counter_ns() - begin)

    def fetch(self, key: Any, start: Time, end: Time | None = None) -> Any:
        """Return the windows of a key that start from ``start`` to ``end``, ascending.

        Without ``end``, return the value of the window that starts exactly at ``start``, or None. Where duplicates are
        retained, only the last put of this handle is found, as in Kafka.
        """
        if end is not None:
            return self._fetch(key, start, end, backwards=False)
        with self._latencies.time("fetch"):
            at = self._bound(start, "start")
            name = self._forms.serde.key_bytes(key)
            if at < self._first_visible():
                return None
            if not self._rule.duplicates:
                return self._stored_value(at, name + SUFFIX.pack(at, 0))
            last = self._last_put
            return None if last is None or last[:2] != (name, at) else self._forms.serde.value_of(last[2])

    def backward_fetch(self, key: Any, start: Time, end: Time) -> Iterator[Windowed]:
        """Return the windows of a range of ``fetch`` in the opposite order."""
        return self._fetch(key, start, end, backwards=True)

    def fetch_range(self, low: Any, high: Any, start: Time, end: Time) -> Iterator[Windowed]:
        """Return windows of the keys from ``low`` to ``high`` (None: without end) that start from ``start`` to
        ``end``.

        They come segment by segment, and in each by the bytes of key and start; in a time-ordered store by start and
        then key.
        """
        return self._range(low, high, start, end, backwards=False)

    def backward_fetch_range(self, low: Any, high: Any, start: Time, end: Time) -> Iterator[Windowed]:
        """Return the windows of ``fetch_range`` in the opposite order."""
        return self._range(low, high, start, end, backwards=True)

    def all(self) -> Iterator[Windowed]:
        """Return all visible windows, in the order of ``fetch_range``."""
        return self._range(None, None, None, None, backwards=False)

    def backward_all(self) -> Iterator[Windowed]:
        """Return the windows of ``all`` in the opposite order."""
        return self._range(None, None, None, None, backwards=True)

    def fetch_all(self, start: Time, end: Time) -> Iterator[Windowed]:
        """Return the windows of all keys that start from ``start`` to ``end``, in the order of ``fetch_range``."""
        return self._range(None, None, start, end, backwards=False)

    def backward_fetch_all(self, start: Time, end: Time) -> Iterator[Windowed]:
        """Return the windows of ``fetch_all`` in the opposite order."""
        return self._range(None, None, start, end, backwards=True)

    def restore(self, records: Iterable[tuple[Any, Any, Time]]) -> None:
        """Replay changelog records (key, value or None, window start) as one batch.

        The stream time moves first; then records in dead segments are left out, uncounted. As in Kafka, a null moves
        the stream time even where duplicates are retained.
        """
        with self._mutex, self._latencies.time("restore"):
            self._own()
            serde, duplicates = self._forms.serde, self._rule.duplicates
            rows = []
            for key, value, window_start in records:
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
        if self._rule.time_ordered:
            take: Take = lambda row: key_and_start(row)[0] == name  # noqa: E731
            return map(self._windowed, self._stored(first, last, time_first_bounds(first, last), take, backwards))
        lists = self._row_lists(
            self._time_segments_of(first, last, backwards),
            *one_key(name, SUFFIX.pack(first, 0), SUFFIX.pack(last, SEQUENCE_MASK)),
            backwards,
        )
        return self._windows_of(name, lists)

    def _windows_of(self, name: bytes, lists: Iterator[list[tuple[bytes, bytes]]]) -> Iterator[Windowed]:
        """Yield the rows of one key, whose row keys all begin with ``name``; longer ones belong to other keys."""
        at, length = len(name), len(name) + SUFFIX_BYTES
        size, unpack = self._rule.window_size, START.unpack_from
        bounded = MAX_TIME - size  # starts before it have an end of their own
        key_of, value_of = self._forms.serde.key_of, self._forms.serde.value_of
        key = key_of(name)
        if isinstance(key, dict | list):  # users may change it
            key_of_row: Callable[[], Any] = partial(key_of, name)
        else:
            key_of_row = lambda: key  # noqa: E731
        for rows in lists:
            found = [(unpack(row, at)[0], value) for row, value in rows if len(row) == length]
            yield from [
                _new_tuple(
                    Windowed, (key_of_row(), start, start + size if start < bounded else MAX_TIME, value_of(value))
                )
                for start, value in found
            ]

    def _range(self, low: Any, high: Any, start: Time | None, end: Time | None, backwards: bool) -> Iterator[Windowed]:
        self._latencies["range"].count += 1
        first, last = self._visible(start, end)
        if first > last:
            return iter(())
        key_bytes = self._forms.serde.key_bytes
        lowest, highest = (None if key is None else key_bytes(key) for key in (low, high))
        if lowest is not None and highest is not None and lowest > highest:
            return iter(())

        parts_of = self._parts_of

        def take(row: bytes) -> bool:
            name, begin = parts_of(row)
            return first <= begin <= last and within(name, lowest, highest)

        bounds = time_first_bounds(first, last) if self._rule.time_ordered else key_range(lowest, highest, LAST)
        return map(self._windowed, self._stored(first, last, bounds, take, backwards))

    def _accept(self, data: Any) -> Accepted:
        accepted = super()._accept(data)
        if self._rule.duplicates and len(accepted.row_keys):
            row_key, value = accepted.row_keys[-1].as_py(), accepted.values[-1].as_py()
            start, sequence = SUFFIX.unpack_from(row_key, len(row_key) - SUFFIX_BYTES)
            self._last_put = (row_key[:-SUFFIX_BYTES], start, value) if sequence == self._sequence else None
        return accepted

    def _uncommitted(self) -> Accepted:
        """Return the rows without the nulls of a store with duplicates, which remove nothing."""
        accepted = super()._uncommitted()
        return accepted.chosen(accepted.values.is_valid().to_numpy(False)) if self._rule.duplicates else accepted

    def _tier_in(self, folder: Path) -> HotTier:
        kind = TimeOrderedTier if self._rule.time_ordered else HotTier
        return kind(folder, self.name, self._time_segment_name)

    def _discard_own(self) -> None:
        self._last_put = None
        super()._discard_own()

    def _visible(self, start: Time | None, end: Time | None) -> tuple[int, int]:
        """Return the bounds of the requested starts: at least 0, and within the retention."""
        first = 0 if start is None else max(0, self._bound(start, "start"))
        last = MAX_TIME if end is None else self._bound(end, "end")
        return max(first, self._first_visible()), last

    def _windowed(self, row: tuple[bytes, bytes]) -> Windowed:
        name, start = self._parts_of(row[0])
        end = min(start + self._rule.window_size, MAX_TIME)
        serde = self._forms.serde
        return Windowed(serde.key_of(name), start, end, serde.value_of(row[1]))


def _parts_of_row_key(row_key: bytes) -> tuple[bytes, int]:
    """Return key and start of a row key."""
    start: int = START.unpack_from(row_key, len(row_key) - SUFFIX_BYTES)[0]
    return row_key[:-SUFFIX_BYTES], start

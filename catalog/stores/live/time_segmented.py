"""The common part of window and session stores: rows in time segments, of which the old ones are dropped whole.

A row belongs to the segment of its time. Writes are judged by segment, reads see rows by the millisecond
(``Windowing``). Results of several keys come segment by segment and inside a segment by the bytes of the row key, as in
Kafka; this is neither the order of time nor of keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec, Windowing
from statestore.catalog.stores.live.hot_tier import HotTier
from statestore.catalog.stores.live.live_store import LiveStore
from statestore.catalog.stores.store_handle import AutoCompact

Bounds = tuple[bytes | None, bytes | None]
Take = Callable[[bytes], bool]


class Windowed(NamedTuple):
    """A row in the result of a range; ``start`` and ``end`` in epoch milliseconds."""

    key: Any
    start: int
    end: int
    value: Any


class TimeSegmentedStore(LiveStore):
    """A live handle on a store of windows or sessions; the kinds add their methods."""

    def __init__(
        self, storage: Storage, spec: StoreSpec, *, auto_compact: AutoCompact = True, read_only: bool = False
    ) -> None:
        super().__init__(storage, spec, auto_compact=auto_compact, read_only=read_only)
        assert spec.windowing is not None
        self._rule: Windowing = spec.windowing

    @property
    def segments(self) -> list[str]:
        """Directory names of the existing segments, in order of time."""
        name = self._time_segment_name
        return [] if name is None else [name(time_segment) for time_segment in self._readable().time_segments()]

    def _live_time_segment(self, time: int) -> int | None:
        """Move the stream time, and return the segment of a row of this time; None if that segment is dead."""
        if time > self._ost:
            self._observe(time)
        rule = self._rule
        time_segment = rule.time_segment(time)
        return time_segment if time_segment >= rule.first_live_time_segment(self._ost) else None

    def _first_visible(self) -> int:
        """Return the earliest time that reads see now."""
        self._readable()
        return self._rule.first_visible(self._ost)

    def _stored(
        self, first: int, last: int, bounds: Bounds, take: Take, backwards: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows in segments of the times [first, last] whose row key is in ``bounds`` and accepted by
        ``take``.
        """
        rows = self._rows(self._time_segments_of(first, last, backwards), *bounds, backwards)
        return (row for row in rows if take(row[0]))

    def _time_segments_of(self, first: int, last: int, backwards: bool) -> list[int]:
        """Return the existing segments of the times [first, last], in the order of a read."""
        low, high = self._rule.time_segment(first), self._rule.time_segment(last)
        time_segments = [n for n in self._read(lambda tier: tier.time_segments()) if low <= n <= high]
        return time_segments[::-1] if backwards else time_segments

    def _stored_value(self, time: int, row_key: bytes) -> Any:
        """Return the value of one row, or None."""
        time_segment = self._rule.time_segment(time)
        found = self._read(lambda tier: _get(tier, time_segment, row_key))
        return None if found is None else self._forms.serde.value_of(found)


def _get(tier: HotTier, time_segment: int, row_key: bytes) -> bytes | None:
    return tier.get(time_segment, row_key)


def one_key(key: bytes, low: bytes, high: bytes) -> Bounds:
    """Return the bounds of row keys of one key with suffixes from ``low`` to ``high``.

    Row keys of longer keys with this prefix lie among them.
    """
    return key + low, key + high + b"\0"


def key_range(low: bytes | None, high: bytes | None, greatest: bytes) -> Bounds:
    """Return the bounds of row keys of the keys from ``low`` to ``high`` (None: without end).

    No suffix is greater than ``greatest``. A key that is a prefix of ``high`` is smaller, but its row key need not be:
    its suffix follows at once.
    """
    if high is None:
        return low, None
    last = max(high[:length] + greatest for length in range(len(high) + 1))
    return low, last + b"\0"


def within(key: bytes, low: bytes | None, high: bytes | None) -> bool:
    return (low is None or low <= key) and (high is None or key <= high)

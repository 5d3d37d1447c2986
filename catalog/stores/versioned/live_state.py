"""One key as its handle sees it: committed versions with the handle's own uncommitted puts on top."""

from __future__ import annotations

from typing import Any

from statestore.catalog.commits.key_timeline import KeyVersion, Timeline
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.lookup.point_lookup import Found, PointLookup
from statestore.catalog.stores.pending_writes import Pending
from statestore.formats.values.key_codec import KeyCodec

Key = tuple[Any, ...]


class LiveState:
    """Timelines of keys with pending puts, made at the first read; other keys are read from segments.

    A timeline starts with the committed rows that end at or after the key's earliest pending put. Rows that end earlier
    cannot change, so the cost of a put does not depend on the length of the key's history. ``lookup`` has the committed
    rows only.
    """

    def __init__(self, lookup: PointLookup, pending: Pending, codec: KeyCodec) -> None:
        self.lookup = lookup
        self._pending = pending
        self._codec = codec
        self._timelines: dict[Key, tuple[int, Timeline]] = {}

    def follow(self, log_state: LogState) -> None:
        """Read from another log state from now on."""
        self.lookup = self.lookup.following(log_state)
        self._timelines.clear()

    def forget(self) -> None:
        """Drop all timelines, because the pending puts have changed."""
        self._timelines.clear()

    def valid_at(self, key: Key, moment: int) -> tuple[int, int, tuple[Any, ...] | None] | None:
        """Return the version valid at ``moment`` (epoch microseconds) as the members of a `Found`; it may be a
        tombstone.
        """
        if self._pending.parts:
            cached = self._timeline(key)
            if cached is not None:
                earliest, timeline = cached
                entry = timeline.get(moment)
                if entry is not None:
                    return entry.start, entry.end, entry.value
                if moment >= earliest:
                    return None
        return self.lookup.valid_at(key, moment)

    def versions_of(self, key: Key) -> list[Found]:
        """Return all versions and tombstones of the key by start."""
        committed = self.lookup.versions_of(key)
        cached = self._timeline(key) if self._pending.parts else None
        if cached is None:
            return committed
        earliest, timeline = cached
        older = [f for f in committed if f.end < earliest]
        return older + [Found(e.start, e.end, e.value) for e in timeline.entries]

    def timeline_for_put(self, key: Key, moment: int) -> Timeline:
        """Return the key's timeline with the pending puts, ready for one more put at ``moment``."""
        cached = self._timeline(key) if self._pending.parts else None
        if cached is None or moment < cached[0]:
            cached = self._timelines[key] = (moment, self._make(key, moment))
        return cached[1]

    def has_timeline(self, key: Key) -> bool:
        """Return whether the key's timeline was made, so that further puts have to go into it."""
        return key in self._timelines

    def drop(self, key: Key) -> None:
        """Drop the key's timeline, which does not have a put that was made meanwhile."""
        self._timelines.pop(key, None)

    def keep(self, key: Key, timeline: Timeline) -> None:
        """Drop the key's timeline unless it is this one, which has taken a put that the other has not."""
        cached = self._timelines.get(key)
        if cached is not None and cached[1] is not timeline:
            del self._timelines[key]

    def _timeline(self, key: Key) -> tuple[int, Timeline] | None:
        """Return (earliest pending put, timeline from there on); None for a key without pending puts."""
        cached = self._timelines.get(key)
        if cached is None:
            puts = self._pending.puts_of(key, self._codec.hash(key))
            if not puts:
                return None
            earliest = min(moment for moment, _ in puts)
            cached = self._timelines[key] = (earliest, self._make(key, earliest))
        return cached

    def _make(self, key: Key, earliest: int) -> Timeline:
        key_hash = self._codec.hash(key)
        rows = self.lookup.ending_from(key, earliest)
        timeline = Timeline([KeyVersion(f.start, f.end, f.values, number) for number, f in enumerate(rows)])
        for moment, cells in self._pending.puts_of(key, key_hash):
            timeline.put(moment, cells)
        return timeline

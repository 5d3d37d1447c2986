"""Time segments: writes are accepted, and old rows deleted, by whole segments; the stores decide what reads return.

Source: docs of KIP-205 and Kafka's rules since 3.5. All times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

SHORTEST_INTERVAL = 60_000
LATEST_TIME = 2**63 - 1


def segment_of(time: int, interval: int) -> int:
    """The segment of a time: a division that truncates toward zero, as Java's."""
    return time // interval if time >= 0 else -(-time // interval)


def default_interval(retention: int) -> int:
    return max(retention // 2, SHORTEST_INTERVAL)


@dataclass
class SegmentedRows:
    """``segments[id][row key bytes]`` is a row. A segment exists from its first write on, even if that was a delete."""

    retention: int
    interval: int
    stream_time: int = -1
    segments: dict[int, dict[bytes, Any]] = field(default_factory=dict)

    def observe(self, time: int) -> None:
        self.stream_time = max(self.stream_time, time)

    def write(self, time: int, row_key: bytes, row: Any) -> bool:
        """Set a row (None: delete it), unless the segment of ``time`` is dead; delete all dead segments."""
        oldest = segment_of(self.stream_time - self.retention, self.interval)
        for dead in [segment for segment in self.segments if segment < oldest]:
            del self.segments[dead]
        segment = segment_of(time, self.interval)
        if segment < oldest:
            return False
        rows = self.segments.setdefault(segment, {})
        if row is None:
            rows.pop(row_key, None)
        else:
            rows[row_key] = row
        return True

    def discard(self, time: int, row_key: bytes) -> None:
        """Delete a row if it exists, dead segment or not; make and delete no segment."""
        self.segments.get(segment_of(time, self.interval), {}).pop(row_key, None)

    def get(self, time: int, row_key: bytes) -> Any:
        return self.segments.get(segment_of(time, self.interval), {}).get(row_key)

    def in_order(self) -> Iterator[tuple[int, bytes, Any]]:
        """(segment, row key, row): segment by segment, in each by the bytes of the row key."""
        for segment in sorted(self.segments):
            for row_key in sorted(self.segments[segment]):
                yield segment, row_key, self.segments[segment][row_key]

    def names(self, store: str) -> list[str]:
        """The directories of the segments, oldest first."""
        return [self.name(store, segment) for segment in sorted(self.segments)]

    def name(self, store: str, segment: int) -> str:
        return f"{store}.{segment * self.interval}"

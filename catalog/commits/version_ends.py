"""Ends of new versions, and stored rows that they shorten, over whole batches: the rules of Kafka's versioned store.

A version ends where the next one of its key starts. A late version is born closed. A version at an existing (key, time)
replaces that row, which is closed at its own start. Times are epoch microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.segment_meta import OPEN


@dataclass(frozen=True)
class NewRows:
    """Versions to store, sorted by ``start``: ``record`` is the row of Records that holds key and value.

    ``by_hash`` lists the rows in order of the hash of their key, where that order is known without sorting.
    """

    record: Ints
    start: Ints
    end: Ints
    by_hash: Ints | None = None


@dataclass(frozen=True)
class Existing:
    """Stored rows of these keys that end after the key's earliest record, by (group, start)."""

    group: Ints
    start: Ints
    end: Ints
    segment_index: Ints
    row: Ints
    tombstone: Bools

    def take(self, chosen: Ints | Bools) -> Existing:
        return Existing(
            self.group[chosen],
            self.start[chosen],
            self.end[chosen],
            self.segment_index[chosen],
            self.row[chosen],
            self.tombstone[chosen],
        )


def merged(left: Existing, right: Existing) -> Existing:
    pairs = zip(vars(left).values(), vars(right).values(), strict=True)
    both = Existing(*(np.concatenate(pair) for pair in pairs))
    return both.take(np.lexsort((both.start, both.group)))


def insert_versions(new: tuple[Ints, Ints, Ints], existing: Existing) -> tuple[NewRows, list[Ints], int]:
    """Return the new rows with their ends, closures as arrays (segment index, row, end), and how many closed rows were
    open.
    """
    record, group, time = new
    next_new = np.append(np.where(group[1:] == group[:-1], time[1:], OPEN), [OPEN])[: len(group)]
    count = int(max(group.max(initial=-1), existing.group.max(initial=-1))) + 1
    earliest = np.full(count, OPEN, np.int64)
    earliest[group[::-1]] = time[::-1]
    alone = bool((existing.group[1:] > existing.group[:-1]).all())
    if not alone or (existing.start > earliest[existing.group]).any():
        return _insert_among(new, existing)
    # Each key has at most one stored row that matters, and it began before all of the key's new rows.
    container = np.full(count, OPEN, np.int64)
    container[existing.group] = existing.end
    bound = container[group]
    ends = np.minimum(next_new, np.where(bound > time, bound, OPEN))
    closures = [existing.segment_index, existing.row, earliest[existing.group]]
    return NewRows(record, time, ends), closures, int(np.count_nonzero(existing.end == OPEN))


def _insert_among(new: tuple[Ints, Ints, Ints], existing: Existing) -> tuple[NewRows, list[Ints], int]:
    """Insert new rows like `insert_versions` where late records fall among several stored rows of their key."""
    record, group, time = new
    count = len(record) + len(existing.group)
    # Both halves are sorted already, and at equal (group, start) the existing row comes first.
    stored_at = positions_among(group, time, existing.group, existing.start) + np.arange(len(existing.group))
    new_at = np.ones(count, bool)
    new_at[stored_at] = False
    group_at, start_at, stored_end = (np.empty(count, np.int64) for _ in range(3))
    group_at[stored_at], start_at[stored_at], stored_end[stored_at] = existing.group, existing.start, existing.end
    group_at[new_at], start_at[new_at], stored_end[new_at] = group, time, OPEN

    next_start = np.append(np.where(group_at[1:] == group_at[:-1], start_at[1:], OPEN), [OPEN])
    positions = np.arange(count)
    container = np.maximum.accumulate(np.where(new_at, -1, positions))
    inside = (container >= 0) & (group_at[container] == group_at) & (stored_end[container] > start_at)
    ends = np.minimum(next_start, np.where(inside, stored_end[container], OPEN))

    follower = np.minimum.accumulate(np.where(new_at, positions, count)[::-1])[::-1]
    at = np.minimum(follower, count - 1)
    shortened = ~new_at & (follower < count) & (group_at[at] == group_at) & (start_at[at] < stored_end)
    closed = np.flatnonzero(shortened[stored_at])
    closures = [existing.segment_index[closed], existing.row[closed], start_at[at[stored_at[closed]]]]
    ended = int(np.count_nonzero(existing.end[closed] == OPEN))
    return NewRows(record, time, ends[new_at]), closures, ended


def positions_among(group: Ints, time: Ints, wanted_group: Ints, wanted_time: Ints) -> Ints:
    """Return, for each wanted (group, time), the number of the sorted pairs that are smaller.

    Its cost follows the number of wanted pairs: a search within the pairs of each group.
    """
    low = np.searchsorted(group, wanted_group, side="left")
    high = np.searchsorted(group, wanted_group, side="right")
    while True:
        searching = low < high
        if not searching.any():
            return low
        middle = (low + high) >> 1
        smaller = searching & (time[np.minimum(middle, len(time) - 1)] < wanted_time)
        low = np.where(smaller, middle + 1, low)
        high = np.where(searching & ~smaller, middle, high)

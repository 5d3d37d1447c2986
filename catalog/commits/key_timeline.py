"""The timeline of one key of a versioned store, exactly as in Kafka's RocksDBVersionedStore (KIP-889).

The entries of a key (versions and tombstones) tile its time: each ends where the next starts. Times are epoch
microseconds; the newest entry ends at ``OPEN``.

One case depends on the order of the puts. Kafka keeps the newest value apart from the history, and a null put at
exactly its timestamp only removes it. A tombstone is then implied only by a value of the history that ends there. If no
value ends there, the put leaves no trace: an older tombstone becomes the newest entry again, and a later put of an
older value becomes the newest version. A commit replays the keys with that case one by one (`replay`).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from statestore.catalog.commits.sorted_records import Records, SortedRecords
from statestore.catalog.commits.version_ends import Existing, positions_among
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import OPEN

Value = tuple[Any, ...] | None


class KeyVersion(NamedTuple):
    """A version, or a tombstone if ``value`` is None. ``origin`` identifies a committed row; None: a new put."""

    start: int
    end: int
    value: Value
    origin: Any = None


@dataclass(frozen=True)
class _Committed:
    start: int
    end: int
    origin: Any


class Timeline:
    """The entries of one key from some committed row on, and the changes that puts make to them."""

    def __init__(self, entries: Iterable[KeyVersion] = ()) -> None:
        self.entries: list[KeyVersion] = sorted(entries, key=lambda e: e.start)
        self._committed = [_Committed(e.start, e.end, e.origin) for e in self.entries]

    def put(self, time: int, value: Value) -> int:
        """Insert a version or (None) a tombstone; return its end at this moment, OPEN if it is the newest."""
        at = bisect_right(self.entries, time, key=lambda e: e.start)
        following = self.entries[at].start if at < len(self.entries) else OPEN
        if at == 0:
            self.entries.insert(0, KeyVersion(time, following, value))
            return following
        before = self.entries[at - 1]
        if before.start == time:
            return self._replace(at - 1, value)
        end = min(following, before.end) if before.end > time else following
        if before.end > time:
            self.entries[at - 1] = before._replace(end=time)
        self.entries.insert(at, KeyVersion(time, end, value))
        return end

    def get(self, time: int) -> KeyVersion | None:
        """Return the entry (possibly a tombstone) that is valid at ``time``."""
        at = bisect_right(self.entries, time, key=lambda e: e.start)
        entry = self.entries[at - 1] if at else None
        return entry if entry is not None and time < entry.end else None

    def newest(self) -> KeyVersion | None:
        """Return the entry that is still valid."""
        return self.entries[-1] if self.entries and self.entries[-1].end == OPEN else None

    def versions(self, low: int, high: int, ascending: bool) -> Iterator[KeyVersion]:
        """Iterate over the values that were valid at some moment from ``low`` to ``high``, both inclusive."""
        entries = [e for e in self.entries if e.value is not None and e.start <= high and e.end > low]
        return iter(entries if ascending else entries[::-1])

    def changes(self) -> tuple[list[tuple[Any, int]], list[tuple[int, int, Value]]]:
        """Return the differences from the committed rows.

        They are (origin, new end) of each shortened row, with the row's own start as the end if it was replaced or
        removed, and (start, end, value) of each row to add.
        """
        kept = {e.origin: e for e in self.entries if e.origin is not None}
        closures = []
        for row in self._committed:
            now = kept.get(row.origin)
            if now is None or now.end > row.end:
                closures.append((row.origin, row.start))
            elif now.end < row.end:
                closures.append((row.origin, now.end))
        lengthened = {row.origin for row in self._committed if (e := kept.get(row.origin)) and e.end > row.end}
        added = [(e.start, e.end, e.value) for e in self.entries if e.origin is None or e.origin in lengthened]
        return closures, added

    def _replace(self, at: int, value: Value) -> int:
        old = self.entries[at]
        is_newest = old.end == OPEN and at == len(self.entries) - 1
        before = self.entries[at - 1] if at and self.entries[at - 1].end == old.start else None
        implied = before is not None and before.value is not None
        if value is None and old.value is not None and is_newest and not implied:
            del self.entries[at]
            if before is not None:
                self.entries[at - 1] = before._replace(end=OPEN)
            return OPEN
        self.entries[at] = KeyVersion(old.start, old.end, value)
        return old.end


def put_all(stored: Sequence[int], times: Sequence[int], tombstones: Sequence[bool]) -> tuple[list[int], list[int]]:
    """Return (starts, numbers) of the entries of a key, in order, after puts to entries that tile its time.

    The stored entries, which start at ``stored`` (ascending), have the first numbers, and put ``n`` at ``times[n]`` the
    number ``len(stored) + n``. ``tombstones`` has the entries and then the puts. The result is that of `Timeline`,
    twenty times as fast: where stored entries tile the time up to OPEN, each entry always ends where the next starts.
    """
    starts = list(stored)
    at = {start: number for number, start in enumerate(starts)}
    for number, time in enumerate(times, len(starts)):
        if not starts or time > starts[-1]:
            starts.append(time)
        elif time not in at:
            insort(starts, time)
        elif (
            tombstones[number]
            and time == starts[-1]
            and not tombstones[at[time]]
            and (len(starts) == 1 or tombstones[at[starts[-2]]])
        ):
            del at[starts.pop()]  # the newest value is taken back, and no value before it implies a tombstone
            continue
        at[time] = number
    return starts, [at[start] for start in starts]


def taken_back(records: Records, ordered: SortedRecords, kept: Ints) -> Ints:
    """Return the groups, with repetitions, in which a null put takes back a value of the same batch and time.

    ``kept`` are the positions of the records that count: the last of each key and time.
    """
    if len(kept) == len(ordered.record):
        return np.empty(0, np.int64)
    begins = np.concatenate(([0], kept[:-1] + 1))
    several = np.flatnonzero(begins < kept)
    last = kept[several]
    dead = records.tombstones[ordered.record[last]]
    several, last = several[dead], last[dead]
    if not len(several):
        return np.empty(0, np.int64)
    is_value = ~records.tombstones[ordered.record]
    values_before = np.concatenate(([0], np.cumsum(is_value)))
    return ordered.group[last[values_before[last] > values_before[begins[several]]]]


def groups_to_replay(records: Records, ordered: SortedRecords, existing: Existing, kept: Ints) -> Ints:
    """Return the groups, ascending, in which a null put may take back a value put at the same time, so that the order
    of puts decides.
    """
    if not records.tombstones[ordered.record].any():
        return np.empty(0, np.int64)
    groups = [taken_back(records, ordered, kept)]
    at_start = (existing.end == OPEN) & ~existing.tombstone
    if at_start.any():
        newest = existing.take(at_start)
        position = _locate(ordered.group[kept], ordered.time[kept], newest.group, newest.start)
        replaced = (position >= 0) & records.tombstones[ordered.record[kept[position]]]
        groups.append(newest.group[replaced])
    return np.unique(np.concatenate(groups))


def _locate(group: Ints, time: Ints, wanted_group: Ints, wanted_time: Ints) -> Ints:
    """Return the index of each wanted (group, time) among the sorted pairs, or -1."""
    if not len(group):
        return np.full(len(wanted_group), -1, np.int64)
    at = positions_among(group, time, wanted_group, wanted_time)
    candidate = np.minimum(at, len(group) - 1)
    hit = (at < len(group)) & (group[candidate] == wanted_group) & (time[candidate] == wanted_time)
    return np.where(hit, candidate, -1)


def replay(records: Records, ordered: SortedRecords, existing: Existing, odd: Ints) -> tuple[list[Ints], list[Ints]]:
    """Resolve the groups ``odd`` (ascending), with one timeline each.

    ``existing`` has their rows that end at or after their earliest record. Returns rows (group, record, start, end) by
    (group, start), and closures as arrays (segment index, row, end).
    """
    sizes = np.diff(np.append(ordered.first, len(ordered.record)))
    rows, closures = [np.empty((0, 4), np.int64)], [np.empty((0, 3), np.int64)]
    for group in odd.tolist():
        first = int(ordered.first[group])
        numbers = np.sort(ordered.record[first : first + int(sizes[group])])
        mine = existing.take(np.arange(*np.searchsorted(existing.group, (group, group + 1))))
        added, shortened = (_put_all if _tiles(mine) else _put_each)(records, numbers, mine)
        added = added[np.argsort(added[:, 1], kind="stable")]
        rows.append(np.column_stack((np.full(len(added), group), added)))
        closures.append(shortened)
    return list(np.concatenate(rows).T), list(np.concatenate(closures).T)


def _tiles(stored: Existing) -> bool:
    """Return whether each stored row ends where the next one starts, and the last one is open."""
    return bool((stored.end == np.append(stored.start[1:], OPEN)[: len(stored.end)]).all())


def _put_all(records: Records, numbers: Ints, stored: Existing) -> tuple[Ints, Ints]:
    """Return rows (record, start, end) and closures (segment index, row, end) of a key whose stored rows tile."""
    count = len(stored.group)
    tombstones = np.concatenate((stored.tombstone, records.tombstones[numbers]))
    found, entries = put_all(stored.start.tolist(), records.times[numbers].tolist(), tombstones.tolist())
    start, entry = np.array(found, np.int64), np.array(entries, np.int64)
    end = np.append(start[1:], OPEN)[: len(start)]
    new = entry >= count
    ends = stored.start.copy()  # of rows that are not there any more
    ends[entry[~new]] = end[~new]
    longer = np.zeros(len(entry), bool)
    longer[~new] = end[~new] > stored.end[entry[~new]]
    ends[entry[longer]] = stored.start[entry[longer]]
    record = np.empty(len(entry), np.int64)
    record[new] = numbers[entry[new] - count]
    record[longer] = numbers[records.tombstones[numbers]][:1]  # a tombstone that is the newest again
    kept, closed = new | longer, ends != stored.end
    rows = np.column_stack((record[kept], start[kept], end[kept]))
    return rows, np.column_stack((stored.segment_index[closed], stored.row[closed], ends[closed]))


def _put_each(records: Records, numbers: Ints, stored: Existing) -> tuple[Ints, Ints]:
    """Return the same as `_put_all` for a key whose stored rows do not tile."""
    columns = (stored.start, stored.end, stored.tombstone, stored.segment_index, stored.row)
    entries = [
        KeyVersion(int(start), int(end), None if dead else (), (int(number), int(row)))
        for start, end, dead, number, row in zip(*columns, strict=True)
    ]
    timeline = Timeline(entries)
    for number in numbers.tolist():
        timeline.put(int(records.times[number]), None if records.tombstones[number] else (number,))
    shortened, added = timeline.changes()
    some_tombstone = next(n for n in numbers.tolist() if records.tombstones[n])
    rows = [(some_tombstone if value is None else value[0], start, end) for start, end, value in added]
    closures = [(number, row, end) for (number, row), end in shortened]
    return np.array(rows, np.int64).reshape(-1, 3), np.array(closures, np.int64).reshape(-1, 3)

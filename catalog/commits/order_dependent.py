"""Keys with the one order-dependent case, which are replayed one by one: a null put that takes back a value put at the
same time (see `statestore.catalog.commits.key_timeline.Timeline`). Times are epoch microseconds.
"""

from __future__ import annotations

import numpy as np

from statestore.catalog.commits.key_timeline import KeyVersion, Timeline, put_all
from statestore.catalog.commits.sorted_records import Records, SortedRecords
from statestore.catalog.commits.version_ends import Existing, places_among
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import OPEN


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


def order_dependent(records: Records, ordered: SortedRecords, existing: Existing, kept: Ints) -> Ints:
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
    at = places_among(group, time, wanted_group, wanted_time)
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

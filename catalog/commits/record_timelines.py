"""Resolution of acknowledged writes into a delta and a closure list: the end of each new version, and the shortened
rows.

The semantics are those of Kafka's versioned store (KIP-889). A version ends where the next version or tombstone of its
key starts. A late version is born closed. A put at an existing (key, time) replaces that row, which is closed at its
own start. Of several puts at one (key, time) in a commit the last counts.

Everything is computed with numpy over whole batches. Only keys with the one order-dependent case (a null put that takes
back a value put at the same time, see ``Timeline``) are replayed one by one. Times are epoch microseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.catalog.commits.key_timeline import KeyVersion, Timeline, put_all
from statestore.catalog.commits.open_row_lookup import by_time_within, match_open_rows, sorted_with_positions
from statestore.catalog.commits.open_rows import OpenRows, take_index
from statestore.catalog.commits.version_ends import Existing, NewRows, insert_versions, merged
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.row_ends import SegmentWithClosures, newest_ends, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys

Closure = tuple[str, Ints, Ints]  # segment, rows, new ends


@dataclass(frozen=True)
class Records:
    """Accepted writes in the order of their acknowledgement; value columns of tombstones are ignored."""

    keys: list[pa.Array]
    values: list[pa.Array]
    times: Ints
    tombstones: Bools

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class Resolution:
    """Rows and closures that a commit adds: value rows, tombstone rows, and (segment, rows, new ends) closures."""

    values: NewRows
    tombstones: NewRows
    closures: list[Closure]
    hashes: Hashes
    ended: int = -1  # number of closed rows that were open; -1: unknown
    index: OpenRows | None = None  # the index taken for this resolution
    known: tuple[Ints, Ints] | None = None  # (numbers by hash, entries) of the keys in the index
    unchecked: Callable[[], list[Closure] | None] | None = None
    """A function used instead of ``closures``, because comparing the keys takes time. It compares them and returns the
    closures, or None where a key differs from the one that its hash suggested; then the whole resolution is void.
    """


@dataclass(frozen=True)
class SortedRecords:
    """Records by (key, time, arrival). ``group`` numbers the distinct keys in order of their hash."""

    record: Ints
    group: Ints
    first: Ints  # position of each group's first record
    time: Ints
    hashes: Hashes  # per group
    in_order: bool = False  # the times of the records never decrease

    @property
    def earliest(self) -> Ints:
        return self.time[self.first]


def resolve(
    files: SegmentFiles, log_state: LogState, records: Records, *, checked: bool = True, indexed: bool = True
) -> Resolution:
    """Place ``records`` into the history of ``log_state``; ``unchecked`` is filled only without ``checked``.

    Without ``indexed`` the index of open rows is neither used nor made.
    """
    if not len(records):
        nothing = NewRows(*(np.empty(0, np.int64) for _ in range(3)))
        return Resolution(nothing, nothing, [], np.empty(0, np.uint64))
    hashes = hash_keys(records.keys)
    segments = [v for v in with_closures(log_state.segments, log_state.closures) if v.meta.role != "belief"]
    ordered = sort_records(records, hashes)
    index = take_index(files, log_state, len(ordered.first)) if indexed else None
    if index is None:
        existing = find_existing(files, segments, records, ordered, ordered.earliest)
    else:
        entries = index.find(ordered.hashes)
        plain = None if checked else _follow_on(files, segments, records, hashes, ordered, index, entries)
        if plain is not None:
            return plain
        existing = _find_current(files, segments, records, ordered, index, entries)
    kept = last_of_each_time(ordered)
    odd = _order_dependent(records, ordered, existing, kept)
    new, closures, ended = insert_versions(
        _select_new(ordered, kept, odd), existing.take(~np.isin(existing.group, odd)) if len(odd) else existing
    )
    if len(odd):
        ended = -1
        replayed, more = _replay(files, segments, records, ordered, odd)
        new = NewRows(*(np.concatenate(pair) for pair in zip(_columns(new), _columns(replayed), strict=True)))
        closures = [np.concatenate(pair) for pair in zip(closures, more, strict=True)]
    dead = records.tombstones[new.record]
    hash_order = not len(odd)
    count = len(records)
    values, tombstones = (by_start(new, chosen, count, hash_order) for chosen in (~dead, dead))
    return Resolution(values, tombstones, _by_segment(segments, *closures), hashes, ended, index)


def _columns(rows: NewRows) -> tuple[Ints, Ints, Ints]:
    return rows.record, rows.start, rows.end


def sort_records(records: Records, hashes: Hashes) -> SortedRecords:
    in_order = bool(np.all(records.times[1:] >= records.times[:-1]))
    sorted_hashes, order = sorted_with_positions(hashes)
    if not in_order:
        order = by_time_within(sorted_hashes, order, records.times)
    same_hash = sorted_hashes[1:] == sorted_hashes[:-1]
    touching = np.flatnonzero(same_hash)
    if len(touching):
        equal = keys_equal(records.keys, order[touching], records.keys, order[touching + 1])
        if not equal.all():
            return _sort_colliding(records, hashes)
    if not len(touching):
        alone = np.arange(len(order))
        return SortedRecords(order, alone, alone, records.times[order], sorted_hashes, in_order)
    starts_group = np.concatenate(([True], ~same_hash))
    first = np.flatnonzero(starts_group)
    return SortedRecords(
        order, np.cumsum(starts_group) - 1, first, records.times[order], sorted_hashes[first], in_order
    )


def _sort_colliding(records: Records, hashes: Hashes) -> SortedRecords:
    """Sort as `sort_records` does where different keys share a hash: group by the keys themselves (never seen outside
    tests)."""
    numbers: dict[tuple[int, str], int] = {}
    columns = [column.to_pylist() for column in records.keys]
    names = [(int(h), repr(key)) for h, key in zip(hashes, zip(*columns, strict=True), strict=True)]
    for name in sorted(set(names)):
        numbers[name] = len(numbers)
    group = np.array([numbers[name] for name in names], np.int64)
    order = np.lexsort((records.times, group))
    sorted_group = group[order]
    first = np.flatnonzero(np.concatenate(([True], sorted_group[1:] != sorted_group[:-1])))
    return SortedRecords(order, sorted_group, first, records.times[order], hashes[order][first])


def find_existing(
    files: SegmentFiles, segments: list[SegmentWithClosures], records: Records, ordered: SortedRecords, after: Ints
) -> Existing:
    """Return the rows of each group that end after its ``after`` time, without rows that were replaced."""
    parts: list[tuple[Ints, ...]] = [tuple(np.empty(0, np.int64) for _ in range(6))]
    after = after.copy()
    # Search the newest rows first: a key whose open row began early enough has no other row that ends later.
    for number in sorted(range(len(segments)), key=lambda n: -segments[n].meta.max_valid_to):
        segment = segments[number]
        groups = np.flatnonzero(after < segment.meta.max_valid_to)
        if not len(groups):
            continue
        probe, rows = files.match(segment.meta, ordered.hashes[groups])
        groups = groups[probe]
        file = files.open_segment(segment.meta)
        starts, ends = file.int64("valid_from")[rows], newest_ends(files, segment)[rows]
        later = np.flatnonzero((ends > after[groups]) & (ends > starts))
        if not len(later):
            continue
        stored = [file.column_array(name) for name in files.spec.key_names]
        mine = ordered.record[ordered.first[groups[later]]]
        later = later[keys_equal(records.keys, mine, stored, rows[later])]
        groups, starts, ends = groups[later], starts[later], ends[later]
        flags = np.full(len(later), segment.meta.tombstone, np.int64)
        parts.append((groups, starts, ends, np.full(len(later), number, np.int64), rows[later], flags))
        after[groups[(ends == OPEN) & (starts <= after[groups])]] = OPEN
    group, start, end, segment_index, row, dead = (np.concatenate(column) for column in zip(*parts, strict=True))
    existing = Existing(group, start, end, segment_index, row, dead.astype(bool))
    if (group[1:] > group[:-1]).all():
        return existing
    return existing.take(np.lexsort((start, group)))


def _follow_on(
    files: SegmentFiles,
    segments: list[SegmentWithClosures],
    records: Records,
    hashes: Hashes,
    ordered: SortedRecords,
    index: OpenRows,
    indexed: tuple[Ints, Ints],
) -> Resolution | None:
    """Return the result of the simplest case, None for any other.

    In the simplest case the records are values in order of time, each key occurs once, and nothing is stored after its
    record. Every record is then an open row and ends the previous open row of its key.
    """
    count = len(records)
    if not ordered.in_order or len(ordered.first) < count or records.tombstones.any():
        return None
    group, entry = indexed
    times = ordered.time[group]
    if (index.start[entry] > times).any():
        return None

    def check() -> list[Closure] | None:
        matched = match_open_rows(files, segments, index, entry, records.keys, ordered.record[group])
        ends = times[matched.position]
        closures = [
            (segments[n].meta.name, matched.row[begin:stop], ends[begin:stop]) for n, begin, stop in matched.parts
        ]
        return closures if matched.equal.all() else None

    values = NewRows(np.arange(count), records.times, np.full(count, OPEN), ordered.record)
    nothing = NewRows(*(np.empty(0, np.int64) for _ in range(3)))
    return Resolution(values, nothing, [], hashes, len(group), index, indexed, check)


def _find_current(
    files: SegmentFiles,
    segments: list[SegmentWithClosures],
    records: Records,
    ordered: SortedRecords,
    index: OpenRows,
    indexed: tuple[Ints, Ints],
) -> Existing:
    """Find existing rows like ``find_existing``, with the index of open rows.

    An open row that began before all records of its key is the only one that matters, and a key without an open row has
    no other. Late records are looked up in all segments.
    """
    group, entry = indexed
    start = index.start[entry]
    early = start <= ordered.earliest[group]
    elsewhere = [group[~early]]
    group, entry, start = group[early], entry[early], start[early]
    matched = match_open_rows(files, segments, index, entry, records.keys, ordered.record[ordered.first[group]])
    number, dead = np.empty(len(group), np.int64), np.empty(len(group), bool)
    for segment_index, begin, stop in matched.parts:
        number[begin:stop], dead[begin:stop] = segment_index, segments[segment_index].meta.tombstone
    mine = matched.position
    existing = Existing(group[mine], start[mine], np.full(len(mine), OPEN), number, matched.row, dead)
    elsewhere.append(existing.group[~matched.equal])
    late = np.concatenate(elsewhere)
    after = np.full(len(ordered.first), OPEN, np.int64)
    after[late] = ordered.earliest[late]
    others = find_existing(files, segments, records, ordered, after)
    return merged(existing.take(matched.equal), others)


def last_of_each_time(ordered: SortedRecords) -> Ints:
    """Return the positions of the records that count: the last of those with equal key and time."""
    same = (ordered.group[1:] == ordered.group[:-1]) & (ordered.time[1:] == ordered.time[:-1])
    return np.flatnonzero(np.concatenate((~same, [True])))


def _order_dependent(records: Records, ordered: SortedRecords, existing: Existing, kept: Ints) -> Ints:
    """Return the groups in which a null put may take back a value put at the same time, so that the order of puts
    decides.
    """
    if not records.tombstones.any():
        return np.empty(0, np.int64)
    dead = records.tombstones[ordered.record]
    values_before = np.concatenate(([0], np.cumsum(~dead)))
    begins = np.concatenate(([0], kept[:-1] + 1))
    taken_back = dead[kept] & (values_before[kept] > values_before[begins])
    groups = [ordered.group[kept[taken_back]]]
    at_start = (existing.end == OPEN) & ~existing.tombstone
    if at_start.any():
        newest = existing.take(at_start)
        position = _locate(ordered.group[kept], ordered.time[kept], newest.group, newest.start)
        replaced = (position >= 0) & dead[kept[position]]
        groups.append(newest.group[replaced])
    return np.unique(np.concatenate(groups))


def _locate(group: Ints, time: Ints, wanted_group: Ints, wanted_time: Ints) -> Ints:
    """Return the index of each wanted (group, time) among the sorted pairs, or -1."""
    both_group = np.concatenate((group, wanted_group))
    both_time = np.concatenate((time, wanted_time))
    order = np.lexsort((np.arange(len(both_group)), both_time, both_group))
    is_pair = order < len(group)
    last_pair = np.maximum.accumulate(np.where(is_pair, order, -1))
    index_of = np.full(len(wanted_group), -1, np.int64)
    asked = ~is_pair
    candidate = last_pair[asked]
    number = order[asked] - len(group)
    hit = (candidate >= 0) & (group[candidate] == wanted_group[number]) & (time[candidate] == wanted_time[number])
    index_of[number[hit]] = candidate[hit]
    return index_of


def _select_new(ordered: SortedRecords, kept: Ints, odd: Ints) -> tuple[Ints, Ints, Ints]:
    """Return (record, group, time) of the records that are inserted in bulk."""
    if len(odd):
        kept = kept[~np.isin(ordered.group[kept], odd)]
    return ordered.record[kept], ordered.group[kept], ordered.time[kept]


def _replay(
    files: SegmentFiles, segments: list[SegmentWithClosures], records: Records, ordered: SortedRecords, odd: Ints
) -> tuple[NewRows, list[Ints]]:
    """Resolve the keys whose result depends on the order of their puts, with one timeline each."""
    touching = np.full(len(ordered.first), OPEN, np.int64)
    touching[odd] = ordered.earliest[odd] - 1  # a row that ends exactly at the earliest record matters too
    existing = find_existing(files, segments, records, ordered, touching)
    sizes = np.diff(np.append(ordered.first, len(ordered.record)))
    rows, closures = [np.empty((0, 3), np.int64)], [np.empty((0, 3), np.int64)]
    for group in odd.tolist():
        first = int(ordered.first[group])
        numbers = np.sort(ordered.record[first : first + int(sizes[group])])
        mine = existing.take(np.arange(*np.searchsorted(existing.group, (group, group + 1))))
        added, shortened = (_put_all if _tiles(mine) else _put_each)(records, numbers, mine)
        rows.append(added)
        closures.append(shortened)
    columns = np.concatenate(rows)
    order = np.lexsort((columns[:, 1],))
    replayed = NewRows(columns[order, 0], columns[order, 1], columns[order, 2])
    return replayed, list(np.concatenate(closures).T)


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


def by_start(rows: NewRows, chosen: Bools, records: int, hash_order: bool) -> NewRows:
    """Return the chosen rows sorted by start. Records usually arrive in that order, and then no sort is needed.

    ``hash_order``: ``rows`` are in order of hash and start.
    """
    positions = np.flatnonzero(chosen)
    slots = np.full(records, -1, np.int64)
    slots[rows.record[positions]] = positions
    picked = slots[slots >= 0]
    if len(picked) < len(positions) or (rows.start[picked][1:] < rows.start[picked][:-1]).any():
        picked = positions[np.argsort(rows.start[positions], kind="stable")]
    by_hash = None
    if hash_order:
        rank = np.empty(len(rows.record), np.int64)
        rank[picked] = np.arange(len(picked))
        by_hash = rank[positions]
    return NewRows(rows.record[picked], rows.start[picked], rows.end[picked], by_hash)


def _by_segment(
    segments: list[SegmentWithClosures], segment_index: Ints, row: Ints, end: Ints
) -> list[tuple[str, Ints, Ints]]:
    closures = []
    for number in np.flatnonzero(np.bincount(segment_index, minlength=1)).tolist():
        mine = np.flatnonzero(segment_index == number)
        # Sorting numbers beats sorting positions: row numbers have 32 bits, so both fit one integer.
        packed = np.sort((row[mine].astype(np.uint64) << np.uint64(32)) | mine.astype(np.uint64))
        order = (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
        closures.append((segments[number].meta.name, row[order], end[order]))
    return closures

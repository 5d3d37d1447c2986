"""Search for the stored rows that the records of a commit meet, over all segments of a store.

A key's rows do not overlap: at each moment at most one is valid. Segments are searched from the newest rows to the
oldest, each only for the keys that may have a row in it that matters. A record that lies within a stored row needs no
other row of its key, however many the key has. Times are epoch microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from statestore.catalog.commits.sorted_records import Records, SortedRecords
from statestore.catalog.commits.version_ends import Existing, merged
from statestore.catalog.reads.belief import SegmentWithClosures, chosen_ends, ever_valid, not_ended
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.segments.key_index import KeyIndex
from statestore.formats.segments.segment_meta import OPEN, SegmentMeta
from statestore.formats.values.key_equality import keys_equal

# Segments of at most so many rows are searched together, by one index in memory. Were each searched alone, commits of
# 50 rows would take 1.3 times as long (120 commits that are never compacted).
SMALL_ROWS = 1_024


def find_existing(
    files: SegmentFiles,
    segments: Sequence[SegmentWithClosures],
    records: Records,
    ordered: SortedRecords,
    after: Ints,
    newest: Ints | None = None,
) -> Existing:
    """Return the rows of each group that end after its ``after`` time, without rows that were replaced.

    ``newest`` is the start of each group's newest row, where that is known.
    """
    parts: list[tuple[Ints, ...]] = [(np.empty(0, np.int64),) * 6]
    after = after.copy()  # OPEN: the group has no further row
    found_container = np.zeros(len(after), bool)
    matches = _matches_of_small(files, segments, ordered.hashes)
    last_starts = [segment.meta.max_valid_from for segment in segments]
    for number in sorted(range(len(segments)), key=last_starts.__getitem__, reverse=True):
        if matches.get(number, True) is None:
            continue
        segment = segments[number]
        meta = segment.meta
        # This and the further segments have no row that starts later, so only the row valid at ``after`` is missing.
        after[found_container & (after >= meta.max_valid_from)] = OPEN
        wanted = after < meta.max_valid_to
        if newest is not None:
            wanted &= newest >= meta.min_valid_from
        match = matches.get(number)
        if match is None:
            groups = np.flatnonzero(wanted)
            if not len(groups):
                continue
            probe, rows = files.match(meta, ordered.hashes[groups])
            groups = groups[probe]
        else:
            groups, rows = (found[wanted[match[0]]] for found in match)
        if not len(rows):
            continue
        file = files.open_segment(meta)
        possible = not_ended(file.int64("valid_to")[rows], after[groups])  # ends only shrink
        if not possible.all():
            groups, rows = groups[possible], rows[possible]
        starts = file.int64("valid_from")[rows]
        ends = chosen_ends(files, segment, rows)
        later = np.flatnonzero(not_ended(ends, after[groups]) & ever_valid(starts, ends))
        if not len(later):
            continue
        stored = [file.column_array(name) for name in files.spec.key_names]
        mine = ordered.record[ordered.first[groups[later]]]
        later = later[keys_equal(records.keys, mine, stored, rows[later])]
        groups, starts, ends = groups[later], starts[later], ends[later]
        flags = np.full(len(later), meta.tombstone, np.int64)
        parts.append((groups, starts, ends, np.full(len(later), number, np.int64), rows[later], flags))
        contains = starts <= after[groups]
        found_container[groups[contains]] = True
        after[groups[contains & (ends == OPEN)]] = OPEN
    group, start, end, segment_index, row, dead = map(np.concatenate, zip(*parts, strict=True))
    existing = Existing(group, start, end, segment_index, row, dead.astype(bool))
    if (group[1:] > group[:-1]).all():
        return existing
    return existing.take(np.lexsort((start, group)))


@dataclass(frozen=True)
class _SmallSegments:
    """The key indexes of several segments as one: ``number`` is the place of a row's segment in ``names``."""

    names: tuple[str, ...]
    hashes: Hashes
    number: Ints
    row: Ints


_small: WeakKeyDictionary[SegmentFiles, _SmallSegments] = WeakKeyDictionary()


def _matches_of_small(
    files: SegmentFiles, segments: Sequence[SegmentWithClosures], hashes: Hashes
) -> dict[int, tuple[Ints, Ints] | None]:
    """Return, for each small segment, (numbers of hashes, rows) of its rows with these hashes; None if it has none.

    Small commits leave dozens of small segments between two compactions. One search finds the rows of all.
    """
    numbers = [number for number, segment in enumerate(segments) if segment.meta.rows <= SMALL_ROWS]
    if not numbers:
        return {}
    matches: dict[int, tuple[Ints, Ints] | None] = dict.fromkeys(numbers)
    joined = _joined_indexes(files, [segments[number].meta for number in numbers])
    first = np.searchsorted(joined.hashes, hashes, side="left")
    counts = np.searchsorted(joined.hashes, hashes, side="right") - first
    position = np.repeat(np.arange(len(hashes)), counts)
    entry = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(len(position))
    place = joined.number[entry]
    order = np.argsort(place, kind="stable")
    places, begins = np.unique(place[order], return_index=True)
    for number, mine in zip(places.tolist(), np.split(order, begins[1:]), strict=False):
        matches[numbers[number]] = position[mine], joined.row[entry[mine]]
    return matches


def _joined_indexes(files: SegmentFiles, metas: Sequence[SegmentMeta]) -> _SmallSegments:
    """Return the joined index of these segments; the one that was made last is extended if they only became more."""
    names = tuple(meta.name for meta in metas)
    known = _small.get(files)
    if known is None or names[: len(known.names)] != known.names:
        known = _SmallSegments((), np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.int64))
    parts = [(known.hashes, known.number, known.row)]
    for place in range(len(known.names), len(metas)):
        index = files.index(metas[place])
        parts.append((index.hashes, np.full(index.entries, place), index.rows.astype(np.int64)))
    if len(parts) > 1:
        hashes, number, row = map(np.concatenate, zip(*parts, strict=True))
        order = np.argsort(hashes, kind="stable")
        known = _small[files] = _SmallSegments(names, hashes[order], number[order], row[order])
    return known


def find_around(
    files: SegmentFiles,
    segments: Sequence[SegmentWithClosures],
    records: Records,
    ordered: SortedRecords,
    newest: Ints,
) -> Existing:
    """Return the rows in which records lie, and for groups with a record outside all rows what `find_existing` returns.

    ``newest`` is the start of each group's newest row, which is later than all its records.
    """
    nothing = np.empty(0, np.int64)
    parts: list[tuple[Ints, ...]] = [(nothing,) * 6]
    waiting = np.arange(len(ordered.record))  # positions of records for which no row was found
    whole = np.zeros(len(ordered.first), bool)  # groups that need all rows
    for number in sorted(range(len(segments)), key=lambda n: -segments[n].meta.max_valid_from):
        segment = segments[number]
        meta = segment.meta
        times, groups = ordered.time[waiting], ordered.group[waiting]
        asked = np.flatnonzero((times < meta.max_valid_to) & (times >= meta.min_valid_from))
        if not len(asked):
            continue
        file = files.open_segment(meta)
        starts = file.int64("valid_from")
        found, rows = _last_started(files.index(meta), starts, ordered.hashes[groups[asked]], times[asked])
        if not len(found):
            continue
        asked = asked[found]
        ends = chosen_ends(files, segment, rows)
        stored = [file.column_array(name) for name in files.spec.key_names]
        equal = keys_equal(records.keys, ordered.record[ordered.first[groups[asked]]], stored, rows)
        # A replaced row may hide the row that replaced it, and a key of the same hash all rows.
        whole[groups[asked[~(equal & ever_valid(starts[rows], ends))]]] = True
        inside = equal & not_ended(ends, times[asked])
        if inside.any():
            rows, unique = np.unique(rows[inside], return_index=True)
            mine, ends = groups[asked[inside]][unique], ends[inside][unique]
            filled = np.full(len(rows), number, np.int64), rows, np.full(len(rows), meta.tombstone, np.int64)
            parts.append((mine, starts[rows], ends, *filled))
            waiting = np.delete(waiting, asked[inside])
    whole[ordered.group[waiting]] = True
    group, start, end, segment_index, row, dead = (np.concatenate(column) for column in zip(*parts, strict=True))
    around = Existing(group, start, end, segment_index, row, dead.astype(bool))
    others = np.flatnonzero(whole)
    if len(others):
        after = np.full(len(ordered.first), OPEN, np.int64)
        after[others] = ordered.earliest[others]
        around = around.take(~whole[around.group])
        return merged(around, find_existing(files, segments, records, ordered, after, newest))
    return around.take(np.lexsort((around.start, around.group)))


def _last_started(index: KeyIndex, starts: Ints, hashes: Hashes, times: Ints) -> tuple[Ints, Ints]:
    """Return (number, row) for each (hash, time) that has a row: the last row of that hash which starts by that
    time."""
    if is_loaded() and not index.is_grouped:
        from statestore.formats.kernels.key_kernels import last_started

        numbers, rows = np.empty((2, len(hashes)), np.int64)
        filled = last_started(index.hashes, index.rows, starts, hashes, times, numbers, rows)
        if filled >= 0:
            return numbers[:filled], rows[:filled]
    low, high = index.ranges(hashes)
    begin, entries = low.copy(), index.rows
    while True:
        searching = np.flatnonzero(low < high)
        if not len(searching):
            break
        middle = (low[searching] + high[searching]) >> 1
        by_then = starts[entries[middle]] <= times[searching]
        low[searching[by_then]] = middle[by_then] + 1
        high[searching[~by_then]] = middle[~by_then]
    found = np.flatnonzero(low > begin)
    return found, entries[low[found] - 1].astype(np.int64)

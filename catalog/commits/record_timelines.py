"""Resolution of acknowledged writes into a delta and a closure list: the end of each new version, and the shortened
rows.

The semantics are those of Kafka's versioned store (KIP-889). A version ends where the next version or tombstone of its
key starts. A late version is born closed. A put at an existing (key, time) replaces that row, which is closed at its
own start. Of several puts at one (key, time) in a commit the last counts.

Everything is computed with numpy over whole batches, and each key costs what it needs. Most keys go on from their open
row: all their records are later, so each record ends where the next one starts, and the first one ends the open row.
Only the other keys (late, replaced, taken back) are searched in the history. Only keys with the one order-dependent
case are replayed one by one. Times are epoch microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from statestore.catalog.commits.key_timeline import groups_to_replay, replay, taken_back
from statestore.catalog.commits.open_row_lookup import OpenRows, match_open_rows
from statestore.catalog.commits.open_rows import MIN_KEYS, give_back, take_index
from statestore.catalog.commits.sorted_records import (
    Records,
    SortedRecords,
    by_start,
    last_of_each_time,
    own,
    sort_records,
)
from statestore.catalog.commits.stored_rows import find_around, find_existing
from statestore.catalog.commits.version_ends import NewRows, insert_versions
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.store_spec import Windowing
from statestore.catalog.reads.belief import SegmentWithClosures, chosen_ends, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.kernels.compiled_use import is_loaded, load_beside
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.times import TICK

Closure = tuple[str, Ints, Ints]  # segment, rows, new ends


@dataclass(frozen=True)
class Resolution:
    """Rows and closures that a commit adds: value rows, tombstone rows, and (segment, rows, new ends) closures."""

    values: NewRows
    tombstones: NewRows
    closures: list[Closure]
    hashes: Hashes
    ended: int = 0  # number of closed rows that were open; known with an index only
    index: OpenRows | None = None  # the index taken for this resolution
    known: tuple[Ints, Ints] | None = None  # of the keys with new open rows, by hash: (number, entry) of those indexed
    emptied: Hashes | None = None  # keys whose open row ends and that get no other
    unchecked: Callable[[], list[Closure] | None] | None = None
    """A function used instead of ``closures``, because comparing the keys takes time. It compares them and returns the
    closures, or None where a key differs from the one that its hash suggested; then the whole resolution is void.
    """


def resolve(
    files: SegmentFiles, log_state: LogState, records: Records, *, checked: bool = True, indexed: bool = True
) -> Resolution:
    """Place ``records`` into the history of ``log_state``; ``unchecked`` is filled only without ``checked``.

    Without ``indexed`` the index of open rows is neither used nor made.
    """
    if not len(records):
        nothing = NewRows(*(np.empty(0, np.int64) for _ in range(3)))
        return Resolution(nothing, nothing, [], np.empty(0, np.uint64))
    hashes, segments, ordered = _made_ready(log_state, records)
    index = take_index(files, log_state, len(ordered.first)) if indexed else None
    if index is None or checked:
        resolution = _checked(files, segments, records, hashes, ordered, index)
        if resolution.index is not index:
            give_back(files, index)
        return resolution
    return _go_on(files, segments, records, hashes, ordered, index)


def resolve_with(files: SegmentFiles, log_state: LogState, records: Records, index: OpenRows | None) -> Resolution:
    """Place ``records``, at least one, into the history of ``log_state``, with an index that the caller has taken.

    The resolution has no index if a key is not the one that the index knows by its hash. Then the index is of no use
    for this commit.
    """
    hashes, segments, ordered = _made_ready(log_state, records)
    return _checked(files, segments, records, hashes, ordered, index)


def _made_ready(log_state: LogState, records: Records) -> tuple[Hashes, list[SegmentWithClosures], SortedRecords]:
    if len(records) >= MIN_KEYS:
        load_beside(sum(column.nbytes for column in records.keys), _first_calls)
    hashes = hash_keys(records.keys)
    segments = [v for v in with_closures(log_state.segments, log_state.closures) if v.meta.role != "belief"]
    return hashes, segments, sort_records(records, hashes)


def _first_calls() -> Iterator[None]:
    from statestore.formats.kernels.key_kernels import first_calls

    return first_calls()


def _checked(
    files: SegmentFiles,
    segments: list[SegmentWithClosures],
    records: Records,
    hashes: Hashes,
    ordered: SortedRecords,
    index: OpenRows | None,
) -> Resolution:
    """Resolve with the index if there is one, or without it where a key is not the one that its hash suggested."""
    if index is not None:
        resolution = _go_on(files, segments, records, hashes, ordered, index)
        assert resolution.unchecked is not None
        closures = resolution.unchecked()
        if closures is not None:
            return replace(resolution, closures=closures, unchecked=None)
    found = _search(files, segments, records, ordered, np.arange(len(ordered.first)), None)
    values, tombstones = _split(records, found.rows[1:])
    return Resolution(values, tombstones, _by_segment(segments, found.closures), hashes)


def _go_on(
    files: SegmentFiles,
    segments: list[SegmentWithClosures],
    records: Records,
    hashes: Hashes,
    ordered: SortedRecords,
    index: OpenRows,
) -> Resolution:
    """Resolve with the index of open rows, without comparing the keys of the open rows that it finds.

    A key without an open row has no rows at all: the newest row of a key (version or tombstone) is open.
    """
    position, entry = index.find(ordered.hashes)
    newest = np.full(len(ordered.first), -1 << 63, np.int64)  # start of the open row
    newest[position] = index.start[entry]
    columns, earliest, searched, late = _following(records, ordered, newest)
    found = _search(files, segments, records, *searched, newest)
    placed = _search(files, segments, records, *late, newest, is_late=True)
    for more in (found, placed):
        columns = _inserted(columns, np.searchsorted(columns[0], more.group), more.rows)
    values, tombstones = _split(records, columns[1:])

    followed = earliest[position] < OPEN
    groups, entries = position[followed], entry[followed]
    compared, bounds = ordered.record[ordered.first[groups]], earliest[groups]
    elsewhere = _by_segment(
        segments, [np.concatenate(pair) for pair in zip(found.closures, placed.closures, strict=True)]
    )

    def check() -> list[Closure] | None:
        matched = match_open_rows(files, segments, index, entries, records.keys, compared)
        if not matched.equal.all():
            return None
        new_ends = bounds[matched.position]
        followed_rows = [
            (segments[n].meta.name, matched.row[begin:stop], new_ends[begin:stop]) for n, begin, stop in matched.parts
        ]
        return _joined(followed_rows, elsewhere)

    opened = earliest < OPEN  # the groups that have a new open row
    opened[found.group[found.end == OPEN]] = True
    opened[placed.group[placed.end == OPEN]] = True
    of_opened = opened[position]
    known = (np.cumsum(opened) - 1)[position[of_opened]], entry[of_opened]
    ended = found.ended + placed.ended + len(groups)
    return Resolution(values, tombstones, [], hashes, ended, index, known, ordered.hashes[found.emptied], check)


_Chosen = tuple[SortedRecords, Ints]  # records, and the numbers of their groups


def _following(
    records: Records, ordered: SortedRecords, newest: Ints
) -> tuple[tuple[Ints, ...], Ints, _Chosen, _Chosen]:
    """Return the rows (group, record, start, end) that follow the open row of their key, and the first start of each
    group among them (OPEN where there is none); then the other records, as `_separated` does.
    """
    earliest = np.full(len(ordered.first), OPEN, np.int64)
    if is_loaded():
        from statestore.formats.kernels.key_kernels import follow_open_rows

        rows, counts = np.empty((4, len(ordered.record)), np.int64), np.empty(3, np.int64)
        whole, late = np.empty(len(ordered.first), np.int64), np.empty(len(ordered.record), np.int64)
        tombstones = own(records.tombstones)
        follow_open_rows(
            ordered.record, ordered.first, ordered.time, tombstones, newest, rows, earliest, whole, late, counts
        )
        filled, odd, before = counts.tolist()
        searched = ordered.positions_of(whole[:odd])
        return tuple(rows[:, :filled]), earliest, ordered.chosen(searched), ordered.chosen(late[:before])
    kept = last_of_each_time(ordered)
    rest, others, late_ones = _separated(records, ordered, newest, kept)
    kept = kept[rest[kept]]
    group, time, record = ordered.group[kept], ordered.time[kept], ordered.record[kept]
    is_first = np.ones(len(group), bool)
    is_first[1:] = group[1:] != group[:-1]
    ends = np.append(np.where(is_first[1:], OPEN, time[1:]), [OPEN])[: len(kept)]
    first = np.flatnonzero(is_first)
    earliest[group[first]] = time[first]
    return (group, record, time, ends), earliest, others, late_ones


def _separated(records: Records, ordered: SortedRecords, newest: Ints, kept: Ints) -> tuple[Bools, _Chosen, _Chosen]:
    """Separate the records that follow their key's open row, which are most, from the others.

    Returns a mask of their positions, and twice (records, numbers of their groups): all records of the keys that have a
    record at the start of the open row, or a value taken back, and the late records of other keys: those before the
    start of the open row.
    """
    rest = np.ones(len(ordered.record), bool)
    odd = taken_back(records, ordered, kept)
    affected = np.flatnonzero(ordered.earliest <= newest)
    positions = ordered.positions_of(affected)
    group, time = ordered.group[positions], ordered.time[positions]
    whole = np.unique(np.concatenate((group[time == newest[group]], odd)))
    searched = ordered.positions_of(whole)
    is_whole = np.zeros(len(newest), bool)
    is_whole[whole] = True
    late = positions[(time < newest[group]) & ~is_whole[group]]
    rest[searched] = rest[late] = False
    return rest, ordered.chosen(searched), ordered.chosen(late)


@dataclass(frozen=True)
class _NewTimelines:
    """New rows by (group, start), closures as arrays (segment index, row, end), and the number of open rows that they
    end; ``emptied``: groups whose open row ends and that get no other.
    """

    group: Ints
    record: Ints
    start: Ints
    end: Ints
    closures: list[Ints]
    ended: int
    emptied: Ints

    @property
    def rows(self) -> tuple[Ints, ...]:
        return self.group, self.record, self.start, self.end


def _search(
    files: SegmentFiles,
    segments: Sequence[SegmentWithClosures],
    records: Records,
    ordered: SortedRecords,
    groups: Ints,
    newest: Ints | None,
    is_late: bool = False,
) -> _NewTimelines:
    """Resolve records of any kind by the stored rows of their keys.

    ``groups`` has the numbers that the groups of ``ordered`` have in the result, and in ``newest``: the start of each
    group's newest row, where that is known. ``is_late``: all records are earlier than that.
    """
    nothing = np.empty(0, np.int64)
    if not len(ordered.record):
        return _NewTimelines(nothing, nothing, nothing, nothing, [nothing, nothing, nothing], 0, nothing)
    known = None if newest is None else newest[groups]
    kept = last_of_each_time(ordered)
    if is_late:
        assert known is not None
        existing, odd = find_around(files, segments, records, ordered, known), nothing
    else:
        existing = find_existing(files, segments, records, ordered, ordered.earliest, known)
        odd = groups_to_replay(records, ordered, existing, kept)
    if len(odd):
        kept = kept[~np.isin(ordered.group[kept], odd)]
        existing = existing.take(~np.isin(existing.group, odd))
    group = ordered.group[kept]
    new, closures, ended = insert_versions((ordered.record[kept], group, ordered.time[kept]), existing)
    if not len(odd):
        return _NewTimelines(groups[group], new.record, new.start, new.end, closures, ended, nothing)
    touching = np.full(len(ordered.first), OPEN, np.int64)
    touching[odd] = ordered.earliest[odd] - 1  # a row that ends exactly at the earliest record matters too
    existing = find_existing(files, segments, records, ordered, touching, known)
    replayed, more = replay(records, ordered, existing, odd)
    columns = (group, new.record, new.start, new.end)
    group, record, start, end = _inserted(columns, np.searchsorted(group, replayed[0]), replayed)
    was_open = existing.take(existing.end == OPEN)
    closed = set(zip(more[0].tolist(), more[1].tolist(), strict=True))
    rows = zip(was_open.segment_index.tolist(), was_open.row.tolist(), strict=True)
    gone = was_open.group[np.fromiter((row in closed for row in rows), bool, len(was_open.group))]
    emptied = np.setdiff1d(gone, replayed[0][replayed[3] == OPEN])
    closures = [np.concatenate(pair) for pair in zip(closures, more, strict=True)]
    return _NewTimelines(groups[group], record, start, end, closures, ended + len(gone), groups[emptied])


def _inserted(columns: Sequence[Ints], at: Ints, more: Sequence[Ints]) -> tuple[Ints, ...]:
    """Return the columns with ``more`` inserted before the positions ``at``."""
    if not len(at):
        return tuple(columns)
    return tuple(np.insert(column, at, rows) for column, rows in zip(columns, more, strict=True))


def _split(records: Records, rows: Sequence[Ints]) -> tuple[NewRows, NewRows]:
    """Return the values and the tombstones among new rows by (group, start), each by start."""
    new, count = NewRows(*rows), len(records)
    dead = records.tombstones[new.record]
    return by_start(new, ~dead, count, True), by_start(new, dead, count, True)


def _joined(left: list[Closure], right: list[Closure]) -> list[Closure]:
    """Return the closures of both, of different rows, with the rows of each segment in ascending order."""
    if not right:
        return left
    joined = {name: (rows, ends) for name, rows, ends in left}
    for name, rows, ends in right:
        if name in joined:
            others, their_ends = joined[name]
            at = np.searchsorted(others, rows)
            rows, ends = np.insert(others, at, rows), np.insert(their_ends, at, ends)
        joined[name] = rows, ends
    return [(name, rows, ends) for name, (rows, ends) in joined.items()]


def _by_segment(segments: Sequence[SegmentWithClosures], arrays: list[Ints]) -> list[Closure]:
    """Return closures, given as arrays (segment index, row, end), by segment and row."""
    segment_index, row, end = arrays
    closures = []
    for number in np.flatnonzero(np.bincount(segment_index, minlength=1)).tolist():
        mine = np.flatnonzero(segment_index == number)
        # Sorting numbers beats sorting positions: row numbers have 32 bits, so both fit one integer.
        packed = np.sort((row[mine].astype(np.uint64) << np.uint64(32)) | mine.astype(np.uint64))
        order = (packed & np.uint64(0xFFFFFFFF)).astype(np.int64)
        closures.append((segments[number].meta.name, row[order], end[order]))
    return closures


# Expiry of windows and sessions: the commit that moves the stream time ends the rows that leave the retention. So a
# scan shows, as of any version and state time, what the live store showed at that point, and history shows when each
# row ended. Rows whose end is known can be sealed and later dropped like any others.

# The number of first rows of a segment that have all ended, as earlier commits of this process found.
_ended_before: WeakKeyDictionary[SegmentFiles, dict[str, int]] = WeakKeyDictionary()


def end_expired(
    files: SegmentFiles, log_state: LogState, resolution: Resolution, rule: Windowing, stream_time: int
) -> Resolution:
    """Return the resolution of a commit, with the rows ended that are no longer visible at ``stream_time`` (epoch
    us)."""
    first = rule.first_visible(stream_time // TICK) * TICK
    starts, ends = resolution.values.start, resolution.values.end
    born = np.where(starts < first, np.minimum(ends, expiry_of(starts, rule)), ends)
    closed = {name: (rows, new_ends) for name, rows, new_ends in resolution.closures}
    for name, rows, new_ends in _expired(files, log_state, first, rule):
        closed[name] = _merged(closed.get(name), rows, new_ends)
    closures = [(name, rows, new_ends) for name, (rows, new_ends) in closed.items()]
    return replace(resolution, values=replace(resolution.values, end=born), closures=closures)


def expiry_of(starts: Ints, rule: Windowing) -> Ints:
    """Return the first stream time (epoch microseconds) at which rows of these times are no longer visible."""
    if rule.segments:
        interval = rule.segment_interval * TICK
        ends: Ints = (starts // interval + rule.segments) * interval
        return ends
    return starts + (rule.retention + (1 if rule.time_ordered else 0)) * TICK


def _expired(files: SegmentFiles, log_state: LogState, first: int, rule: Windowing) -> list[Closure]:
    """Return the closures of open value rows that began before ``first``.

    Rows that have ended stay so. Therefore the next commit begins where this one has found an open row.
    """
    closures = []
    known, ended_before = _ended_before.setdefault(files, {}), {}
    for segment in with_closures(log_state.segments, log_state.closures):
        meta = segment.meta
        if meta.tombstone or meta.role == "belief" or meta.min_valid_from >= first or meta.max_valid_to != OPEN:
            continue
        starts = files.open_segment(meta).int64("valid_from")
        if meta.blocks:
            candidates = np.flatnonzero(starts < first)
        else:
            begin, stop = known.get(meta.name, 0), int(np.searchsorted(starts, first, side="left"))
            candidates = np.arange(begin, max(begin, stop))
        rows = candidates[chosen_ends(files, segment, candidates) == OPEN]
        if not meta.blocks:
            ended_before[meta.name] = int(rows[0]) if len(rows) else max(begin, stop)
        if len(rows):
            closures.append((meta.name, rows, expiry_of(starts[rows], rule)))
    _ended_before[files] = ended_before
    return closures


def _merged(closed: tuple[Ints, Ints] | None, rows: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return the closures of one segment by row. A row that the commit closes anyway, as one that is replaced, keeps
    that end.
    """
    if closed is None:
        return rows, ends
    new = ~np.isin(rows, closed[0])
    all_rows, all_ends = np.concatenate((closed[0], rows[new])), np.concatenate((closed[1], ends[new]))
    order = np.argsort(all_rows, kind="stable")
    return all_rows[order], all_ends[order]

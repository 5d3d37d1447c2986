"""The change feed, by commit version or by state time.

An event is a row (value or tombstone) of a key's timeline, at its start. Its old value is the row that it replaced at
the same start, if the previous commit believed one. Otherwise the old value is the value row that ends exactly there in
the belief of its own commit:

- a value without an old value is an ``insert``, with one an ``update_preimage`` and an ``update_postimage``;
- a tombstone with an old value is a ``delete`` (with the old value), without one it is no change;
- a value row that was taken back without a trace (see ``Timeline``) is a ``delete``.

By version, the events of a commit are the rows that it added. By state time, they are the rows in the belief of the
newest version whose start lies in the range. Old values are found through the key indexes, in one pass for each
segment. Where filters name keys, only the rows of these are looked at: what an event replaces has its key.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as with_default

import numpy as np
import pyarrow as pa

from statestore.catalog.log.leases import Lease
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.added_columns import CHANGE_TYPES, DELETE, INSERT, POSTIMAGE, PREIMAGE
from statestore.catalog.reads.belief import (
    BEGINNING,
    NOW,
    SegmentWithClosures,
    cells_of,
    chosen_ends,
    ends_between,
    ever_valid,
    may_take_back,
    not_ended,
    pair_ends,
    with_closures,
)
from statestore.catalog.reads.fetching import fetch_files, fetch_rows, fetch_segments
from statestore.catalog.reads.plan import CHUNK_ROWS, keys_may_match
from statestore.catalog.reads.replaced_rows import DENSE_SHARE, NOWHERE, Events, StoredRows, related
from statestore.catalog.reads.scan import lookup_hashes, matched_rows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, shown
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.state_table import Query, check_number
from statestore.formats.values.filters import Filter, mask
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.times import format_time
from statestore.formats.values.types import TIME

SPLIT_EVENTS = 1 << 20


@dataclass(frozen=True)
class ChangeSplit:
    """The events of commits [first, last], or (``by_time``) of state times [first, last] at version ``version``.

    ``lease`` keeps the files from vacuum as long as the split exists; None in a process that did not plan it.
    """

    segments: tuple[SegmentWithClosures, ...]
    first: int
    last: int
    by_time: bool
    version: int
    timestamps: tuple[int, ...]  # commit times (epoch microseconds) of versions base, base+1, …
    base: int
    rows: int
    after: int  # an expiry removed events at or before this state time, so none of them is returned
    lease: Lease | None = with_default(default=None, repr=False, compare=False)
    whole: bool = False
    """Whether writes are events, too, that a reader of changes does not get: those at or before ``after`` of rows that
    reach beyond it, and deletes that ended nothing, whose values are null."""


def plan_changes(files: SegmentFiles, log_state: LogState, query: Query) -> list[ChangeSplit]:
    """Return splits in order, each with about SPLIT_EVENTS events. Raises for ranges outside the kept range."""
    segments = tuple(with_closures(log_state.segments, log_state.closures))
    if query.start_time is not None or query.end_time is not None:
        if query.start_version is not None or query.end_version is not None:
            raise InvalidInputError(
                ErrorCode.CONFLICTING_OPTIONS,
                f"store {files.spec.name!r}: changes are asked for by version and by time; give one of the two",
            )
        return _plan_by_time(files, log_state, query, segments)
    return _plan_by_version(files, log_state, query, segments)


def _plan_by_version(
    files: SegmentFiles, log_state: LogState, query: Query, segments: tuple[SegmentWithClosures, ...]
) -> list[ChangeSplit]:
    check_changes(files.spec.name, log_state, query)
    first = oldest_change(log_state) if query.start_version is None else query.start_version
    last = log_state.version if query.end_version is None else query.end_version
    # A commit may close a row without adding one: a value taken back (see Timeline).
    counts = log_state.versions.rows + log_state.versions.tombstones + log_state.versions.closed
    splits: list[ChangeSplit] = []
    begin = first
    room = 0
    for version in range(first, last + 1):
        room += int(counts[version])
        if room >= SPLIT_EVENTS or version == last:
            mine = tuple(v for v in segments if v.meta.min_added <= version)
            if room:
                splits.append(_split(log_state, mine, begin, version, False, log_state.version, 2 * room))
            begin, room = version + 1, 0
    return splits


def oldest_change(log_state: LogState) -> int:
    """Return the first version whose changes are kept."""
    return 0 if log_state.horizon is None else log_state.horizon.version + 1


def check_changes(name: str, log_state: LogState, query: Query) -> None:
    """Raise InvalidInputError INVALID_VERSION or INVALID_RANGE, or NotFoundError VERSION_NOT_FOUND, for a range of
    versions whose changes are not kept."""
    oldest, (first, last) = oldest_change(log_state), (query.start_version, query.end_version)
    for version in (first, last):
        check_number(version)
    if first is not None and last is not None and first > last:
        raise InvalidInputError(
            ErrorCode.INVALID_RANGE, f"changes from version {shown(first)} to {shown(last)}: the start is after the end"
        )
    for version in (first, last):
        if version is not None and not oldest <= version <= log_state.version:
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND,
                f"store {name!r}: changes of version {shown(version)} are not kept; "
                f"versions {oldest} to {log_state.version} are kept",
            )


def _plan_by_time(
    files: SegmentFiles, log_state: LogState, query: Query, segments: tuple[SegmentWithClosures, ...]
) -> list[ChangeSplit]:
    first = BEGINNING if query.start_time is None else query.start_time
    last = NOW if query.end_time is None else query.end_time
    if first > last:
        raise InvalidInputError(ErrorCode.INVALID_RANGE, "changes by state time: the start is after the end; swap them")
    if log_state.horizon is not None:
        if query.start_time is not None and first <= log_state.horizon.time:
            raise NotFoundError(
                ErrorCode.TIME_NOT_KEPT,
                f"store {files.spec.name!r} keeps changes after {format_time(log_state.horizon.time)}, "
                f"asked from {format_time(first)}; ask for a later start",
            )
        first = max(first, log_state.horizon.time + 1)
    mine = tuple(v for v in segments if v.meta.role != "belief")
    rows = sum(v.meta.rows for v in mine if v.meta.min_valid_from <= last and v.meta.max_valid_from >= first)
    if not rows:
        return []
    return [
        _split(log_state, mine, low, high, True, log_state.version, 2 * rows)
        for low, high in time_ranges(files, mine, first, last)
    ]


def time_ranges(
    files: SegmentFiles, segments: tuple[SegmentWithClosures, ...], first: int, last: int
) -> list[tuple[int, int]]:
    """Return parts of [first, last] with about SPLIT_EVENTS rows each, cut at starts of rows."""
    samples = [np.empty(0, np.int64)]
    for segment in segments:
        samples += [starts[::1024] for _, _, starts in rows_between(files, segment, first, last)]
    ordered = np.sort(np.concatenate(samples))
    cuts = np.unique(ordered[:: SPLIT_EVENTS // 1024][1:]).tolist()
    bounds = [first, *(c for c in cuts if c > first), last + 1]
    return [(low, high - 1) for low, high in itertools.pairwise(bounds)]


def rows_between(
    files: SegmentFiles, segment: SegmentWithClosures, first: int, last: int
) -> Iterator[tuple[int, int, Ints]]:
    """Yield the ranges of rows that start from ``first`` to ``last``, both inclusive, one for each block, and their
    starts.
    """
    for begin, block in segment.meta.spans():
        if block.min_valid_from > last or block.max_valid_from < first:
            continue
        starts = files.open_segment(segment.meta).int64_rows("valid_from", begin, begin + block.rows)
        low, high = int(np.searchsorted(starts, first, "left")), int(np.searchsorted(starts, last, "right"))
        if low < high:
            yield begin + low, begin + high, starts[low:high]


def _split(
    log_state: LogState,
    segments: tuple[SegmentWithClosures, ...],
    first: int,
    last: int,
    by_time: bool,
    version: int,
    rows: int,
) -> ChangeSplit:
    base, top = (0, log_state.version) if by_time else (first, last)
    times = tuple(log_state.versions.timestamp[base : top + 1].tolist())
    after = BEGINNING if log_state.horizon is None else log_state.horizon.time
    return ChangeSplit(segments, first, last, by_time, version, times, base, rows, after)


def read_changes(
    files: SegmentFiles, split: ChangeSplit, schema: pa.Schema, filters: tuple[Filter, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a split by (commit version, start), each preimage right before its postimage."""
    split, of_keys = _fetched(files, split, filters)
    events = _events_by_time(files, split, of_keys) if split.by_time else _events_by_version(files, split, of_keys)
    names = tuple(dict.fromkeys([*schema.names, *(f.column for f in filters)]))
    batch = _assemble(files, split, events, names)
    selected = mask(filters, batch) if filters else None
    if selected is not None:
        batch = batch.filter(selected)
    if batch.num_rows:
        yield pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)


def _fetched(
    files: SegmentFiles, split: ChangeSplit, filters: tuple[Filter, ...]
) -> tuple[ChangeSplit, list[Ints] | None]:
    """Return the split of the segments that have rows of the keys which the filters name, and these rows of each; None
    where they name none. What is read of the segments is fetched.

    The key index finds whole keys. For parts of keys, and ranges, the columns of the key are read.
    """
    of_keys = tuple(item for item in filters if item.column in files.spec.key_names)
    segments = [segment for segment in split.segments if keys_may_match(files, segment.meta, of_keys)]
    hashes = lookup_hashes(files, of_keys) if of_keys else None
    if hashes is None:
        fetch_segments(files, segments)
    fetch_files(files, [segment.meta.index for segment in segments])
    if not of_keys:
        return split, None
    if hashes is None:
        matched = [(segment, _selected_rows(files, segment.meta, of_keys)) for segment in segments]
    else:
        matched = [(segment, matched_rows(files, segment.meta, hashes)) for segment in segments]
    found = [(segment, rows) for segment, rows in matched if len(rows)]
    if hashes is not None:
        few = [len(rows) <= segment.meta.rows // DENSE_SHARE for segment, rows in found]
        fetch_segments(files, [segment for (segment, _), is_few in zip(found, few, strict=True) if not is_few])
        sparse = [each for each, is_few in zip(found, few, strict=True) if is_few]
        fetch_rows(files, [(segment, row, row + 1) for segment, rows in sparse for row in rows.tolist()])
    return replace(split, segments=tuple(segment for segment, _ in found)), [rows for _, rows in found]


def _selected_rows(files: SegmentFiles, meta: SegmentMeta, filters: tuple[Filter, ...]) -> Ints:
    """Return the rows of a segment that pass filters on columns of the key."""
    names = list(dict.fromkeys(item.column for item in filters))
    found, begin = [np.empty(0, np.int64)], 0
    for batch in files.open_segment(meta).batches(names, 0, meta.rows, CHUNK_ROWS):
        selected = mask(filters, batch)
        rows = np.arange(batch.num_rows)
        found.append(begin + (rows if selected is None else rows[selected.to_numpy(zero_copy_only=False)]))
        begin += batch.num_rows
    return np.concatenate(found)


def _events_by_version(files: SegmentFiles, split: ChangeSplit, of_keys: Sequence[Ints] | None) -> Events:
    """Return the rows whose own commit lies in the range, each once, from the stored row that still has its first
    belief.

    ``of_keys`` are the rows of each segment among which they are; None: all.
    """
    events = []
    for number, segment in enumerate(split.segments):
        meta = segment.meta
        if meta.min_added > split.last or meta.max_added < split.first:
            continue
        file = files.open_segment(meta)
        if of_keys is None:
            every = file.int64("_added")
            rows = _added_between(meta, every, split.first, split.last)
            added, starts = every[rows], file.int64("valid_from")[rows]
        else:
            rows, added = _within(of_keys[number], cells_of(file, "_added", of_keys[number]), split.first, split.last)
            starts = cells_of(file, "valid_from", rows)
        ends = pair_ends(files, segment, rows, added)
        known = ever_valid(starts, ends) & not_ended(ends, split.after)
        events.append((number, rows[known], added[known]))
    events += _taken_back(files, split, of_keys)
    return _gather(files, split, events)


def _within(rows: Ints, cells: Ints, first: int, last: int) -> tuple[Ints, Ints]:
    """Return those of the rows whose cells lie from ``first`` to ``last``, and these cells."""
    chosen = (cells >= first) & (cells <= last)
    return rows[chosen], cells[chosen]


def _added_between(meta: SegmentMeta, added: Ints, first: int, last: int) -> Ints:
    """Return the rows that commits [first, last] added; blocks of later commits are not looked at."""
    if meta.min_added >= first and meta.max_added <= last:
        return np.arange(meta.rows)
    found = [np.empty(0, np.int64)]
    for begin, block in meta.spans():
        if block.min_added <= last:
            mine = added[begin : begin + block.rows]
            found.append(begin + np.flatnonzero((mine >= first) & (mine <= last)))
    return np.concatenate(found)


def _events_by_time(files: SegmentFiles, split: ChangeSplit, of_keys: Sequence[Ints] | None) -> Events:
    events = []
    for number, segment in enumerate(split.segments):
        if of_keys is not None:
            starts = cells_of(files.open_segment(segment.meta), "valid_from", of_keys[number])
            rows, starts = _within(of_keys[number], starts, split.first, split.last)
            rows = rows[ever_valid(starts, chosen_ends(files, segment, rows))]
            events.append((number, rows, np.full(len(rows), split.version)))
            continue
        for low, high, starts in rows_between(files, segment, split.first, split.last):
            rows = low + np.flatnonzero(ever_valid(starts, ends_between(files, segment, low, high)))
            events.append((number, rows, np.full(len(rows), split.version)))
    return _gather(files, split, events)


def _taken_back(
    files: SegmentFiles, split: ChangeSplit, of_keys: Sequence[Ints] | None
) -> list[tuple[int, Ints, Ints]]:
    """Return the value rows that a commit of the range closed at their own start: (segment index, rows, commit as
    version).

    Most of them were replaced by a row of that commit, which is then the event; ``related`` distinguishes the two
    cases.
    """
    events = []
    for number, segment in enumerate(split.segments):
        meta = segment.meta
        if meta.tombstone:
            continue
        for piece in segment.until(split.last).since(split.first):
            if may_take_back(piece, meta):
                rows, ends = files.closures(piece, meta.rows)
                if of_keys is not None:
                    asked = np.isin(rows, of_keys[number])
                    rows, ends = rows[asked], ends[asked]
                replaced = rows[~ever_valid(cells_of(files.open_segment(meta), "valid_from", rows), ends)]
                events.append((number, replaced, np.full(len(replaced), piece.version)))
        if meta.role == "belief" and meta.max_dropped >= split.first:
            rows = np.arange(meta.rows) if of_keys is None else of_keys[number]
            dropped = cells_of(files.open_segment(meta), "_dropped", rows)
            rows, versions = _within(rows, dropped, split.first, split.last)
            events.append((number, rows, versions))
    if not split.whole:
        return events
    # A row that replaces one whose end an expiry has passed may be gone, and would not be seen to replace it.
    before = [pair_ends(files, split.segments[number], rows, versions - 1) for number, rows, versions in events]
    known = [not_ended(ends, split.after) for ends in before]
    return [(number, rows[k], versions[k]) for (number, rows, versions), k in zip(events, known, strict=True)]


def _gather(files: SegmentFiles, split: ChangeSplit, events: list[tuple[int, Ints, Ints]]) -> Events:
    parts: list[Events] = []
    for number, rows, versions in events:
        meta = split.segments[number].meta
        file = files.open_segment(meta)
        starts = cells_of(file, "valid_from", rows)
        if not split.whole:
            kept = starts > split.after
            rows, versions, starts = rows[kept], versions[kept], starts[kept]
        if not len(rows):
            continue
        keys = [file.take(name, rows) for name in files.spec.key_names]
        count = len(rows)
        parts.append(
            Events(
                np.full(count, number), rows, hash_keys(keys), starts, versions, np.full(count, meta.tombstone), keys
            )
        )
    if not parts:
        none = np.empty(0, np.int64)
        keys = [pa.array([], field.type) for field in files.spec.key]
        return Events(none, none, np.empty(0, np.uint64), none, none, np.empty(0, bool), keys)
    width = range(len(files.spec.key))
    return Events(
        np.concatenate([p.segment_index for p in parts]),
        np.concatenate([p.row for p in parts]),
        np.concatenate([p.hashes for p in parts]),
        np.concatenate([p.start for p in parts]),
        np.concatenate([p.version for p in parts]),
        np.concatenate([p.tombstone for p in parts]),
        [pa.concat_arrays([p.keys[i] for p in parts]) for i in width],
    )


def _output(files: SegmentFiles, split: ChangeSplit, events: Events) -> tuple[StoredRows, Ints, Ints, Ints]:
    """Return the output rows, in order, as (stored row of the values, event, change type, commit version)."""
    own = _own_commit(files, split, events)
    taken_back = np.zeros(len(events), bool) if split.by_time else own != events.version
    replaced, preceding, still_there = related(files, split.segments, events, taken_back, split.by_time)
    tombstones = np.array([v.meta.tombstone for v in split.segments], bool)
    has_replaced = replaced.segment_index != NOWHERE
    old = StoredRows(
        np.where(has_replaced, replaced.segment_index, preceding.segment_index),
        np.where(has_replaced, replaced.row, preceding.row),
    )
    has_old = (old.segment_index != NOWHERE) & ~tombstones[old.segment_index]
    itself = StoredRows(events.segment_index, events.row)
    value = ~events.tombstone & ~taken_back
    parts = [
        (itself, value & ~has_old, INSERT),
        (old, value & has_old, PREIMAGE),
        (itself, value & has_old, POSTIMAGE),
        (old, events.tombstone & has_old, DELETE),
        (itself, events.tombstone & ~has_old & split.whole, DELETE),
        (itself, taken_back & ~still_there, DELETE),
    ]
    chosen = [np.flatnonzero(which) for _, which, _ in parts]
    event = np.concatenate(chosen)
    kind = np.concatenate([np.full(len(c), k) for c, (_, _, k) in zip(chosen, parts, strict=True)])
    segment_index = np.concatenate([stored.segment_index[c] for c, (stored, _, _) in zip(chosen, parts, strict=True)])
    row = np.concatenate([stored.row[c] for c, (stored, _, _) in zip(chosen, parts, strict=True)])
    version = (own if split.by_time else events.version)[event]
    order = np.lexsort((kind, event, events.start[event], version))
    return StoredRows(segment_index[order], row[order]), event[order], kind[order], version[order]


def _own_commit(files: SegmentFiles, split: ChangeSplit, events: Events) -> Ints:
    own = np.zeros(len(events), np.int64)
    for number in np.unique(events.segment_index).tolist():
        mine = events.segment_index == number
        own[mine] = cells_of(files.open_segment(split.segments[number].meta), "_added", events.row[mine])
    return own


def _assemble(files: SegmentFiles, split: ChangeSplit, events: Events, names: tuple[str, ...]) -> pa.RecordBatch:
    stored, event, kind, version = _output(files, split, events)
    arrays: dict[str, pa.Array] = {
        "valid_from": pa.array(events.start[event]).cast(TIME),
        "_change_type": pa.array(CHANGE_TYPES).take(pa.array(kind)),
        "_commit_version": pa.array(version),
        "_commit_timestamp": pa.array(np.array(split.timestamps, np.int64)[version - split.base]).cast(TIME),
    }
    order = np.argsort(stored.segment_index, kind="stable")
    back = pa.array(np.argsort(order))
    for field in [*files.spec.key, *files.spec.value]:
        if field.name in names:
            parts = [pa.array([], field.type)]
            for number in np.unique(stored.segment_index).tolist():
                rows, meta = stored.row[order][stored.segment_index[order] == number], split.segments[number].meta
                if meta.tombstone and field.name not in files.spec.key_names:
                    parts.append(pa.nulls(len(rows), field.type))
                else:
                    parts.append(files.open_segment(meta).take(field.name, rows))
            arrays[field.name] = pa.concat_arrays(parts).take(back)
    return pa.RecordBatch.from_arrays([arrays[name] for name in names], names=list(names))

"""The change feed, by commit version or by state time.

An event is a row (value or tombstone) of a key's timeline, at its start. Its old value is the row that it replaced at
the same start, if the previous commit believed one. Otherwise the old value is the value row that ends exactly there in
the belief of its own commit:

- a value without an old value is an ``insert``, with one an ``update_preimage`` and an ``update_postimage``;
- a tombstone with an old value is a ``delete`` (with the old value), without one it is no change;
- a value row that was taken back without a trace (see ``Timeline``) is a ``delete``.

By version, the events of a commit are the rows that it added. By state time, they are the rows in the belief of the
newest version whose start lies in the range. Where filters name keys, only the rows of these are looked at: what an
event replaces has its key.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import BEGINNING, NOW, SegmentWithClosures, with_closures
from statestore.catalog.reads.change_events import (
    ChangeSplit,
    Events,
    added_starts,
    events_by_time,
    events_by_version,
    rows_between,
)
from statestore.catalog.reads.change_rows import change_batches
from statestore.catalog.reads.fetching import fetch_files, fetch_rows, fetch_segments
from statestore.catalog.reads.plan import CHUNK_ROWS, keys_may_match
from statestore.catalog.reads.replaced_rows import Scope, related
from statestore.catalog.reads.scan import lookup_hashes, matched_rows
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, shown
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.segment_meta import SegmentMeta
from statestore.formats.state_table import Query, check_number
from statestore.formats.values.filters import Filter, mask
from statestore.formats.values.times import format_time

SPLIT_EVENTS = 3 << 17
# Of at most this part of the rows of a segment, only their batches are read, which from an object store are all that is
# fetched. Were rows always read so, the changes of three commits would take 1.5 times as long (2 million versions).
DENSE_SHARE = 8
KEPT_SPLITS = 4  # of a range with more, each forgets what it has decompressed, which is up to 130 MB
SAMPLED = 1 << 10  # one start in so many rows tells where to cut a range of them


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
    begin, room = first, 0
    for version in range(first, last + 1):
        room += int(counts[version])
        if version == last or room + int(counts[version + 1]) > SPLIT_EVENTS:
            mine = tuple(v for v in segments if v.meta.min_added <= version)
            if room:
                splits.append(_split(log_state, mine, begin, version, False, log_state.version, 2 * room))
            begin, room = version + 1, 0
    return _passing(splits)


def _passing(splits: list[ChangeSplit]) -> list[ChangeSplit]:
    """Return the splits, marked where they are many: what all of them decompress would fill the memory."""
    return splits if len(splits) <= KEPT_SPLITS else [replace(split, passing=True) for split in splits]


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
    return _passing(
        [
            _split(log_state, mine, low, high, True, log_state.version, 2 * rows)
            for low, high in time_ranges(files, mine, first, last)
        ]
    )


def time_ranges(
    files: SegmentFiles, segments: tuple[SegmentWithClosures, ...], first: int, last: int
) -> list[tuple[int, int]]:
    """Return parts of [first, last] with about SPLIT_EVENTS rows each, cut at starts of rows."""
    samples = [starts[::SAMPLED] for segment in segments for _, _, starts in rows_between(files, segment, first, last)]
    return _cut(samples, first, last)


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
    if by_time:
        return ChangeSplit(segments, first, last, by_time, version, times, base, rows, after)
    late_before = int(log_state.versions.stream_time_before(np.array([first]))[0])
    latest = log_state.versions.stream_time_at(last)
    return ChangeSplit(segments, first, last, by_time, version, times, base, rows, after, late_before, latest)


def read_changes(
    files: SegmentFiles, split: ChangeSplit, schema: pa.Schema, filters: tuple[Filter, ...]
) -> Iterator[pa.RecordBatch]:
    """Yield the events of a split by (commit version, start), each preimage right before its postimage."""
    split, of_keys = _fetched(files, split, filters)
    names = tuple(dict.fromkeys([*schema.names, *(f.column for f in filters)]))
    for low, high in _windows(files, split):
        events = _events(files, split, of_keys, low, high)
        if not len(events):
            continue
        old, still_there = related(_scope(files, split, of_keys), events, split.by_time)
        _forget(files, split)
        for batch in change_batches(files, split, events, old, still_there, names):
            selected = mask(filters, batch) if filters else None
            kept = batch if selected is None else batch.filter(selected)
            if kept.num_rows:
                shown = kept.select(schema.names)
                yield pa.RecordBatch.from_arrays(shown.columns, schema=schema) if schema.names else shown
        _forget(files, split)


def _forget(files: SegmentFiles, split: ChangeSplit) -> None:
    """Drop what was decompressed to find events, or to show them, which are other columns, if the range has many
    splits."""
    if split.passing:
        for segment in split.segments:
            files.open_segment(segment.meta).forget_decoded()
        pa.default_memory_pool().release_unused()  # else 30 MB more at the next peak


def _windows(files: SegmentFiles, split: ChangeSplit) -> list[tuple[int, int]]:
    """Return parts of all state times; several where one commit has many more events than a split should have."""
    if split.by_time or split.first < split.last or split.rows <= 4 * SPLIT_EVENTS:
        return [(BEGINNING, NOW)]
    return _cut(added_starts(files, split, SAMPLED), BEGINNING, NOW)


def _cut(samples: Sequence[Ints], first: int, last: int) -> list[tuple[int, int]]:
    """Return parts of [first, last] with about SPLIT_EVENTS rows each, of which every SAMPLED-th has its start here."""
    ordered = np.sort(np.concatenate([np.empty(0, np.int64), *samples]))
    cuts = np.unique(ordered[:: SPLIT_EVENTS // SAMPLED][1:]).tolist()
    bounds = [first, *(c for c in cuts if c > first), last + 1]
    return [(low, high - 1) for low, high in itertools.pairwise(bounds)]


def _events(files: SegmentFiles, split: ChangeSplit, of_keys: Sequence[Ints] | None, low: int, high: int) -> Events:
    if split.by_time:
        return events_by_time(files, split, of_keys)
    return events_by_version(files, split, of_keys, low, high)


def _scope(files: SegmentFiles, split: ChangeSplit, of_keys: Sequence[Ints] | None) -> Scope:
    if split.by_time:
        return Scope(files, split.segments, split.version, False, of_keys)
    # Writes that are no events are events of the whole, and may replace others that an expiry left out.
    return Scope(files, split.segments, split.last, split.whole, of_keys)


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
    else:
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

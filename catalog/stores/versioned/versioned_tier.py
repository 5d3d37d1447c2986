"""Kafka's versioned store on a hot tier, row for row (``RocksDBVersionedStore``, KIP-889).

The newest value of a key is its latest row. Other versions lie in the segment of their end, and newest tombstones in
the segment of their time. Unlike Kafka's, the list of segments survives a restart, and reads of several versions are
complete (docs/decisions/022-kafka-semantics.md). Times are epoch milliseconds.
"""

from __future__ import annotations

import threading
from functools import partial

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.belief import newest_ends, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.stores.live.hot_tier import ONE, HotTier
from statestore.catalog.stores.live.live_recovery import Content, TierState, latest
from statestore.catalog.stores.live.live_rows import RowForms
from statestore.catalog.stores.live.tier_errors import TierBrokenError
from statestore.formats.errors import CorruptError
from statestore.formats.kafka_rows.versioned_store import (
    LATEST_SEGMENT,
    TIME,
    TimeSegmentRow,
    decode_latest,
    decode_row,
    encode_latest,
    encode_row,
    row_key,
    split_row_key,
)
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.times import TICK

NEWEST = -1  # Kafka's PUT_RETURN_CODE_VALID_TO_UNDEFINED
LATEST = TIME.pack(LATEST_SEGMENT)

Version = tuple[int, int | None, bytes]  # valid_from, valid_to (None: open), value


class VersionedTier:
    """The rows of one store, with the ``retention`` and ``interval`` of its history in milliseconds.

    A put moves versions between rows, so puts and reads of several rows take turns: no thread sees half of a put.
    """

    def __init__(self, tier: HotTier, retention: int, interval: int) -> None:
        self.tier = tier
        self._turn = threading.RLock()
        self._retention = retention
        self._interval = interval
        self._time_segments = self._found()
        self._first_live = -1

    def put(self, key: bytes, value: bytes | None, time: int, stream_time: int) -> int:
        """Put a version or (None) a tombstone; return its end at this moment, NEWEST if nothing ends it.

        ``stream_time`` decides which segments live: the observed stream time, in a restore that of the whole batch.
        """
        with self._turn:
            return self._put(key, value, time, stream_time)

    def _put(self, key: bytes, value: bytes | None, time: int, stream_time: int) -> int:
        self._drop_dead(stream_time)
        latest_key = LATEST + key
        latest = self.tier.get(ONE, latest_key)
        following = None
        if latest is not None:
            following, old = decode_latest(latest)
            if time >= following:
                if time > following:
                    self._move(key, following, time, old)
                self.tier.put(ONE, latest_key, None if value is None else encode_latest(time, value))
                return NEWEST
        for time_segment in self._later_time_segments(time):
            row = self._row(time_segment, key)
            if row is None:
                continue
            if row.next <= time:
                break
            if row.min <= time:
                return self._put_within(time_segment, row, key, value, time)
            following = row.min
        return self._put_beside(key, value, time, following)

    def get(self, key: bytes) -> tuple[int, bytes] | None:
        """Return (valid_from, value) of the newest version; None if there is none or a tombstone is newer."""
        latest = self.tier.get(ONE, LATEST + key)
        return None if latest is None else decode_latest(latest)

    def get_as_of(self, key: bytes, moment: int, stream_time: int) -> Version | None:
        """Return the version valid at a moment: the newest at any age, an older one within the retention."""
        with self._turn:
            return self._get_as_of(key, moment, stream_time)

    def _get_as_of(self, key: bytes, moment: int, stream_time: int) -> Version | None:
        latest = self.get(key)
        if latest is not None and latest[0] <= moment:
            return latest[0], None, latest[1]
        if moment < stream_time - self._retention:
            return None
        for time_segment in self._later_time_segments(moment):
            row = self._row(time_segment, key)
            if row is None:
                continue
            if row.next <= moment:
                return None
            if row.min <= moment:
                position, end = row.find(moment)
                start, value = row.versions[position]
                return None if value is None else (start, end, value)
        return None

    def end_of(self, key: bytes, time: int, stream_time: int) -> int:
        """Return the end of the version or tombstone that was put at ``time``, which is the result of its `put`.

        The newest version has no end. A version whose segment is dead is not stored; it ends where the oldest stored
        version begins.
        """
        with self._turn:
            return self._end_of(key, time, stream_time)

    def _end_of(self, key: bytes, time: int, stream_time: int) -> int:
        self._drop_dead(stream_time)
        latest = self.get(key)
        if latest is not None and time >= latest[0]:
            return NEWEST
        following = None if latest is None else latest[0]
        for time_segment in self._later_time_segments(time):
            row = self._row(time_segment, key)
            if row is None:
                continue
            if row.next <= time:
                break
            if row.min <= time:
                return row.find(time)[1]
            following = row.min
        return NEWEST if following is None else following

    def versions(self, key: bytes, first: int, last: int, stream_time: int) -> list[Version]:
        """Return versions with valid_from <= ``last`` and valid_to > ``first``, newest first, without tombstones."""
        versions: list[Version] = []
        with self._turn:
            latest = self.get(key)
            if latest is not None and latest[0] <= last:
                versions.append((latest[0], None, latest[1]))
            if last < stream_time - self._retention:
                return versions
            for time_segment in self._later_time_segments(first):
                row = self._row(time_segment, key)
                for start, end, value in [] if row is None else row.intervals():
                    if value is not None and start <= last and end > first:
                        versions.append((start, end, value))
        return versions

    def _put_within(self, time_segment: int, row: TimeSegmentRow, key: bytes, value: bytes | None, time: int) -> int:
        """Replace or split the version at ``time``, which is in this row; return the end of the new version."""
        position, end = row.find(time)
        start, old = row.versions[position]
        if start != time and self._time_segment(time) != time_segment:
            self._move(key, start, time, old)
            row.update(time, value, position)
        elif start == time:
            row.update(time, value, position)
        else:
            row.insert(time, value, position)
        self._store(time_segment, key, row)
        return end

    def _put_beside(self, key: bytes, value: bytes | None, time: int, following: int | None) -> int:
        """Put a version where no row holds ``time``: it is the newest, or ends where the next one starts."""
        if following is None:
            if value is not None:
                self.tier.put(ONE, LATEST + key, encode_latest(time, value))
            else:
                self._bury(key, time)
            return NEWEST
        time_segment = self._time_segment(following)
        if self._is_live(time_segment):
            row = self._row(time_segment, key)
            if row is None:
                row = TimeSegmentRow(following, time, [(time, value)])
            elif row.next <= time:
                row.insert_latest(time, following, value)
            else:
                row.insert_earliest(time, value)
            self._store(time_segment, key, row)
        return following

    def _bury(self, key: bytes, time: int) -> None:
        """Put a newest tombstone into the segment of its time."""
        time_segment = self._time_segment(time)
        if self._is_live(time_segment):
            row = self._row(time_segment, key)
            if row is None:
                self._store(time_segment, key, TimeSegmentRow(time, time, [(time, None)]))
            elif row.next != time:
                row.insert_latest(row.next, time, None)
                self._store(time_segment, key, row)

    def _move(self, key: bytes, start: int, end: int, value: bytes | None) -> None:
        """Put a version that ends at ``end`` into the segment of that time; a dead segment takes nothing."""
        time_segment = self._time_segment(end)
        if not self._is_live(time_segment):
            return
        row = self._row(time_segment, key)
        if row is None:
            row = TimeSegmentRow(end, start, [(start, value)])
        else:
            row.insert_latest(start, end, value)
        self._store(time_segment, key, row)

    def _row(self, time_segment: int, key: bytes) -> TimeSegmentRow | None:
        stored = self.tier.get(ONE, row_key(time_segment, key))
        try:
            return None if stored is None else decode_row(stored)
        except CorruptError as error:
            raise TierBrokenError(str(error)) from error

    def _store(self, time_segment: int, key: bytes, row: TimeSegmentRow) -> None:
        self._time_segments.add(time_segment)
        self.tier.put(ONE, row_key(time_segment, key), encode_row(row))

    def _time_segment(self, time: int) -> int:
        return time // self._interval if time >= 0 else -(-time // self._interval)

    def _is_live(self, time_segment: int) -> bool:
        return time_segment >= self._first_live

    def _later_time_segments(self, time: int) -> list[int]:
        """Return the segments that may hold versions valid at or after ``time``, newest first."""
        first = self._time_segment(time)
        return sorted((time_segment for time_segment in self._time_segments if time_segment >= first), reverse=True)

    def _drop_dead(self, stream_time: int) -> None:
        first = self._time_segment(stream_time - self._retention)
        if first > self._first_live:
            self._first_live = first
            for time_segment in [number for number in self._time_segments if number < first]:
                self._time_segments.discard(time_segment)
                self.tier.delete_range(ONE, TIME.pack(time_segment), TIME.pack(time_segment + 1))

    def _found(self) -> set[int]:
        """Return the existing segments, with one look for each."""
        time_segments: set[int] = set()
        low = TIME.pack(0)
        while True:
            first = next(self.tier.scan(ONE, low, LATEST), None)
            if first is None:
                return time_segments
            time_segment, _ = split_row_key(first[0])
            time_segments.add(time_segment)
            low = TIME.pack(time_segment + 1)


def versions_content(files: SegmentFiles, forms: RowForms, retention: int, interval: int) -> Content:
    """Return the content of a store with this history retention and segment interval (milliseconds)."""
    return Content(
        partial(_fill, files, forms, retention, interval),
        partial(_apply, retention, interval),
    )


def put_rows(
    rows: VersionedTier,
    keys: pa.BinaryArray,
    values: pa.BinaryArray,
    times: Ints,
    retention: int,
    state: TierState,
    limit: int,
) -> TierState:
    """Put records in their order, without those older than the retention at their turn.

    The stream time ``limit`` decides which segments live.
    """
    stream_time = state.stream_time
    for key, value, time in zip(keys.to_pylist(), values.to_pylist(), times.tolist(), strict=True):
        if time >= stream_time - retention:
            stream_time = max(stream_time, time)
            rows.put(key, value, time, max(limit, stream_time))
    return TierState(stream_time, state.sequence, state.dropped)


def _apply(retention: int, interval: int, tier: HotTier, batch: pa.RecordBatch, state: TierState) -> TierState:
    """Write a batch of the changelog as Kafka restores one: expiry is judged by the stream time at the batch's end."""
    rows = VersionedTier(tier, retention, interval)
    times = batch.column("timestamp").to_numpy()
    return put_rows(rows, batch.column("key"), batch.column("value"), times, retention, state, latest(batch, state))


def _fill(
    files: SegmentFiles, forms: RowForms, retention: int, interval: int, tier: HotTier, log_state: LogState
) -> TierState:
    """Put the versions and tombstones whose segments live, in the order of their time."""
    stream_time = log_state.stream_time_us // TICK
    first_live = (stream_time - retention) // interval
    keys, values, times = [pa.array([], pa.binary())], [pa.array([], pa.binary())], [np.empty(0, np.int64)]
    for segment in with_closures(log_state.segments, log_state.closures):
        if segment.meta.role == "belief":
            continue
        file, ends = files.open_segment(segment.meta), newest_ends(files, segment)
        starts = file.int64("valid_from")
        rows = np.flatnonzero((ends > starts) & (ends // TICK // interval >= first_live))
        columns = [file.take(name, rows) for name in files.spec.key_names]
        keys.append(forms.serde.keys_to_bytes(columns))
        if segment.meta.tombstone:
            values.append(pa.nulls(len(rows), pa.binary()))
        else:
            cells = [file.take(name, rows) for name in files.spec.value_names]
            values.append(forms.serde.values_to_bytes(cells, len(rows)))
        times.append(starts[rows] // TICK)
    order = np.argsort(np.concatenate(times), kind="stable")
    chosen = pa.array(order)
    state = TierState(-1, 0)
    rows_of = VersionedTier(tier, retention, interval)
    everything = 2**62  # the records of the table were accepted before
    put_rows(
        rows_of,
        pa.concat_arrays(keys).take(chosen),
        pa.concat_arrays(values).take(chosen),
        np.concatenate(times)[order],
        everything,
        state,
        stream_time,
    )
    return TierState(stream_time, 0)

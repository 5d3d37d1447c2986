"""Point reads of a versioned store with serde "natural": its committed versions with the puts of the handle on top."""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.commits.key_timeline import KeyVersion, Timeline
from statestore.catalog.log.entries import entry_name, newer_entry
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.lookup.key_history import key_history
from statestore.catalog.reads.lookup.many_keys_at import values_of
from statestore.catalog.reads.lookup.point_lookup import Found, PointLookup, Version
from statestore.catalog.reads.rows import Rows
from statestore.catalog.reads.versioned_table import window_of
from statestore.catalog.stores.latency import SAMPLE, Latencies
from statestore.catalog.stores.pending_writes import Pending
from statestore.catalog.stores.store_handle import AutoCompact, key_columns, many_keys
from statestore.catalog.stores.versioned.versioned_store import Record, VersionedStore, record_of, retention_of
from statestore.formats.errors import NotFoundError, StateStoreError, shown
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.serdes.row_serde import row_serde
from statestore.formats.state_table import Query
from statestore.formats.values.key_codec import KeyCodec, ValueCodec
from statestore.formats.values.times import MAX_MS, MIN_MS, Time, to_us

Key = tuple[Any, ...]

# Fewer keys are looked up one by one. By arrays, `get_many` of 20 keys would take 2.7 times as long, in Python alone 7
# times; one by one, that of 20,000 keys 2.6 to 3.4 times.
FEW_KEYS = 100
KEYS_AT_ONCE = 1 << 14  # whose slots are looked up together, one bit for each segment and key

READS_A_HISTORY = 8  # of single keys, as which a history counts

_new_tuple = tuple.__new__  # of a Record, which every point read makes


class VersionedReads(VersionedStore):
    """The reads of single keys of a `NaturalVersionedStore`.

    Reads of keys with pending puts hold ``_view``; whatever changes what reads see holds it, too.
    """

    def __init__(
        self, storage: Storage, spec: StoreSpec, *, auto_compact: AutoCompact = True, read_only: bool = False
    ) -> None:
        super().__init__(storage, spec, auto_compact=auto_compact, read_only=read_only)
        self._keys = KeyCodec(spec.key)
        self._values = ValueCodec(spec.value)
        self._view = threading.RLock()
        self._latencies = Latencies()
        self._gets = self._latencies["get"]
        self._has_newer = newer_entry(storage, self._log_state.version)
        self._serde = row_serde("natural", spec.key, spec.value)
        self._pending = Pending(spec, self._keys, self._serde)
        self._live = _LiveState(
            PointLookup(self._files, self._log_state, self._keys, self._values), self._pending, self._keys
        )
        self._history_schema: pa.Schema | None = None  # of all columns
        self._retention = retention_of(spec)
        if self._log_state.horizon is not None:
            self._retention = replace(self._retention, horizon=self._log_state.horizon.time)

    @abstractmethod
    def _advance(self, log_state: LogState) -> int:
        """Read from this log state from now on; return its version."""

    def get(self, key: Any, as_of: Time | None = None) -> Record | None:
        """Return the newest version, or the version valid at ``as_of``; None if there is none.

        As in Kafka, for a moment older than the retention, only a newest version that was already valid then is
        returned.
        """
        if self._closed:
            self._check_open()
        if perf_counter_ns() >= self._files.log.look_at:
            self._files.log.look()
        gets = self._gets
        gets.count = number = gets.count + 1
        if number & SAMPLE:
            return self._get(key, as_of)
        # Every scan checks both, but they are too expensive for each point read.
        self._files.log.check_identity()
        if not self._storage.exists(entry_name(self._log_state.version)):  # vacuum has removed it, and later ones
            self._follow()
        self._live.lookup.count_reads(SAMPLE + 1)
        begin = perf_counter_ns()
        record = self._get(key, as_of)
        gets.add(perf_counter_ns() - begin)
        return record

    def _get(self, key: Any, as_of: Time | None) -> Record | None:
        if not self._pending.parts:
            moment = as_of * 1000 if type(as_of) is int and MIN_MS <= as_of <= MAX_MS else _asked_moment(as_of)
            answer = self._live.lookup.answer(key, moment)
            if answer is None:
                return None
            if answer is not False:
                if answer[2] is not None:
                    retention = self._retention
                    if moment < retention.horizon or (retention.length is not None and self._is_late(moment)):
                        return None
                return _new_tuple(Record, answer)
        name = self._keys.normalize(key)
        moment = _asked_moment(as_of)
        if not self._files.is_local and not self._pending.parts:
            self._look_while_reading(name, moment)
        elif self._has_newer():
            self._follow()
        if self._pending.parts:
            with self._view:
                version = self._repeated(lambda: self._live.valid_at(name, moment))
            return None if version is None else self._shown(version, self._is_late(moment))
        try:
            found = self._live.lookup.locate(name, moment)
        except NotFoundError:
            found = self._repeated(lambda: self._live.lookup.locate(name, moment))
        if found is None:
            return None
        probe, row, end = found
        if end == OPEN:
            return _new_tuple(Record, (probe.shown(row), probe.starts.read(row) // 1000, None))
        retention = self._retention
        if moment < retention.horizon or (retention.length is not None and self._is_late(moment)):
            return None
        return _new_tuple(Record, (probe.shown(row), probe.starts.read(row) // 1000, end // 1000))

    def _look_while_reading(self, name: Key, moment: int) -> None:
        """Look for a newer commit in an object store, and fetch meanwhile what a read of the known one needs."""
        with ThreadPoolExecutor(1) as other:
            newer = other.submit(self._has_newer)
            with contextlib.suppress(StateStoreError):  # the read itself raises
                self._live.lookup.locate(name, moment)
        if newer.result():
            self._follow()

    def _shown(self, version: Version, late: bool) -> Record | None:
        """Return the record of a version; ``late``: at the moment that was asked for, only an open one is visible."""
        start, end, values = version
        if values is None or (late and end != OPEN):
            return None
        return Record(self._values.to_user(values), start // 1000, None if end == OPEN else end // 1000)

    def get_many(self, keys: Any, as_of: Time | None = None) -> list[Record | None]:
        """Return what `get` returns for each of these keys, in their order, all from one version of the store.

        ``keys`` is an iterable of keys as for `get`, or an Arrow array of them (of structs, for a key of several
        columns). For a thousand keys this takes a fraction of the time of as many gets.
        """
        self._check_open()
        asked = list(many_keys(keys))
        moment = _asked_moment(as_of)
        columns = [
            key_columns(asked[first : first + KEYS_AT_ONCE], self._keys) for first in range(0, len(asked), KEYS_AT_ONCE)
        ]
        self._gets.count += len(asked)
        self._follow()
        return self._repeated(lambda: self._many_at(asked, columns, moment))

    def _many_at(self, asked: list[Any], columns: list[list[pa.Array]], moment: int) -> list[Record | None]:
        late = self._is_late(moment)
        if self._pending.parts or len(asked) < FEW_KEYS:
            with self._view:
                versions = [self._live.valid_at(self._keys.normalize(key), moment) for key in asked]
            return [None if version is None else self._shown(version, late) for version in versions]
        with self._view:
            lookup = self._live.lookup
        lookup.count_reads(len(asked))
        return [record for some in columns for record in self._records_at(lookup, some, moment, late)]

    def _records_at(
        self, lookup: PointLookup, keys: Sequence[pa.Array], moment: int, late: bool
    ) -> list[Record | None]:
        """Return the committed record of each key of these columns; ``late`` as in `_shown`."""
        answers = lookup.answers(keys, moment)
        if answers is None:
            return self._located_at(lookup, keys, moment, late)
        if late:
            answers = [answer and (answer if answer[2] is None else None) for answer in answers]
        records = [answer and _new_tuple(Record, answer) for answer in answers]
        unknown = [number for number, answer in enumerate(answers) if answer is False]
        if unknown:
            rest = pa.array(unknown)
            others = self._located_at(lookup, [column.take(rest) for column in keys], moment, late)
            for number, record in zip(unknown, others, strict=True):
                records[number] = record
        return records

    def _located_at(
        self, lookup: PointLookup, keys: Sequence[pa.Array], moment: int, late: bool
    ) -> list[Record | None]:
        """Return what `_records_at` returns, from rows that are read by arrays."""
        found = lookup.locate_many(keys, moment)
        if late:
            found = [part.open_only() for part in found]
        records: list[Record | None] = [None] * len(keys[0])
        if found:
            starts, ends = (np.concatenate(times) for times in ([p.starts for p in found], [p.ends for p in found]))
            ends_ms = [None if end == OPEN else end // 1000 for end in ends.tolist()]
            values = values_of(self.spec.value, found, self._values.to_user)
            made = map(partial(_new_tuple, Record), zip(values, (starts // 1000).tolist(), ends_ms, strict=True))
            for number, record in zip(np.concatenate([p.numbers for p in found]).tolist(), made, strict=True):
                records[number] = record
        return records

    def get_versions(
        self, key: Any, start: Time | None = None, end: Time | None = None, ascending: bool = False
    ) -> Iterator[Record]:
        """Return versions that were valid at some moment from ``start`` to ``end`` (both inclusive), newest first
        (KIP-968).

        The answer is complete, whereas Kafka's misses versions that end in a later segment
        (docs/decisions/022-kafka-semantics.md). For a range that ends before the retention, only the newest
        version is considered. A range that ends before it starts has no moment, and no versions.
        """
        self._check_open()
        name = self._keys.normalize(key)
        low = -(2**63) if start is None else to_us(start, "start")
        high = OPEN - 1 if end is None else to_us(end, "end")
        if low > high:
            return
        self._follow()
        with self._view:
            versions = self._repeated(lambda: self._live.versions_of(name))
            stream_time = self._observed_us
        matches = [
            f
            for f in versions
            if f.values is not None
            and f.start <= high
            and f.end > low
            and self._retention.is_visible(f.end, high, stream_time)
        ]
        for item in matches if ascending else reversed(matches):
            yield record_of(item, self._values)

    def _history_of(self, key: Any, query: Query) -> Rows | None:
        """Return the history of a key from the rows that the key indexes name; None for a key of very many versions."""
        if query.columns == () or (query.start_time == query.end_time and query.start_time is not None):
            return None
        self._check_open()
        if query.columns is None:
            schema = self._history_schema = self._history_schema or self.table.schema(query)
        else:
            schema = self.table.schema(query)
        self._follow()
        batches = self._repeated(lambda: self._versions_in(key, query, schema))
        if batches is None:
            return None
        return Rows(
            f"{self.name}: history of {shown(key)}", schema, iter([iter(batches)]), lambda: iter([iter(batches)])
        )

    def _versions_in(self, key: Any, query: Query, schema: pa.Schema) -> list[pa.RecordBatch] | None:
        with self._view:
            lookup, log_state = self._live.lookup, self._log_state
        lookup.count_reads(READS_A_HISTORY)
        window = window_of(self.name, log_state, query)
        return key_history(lookup, self._files, (self._keys, self._values), key, window, schema)

    def _is_late(self, moment: int) -> bool:
        return self._retention.is_late(moment, self._observed_us)

    def _follow(self) -> None:
        """Take in commits of other handles, with one look for the next log entry."""
        self._advance(self._files.log.newest())


def _asked_moment(as_of: Time | None) -> int:
    """Return the epoch microseconds for which a read of a key asks."""
    if as_of is None:
        return OPEN - 1
    return as_of * 1000 if type(as_of) is int and MIN_MS <= as_of <= MAX_MS else to_us(as_of, "as_of")


class _LiveState:
    """Timelines of keys with pending puts, made at the first read; other keys are read from segments.

    A timeline starts with the committed rows that end at or after the key's earliest pending put. Rows that end earlier
    cannot change, so the cost of a put does not depend on the length of the key's history. ``lookup`` has the committed
    rows only.
    """

    def __init__(self, lookup: PointLookup, pending: Pending, codec: KeyCodec) -> None:
        self.lookup = lookup
        self._pending = pending
        self._codec = codec
        self._timelines: dict[Key, tuple[int, Timeline]] = {}

    def follow(self, log_state: LogState) -> None:
        """Read from another log state from now on."""
        self.lookup = self.lookup.following(log_state)
        self._timelines.clear()

    def forget(self) -> None:
        """Drop all timelines, because the pending puts have changed."""
        self._timelines.clear()

    def valid_at(self, key: Key, moment: int) -> tuple[int, int, tuple[Any, ...] | None] | None:
        """Return the version valid at ``moment`` (epoch microseconds) as the members of a `Found`; it may be a
        tombstone.
        """
        if self._pending.parts:
            cached = self._timeline(key)
            if cached is not None:
                earliest, timeline = cached
                entry = timeline.get(moment)
                if entry is not None:
                    return entry.start, entry.end, entry.value
                if moment >= earliest:
                    return None
        return self.lookup.valid_at(key, moment)

    def versions_of(self, key: Key) -> list[Found]:
        """Return all versions and tombstones of the key by start."""
        committed = self.lookup.versions_of(key)
        cached = self._timeline(key) if self._pending.parts else None
        if cached is None:
            return committed
        earliest, timeline = cached
        older = [f for f in committed if f.end < earliest]
        return older + [Found(e.start, e.end, e.value) for e in timeline.entries]

    def timeline_for_put(self, key: Key, moment: int) -> Timeline:
        """Return the key's timeline with the pending puts, ready for one more put at ``moment``."""
        cached = self._timeline(key) if self._pending.parts else None
        if cached is None or moment < cached[0]:
            cached = self._timelines[key] = (moment, self._make(key, moment))
        return cached[1]

    def has_timeline(self, key: Key) -> bool:
        """Return whether the key's timeline was made, so that further puts have to go into it."""
        return key in self._timelines

    def drop(self, key: Key) -> None:
        """Drop the key's timeline, which does not have a put that was made meanwhile."""
        self._timelines.pop(key, None)

    def keep(self, key: Key, timeline: Timeline) -> None:
        """Drop the key's timeline unless it is this one, which has taken a put that the other has not."""
        cached = self._timelines.get(key)
        if cached is not None and cached[1] is not timeline:
            del self._timelines[key]

    def _timeline(self, key: Key) -> tuple[int, Timeline] | None:
        """Return (earliest pending put, timeline from there on); None for a key without pending puts."""
        cached = self._timelines.get(key)
        if cached is None:
            puts = self._pending.puts_of(key, self._codec.hash(key))
            if not puts:
                return None
            earliest = min(moment for moment, _ in puts)
            cached = self._timelines[key] = (earliest, self._make(key, earliest))
        return cached

    def _make(self, key: Key, earliest: int) -> Timeline:
        key_hash = self._codec.hash(key)
        rows = self.lookup.ending_from(key, earliest)
        timeline = Timeline([KeyVersion(f.start, f.end, f.values, number) for number, f in enumerate(rows)])
        for moment, cells in self._pending.puts_of(key, key_hash):
            timeline.put(moment, cells)
        return timeline

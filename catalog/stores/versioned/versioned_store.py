"""The versioned store: Kafka's KIP-889 semantics on time-travel tables.

Point reads (`get`, `get_versions`, `delete`) see the uncommitted puts of their handle. `scan`, `history` and `changes`
read committed versions, as every other door does. Times are epoch milliseconds or aware datetimes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.commits.changelog_ownership import Changelogs
from statestore.catalog.commits.commit_attempt import CommitAttempt
from statestore.catalog.commits.consumed_changelogs import consumed_ends
from statestore.catalog.commits.parts.publish_parts import commit_parts
from statestore.catalog.commits.parts.staged_parts import StagedPart
from statestore.catalog.commits.publish_commit import Change, commit_change, is_committed
from statestore.catalog.log.entries import entry_name, newer_entry
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, local_root
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.argument_names import one_spelling
from statestore.catalog.reads.points.key_history import key_history
from statestore.catalog.reads.points.many_keys_at import values_of
from statestore.catalog.reads.points.point_lookup import PointLookup, Version
from statestore.catalog.reads.versioned_table import window_of
from statestore.catalog.stores.group_commit import SharedCommits, Taken
from statestore.catalog.stores.latency import SAMPLE, Latencies
from statestore.catalog.stores.many_keys import key_columns, many_keys
from statestore.catalog.stores.pending_writes import Pending, records_from_rows
from statestore.catalog.stores.record_input import batches_of, latest_time, record_batch
from statestore.catalog.stores.retention import retention_of
from statestore.catalog.stores.store_handle import NO_STREAM_TIME, PutAllResult, check_transaction
from statestore.catalog.stores.versioned.live_state import LiveState
from statestore.catalog.stores.versioned.records import PutResult, Record, record_of
from statestore.catalog.stores.versioned.table_change import append_change, overwrite_change
from statestore.catalog.stores.versioned.task_writes import judge_parts
from statestore.catalog.stores.versioned.versioned_kind import VersionedStore
from statestore.catalog.upkeep.compaction_choice import AutoCompact
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, shown
from statestore.formats.places.rocksdb_forks import leave_in_forks
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.serdes.row_serde import row_serde
from statestore.formats.state_table import Query, column_names
from statestore.formats.values.key_codec import KeyCodec, ValueCodec
from statestore.formats.values.times import MAX_MS, MIN_MS, Moment, Time, from_us, moment_us, to_us

Key = tuple[Any, ...]
NEWEST_PUT = PutResult(True, None)
FEW_KEYS = 100  # fewer are looked up one by one, which costs less than arrays
KEYS_AT_ONCE = 1 << 16

_new_tuple = tuple.__new__  # of a Record, which every point read makes


class NaturalVersionedStore(VersionedStore):
    """A live handle on a versioned store with serde "natural".

    Several handles may be open; each sees the commits of all.
    """

    def __init__(
        self, storage: Storage, spec: StoreSpec, *, auto_compact: AutoCompact = True, read_only: bool = False
    ) -> None:
        super().__init__(storage, spec, auto_compact=auto_compact, read_only=read_only)
        self._keys = KeyCodec(spec.key)
        self._values = ValueCodec(spec.value)
        # Threads may share a handle. Writes take turns by the first lock. The second lock changes in one step what
        # reads see. No commit holds them for long: commits take turns by a lock of their own, which is taken before
        # these two. A write is pending until the log state that has it is there.
        self._mutex = threading.RLock()
        self._commits: SharedCommits[int] = SharedCommits()
        self._view = threading.RLock()
        self._latencies = Latencies()
        self._puts, self._gets = self._latencies["put"], self._latencies["get"]
        self._committed_us = self._log_state.stream_time_us  # no committed version begins later
        self._has_newer = newer_entry(storage, self._log_state.version)
        self._serde = row_serde("natural", spec.key, spec.value)
        self._value_bytes = self._serde.value_bytes
        self._pending = Pending(spec, self._keys, self._serde)
        self._live = LiveState(
            PointLookup(self._files, self._log_state, self._keys, self._values), self._pending, self._keys
        )
        self._changelogs = Changelogs(
            local_root(storage),
            spec.record_schema(),
            partial(records_from_rows, spec, self._serde),
            store=spec.store_id,
            check=self._files.check_identity,
        )
        self._changelogs.version = self._log_state.version
        self._retention = retention_of(spec)
        if self._log_state.horizon is not None:
            self._retention = replace(self._retention, horizon=self._log_state.horizon.time)
        if not read_only:
            for batch in self._changelogs.adopt(self._committed_changelogs):
                self._take_in(batch)
        self._adopted_parts = len(self._pending.parts)
        leave_in_forks(self._leave)

    def _leave(self) -> None:
        """Forget the parent's pending writes and changelog in a forked child.

        The handle continues as if just opened, with a changelog of its own.
        """
        self._mutex = threading.RLock()  # a thread that the child does not have may have held it
        self._view = threading.RLock()
        self._commits = SharedCommits()
        self._changelogs.leave()
        self._pending.forget(0)
        self._live.forget()
        self._adopted_parts = self._dropped = 0
        self._stream_time = NO_STREAM_TIME
        leave_in_forks(self._leave)

    # Writing

    def put(self, key: Any, value: Any, timestamp: Time) -> PutResult:
        """Record that ``key`` has ``value`` from ``timestamp`` on; None deletes. The put survives the end of this
        process.

        The value holds until the key's next version or tombstone, regardless of the order in which they are written. A
        put with an equal timestamp replaces. A put older than the newest timestamp that the store has seen minus the
        retention is refused and counted in ``dropped_records`` (KIP-889).
        """
        if self._closed or self.read_only:
            self._check_writable()
        puts = self._puts
        puts.count = number = puts.count + 1
        begin = 0 if number & SAMPLE else perf_counter_ns()
        if type(timestamp) is int and MIN_MS <= timestamp <= MAX_MS:
            moment = timestamp * 1000
        else:
            moment = to_us(timestamp, "timestamp")
        name = self._keys.normalize(key)
        cells = None if value is None else self._value_bytes(value)
        with self._mutex:
            result = self._put(name, cells, moment)
        if begin:
            puts.add(perf_counter_ns() - begin)
        return result

    def _put(self, name: Key, cells: bytes | None, moment: int) -> PutResult:
        retention = self._retention
        if moment < retention.horizon or (retention.length is not None and self._is_late(moment)):
            self._dropped += 1
            return PutResult(False, None)
        live, pending = self._live, self._pending
        # Later than all of the key's versions, so that none has to be looked for.
        is_newest = moment > self._committed_us and pending.is_newest(name, moment) and not live.has_timeline(name)
        if not is_newest:
            with self._view:
                timeline = self._repeated(lambda: live.timeline_for_put(name, moment))
        if self._changelogs.is_local:
            self._changelogs.writer().append_row(self._serde.key_row_bytes(name), cells, moment // 1000)
        with self._view:
            pending.put(name, (moment, cells))
            if moment > self._stream_time:
                self._stream_time = max(moment, self._committed_us)
            if is_newest:
                live.drop(name)
                return NEWEST_PUT
            end = timeline.put(*pending.decoded((moment, cells)))
            live.keep(name, timeline)
        return PutResult(True, None if end == OPEN else from_us(end))

    def delete(self, key: Any, timestamp: Time) -> Record | None:
        """Put a tombstone; return the version that was valid at ``timestamp`` (not the newest).

        Returns None if there was none, or if the timestamp is older than the retention; then nothing changes.
        """
        record = self.get(key, as_of=timestamp)
        result = self.put(key, None, timestamp)
        return record if result.accepted else None

    def put_all(self, data: Any) -> PutAllResult:
        """Put an Arrow table, RecordBatchReader or pandas DataFrame in row order; return the accepted and refused
        counts.

        It has the key and value columns and a column ``timestamp`` (int64 epoch milliseconds or a zoned timestamp).
        Rows whose optional ``_change_type`` is ``delete`` are tombstones; a null in a value column is only a null. Rows
        older than the retention are refused and counted. Rows are acknowledged in batches, as they are read.
        """
        self._check_writable()
        accepted = refused = 0
        for batch in batches_of(data):
            records = record_batch(self.spec, batch)
            with self._mutex:
                kept, late = self._retention.without_late(records, self._observed_us)
                self._changelogs.append(kept)
                self._take_in(kept)
                self._dropped += late
            accepted += kept.num_rows
            refused += late
        return PutAllResult(accepted, refused)

    def restore(self, records: Iterable[tuple[Any, Any, Time]]) -> None:
        """Replay changelog records (key, value or None, timestamp) as one batch, as Kafka restores a store.

        Records that are older than the retention at their turn are skipped and not counted.
        """
        for key, value, timestamp in records:
            if not self._is_late(to_us(timestamp, "timestamp")):
                self.put(key, value, timestamp)

    def commit(self, transaction: tuple[str, int] | None = None) -> int:
        """Turn all acknowledged writes into one commit; return its version.

        ``transaction`` (application, batch number): if the log has it already, the writes of this handle are discarded
        as a repetition; writes taken over from a writer that died stay pending. Without anything to commit, the newest
        version is returned and nothing is written.

        After an error the commit was not made, the writes are still pending, and the call can be repeated. After
        CommitUnknownError the commit may have been made; a repeated call first determines that, and commits nothing
        twice.

        Threads that share the handle can go on writing during a commit (without ``transaction``). The next commit takes
        all their writes, and each thread gets the version that has its own.
        """
        self._check_writable()
        transaction = check_transaction(transaction)
        if transaction is None:
            return self._commits.version_with(self._pending.taken, partial(self._commit, None))
        with self._commits.turn, self._mutex:
            return self._commit(transaction)

    def _commit(self, transaction: tuple[str, int] | None) -> int:
        repeated = False

        def take() -> Taken[int] | int:
            self._finish_attempt()
            if not self._pending.parts and not self._dropped and transaction is None:
                return self.refresh()
            newest, records = self._pending.taken, self._pending.records()
            consumed = self._changelogs.consumed()
            change = Change("write", records, self._stream_time_of(), self._dropped, transaction, consumed)

            def unless_repeated(base: LogState) -> Change:
                nonlocal repeated
                repeated = is_committed(base, transaction)
                return change

            return Taken(newest, CommitAttempt(consumed, self._pending.seal(), self._dropped), unless_repeated)

        def forget(taken: Taken[int], log_state: LogState) -> None:
            with self._view:
                self._advance(log_state)
                self._forget_pending(self._adopted_parts if repeated else 0, taken.attempt.parts)
            self._dropped -= taken.attempt.dropped

        def commit(change: Callable[[LogState], Change | None]) -> LogState:
            return commit_change(self._files, self._log_state, change)

        log_state = self._commits.publish(self._mutex, self._changelogs, take, commit, forget)
        if isinstance(log_state, int):
            return log_state
        version = self._committed(log_state)
        committed = None if transaction is None else log_state.versions.find_transaction(*transaction)
        return version if committed is None else committed

    def _finish_attempt(self) -> None:
        """Determine whether a commit that raised took place; if it did, its writes are no longer pending."""
        attempt = self._commits.attempt
        if attempt is None:
            return
        self.refresh()
        if attempt.took_place(self._storage, self._log_state):
            with self._view:
                self._pending.forget(0, attempt.parts)
                self._live.forget()
            self._dropped -= attempt.dropped
            self._adopted_parts = 0
            if self._pending.parts:
                self._changelogs.mark_committed(self._log_state.changelogs)
            else:
                self._changelogs.discard()
        self._commits.attempt = None

    def write(self, data: Any, mode: str = "append", transaction: tuple[str, int] | None = None) -> int:
        """Commit a table (as for ``put_all``) at once, independent of this handle's pending writes; return the version.

        ``overwrite``: afterwards the current state is exactly these rows; keys that are not among them get a tombstone
        at the earliest of their timestamps, and history stays. The rows must not be older than the store's stream time.
        """
        self._check_writable()
        if not isinstance(mode, str) or mode not in ("append", "overwrite"):
            raise InvalidInputError(
                ErrorCode.INVALID_MODE, f"write mode {shown(mode)}; expected 'append' or 'overwrite'"
            )
        batches = [record_batch(self.spec, batch) for batch in batches_of(data)]
        table = pa.Table.from_batches(batches, schema=self.spec.record_schema())
        checked = check_transaction(transaction)
        with self._mutex:
            log_state = commit_change(
                self._files, self._log_state, lambda base: self._table_change(base, table, mode, checked)
            )
            return self._committed(log_state)

    # Point reads

    def get(self, key: Any, as_of: Moment | None = None) -> Record | None:
        """Return the newest version, or the version valid at ``as_of``; None if there is none.

        As in Kafka, for a moment older than the retention, only a newest version that was already valid then is
        returned.
        """
        if self._closed:
            self._check_open()
        gets = self._gets
        gets.count = number = gets.count + 1
        if number & SAMPLE:
            return self._get(key, as_of)
        # Every scan checks both, but they are too expensive for each point read.
        self._files.check_identity()
        if not self._storage.exists(entry_name(self._log_state.version)):  # vacuum has removed it, and later ones
            self._follow()
        self._live.lookup.count_reads(SAMPLE + 1)
        begin = perf_counter_ns()
        record = self._get(key, as_of)
        gets.add(perf_counter_ns() - begin)
        return record

    def _get(self, key: Any, as_of: Moment | None) -> Record | None:
        name = self._keys.normalize(key)
        moment = _asked_moment(as_of)
        if self._has_newer():
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
            return _new_tuple(Record, (probe.shown(row), probe.starts[row] // 1000, None))
        retention = self._retention
        if moment < retention.horizon or (retention.length is not None and self._is_late(moment)):
            return None
        return _new_tuple(Record, (probe.shown(row), probe.starts[row] // 1000, end // 1000))

    def _shown(self, version: Version, late: bool) -> Record | None:
        """Return the record of a version; ``late``: at the moment that was asked for, only an open one is visible."""
        start, end, values = version
        if values is None or (late and end != OPEN):
            return None
        return Record(self._values.to_user(values), start // 1000, None if end == OPEN else end // 1000)

    def get_many(self, keys: Any, as_of: Moment | None = None) -> list[Record | None]:
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
        return [record for some in columns for record in self._records_at(lookup, some, moment, late)]

    def _records_at(
        self, lookup: PointLookup, keys: Sequence[pa.Array], moment: int, late: bool
    ) -> list[Record | None]:
        """Return the committed record of each key of these columns; ``late`` as in `_shown`."""
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
        self, key: Any, start: Moment | None = None, end: Moment | None = None, ascending: bool = False
    ) -> Iterator[Record]:
        """Return versions that were valid at some moment from ``start`` to ``end`` (both inclusive), newest first
        (KIP-968).

        The answer is complete, whereas Kafka's misses versions that end in a later segment
        (docs/decisions/028-kafka-versioned-stores.md). For a range that ends before the retention, only the newest
        version is considered. A range that ends before it starts has no moment, and no versions.
        """
        self._check_open()
        name = self._keys.normalize(key)
        low = -(2**63) if start is None else moment_us(start, "start")
        high = OPEN - 1 if end is None else moment_us(end, "end")
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

    @one_spelling(start="start_time", end="end_time")
    def history(
        self,
        key: Any = None,
        start_time: Moment | None = None,
        end_time: Moment | None = None,
        version: int | None = None,
        columns: Iterable[str] | None = None,
        filter: Any = None,
    ) -> pa.RecordBatchReader:
        """Read every version with its interval, of one key or all, valid at some moment from ``start_time`` to
        ``end_time``.

        Both ends are inclusive. Versions are as recorded by commit ``version``; ``_commit_version`` is the commit that
        wrote each. Uncommitted puts are not among them.
        """
        asked = None if columns is None else column_names(columns, "columns")
        low = None if start_time is None else moment_us(start_time, "start_time")
        high = None if end_time is None else moment_us(end_time, "end_time")
        if key is None or asked == () or version is not None or filter is not None or (low == high and low is not None):
            return super().history(key, start_time, end_time, version, asked, filter)
        self._check_open()
        name = self._keys.normalize(key)
        query = Query(mode="history", start_time=low, end_time=high, columns=asked)
        schema = self.table.schema(query)
        self._follow()
        batches = self._repeated(lambda: self._history_of(name, query, schema))
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _history_of(self, name: Key, query: Query, schema: pa.Schema) -> list[pa.RecordBatch]:
        with self._view:
            lookup, log_state = self._live.lookup, self._log_state
        window = window_of(self.name, log_state, query)
        return key_history(lookup, self._files, (self._keys, self._values), name, window, schema)

    def flush(self) -> None:
        """Make acknowledged writes survive the end of the machine, too."""
        self._check_open()
        with self._mutex, self._latencies.time("flush"):
            self._changelogs.sync()

    def close(self) -> None:
        """Close the handle; safe to call twice."""
        try:
            if not self._closed:
                with self._commits.turn:  # the commit of another thread is still on its way
                    self._changelogs.close()
        finally:
            super().close()

    def metrics(self) -> dict[str, Any]:
        """Return current counts, and the latencies of each kind of call.

        The counts are versions, segments, rows and bytes kept, pending parts and dropped records, with the observed
        stream time (epoch milliseconds). Latencies are the count and, in microseconds, the mean and 99th percentile of
        a sample of the calls.
        """
        self._follow()
        latencies = self._latencies.report()
        return {**self._table_metrics(), "pending_parts": len(self._pending.parts), "latencies": latencies}

    # Internals

    def _is_late(self, moment: int) -> bool:
        return self._retention.is_late(moment, self._observed_us)

    def _take_in(self, batch: pa.RecordBatch) -> None:
        """Keep acknowledged records until the commit."""
        if batch.num_rows:
            with self._view:
                self._pending.put_batch(batch)
                self._live.forget()
            self._stream_time = latest_time(batch, self._observed_us)

    def _forget_pending(self, keep: int, parts: int) -> None:
        """Remove the first ``parts`` parts of the pending writes from memory and changelogs, except the first ``keep``
        of them, which were adopted.
        """
        if keep:
            self._changelogs.discard_own()
        else:
            self._changelogs.discard_sealed()
        self._pending.forget(keep, parts)
        self._adopted_parts = keep
        self._live.forget()

    def _table_change(
        self, base: LogState, table: pa.Table, mode: str, transaction: tuple[str, int] | None
    ) -> Change | None:
        if mode == "overwrite":
            return overwrite_change(self._files, base, table, transaction)
        if not table.num_rows and transaction is None:
            return None
        self._advance(base)
        return append_change(self.spec, self._retention, self._observed_us, table, transaction)

    def _advance(self, log_state: LogState) -> int:
        if log_state is not self._log_state:
            with self._view:
                if log_state.version >= self._log_state.version:  # another thread may have seen a later one already
                    self._log_state = log_state
                    self._committed_us = log_state.stream_time_us
                    self._changelogs.version = log_state.version
                    self._has_newer = newer_entry(self._storage, log_state.version)
                    if log_state.horizon is not None:
                        self._retention = replace(self._retention, horizon=log_state.horizon.time)
                    self._live.follow(log_state)
        return log_state.version

    def _committed_changelogs(self, names: Collection[str]) -> Mapping[str, int]:
        self._advance(self._files.log_state())
        return consumed_ends(self._storage, self._log_state, names)

    def _follow(self) -> None:
        """Take in commits of other handles, with one look for the next log entry."""
        self._advance(self._files.log_state())


def _asked_moment(as_of: Moment | None) -> int:
    """Return the epoch microseconds for which a read of a key asks."""
    if as_of is None:
        return OPEN - 1
    return as_of * 1000 if type(as_of) is int and MIN_MS <= as_of <= MAX_MS else moment_us(as_of, "as_of")


def write_parts(
    store: NaturalVersionedStore, parts: Sequence[StagedPart], transaction: tuple[str, int] | None = None
) -> int:
    """Commit parts that tasks staged (`statestore.catalog.stores.versioned.task_writes`); return the version.

    The result is that of ``store.write`` for the rows of all parts, in the order of the parts.
    """
    store._check_writable()
    checked = check_transaction(transaction)
    with store._mutex:
        judge = partial(judge_parts, store.spec, store._stream_time)
        return store._committed(commit_parts(store._files, store._log_state, parts, judge, checked))

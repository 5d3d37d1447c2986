"""The versioned store: Kafka's KIP-889 semantics on time-travel tables.

Point reads (`get`, `get_versions`, `delete`) see the uncommitted puts of their handle. `scan`, `history` and `changes`
read committed versions, as every other door does. Times are epoch milliseconds, aware datetimes or texts like
2024-05-01T09:30Z.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter_ns
from typing import Any

import pyarrow as pa

from statestore.catalog.commits.changelogs import Changelogs, consumed_ends
from statestore.catalog.commits.parts.publish_parts import Judge, commit_parts
from statestore.catalog.commits.parts.staged_parts import StagedPart
from statestore.catalog.commits.publish_commit import Change, commit_change, is_committed
from statestore.catalog.log.entries import newer_entry
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage, own_folder
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.log.version_chunks import NO_TIME
from statestore.catalog.stores.group_commit import CommitAttempt, SharedCommits, Taken, has_consumed
from statestore.catalog.stores.latency import SAMPLE
from statestore.catalog.stores.pending_writes import records_from_rows
from statestore.catalog.stores.record_input import batches_of, latest_time, record_batch
from statestore.catalog.stores.store_handle import AutoCompact, PutAllResult, check_transaction
from statestore.catalog.stores.versioned.captured_commits import check_takes_rows
from statestore.catalog.stores.versioned.table_change import append_change, overwrite_change
from statestore.catalog.stores.versioned.task_writes import judge_parts
from statestore.catalog.stores.versioned.versioned_reads import VersionedReads
from statestore.catalog.stores.versioned.versioned_store import PutResult, Record
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StorageError, shown
from statestore.formats.places.rocksdb_forks import leave_in_forks
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.times import MAX_MS, MIN_MS, Time, from_us, to_us

Key = tuple[Any, ...]
NEWEST_PUT = PutResult(True, None)


class NaturalVersionedStore(VersionedReads):
    """A live handle on a versioned store with serde "natural".

    Several handles may be open; each sees the commits of all.
    """

    def __init__(
        self, storage: Storage, spec: StoreSpec, *, auto_compact: AutoCompact = True, read_only: bool = False
    ) -> None:
        super().__init__(storage, spec, auto_compact=auto_compact, read_only=read_only)
        # Threads may share a handle. Writes take turns by this lock. With ``_view``, what reads see changes in one
        # step. No commit holds them for long: commits take turns by a lock of their own, which is taken before these
        # two. A write is pending until the log state that has it is there.
        self._mutex = threading.RLock()
        self._commits: SharedCommits[int] = SharedCommits()
        self._puts = self._latencies["put"]
        self._committed_us = self._log_state.stream_time_us  # no committed version begins later
        self._value_bytes = self._serde.value_bytes
        self._changelogs = Changelogs(
            own_folder(storage, make=not read_only),
            spec.record_schema(),
            partial(records_from_rows, spec, self._serde),
            store=spec.store_id,
            check=self._check_replaced,
        )
        self._changelogs.version = self._log_state.version
        if not read_only:
            for batch in self._changelogs.adopt(self._committed_changelogs):
                self._take_in(batch)
        self._adopted_parts = len(self._pending.parts)
        leave_in_forks(self._leave)

    def _check_replaced(self) -> None:
        """Raise NotFoundError STORE_REPLACED if another store has taken the folder in which a changelog is made.

        The folder of a store in an object store is its own, and the next commit finds out.
        """
        if self._files.is_local:
            self._files.log.check_identity()

    def _look(self) -> None:
        """Raise NotFoundError STORE_REPLACED for a store that is gone, in an object store if this process knows it."""
        if self._files.is_local or not self._files.log.look_at:
            self._files.log.look()

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
        self._stream_time = NO_TIME
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
        if perf_counter_ns() >= self._files.log.look_at:
            self._files.log.look()
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
        """Put the rows of a frame in their order; return the accepted and refused counts. A frame is a pandas or Polars
        DataFrame, an Arrow table or reader, or another object with an Arrow stream, such as a relation of DuckDB.

        It has the key and value columns and a column ``timestamp`` (int64 epoch milliseconds, zoned timestamps, or
        texts like 2024-05-01T09:30Z). Rows whose optional ``_change_type`` is ``delete`` are tombstones; a null in a
        value column is only a null. Rows older than the retention are refused and counted. Rows are acknowledged in
        batches, as they are read.
        """
        self._check_writable()
        accepted = refused = 0
        for batch in batches_of(data):
            records = record_batch(self.spec, batch)
            self._look()
            with self._mutex, self._files.log.or_replaced():
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
            newest, records, waiting = self._pending.taken, self._pending.records(), bool(self._pending.parts)
            consumed = self._changelogs.consumed()
            change = Change("write", records, self._stream_time_of(), self._dropped, transaction, consumed)

            def unless_repeated(base: LogState) -> Change | None:
                nonlocal repeated
                repeated = is_committed(base, transaction)
                # An earlier attempt, whose request to an object store had no answer, may have been carried out since.
                return None if waiting and consumed and has_consumed(base, consumed) else change

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
        return self._write(lambda base: self._table_change(base, table, mode, checked))

    def _write(self, change: Callable[[LogState], Change | None]) -> int:
        """Commit what ``change`` returns for the newest log state, beside the pending writes; return the version."""
        with self._mutex:
            return self._committed(commit_change(self._files, self._log_state, change))

    def flush(self) -> None:
        """Make acknowledged writes survive the end of the machine, too."""
        self._check_open()
        self._look()
        with self._mutex, self._latencies.time("flush"), self._files.log.or_replaced():
            self._changelogs.sync()

    def close(self) -> None:
        """Close the handle; safe to call twice. That of a store which is gone ends quietly: there is nothing to keep.

        Raises StorageError DISK_FAILED if the end of the changelog cannot be forced to the disk.
        """
        try:
            if not self._closed:
                with self._commits.turn:  # the commit of another thread is still on its way
                    self._changelogs.close()
        except StorageError:
            if not self._files.log.is_replaced():
                raise
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
        self._advance(self._files.log.newest())
        return consumed_ends(self._storage, self._log_state, names)


def write_parts(
    store: NaturalVersionedStore,
    parts: Sequence[StagedPart],
    transaction: tuple[str, int] | None = None,
    judge: Judge | None = None,
) -> int:
    """Commit parts that tasks staged (`statestore.catalog.stores.versioned.task_writes`); return the version.

    The result is that of ``store.write`` for the rows of all parts, in the order of the parts. ``judge`` decides which
    of them are too late, in place of the store's rule.
    """
    store._check_writable()
    check_takes_rows(store.spec)
    checked = check_transaction(transaction)
    with store._mutex:
        judging = judge or partial(judge_parts, store.spec, store._stream_time)
        return store._committed(commit_parts(store._files, store._log_state, parts, judging, checked))

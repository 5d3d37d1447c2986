"""The versioned store with Kafka's serdes: KIP-889 from a hot tier with the bytes of Kafka Streams.

One handle writes at a time, and RocksDB serves puts and gets. (With serde "natural" a versioned store has no hot tier
and any number of writers: `NaturalVersionedStore`.)
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import Any

import pyarrow as pa

from statestore.catalog.commits.publish_commit import Change
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.latency import SAMPLE
from statestore.catalog.stores.live.hot_tier import ONE, HotTier
from statestore.catalog.stores.live.live_recovery import Content, TierState
from statestore.catalog.stores.live.live_store import LiveStore
from statestore.catalog.stores.live.live_tables import Accepted
from statestore.catalog.stores.live.tier_errors import TierBrokenError, broken
from statestore.catalog.stores.record_input import batches_of, latest_time, record_batch
from statestore.catalog.stores.store_handle import AutoCompact
from statestore.catalog.stores.versioned.table_change import overwrite_records
from statestore.catalog.stores.versioned.versioned_store import PutResult, Record, VersionedStore, retention_of
from statestore.catalog.stores.versioned.versioned_tier import (
    LATEST,
    NEWEST,
    Version,
    VersionedTier,
    put_rows,
    versions_content,
)
from statestore.formats.errors import StorageError
from statestore.formats.kafka_rows.versioned_store import decode_latest
from statestore.formats.values.times import TICK, Time, from_us


class LiveVersionedStore(LiveStore, VersionedStore):
    """A live handle on a versioned store with Kafka's serdes; `LiveStore` describes which handle may write."""

    def __init__(
        self, storage: Storage, spec: StoreSpec, *, auto_compact: AutoCompact = True, read_only: bool = False
    ) -> None:
        super().__init__(storage, spec, auto_compact=auto_compact, read_only=read_only)
        assert spec.history_retention is not None and spec.segment_interval is not None
        self._retention, self._interval = spec.history_retention, spec.segment_interval
        self._versions: VersionedTier | None = None
        self._value_of = self._forms.serde.value_of
        self._database: Any = None  # of the own tier; reads of the newest version use it directly

    def put(self, key: Any, value: Any, timestamp: Time) -> PutResult:
        """Record that ``key`` has ``value`` from ``timestamp`` on; None deletes. The put survives the end of this
        process.

        A put older than the stream time minus the history retention is refused and counted in ``dropped_records``.
        """
        key_bytes = self._forms.serde.key_bytes(key)
        cells = None if value is None else self._forms.serde.value_bytes(value)
        moment = self._time(timestamp, "timestamp")
        puts = self._latencies["put"]
        puts.count = number = puts.count + 1
        begin = 0 if number & SAMPLE else perf_counter_ns()
        with self._mutex:
            self._own()
            if self._is_late(moment):
                self._dropped += 1
                return PutResult(False, None)
            append = self._append or self._open_changelog()
            start = self._changelogs.writer().end
            append(key_bytes, cells, moment)
            before, self._ost = self._ost, max(self._ost, moment)
            try:
                end = self._versions_held().put(key_bytes, cells, moment, self._ost)
            except TierBrokenError as error:
                self._lose_tier(self._tier, error, anew=True)
                end = self._end_of(key_bytes, moment, start, before)
            except BaseException as error:  # an interrupt: the tier may have half of the put
                self._lose_tier(self._tier, broken(error), anew=True)
                raise
        if begin:
            puts.add(perf_counter_ns() - begin)
        return PutResult(True, None if end == NEWEST else end)

    def delete(self, key: Any, timestamp: Time) -> Record | None:
        """Put a tombstone; return the version that was valid at ``timestamp`` (not the newest).

        Returns None if there was none, or if the timestamp is older than the retention; then nothing changes.
        """
        with self._mutex:
            self._own()
            record = self.get(key, as_of=timestamp)
            return record if self.put(key, None, timestamp).accepted else None

    def get(self, key: Any, as_of: Time | None = None) -> Record | None:
        """Return the newest version, or the one valid at ``as_of``; None if there is none.

        For a moment older than the retention, only a newest version that was already valid then is returned.
        """
        key_bytes = self._forms.serde.key_bytes(key)
        gets = self._latencies["get"]
        gets.count = number = gets.count + 1
        begin = 0 if number & SAMPLE else perf_counter_ns()
        if as_of is None:
            try:
                row = self._database.get(LATEST + key_bytes)
            except Exception:  # not open yet, not ours, or damaged
                row = self._read(lambda tier: tier.get(ONE, LATEST + key_bytes))
            record = None if row is None else Record(self._value_of(row[8:]), decode_latest(row)[0], None)
        else:
            moment = self._bound(as_of, "as_of")
            version = self._read(lambda tier: self._of(tier).get_as_of(key_bytes, moment, self._ost))
            record = None if version is None else self._record(version)
        if begin:
            gets.add(perf_counter_ns() - begin)
        return record

    def get_versions(
        self, key: Any, start: Time | None = None, end: Time | None = None, ascending: bool = False
    ) -> Iterator[Record]:
        """Return versions that were valid at some moment from ``start`` to ``end`` (both inclusive), newest first
        (KIP-968).

        The answer is complete, whereas Kafka's misses versions that end in a later segment
        (docs/decisions/022-kafka-semantics.md). A range that ends before it starts has no moment, and no
        versions.
        """
        self._latencies["range"].count += 1
        key_bytes = self._forms.serde.key_bytes(key)
        first = -(2**63) if start is None else self._bound(start, "start")
        last = 2**63 - 1 if end is None else self._bound(end, "end")
        if first > last:
            return iter(())
        versions = self._read(lambda tier: self._of(tier).versions(key_bytes, first, last, self._ost))
        return map(self._record, versions[::-1] if ascending else versions)

    def restore(self, records: Iterable[tuple[Any, Any, Time]]) -> None:
        """Replay changelog records (key, value or None, timestamp) as one batch; nothing is counted.

        Each record is judged by the stream time at its turn, and versions that have expired by the end of the batch are
        not written.
        """
        serde = self._forms.serde
        with self._mutex, self._latencies.time("restore"):
            self._own()
            taken = []
            stream_time = self._ost
            for key, value, timestamp in records:
                moment = self._time(timestamp, "timestamp")
                if moment >= stream_time - self._retention:
                    stream_time = max(stream_time, moment)
                    taken.append((serde.key_bytes(key), None if value is None else serde.value_bytes(value), moment))
            append = self._append or self._open_changelog()
            for key_bytes, cells, moment in taken:
                append(key_bytes, cells, moment)
                self._ost = max(self._ost, moment)
            try:
                for key_bytes, cells, moment in taken:
                    self._versions_held().put(key_bytes, cells, moment, stream_time)
            except TierBrokenError as error:
                self._lose_tier(self._tier, error, anew=True)

    # Internals

    def _versions_held(self) -> VersionedTier:
        if self._versions is None:
            raise TierBrokenError("the tier is closed", OSError(errno.EIO, "the hot tier was closed"))
        return self._versions

    def _end_of(self, key: bytes, moment: int, start: int, stream_time: int) -> int:
        """Return the end of a record that the changelog has and the tier did not take, from a recreated tier.

        If the tier cannot be recreated, the record is taken back and the put fails.
        """
        try:
            self._own()
            return self._read(lambda tier: self._of(tier).end_of(key, moment, self._ost))
        except StorageError:
            self._changelogs.writer().cut(start)
            self._ost = stream_time
            raise

    def _is_late(self, moment: int) -> bool:
        horizon = self._log_state.horizon
        return moment < self._ost - self._retention or (horizon is not None and moment * TICK < horizon.time)

    def _of(self, tier: HotTier) -> VersionedTier:
        """Return the rows of a tier. Raises TierBrokenError if another thread has closed it."""
        versions = self._versions
        if versions is None or versions.tier is not tier:
            raise TierBrokenError("the tier is closed", OSError(errno.EIO, "the hot tier was closed"))
        return versions

    def _record(self, version: Version) -> Record:
        start, end, value = version
        return Record(self._forms.serde.value_of(value), start, end)

    def _content(self) -> Content:
        return versions_content(self._files, self._forms, self._retention, self._interval)

    def _opened(self, tier: HotTier) -> None:
        self._versions = VersionedTier(tier, self._retention, self._interval)
        self._database = tier.database(ONE) if self._lock is not None else None

    def _drop_tier(self) -> None:
        self._versions = self._database = None
        super()._drop_tier()

    def _accept(self, data: Any) -> Accepted:
        rule = retention_of(self.spec)
        stream_time, dropped, kept = self._ost * TICK, 0, []
        for batch in batches_of(data):
            accepted, late = rule.without_late(record_batch(self.spec, batch), stream_time)
            stream_time = latest_time(accepted, stream_time)
            dropped += late
            kept.append(accepted)
        table = pa.Table.from_batches(kept, schema=self.spec.record_schema()).combine_chunks()
        columns = [column.combine_chunks() for column in table.columns]
        width = len(self.spec.key)
        values = self._forms.serde.values_to_bytes(columns[width:-2], len(table))
        return Accepted(
            self._forms.serde.keys_to_bytes(columns[:width]),
            pa.compute.if_else(columns[-1], pa.scalar(None, pa.binary()), values),
            from_us(stream_time),
            dropped,
            columns[-2].view(pa.int64()).to_numpy(zero_copy_only=False) // TICK,
        )

    def _apply(self, tier: HotTier, accepted: Accepted) -> None:
        times = accepted.times_of(self._forms)
        state = TierState(-1, 0)
        put_rows(self._of(tier), accepted.row_keys, accepted.values, times, 2**62, state, self._ost)

    def _overwriting(self, accepted: Accepted) -> Accepted:
        return accepted  # `_change` adds the tombstones, for each version that it tries

    def _take_written(self, operation: str, written: Accepted) -> None:
        if operation == "overwrite":
            self._make_anew()
        else:
            self._into_tier(written)

    def _change(
        self,
        operation: str,
        base: LogState,
        accepted: Accepted,
        transaction: tuple[str, int] | None,
        changelogs: tuple[tuple[str, int], ...],
    ) -> Change:
        change = super()._change(operation, base, accepted, transaction, changelogs)
        if operation != "overwrite":
            return change
        records = change.records if isinstance(change.records, Records) else change.records.all()
        return Change(operation, overwrite_records(self._files, base, records), change.stream_time)

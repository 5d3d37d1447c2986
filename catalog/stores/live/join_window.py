"""The window store of 2016 (KAFKA-3016), made for stream-stream joins: every put is a row of its own.

Rows are (key, time, sequence number) -> value; nothing is overwritten or deleted. The newest ``num_segments`` segments
are kept, regardless of the age of their rows. `fetch` returns the rows in the window around a time. Unlike in the
original, rows of a key never appear among those of another key of which it is a prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import Any

from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.latency import SAMPLE
from statestore.catalog.stores.live.hot_tier import HotTier
from statestore.catalog.stores.live.live_tables import SEQUENCE_MASK
from statestore.catalog.stores.live.tier_errors import TierBrokenError
from statestore.catalog.stores.live.time_segmented import TimeSegmentedStore, Windowed, one_key
from statestore.catalog.stores.live.window import START, SUFFIX_BYTES
from statestore.catalog.stores.store_handle import AutoCompact
from statestore.formats.kafka_rows.window_keys import SUFFIX
from statestore.formats.values.times import Time

THRESHOLD = 100


class JoinWindowStore(TimeSegmentedStore):
    """A live handle on a join-window store; `LiveStore` describes which handle may write.

    With ``batched_changelog`` the changelog is written as in 2016 (`ChangeLogger`): a put is acknowledged by the next
    flush or commit, or when more than a hundred rows wait.
    """

    def __init__(
        self, storage: Storage, spec: StoreSpec, *, auto_compact: AutoCompact = True, read_only: bool = False
    ) -> None:
        super().__init__(storage, spec, auto_compact=auto_compact, read_only=read_only)
        batched = spec.windowing is not None and spec.windowing.batched_changelog
        self._logger = ChangeLogger() if batched else None
        self._unsent: dict[bytes, bytes | None] = {}  # rows that wait to be sent, kept because a tier may be lost

    def put(self, key: Any, value: Any, timestamp: Time) -> bytes | None:
        """Add a row; return its row key, or None if its segment is older than the newest ``num_segments``.

        A refused row is counted in ``dropped_records``. A value of None stores nothing, but is logged.
        """
        name = self._forms.serde.key_bytes(key)
        cells = None if value is None else self._forms.serde.value_bytes(value)
        moment = self._time(timestamp, "timestamp")
        puts = self._latencies["put"]
        puts.count = number = puts.count + 1
        begin = 0 if number & SAMPLE else perf_counter_ns()
        with self._mutex:
            self._own()
            time_segment = self._live_time_segment(moment)
            if time_segment is None:
                self._dropped += 1
                return None
            self._sequence = (self._sequence + 1) & SEQUENCE_MASK
            row_key = name + SUFFIX.pack(moment, self._sequence)
            if self._logger is None:
                self._put_row(time_segment, row_key, cells, moment)
            else:
                self._unsent[row_key] = cells
                self._put_unsent(time_segment, row_key, cells)
                if self._logger.add(row_key):
                    self._send(self._logger)
        if begin:
            puts.add(perf_counter_ns() - begin)
        return row_key

    def fetch(self, key: Any, timestamp: Time) -> Iterator[Windowed]:
        """Return the rows of a key from ``window_before`` before to ``window_after`` after a time, both inclusive.

        Rows come by time and put; ``start`` and ``end`` of each are its time.
        """
        self._latencies["fetch"].count += 1
        moment, rule = self._time(timestamp, "timestamp"), self._rule
        first, last = max(0, moment - rule.before), max(0, moment + rule.after)
        name = self._forms.serde.key_bytes(key)
        length = len(name) + SUFFIX_BYTES
        bounds = one_key(name, SUFFIX.pack(first, 0), SUFFIX.pack(last, SEQUENCE_MASK))
        rows = self._stored(first, last, bounds, lambda row: len(row) == length and row.startswith(name), False)
        return map(self._row, rows)

    def restore(self, records: Iterable[tuple[Any, Any, Time]]) -> None:
        """Replay changelog records (key, value or None, time) one after the other; only the newest segments stay."""
        with self._mutex, self._latencies.time("restore"):
            dropped = self._dropped
            for key, value, timestamp in records:
                self.put(key, value, timestamp)
            self._dropped = dropped

    def _row(self, row: tuple[bytes, bytes]) -> Windowed:
        row_key, value = row
        moment: int = START.unpack_from(row_key, len(row_key) - SUFFIX_BYTES)[0]
        serde = self._forms.serde
        return Windowed(serde.key_of(row_key[:-SUFFIX_BYTES]), moment, moment, serde.value_of(value))

    def _before_commit(self) -> None:
        if self._logger is not None:
            self._send(self._logger)

    def _send(self, logger: ChangeLogger) -> None:
        """Log the waiting rows; rows that the changelog refuses continue to wait.

        As in 2016, a row whose segment is gone by now is logged as removed.
        """
        if not self._unsent:
            return
        append = self._append or self._changelogs.writer().append_row
        rule = self._rule
        first_live = rule.first_live_time_segment(self._ost)
        for row_key, removed in logger.waiting():
            moment = _time_of(row_key)
            gone = removed or rule.time_segment(moment) < first_live
            append(row_key, None if gone else self._unsent[row_key], moment)
            logger.sent(row_key)
            del self._unsent[row_key]

    def _put_unsent(self, time_segment: int, row_key: bytes, cells: bytes | None) -> None:
        tier = self._tier
        if tier is not None:
            try:
                tier.put(time_segment, row_key, cells)
            except TierBrokenError as error:
                self._lose_tier(tier, error)

    def _opened(self, tier: HotTier) -> None:
        rule = self._rule
        for row_key, cells in self._unsent.items():
            time_segment = rule.time_segment(_time_of(row_key))
            if time_segment >= rule.first_live_time_segment(self._ost):
                tier.put(time_segment, row_key, cells)

    def _leave(self) -> None:
        self._unsent.clear()
        super()._leave()


def _time_of(row_key: bytes) -> int:
    time: int = START.unpack_from(row_key, len(row_key) - SUFFIX_BYTES)[0]
    return time


class ChangeLogger:
    """The change logger of 2016 (Kafka's ``StoreChangeLogger``): batched changelog writes that keep the last value of a
    key.

    Keys wait in two sets. When one set holds more keys than the threshold, both are sent: a null for each removed key,
    then each dirty key with its current value in the store. Therefore the changelog does not have the order of the
    puts. A value that was overwritten before it was sent is never logged, and a row that is gone by then is logged as a
    null.
    """

    def __init__(self) -> None:
        self._dirty: dict[bytes, None] = {}  # dicts serve as ordered sets
        self._removed: dict[bytes, None] = {}

    def add(self, row_key: bytes) -> bool:
        """Record that the row was written; return True if the waiting keys are due to be sent."""
        self._dirty[row_key] = None
        self._removed.pop(row_key, None)
        return self._are_many()

    def delete(self, row_key: bytes) -> bool:
        """Record that the row was removed; return True if the waiting keys are due to be sent."""
        self._removed[row_key] = None
        self._dirty.pop(row_key, None)
        return self._are_many()

    def waiting(self) -> Iterator[tuple[bytes, bool]]:
        """Yield (row key, whether the row was removed) of all waiting keys, in order. A key waits until `sent` is
        called.
        """
        for row_key in list(self._removed):
            yield row_key, True
        for row_key in list(self._dirty):
            yield row_key, False

    def sent(self, row_key: bytes) -> None:
        """Record that the row was logged."""
        self._removed.pop(row_key, None)
        self._dirty.pop(row_key, None)

    def _are_many(self) -> bool:
        return len(self._dirty) > THRESHOLD or len(self._removed) > THRESHOLD

"""A handle on a store with a hot tier: questions to the tier, which are repeated if it turns out to be damaged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from statestore.catalog.commits.changelogs import overtaken_changelogs, take_back
from statestore.catalog.log.store_locations import TIER
from statestore.catalog.stores.live.hot_tier import HotTier, Row
from statestore.catalog.stores.live.tier_errors import TierBrokenError
from statestore.catalog.stores.live.tier_owner import ATTEMPTS, TierOwner
from statestore.catalog.stores.live.tier_position import remove_position
from statestore.formats.errors import StateStoreError
from statestore.formats.kafka_rows.window_keys import MAX_TIME
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.values.times import MAX_MS, MIN_MS, to_us

Answer = TypeVar("Answer")


class TierHandle(TierOwner):
    """A handle on a store with a hot tier, which it owns or reads; `LiveStore` adds the writing."""

    def metrics(self) -> dict[str, Any]:
        """Return current counts, and the latencies of each kind of call.

        These are the count and, in microseconds, the mean and 99th percentile of a sample of the calls.
        """
        with self._mutex:
            tier = self._tier
            rows = time_segments = 0
            if tier is not None:
                with contextlib.suppress(TierBrokenError):  # the table's count is reported instead
                    rows, time_segments = tier.estimated_rows(), len(tier.time_segments())
        table = self._table_metrics()
        return {
            **table,
            "rows": rows or table["rows"],
            "hot_segments": time_segments,
            "latencies": self._latencies.report(),
        }

    def physical(self) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield (directory, row key, value) of every row in the hot tier, as stored."""
        for time_segment in self._read(lambda tier: tier.time_segments()):
            name = self._time_segment_name(time_segment) if self._time_segment_name else f"rocksdb/{self.name}"
            for key, value in self._rows([time_segment], None, None, False):
                yield name, key, value

    @property
    def dropped_records(self) -> int:
        """The number of records refused because their segment was too old, over the life of the store."""
        self._readable()
        return super().dropped_records

    @property
    def observed_stream_time(self) -> int:
        """The greatest time put so far, epoch milliseconds; -1 before the first."""
        self._readable()
        return self._ost

    def take_over(self) -> None:
        """Take the store from another machine, whose owner is lost, or has to be.

        Writes that were acknowledged there since its last commit are not in the store. If that owner is alive, its next
        commit raises ConflictError STORE_LOCKED. Raises InvalidInputError INVALID_OPTION for a store in a local
        directory, ConflictError STORE_LOCKED while a process of this machine has the store open.
        """
        self._machine.check_shared()
        self._own(takeover=True)

    def take_back(self) -> int:
        """Add the writes that waited on this machine when another one took the store over; return their number.

        They are acknowledged again, before all writes that wait for a commit now, and become part of the next commit.
        """
        with self._commits.turn, self._mutex:
            self._own()
            found = overtaken_changelogs(self._storage, self.spec, self._log_state, self._root)
            if not found:
                return 0
            try:
                with disk_errors("open the changelog", self._root):
                    self._before_commit()
                    before = self._count_uncommitted()
                    self._append = None
                    self._drop_tier()
                    self._changelogs.close()
                    remove_position(self._root / TIER)
                    take_back(self._root, found)
                    self._changelogs.take_over(self._committed_changelogs)
                self._anew = True
                self._open_tier()
            except BaseException:
                with contextlib.suppress(StateStoreError):
                    self._release()
                raise
            return self._count_uncommitted() - before

    # For the kinds

    def _observe(self, time: int) -> None:
        """Advance the stream time, and drop the segments that this ends."""
        if time > self._ost:
            self._ost = time
            if self._tier is not None and self._drop_dead(self._tier) and self._lock is not None:
                self._save_tier()  # the position must not name segments that are gone

    def _read(self, ask: Callable[[HotTier], Answer]) -> Answer:
        """Return the answer of the tier; a tier that turns out to be damaged is replaced and read again."""
        failures = 0
        while True:
            tier = self._readable()
            try:
                return ask(tier)
            except TierBrokenError as error:
                if self._lose_tier(tier, error, anew=failures > 0):
                    failures += 1
                    if failures == ATTEMPTS:
                        raise error.as_storage_error(self._root / TIER) from error

    def _rows(
        self, time_segments: Iterable[int], low: bytes | None, high: bytes | None, backwards: bool
    ) -> Iterator[Row]:
        """Yield the rows of `_row_lists` one by one."""
        for rows in self._row_lists(time_segments, low, high, backwards):
            yield from rows

    def _row_lists(
        self, time_segments: Iterable[int], low: bytes | None, high: bytes | None, backwards: bool
    ) -> Iterator[list[Row]]:
        """Yield rows with ``low`` <= key < ``high`` segment by segment; rows of segments that are dropped meanwhile
        disappear.

        Damage on the way is repaired, and the rows continue behind the last one that was yielded.
        """
        for time_segment in time_segments:
            first, last = low, high
            failures = 0
            while True:
                tier, begin = self._readable(), (first, last)
                try:
                    for rows in tier.scan_lists(time_segment, first, last, backwards):
                        yield rows
                        if backwards:
                            last = rows[-1][0]
                        else:
                            first = rows[-1][0] + b"\0"
                    break
                except TierBrokenError as error:
                    again = begin == (first, last)
                    if self._lose_tier(tier, error, anew=again and failures > 0):
                        failures = failures + 1 if again else 1
                        if failures == ATTEMPTS:
                            raise error.as_storage_error(self._root / TIER) from error

    def _time(self, time: Any, what: str) -> int:
        """Return the epoch milliseconds of a time as users give it."""
        if type(time) is int and MIN_MS <= time <= MAX_MS:
            return time
        return to_us(time, what) // 1000

    def _bound(self, time: Any, what: str) -> int:
        """Return the epoch milliseconds of an end of a range, which may lie before or after all existing times."""
        if type(time) is int and -MAX_TIME <= time <= MAX_TIME:
            return time
        return to_us(time, what) // 1000

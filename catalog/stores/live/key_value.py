"""The key-value store: Kafka Streams' ``KeyValueStore`` on RocksDB, and a table with history by commit.

The newest put of a key is its value. Keys are in the order of their bytes: with serde "natural" that is the order of
their type, with "kafka" the order of the serialized key, where negative numbers come after positive ones. The state
time of its table is the time of the commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import Any, NamedTuple

from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.latency import SAMPLE
from statestore.catalog.stores.live.hot_tier import ONE, HotTier
from statestore.catalog.stores.live.live_store import LiveStore
from statestore.catalog.stores.live.tier_errors import broken
from statestore.catalog.stores.store_handle import AutoCompact, PutAllResult, many_keys
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.values.times import Time

EXACT_COUNT = 100_000  # up to this many rows are counted rather than estimated


class KeyValue(NamedTuple):
    """A row in the result of a range."""

    key: Any
    value: Any


class KeyValueStore(LiveStore):
    """A live handle on a key-value store; `LiveStore` describes which handle may write."""

    def __init__(
        self, storage: Storage, spec: StoreSpec, *, auto_compact: AutoCompact = True, read_only: bool = False
    ) -> None:
        super().__init__(storage, spec, auto_compact=auto_compact, read_only=read_only)
        self._key_bytes, self._value_bytes = self._forms.serde.key_bytes, self._forms.serde.value_bytes
        self._value_of = self._forms.serde.value_of
        self._puts, self._gets = self._latencies["put"], self._latencies["get"]
        self._database: Any = None  # the open database of the own tier, which gets read directly

    def _opened(self, tier: HotTier) -> None:
        # A reader's tier has to look for new commits first, so it is never read directly.
        self._database = tier.database(ONE) if self._lock is not None else None

    def get(self, key: Any) -> Any:
        """Return the value of a key, or None."""
        gets = self._gets
        gets.count = number = gets.count + 1
        begin = 0 if number & SAMPLE else perf_counter_ns()
        try:
            cells = self._database.get(self._key_bytes(key))
        except Exception:  # not open yet, not ours, damaged, or a wrong key
            cells = self._get_slowly(self._key_bytes(key))
        value = None if cells is None else self._value_of(cells)
        if begin:
            gets.add(perf_counter_ns() - begin)
        return value

    def get_many(self, keys: Any) -> list[Any]:
        """Return the value of each of these keys, or None, in their order.

        ``keys`` is an iterable of keys as for `get`, or an Arrow array of them (of structs, for a key of several
        columns).
        """
        return [self.get(key) for key in many_keys(keys)]

    def put(self, key: Any, value: Any, timestamp: Time | None = None) -> None:
        """Set the value of a key, or (None) delete it. The put survives the end of this process when the call returns.

        ``timestamp`` (default: now) is kept in the changelog; it does not influence which value is the newest.
        """
        row_key = self._key_bytes(key)
        cells = None if value is None else self._value_bytes(value)
        puts = self._puts
        puts.count = number = puts.count + 1
        begin = 0 if number & SAMPLE else perf_counter_ns()
        moment = int(time.time() * 1000) if timestamp is None else self._time(timestamp, "timestamp")
        with self._mutex:
            (self._append or self._open_changelog())(row_key, cells, moment)
            try:
                if cells is None:
                    del self._database[row_key]
                else:
                    self._database[row_key] = cells
            except BaseException as error:  # acknowledged: a reopened tier gets it from the changelog
                self._lose_tier(self._tier, broken(error))
                if not isinstance(error, Exception):
                    raise
            if moment > self._ost:
                self._ost = moment
        if begin:
            puts.add(perf_counter_ns() - begin)

    def put_if_absent(self, key: Any, value: Any, timestamp: Time | None = None) -> Any:
        """Put a value unless the key has one; return the value that it had, or None."""
        with self._mutex:
            self._own()
            value_before = self.get(key)
            if value_before is None:
                self.put(key, value, timestamp)
            return value_before

    def put_all(self, data: Any) -> PutAllResult:
        """Put (key, value) pairs in their order, or the rows of a frame (pandas, Polars, Arrow, or an Arrow stream).

        A table has the key and value columns and optionally ``timestamp`` and ``_change_type``.
        """
        if not isinstance(data, list | tuple | dict):
            return super().put_all(data)
        pairs: Iterable[tuple[Any, Any]] = data.items() if isinstance(data, dict) else data
        done = 0
        for key, value in pairs:
            self.put(key, value)
            done += 1
        return PutAllResult(done, 0)

    def delete(self, key: Any, timestamp: Time | None = None) -> Any:
        """Remove a key; return the value that it had, or None."""
        with self._mutex:
            self._own()
            value = self.get(key)
            self.put(key, None, timestamp)
            return value

    def range(self, low: Any = None, high: Any = None) -> Iterator[KeyValue]:
        """Return the rows with ``low`` <= key <= ``high`` (None: without end), ascending; none if low > high."""
        return self._range(low, high, backwards=False)

    def reverse_range(self, low: Any = None, high: Any = None) -> Iterator[KeyValue]:
        """Return the rows with ``low`` <= key <= ``high`` (None: without end), descending; none if low > high."""
        return self._range(low, high, backwards=True)

    def all(self) -> Iterator[KeyValue]:
        """Return all rows in ascending order."""
        return self._range(None, None, backwards=False)

    def reverse_all(self) -> Iterator[KeyValue]:
        """Return all rows in descending order."""
        return self._range(None, None, backwards=True)

    def prefix_scan(self, prefix: bytes | str) -> Iterator[KeyValue]:
        """Return the rows whose serialized key starts with ``prefix`` (text: its UTF-8 bytes), ascending."""
        start = prefix.encode() if isinstance(prefix, str) else prefix
        if not isinstance(start, bytes):
            raise InvalidInputError(
                ErrorCode.WRONG_KEY, f"prefix is {type(prefix).__name__}; expected text, or bytes of the serialized key"
            )
        return self._pairs(start, after(start), backwards=False)

    def approximate_num_entries(self) -> int:
        """Return the number of rows: exact in small stores, RocksDB's estimate in large ones."""
        guess = self._read(lambda tier: tier.estimated_rows())
        if guess > EXACT_COUNT:
            return guess
        return sum(1 for _ in self._rows([ONE], None, None, False))

    def restore(self, records: Iterable[tuple[Any, ...]]) -> None:
        """Replay changelog records (key, value or None[, timestamp]) in their order: the last record of a key wins."""
        with self._mutex, self._latencies.time("restore"):
            self._own()
            now = int(time.time() * 1000)
            key_bytes, value_bytes = self._key_bytes, self._value_bytes
            self._restore_rows(
                (
                    key_bytes(record[0]),
                    None if record[1] is None else value_bytes(record[1]),
                    now if len(record) < 3 else self._time(record[2], "timestamp"),
                )
                for record in records
            )

    def _range(self, low: Any, high: Any, backwards: bool) -> Iterator[KeyValue]:
        first = None if low is None else self._key_bytes(low)
        last = None if high is None else self._key_bytes(high) + b"\0"
        if first is not None and last is not None and first >= last:
            return iter(())
        return self._pairs(first, last, backwards)

    def _pairs(self, first: bytes | None, last: bytes | None, backwards: bool) -> Iterator[KeyValue]:
        self._check_open()
        ranges = self._latencies["range"]
        ranges.count += 1
        key_of, value_of = self._forms.serde.key_of, self._value_of
        return (KeyValue(key_of(k), value_of(v)) for k, v in self._rows([ONE], first, last, backwards))

    def _get_slowly(self, row_key: bytes) -> bytes | None:
        return self._read(lambda tier: tier.get(ONE, row_key))

    def _drop_tier(self) -> None:
        self._database = None
        super()._drop_tier()


def after(prefix: bytes) -> bytes | None:
    """Return the least key that is greater than every key with this prefix; None if there is none (only ff bytes)."""
    rest = prefix.rstrip(b"\xff")
    return rest[:-1] + bytes([rest[-1] + 1]) if rest else None

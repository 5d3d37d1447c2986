"""The methods of every versioned store (Kafka's KIP-889), whatever its serde.

With serde "natural" the store is a `NaturalVersionedStore`, which any number of writers may share. With serde "kafka"
it is a `LiveVersionedStore`, whose one writer has a hot tier with the bytes of Kafka Streams.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from statestore.catalog.stores.many_keys import many_keys
from statestore.catalog.stores.store_handle import PutAllResult, StoreHandle
from statestore.catalog.stores.versioned.records import PutResult, Record
from statestore.formats.values.times import Time


class VersionedStore(StoreHandle, ABC):
    """A handle on a versioned store: each key has a value at each state time, and late records find their place."""

    @abstractmethod
    def put(self, key: Any, value: Any, timestamp: Time) -> PutResult:
        """Record that ``key`` has ``value`` from ``timestamp`` on; None deletes. The put survives the end of this
        process.

        The value holds until the key's next version or tombstone, regardless of the order in which they are written. A
        put older than the newest timestamp that the store has seen minus the retention is refused and counted in
        ``dropped_records``.
        """

    @abstractmethod
    def delete(self, key: Any, timestamp: Time) -> Record | None:
        """Put a tombstone; return the version that was valid at ``timestamp`` (not the newest).

        Returns None if there was none, or if the timestamp is older than the retention; then nothing changes.
        """

    @abstractmethod
    def get(self, key: Any, as_of: Time | None = None) -> Record | None:
        """Return the newest version, or the version valid at ``as_of``; None if there is none.

        For a moment older than the retention, only a newest version that was already valid then is returned.
        """

    def get_many(self, keys: Any, as_of: Time | None = None) -> list[Record | None]:
        """Return what `get` returns for each of these keys, in their order.

        ``keys`` is an iterable of keys as for `get`, or an Arrow array of them (of structs, for a key of several
        columns).
        """
        return [self.get(key, as_of) for key in many_keys(keys)]

    @abstractmethod
    def get_versions(
        self, key: Any, start: Time | None = None, end: Time | None = None, ascending: bool = False
    ) -> Iterator[Record]:
        """Return versions that were valid at some moment from ``start`` to ``end`` (both inclusive), newest first
        (KIP-968).
        """

    @abstractmethod
    def put_all(self, data: Any) -> PutAllResult:
        """Put the rows of a frame in their order; return the accepted and refused counts. A frame is a pandas or Polars
        DataFrame, an Arrow table or reader, or another object with an Arrow stream, such as a relation of DuckDB.

        It has the key and value columns and a column ``timestamp`` (int64 epoch milliseconds, zoned timestamps, or
        texts like 2024-05-01T09:30Z). Rows whose optional ``_change_type`` is ``delete`` are tombstones.
        """

    @abstractmethod
    def restore(self, records: Iterable[tuple[Any, Any, Time]]) -> None:
        """Replay changelog records (key, value or None, timestamp) as one batch, as Kafka restores a store."""

    @abstractmethod
    def commit(self, transaction: tuple[str, int] | None = None) -> int:
        """Turn all acknowledged writes into one commit; return its version.

        ``transaction`` (application, batch number): if the log has it already, the writes of this handle are discarded
        as a repetition. Without anything to commit, the newest version is returned and nothing is written. After
        CommitUnknownError the call can be repeated; nothing is committed twice.
        """

    @abstractmethod
    def write(self, data: Any, mode: str = "append", transaction: tuple[str, int] | None = None) -> int:
        """Commit a table (as for ``put_all``) at once; return the version.

        ``overwrite``: afterwards the current state is exactly these rows; history stays.
        """

    @abstractmethod
    def flush(self) -> None:
        """Make acknowledged writes survive the end of the machine, too."""

    @abstractmethod
    def metrics(self) -> dict[str, Any]:
        """Return current counts, and the latencies of each kind of call."""

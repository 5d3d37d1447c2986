"""The methods of every versioned store (Kafka's KIP-889), whatever its serde.

With serde "natural" the store is a `NaturalVersionedStore`, which any number of writers may share. With serde "kafka"
it is a `LiveVersionedStore`, whose one writer has a hot tier with the bytes of Kafka Streams. Both refuse late writes
by one rule (`Retention`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.lookup.point_lookup import Found
from statestore.catalog.reads.shown import html_facts, html_page
from statestore.catalog.stores.store_handle import PutAllResult, StoreHandle, many_keys
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.key_codec import ValueCodec
from statestore.formats.values.times import Time, format_time, from_us


class Record(NamedTuple):
    """One version: ``value`` (a bare scalar for one value column, else a dict), interval in epoch milliseconds."""

    value: Any
    valid_from: int
    valid_to: int | None

    def __repr__(self) -> str:
        ends = (f"{name}={time}{_as_text(time)}" for name, time in zip(self._fields[1:], self[1:], strict=True))
        return f"Record(value={self.value!r}, {', '.join(ends)})"

    def _repr_html_(self) -> str:
        facts = [
            ("value", str(self.value)),
            ("valid_from", _moment(self.valid_from)),
            ("valid_to", _moment(self.valid_to)),
        ]
        return html_page("Record", "", html_facts(facts))


def _as_text(time: object) -> str:
    return f" ({_moment(time)})" if type(time) is int else ""


def _moment(time: object) -> str:
    return format_time(time * 1000) if type(time) is int else str(time)


def record_of(found: Found, values: ValueCodec) -> Record:
    assert found.values is not None
    end = None if found.end == OPEN else from_us(found.end)
    return Record(values.to_user(found.values), from_us(found.start), end)


class PutResult(NamedTuple):
    """``accepted`` is False for a put older than the retention; ``valid_to`` is None for the key's newest version."""

    accepted: bool
    valid_to: int | None

    def __repr__(self) -> str:
        return f"PutResult(accepted={self.accepted}, valid_to={self.valid_to}{_as_text(self.valid_to)})"

    def _repr_html_(self) -> str:
        return html_page(
            "PutResult", "", html_facts([("accepted", str(self.accepted)), ("valid_to", _moment(self.valid_to))])
        )


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


@dataclass(frozen=True)
class Retention:
    """The retention rule of versioned stores (KIP-889): writes that are too late, and versions that are no longer
    visible.

    ``length`` of kept history and ``segment_interval``, None: unlimited; ``horizon`` of the last expiry.

    A record older than the horizon is refused regardless of the length: the versions that would follow it may be gone,
    so that an old record could become the newest of its key.

    The grace period equals the history retention. Both are measured from the observed stream time, which is the
    greatest timestamp that the store was given. All times here are epoch microseconds.
    """

    length: int | None
    segment_interval: int | None
    horizon: int = -(2**63)

    def is_late(self, moment: int, stream_time: int) -> bool:
        """Return True for a write that is refused, and for a moment whose history is gone."""
        return moment < self.horizon or (self.length is not None and moment < stream_time - self.length)

    def is_visible(self, end: int, high: int, stream_time: int) -> bool:
        """Return whether a read of moments up to ``high`` sees a version that ends at ``end``.

        Kafka drops whole segments, so a version outlives the retention until its segment (by end) is dropped.
        """
        if end == OPEN:
            return True
        if self.is_late(high, stream_time):
            return False
        if self.length is None or self.segment_interval is None:
            return end > self.horizon
        return end // self.segment_interval >= (stream_time - self.length) // self.segment_interval

    def without_late(self, batch: pa.RecordBatch, stream_time: int) -> tuple[pa.RecordBatch, int]:
        """Return the accepted records (of the store's record schema) and the number of refused ones.

        Each record is judged by the stream time at its turn.
        """
        if (self.length is None and self.horizon == -(2**63)) or not batch.num_rows:
            return batch, 0
        times = batch.column("timestamp").view(pa.int64()).to_numpy(zero_copy_only=False)
        accepted = times >= self.horizon
        if self.length is not None:
            accepted &= times >= np.maximum.accumulate(np.concatenate(([stream_time], times[:-1]))) - self.length
        late = int(np.count_nonzero(~accepted))
        return (batch.filter(pa.array(accepted)), late) if late else (batch, 0)


def retention_of(spec: StoreSpec) -> Retention:
    """Return the rule of a store, whose description has milliseconds."""
    length, interval = spec.history_retention, spec.segment_interval
    return Retention(None if length is None else length * 1000, None if interval is None else interval * 1000)

"""The log of one partition, read from a broker: from the beginning to the end that it had when it was opened.

A consumer gets records only. An offset without one may have held a record that compaction removed, a transaction's
marker, or a record of an aborted transaction; which of them is unknown. How many there are is known once the log was
read to its end. The broker may compact between two readings of one question, so each reading is compared with the first
one, by the offsets of its records.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.engine import FileFinding
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.broker.connection import ANSWER_S, BrokerAddress, Connection, changed, connected
from statestore.formats.kafka.changelogs.record_log import LogFindings, RecordLog
from statestore.formats.kafka.changelogs.records import ListedHeaders, Records
from statestore.formats.kafka.columns.header_columns import HEADER, HEADERS, empty_headers
from statestore.formats.kernels.arrays import Ints

LOT = 512
"""Messages that are compared with the first reading at a time."""
_BATCH_ROWS, _BATCH_BYTES = 1 << 15, 16 << 20
_POLL_S, _PATIENCE_S = 0.1, 30.0
_ROWS = -1  # the key of the number of rows in BrokerLog.seen


@dataclass(frozen=True)
class BrokerLog:
    """A partition's log from offset ``low`` to before ``high``; a `RecordLog`. It holds no connection.

    ``high`` is the last stable offset under read_committed. ``seen`` has a checksum of the offsets in each lot of the
    first reading, and the number of records of a whole reading.
    """

    address: BrokerAddress
    topic: str
    partition: int
    low: int
    high: int
    seen: dict[int, int] = field(default_factory=dict, repr=False, compare=False)

    @property
    def findings(self) -> LogFindings:
        """The account of the log: after it was read once, also how many offsets are missing."""
        empty = self.low == self.high
        records = 0 if empty else self.seen.get(_ROWS)
        missing = None if records is None else self.high - records
        first = None if empty else self.low
        return LogFindings(self.partition, first, self.high, records, missing, markers_known=False)

    def after(self, offset: int) -> BrokerLog:
        """The log from an offset on, or from its beginning if that is later. It is read for the first time."""
        return replace(self, low=min(max(self.low, offset), self.high), seen={})

    def read(self) -> Iterator[Records]:
        """Yield all records.

        Raises ConflictError KAFKA_LOG_CHANGED if the log no longer holds the offsets of its first reading,
        InvalidInputError NO_ACCESS, and the errors of `connected`.
        """
        if self.low == self.high:
            return
        rows = 0
        with connected(self.address) as connection:
            position = connection.client.TopicPartition(self.topic, self.partition, self.low)
            connection.ask(partial(connection.consumer.assign, [position]))
            for messages in self._batches(connection):
                yield self._records(messages, rows)
                rows += len(messages)
        self._compare(_ROWS, rows)

    def _batches(self, connection: Connection) -> Iterator[list[Any]]:
        """Batches of messages, each of several lots."""
        batch: list[Any] = []
        size = 0
        for number, lot in enumerate(self._lots(connection)):
            self._compare(number, xxhash.xxh3_64_intdigest(_offsets(lot).tobytes()))
            batch += lot
            size += sum(map(len, lot))
            if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch

    def _lots(self, connection: Connection) -> Iterator[list[Any]]:
        """The messages before the end, LOT at a time."""
        lot: list[Any] = []
        position, heard = self.low, time.monotonic()
        while position < self.high:
            wanted = min(LOT - len(lot), self.high - position)
            found = connection.ask(partial(connection.consumer.consume, wanted, _POLL_S))
            for message in found:
                error = message.error()
                if error is None:
                    position = message.offset() + 1
                    if position <= self.high:
                        lot.append(message)
                elif error.code() == error._PARTITION_EOF:
                    if message.offset() < self.high:
                        raise changed(
                            self.address,
                            f"partition {self.partition} of {self.topic} ends at offset {message.offset()}, expected "
                            f"{self.high}, its end when it was opened",
                        )
                    position = self.high
                else:
                    raise connection.failure(error)
            if len(lot) == LOT:
                yield lot
                lot = []
            if found:
                heard = time.monotonic()
            elif time.monotonic() - heard > _PATIENCE_S:
                said = connection.said[-1] if connection.said else "no error"
                raise InvalidInputError(
                    ErrorCode.NO_ACCESS,
                    f"{self.address}: no record of partition {self.partition} of {self.topic} from offset {position} "
                    f"on in {_PATIENCE_S:.0f} s ({said}); check the broker, then read again",
                )
        if lot:
            yield lot

    def _compare(self, what: int, found: int) -> None:
        if self.seen.setdefault(what, found) != found:
            raise changed(
                self.address,
                f"partition {self.partition} of {self.topic} was compacted or cut between two readings of one question",
            )

    def _records(self, messages: list[Any], before: int) -> Records:
        offset = _offsets(messages)
        return Records(
            self.partition,
            offset,
            np.array([each.timestamp()[1] for each in messages], np.int64),
            offset - np.arange(before, before + len(messages)),
            cells_of(pa.array([each.key() for each in messages], pa.binary())),
            cells_of(pa.array([each.value() for each in messages], pa.binary())),
            ListedHeaders(len(messages), _headers([each.headers() for each in messages])),
        )


def _offsets(messages: list[Any]) -> Ints:
    return np.array([each.offset() for each in messages], np.int64)


def _headers(found: list[list[tuple[str, bytes | None]] | None]) -> pa.ListArray:
    if not any(found):
        return empty_headers(len(found))
    ends = np.cumsum([0, *(len(each or ()) for each in found)])
    flat = [header for each in found if each for header in each]
    names = pa.array([name for name, _ in flat], pa.string())
    values = pa.array([value for _, value in flat], pa.binary())
    entries = pa.StructArray.from_arrays([names, values], fields=list(HEADER))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), entries, type=HEADERS)


# The topics of a cluster, as a broker lists them


@dataclass(frozen=True)
class BrokerTopics:
    """Topics and their partitions; ``identity`` is the cluster's id."""

    address: BrokerAddress
    identity: str
    partitions: Mapping[str, tuple[int, ...]]
    suffix: str

    @property
    def listed(self) -> tuple[str, ...]:
        """The topics with the suffix; others are read by their names."""
        return tuple(sorted(name for name in self.partitions if name.endswith(self.suffix)))

    def has(self, topic: str) -> bool:
        return topic in self.partitions

    def logs(self, topic: str) -> tuple[BrokerLog, ...]:
        """The logs of a topic up to the ends that they have now. Raises as `connected`."""
        with connected(self.address) as connection:
            found = []
            for partition in self.partitions[topic]:
                place = connection.client.TopicPartition(topic, partition)
                ask = partial(connection.consumer.get_watermark_offsets, place, timeout=ANSWER_S)
                ends = connection.ask(ask)
                if ends is None:
                    raise InvalidInputError(
                        ErrorCode.NO_ACCESS,
                        f"{self.address}: no answer about partition {partition} of {topic} in {ANSWER_S:.0f} s; check "
                        "that the addresses which brokers advertise (advertised.listeners) are reached from here",
                    )
                found.append(BrokerLog(self.address, topic, partition, *ends))
            return tuple(found)

    def partition_count(self, topic: str) -> int:
        """The number of partitions of a topic."""
        return len(self.partitions[topic])

    def end_offsets(self, topic: str, logs: Sequence[RecordLog]) -> Mapping[int, int]:
        """The ends of the partitions when the logs were opened."""
        return {log.partition: log.findings.next_offset for log in logs}

    def size(self, topic: str) -> tuple[int | None, int | None]:
        """A broker does not say how many bytes and files a topic has."""
        return None, None

    def lost(self, topic: str, logs: Sequence[RecordLog]) -> tuple[FileFinding, ...]:
        """A broker gives no files."""
        return ()


def broker_topics(address: BrokerAddress, suffix: str) -> BrokerTopics:
    """Ask for the topics of a cluster. Raises as `connected`."""
    with connected(address) as connection:
        found = connection.ask(partial(connection.consumer.list_topics, timeout=ANSWER_S))
    partitions = {name: tuple(sorted(topic.partitions)) for name, topic in found.topics.items() if topic.partitions}
    return BrokerTopics(address, found.cluster_id or address.servers, partitions, suffix)

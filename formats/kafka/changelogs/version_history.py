"""Versions of a versioned store from its changelog, by the rules of its puts (``RocksDBVersionedStore``, KIP-889).

A record is a put at its timestamp, a null value a tombstone. Records of one key and time replace each other, the last
in the log wins. A put older than stream time minus history retention was refused, and is in the log all the same: the
store logs a put before it judges it. A version is valid until the next version or tombstone of its key by time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from statestore.formats.kafka.changelogs.key_ranges import HELD_BYTES, KeyRange, in_key_ranges
from statestore.formats.kafka.changelogs.record_history import BATCH_ROWS
from statestore.formats.kafka.changelogs.record_log import END, LogMoment, RecordLog, keyed
from statestore.formats.kafka.changelogs.records import Records, offset_column
from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kafka_rows.time_segments import default_versioned_interval
from statestore.formats.kernels.arrays import Bools, Ints

VERSIONS = pa.schema(
    [
        pa.field("partition", pa.int32(), False),
        pa.field("key", pa.binary(), False),
        pa.field("value", pa.binary(), False),
        pa.field("headers", HEADERS),
        pa.field("offset", pa.int64()),
        pa.field("valid_from", pa.int64(), False),
        pa.field("valid_to", pa.int64()),
    ]
)
"""A version: milliseconds, ``valid_to`` is not included; null: the version is the newest of its key."""


@dataclass(frozen=True)
class VersionedRules:
    """``history_retention`` in milliseconds, None: nothing is refused or expires. ``segment_interval``: milliseconds,
    None: Kafka's default for the retention."""

    history_retention: int | None = None
    segment_interval: int | None = None

    @property
    def interval(self) -> int:
        """The segment interval in use."""
        if self.segment_interval is not None:
            return self.segment_interval
        return default_versioned_interval(self.history_retention or 0)


KEEP_ALL = VersionedRules()


def versions(
    logs: Iterable[RecordLog],
    rules: VersionedRules = KEEP_ALL,
    moment: LogMoment = END,
    *,
    expired: bool = False,
    held_bytes: int = HELD_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the versions that a versioned store holds at a moment of its changelog, with the columns of VERSIONS.

    Versions whose segment has expired by stream time are left out, unless ``expired``; the newest of a key never
    expires. They come by partition and the offset of their record; a partition of more than ``held_bytes`` comes in
    several such runs.
    """
    for log in logs:
        puts = _Puts(log, moment, rules.history_retention)
        for found in in_key_ranges(puts.read, log.partition, held_bytes):
            yield from _versions(found, None if expired else _expiry(rules, puts.stream_time), None)


def versions_at(
    logs: Iterable[RecordLog],
    time: int,
    rules: VersionedRules = KEEP_ALL,
    moment: LogMoment = END,
    *,
    held_bytes: int = HELD_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the version of each key that is valid at ``time``: state time in milliseconds, not a moment of the log.

    As ``get(key, asOf)`` answers: the newest version if it is valid at ``time``; otherwise nothing where ``time`` is
    older than stream time minus history retention.
    """
    for log in logs:
        puts = _Puts(log, moment, rules.history_retention)
        for found in in_key_ranges(puts.read, log.partition, held_bytes):
            retention = rules.history_retention
            expired = retention is not None and time < puts.stream_time - retention
            yield from _versions(found, None, partial(_valid_at, time, expired))


class _Puts:
    """The puts of a prefix that the store accepted, and its stream time after them."""

    def __init__(self, log: RecordLog, moment: LogMoment, retention: int | None) -> None:
        self._log, self._moment, self._retention = log, moment, retention
        self.stream_time = -1

    def read(self) -> Iterator[Records]:
        self.stream_time = -1
        for records in keyed(self._log, self._moment):
            seen = np.maximum.accumulate(np.concatenate(([self.stream_time], records.timestamp)))
            self.stream_time = int(seen[-1])
            if self._retention is None:
                yield records
                continue
            accepted = records.timestamp >= seen[:-1] - self._retention
            if accepted.all():
                yield records
            elif accepted.any():
                yield records.select(accepted)


def _expiry(rules: VersionedRules, stream_time: int) -> Callable[[Ints, Bools], Bools] | None:
    if rules.history_retention is None:
        return None
    interval = rules.interval
    least = int(_segment(np.array([stream_time - rules.history_retention]), interval)[0])

    def kept(valid_to: Ints, last: Bools) -> Bools:
        return last | (_segment(valid_to, interval) >= least)

    return kept


def _segment(time: Ints, interval: int) -> Ints:
    """The number of the segment of a time: division truncates toward zero."""
    return np.where(time >= 0, time // interval, -(-time // interval))


def _valid_at(time: int, newest_only: bool, start: Ints, end: Ints, last: Bools) -> Bools:
    if newest_only:
        return last & (start <= time)
    return (start <= time) & (last | (time < end))


def _versions(
    found: KeyRange,
    kept: Callable[[Ints, Bools], Bools] | None,
    chosen: Callable[[Ints, Ints, Bools], Bools] | None,
) -> Iterator[pa.RecordBatch]:
    order = found.by_time()
    code, time = found.code[order], found.timestamp[order]
    same = code[1:] == code[:-1]
    final = np.ones(len(order), np.bool_)
    final[:-1] = ~(same & (time[1:] == time[:-1]))  # the last write of a time
    order, code, time = order[final], code[final], time[final]
    last = np.ones(len(order), np.bool_)
    last[:-1] = code[1:] != code[:-1]
    end = np.append(time[1:], 0)
    rows = found.value.is_valid().to_numpy(zero_copy_only=False)[order]
    if kept is not None:
        rows &= kept(end, last)
    if chosen is not None:
        rows &= chosen(time, end, last)
    places = np.flatnonzero(rows)
    places = places[np.argsort(order[places], kind="stable")]
    taken = order[places]
    where = pa.array(taken)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(len(taken), found.partition, np.int32)),
            found.key.take(where),
            found.value.take(where),
            found.headers.take(where),
            pa.nulls(len(taken), pa.int64()) if found.offset is None else offset_column(found.offset[taken]),
            pa.array(time[places]),
            pa.array(end[places], mask=last[places]),
        ],
        schema=VERSIONS,
    )
    for begin in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(begin, BATCH_ROWS)

"""History and changes of unversioned stores: each record is a version of its key, in the order of offsets.

This is what the application believed: a record that came late replaced a newer one. Versions by time: see
``version_history``.

A compacted log does not hold its whole history. Compaction removes a record only after all older ones of its key
(``Cleaner``: a pass cleans everything up to one offset; a tombstone goes last), and retention removes the oldest
segments. So of each key the log holds the newest records, and only the value before the oldest of them is unknown:
null, never "none". The counts of missing offsets are given besides, for files that were not made by a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from statestore.formats.kafka.changelogs.key_ranges import HELD_BYTES, KeyRange, in_key_ranges
from statestore.formats.kafka.changelogs.record_log import END, LogMoment, RecordLog, keyed
from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kernels.arrays import Bools, Ints

BATCH_ROWS = 1 << 17

HISTORY = pa.schema(
    [
        pa.field("partition", pa.int32(), False),
        pa.field("key", pa.binary(), False),
        pa.field("value", pa.binary(), False),
        pa.field("headers", HEADERS),
        pa.field("offset", pa.int64()),
        pa.field("next_offset", pa.int64()),
        pa.field("valid_from", pa.int64(), False),
        pa.field("valid_to", pa.int64()),
        pa.field("missing_before", pa.int64()),
        pa.field("missing_after", pa.int64()),
    ]
)
"""A version by its record: ``valid_from`` is the record's timestamp, ``valid_to`` that of the key's next record, which
may be earlier where records came late; null: the version is the newest. ``missing_before`` counts the missing offsets
between the key's previous record, or the beginning of the log, and this one; ``missing_after`` those from here to the
next one or the end. Null: no offsets are known."""

CHANGES = pa.schema(
    [
        pa.field("partition", pa.int32(), False),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64(), False),
        pa.field("change", pa.string()),
        pa.field("key", pa.binary(), False),
        pa.field("before_known", pa.bool_(), False),
        pa.field("before_offset", pa.int64()),
        pa.field("before_timestamp", pa.int64()),
        pa.field("before", pa.binary()),
        pa.field("before_headers", HEADERS),
        pa.field("after", pa.binary()),
        pa.field("after_headers", HEADERS),
    ]
)
"""A change: insert, update or delete, null where it is unknown whether the key existed (then ``before_known`` is
false). ``before`` is null without a value before, or where that is unknown."""


@dataclass(frozen=True)
class Neighbours:
    """Positions of the previous and the next record of each record's key, -1 where there is none."""

    previous: Ints
    following: Ints


def neighbours(found: KeyRange) -> Neighbours:
    order = found.by_key()
    same = found.code[order[1:]] == found.code[order[:-1]]
    previous, following = np.full(len(found), -1, np.int64), np.full(len(found), -1, np.int64)
    previous[order[1:][same]] = order[:-1][same]
    following[order[:-1][same]] = order[1:][same]
    return Neighbours(previous, following)


def history(
    logs: Iterable[RecordLog], moment: LogMoment = END, *, held_bytes: int = HELD_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the versions of all keys that the logs hold up to a moment, with the columns of HISTORY.

    A null value ends a version and is none itself. Versions come in the order of partitions and offsets; a partition of
    more than ``held_bytes`` comes in several such runs. Whether the logs hold everything: ``log.findings``.
    """
    for log in logs:
        for found in in_key_ranges(partial(keyed, log, moment), log.partition, held_bytes):
            end = int(found.missing[-1]) if found.missing is not None else 0
            if moment is END and found.missing is not None and log.findings.missing_offsets is not None:
                end = log.findings.missing_offsets
            yield from _sliced(_history(found, end))


def _history(found: KeyRange, missing_at_end: int) -> pa.RecordBatch:
    near = neighbours(found)
    rows = np.flatnonzero(found.value.is_valid().to_numpy(zero_copy_only=False))
    following, last = near.following[rows], near.following[rows] < 0
    before, after = None, None
    if found.missing is not None:
        before = found.missing - np.where(near.previous >= 0, found.missing[near.previous], 0)
        after = np.where(last, missing_at_end, found.missing[following]) - found.missing[rows]
    chosen = pa.array(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(len(rows), found.partition, np.int32)),
            found.key.take(chosen),
            found.value.take(chosen),
            found.headers.take(chosen),
            _numbers(found.offset, rows),
            _numbers(found.offset, following, last),
            pa.array(found.timestamp[rows]),
            pa.array(found.timestamp[following], mask=last),
            _numbers(before, rows),
            pa.nulls(len(rows), pa.int64()) if after is None else pa.array(after),
        ],
        schema=HISTORY,
    )


def changes(
    logs: Iterable[RecordLog],
    moment: LogMoment = END,
    *,
    since: LogMoment | None = None,
    held_bytes: int = HELD_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield what each record changed, with the columns of CHANGES: those after ``since`` (None: from the beginning) up
    to ``moment``.

    The delete of a key that is known not to exist is no change. Order and several runs as in `history`.
    """
    for log in logs:
        begin = 0 if since is None else sum(len(records) for records in keyed(log, since))
        for found in in_key_ranges(partial(keyed, log, moment), log.partition, held_bytes):
            yield from _sliced(_changes(found, begin))


def _changes(found: KeyRange, begin: int) -> pa.RecordBatch:
    previous = neighbours(found).previous
    first = previous < 0
    known = ~first | (found.missing == 0) if found.missing is not None else ~first
    live = found.value.is_valid().to_numpy(zero_copy_only=False)
    lived = ~first & live[previous]
    rows = np.flatnonzero((found.number >= begin) & (live | lived | ~known))
    kinds = np.where(live, np.where(lived, 1, 0), 2)[rows]
    change = pa.DictionaryArray.from_arrays(
        pa.array(kinds, mask=(~known & live)[rows]), pa.array(["insert", "update", "delete"])
    ).cast(pa.string())
    chosen, gone = pa.array(rows), ~lived[rows]
    earlier = pa.array(previous[rows], mask=gone)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.full(len(rows), found.partition, np.int32)),
            _numbers(found.offset, rows),
            pa.array(found.timestamp[rows]),
            change,
            found.key.take(chosen),
            pa.array(known[rows]),
            _numbers(found.offset, previous[rows], gone),
            pa.array(found.timestamp[previous[rows]], mask=gone),
            found.value.take(earlier),
            found.headers.take(earlier),
            found.value.take(chosen),
            found.headers.take(chosen),
        ],
        schema=CHANGES,
    )


def _numbers(values: Ints | None, rows: Ints, gone: Bools | None = None) -> pa.Array:
    """The numbers of these rows, null where a row is gone or an offset unknown."""
    if values is None:
        return pa.nulls(len(rows), pa.int64())
    found = values[rows]
    return pa.array(found, mask=found < 0 if gone is None else gone | (found < 0))


def _sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for begin in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(begin, BATCH_ROWS)

"""Replay: the rows that a store held at a moment, as a restore from its changelog gives them.

Of each raw changelog key the newest record of the prefix is the row, and a null value is no row: so restore all kinds
but versioned stores (``StateRestoreCallback``); in buffers of suppression and joins a null removes the entry. The raw
key of a window is ``key | start | seqnum``, that of a session ``key | end | start``. Rows that have expired by stream
time are still among them: retention is a matter of the store's kind. Records without a key are skipped, as
``StoreChangelogReader`` does. Versioned stores: see ``version_history``.

A prefix is read twice: once for the newest records, holding hashes of keys only, and once for their rows. What fits in
64 MiB stays in memory between.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.hash_passes import Rereader
from statestore.formats.bytes.newest_of_keys import MOST_KEYS, newest_passes
from statestore.formats.kafka.changelogs.record_log import END, LogMoment, RecordLog, keyed
from statestore.formats.kafka.changelogs.records import COLUMNS, Records
from statestore.formats.places.ordered_threads import in_order
from statestore.formats.places.reading_threads import reading_threads

HELD_BYTES = 64 << 20
_POSITIONS = 120  # bytes that a record takes besides the bytes of its batch


def replayed(
    logs: Iterable[RecordLog],
    moment: LogMoment = END,
    *,
    columns: tuple[str, ...] = COLUMNS,
    most_keys: int = MOST_KEYS,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an unversioned store at a moment: columns of RECORDS, each row the record that wrote it.

    Rows come in the order of partitions and offsets, or, over ``most_keys`` keys in a partition, in several such runs.
    Raises as the logs do.
    """
    for log in logs:
        yield from in_order(partial(_batch, columns), newest_of(log, moment, most_keys), reading_threads())


def _batch(columns: tuple[str, ...], records: Records) -> pa.RecordBatch:
    return records.batch(columns)


def newest_of(log: RecordLog, moment: LogMoment = END, most_keys: int = MOST_KEYS) -> Iterator[Records]:
    """Yield the newest record of each key of one partition, without deletes."""
    reader = Rereader(partial(keyed, log, moment), _held_bytes, HELD_BYTES)
    for noted in newest_passes(most_keys):
        for records in reader.read():
            noted.note(records.key)
        first = 0
        for records in reader.read():
            kept = noted.newest(first, len(records)) & ~records.value.nulls
            first += len(records)
            if kept.all():
                yield records
            elif kept.any():
                yield records.select(np.flatnonzero(kept))


def _held_bytes(records: Records) -> int:
    return records.key.data.nbytes + _POSITIONS * len(records)

"""Overwrite: the current state becomes exactly these rows, as a new version; history stays."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from statestore.catalog.resolve import Records
from statestore.catalog.scan import NOW, Window, plan, read_split, splits_of
from statestore.catalog.segment_files import SegmentFiles
from statestore.catalog.snapshot import Snapshot
from statestore.formats.errors import InvalidInputError
from statestore.formats.key_equality import keys_equal
from statestore.formats.key_hash import hash_keys
from statestore.formats.key_index import KeyIndex
from statestore.formats.times import format_time


def overwrite_records(files: SegmentFiles, snapshot: Snapshot, records: Records) -> Records:
    """``records`` and a tombstone, at their earliest time, for each live key that is not among them.

    Raises InvalidInputError OVERWRITE_TOO_OLD if a record is older than the stream time: something later would remain.
    """
    stream_time = snapshot.stream_time_us
    if len(records):
        moment = int(records.times.min())
        if moment < stream_time:
            raise InvalidInputError(
                "OVERWRITE_TOO_OLD",
                f"overwrite of store {files.spec.name!r}: a row has timestamp {format_time(moment)}, the store has "
                f"seen {format_time(stream_time)}; give the rows that time or a later one, or append them",
            )
    else:
        moment = max(stream_time, time.time_ns() // 1_000_000 * 1_000)
    gone = _live_keys_without(files, snapshot, records)
    count = len(gone[0])
    if not count:
        return records
    nulls = [pa.nulls(count, field.type) for field in files.spec.value]
    return Records(
        [pa.concat_arrays([new, old]) for new, old in zip(gone, records.keys, strict=True)],
        [pa.concat_arrays([new, old]) for new, old in zip(nulls, records.values, strict=True)],
        np.concatenate((np.full(count, moment), records.times)),
        np.concatenate((np.ones(count, bool), records.tombstones)),
    )


def _live_keys_without(files: SegmentFiles, snapshot: Snapshot, records: Records) -> list[pa.Array]:
    names = files.spec.key_names
    index = KeyIndex.build(hash_keys(records.keys)) if len(records) else None
    window = Window(NOW, NOW, snapshot.version, newest=True)
    found: list[list[pa.Array]] = [[pa.array([], field.type)] for field in files.spec.key]
    for split in splits_of(plan(files, snapshot, window, ()), window):
        for batch in read_split(files, split, names):
            missing = np.ones(batch.num_rows, bool)
            if index is not None:
                probe, rows = index.match(hash_keys(batch.columns))
                same = keys_equal(batch.columns, probe, records.keys, rows.astype(np.int64))
                missing[probe[same]] = False
            for column, parts in zip(batch.columns, found, strict=True):
                parts.append(column.filter(pa.array(missing)))
    return [pa.concat_arrays(parts) for parts in found]

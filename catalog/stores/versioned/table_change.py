"""A table that is committed at once, as the change of one commit: rows to append, or the whole current state.

An overwrite makes the current state exactly these rows, as a new version; history stays.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from statestore.catalog.commits.publish_commit import Change
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.belief import NOW, TimeRange, newest_ends, with_closures
from statestore.catalog.reads.plan import plan, splits_of
from statestore.catalog.reads.scan import read_split
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.stores.pending_writes import BEFORE, records_of, records_of_batches
from statestore.catalog.stores.record_input import latest_time
from statestore.catalog.stores.versioned.versioned_store import Retention
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.key_index import KeyIndex
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys
from statestore.formats.values.times import format_time

Transaction = tuple[str, int] | None


def overwrite_change(files: SegmentFiles, base: LogState, table: pa.Table, transaction: Transaction) -> Change:
    """Return the change after which the current state is exactly the rows of the table."""
    records = overwrite_records(files, base, records_of(files.spec, table))
    return Change("overwrite", records, _greatest(records), transaction=transaction)


def append_change(
    spec: StoreSpec, retention: Retention, stream_time: int, table: pa.Table, transaction: Transaction
) -> Change:
    """Return the change that adds the rows which are not older than the retention at their turn."""
    kept, refused, greatest = [], 0, None
    for batch in table.to_batches():
        accepted, late = retention.without_late(batch, stream_time)
        kept.append(accepted)
        refused += late
        stream_time = latest_time(accepted, stream_time)
        if accepted.num_rows:
            greatest = latest_time(accepted, BEFORE if greatest is None else greatest)
    return Change("write", records_of_batches(spec, kept), greatest, refused, transaction)


def _greatest(records: Records) -> int | None:
    return int(records.times.max()) if len(records) else None


def overwrite_records(files: SegmentFiles, log_state: LogState, records: Records) -> Records:
    """Return the new rows of ``records``, and a tombstone for each live key that is not among them.

    The tombstones are at the earliest of the records' times, or at the stream time if that is later. A record that
    already is the newest version of its key, with that time and those values, is left out. Raises InvalidInputError
    OVERWRITE_TOO_OLD for a record whose key has a later version, because that version would remain.
    """
    stream_time = log_state.stream_time_us
    moment = max(stream_time, int(records.times.min()) if len(records) else time.time_ns() // 1_000_000 * 1_000)
    gone = _live_keys_without(files, log_state, records)
    records = _without_unchanged(files, log_state, records)
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


def _without_unchanged(files: SegmentFiles, log_state: LogState, records: Records) -> Records:
    if not len(records):
        return records
    hashes = hash_keys(records.keys)
    unchanged = np.zeros(len(records), bool)
    for segment in with_closures(log_state.segments, log_state.closures):
        if segment.meta.role == "belief" or segment.meta.max_valid_to != OPEN:
            continue
        file = files.open_segment(segment.meta)
        record, row = files.match(segment.meta, hashes)
        start = file.int64("valid_from")[row]
        newest = (newest_ends(files, segment)[row] == OPEN) & (start >= records.times[record])
        record, row, start = record[newest], row[newest], start[newest]
        stored = [file.column_array(name) for name in files.spec.key_names]
        same = keys_equal(records.keys, record, stored, row)
        record, row, start = record[same], row[same], start[same]
        _refuse_older(files, records, record, start)
        if not segment.meta.tombstone:
            values = [file.column_array(field.name) for field in files.spec.value]
            equal = keys_equal(records.values, record, values, row) & ~records.tombstones[record]
            unchanged[record[equal]] = True
    # Of several records with one key the last counts, so only a record that is alone can be left out.
    _, first, counts = np.unique(hashes, return_index=True, return_counts=True)
    alone = np.zeros(len(records), bool)
    alone[first[counts == 1]] = True
    kept = np.flatnonzero(~(unchanged & alone))
    if len(kept) == len(records):
        return records
    rows = pa.array(kept)
    return Records(
        [column.take(rows) for column in records.keys],
        [column.take(rows) for column in records.values],
        records.times[kept],
        records.tombstones[kept],
    )


def _refuse_older(files: SegmentFiles, records: Records, record: Ints, start: Ints) -> None:
    late = np.flatnonzero(start > records.times[record])
    if len(late):
        key = ", ".join(repr(column[int(record[late[0]])].as_py()) for column in records.keys)
        raise InvalidInputError(
            ErrorCode.OVERWRITE_TOO_OLD,
            f"overwrite of store {files.spec.name!r}: the row of key {key} has timestamp "
            f"{format_time(int(records.times[record[late[0]]]))}, but the key has a version of "
            f"{format_time(int(start[late[0]]))}, which would remain; give it a later time, or append it",
        )


def _live_keys_without(files: SegmentFiles, log_state: LogState, records: Records) -> list[pa.Array]:
    names = files.spec.key_names
    index = KeyIndex.build(hash_keys(records.keys)) if len(records) else None
    window = TimeRange(NOW, NOW, log_state.version, newest=True)
    found: list[list[pa.Array]] = [[pa.array([], field.type)] for field in files.spec.key]
    for split in splits_of(plan(files, log_state, window, ()), window):
        for batch in read_split(files, split, names):
            missing = np.ones(batch.num_rows, bool)
            if index is not None:
                probe, rows = index.match(hash_keys(batch.columns))
                same = keys_equal(batch.columns, probe, records.keys, rows.astype(np.int64))
                missing[probe[same]] = False
            for column, parts in zip(batch.columns, found, strict=True):
                parts.append(column.filter(pa.array(missing)))
    return [pa.concat_arrays(parts) for parts in found]

"""Rows of a version of a source that repeat what a captured store has already.

An engine writes rows again that did not change, and removes keys that are not there. The store keeps changes, so these
rows are left out: what they say was true before.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.lookup.point_lookup import PointLookup
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools
from statestore.formats.places.held_tables import held_rows
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.key_equality import keys_equal
from statestore.formats.values.key_hash import hash_keys

ROWS_AT_ONCE = 1 << 18


def without_unchanged(files: SegmentFiles, log_state: LogState, lookup: PointLookup, table: pa.Table) -> pa.Table:
    """Return a table of records without those that change nothing; ``lookup`` finds rows of the log state.

    Only records from the stream time of the store on are looked at: no row begins later, so the row that is valid then
    is the newest of its key. Several records with one key are all kept.
    """
    if not log_state.segments or not table.num_rows:
        return table
    return held_rows(table.schema, _changed(files, log_state.stream_time_us, lookup, table))


def _changed(files: SegmentFiles, since: int, lookup: PointLookup, table: pa.Table) -> Iterator[pa.RecordBatch]:
    is_alone, first = _is_alone(files.spec, table), 0
    for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE):
        dropped = _is_unchanged(files, since, lookup, batch) & is_alone[first : first + batch.num_rows]
        first += batch.num_rows
        yield batch.filter(pa.array(~dropped)) if dropped.any() else batch


def _is_alone(spec: StoreSpec, table: pa.Table) -> Bools:
    """Return which records have a key that no other one has."""
    width = len(spec.key)
    hashes = np.concatenate([hash_keys(batch.columns[:width]) for batch in table.to_batches() if batch.num_rows])
    _, which, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    found: Bools = counts[which] == 1
    return found


def _is_unchanged(files: SegmentFiles, since: int, lookup: PointLookup, batch: pa.RecordBatch) -> Bools:
    width = len(files.spec.key)
    keys, values = batch.columns[:width], list(map(_in_bits, batch.columns[width:-2]))
    times = batch.column("timestamp").view(pa.int64()).to_numpy(zero_copy_only=False)
    tombstones = batch.column("_tombstone").to_numpy(zero_copy_only=False)
    unchanged: Bools = tombstones.copy()  # until a row of the key is found
    for part in lookup.locate_many(keys, times):
        stored = files.open_segment(part.opened.meta).take_columns(files.spec.value_names, part.rows)
        same = keys_equal(values, part.numbers, list(map(_in_bits, stored)), np.arange(len(part.rows)))
        unchanged[part.numbers] = same & (part.ends == OPEN) & ~tombstones[part.numbers]
    unchanged &= times >= since
    return unchanged


def _in_bits(column: pa.Array) -> pa.Array:
    """Return values that are equal where all that the engine stored is, down to the sign of a zero."""
    return comparable(column, by_bits=True, in_order=True)

"""The rows of a state as the segments of a full snapshot: by key group, and within one as RocksDB would sort them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.keyed.rows.state_rows import ONE, stored_key, table_schema
from statestore.catalog.keyed.rows.state_spec import StateDescriptor
from statestore.catalog.keyed.snapshots.snapshot_part import SEGMENTS, StateSegment
from statestore.catalog.keyed.snapshots.stored_files import store_batches
from statestore.catalog.log.storage import Storage
from statestore.connector.imports.grouped_rows import GroupedRows
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.rocksdb.rows import BATCH_ROWS
from statestore.formats.serdes import natural_keys


def store_segment(
    storage: Storage, key: pa.Schema, spec: StateDescriptor, rows: GroupedRows, groups: range
) -> StateSegment | None:
    """Write the rows of some key groups to the store; return None if there are none.

    Raises CorruptError ROW_CORRUPT for two rows of one key, InvalidInputError BATCH_TOO_LARGE, StorageError.
    """
    counts = np.zeros(len(groups), np.int64)
    ordered = _sorted(key, spec, rows, groups, counts)
    file = store_batches(storage, SEGMENTS, table_schema(key, spec), ordered, scratch=rows.folder.parent)
    if file is None:
        return None
    ends = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    return StateSegment(file, groups.start, tuple(ends.tolist()))


def _sorted(
    key: pa.Schema, spec: StateDescriptor, rows: GroupedRows, groups: range, counts: Ints
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in order and count them by key group."""
    for row_groups, found in rows.windows(groups):
        stored = _stored_keys(key, spec, row_groups, found)
        order = _distinct(spec, stored, pc.sort_indices(stored), found)
        counts += np.bincount(row_groups[order.to_numpy()] - groups.start, minlength=len(groups))
        ordered = found.take(order)
        for start in range(0, ordered.num_rows, BATCH_ROWS):
            yield ordered.slice(start, BATCH_ROWS)


def _stored_keys(key: pa.Schema, spec: StateDescriptor, groups: Ints, rows: pa.RecordBatch) -> pa.BinaryArray:
    schema = stored_key(key, spec)
    last = [pa.array(np.zeros(rows.num_rows, np.int8))] if schema.field(-1) == ONE else []
    return natural_keys.keys_to_bytes(schema, [pa.array(groups.astype(np.int16)), *rows.columns[:-1], *last])


def _distinct(spec: StateDescriptor, stored: pa.BinaryArray, order: pa.Array, rows: pa.RecordBatch) -> pa.Array:
    """Return the order without timers that are equal: those at the end of time may have had different times.

    Raises CorruptError ROW_CORRUPT for other rows with one key.
    """
    in_order = stored.take(order)
    repeated = pc.equal(in_order[1:], in_order[:-1])
    at = pc.index(repeated, True).as_py()
    if at < 0:
        return order
    if spec.kind == "timer":
        return order.filter(pa.concat_arrays([pa.array([True]), pc.invert(repeated)]))
    row = rows.slice(order[at].as_py(), 1).select(rows.schema.names[:-1]).to_pylist()[0]
    raise CorruptError(
        ErrorCode.ROW_CORRUPT,
        f"state {spec.name!r} has two rows of {row}, expected one; the source is damaged, and nothing was imported",
    )

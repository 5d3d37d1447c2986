"""The rows that a commit adds: segments of values and of tombstones, and the open rows among them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.catalog.commits.new_files import NewFiles, RowBlock
from statestore.catalog.commits.open_rows import NewOpenRows
from statestore.catalog.commits.record_timelines import Closure, Resolution
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.commits.version_ends import NewRows
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.segments.key_index import KeyIndex
from statestore.formats.segments.segment_meta import OPEN


def add_rows(
    files: SegmentFiles, log_state: LogState, records: Records, resolution: Resolution, new: NewFiles
) -> tuple[NewOpenRows, ...]:
    """Add segments of the new rows; return the open rows among them, if there is an index to carry forward."""
    version, opened = log_state.version + 1, []
    for rows, tombstone in ((resolution.values, False), (resolution.tombstones, True)):
        if len(rows.record):
            everything = is_everything(records, rows)
            block = block_of(records, rows, version, tombstone, everything)
            late = rows.start <= log_state.stream_time_us
            hashes = resolution.hashes if everything else resolution.hashes[rows.record]
            meta = new.add_segment(files.spec, block, "delta", tombstone, late, hashes)
            if rows.by_hash is not None:
                files.know_index(meta, KeyIndex(hashes[rows.by_hash], rows.by_hash.astype(np.uint32)))
            if resolution.index is not None:
                opened.append(_open_rows(meta.name, rows, hashes))
    return tuple(opened)


def closure_parts(log_state: LogState, closures: list[Closure]) -> list[tuple[str, int, Ints, Ints]]:
    return [(segment, log_state.version + 1, rows, ends) for segment, rows, ends in closures]


def _open_rows(segment_name: str, rows: NewRows, hashes: Hashes) -> NewOpenRows:
    """Return the rows of a new segment that no version ends, in hash order where that order is known.

    ``hashes`` are those of the rows.
    """
    if rows.by_hash is not None and is_loaded():
        from statestore.formats.kernels.key_kernels import open_in_order

        count = len(rows.record)
        opened, (found, start) = np.empty(count, np.uint64), np.empty((2, count), np.int64)
        filled = open_in_order(rows.by_hash, rows.end, rows.start, hashes, opened, found, start)
        return NewOpenRows(segment_name, opened[:filled], found[:filled], start[:filled])
    order = np.arange(len(rows.record)) if rows.by_hash is None else rows.by_hash
    still = order[rows.end[order] == OPEN]
    return NewOpenRows(segment_name, hashes[still], still, rows.start[still])


def is_everything(records: Records, rows: NewRows) -> bool:
    """Return whether the rows are all records in their order, so that no column needs to be gathered."""
    return len(rows.record) == len(records) and np.array_equal(rows.record, np.arange(len(records)))


def block_of(records: Records, rows: NewRows, version: int, tombstone: bool, everything: bool) -> RowBlock:
    """Return new rows of the version with their columns; ``everything``: the rows are all records in their order."""
    columns = list(records.keys if tombstone else [*records.keys, *records.values])
    count = len(rows.record)
    if not everything:
        chosen = pa.array(rows.record)
        columns = [column.take(chosen) for column in columns]
    return RowBlock(
        columns,
        rows.start,
        rows.end,
        added=np.full(count, version),
        closed=np.where(rows.end == OPEN, 0, version),
        split=np.zeros(count, bool),
    )

"""Resolution of records in any process: they become a part of a write, whose files can be committed as they are.

Keys are independent, so a part resolves each of its keys as if the part were the whole commit. `join_parts` finds the
keys for which that was wrong, because other parts or a commit have them, too. The records of a key are left to it where
more than their rows decides: late records, and puts at one time of which one is a delete (see ``Timeline``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.commits.parts.staged_parts import (
    ARRIVALS,
    ENDED,
    NEVER,
    TIMES,
    StagedPart,
    stage_columns,
    stage_segment,
)
from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.commits.publish_commit import block_of, is_everything
from statestore.catalog.commits.sorted_records import (
    Records,
    SortedRecords,
    by_start,
    last_of_each_time,
    sort_records,
)
from statestore.catalog.commits.stored_rows import find_existing
from statestore.catalog.commits.version_ends import Existing, NewRows, insert_versions
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.belief import with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Bools, Hashes, Ints
from statestore.formats.segments.segment_meta import OPEN, FileRef, SegmentMeta
from statestore.formats.values.key_hash import hash_keys

U32 = np.dtype(np.uint32)


def stage_part(
    files: SegmentFiles,
    log_state: LogState,
    folder: StagingFolder,
    order: tuple[int, ...],
    records: Records,
    refused: int,
) -> StagedPart:
    """Resolve records against ``log_state``, and write them to files in ``folder``.

    ``refused`` is the number of records that were refused because they were too late.
    """
    if not len(records):
        return StagedPart(order, folder.name, files.spec.store_id, log_state.version, OPEN, NEVER, refused)
    segments = [v for v in with_closures(log_state.segments, log_state.closures) if v.meta.role != "belief"]
    hashes = hash_keys(records.keys)
    ordered = sort_records(records, hashes)
    existing = find_existing(files, segments, records, ordered, ordered.earliest)
    kept = last_of_each_time(ordered)
    left = _left_groups(records, ordered, existing, kept)
    mine = kept
    if left.any():
        mine = kept[~left[ordered.group[kept]]]
        existing = existing.take(~left[existing.group])
    values, tombstones = _new_rows(records, ordered, mine, existing)
    written = _Files(files.spec, folder, log_state)
    return StagedPart(
        order,
        folder.name,
        files.spec.store_id,
        log_state.version,
        int(records.times.min()),
        int(records.times.max()),
        refused,
        written.segment(records, values, hashes, False),
        written.segment(records, tombstones, hashes, True),
        written.arrivals(ordered, values, tombstones),
        written.superseded(ordered, kept, left),
        written.left(records, ordered, left),
        written.ended(ordered, existing),
        tuple(segment.meta.name for segment in segments),
    )


def _new_rows(records: Records, ordered: SortedRecords, mine: Ints, existing: Existing) -> tuple[NewRows, NewRows]:
    """Return the rows of values and of tombstones that the records at positions ``mine`` become."""
    count = len(records)
    if ordered.in_order and len(mine) == len(ordered.first) == count and not records.tombstones.any():
        # The usual bulk load: every record is a row, at its place already, and the newest of its key.
        nothing = np.empty(0, np.int64)
        everything = NewRows(np.arange(count), records.times, np.full(count, OPEN), ordered.record)
        return everything, NewRows(nothing, nothing, nothing)
    new, _, _ = insert_versions((ordered.record[mine], ordered.group[mine], ordered.time[mine]), existing)
    dead = records.tombstones[new.record]
    values, tombstones = (by_start(new, chosen, count, True) for chosen in (~dead, dead))
    return values, tombstones


def _left_groups(records: Records, ordered: SortedRecords, existing: Existing, kept: Ints) -> Bools:
    """Mark the groups whose records `join_parts` has to resolve."""
    left = np.zeros(len(ordered.first), bool)
    shared = np.flatnonzero(ordered.hashes[1:] == ordered.hashes[:-1])  # two keys with one hash
    left[shared] = left[shared + 1] = True
    deletes = np.zeros(len(left), bool)
    if records.tombstones.any():
        deletes[ordered.group[records.tombstones[ordered.record]]] = True
        repeated = np.ones(len(ordered.record), bool)
        repeated[kept] = False
        again = ordered.group[repeated]
        left[again[deletes[again]]] = True
    if len(existing.group):
        first = ordered.earliest[existing.group]
        plain = (existing.end == OPEN) & (existing.start <= first)
        plain &= ~(deletes[existing.group] & (existing.start == first))
        left[existing.group[~plain]] = True
        left[existing.group[1:][existing.group[1:] == existing.group[:-1]]] = True
    return left


class _Files:
    """The files of one part."""

    def __init__(self, spec: StoreSpec, folder: StagingFolder, log_state: LogState) -> None:
        self._spec = spec
        self._folder = folder
        self._log_state = log_state

    def segment(self, records: Records, rows: NewRows, hashes: Hashes, tombstone: bool) -> SegmentMeta | None:
        """Write new rows as a segment of the next version, with its key index."""
        if not len(rows.record):
            return None
        assert rows.by_hash is not None
        everything = is_everything(records, rows)
        block = block_of(records, rows, self._log_state.version + 1, tombstone, everything)
        entries = (hashes if everything else hashes[rows.record])[rows.by_hash]
        return stage_segment(
            self._spec, self._folder, self._log_state, block, tombstone, entries, rows.by_hash.astype(np.uint32)
        )

    def arrivals(self, ordered: SortedRecords, values: NewRows, tombstones: NewRows) -> FileRef | None:
        """Write the order of arrival where a replay of puts and deletes could need it."""
        if ordered.in_order or not len(tombstones.record):
            return None
        return self._columns("arrivals", ARRIVALS, [np.concatenate((values.record, tombstones.record)).astype(U32)])

    def superseded(self, ordered: SortedRecords, kept: Ints, left: Bools) -> FileRef | None:
        """Write the times of records that are in no other file, because they may yet turn out to be late."""
        if len(kept) == len(ordered.record):
            return None
        gone = ~left[ordered.group]
        gone[kept] = False
        return self._columns("superseded", TIMES, [ordered.time[gone]]) if gone.any() else None

    def left(self, records: Records, ordered: SortedRecords, left: Bools) -> FileRef | None:
        """Write the records of groups that are left, in the order of their arrival."""
        if not left.any():
            return None
        numbers = np.sort(ordered.record[left[ordered.group]])
        chosen = pa.array(numbers)
        columns = [column.take(chosen) for column in (*records.keys, *records.values)]
        schema = self._spec.record_schema()
        times = pa.array(records.times[numbers]).cast(schema.field("timestamp").type)
        columns += [times, pa.array(records.tombstones[numbers])]
        return stage_columns(self._folder, ".left.arrow", schema, columns)

    def ended(self, ordered: SortedRecords, existing: Existing) -> FileRef | None:
        """Write the stored rows that the part ends, each at the earliest record of its key."""
        if not len(existing.group):
            return None
        number, row = existing.segment_index.astype(U32), existing.row.astype(U32)
        hashes, ends = ordered.hashes[existing.group], ordered.earliest[existing.group]
        return self._columns("ended", ENDED, [hashes, number, row, ends])

    def _columns(self, what: str, schema: pa.Schema, columns: list[npt.NDArray[Any]]) -> FileRef:
        return stage_columns(self._folder, f".{what}.arrow", schema, [pa.array(column) for column in columns])

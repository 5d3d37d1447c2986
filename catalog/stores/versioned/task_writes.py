"""Writes that tasks resolve: each makes parts of its rows in its own process, and one process commits all of them.

    write = task_write(storage, spec)             # where the write is planned; can be pickled
    parts = write.in_folder(folder).stage((partition,), batches)  # in each task
    write_parts(store, parts_of_all_tasks)        # where the write is committed

The result is that of ``store.write`` with the rows of all tasks in the order of their partitions. Rows may be of any
keys. Where tasks have different keys (Spark distributed the rows by them), nothing is left to be done but the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from statestore.catalog.commits.parts.publish_parts import Judged
from statestore.catalog.commits.parts.resolve_part import stage_part
from statestore.catalog.commits.parts.staged_parts import StagedPart
from statestore.catalog.commits.parts.staging_folder import StagingFolder
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.segment_files import shared_files
from statestore.catalog.stores.pending_writes import records_of
from statestore.catalog.stores.record_input import latest_time, record_batch
from statestore.catalog.stores.versioned.versioned_store import Retention, retention_of

PART_ROWS = 1 << 20
PART_BYTES = 1 << 27
# A task with less leaves its rows to the process that commits. Were they staged, a write of 4 tasks of 10,000 rows
# would take 3.5 times the processor time. Were none, the commit of 4 tasks of 100,000 rows would take 7 times as long.
MIN_ROWS = 1 << 17
MIN_BYTES = 1 << 24


@dataclass(frozen=True)
class TaskWrite:
    """The plan of a write to a store. Parts are written to ``folder`` of the store, which has to exist.

    A part has at most ``part_rows`` rows. A task should leave fewer than ``least_rows`` to the process that commits.
    """

    storage: Storage
    spec: StoreSpec
    folder: str = ""
    part_rows: int = PART_ROWS
    least_rows: int = MIN_ROWS

    def in_folder(self, folder: StagingFolder) -> TaskWrite:
        return replace(self, folder=folder.name)

    def first_rows(self, batches: Iterator[pa.RecordBatch]) -> tuple[list[pa.RecordBatch], bool]:
        """Return the first batches, and whether they are enough rows for a task to resolve; otherwise they are all."""
        first: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            first.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows >= self.least_rows or (rows and size >= MIN_BYTES):
                return first, True
        return first, False

    def stage(self, order: tuple[int, ...], batches: Iterator[pa.RecordBatch]) -> list[StagedPart]:
        """Resolve rows, as ``put_all`` takes them, and return their parts.

        At most ``part_rows`` rows, or PART_BYTES bytes, are in memory at a time. ``order`` decides which parts of the
        write come first. Raises the errors of ``put_all`` for rows that the store does not take.
        """
        with StagingFolder(self.storage, self.folder).removing_failed() as folder:
            return self._staged(folder, order, batches)

    def _staged(
        self, folder: StagingFolder, order: tuple[int, ...], batches: Iterator[pa.RecordBatch]
    ) -> list[StagedPart]:
        files = shared_files(self.storage, self.spec)
        log_state, _lease = files.log.leased()
        retention = current_retention(self.spec, log_state)
        stream_time = log_state.stream_time_us
        parts: list[StagedPart] = []
        kept: list[pa.RecordBatch] = []
        refused = rows = size = 0

        def finish() -> None:
            nonlocal refused, rows, size
            if rows or refused:
                table = pa.Table.from_batches(kept, schema=self.spec.record_schema())
                records = records_of(self.spec, table)
                place = (*order, len(parts))
                parts.append(stage_part(files, log_state, folder, place, records, refused))
            kept.clear()
            refused = rows = size = 0

        for batch in batches:
            accepted, late = retention.without_late(record_batch(self.spec, batch), stream_time)
            if rows and (rows + accepted.num_rows > self.part_rows or size + accepted.nbytes > PART_BYTES):
                finish()
            stream_time = latest_time(accepted, stream_time)
            kept.append(accepted)
            refused += late
            rows += accepted.num_rows
            size += accepted.nbytes
        finish()
        return parts


def task_write(storage: Storage, spec: StoreSpec) -> TaskWrite | None:
    """Return the plan of a write whose rows tasks can resolve; None for a store of a kind that has a hot tier."""
    if spec.kind != "versioned" or spec.serde != "natural":
        return None
    return TaskWrite(storage, spec, part_rows=PART_ROWS, least_rows=MIN_ROWS)


def current_retention(spec: StoreSpec, log_state: LogState) -> Retention:
    """Return the rule of a store as of a version."""
    rule = retention_of(spec)
    if log_state.horizon is None:
        return rule
    return Retention(rule.length, rule.segment_interval, log_state.horizon.time)


def judge_parts(spec: StoreSpec, observed: int, log_state: LogState, parts: Sequence[StagedPart]) -> Judged:
    """Apply the rule of retention to parts that follow each other, each judged so far as if it were the first.

    A part has refused what was too late by its own records and the version that it saw. The records of the parts before
    it, and later commits, can only refuse more: all records before some time.
    """
    rule = current_retention(spec, log_state)
    stream_time = max(observed, log_state.stream_time_us)
    accepted: int | None = None
    cuts = []
    for part in parts:
        cut = rule.horizon if rule.length is None else max(rule.horizon, stream_time - rule.length)
        cuts.append(cut)
        if part.earliest <= part.latest and part.latest >= cut:
            accepted = part.latest if accepted is None else max(accepted, part.latest)
            stream_time = max(stream_time, part.latest)
    return Judged(tuple(cuts), accepted)

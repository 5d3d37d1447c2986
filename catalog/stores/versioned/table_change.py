"""A table that is committed at once, as the change of one commit."""

from __future__ import annotations

import pyarrow as pa

from statestore.catalog.commits.publish_commit import Change
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.log.log_state import LogState
from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.catalog.stores.overwrite_mode import overwrite_records
from statestore.catalog.stores.pending_writes import BEFORE, records_of, records_of_batches
from statestore.catalog.stores.record_input import latest_time
from statestore.catalog.stores.retention import Retention

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

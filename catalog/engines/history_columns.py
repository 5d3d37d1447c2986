"""Columns of a history from compared versions: the times between which a row was unchanged.

A null in ``valid_from`` and ``_commit_version`` means that the row existed when the known history begins, and that the
time and version of its beginning are unknown. A null in ``valid_to`` means that the row is still unchanged.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.reads.scan import VERSION_COLUMN
from statestore.formats.state_table import Query
from statestore.formats.values.types import TIME

HISTORY_COLUMNS = (
    pa.field("valid_from", TIME),
    pa.field("valid_to", TIME),
    pa.field(VERSION_COLUMN, pa.int64()),
)


def valid_rows(batch: pa.RecordBatch, query: Query) -> pa.RecordBatch:
    """Return the rows that were valid at some moment of the requested range; none where two versions have the same
    time.

    The requested moments are known, so a row without a start was valid from the first of them on.
    """
    start, end = batch.column("valid_from"), batch.column("valid_to")
    always = pc.is_null(start)
    kept = pc.or_kleene(pc.or_(always, pc.is_null(end)), pc.less(start, end))
    if query.start_time is not None:
        kept = pc.and_(kept, pc.or_kleene(pc.is_null(end), pc.greater(end, _scalar(query.start_time))))
    if query.end_time is not None:
        kept = pc.and_(kept, pc.or_kleene(always, pc.less_equal(start, _scalar(query.end_time))))
    return batch.filter(kept)


def oldest_first(rows: pa.Table) -> pa.Table:
    """Sort the rows by their start; a row without a start is older than all others."""
    starts = rows["valid_from"].cast(pa.int64()).combine_chunks().fill_null(-(1 << 63))
    return rows.take(pa.array(np.argsort(starts.to_numpy(), kind="stable")))


def _scalar(moment: int) -> pa.Scalar:
    return pa.scalar(moment, pa.int64()).cast(TIME)

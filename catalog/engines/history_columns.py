"""Columns of a history from compared versions: the times between which a row was unchanged.

A null in ``valid_from`` and ``_commit_version`` means that the row existed when the known history begins, and that the
time and version of its beginning are unknown. A null in ``valid_to`` means that the row is still unchanged.

Where no version has a known time, there are no times: a null would say what the other nulls say. ``_commit_version`` is
then followed by ``_end_version``, the first version that does not have the row; null means that all do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.reads.added_columns import VERSION_COLUMN
from statestore.formats.state_table import Query
from statestore.formats.values.types import TIME

END_COLUMN = "_end_version"
TIME_COLUMNS = ("valid_from", "valid_to")
HISTORY_COLUMNS = (
    pa.field("valid_from", TIME),
    pa.field("valid_to", TIME),
    pa.field(VERSION_COLUMN, pa.int64()),
)
NUMBERED_COLUMNS = (pa.field(VERSION_COLUMN, pa.int64()), pa.field(END_COLUMN, pa.int64()))


def history_columns(times: Sequence[int | None]) -> tuple[pa.Field, ...]:
    """Return the columns that the history of versions with these times has besides those of the state."""
    return HISTORY_COLUMNS if any(time is not None for time in times) else NUMBERED_COLUMNS


def ends_of(names: Collection[str]) -> tuple[str, str]:
    """Return the columns of a history, of these names, in which its rows begin and end: times, or else versions."""
    return TIME_COLUMNS if TIME_COLUMNS[0] in names else (VERSION_COLUMN, END_COLUMN)


def with_history(
    batch: pa.RecordBatch, start: pa.Array, end: pa.Array, numbers: pa.Array, times: pa.Array, query: Query
) -> pa.RecordBatch:
    """Return the rows of a history with the columns that say when they were in the state.

    ``start`` and ``end`` are the versions that wrote and ended each row, or null. The versions ``numbers`` took effect
    at ``times``, of which all or none are null.
    """
    if times.null_count == len(times):
        return _with_columns(batch, [start, end], NUMBERED_COLUMNS)
    moments = [times_of(versions, numbers, times) for versions in (start, end)]
    return valid_rows(_with_columns(batch, [*moments, start], HISTORY_COLUMNS), query)


def times_of(versions: pa.Array, numbers: pa.Array, times: pa.Array) -> pa.Array:
    """Return the times of versions; null for null."""
    return times.take(pc.index_in(versions, numbers))


def _with_columns(batch: pa.RecordBatch, cells: Sequence[pa.Array], fields: Sequence[pa.Field]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, *cells], schema=pa.schema([*batch.schema, *fields]))


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
    """Sort the rows by their start, a time or a version; a row without a start is older than all others."""
    starts = rows[ends_of(rows.column_names)[0]].cast(pa.int64()).combine_chunks().fill_null(-(1 << 63))
    return rows.take(pa.array(np.argsort(starts.to_numpy(), kind="stable")))


def _scalar(moment: int) -> pa.Scalar:
    return pa.scalar(moment, pa.int64()).cast(TIME)

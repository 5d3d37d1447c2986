"""The column that marks rows which Kafka no longer shows, though files or the changelog still hold them.

It is there where the retention is given, for kinds that judge rows by stream time. See ``stores/visibility``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.kafka.columns.store_form import StoreKind
from statestore.formats.kafka.stores.visibility import has_stream_time, is_reachable, is_visible
from statestore.formats.kernels.arrays import Ints

EXPIRED = "expired"


def marks_expired(kind: StoreKind, retention: int | None) -> bool:
    """Return whether rows of a kind have the column, with the retention in milliseconds."""
    return retention is not None and (kind.has_past or (kind.segmented and has_stream_time(kind.rows)))


def expired_column(rows: pa.RecordBatch, kind: StoreKind, stream_time: int, retention: int) -> pa.Array:
    """Which decoded rows Kafka does not show at a stream time; both times are milliseconds.

    Rows of a versioned store have ``valid_to``: a version is out of reach once it ended before the history retention.
    """
    if kind.has_past:
        ends = rows.column("valid_to")
        times = ends.cast(pa.int64()).fill_null(0).to_numpy() // 1000
        is_open = ends.is_null().to_numpy(zero_copy_only=False)
        return pa.array(~is_reachable(times, is_open, stream_time, retention))
    return pa.array(~is_visible(kind.rows, segment_times_of(rows), stream_time, retention))


def without_expired(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that Kafka shows, by the column."""
    return rows.filter(pc.invert(rows.column(EXPIRED))) if EXPIRED in rows.schema.names else rows


def segment_times_of(rows: pa.RecordBatch) -> Ints:
    """The time of each decoded row that decides about its segment (milliseconds): a session's end, a window's start."""
    name = "session_end" if "session_end" in rows.schema.names else "window_start"
    times: Ints = rows.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False) // 1000
    return times.astype(np.int64)

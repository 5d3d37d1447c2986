"""The stored rows that Kafka Streams would still show, and why not the others.

A store deletes whole segments, and judges reads by the millisecond (KAFKA-12960). So rows are on disk that the running
store would not show. The boundary depends on the observed stream time of the partition: the greatest time that the
store has seen. It is not stored. The greatest time in the rows is the best reconstruction, and never too great: a
record that was deleted, refused or dropped with its segment may have had a greater one. After a restart, Kafka itself
starts again from -1.

    window                rows with  start >= stream time - retention + 1
    time-ordered window   rows with  start >= stream time - retention
    session, both         rows with  end   >= stream time - retention + 1
    versioned             versions with  valid_to > stream time - retention, and the newest of each key

(``AbstractRocksDBSegmentedBytesStore``, ``AbstractRocksDBTimeOrderedSegmentedBytesStore``, ``RocksDBVersionedStore``.)
All times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kafka.columns.store_form import StoreKind
from statestore.formats.kernels.arrays import Bools, Ints

NOTHING_SEEN = -1
"""The stream time of a store that has seen no record."""
_AT: dict[str, tuple[int, int]] = {
    "window": (-12, 12),
    "time-ordered window": (1, 13),
    "session": (-16, 16),
    "time-ordered session": (1, 17),
}
"""Position of the segment time in a row key, and the least size of a row key."""


def has_stream_time(form: str) -> bool:
    """Return whether stores with row keys of this form hide rows by stream time."""
    return form in _AT or form == "versioned"


def segment_times(form: str, rows: pa.RecordBatch) -> Ints:
    """The time of each stored row (key, value) that decides about its segment: start of a window, end of a session.

    ``form`` is the form of the row keys. Of time-ordered forms, the caller has left out index rows. Raises CorruptError
    KAFKA_BYTES for a key that is too short, KeyError for another form.
    """
    at, least = _AT[form]
    cells = cells_of(rows.column(0))
    return _numbers(cells, at, least, Origin("key", rows.column(0)), f"a {form} key of at least {least} bytes")


def observed_stream_time(form: str, batches: Iterable[pa.RecordBatch]) -> int:
    """The greatest time in stored rows (key, value) of one store partition; -1 where there is none.

    For a versioned store these are the start of a latest version and the end of a row of history. The real stream time
    is at least as great. Raises as `segment_times`.
    """
    return max((_greatest(form, rows) for rows in batches if rows.num_rows), default=NOTHING_SEEN)


def _greatest(form: str, rows: pa.RecordBatch) -> int:
    if form == "versioned":  # latest rows begin with valid_from, history rows with the end of their newest version
        origin = Origin("value", rows.column(0))
        return int(_numbers(cells_of(rows.column(1)), 0, 8, origin, "a version of at least 8 bytes").max())
    return int(segment_times(form, rows).max())


def _numbers(cells: Cells, at: int, least: int, origin: Origin, expected: str) -> Ints:
    origin.refuse(cells, cells.size < least, expected, "choose another kind of store")
    found: Ints = cells.numbers(at, ">i8")
    return found


def least_visible(form: str, stream_time: int, retention: int) -> int:
    """The least segment time that reads show at a stream time, with the retention in milliseconds."""
    return stream_time - retention + (0 if form == "time-ordered window" else 1)


def is_visible(form: str, times: Ints, stream_time: int, retention: int) -> Bools:
    """Return for each segment time whether Kafka shows its row, with the retention in milliseconds."""
    return times >= least_visible(form, stream_time, retention)


def is_reachable(valid_to: Ints, is_open: Bools, stream_time: int, retention: int) -> Bools:
    """Return for each version of a versioned store whether ``get(key)`` or some ``get(key, asOf)`` answers it.

    ``is_open`` is true for the newest version of a key, whose ``valid_to`` is not used. ``retention`` is the history
    retention in milliseconds. A version may be older than the retention; its end is what counts.
    """
    return is_open | (valid_to > stream_time - retention)


def reason(form: str, time: int, stream_time: int, retention: int) -> str | None:
    """A sentence about why Kafka does not show a row of this segment time; None: it does.

    For a versioned store, ``time`` is the version's end.
    """
    if form == "versioned":
        shown = bool(is_reachable(np.array([time]), np.array([False]), stream_time, retention)[0])
        what, least = "the version ended", stream_time - retention + 1
    else:
        shown = bool(is_visible(form, np.array([time]), stream_time, retention)[0])
        what = "the session ended" if form.endswith("session") else "the window starts"
        least = least_visible(form, stream_time, retention)
    if shown:
        return None
    return (
        f"expired: {what} at {time}, and at stream time {stream_time} a retention of {retention} ms begins at {least}"
    )


# The column that marks rows which Kafka no longer shows, though files or the changelog still hold them.
#
# It is there where the retention is given, for kinds that judge rows by stream time. See ``stores/visibility``.


EXPIRED = "expired"


def marks_expired(kind: StoreKind, retention: int | None) -> bool:
    """Return whether rows of a kind have the column, with the retention in milliseconds."""
    return retention is not None and (kind.has_past or (kind.segmented and has_stream_time(kind.rows)))


def expired_column(rows: pa.RecordBatch, kind: StoreKind, stream_time: int, retention: int) -> pa.Array:
    """Return which decoded rows Kafka does not show at a stream time; both times are milliseconds.

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

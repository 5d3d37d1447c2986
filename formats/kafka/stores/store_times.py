"""Times of a store partition that no file states: observed stream time, and where its past begins.

Both come from the rows on disk. See `visibility` for what they mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.kafka.columns.store_form import StoreKind
from statestore.formats.kafka.directory.applications import StorePartition
from statestore.formats.kafka.directory.database_copies import opened_copy
from statestore.formats.kafka.stores.key_bounds import MAX_TIME, time_range
from statestore.formats.kafka.stores.store_rows import StoredRows, read_database
from statestore.formats.kafka.stores.versioned_streams import find_segments
from statestore.formats.kafka.stores.visibility import NOTHING_SEEN, observed_stream_time
from statestore.formats.kafka_rows.byte_reader import corrupt
from statestore.formats.kafka_rows.versioned_store import TIME
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.folder import Folder
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.rocksdb.opened_families import Family, opened_family, rows_in
from statestore.formats.rocksdb.rows import BATCH_ROWS, DEFAULT_FAMILY


def stream_time_of(application: Folder, kind: StoreKind, partition: StorePartition) -> int:
    """The greatest segment time in a segmented store partition, in epoch milliseconds; -1 where there are no rows.

    Segments are in the order of their times, so few of them are read. Raises as `read_database`.
    """
    ranges = [time_range(kind.rows, -MAX_TIME - 1, MAX_TIME)]
    for database in reversed(partition.databases):
        with opened_copy(application.at(*database.path.split("/"))) as copy:
            batches = read_database(copy, _rows, families=kind.families, key_ranges=ranges)
            time = observed_stream_time(kind.rows, batches)
        if time != NOTHING_SEEN:
            return time
    return NOTHING_SEEN


def past_begins(database: Folder, retention: int | None) -> int | None:
    """The first moment (epoch milliseconds) from which on no version of a versioned store can be missing.

    With the history ``retention`` in milliseconds, these are versions that end later than stream time less retention.
    Without it, nothing on disk proves that a version is not missing: after a restart, Kafka drops segments that it
    writes to and forgets older ones, so the oldest segment may lie before a gap. Then only the newest moment is known.
    None: the store has no rows.
    """
    with opened_copy(database) as copy, opened_family(copy, DEFAULT_FAMILY) as table:
        segments = find_segments(table, database.path)
        if not segments:
            return None
        return _newest(table, segments, database.path) - (retention or 0)


def has_versions(database: Folder) -> bool:
    """Return whether a versioned store has a row."""
    with opened_copy(database) as copy, opened_family(copy, DEFAULT_FAMILY) as table:
        return next(rows_in(table, KeyRange(), 1), None) is not None


def stream_time_of_versions(database: Folder) -> int | None:
    """The greatest time in the rows of a versioned store (epoch milliseconds); None: it has no row."""
    with opened_copy(database) as copy, opened_family(copy, DEFAULT_FAMILY) as table:
        segments = find_segments(table, database.path)
        return _newest(table, segments, database.path) if segments else None


def _newest(table: Family, segments: Sequence[int], where: str) -> int:
    return max(int(times.max()) for each in segments for times in _first_fields(table, each, where) if len(times))


def _first_fields(table: Family, segment: int, where: str) -> Iterator[Ints]:
    """The first number in each value of a segment: the end of a row of history, the start of a latest version."""
    prefix = TIME.pack(segment)
    for batch in rows_in(table, KeyRange(prefix, successor(prefix)), BATCH_ROWS):
        values = cells_of(batch.column(1))
        if len(values) and values.size.min() < TIME.size:
            raise corrupt(
                f"versioned row in {where}", f"found a value of {int(values.size.min())} bytes, expected 8 or more"
            )
        yield values.numbers(0, ">i8")


def _rows(stored: StoredRows) -> pa.RecordBatch:
    return stored.rows

"""Rows of a versioned store with all rows of a key side by side.

The rows of a key are spread over the logical segments of the database: row keys are ``segment id:int64 | key``, and
segment -1 has the latest value (``RocksDBVersionedStore``). Each segment is sorted by key, so they are read side by
side, and a batch holds all rows of each of its keys. That is what a decoder needs to resolve overlaps between rows.

The running store keeps its list of segments in memory only, so it is found by seeking from prefix to prefix. Rows of
segments that expired while the application was down are still there, and are read, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.kafka.stores.family_merge import Held, aligned
from statestore.formats.kafka.stores.key_bounds import disjoint_ranges
from statestore.formats.kafka_rows.versioned_store import LATEST_SEGMENT, TIME
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.rocksdb.opened_families import Family, opened_family, rows_in
from statestore.formats.rocksdb.rows import BATCH_ROWS, DEFAULT_FAMILY, ROW_SCHEMA

MOST_SEGMENTS = 10_000
_LEAST_ROWS = 256


def read_versioned(
    directory: Path,
    *,
    key_ranges: Sequence[tuple[bytes | None, bytes | None]] = ((None, None),),
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows (key: binary with the segment id in front, value: binary) of a versioned store.

    ``directory`` is a private copy of its database. ``key_ranges`` are ranges [from, to) of encoded keys without the
    segment id; where they overlap, they are one. All rows of a key are in one batch, those of a segment in key order. A
    batch has about ``batch_rows`` rows; memory holds as many again.

    Raises CorruptError ROCKSDB_FILE, CorruptError KAFKA_BYTES for a database that is not that of a versioned store.
    """
    with opened_family(directory, DEFAULT_FAMILY) as table:
        segments = find_segments(table, str(directory))
        pending: list[pa.RecordBatch] = []
        count = 0
        for within in disjoint_ranges([KeyRange(first, stop) for first, stop in key_ranges]):
            for span in _spans(table, segments, within, batch_rows):
                pending += span
                count += sum(rows.num_rows for rows in span)
                if count >= batch_rows:
                    yield _joined(pending)
                    pending, count = [], 0
        if pending:
            yield _joined(pending)


def segments_of(directory: Path) -> list[int]:
    """The segment ids of a versioned store, -1 (latest values) last. Raises as `read_versioned`."""
    with opened_family(directory, DEFAULT_FAMILY) as table:
        return find_segments(table, str(directory))


def find_segments(table: Family, where: str) -> list[int]:
    """The segment ids of an opened versioned store, -1 last. Raises as `read_versioned`."""
    found: list[int] = []
    at = b""
    while True:
        batch = next(rows_in(table, KeyRange(at, None), 1), None)
        if batch is None:
            return found
        key: bytes = batch.column(0)[0].as_py()
        if len(key) < TIME.size or len(found) == MOST_SEGMENTS:
            raise _not_versioned(where, f"row key {key[:24].hex()} of {len(key)} bytes behind {len(found)} segments")
        (segment,) = TIME.unpack_from(key)
        if segment < LATEST_SEGMENT:
            raise _not_versioned(where, f"segment id {segment}")
        found.append(segment)
        behind = successor(key[: TIME.size])
        if behind is None:
            return found
        at = behind


def _spans(table: Family, segments: Sequence[int], within: KeyRange, batch_rows: int) -> Iterator[list[pa.RecordBatch]]:
    each = max(_LEAST_ROWS, batch_rows // max(1, len(segments)))
    ranges = [_range(segment, within.first, within.stop) for segment in segments]
    scans = [rows_in(table, segment_range, each) for segment_range in ranges]
    for span in aligned([Held(scan, TIME.size) for scan in scans]):
        yield [rows for rows in span if rows is not None]


def _range(segment: int, first: bytes | None, stop: bytes | None) -> KeyRange:
    prefix = TIME.pack(segment)
    return KeyRange(prefix + (first or b""), successor(prefix) if stop is None else prefix + stop)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (joined,) = pa.Table.from_batches(batches, ROW_SCHEMA).combine_chunks().to_batches()
    return joined


def _not_versioned(where: str, found: str) -> CorruptError:
    return CorruptError(
        ErrorCode.KAFKA_BYTES,
        f"{where}: found {found}, expected rows of a versioned store (segment id:int64 | key); choose another kind of "
        "store",
    )

"""Rows of RocksDB directories through the scanner alone: a test that calls it cannot pass by the fallback."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from statestore.formats.errors import CorruptError
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rocksdb_errors import Unreadable
from statestore.formats.rocksdb.table_scan import plan_scan, scan_ranges

REFUSALS = (CorruptError, Unreadable)
Rows = list[tuple[bytes, bytes]]


def pairs(batch: pa.RecordBatch) -> Rows:
    batch.validate(full=True)
    return list(zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True))


def scanned(
    directory: Path,
    family: str = "default",
    within: KeyRange = KeyRange(),  # noqa: B008 (frozen)
    *,
    range_bytes: int | None = None,
    threads: int = 1,
    delimiter: bytes | None = None,
    batch_rows: int = 65536,
) -> Rows:
    """The rows in the order of the scan. Raises the scanner's errors, `Unreadable` included."""
    plan = plan_scan(directory, family, within, range_bytes=range_bytes)
    found: Rows = []
    for _, batches in scan_ranges(plan, pairs, delimiter=delimiter, batch_rows=batch_rows, threads=threads):
        for rows in batches:
            assert 0 < len(rows) <= batch_rows
            found += rows
    return found


def outcome(
    directory: Path,
    within: KeyRange = KeyRange(),  # noqa: B008 (frozen)
    *,
    range_bytes: int | None = None,
) -> Rows | None:
    """The rows; None: refused. Any other exception is a failure of the test."""
    try:
        return scanned(directory, within=within, delimiter=b",", range_bytes=range_bytes)
    except REFUSALS:
        return None

"""Scan of a column family's rows straight from its table files: newest version wins, in key order, range by range."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from statestore.formats.places.reading_threads import in_order
from statestore.formats.rocksdb.key_ranges import KeyRange, cut_ranges
from statestore.formats.rocksdb.manifest import TableEntry, read_families
from statestore.formats.rocksdb.range_read import Buffers, Run, read_range
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt
from statestore.formats.rocksdb.table_file import TableFile, open_table

RANGE_BYTES, RANGE_PLAIN, RANGE_ENTRIES = 2 << 20, 16 << 20, 60_000
"""Bounds of a range: bytes of raw blocks, and about the bytes of its plain keys and values, and its entries.

A range and everything computed from it should stay in a processor's cache and become one batch.
"""
T = TypeVar("T")


@dataclass(frozen=True)
class TableScan:
    """A planned scan. Holds no open files."""

    runs: tuple[Run, ...]
    within: KeyRange
    ranges: tuple[KeyRange, ...]


def plan_scan(directory: Path, family: str, within: KeyRange, *, range_bytes: int | None = None) -> TableScan:
    """Plan a scan in ranges of ``range_bytes`` of raw blocks.

    Raises CorruptError ROCKSDB_FILE, and `Unreadable` for a directory that RocksDB itself should read.
    """
    return plan_of(table_runs(directory, family), within, range_bytes=range_bytes)


def table_runs(directory: Path, family: str) -> tuple[Run, ...]:
    """Return the table files of a family, with their indexes. Raises as `plan_scan`."""
    families = read_families(directory)
    if family not in families:
        raise Unreadable(f"{directory} has no column family {family!r}")
    files = families[family].files
    return runs_of([(entry, opened(path_of(directory, entry), entry)) for entry in files])


def path_of(directory: Path, entry: TableEntry) -> Path:
    """Return the file that an entry's name leads to; two directories with links to one file share it."""
    return Path(os.path.realpath(directory / entry.name))


def opened(path: Path, entry: TableEntry) -> TableFile:
    """Return a table file with its index. Raises as `plan_scan`."""
    return open_table(path, entry.size, entry.smallest)


def runs_of(files: Sequence[tuple[TableEntry, TableFile]]) -> tuple[Run, ...]:
    """Return the files of a directory, or some of them, as runs; they are in the order of the MANIFEST."""
    runs: dict[tuple[int, int], list[TableFile]] = {}
    for entry, table in files:
        runs.setdefault((entry.level, entry.number if entry.level == 0 else 0), []).append(table)
    return tuple(map(tuple, runs.values()))


def plan_of(runs: tuple[Run, ...], within: KeyRange, *, range_bytes: int | None = None) -> TableScan:
    """Plan a scan of table files as `plan_scan` does."""
    tables = [table for run in runs for table in run]
    target = range_bytes_of(tables) if range_bytes is None else range_bytes
    ranges = () if within.empty else tuple(cut_ranges(tables, within, target))
    return TableScan(runs, within, ranges)


def range_bytes_of(tables: Sequence[TableFile]) -> int:
    """Return the bytes of raw blocks of a range."""
    entries, size = sum(table.entries for table in tables), sum(int(table.size.sum()) for table in tables)
    plain = sum(table.plain for table in tables)
    return max(1, min(RANGE_BYTES, RANGE_ENTRIES * size // max(entries, 1), RANGE_PLAIN * size // max(plain, 1)))


def scan_ranges(
    scan: TableScan,
    each: Callable[[pa.RecordBatch], T],
    *,
    delimiter: bytes | None,
    batch_rows: int,
    threads: int = 1,
) -> Iterator[tuple[KeyRange, list[T]]]:
    """Scan one range after another with ``each`` applied to its batches; each range is read whole.

    Raises as `plan_scan`. Rows that were yielded before an error are right.
    """
    own = threading.local()

    def read(within: KeyRange) -> tuple[int, list[T]]:
        if not hasattr(own, "buffers"):
            own.buffers = Buffers()
        rows = read_range(scan.runs, within, delimiter, batch_rows, own.buffers)
        return rows.entries, [each(batch) for batch in rows.batches]

    found = 0
    for within, (entries, rows) in zip(scan.ranges, in_order(read, scan.ranges, threads), strict=True):
        found += entries
        yield within, rows
    expected = sum(table.entries for run in scan.runs for table in run)
    if scan.within == KeyRange() and found != expected:
        paths = ", ".join(table.path for run in scan.runs for table in run)
        raise corrupt(paths, f"found {found} entries, expected {expected}")

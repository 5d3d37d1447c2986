"""The rows that table files say alone, without the older files of their database.

A database only gains files that nobody removes as long as it compacts none that it had. All entries of the files that
it has gained are then newer than those of all others. A key of theirs has the value of its newest entry, or none where
that deletes it. Where it has operands alone, these are added to what older files have.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.rocksdb.key_ranges import KeyRange, cut_ranges
from statestore.formats.rocksdb.manifest import TableEntry
from statestore.formats.rocksdb.plain_tables import opened_files
from statestore.formats.rocksdb.rocksdb_errors import Unreadable
from statestore.formats.rocksdb.rows import BATCH_ROWS, ROW_SCHEMA
from statestore.formats.rocksdb.scan import wants_scanner

if TYPE_CHECKING:
    from statestore.formats.rocksdb.range_read import Buffers, Run  # imports numba

T = TypeVar("T")
_DELETES = (0, 7)  # a deletion, and one of a key that was put once


@dataclass(frozen=True)
class WrittenEntries:
    """Rows by key: those that are put, those of operands that are added to a value, and the keys that are deleted."""

    put: pa.RecordBatch
    added: pa.RecordBatch
    deleted: pa.BinaryArray


def written_entries(
    directory: Path,
    files: Sequence[TableEntry],
    each: Callable[[WrittenEntries], T],
    *,
    within: KeyRange,
    delimiter: bytes,
) -> Iterator[T]:
    """Yield ``each`` of what some table files of a column family say, in key order; no key is in two of them.

    ``files`` are in the order of the MANIFEST, and others of the directory small; ``delimiter`` stands between merged
    values. Raises CorruptError ROCKSDB_FILE, and `Unreadable` for files with deletions of ranges or of other forms that
    are not read.
    """
    left = within
    if wants_scanner(directory):
        for done, found in _scanned(directory, files, each, within, delimiter):
            yield from found
            left = KeyRange(done.stop, within.stop)
            if done.stop == within.stop:
                return
    with opened_files(directory, files, delimiter) as family:
        merged = family.merged(left)
        while entries := list(islice(merged, BATCH_ROWS)):
            yield each(_told_apart(entries))


def _told_apart(entries: Sequence[tuple[bytes, bytes | None, bool]]) -> WrittenEntries:
    keys = pa.array([key for key, _, _ in entries], pa.binary())
    values = pa.array([value for _, value, _ in entries], pa.binary())
    added = pa.array([alone for _, _, alone in entries], pa.bool_())
    rows = pa.RecordBatch.from_arrays([keys, values], schema=ROW_SCHEMA)
    is_put = pc.and_(pc.is_valid(values), pc.invert(added))
    return WrittenEntries(rows.filter(is_put), rows.filter(added), keys.filter(pc.is_null(values)))


def _scanned(
    directory: Path,
    files: Sequence[TableEntry],
    each: Callable[[WrittenEntries], T],
    within: KeyRange,
    delimiter: bytes,
) -> Iterator[tuple[KeyRange, list[T]]]:
    """Yield range after range, as far as compiled loops read the files."""
    try:
        from statestore.formats.rocksdb.range_read import Buffers
        from statestore.formats.rocksdb.table_scan import opened, path_of, range_bytes_of, runs_of
    except ImportError:
        return
    try:
        runs = runs_of([(file, opened(path_of(directory, file), file)) for file in files])
    except Unreadable:
        return
    own = threading.local()

    def read(piece: KeyRange) -> list[T]:
        if not hasattr(own, "buffers"):
            own.buffers = Buffers()
        found = _of_range(runs, piece, delimiter, own.buffers)
        return [] if found is None else [each(found)]

    tables = [table for run in runs for table in run]
    pieces = cut_ranges(tables, within, range_bytes_of(tables))
    try:
        yield from zip(pieces, in_order(read, pieces, reading_threads()), strict=True)
    except Unreadable:
        return


def _of_range(runs: Sequence[Run], within: KeyRange, delimiter: bytes, buffers: Buffers) -> WrittenEntries | None:
    from statestore.formats.kernels.block_kernels import PUT
    from statestore.formats.rocksdb.differing_ranges import parsed_blocks
    from statestore.formats.rocksdb.key_ranges import blocks_of
    from statestore.formats.rocksdb.range_read import Filled, batches_of, merge_entries

    plan = [[(table, np.arange(*blocks_of(table, within))) for table in run] for run in runs]
    spans = parsed_blocks(plan, within, buffers, Filled())
    if not any(first < stop for first, stop in spans):
        return None
    first, stop = (np.array([span[edge] for span in spans], np.int64) for edge in (0, 1))
    entries = np.concatenate([np.arange(*span) for span in spans])
    kinds = (buffers.tag[entries] & np.uint64(0xFF)).astype(np.uint8)
    gone = entries[np.isin(kinds, _DELETES)]
    start = buffers.key_start[gone]
    deleted = Cells(buffers.keys, start, buffers.key_start[gone + 1] - start - 8).copied()
    count = merge_entries(buffers, first, stop, delimiter, runs, buffers.piece, buffers.row_end)
    if not count:
        rows = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in ROW_SCHEMA], schema=ROW_SCHEMA)
        return WrittenEntries(rows, rows, deleted.unique())
    found = list(batches_of(buffers, count, delimiter, count, buffers.piece, buffers.row_end))
    rows = found[0] if len(found) == 1 else pa.concat_batches(found)
    # Pieces of a row go from old to new, and a value that was put is the first.
    begin = np.concatenate([[0], buffers.row_end[: count - 1]])
    is_put = pa.array(buffers.tag[buffers.piece[begin]] & np.uint64(0xFF) == PUT)
    # Operands behind a deletion are all of a value.
    whole = pc.or_(is_put, pc.is_in(rows.column(0), deleted))
    removed = deleted.filter(pc.invert(pc.is_in(deleted, rows.column(0)))).unique()
    return WrittenEntries(rows.filter(whole), rows.filter(pc.invert(whole)), removed)

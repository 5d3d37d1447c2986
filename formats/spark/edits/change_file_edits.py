"""Deltas, snapshots and changelogs with an edit in them, under the names that they had.

Records of keys that are edited are left out, and those of the edit follow the others. So Spark, which takes the newest
record of a key, loads the edited rows, and the file has nothing of what was erased. All that stands before the records
of a changelog, its version and its lineage, stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of, ends_of
from statestore.formats.bytes.crc32c import crc32c_of_cells
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.places.folder import Folder
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.edits.stored_edits import PartitionEdit
from statestore.formats.spark.providers.change_files import changelog_head, plain_bytes
from statestore.formats.spark.providers.file_records import DELETE, PUT, Changes, read_records
from statestore.formats.spark.providers.stored_rows import bare_deletions
from statestore.formats.spark.rows.row_encoding import CHECKSUM_BYTES
from statestore.formats.values.without_pandas import bools

_SIZE = 4
_NO_VALUE = b"\xff\xff\xff\xff"
_END, _TYPED_END = _NO_VALUE, b"\0"
_WITH_TYPES = (2, 4)  # versions of changelogs
_ROWS = 1 << 16  # of which the records are made at a time


def edited_pieces(folder: Folder, file: DataFile, edit: PartitionEdit, checksums: bool) -> Iterator[bytes]:
    """Yield the plain bytes of a delta, snapshot or changelog with an edit. ``checksums``: rows have them.

    Raises CorruptError SPARK_STATE_FILE or SPARK_STATE_ROW, NotFoundError SPARK_STATE_NOT_FOUND.
    """
    path = folder.at(file.name).path
    version, head, pieces = 1, b"", plain_bytes(folder, file)
    if file.kind == "changelog":
        version, head, pieces = changelog_head(pieces, path)
    typed, edited = version in _WITH_TYPES, edit.keys
    yield head
    for changes in read_records(pieces, path, typed=typed):
        yield from _kept(changes, edited, typed, checksums)
    if file.kind == "snapshot":
        edit = replace(edit, erased=edit.erased[:0])
    yield from new_records(edit, typed, checksums)


def new_records(edit: PartitionEdit, typed: bool, checksums: bool) -> Iterator[bytes]:
    """Yield the records of an edit, and the end mark. ``typed``: records say what they are, as with families."""
    yield from _records(PUT, cells_of(edit.put.column(0)), cells_of(edit.put.column(1)), typed)
    erased = cells_of(edit.erased)
    yield from _records(DELETE, _with_checksums(erased) if checksums else erased, None, typed)
    yield _TYPED_END if typed else _END


def snapshot_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the plain bytes of a snapshot of rows (key, value), each key once."""
    for batch in batches:
        yield from _records(PUT, cells_of(batch.column(0)), cells_of(batch.column(1)), False)
    yield _END


def _kept(changes: Changes, edited: pa.BinaryArray, typed: bool, checksums: bool) -> Iterator[bytes]:
    """Yield the bytes of the records whose keys are not edited, in runs."""
    keys = (bare_deletions(changes) if checksums else changes).keys.copied(corrupt_row)
    left_out = bools(pc.is_in(keys, value_set=edited))
    start = changes.keys.start - (_SIZE + typed)
    end = changes.values.start + changes.values.size
    edges = np.flatnonzero(np.diff(np.concatenate([[True], left_out, [True]]).astype(np.int8)))
    for first, stop in edges.reshape(-1, 2).tolist():
        yield changes.keys.data[start[first] : end[stop - 1]].tobytes()


def _with_checksums(keys: Cells) -> Cells:
    """The keys of deletions with the checksums before them."""
    found = crc32c_of_cells(keys).astype("<u4").view(np.uint8).reshape(-1, CHECKSUM_BYTES)
    start = ends_of(keys.size + CHECKSUM_BYTES)
    data = np.zeros(int(start[-1]), np.uint8)
    data[start[:-1, None] + np.arange(CHECKSUM_BYTES)] = found
    _place(data, keys, start[:-1] + CHECKSUM_BYTES)
    return Cells(data, start[:-1], np.diff(start))


def _records(kind: int, keys: Cells, values: Cells | None, typed: bool) -> Iterator[bytes]:
    """Yield the records of puts, or of deletions without values."""
    for at in range(0, len(keys), _ROWS):
        rows = slice(at, at + _ROWS)
        yield _records_of(kind, keys.select(rows), None if values is None else values.select(rows), typed)


def _records_of(kind: int, keys: Cells, values: Cells | None, typed: bool) -> bytes:
    front = int(typed)
    value_bytes = np.zeros(len(keys), np.int64) if values is None else values.size
    start = ends_of(front + _SIZE + keys.size + _SIZE + value_bytes)
    at = start[:-1]
    data = np.zeros(int(start[-1]), np.uint8)
    if values is not None and is_loaded():
        from statestore.formats.kernels.change_kernels import join_records

        columns = keys.data, keys.start, keys.size, values.data, values.start, values.size
        if not join_records(*columns, kind if typed else -1, data):
            raise corrupt_row("found a key or a value outside of the bytes that were read")
        return data.tobytes()
    if typed:
        data[at] = kind
    _place_sizes(data, at + front, keys.size)
    _place(data, keys, at + front + _SIZE)
    behind = at + front + _SIZE + keys.size
    if values is None:
        data[behind[:, None] + np.arange(_SIZE)] = np.frombuffer(_NO_VALUE, np.uint8)
    else:
        _place_sizes(data, behind, values.size)
        _place(data, values, behind + _SIZE)
    return data.tobytes()


def _place_sizes(data: Bytes, at: Ints, sizes: Ints) -> None:
    found: npt.NDArray[np.uint8] = sizes.astype(">i4").view(np.uint8).reshape(-1, _SIZE)
    data[at[:, None] + np.arange(_SIZE)] = found


def _place(data: Bytes, cells: Cells, at: Ints) -> None:
    """Copy cells to places in the data."""
    content, offsets = cells.content()
    data[np.repeat(at - offsets[:-1], cells.size) + np.arange(offsets[-1])] = content

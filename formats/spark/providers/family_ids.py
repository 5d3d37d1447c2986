"""Conversion of stored rows to another id of their column family.

Keys of a family begin with its id, and checksums of rows cover it, too. When Spark repartitions a state, families get
new ids. Rows from before and after can be compared once those of one side have the ids of the other.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of, gather
from statestore.formats.kernels.arrays import Ints
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.providers.file_records import Changes
from statestore.formats.spark.providers.rocksdb_provider import family_prefix
from statestore.formats.spark.rows.row_checksum import CHECKSUM_BYTES, crc32c, verify_checksums
from statestore.formats.spark.rows.row_encoding import split_values

_SIZE_BYTES = 4


def rows_of_family(rows: pa.RecordBatch, family_id: int, delimiter: bytes | None) -> pa.RecordBatch:
    """Replace the id in front of the keys of rows (key, value).

    ``delimiter`` is that of merged values if rows have checksums, else None. Raises CorruptError SPARK_STATE_ROW.
    """
    keys, values = _renamed(cells_of(rows.column(0)), cells_of(rows.column(1)), family_id, delimiter)
    return pa.RecordBatch.from_arrays([keys.copied(corrupt_row), values.copied(corrupt_row)], schema=ROW_SCHEMA)


def changes_of_family(changes: Changes, family_id: int, delimiter: bytes | None) -> Changes:
    """Replace the id in front of the keys of changes.

    Deletions have no values, and their checksums are already removed.
    """
    return Changes(changes.kind, *_renamed(changes.keys, changes.values, family_id, delimiter))


def _renamed(keys: Cells, values: Cells, family_id: int, delimiter: bytes | None) -> tuple[Cells, Cells]:
    data = keys.data.copy()
    for index, byte in enumerate(family_prefix(family_id)):
        data[keys.start + index] = byte
    renamed = Cells(data, keys.start, keys.size)
    return renamed, values if delimiter is None else _checked_again(keys, renamed, values, delimiter)


def _checked_again(keys: Cells, renamed: Cells, values: Cells, delimiter: bytes) -> Cells:
    """Values with their checksums recomputed for other keys."""
    counts, rows = split_values(values, delimiter, front=CHECKSUM_BYTES)
    owners = np.repeat(np.arange(len(values)), counts)
    positions: Ints = rows.start - (_SIZE_BYTES + CHECKSUM_BYTES)
    verify_checksums(gather(rows.data, positions, "<u4"), keys.select(owners), rows)
    found = crc32c(rows, crc32c(renamed.select(owners))).astype("<u4")
    data = values.data.copy()
    data[positions[:, None] + np.arange(CHECKSUM_BYTES)] = found.view(np.uint8).reshape(-1, CHECKSUM_BYTES)
    return Cells(data, values.start, values.size)

"""Rows just as they are stored: the bytes of keys and of values."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.state_errors import corrupt_row


@dataclass(frozen=True)
class StoredRows:
    """Some rows. Bytes are copied only where a batch is asked for of rows that were not read as one."""

    keys: Cells
    values: Cells
    _batch: pa.RecordBatch | None = None

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows (key: binary, value: binary)."""
        if self._batch is not None:
            return self._batch
        return pa.RecordBatch.from_arrays(
            [self.keys.copied(corrupt_row), self.values.copied(corrupt_row)], schema=ROW_SCHEMA
        )


def rows_in(batch: pa.RecordBatch) -> StoredRows:
    """The rows of a batch (key, value)."""
    return StoredRows(cells_of(batch.column(0)), cells_of(batch.column(1)), batch)

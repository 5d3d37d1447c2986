"""Rows just as they are stored: the bytes of keys and of values."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.rows.byte_spans import Spans, binary_of, spans_of


@dataclass(frozen=True)
class StoredRows:
    """Some rows. Bytes are copied only where a batch is asked for of rows that were not read as one."""

    keys: Spans
    values: Spans
    _batch: pa.RecordBatch | None = None

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows (key: binary, value: binary)."""
        if self._batch is not None:
            return self._batch
        return pa.RecordBatch.from_arrays([binary_of(self.keys), binary_of(self.values)], schema=ROW_SCHEMA)


def rows_in(batch: pa.RecordBatch) -> StoredRows:
    """The rows of a batch (key, value)."""
    return StoredRows(spans_of(batch.column(0)), spans_of(batch.column(1)), batch)

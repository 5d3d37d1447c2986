"""Rows that functions emit: checked, written as Arrow files of the store, and read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from statestore.catalog.keyed.snapshots.snapshot_part import EMITTED
from statestore.catalog.keyed.snapshots.stored_files import opened, store_batches
from statestore.catalog.log.storage import Storage
from statestore.formats.segments.ipc_file import open_file, verify_column
from statestore.formats.segments.segment_meta import FileRef
from statestore.formats.values.key_codec import Row, ValueCodec
from statestore.formats.values.types import conform

BATCH_ROWS = 10_000


def rows_of(answer: Any) -> Iterable[Any]:
    """The rows in the result of a function: a dict, tuple or text is one row, a RecordBatch or Table many, None
    none."""
    if answer is None:
        return ()
    if isinstance(answer, pa.Table):
        batches: list[pa.RecordBatch] = answer.to_batches()
        return batches
    if isinstance(answer, Mapping | tuple | str | bytes | pa.RecordBatch):
        return (answer,)
    rows: Iterable[Any] = answer
    return rows


def checked_row(codec: ValueCodec, row: Any) -> Row | pa.RecordBatch:
    """A row that a function emits, or many rows as a RecordBatch. InvalidInputError WRONG_VALUE or WRONG_SCHEMA."""
    return conform(row, codec.schema) if isinstance(row, pa.RecordBatch) else codec.normalize(row)


def batches_of(codec: ValueCodec, rows: Iterable[Row | pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Checked rows as batches of the codec's schema, in their order."""
    collected: list[Row] = []
    for row in rows:
        if isinstance(row, tuple):
            collected.append(row)
            if len(collected) < BATCH_ROWS:
                continue
        if collected:
            yield _batch(codec, collected)
            collected = []
        if not isinstance(row, tuple):
            yield row
    if collected:
        yield _batch(codec, collected)


def write_emitted(storage: Storage, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> FileRef | None:
    """Write batches to a file as they arrive; None if there are none."""
    return store_batches(storage, EMITTED, schema, batches)


def read_emitted(storage: Storage, file: FileRef) -> Iterator[pa.RecordBatch]:
    """The batches of a file. Raises NotFoundError SNAPSHOT_FILE_MISSING, CorruptError SEGMENT_CORRUPT."""
    with opened(storage, file) as verified:
        for batch in open_file(verified)[1]:
            columns = [verify_column(verified, batch, index) for index in range(batch.num_columns)]
            yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _batch(codec: ValueCodec, rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(codec.to_columns(rows), schema=codec.schema)

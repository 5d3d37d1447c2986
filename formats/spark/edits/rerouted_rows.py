"""Rows on their way from some partitions to others, in a private folder while they are many.

Rows come in any order, each with the number of the partition to which it goes, and leave partition by partition. Some
megabytes are held in memory. What is more is written to one file, in runs that are ordered by partition.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.state_errors import corrupt_row

HELD_BYTES = 64 << 20


class ReroutedRows:
    """Rows by partition. Call `add` for all, then `of` for each partition; a context manager that removes the file."""

    def __init__(self, directory: Path, held_bytes: int | None = None) -> None:
        self._path = directory / "rows.arrow"
        self._held_bytes = HELD_BYTES if held_bytes is None else held_bytes
        self._held: dict[int, list[pa.RecordBatch]] = {}
        self._bytes = 0
        self._written: dict[int, list[int]] = {}
        self._batches = 0
        self._writer: pa.RecordBatchFileWriter | None = None
        self._reader: pa.RecordBatchFileReader | None = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> ReroutedRows:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def add(self, partition: Ints, keys: Cells, values: Cells) -> None:
        """Take rows, each for its partition. Raises StorageError, CorruptError for more than 2 GiB at once."""
        if not len(partition):
            return
        order = np.argsort(partition, kind="stable")
        columns = [cells.select(order).copied(corrupt_row) for cells in (keys, values)]
        batch = pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)
        numbers, starts = np.unique(partition[order], return_index=True)
        ends = [*starts.tolist()[1:], len(order)]
        for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            self._held.setdefault(number, []).append(batch.slice(start, end - start))
        self._bytes += batch.nbytes
        if self._bytes >= self._held_bytes:
            self._write()

    def of(self, partition: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows (key, value) of a partition, each key once."""
        if self._writer is not None:
            self._write()
            with disk_errors("write", self._path):
                self._writer.close()
            self._writer = None
            with disk_errors("read", self._path):
                self._reader = pa.ipc.open_file(self._open.enter_context(pa.memory_map(str(self._path))))
        for number in self._written.get(partition, ()):
            assert self._reader is not None
            with disk_errors("read", self._path):
                yield self._reader.get_batch(number)
        yield from self._held.get(partition, ())

    def _write(self) -> None:
        with disk_errors("write", self._path):
            if self._writer is None:
                stream = self._open.enter_context(pa.OSFile(str(self._path), "wb"))
                self._writer = pa.ipc.new_file(stream, ROW_SCHEMA)
            for number in sorted(self._held):
                for batch in pa.Table.from_batches(self._held[number], ROW_SCHEMA).combine_chunks().to_batches():
                    self._writer.write_batch(batch)
                    self._written.setdefault(number, []).append(self._batches)
                    self._batches += 1
        self._held.clear()
        self._bytes = 0


def in_key_order(batches: Iterator[pa.RecordBatch], most_bytes: int = HELD_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield the rows in runs of about ``most_bytes``, each of them in the order of keys."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= most_bytes:
            yield _ordered(held)
            held, size = [], 0
    if held:
        yield _ordered(held)


def _ordered(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    whole = pa.Table.from_batches(batches, ROW_SCHEMA).combine_chunks().to_batches()[0]
    keys = whole.column(0)
    return whole.take(pc.sort_indices(keys))

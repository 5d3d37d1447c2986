"""Records of one partition: columns of numbers, keys and values as cells, record headers decoded when asked for.

Timestamps are epoch milliseconds, those of the records (``ConsumerRecord.timestamp``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kernels.arrays import Bools, Ints

RECORDS = pa.schema(
    [
        pa.field("partition", pa.int32(), False),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.int64(), False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""Columns of records. A null value deletes. A null offset or null headers are unknown: the file has no such column."""

COLUMNS = tuple(RECORDS.names)

UNKNOWN_TIME = -1
"""The timestamp of a record without one, as Kafka has it (``RecordBatch.NO_TIMESTAMP``)."""
UNKNOWN_OFFSET = -1
"""The offset of a record, among others with known ones, of which nothing says where it lies."""


def offset_column(offset: Ints) -> pa.Array:
    """Offsets as a column, null where they are unknown."""
    return pa.array(offset, mask=offset < 0)


class HeaderCells(Protocol):
    """Headers of some records, still in the bytes of their source."""

    def select(self, which: Bools | Ints) -> HeaderCells:
        """The headers of the records at these positions, or where the mask is true."""

    def array(self) -> pa.Array:
        """An array of type HEADERS."""


@dataclass(frozen=True)
class ListedHeaders:
    """Headers that are an Arrow array already; None: unknown for all of ``count`` records."""

    count: int
    headers: pa.Array | None

    def select(self, which: Bools | Ints) -> ListedHeaders:
        if self.headers is None:
            return ListedHeaders(int(np.count_nonzero(which)) if which.dtype == np.bool_ else len(which), None)
        chosen = pa.array(which)
        found = self.headers.filter(chosen) if which.dtype == np.bool_ else self.headers.take(chosen)
        return ListedHeaders(len(found), found)

    def array(self) -> pa.Array:
        return pa.nulls(self.count, HEADERS) if self.headers is None else self.headers


@dataclass(frozen=True)
class Records:
    """Some records of one partition, in the order of the log.

    ``offset`` is None where the source has no offsets, and UNKNOWN_OFFSET for a record whose own is not known.
    ``missing`` is, for each record, how many offsets below its own the log says nothing of: no record, no
    transaction marker. It never falls; between two records with the same number nothing is missing. Without offsets
    it is None: unknown.
    """

    partition: int
    offset: Ints | None
    timestamp: Ints
    missing: Ints | None
    key: Cells
    value: Cells
    headers: HeaderCells

    def __len__(self) -> int:
        return len(self.timestamp)

    def select(self, which: Bools | Ints) -> Records:
        """The records at these positions, or where the mask is true."""
        return Records(
            self.partition,
            None if self.offset is None else self.offset[which],
            self.timestamp[which],
            None if self.missing is None else self.missing[which],
            self.key.select(which),
            self.value.select(which),
            self.headers.select(which),
        )

    def first(self, count: int) -> Records:
        """The first ``count`` records."""
        return self if count >= len(self) else self.select(np.arange(count))

    def batch(self, columns: Sequence[str] = COLUMNS) -> pa.RecordBatch:
        """A batch of these columns of RECORDS, in this order. Only what is asked for is copied and decoded."""
        schema = pa.schema([RECORDS.field(name) for name in columns])
        return pa.RecordBatch.from_arrays([self._column(name) for name in columns], schema=schema)

    def _column(self, name: str) -> pa.Array:
        if name == "partition":
            return pa.array(np.full(len(self), self.partition, np.int32))
        if name == "offset":
            return pa.nulls(len(self), pa.int64()) if self.offset is None else offset_column(self.offset)
        if name == "timestamp":
            return pa.array(self.timestamp)
        if name == "headers":
            return self.headers.array()
        return (self.key if name == "key" else self.value).copied()


def records_of(batch: pa.RecordBatch, partition: int, missing: Ints | None = None) -> Records:
    """Records of one partition from a batch with all columns of RECORDS."""
    offset = batch.column("offset")
    return Records(
        partition,
        None if len(batch) and offset.null_count == len(batch) else offset.to_numpy(),
        batch.column("timestamp").to_numpy(),
        missing,
        cells_of(batch.column("key")),
        cells_of(batch.column("value")),
        ListedHeaders(len(batch), batch.column("headers")),
    )

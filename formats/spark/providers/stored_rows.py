"""Rows just as they are stored: the bytes of keys and of values."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of, gather
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.providers.file_records import DELETE, Changes
from statestore.formats.spark.rows.row_encoding import CHECKSUM_BYTES, verify_checksums
from statestore.formats.values.without_pandas import arrow_numbers, arrow_scalar, arrow_values, bools


@dataclass(frozen=True)
class StoredRows:
    """Some rows: keys and values, or a batch (key, value). Bytes are copied only where a batch is asked for of rows
    that were not read as one."""

    stored: tuple[Cells, Cells] | pa.RecordBatch

    @cached_property
    def keys(self) -> Cells:
        """The keys as they are stored."""
        return self.stored[0] if isinstance(self.stored, tuple) else cells_of(self.stored.column(0))

    @cached_property
    def values(self) -> Cells:
        """The values as they are stored."""
        return self.stored[1] if isinstance(self.stored, tuple) else cells_of(self.stored.column(1))

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows (key: binary, value: binary)."""
        if not isinstance(self.stored, tuple):
            return self.stored
        return pa.RecordBatch.from_arrays([cells.copied(corrupt_row) for cells in self.stored], schema=ROW_SCHEMA)


# Ranges of stored keys, and the rows and changes within them


KeyBounds = tuple[bytes | None, bytes | None]
"""From, and up to but not including; None is no bound. Bytes compare as in RocksDB, unsigned."""

MANY_RANGES = 64
"""Beyond this many ranges that are not single keys, the whole span from the first to the last is read.

Comparing 65,536 rows with a range takes 0.6 ms, and reading and decoding them takes some 65 ms. Single keys are looked
up in a hash table, however many they are.
"""


def rows_within(batch: pa.RecordBatch, ranges: Sequence[KeyBounds]) -> pa.RecordBatch:
    """The rows whose ``key`` is in one of the ranges; of many, between the first and the last, if not single keys."""
    return batch.filter(_within(batch.column("key"), ranges))


def changes_within(changes: Changes, ranges: Sequence[KeyBounds]) -> Changes:
    """The changes of keys that are in one of the ranges, as `rows_within`."""
    return changes_of_keys(changes, changes.keys.copied(corrupt_row), ranges)


def changes_of_keys(changes: Changes, keys: pa.BinaryArray, ranges: Sequence[KeyBounds]) -> Changes:
    """Return the changes that `changes_within` returns, given copies of their keys."""
    kept = np.flatnonzero(bools(_within(keys, ranges)))
    return Changes(changes.kind[kept], changes.keys.select(kept), changes.values.select(kept))


def whole_keys(ranges: Sequence[KeyBounds]) -> tuple[bytes, ...] | None:
    """Return the keys of ranges each of which is of a single key; None where there are others."""
    keys = tuple(first for first, stop in ranges if first is not None and stop == first + b"\0")
    return keys if len(keys) == len(ranges) else None


def _within(keys: pa.Array, ranges: Sequence[KeyBounds]) -> pa.BooleanArray:
    single = whole_keys(ranges)
    if len(ranges) > 1 and single is not None:
        return pc.is_in(keys, value_set=arrow_values(single, keys.type))
    if len(ranges) > MANY_RANGES:  # comparing with each range would cost more than it saves
        ranges = [(ranges[0][0], ranges[-1][1])]
    nothing = arrow_numbers(np.zeros(len(keys), np.bool_))
    return functools.reduce(pc.or_, (_in_range(keys, *bounds) for bounds in ranges), nothing)


def _in_range(keys: pa.Array, first: bytes | None, stop: bytes | None) -> pa.BooleanArray:
    above = pc.is_valid(keys) if first is None else pc.greater_equal(keys, arrow_scalar(first, keys.type))
    return above if stop is None else pc.and_(above, pc.less(keys, arrow_scalar(stop, keys.type)))


def bare_deletions(changes: Changes) -> Changes:
    """Return changes with the keys of deletions without their checksums, which are verified."""
    deleted = changes.kind == DELETE
    if not deleted.any():
        return changes
    marked = changes.keys.select(deleted)
    keys = marked.behind(CHECKSUM_BYTES, "the key of a deletion", corrupt_row)
    verify_checksums(gather(marked.data, marked.start, "<u4"), keys)
    start, size = changes.keys.start.copy(), changes.keys.size.copy()
    start[deleted], size[deleted] = keys.start, keys.size
    return Changes(changes.kind, Cells(changes.keys.data, start, size), changes.values)

"""Ranges of stored keys, and the rows and changes within them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.providers.file_records import Changes

KeyBounds = tuple[bytes | None, bytes | None]
"""From, and up to but not including; None is no bound. Bytes compare as in RocksDB, unsigned."""

MANY_RANGES = 32
"""Beyond this many ranges, the whole span from the first to the last is read."""


def rows_within(batch: pa.RecordBatch, ranges: Sequence[KeyBounds]) -> pa.RecordBatch:
    """The rows whose ``key`` is in one of the ranges; of many ranges, between the first and the last."""
    return batch.filter(_within(batch.column("key"), ranges))


def changes_within(changes: Changes, ranges: Sequence[KeyBounds]) -> Changes:
    """The changes of keys that are in one of the ranges; of many ranges, between the first and the last."""
    kept = _within(changes.keys.copied(corrupt_row), ranges).to_numpy(zero_copy_only=False)
    return Changes(changes.kind[kept], changes.keys.select(kept), changes.values.select(kept))


def _within(keys: pa.Array, ranges: Sequence[KeyBounds]) -> pa.BooleanArray:
    if len(ranges) > MANY_RANGES:  # comparing with each range would cost more than it saves
        ranges = [(ranges[0][0], ranges[-1][1])]
    nothing = pa.array([False] * len(keys), pa.bool_())
    return functools.reduce(pc.or_, (_in_range(keys, *bounds) for bounds in ranges), nothing)


def _in_range(keys: pa.Array, first: bytes | None, stop: bytes | None) -> pa.BooleanArray:
    above = pc.is_valid(keys) if first is None else pc.greater_equal(keys, pa.scalar(first, keys.type))
    return above if stop is None else pc.and_(above, pc.less(keys, pa.scalar(stop, keys.type)))

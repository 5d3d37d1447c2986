"""Differences between stored rows (key, value), and the comparison of two states that stream past in key order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.values.without_pandas import without_nulls

NOTHING = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in ROW_SCHEMA], schema=ROW_SCHEMA)


@dataclass(frozen=True)
class Differing:
    """Rows by key: those that only the newer state has, those that only the older one has, and those of keys with
    another value, before and after.
    """

    added: pa.RecordBatch
    removed: pa.RecordBatch
    before: pa.RecordBatch
    after: pa.RecordBatch

    @property
    def count(self) -> int:
        """The number of keys that differ."""
        return int(self.added.num_rows + self.removed.num_rows + self.after.num_rows)


class StreamedRows:
    """Rows in key order, taken up to a given key; ``held`` are the next ones, None at the end."""

    def __init__(self, rows: Iterable[pa.RecordBatch]) -> None:
        self._rows = (batch for batch in rows if batch.num_rows)
        self.held = next(self._rows, None)

    @property
    def last(self) -> bytes:
        """The key up to which rows have been read."""
        assert self.held is not None
        key: bytes = self.held.column(0)[self.held.num_rows - 1].as_py()
        return key

    def take(self, until: bytes) -> pa.RecordBatch:
        """The rows up to ``until``, which is not after ``last``."""
        if self.held is None:
            return NOTHING
        held, keys = self.held, self.held.column(0)
        count = bisect_right(range(len(keys)), until, key=lambda row: keys[row].as_py())
        self.held = held.slice(count) if count < len(keys) else next(self._rows, None)
        return held.slice(0, count)


def streamed_difference(before: Iterable[pa.RecordBatch], after: Iterable[pa.RecordBatch]) -> Iterator[Differing]:
    """Yield what differs between two states, of which some batches are in memory at a time."""
    old, new = StreamedRows(before), StreamedRows(after)
    while old.held is not None or new.held is not None:
        until = min(side.last for side in (old, new) if side.held is not None)
        found = difference_of(old.take(until), new.take(until))
        if found.count:
            yield found


def difference_of(old: pa.RecordBatch, new: pa.RecordBatch) -> Differing:
    """Return what differs between two sets of rows; no key is twice in one of them."""
    places = pc.index_in(new.column(0), old.column(0))
    same = without_nulls(pc.equal(new.column(1), old.column(1).take(places)))
    changed = pc.and_(pc.is_valid(places), pc.invert(same))
    gone = pc.invert(pc.is_in(old.column(0), new.column(0)))
    return Differing(
        new.filter(pc.is_null(places)), old.filter(gone), old.take(places.filter(changed)), new.filter(changed)
    )

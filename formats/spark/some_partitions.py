"""Rows of a large edit, those of some partitions at a time.

To encode a row takes several times its bytes. All rows of one key lie in one partition, so what is checked of an edit
can be checked for some of the partitions after the others.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from statestore.formats.errors import UnsupportedError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.held_tables import ROWS_AT_ONCE, held_rows
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.state_encoding import places_of
from statestore.formats.values.without_pandas import arrow_numbers

MOST_ROWS = 1 << 18
"""Rows that are encoded together, if not all of them are of one partition."""


def some_partitions(
    checkpoint: Checkpoint, view: StateView, removed: pa.Table, added: pa.Table
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield the rows of an edit, in the order that they have in each partition; few rows, and those whose partition no
    rule says, all at once. Raises as `encode_rows`, and StorageError DISK_FAILED."""
    if removed.num_rows + added.num_rows <= MOST_ROWS:
        yield removed, added
        return
    try:
        places = [_places(checkpoint, view, rows, new=new) for rows, new in ((removed, False), (added, True))]
    except UnsupportedError:  # said by who encodes the rows
        yield removed, added
        return
    groups = _groups(np.bincount(np.concatenate(places)))
    gone, come = (_Grouped(rows, groups[place]) for rows, place in zip((removed, added), places, strict=True))
    for number in range(int(groups.max()) + 1):
        yield gone.rows(number), come.rows(number)


def _places(checkpoint: Checkpoint, view: StateView, rows: pa.Table, *, new: bool) -> Ints:
    batches = rows.to_batches(max_chunksize=ROWS_AT_ONCE)
    return np.concatenate([np.empty(0, np.int64), *(places_of(checkpoint, view, each, new=new) for each in batches)])


def _groups(counts: Ints) -> Ints:
    """Return the group of each partition: as many partitions one after the other as have no more than `MOST_ROWS`."""
    groups = np.zeros(len(counts), np.int64)
    group = rows = 0
    for number, count in enumerate(counts.tolist()):
        if rows and rows + count > MOST_ROWS:
            group, rows = group + 1, 0
        rows += count
        groups[number] = group
    return groups


class _Grouped:
    """Rows in an order in which those of a group lie together in each batch."""

    def __init__(self, rows: pa.Table, groups: Ints) -> None:
        self._bounds: list[Ints] = []
        self._all = held_rows(rows.schema, self._sorted(rows, groups, int(groups.max(initial=0)) + 1))

    def _sorted(self, rows: pa.Table, groups: Ints, count: int) -> Iterator[pa.RecordBatch]:
        at = 0
        for batch in rows.to_batches(max_chunksize=ROWS_AT_ONCE):
            mine = groups[at : at + batch.num_rows]
            at += batch.num_rows
            order = np.argsort(mine, kind="stable")
            self._bounds.append(np.searchsorted(mine[order], np.arange(count + 1)))
            yield batch.take(arrow_numbers(order))

    def rows(self, group: int) -> pa.Table:
        """Return the rows of a group in one chunk, in the order that they had."""
        found = [
            batch.slice(int(bounds[group]), int(bounds[group + 1] - bounds[group]))
            for batch, bounds in zip(self._all.to_batches(), self._bounds, strict=True)
            if group + 1 < len(bounds)
        ]
        return pa.Table.from_batches(found, self._all.schema).combine_chunks()

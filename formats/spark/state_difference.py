"""Changes of a version found by comparing states.

They are needed for RocksDB checkpoints that keep zips only, and where Spark repartitioned the state. Both states stream
past each other in the order of their keys; only the differences are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.hash_passes import HashRange
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.load_plan import LoadPlan
from statestore.formats.spark.providers.file_records import DELETE, PUT, Changes
from statestore.formats.spark.providers.partition_load import Partition, plan_version, stored_rows, uid_of
from statestore.formats.spark.providers.rocksdb_provider import read_zip
from statestore.formats.spark.providers.stored_rows import KeyBounds

_NOTHING = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in ROW_SCHEMA], schema=ROW_SCHEMA)


def changes_between(
    before: Sequence[Partition],
    after: Sequence[Partition],
    each: Callable[[Partition, pa.RecordBatch], pa.RecordBatch] = lambda _, rows: rows,
    ranges: Callable[[Partition], Sequence[KeyBounds] | None] = lambda _: None,
    hashes: HashRange | None = None,
) -> Iterator[tuple[int, Changes]]:
    """The puts and deletions that turn one state of some partitions into the other.

    Each comes with the number of the partition that has or had the rows. The partitions are opened at their batches; no
    partitions stand for the empty state. ``each`` converts the stored rows of a partition to the form in which they are
    compared. ``ranges`` returns the ranges of its stored keys to read, and ``hashes`` selects among these; all by
    default. Values are compared as they are stored. A state that is more than a zip is held in memory. Raises as
    `stored_rows`.
    """
    if _same_tables(before, after):
        return
    old, new = (
        [_Rows(partition.number, _ordered(partition, each, ranges, hashes)) for partition in side]
        for side in (before, after)
    )
    while any(side.held is not None for side in (*old, *new)):
        until = min(side.last for side in (*old, *new) if side.held is not None)
        gone = [(side.number, side.take(until)) for side in old]
        come = [(side.number, side.take(until)) for side in new]
        yield from _compared(gone, come)


class _Rows:
    """Rows of a partition by key, taken up to a given key; ``held`` are the next ones, None at the end."""

    def __init__(self, number: int, rows: Iterator[pa.RecordBatch]) -> None:
        self.number = number
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
            return _NOTHING
        held, keys = self.held, self.held.column(0)
        count = bisect_right(range(len(keys)), until, key=lambda row: keys[row].as_py())
        self.held = held.slice(count) if count < len(keys) else next(self._rows, None)
        return held.slice(0, count)


def _same_tables(before: Sequence[Partition], after: Sequence[Partition]) -> bool:
    """Return whether both are zips of the same table files."""
    if len(before) != 1 or len(after) != 1:
        return False
    tables = []
    for partition in (*before, *after):
        plan = _plan(partition)
        if plan.base is None or not _in_order(plan):
            return False
        try:
            tables.append(set(read_zip(partition.folder, plan.base).tables.values()))
        except CorruptError:
            return False  # the readers of the rows report the error, or do without the zip
    return tables[0] == tables[1]


def _plan(partition: Partition) -> LoadPlan:
    batch = partition.checkpoint.batch
    return plan_version(partition, batch.version, uid_of(partition, batch.uids))


def _in_order(plan: LoadPlan) -> bool:
    return not plan.changes and (plan.base is None or plan.base.kind == "zip")


def _ordered(
    partition: Partition,
    each: Callable[[Partition, pa.RecordBatch], pa.RecordBatch],
    ranges: Callable[[Partition], Sequence[KeyBounds] | None],
    hashes: HashRange | None,
) -> Iterator[pa.RecordBatch]:
    """The rows by key. The rows of a zip alone are ordered already, unless they are read without it."""
    read = partial(
        stored_rows,
        partition,
        lambda stored: each(partition, stored.batch),
        key_ranges=ranges(partition),
        hashes=hashes,
    )
    plan = _plan(partition)
    if _in_order(plan):
        rows = read(base_version=0 if plan.base is None else plan.base.version)
        try:
            first = next(rows, None)
        except (CorruptError, NotFoundError):
            pass  # an earlier zip and the changes since then may be there
        else:
            yield from chain(() if first is None else (first,), rows)
            return
    yield from pa.Table.from_batches(read(), ROW_SCHEMA).sort_by("key").to_batches()


def _compared(
    old: Sequence[tuple[int, pa.RecordBatch]], new: Sequence[tuple[int, pa.RecordBatch]]
) -> Iterator[tuple[int, Changes]]:
    before = pa.concat_batches([_NOTHING, *(rows for _, rows in old)])
    after = pa.concat_batches([_NOTHING, *(rows for _, rows in new)])
    for number, rows in new:
        positions = pc.index_in(rows.column(0), before.column(0))
        same = pc.equal(rows.column(1), before.column(1).take(positions)).fill_null(False)
        if rows.num_rows and not pc.all(same).as_py():
            yield number, _changes(PUT, rows.filter(pc.invert(same)))
    for number, rows in old:
        gone = pc.invert(pc.is_in(rows.column(0), after.column(0)))
        if pc.any(gone).as_py():
            yield number, _changes(DELETE, rows.filter(gone))


def _changes(kind: int, rows: pa.RecordBatch) -> Changes:
    keys, values = cells_of(rows.column(0)), cells_of(rows.column(1))
    if kind == DELETE:
        values = Cells(values.data, values.start, np.zeros_like(values.size))
    return Changes(np.full(len(keys), kind, np.uint8), keys, values)

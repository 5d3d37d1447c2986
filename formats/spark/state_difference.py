"""What a version changed, found by comparing states: for RocksDB checkpoints that keep zips only.

Both states stream past each other in the order of their keys; only what differs is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.key_bounds import KeyBounds
from statestore.formats.spark.load_plan import LoadPlan
from statestore.formats.spark.partition_load import Partition, plan_version, stored_rows, uid_of
from statestore.formats.spark.records import DELETE, PUT, Changes
from statestore.formats.spark.rocksdb_provider import read_zip
from statestore.formats.spark.spans import Spans, spans_of


def changes_between(
    before: Partition | None, after: Partition, ranges: Sequence[KeyBounds] | None = None
) -> Iterator[Changes]:
    """Puts and deletions that make one state of a partition of the other; each key is there once. ``ranges`` of stored
    keys, all by default: no key outside of them is given.

    The partitions are opened at their batches; None is the empty state. Values are compared as they are stored. A state
    that is more than a zip is held in memory. Raises as `stored_rows`.
    """
    if before is not None and _same_tables(before, after):
        return
    old, new = iter(()) if before is None else _ordered(before, ranges), _ordered(after, ranges)
    held_old, held_new = next(old, None), next(new, None)
    while held_old is not None or held_new is not None:
        until = _common_end(held_old, held_new)
        first, held_old = _cut(held_old, until)
        second, held_new = _cut(held_new, until)
        yield from _compared(first, second)
        held_old = next(old, None) if held_old is None else held_old
        held_new = next(new, None) if held_new is None else held_new


def _same_tables(before: Partition, after: Partition) -> bool:
    """Whether both are zips of the same table files."""
    tables = []
    for partition in (before, after):
        plan = _plan(partition)
        if plan.base is None or not _in_order(plan):
            return False
        tables.append(set(read_zip(partition.folder, plan.base).tables.values()))
    return tables[0] == tables[1]


def _plan(partition: Partition) -> LoadPlan:
    batch = partition.checkpoint.batch
    return plan_version(partition, batch.version, uid_of(partition, batch.uids))


def _in_order(plan: LoadPlan) -> bool:
    return not plan.changes and (plan.base is None or plan.base.kind == "zip")


def _ordered(partition: Partition, ranges: Sequence[KeyBounds] | None) -> Iterator[pa.RecordBatch]:
    """The rows by key; a zip alone has them so."""
    rows = stored_rows(partition, lambda found: found, key_ranges=ranges)
    if _in_order(_plan(partition)):
        yield from rows
        return
    table = pa.Table.from_batches(rows, ROW_SCHEMA)
    yield from table.sort_by("key").to_batches()


def _common_end(old: pa.RecordBatch | None, new: pa.RecordBatch | None) -> bytes:
    """The last key up to which both are known."""
    ends: list[bytes] = [batch.column(0)[batch.num_rows - 1].as_py() for batch in (old, new) if batch is not None]
    return min(ends)


def _cut(batch: pa.RecordBatch | None, until: bytes) -> tuple[pa.RecordBatch | None, pa.RecordBatch | None]:
    """(rows up to ``until``, the rest)."""
    if batch is None:
        return None, None
    keys = batch.column(0)
    count = bisect_right(range(len(keys)), until, key=lambda row: keys[row].as_py())
    return batch.slice(0, count), batch.slice(count) if count < len(keys) else None


def _compared(old: pa.RecordBatch | None, new: pa.RecordBatch | None) -> Iterator[Changes]:
    if old is None or new is None:
        if new is not None and new.num_rows:
            yield _changes(PUT, new)
        if old is not None and old.num_rows:
            yield _changes(DELETE, old)
        return
    place = pc.index_in(new.column(0), old.column(0))
    same = pc.equal(new.column(1), old.column(1).take(place)).fill_null(False)
    if not pc.all(same).as_py():
        yield _changes(PUT, new.filter(pc.invert(same)))
    gone = np.ones(old.num_rows, np.bool_)
    gone[place.drop_null().to_numpy()] = False
    if gone.any():
        yield _changes(DELETE, old.filter(pa.array(gone)))


def _changes(kind: int, rows: pa.RecordBatch) -> Changes:
    keys, values = spans_of(rows.column(0)), spans_of(rows.column(1))
    if kind == DELETE:
        values = Spans(values.data, values.start, np.zeros_like(values.size))
    return Changes(np.full(len(keys), kind, np.uint8), keys, values)

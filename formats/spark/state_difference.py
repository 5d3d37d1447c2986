"""Changes of a version found by comparing states.

They are needed for RocksDB checkpoints that keep zips only, and where Spark repartitioned the state. Of two zips of a
partition the table files are compared that only one of them has. Other states stream past each other in the order of
their keys; only the differences are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.hash_passes import HashRange
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.rocksdb.scan import is_lookup
from statestore.formats.rocksdb.stored_difference import NOTHING, Differing, StreamedRows, streamed_difference
from statestore.formats.spark.checkpoint.load_plan import LoadPlan
from statestore.formats.spark.providers.file_records import DELETE, PUT, Changes
from statestore.formats.spark.providers.kept_lookups import looked_up_rows
from statestore.formats.spark.providers.partition_load import Partition, family_of, plan_version, stored_rows, uid_of
from statestore.formats.spark.providers.rocksdb_provider import family_range, zip_difference
from statestore.formats.spark.providers.stored_rows import KeyBounds
from statestore.formats.spark.providers.zip_files import read_zip
from statestore.formats.values.without_pandas import without_nulls


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


def differing_rows(
    before: Partition | None, after: Partition, ranges: Sequence[KeyBounds] | None = None
) -> Iterator[Differing]:
    """Yield the stored rows in which a partition differs between two batches; None is the empty state.

    It has no other number of partitions and no other ids of families in one of them. ``ranges`` are those of its stored
    keys to read; rows between them may be returned, too. Raises as `stored_rows`.
    """
    if before is not None and _same_tables([before], [after]):
        return
    found = None if before is None else _zip_difference(before, after, ranges)
    if found is not None:
        try:
            first = next(found, None)
        except (CorruptError, NotFoundError):
            pass  # an earlier zip and the changes since then may be there
        else:
            yield from chain(() if first is None else (first,), found)
            return
    sides = (
        () if each is None else _ordered(each, lambda _, rows: rows, lambda _: ranges, None) for each in (before, after)
    )
    yield from streamed_difference(*sides)


def are_zips(*partitions: Partition) -> bool:
    """Return whether the state of each partition is one zip, as the files are planned."""
    plans = map(_plan, partitions)
    return all(plan.base is not None and _in_order(plan) for plan in plans)


def _zip_difference(
    before: Partition, after: Partition, ranges: Sequence[KeyBounds] | None
) -> Iterator[Differing] | None:
    """Return the differences between two zips, None where they are not compared by their files."""
    family_id = family_of(after)
    if not are_zips(before, after) or family_id != family_of(before):
        return None
    if family_id is None and after.store.has_families:
        return None
    within = [family_range(family_id)] if ranges is None else ranges
    if len(within) != 1 or is_lookup(KeyRange(*within[0])):
        return None
    old, new = _plan(before).base, _plan(after).base
    assert old is not None and new is not None
    zips, delimiter = ((before.folder, old), (after.folder, new)), after.checkpoint.delimiter
    small = [looked_up_rows(*each, [KeyRange(*within[0])], delimiter) for each in zips]
    if not any(left for _, left in small):
        return streamed_difference(*(rows for rows, _ in small))
    return zip_difference(*zips, lambda one: one, delimiter=delimiter, within=within[0])


class _Rows(StreamedRows):
    """Rows of a partition by key."""

    def __init__(self, number: int, rows: Iterator[pa.RecordBatch]) -> None:
        super().__init__(rows)
        self.number = number


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
    before = pa.concat_batches([NOTHING, *(rows for _, rows in old)])
    after = pa.concat_batches([NOTHING, *(rows for _, rows in new)])
    for number, rows in new:
        positions = pc.index_in(rows.column(0), before.column(0))
        same = without_nulls(pc.equal(rows.column(1), before.column(1).take(positions)))
        if rows.num_rows and not pc.all(same).as_py():
            yield number, changes_of(PUT, rows.filter(pc.invert(same)))
    for number, rows in old:
        gone = pc.invert(pc.is_in(rows.column(0), after.column(0)))
        if pc.any(gone).as_py():
            yield number, changes_of(DELETE, rows.filter(gone))


def changes_of(kind: int, *parts: pa.RecordBatch) -> Changes:
    """Return puts or deletions of stored rows."""
    rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
    keys, values = cells_of(rows.column(0)), cells_of(rows.column(1))
    if kind == DELETE:
        values = Cells(values.data, values.start, np.zeros_like(values.size))
    return Changes(np.full(len(keys), kind, np.uint8), keys, values)

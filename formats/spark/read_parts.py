"""Parts of reads that tasks read alone: changes of several batches, and few keys of many partitions.

Changes come in parts of a partition each, or a range of its keys. Of a few keys the bytes are looked up, and one task
reads many partitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from statestore.formats.engine import DeltaPart
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.locations import Location
from statestore.formats.places.reading_threads import reading_threads
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.query_metadata import Batch
from statestore.formats.spark.checkpoint.spark_schema import renamed, unique_fields
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.key_lookup import KeyLookup, key_lookup, placement_hashes
from statestore.formats.spark.providers.partition_load import open_partition, replayed_bytes, stored_rows
from statestore.formats.spark.providers.partition_splits import split_history
from statestore.formats.spark.providers.stored_rows import MANY_RANGES, KeyBounds, StoredRows
from statestore.formats.spark.readable_batches import explained, explained_damage
from statestore.formats.spark.rows.key_placement import partition_of
from statestore.formats.spark.state_rows import Made
from statestore.formats.values.filters import Filter

if TYPE_CHECKING:
    from statestore.formats.spark.history import PartitionBatches

ChoosePartitions = Callable[[Store, Sequence[Filter]], Sequence[int]]


@dataclass(frozen=True)
class BatchesPart(DeltaPart):
    """A partition over ``batches``; ``checkpoint`` is as of the last of them.

    ``before`` is the batch before the first of a change feed. ``lookup``: the keys to look up, all by default.
    ``groups``: as in `PartitionBatches`.
    """

    location: Location
    checkpoint: Checkpoint
    state_view: StateView
    partition: int
    batches: tuple[Batch, ...]
    before: Batch | None
    lookup: tuple[KeyBounds, ...] | None = None
    groups: int | None = None

    @property
    def rows(self) -> None:
        """Always None: unknown until it is read."""

    @property
    def schema(self) -> pa.Schema:
        return unique_fields(self.state_view.schema)

    def lifetimes(self, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Rows, preceded by the batch that wrote each and the batch that ended it (or null)."""
        from statestore.formats.spark.history import read_history

        return map(renamed, read_history(self._batches(columns)))

    def deltas(self, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
        """Changes, preceded by the batch and the kind of each."""
        from statestore.formats.spark.history import read_row_changes

        return map(renamed, read_row_changes(self._batches(columns), self.before))

    def explain_loss(self, error: StateStoreError, state: str, versions: Sequence[int]) -> StateStoreError:
        return explained(error, self.location, self.state_view, versions)

    def explain_damage(self, error: CorruptError, state: str) -> CorruptError:
        return explained_damage(error, self.location, self.state_view)

    def _batches(self, columns: Collection[str]) -> PartitionBatches:
        from statestore.formats.spark.history import PartitionBatches

        return PartitionBatches(
            self.checkpoint, self.state_view, self.partition, self.batches, columns, self.lookup, self.groups
        )


def batches_parts(
    location: Location,
    checkpoint: Checkpoint,
    state_view: StateView,
    batches: Sequence[Batch],
    before: Batch | None,
    filters: Sequence[Filter],
    chosen: ChoosePartitions,
) -> list[BatchesPart]:
    """One part for each partition, or for each group of partitions among which a repartition moved rows.

    ``checkpoint`` is as of the last of ``batches``, ``chosen`` the partitions of a store that filters leave.
    """
    found = key_lookup(checkpoint, state_view, filters)
    groups = _groups(checkpoint, state_view, batches if before is None else [before, *batches])
    partitions = chosen(state_view.store.at(batches[-1]), filters) if groups is None else range(groups)
    hashes = None if groups is None else placement_hashes(checkpoint, state_view, filters)
    if groups is not None and hashes is not None:
        partitions = sorted({partition_of(each, groups) for each in hashes})
    bare = None if any(batch.uids for batch in batches) else tuple(replace(batch, settings={}) for batch in batches)
    return [
        BatchesPart(
            location,
            checkpoint,
            state_view,
            partition,
            bare or tuple(_of_partition(batch, state_view, partition, groups) for batch in batches),
            None if before is None else _of_partition(before, state_view, partition, groups),
            lookup,
            groups,
        )
        for partition in partitions
        for lookup in (
            [found.bounds] if found is not None else _parts(checkpoint, state_view, partition, batches, groups)
        )
    ]


def _groups(checkpoint: Checkpoint, state_view: StateView, batches: Sequence[Batch]) -> int | None:
    """The number of groups of partitions among which rows stay; None while the number of partitions stays the same.

    The partition of a row is the remainder of its key's hash, divided by the number of partitions. So for any number
    that divides all these numbers, rows stay among partitions of one remainder.
    """
    counts = {state_view.store.at(batch).count for batch in batches}
    if len(counts) == 1:
        return None
    hashed = checkpoint.batch.setting("statefulOperator.useStrictDistribution", "false") == "true"
    return math.gcd(*counts) if hashed else 1


def _parts(
    checkpoint: Checkpoint, state_view: StateView, partition: int, batches: Sequence[Batch], groups: int | None
) -> list[tuple[KeyBounds, ...] | None]:
    """Ranges of keys to read one after another, because the changes in each are held in memory.

    Everything is read at once where rows moved between partitions, whose ranges differ, and where rows may move between
    keys.
    """
    from statestore.formats.spark.history import is_parted_anywhere

    if groups is not None or not is_parted_anywhere(state_view):
        return [None]
    opened = open_partition(checkpoint, state_view.store.at(batches[-1]), partition, state_view.family.name)
    ranges = split_history(opened, {batch.version for batch in batches})
    return [None] if len(ranges) < 2 else [(bounds,) for bounds in ranges]


def _of_partition(batch: Batch, state_view: StateView, partition: int, groups: int | None) -> Batch:
    """The parts of a batch that travel with each split: those needed to read one partition, or a group of them."""
    operator = str(state_view.operator_id)
    if not batch.uids:
        return replace(batch, settings={})
    found = [
        uids if (number if groups is None else number % groups) == partition else []
        for number, uids in enumerate(batch.uids.get(operator, []))
    ]
    return replace(batch, settings={}, uids={operator: found})


# Reads of a few keys of a checkpoint: their bytes are looked up, and one task reads many partitions


FEW_PARTITIONS = 8
_LITTLE_BYTES = 64 << 20
_JOINED_ROWS = 4096


@dataclass(frozen=True)
class LookupPart:
    """Keys to look up, one partition after another.

    ``ranges`` are those of each partition. Once a partition holds the ``single`` key, the others are skipped. ``rows``
    is the most rows that can pass; None where that is unknown, or where the files are too large to be read before a
    query begins.
    """

    partitions: tuple[int, ...]
    ranges: tuple[tuple[KeyRange, ...], ...]
    single: bool
    rows: int | None = None


def lookup_parts(
    checkpoint: Checkpoint, state_view: StateView, partitions: Sequence[int], filters: Sequence[Filter]
) -> list[LookupPart] | None:
    """The parts of a lookup; None where the filters do not name keys.

    A single key is looked up first in the partition where Spark should have put it.
    """
    lookup = key_lookup(checkpoint, state_view, filters)
    if lookup is None or not state_view.flat or not partitions:
        return None
    if lookup.hash is not None and len(lookup.ranges) <= MANY_RANGES:  # rows of other keys would end the search
        likely = partition_of(lookup.hash, max(state_view.store.count, 1))
        order = sorted(partitions, key=lambda partition: partition != likely)
        ranges = (lookup.ranges,) * len(order)
        return [LookupPart(tuple(order), ranges, True, _most_rows(checkpoint, state_view, lookup, order))]
    groups = 1 if len(partitions) <= FEW_PARTITIONS else reading_threads()
    shares = [tuple(partitions[number::groups]) for number in range(groups)]
    most = partial(_most_rows, checkpoint, state_view, lookup)
    count = state_view.store.count
    return [LookupPart(share, tuple(lookup.ranges_in(share, count)), False, most(share)) for share in shares if share]


def _most_rows(
    checkpoint: Checkpoint, state_view: StateView, lookup: KeyLookup, partitions: Sequence[int]
) -> int | None:
    """The most rows of a lookup that reads little: some blocks of table files, or all of a few small files."""
    if lookup.keys is None or lookup.keys > MANY_RANGES or state_view.listed:
        return None
    first = open_partition(checkpoint, state_view.store, partitions[0], state_view.family.name)
    try:
        if replayed_bytes(first) * len(partitions) > _LITTLE_BYTES:
            return None
    except NotFoundError:
        return None  # the reader of the rows reports the error
    return lookup.keys * len(partitions)


def read_lookup(
    checkpoint: Checkpoint, state_view: StateView, part: LookupPart, decoder: Callable[[int | Ints], Made]
) -> Iterator[pa.RecordBatch]:
    """Rows of the keys, and perhaps some others. ``decoder`` makes the decoder of a partition, or of rows of several.

    Rows of several partitions are decoded at once: each call of the decoder costs as much as many rows.
    """
    waiting: list[tuple[int, pa.RecordBatch]] = []
    rows = 0
    for partition, ranges in zip(part.partitions, part.ranges, strict=True):
        source = open_partition(checkpoint, state_view.store, partition, state_view.family.name)
        for stored in stored_rows(source, lambda found: found.batch, lookup=ranges):
            waiting.append((partition, stored))
            rows += stored.num_rows
            if rows >= _JOINED_ROWS:
                yield from _decoded(waiting, decoder)
                waiting, rows = [], 0
        if part.single and waiting:
            found = list(_decoded(waiting, decoder))
            yield from found
            if found:
                return
            waiting, rows = [], 0
    yield from _decoded(waiting, decoder)


def _decoded(
    stored: Sequence[tuple[int, pa.RecordBatch]], decoder: Callable[[int | Ints], Made]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of stored ones, each with its partition, if there are any."""
    batches = [batch for _, batch in stored]
    joined = pa.Table.from_batches(batches).combine_chunks().to_batches() if len(stored) > 1 else []
    if len(joined) == 1:
        numbers = np.repeat([number for number, _ in stored], [batch.num_rows for batch in batches])
        try:
            found = [decoder(numbers)(StoredRows(joined[0]))]
        except StateStoreError:  # the error of one partition says which it is
            found = [decoder(number)(StoredRows(batch)) for number, batch in stored]
    else:
        found = [decoder(number)(StoredRows(batch)) for number, batch in stored]
    yield from (batch for batch in found if batch.num_rows)

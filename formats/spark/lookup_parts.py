"""Reads of a few keys of a checkpoint: their bytes are looked up, and one task reads many partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from statestore.formats.errors import NotFoundError
from statestore.formats.places.reading_threads import reading_threads
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.key_lookup import KeyLookup, key_lookup
from statestore.formats.spark.providers.key_bounds import MANY_RANGES
from statestore.formats.spark.providers.partition_load import open_partition, replayed_bytes
from statestore.formats.spark.rows.key_placement import partition_of
from statestore.formats.values.filters import Filter

FEW_PARTITIONS = 8
_LITTLE_BYTES = 64 << 20


@dataclass(frozen=True)
class LookupPart:
    """Keys to look up, one partition after another.

    Once a partition holds the ``single`` key, the others are skipped. ``rows`` is the most rows that can pass; None
    where that is unknown, or where the files are too large to be read before a query begins.
    """

    partitions: tuple[int, ...]
    ranges: tuple[KeyRange, ...]
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
        return [LookupPart(tuple(order), lookup.ranges, True, _most_rows(checkpoint, state_view, lookup, order))]
    groups = 1 if len(partitions) <= FEW_PARTITIONS else reading_threads()
    shares = [tuple(partitions[number::groups]) for number in range(groups)]
    most = partial(_most_rows, checkpoint, state_view, lookup)
    return [LookupPart(share, lookup.ranges, False, most(share)) for share in shares if share]


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


def read_lookup(part: LookupPart, read: Callable[[int], Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Rows of the keys, and perhaps some others. ``read`` reads the ranges of the part in one partition."""
    for partition in part.partitions:
        is_found = False
        for batch in read(partition):
            is_found = is_found or batch.num_rows > 0
            yield batch
        if is_found and part.single:
            return

"""History and change feed of a checkpoint: what our own stores tell of versions and commits, of batches.

A batch is a version; state time is when batches began. Changes are known of each batch after the oldest that can be
read, and of batch 0. Of a row that the oldest one has nobody knows since when it was there, but of batch 0: its
``valid_from`` and ``_commit_version`` are null. A changelog of that batch does not tell more: Spark also writes rows
again as they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.reads.changes import CHANGE_COLUMNS, CHANGE_TYPES
from statestore.catalog.reads.history_columns import HISTORY_COLUMNS, valid_rows
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.query_metadata import Batch
from statestore.formats.spark.checkpoint.views import View
from statestore.formats.spark.history import (
    BATCH,
    FROM_BATCH,
    KIND,
    TO_BATCH,
    PartitionBatches,
    is_parted_anywhere,
    read_history,
    read_row_changes,
)
from statestore.formats.spark.kept_batches import begin_times, read_batches
from statestore.formats.spark.key_lookup import key_lookup
from statestore.formats.spark.providers.key_bounds import KeyBounds
from statestore.formats.spark.providers.partition_load import open_partition, split_history
from statestore.formats.state_table import Query
from statestore.formats.values.times import format_time
from statestore.formats.values.types import TIME

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BatchesSplit:
    """A partition over ``batches``, which began at ``times`` (epoch microseconds). ``before`` is the batch before the
    first of a change feed. ``lookup``: the keys to look up, all by default. ``groups``: as in `PartitionBatches`."""

    partition: int
    batches: tuple[Batch, ...]
    times: tuple[int, ...]
    before: Batch | None
    lookup: tuple[KeyBounds, ...] | None = None
    groups: int | None = None

    @property
    def batch(self) -> int:
        """The newest one."""
        return self.batches[-1].batch_id

    @property
    def rows(self) -> None:
        """Nobody knows before it is read."""


def columns_of(mode: str) -> tuple[pa.Field, ...]:
    """What comes behind the columns of a view."""
    return CHANGE_COLUMNS if mode == "changes" else HISTORY_COLUMNS if mode == "history" else ()


def plan_batches(
    checkpoint: Checkpoint, kept: Sequence[int], view: View, chosen: Callable[[Store], Sequence[int]], query: Query
) -> list[BatchesSplit]:
    """A split a partition, or a group of partitions among which rows moved when Spark repartitioned the state. ``kept``
    are the batches that can be read, ``chosen`` the partitions of a store to read.

    Raises NotFoundError VERSION_NOT_FOUND or TIME_NOT_KEPT, stating what is kept, and InvalidInputError INVALID_RANGE.
    """
    path = checkpoint.root.path
    newest = kept[-1] if query.version is None or query.mode == "changes" else query.version
    batches = _with_times(read_batches(checkpoint, [number for number in kept if number <= newest]))
    kept = kept[kept.index(batches[0].batch_id) :]
    times = begin_times(checkpoint, batches)
    before: Batch | None = None
    if query.mode == "changes":
        told = _told(path, kept, times, query)
        before = batches[told.start - 1] if told.start else None
        batches, times = batches[told.start : told.stop], times[told.start : told.stop]
    else:
        _check_times(path, kept, int(times[0]), query)
    if not batches:
        return []
    found = key_lookup(checkpoint, view, query.filters)
    groups = _groups(checkpoint, view, batches if before is None else [before, *batches])
    partitions = chosen(view.store.at(batches[-1])) if groups is None else range(groups)
    return [
        BatchesSplit(
            partition,
            tuple(_of_partition(batch, view, partition, groups) for batch in batches),
            tuple(times.tolist()),
            None if before is None else _of_partition(before, view, partition, groups),
            lookup,
            groups,
        )
        for partition in partitions
        for lookup in ([found.bounds] if found is not None else _parts(checkpoint, view, partition, batches, groups))
    ]


def _groups(checkpoint: Checkpoint, view: View, batches: Sequence[Batch]) -> int | None:
    """None while the number of partitions stays the same.

    A row is in the partition that the hash of its key, divided by their number, has as remainder, so rows stay among
    partitions of one remainder by any number that divides all the numbers.
    """
    counts = {view.store.at(batch).count for batch in batches}
    if len(counts) == 1:
        return None
    hashed = checkpoint.batch.setting("statefulOperator.useStrictDistribution", "false") == "true"
    return math.gcd(*counts) if hashed else 1


def _parts(
    checkpoint: Checkpoint, view: View, partition: int, batches: Sequence[Batch], groups: int | None
) -> list[tuple[KeyBounds, ...] | None]:
    """Ranges of keys to read one after another: what changed in each is held in memory. All at once where rows moved
    between partitions, whose ranges differ, and where they may move between keys."""
    if groups is not None or not is_parted_anywhere(view):
        return [None]
    opened = open_partition(checkpoint, view.store.at(batches[-1]), partition, view.family.name)
    ranges = split_history(opened, {batch.version for batch in batches})
    return [None] if len(ranges) < 2 else [(bounds,) for bounds in ranges]


def history_start(checkpoint: Checkpoint, kept: Sequence[int], version: int) -> int | None:
    """When the first batch of the history up to ``version`` began, in epoch microseconds; None for batch 0, before
    which there is no state. ``kept`` are the batches that can be read."""
    batches = _with_times(read_batches(checkpoint, [number for number in kept if number <= version]))
    if not batches or batches[0].batch_id == 0:
        return None
    return int(begin_times(checkpoint, batches)[0])


def read_batches_split(
    checkpoint: Checkpoint, view: View, split: BatchesSplit, query: Query, columns: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """The asked columns of the view, and those of `columns_of`. ``checkpoint`` is that of the last batch."""
    batches = split.batches
    source = PartitionBatches(checkpoint, view, split.partition, batches, columns, split.lookup, split.groups)
    times, first = np.array(split.times, np.int64), split.batches[0].batch_id
    if query.mode == "changes":
        for batch in read_row_changes(source, split.before):
            yield _change_columns(batch, times, first)
        return
    for batch in read_history(source):
        yield valid_rows(_history_columns(batch, times, first), query)


def _with_times(batches: list[Batch]) -> list[Batch]:
    """Without the oldest ones whose times were cleaned up already, unless these are all."""
    return next((batches[n:] for n, batch in enumerate(batches) if batch.timestamp_ms is not None), batches)


def _told(path: str, kept: Sequence[int], times: Ints, query: Query) -> slice:
    """Which of the kept batches a change feed tells."""
    oldest = 0 if kept[0] == 0 else 1
    if query.start_time is not None or query.end_time is not None:
        _check_times(path, kept, int(times[0]) + oldest, query)
        low = 0 if query.start_time is None else int(np.searchsorted(times, query.start_time, "left"))
        high = len(kept) if query.end_time is None else int(np.searchsorted(times, query.end_time, "right"))
        return slice(max(low, oldest), max(low, oldest, high))
    first = kept[0] + oldest if query.start_version is None else query.start_version
    last = kept[-1] if query.end_version is None else query.end_version
    if query.start_version is not None and query.end_version is not None and first > last:
        raise InvalidInputError("INVALID_RANGE", f"changes from version {first} to {last}: the start is after the end")
    for version in (query.start_version, query.end_version):
        if version is not None and not kept[0] + oldest <= version <= kept[-1]:
            known = f"batches {kept[0] + oldest} to {kept[-1]} are" if len(kept) > oldest else "none are"
            raise NotFoundError("VERSION_NOT_FOUND", f"{path}: changes of batch {version} are not kept; {known}")
    return slice(first - kept[0], last - kept[0] + 1)


def _check_times(path: str, kept: Sequence[int], first: int, query: Query) -> None:
    """Of moments before ``first`` nothing is known if batches are gone."""
    start, end = query.start_time, query.end_time
    if start is not None and end is not None and start > end:
        raise InvalidInputError(
            "INVALID_RANGE",
            f"{query.mode} from {format_time(start)} to {format_time(end)}: the start is after the end; swap them",
        )
    asked = min((moment for moment in (start, end) if moment is not None), default=first)
    if kept[0] > 0 and asked < first:
        exclusive = query.mode == "changes"  # those of the oldest batch itself are not known
        since = f"after {format_time(first - 1)}" if exclusive else f"from {format_time(first)} on"
        raise NotFoundError(
            "TIME_NOT_KEPT",
            f"{path} keeps batches {kept[0]} to {kept[-1]} and {query.mode} {since}, asked for {format_time(asked)}",
        )


def _of_partition(batch: Batch, view: View, partition: int, groups: int | None) -> Batch:
    """What reading one partition needs, or a group of them, as it travels with each split."""
    operator = str(view.operator_id)
    if not batch.uids:
        return replace(batch, settings={})
    found = [
        uids if (number if groups is None else number % groups) == partition else []
        for number, uids in enumerate(batch.uids.get(operator, []))
    ]
    return replace(batch, settings={}, uids={operator: found})


def _history_columns(batch: pa.RecordBatch, times: Ints, first: int) -> pa.RecordBatch:
    start, end = batch.column(FROM_BATCH), batch.column(TO_BATCH)
    if first > 0:
        start = pc.if_else(pc.equal(start, first), None, start)
    columns = [_times(start, times, first), _times(end, times, first), start]
    return _with(batch, columns, HISTORY_COLUMNS)


def _change_columns(batch: pa.RecordBatch, times: Ints, first: int) -> pa.RecordBatch:
    number = batch.column(BATCH)
    moments = _times(number, times, first)
    columns = [moments, pa.array(CHANGE_TYPES).take(batch.column(KIND)), number, moments]
    return _with(batch, columns, CHANGE_COLUMNS)


def _times(batches: pa.Array, times: Ints, first: int) -> pa.Array:
    return pa.array(times).cast(TIME).take(pc.subtract(batches, first))


def _with(batch: pa.RecordBatch, columns: list[pa.Array], fields: Sequence[pa.Field]) -> pa.RecordBatch:
    """The columns of the view, which come after two others, and these."""
    names = batch.schema.names[2:]
    return pa.RecordBatch.from_arrays(
        [*batch.columns[2:], *columns], schema=pa.schema([*(batch.schema.field(name) for name in names), *fields])
    )

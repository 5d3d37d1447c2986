"""Differences between two batches of a state, partition by partition, as pairs of rows.

Of two zips the table files are compared. Of a few neighbouring batches with files of changes the keys in these are
looked up. Of other batches the whole partition is read twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from statestore.formats.rocksdb.rows import BATCH_ROWS
from statestore.formats.rocksdb.stored_difference import Differing
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.query_metadata import Batch
from statestore.formats.spark.checkpoint.spark_schema import renamed
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.history import PartitionBatches, read_written_ends, tells_rows_apart
from statestore.formats.spark.key_lookup import placed_columns
from statestore.formats.spark.providers.partition_load import Partition, has_change_file, open_partition, uid_of
from statestore.formats.spark.providers.stored_rows import StoredRows
from statestore.formats.spark.state_difference import are_zips, differing_rows
from statestore.formats.spark.state_rows import state_decoder
from statestore.formats.spark.untouched_partitions import touched_partitions

RowPair = tuple[Sequence[pa.RecordBatch], Sequence[pa.RecordBatch]]


@dataclass(frozen=True)
class BatchSide:
    """A state as of one batch; ``rows`` reads a partition of it in these columns."""

    checkpoint: Checkpoint
    state_view: StateView
    columns: Collection[str]
    rows: Callable[[int], Iterator[pa.RecordBatch]]

    def opened(self, number: int) -> Partition:
        return open_partition(self.checkpoint, self.state_view.store, number, self.state_view.family.name)


def are_parted_alike(old: BatchSide, new: BatchSide) -> bool:
    """Return whether rows of one key are in one partition of both states, and are stored in the same form."""
    sides = (old, new)
    first, second = (replace(each.state_view, store=replace(each.state_view.store, families=())) for each in sides)
    return (
        first == second
        and old.checkpoint.batch.settings == new.checkpoint.batch.settings
        and old.state_view.flat
        and tells_rows_apart(old.state_view)
        and not any(each.state_view.store.absent for each in sides)
        and (len(first.store.partitions) == 1 or all(placed_columns(e.checkpoint, e.state_view) for e in sides))
    )


def differing_batches(old: BatchSide, new: BatchSide, between: Sequence[Batch]) -> Iterator[RowPair]:
    """Yield pairs of rows that hold all which differ.

    ``between`` are the batches from the one before to the other one, where these follow each other and are few; else
    none. The sides are parted alike. Raises as `read_state`.
    """
    is_later = bool(between) and between[0].batch_id == new.checkpoint.batch.batch_id
    last = old if is_later else new
    touched = touched_partitions(last.checkpoint, last.state_view, between) if between else None
    for number in old.state_view.store.partitions if touched is None else touched:
        before, after = old.opened(number), new.opened(number)
        if are_zips(before, after):
            yield from of_zips(old, new, number, differing_rows(before, after))
        elif between and _are_logged(last.opened(number), between):
            batches = PartitionBatches(
                last.checkpoint, last.state_view, number, between[1:], {*old.columns, *new.columns}
            )
            for pair in read_written_ends(batches, between[0]):
                mine = [renamed(each) for each in (reversed(pair) if is_later else pair)]
                yield mine[:1], mine[1:]
        else:
            yield list(old.rows(number)), list(new.rows(number))


def _are_logged(partition: Partition, batches: Sequence[Batch]) -> bool:
    """Return whether each batch after the first has a file of changes, or was skipped."""
    return all(
        batch.version == before.version or has_change_file(partition, batch.version, uid_of(partition, batch.uids))
        for before, batch in itertools.pairwise(batches)
    )


def of_zips(old: BatchSide, new: BatchSide, number: int, found: Iterator[Differing]) -> Iterator[RowPair]:
    """Yield the pairs of rows in which a partition differs."""
    held: list[Differing] = []
    for one in found:
        held.append(one)
        if sum(each.count for each in held) >= BATCH_ROWS:
            yield _decoded(old, new, number, held)
            held = []
    if held:
        yield _decoded(old, new, number, held)


def _decoded(old: BatchSide, new: BatchSide, number: int, found: Sequence[Differing]) -> RowPair:
    gone = [batch for each in found for batch in (each.removed, each.before)]
    come = [batch for each in found for batch in (each.added, each.after)]
    return shown_rows(old, number, gone), shown_rows(new, number, come)


def shown_rows(side: BatchSide, number: int, stored: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows that stored rows of a partition show."""
    made = state_decoder(side.checkpoint, side.state_view, number, side.columns)
    return [renamed(made(StoredRows(pa.concat_batches(stored))))]

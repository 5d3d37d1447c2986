"""The amount that a checkpoint keeps of one store, from its logs and the sizes of its files; no state is read."""

from __future__ import annotations

from collections.abc import Sequence

from statestore.formats.engine import StateSize
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.checkpoint_files import TABLES
from statestore.formats.spark.checkpoint.query_metadata import Batch
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.providers.partition_load import counted_keys, open_partition
from statestore.formats.spark.readable_batches import batches_left, problem_of_newest


def size_of(checkpoint: Checkpoint, state_view: StateView, kept: Sequence[int]) -> StateSize:
    """Bytes of all files of the store, of whatever batch; variables of `transformWithState` share them.

    Raises InvalidInputError NO_ACCESS.
    """
    store = state_view.store
    checkpoint.list_partitions(store, store.folders)
    folders = [checkpoint.folder(store, number) for number in store.folders]
    checkpoint.list_partitions(store, store.folders)
    with_tables = [each.at(TABLES) for each in folders if TABLES in each.folders()]
    checkpoint.root.fetch(with_tables)
    size = sum(sum(each.files().values()) for each in folders + with_tables)
    problem = problem_of_newest(checkpoint, state_view)
    return StateSize(
        size,
        partitions=_partitions(store, batches_left(checkpoint, kept)),
        problems=() if problem is None else (problem,),
        damaged=problem is not None,
    )


def rows_of(checkpoint: Checkpoint, state_view: StateView) -> int | None:
    """The number of rows, where each partition has a zip of this batch, with the number of its keys.

    Spark counts the keys of all column families together, and a list has several rows for a key.
    """
    store = state_view.store
    if store.has_families or state_view.listed or state_view.shape != "rows":
        return None
    total = 0
    for number in store.partitions:
        keys = counted_keys(open_partition(checkpoint, store, number, state_view.family.name))
        if keys is None:
            return None
        total += keys
    return total


def _partitions(store: Store, batches: Sequence[Batch]) -> tuple[tuple[int, int, int], ...]:
    found: list[tuple[int, int, int]] = []
    for batch in batches:
        number, count = batch.batch_id, store.at(batch).count
        if found and found[-1][2] == count:
            found[-1] = found[-1][0], number, count
        else:
            found.append((number, number, count))
    return tuple(found)

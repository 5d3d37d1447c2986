"""The size of what a checkpoint keeps of one store, from its logs and the sizes of its files; no state is read."""

from __future__ import annotations

from collections.abc import Sequence

from statestore.formats.engine import StateSize
from statestore.formats.places.folder import Folder
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.query_metadata import Batch
from statestore.formats.spark.readable_batches import read_batches


def size_of(checkpoint: Checkpoint, store: Store, kept: Sequence[int]) -> StateSize:
    """Bytes of all files of the store, of whatever batch; variables of `transformWithState` share them.

    Raises InvalidInputError NO_ACCESS.
    """
    size = sum(_bytes(checkpoint.folder(store, number)) for number in store.folders)
    return StateSize(size, partitions=_partitions(store, read_batches(checkpoint, kept)))


def _partitions(store: Store, batches: Sequence[Batch]) -> tuple[tuple[int, int, int], ...]:
    found: list[tuple[int, int, int]] = []
    for batch in batches:
        number, count = batch.batch_id, store.at(batch).count
        if found and found[-1][2] == count:
            found[-1] = found[-1][0], number, count
        else:
            found.append((number, number, count))
    return tuple(found)


def _bytes(folder: Folder) -> int:
    return sum(folder.files().values()) + sum(folder.at("SSTs").files().values())

"""Partitions to which some batches wrote nothing: their rows are the same before and after.

A batch writes a file for each partition, whatever it changed. The files of few batches are read sooner than the state
before and after them.
"""

from __future__ import annotations

from collections.abc import Sequence

from statestore.formats.errors import StateStoreError
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.query_metadata import Batch
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.providers.partition_load import open_partition, uid_of, writes_nothing

MOST_BATCHES = 8


def touched_partitions(checkpoint: Checkpoint, state_view: StateView, batches: Sequence[Batch]) -> list[int] | None:
    """The partitions to which batches may have written, as of ``checkpoint``; None where that is not to be known.

    ``batches`` are the one before, and those that follow it up to the batch of the checkpoint. Where one of them
    repartitioned the state, was skipped, or has partitions that are missing, nothing is known.
    """
    before, *changed = batches
    store = state_view.store
    if not changed or len(changed) > MOST_BATCHES or any(store.at(batch).absent for batch in batches):
        return None
    if any(store.at(batch).partitions != store.partitions for batch in batches):
        return None
    if [batch.version for batch in changed] != list(range(before.version + 1, before.version + 1 + len(changed))):
        return None
    found = []
    for number in store.partitions:
        partition = open_partition(checkpoint, store, number, state_view.family.name)
        try:
            untouched = writes_nothing(partition, [(batch.version, uid_of(partition, batch.uids)) for batch in changed])
        except StateStoreError:  # the read of the rows reports it
            untouched = False
        if not untouched:
            found.append(number)
    return found

"""Which batches of a store can be read now, and when they began.

Spark removes old deltas, snapshots, zips and changelogs at its own pace in each partition, and the logs of commits and
offsets at another: a batch can be read if it is committed and every partition has all files of its state version.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from statestore.formats.errors import NotFoundError
from statestore.formats.spark.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint_files import PARALLEL_REQUESTS
from statestore.formats.spark.damage import missing
from statestore.formats.spark.load_plan import readable_versions
from statestore.formats.spark.partition_load import Partition, open_partition, plan_version, uid_of
from statestore.formats.spark.query_metadata import Batch, read_batch, with_batches
from statestore.formats.spark.spans import Ints


def kept_batches(checkpoint: Checkpoint, store: Store) -> list[int]:
    """The newest batches, without a gap, that can be read in every partition of ``store``, ascending.

    Raises InvalidInputError NO_ACCESS.
    """
    readable = set(readable_batches(checkpoint, store))
    kept: list[int] = []
    for batch in reversed(checkpoint.batches):
        if batch not in readable or (kept and kept[-1] != batch + 1):
            break
        kept.append(batch)
    return kept[::-1]


def readable_batches(checkpoint: Checkpoint, store: Store) -> list[int]:
    """All that can be read, also those before a damaged one, ascending. Raises as `kept_batches`."""
    if store.absent:
        return []
    readable = set(checkpoint.batches)
    for found in _of_partitions(checkpoint, store):
        readable &= found
    return sorted(readable)


def read_batches(checkpoint: Checkpoint, numbers: Sequence[int]) -> list[Batch]:
    """These committed batches. Raises NotFoundError SPARK_STATE_NOT_FOUND."""
    root = with_batches(checkpoint.root, numbers)
    return [read_batch(root, number) for number in numbers]


def begin_times(checkpoint: Checkpoint, batches: Sequence[Batch]) -> Ints:
    """When batches began, in epoch microseconds: never descending.

    A clock may have been set back. As of a moment is the newest batch that had begun by then, so a batch that began
    after its successor, or with it, was never the newest, and its time is that of the successor.

    Raises NotFoundError SPARK_STATE_NOT_FOUND if the log of offsets does not tell the time.
    """
    times = []
    for batch in batches:
        if batch.timestamp_ms is None:
            path = checkpoint.root.at("offsets", batch.batch_id).path
            raise missing(
                path, "no time of the batch, which history and changes need; read the state of single batches"
            )
        times.append(batch.timestamp_ms * 1000)
    return np.minimum.accumulate(np.array(times, np.int64)[::-1])[::-1]


def _of_partitions(checkpoint: Checkpoint, store: Store) -> list[set[int]]:
    family = store.families[0].name
    with ThreadPoolExecutor(1 if checkpoint.root.is_local else PARALLEL_REQUESTS) as pool:
        opened = list(pool.map(lambda number: open_partition(checkpoint, store, number, family), store.partitions))
    if checkpoint.batch.uids:
        batches = read_batches(checkpoint, checkpoint.batches)
        return [_readable_lineage(partition, batches) for partition in opened]
    return [{version - 1 for version in readable_versions(partition.files)} for partition in opened]


def _readable_lineage(partition: Partition, batches: Sequence[Batch]) -> set[int]:
    """Of checkpoint format 2, whose commits name the files of each version.

    Only of the first batch the lineage must be asked: a later one goes on from that before it, or has a zip.
    """
    named = {(file.kind, file.version, file.uid) for file in partition.files}
    found: set[int] = set()
    for batch in batches:
        uid = uid_of(partition, batch.uids)
        if ("zip", batch.version, uid) in named or (
            ("changelog", batch.version, uid) in named
            and (batch.batch_id - 1 in found or (batch is batches[0] and _is_whole(partition, batch.version, uid)))
        ):
            found.add(batch.batch_id)
    return found


def _is_whole(partition: Partition, version: int, uid: str | None) -> bool:
    try:
        plan_version(partition, version, uid)
    except NotFoundError:
        return False
    return True

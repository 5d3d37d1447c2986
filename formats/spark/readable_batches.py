"""The batches of a store that can be read now, and when they began.

Spark removes old deltas, snapshots, zips and changelogs at its own pace in each partition, and the logs of commits and
offsets at another. A batch can be read if it is committed and each of its partitions has all files of its state
version. Only the logs list the partitions of a batch, because the state may have been repartitioned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError
from statestore.formats.places.folder import PARALLEL_REQUESTS
from statestore.formats.places.locations import Location
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile, data_files
from statestore.formats.spark.checkpoint.load_plan import readable_versions
from statestore.formats.spark.checkpoint.opened_checkpoints import open_located
from statestore.formats.spark.checkpoint.query_metadata import Batch, read_batch, with_batches
from statestore.formats.spark.checkpoint.state_views import StateView, find_state_view
from statestore.formats.spark.providers.partition_load import Partition, plan_version, uid_of


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
    """All batches that can be read, including those before a damaged one, ascending. Raises as `kept_batches`."""
    with ThreadPoolExecutor(1 if checkpoint.root.is_local else PARALLEL_REQUESTS) as pool:
        listed = pool.map(lambda number: data_files(checkpoint.folder(store, number)), store.folders)
        files = dict(zip(store.folders, listed, strict=True))
    if checkpoint.batch.uids:
        return _of_lineages(checkpoint, store, files)
    versions = {number: set(readable_versions(files_of)) for number, files_of in files.items()}
    everywhere = set.intersection(*versions.values()) if versions else set()
    usual = store.folders == tuple(range(store.count)) and not store.absent
    readable = {batch for batch in checkpoint.batches if usual and (batch + 1 in everywhere or not versions)}
    # For the other batches the logs list the partitions, and which batches were skipped.
    for batch in _known(checkpoint, [number for number in checkpoint.batches if number not in readable]):
        then = store.at(batch)
        if not then.absent and all(batch.version in versions[number] for number in then.partitions):
            readable.add(batch.batch_id)
    return sorted(readable)


def read_batches(checkpoint: Checkpoint, numbers: Sequence[int]) -> list[Batch]:
    """Read these committed batches. Raises NotFoundError SPARK_STATE_NOT_FOUND."""
    root = with_batches(checkpoint.root, numbers)
    return [read_batch(root, number) for number in numbers]


def _known(checkpoint: Checkpoint, numbers: Sequence[int]) -> Iterator[Batch]:
    """Return these batches, without those whose logs are damaged."""
    root = with_batches(checkpoint.root, numbers)
    for number in numbers:
        with contextlib.suppress(CorruptError, NotFoundError):
            yield read_batch(root, number)


def _of_lineages(checkpoint: Checkpoint, store: Store, files: Mapping[int, Sequence[DataFile]]) -> list[int]:
    batches = read_batches(checkpoint, checkpoint.batches)
    stores = {batch.batch_id: store.at(batch) for batch in batches}
    family = store.families[0].name
    readable = {number for number, then in stores.items() if not then.absent}
    for number, listed in files.items():
        partition = Partition(checkpoint, store, number, family, checkpoint.folder(store, number), tuple(listed))
        mine = [batch for batch in batches if number in stores[batch.batch_id].partitions]
        readable -= {batch.batch_id for batch in mine} - _readable_lineage(partition, mine)
    return sorted(readable)


def _readable_lineage(partition: Partition, batches: Sequence[Batch]) -> set[int]:
    """The readable batches in checkpoint format 2, whose commits name the files of each version.

    Only the first batch needs a look at the lineage: a later one continues the one before it, or has a zip.
    """
    named = {(file.kind, file.version, file.uid) for file in partition.files}
    readable: set[int] = set()
    for batch in batches:
        uid = uid_of(partition, batch.uids)
        if ("zip", batch.version, uid) in named or (
            ("changelog", batch.version, uid) in named
            and (batch.batch_id - 1 in readable or (batch is batches[0] and _is_whole(partition, batch.version, uid)))
        ):
            readable.add(batch.batch_id)
    return readable


def _is_whole(partition: Partition, version: int, uid: str | None) -> bool:
    try:
        plan_version(partition, version, uid)
    except NotFoundError:
        return False
    return True


def explained(error: StateStoreError, location: Location, state_view: StateView, batch: int) -> StateStoreError:
    """The error SPARK_STATE_NOT_FOUND for files that were removed while they were read, with the batches kept now."""
    if error.code != ErrorCode.SPARK_STATE_NOT_FOUND:
        return error
    kept = "no batch can be read now"
    with contextlib.suppress(StateStoreError):
        checkpoint = open_located(location)
        numbers = kept_batches(checkpoint, find_state_view(checkpoint, state_view.operator_id, state_view.name).store)
        if numbers:
            kept = f"batches {numbers[0]} to {numbers[-1]} can be read now"
    return NotFoundError(error.code, f"reading up to batch {batch} of {location}: {error.message}; {kept}")

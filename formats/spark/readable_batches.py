"""The batches of a store that can be read now, and the one statement about them, for every door and error.

Spark removes old deltas, snapshots, zips and changelogs at its own pace in each partition, and the logs of commits and
offsets at another. A batch can be read if it is committed and each of its partitions has all files of its state
version. Only the logs list the partitions of a batch, because the state may have been repartitioned.

What a read plans with comes from listings alone. What is said to users also comes from the zips: one that is damaged or
lacks table files makes no state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError, UnsupportedError
from statestore.formats.places.folder import PARALLEL_REQUESTS, Folder
from statestore.formats.places.locations import Location
from statestore.formats.places.reading_threads import in_order
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.checkpoint_files import PURGED, TABLES, DataFile, DataFiles, data_files
from statestore.formats.spark.checkpoint.load_plan import readable_versions
from statestore.formats.spark.checkpoint.opened_checkpoints import open_located
from statestore.formats.spark.checkpoint.query_metadata import Batch, committed_batches, read_batch, with_batches
from statestore.formats.spark.checkpoint.state_views import StateView, find_state_view
from statestore.formats.spark.providers.partition_load import Partition, open_partition, plan_version, uid_of
from statestore.formats.spark.providers.zip_files import read_zip

_RANGES = 5  # that a statement lists, the newest


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
    return _readable(checkpoint, store, data_files)


def whole_batches(checkpoint: Checkpoint, store: Store, damage: str = "") -> list[int]:
    """The batches of `readable_batches` whose zips are whole and have their table files.

    ``damage`` is the text of an error; the files that it names are taken for lost. Raises as `kept_batches`.
    """
    return _readable(checkpoint, store, partial(_whole_files, damage))


def what_can_be_read(checkpoint: Checkpoint, store: Store, damage: str = "") -> str:
    """The statement which batches can be read now; parameters and errors are those of `whole_batches`."""
    ranges: list[list[int]] = []
    for number in whole_batches(checkpoint, store, damage):
        if ranges and ranges[-1][-1] == number - 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    if not ranges:
        return "no batch can be read now"
    texts = [" to ".join(map(str, each)) for each in ranges[-_RANGES:]]
    listed = " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
    word = "batch" if listed.isdecimal() else "batches"
    return f"{word} {'…, ' if len(ranges) > _RANGES else ''}{listed} can be read now"


def problem_of_newest(checkpoint: Checkpoint, state_view: StateView) -> str | None:
    """A sentence about the newest batch if zips of it are damaged or lack table files; None where it can be read.

    Only the zips of this batch are read. Raises as `kept_batches`, and NotFoundError SPARK_STATE_NOT_FOUND.
    """
    store = state_view.store
    for number in store.partitions:
        partition = open_partition(checkpoint, store, number, state_view.family.name)
        base = plan_version(partition, checkpoint.batch.version, uid_of(partition, checkpoint.batch.uids)).base
        if base is None or base.kind != "zip":
            continue
        if not _has_tables(partition.folder, base, partition.folder.at(TABLES).files()):
            newest = checkpoint.batch.batch_id
            if newest in whole_batches(checkpoint, store):
                return None  # it is read past the zip
            statement = what_can_be_read(checkpoint, store)
            return f"{base.name} of partition {number}, which batch {newest} needs, is not whole; {statement}"
    return None


def _whole_files(damage: str, folder: Folder) -> DataFiles:
    files = data_files(folder)
    if damage:
        files = DataFiles(file for file in files if f"{folder.at(file.name).path}:" not in damage)
    zips = [file for file in files if file.kind == "zip"]
    tables = folder.at(TABLES).files() if zips else {}
    spoiled = {file.name for file in zips if not _has_tables(folder, file, tables)}
    return DataFiles(file for file in files if file.name not in spoiled) if spoiled else files


def _has_tables(folder: Folder, file: DataFile, tables: Mapping[str, int]) -> bool:
    try:
        needed = read_zip(folder, file).tables.values()
    except (CorruptError, NotFoundError, UnsupportedError):
        return False
    return all(tables.get(name) == size for name, size in needed)


def _readable(checkpoint: Checkpoint, store: Store, files_in: Callable[[Folder], DataFiles]) -> list[int]:
    listed = in_order(
        lambda number: files_in(checkpoint.folder(store, number)),
        store.folders,
        1 if checkpoint.root.is_local else PARALLEL_REQUESTS,
    )
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
    """Read these committed batches. Raises NotFoundError SPARK_STATE_NOT_FOUND, also for one that is purged now."""
    root = with_batches(checkpoint.root, numbers)
    return [read_batch(root, number, checkpoint.begun) for number in numbers]


def batches_left(checkpoint: Checkpoint, numbers: Sequence[int]) -> list[Batch]:
    """Read these batches, without the oldest ones if the query has purged them since they were listed.

    Raises NotFoundError SPARK_STATE_NOT_FOUND for a batch between others that are there, or if none is left.
    """
    root = with_batches(checkpoint.root, numbers)
    found: list[Batch] = []
    for number in reversed(numbers):
        try:
            found.append(read_batch(root, number, checkpoint.begun))
        except NotFoundError:
            if not found or not set(numbers[: numbers.index(number) + 1]).isdisjoint(committed_batches(root.fresh())):
                raise
            break
    return found[::-1]


def _known(checkpoint: Checkpoint, numbers: Sequence[int]) -> Iterator[Batch]:
    """Return these batches, without those whose logs are damaged or purged."""
    root = with_batches(checkpoint.root, numbers)
    for number in numbers:
        with contextlib.suppress(CorruptError, NotFoundError):
            yield read_batch(root, number, checkpoint.begun)


def _of_lineages(checkpoint: Checkpoint, store: Store, files: Mapping[int, DataFiles]) -> list[int]:
    batches = batches_left(checkpoint, checkpoint.batches)
    stores = {batch.batch_id: store.at(batch) for batch in batches}
    family = store.families[0].name
    readable = {number for number, then in stores.items() if not then.absent}
    for number, listed in files.items():
        partition = Partition(checkpoint, store, number, family, checkpoint.folder(store, number), listed)
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


def explained(
    error: StateStoreError, location: Location, state_view: StateView, versions: Sequence[int]
) -> StateStoreError:
    """The error for files of these batches, ascending, that are not there.

    VERSION_GONE where the query has removed batches as it completed newer ones, or replaced files of batches that can
    still be read; else SPARK_STATE_NOT_FOUND. It says which batches can be read now.
    """
    if error.code != ErrorCode.SPARK_STATE_NOT_FOUND:
        return error
    try:
        checkpoint = open_located(location)
        store = find_state_view(checkpoint, state_view.operator_id, state_view.name).store
        readable = whole_batches(checkpoint, store, error.message)
        kept = what_can_be_read(checkpoint, store, error.message)
    except StateStoreError:
        readable, kept = [], "no batch can be read now"
    lost = [number for number in versions if number not in readable]
    if lost and readable and readable[-1] > lost[-1]:
        what = f"batch {lost[-1]} of {location} is gone: the query purged it as it went on to batch {readable[-1]}"
        return NotFoundError(ErrorCode.VERSION_GONE, f"{what}; {kept}; read again")
    if not lost and PURGED in error.message:
        return NotFoundError(
            ErrorCode.VERSION_GONE, f"reading up to batch {versions[-1]} of {location}: {error.message}"
        )
    return NotFoundError(error.code, f"reading up to batch {versions[-1]} of {location}: {error.message}; {kept}")


def explained_damage(error: CorruptError, location: Location, state_view: StateView) -> CorruptError:
    """The error SPARK_STATE_FILE for damage to a file of state, with the batches that can be read without it."""
    if error.code != ErrorCode.SPARK_STATE_FILE:
        return error
    return CorruptError(error.code, f"{error.message}; {_now(location, state_view, error.message)}")


def _now(location: Location, state_view: StateView, damage: str) -> str:
    try:
        checkpoint = open_located(location)
        store = find_state_view(checkpoint, state_view.operator_id, state_view.name).store
        return what_can_be_read(checkpoint, store, damage)
    except StateStoreError:
        return "no batch can be read now"

"""The stored bytes of one partition: its rows as of a version, and the changes of single versions.

Rows are record batches (key: binary, value: binary) of one store or column family, just as stored: keys keep the
family's id, values their checksums.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of, gather
from statestore.formats.bytes.hash_passes import HashPass, HashRange
from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.kernels.arrays import Bools
from statestore.formats.kernels.compiled_use import load_if_it_pays
from statestore.formats.places.folder import Folder
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store, partition_files
from statestore.formats.spark.checkpoint.checkpoint_files import CHANGES, DataFile, DataFiles, read_ahead
from statestore.formats.spark.checkpoint.load_plan import LoadPlan, plan_lineage, plan_load, readable_versions
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, missing
from statestore.formats.spark.providers.bulk_replay import (
    FoundMerges,
    KeyHashes,
    bulk_rows,
    changes_kept,
    fitted,
    rows_kept,
    stored_passes,
)
from statestore.formats.spark.providers.change_files import base_rows, changelog_lineage
from statestore.formats.spark.providers.change_runs import Run, change_runs
from statestore.formats.spark.providers.file_records import Changes
from statestore.formats.spark.providers.kept_lookups import looked_up_rows
from statestore.formats.spark.providers.kept_positions import found_rows
from statestore.formats.spark.providers.kept_records import changes_in_ranges, rows_in_ranges
from statestore.formats.spark.providers.kept_rows import kept_rows
from statestore.formats.spark.providers.replay import Overlay, Replay, overlay_of
from statestore.formats.spark.providers.rocksdb_provider import (
    family_prefix,
    family_range,
    zip_rows,
)
from statestore.formats.spark.providers.snapshot_repair import (
    BaseReading,
    rows_of_given_base,
    rows_of_whole_base,
    with_whole_base,
)
from statestore.formats.spark.providers.stored_rows import KeyBounds, StoredRows, bare_deletions
from statestore.formats.spark.providers.zip_files import read_zip

FAMILY_BYTES = 2
MOST_LOOKED_UP = 10_000
"""Stored keys that are looked up one by one. For more of them all rows of a partition are read and compared."""
T = TypeVar("T")


@dataclass(frozen=True)
class Partition:
    """One partition of a store, and the column family to read in it."""

    checkpoint: Checkpoint
    store: Store
    number: int
    family: str
    folder: Folder
    files: DataFiles

    @cached_property
    def change_files(self) -> Mapping[tuple[int, str | None], DataFile]:
        """The files of changes by version and uid."""
        return {(file.version, file.uid): file for file in reversed(self.files) if file.kind in CHANGES}


def open_partition(checkpoint: Checkpoint, store: Store, number: int, family: str) -> Partition:
    """Open a partition. Raises NotFoundError SPARK_STATE_NOT_FOUND if it does not exist."""
    # What the folder has is listed once, and shows which files are those that were read before.
    checkpoint = replace(checkpoint, root=checkpoint.root.remembering())
    files = partition_files(checkpoint, store, number)
    return Partition(checkpoint, store, number, family, checkpoint.folder(store, number), files)


def stored_rows(
    partition: Partition,
    each: Callable[[StoredRows], T],
    *,
    base_version: int | None = None,
    key_ranges: Sequence[KeyBounds] | None = None,
    lookup: Sequence[KeyRange] | None = None,
    hashes: HashRange | None = None,
) -> Iterator[T]:
    """Yield ``each`` of the rows as of the checkpoint's batch, some at a time and never none; several threads may call
    ``each``.

    ``base_version`` chooses the snapshot to start from. ``key_ranges`` are [from, to) of stored keys, ascending and
    apart; no row outside of them is returned. The ranges of ``lookup`` are without the id of a column family; if they
    are many, rows between them may be returned, too. ``hashes`` leaves out all other keys.

    Of the changes since the base, hashes of their keys are held in memory, and the changes themselves if they are few
    enough; else their files are read twice. Where values are merged, the changes are held, or read several times, each
    time for some of the keys.

    Raises NotFoundError SPARK_STATE_NOT_FOUND if the files of the version are not all kept, CorruptError
    SPARK_STATE_FILE, UnsupportedError SPARK_STATE_UNSUPPORTED.
    """
    is_given = False
    while True:
        try:
            for found in _stored_rows(partition, each, base_version, key_ranges, lookup, hashes):
                is_given = True
                yield found
            return
        except NotFoundError:
            # A running query replaces old changes by a newer snapshot, which makes the same state.
            now = partition if is_given else _listed_again(partition)
            if now.files == partition.files:
                raise
            partition = now


def rows_of_keys(partition: Partition, keys: pa.Array) -> pa.RecordBatch:
    """The rows (key, value) of stored keys. Raises as `stored_rows`."""
    if len(keys) > MOST_LOOKED_UP:
        found = stored_rows(partition, partial(_of_keys, keys))
    else:
        asked: list[bytes] = sorted(set(keys.to_pylist()))
        found = stored_rows(partition, _batch, key_ranges=[(key, key + b"\0") for key in asked]) if asked else iter(())
    return pa.concat_batches([pa.RecordBatch.from_arrays([pa.nulls(0, pa.binary())] * 2, schema=ROW_SCHEMA), *found])


def _listed_again(partition: Partition) -> Partition:
    checkpoint = replace(partition.checkpoint, root=partition.checkpoint.root.fresh())
    return open_partition(checkpoint, partition.store, partition.number, partition.family)


def _stored_rows(
    partition: Partition,
    each: Callable[[StoredRows], T],
    base_version: int | None,
    key_ranges: Sequence[KeyBounds] | None,
    lookup: Sequence[KeyRange] | None,
    hashes: HashRange | None,
) -> Iterator[T]:
    checkpoint = partition.checkpoint

    def plan(without: Collection[str]) -> LoadPlan:
        return plan_version(partition, checkpoint.batch.version, _uid(partition), base_version, without)

    def read(chosen: LoadPlan, reading: BaseReading) -> Iterator[T]:
        return _rows_of(partition, chosen, reading, each, key_ranges=key_ranges, lookup=lookup, hashes=hashes)

    if base_version is None:
        yield from rows_of_whole_base(partition.folder.path, plan, read)
        return
    yield from rows_of_given_base(plan(()), read)


def _rows_of(
    partition: Partition,
    plan: LoadPlan,
    reading: BaseReading,
    each: Callable[[StoredRows], T],
    *,
    key_ranges: Sequence[KeyBounds] | None,
    lookup: Sequence[KeyRange] | None,
    hashes: HashRange | None,
) -> Iterator[T]:
    checkpoint = partition.checkpoint
    load_if_it_pays(sum(file.size for file in (plan.base, *plan.changes) if file is not None))
    family_id = family_id_at(partition, plan.base, checkpoint.batch.version)
    if family_id is None and partition.store.has_families:
        return
    family_ranges = None if lookup is None else ranges_of_family(family_id, lookup)
    if family_ranges is not None:
        key_ranges = [(within.first, within.stop) for within in family_ranges]
    if key_ranges is not None and hashes is None and checkpoint.provider == "hdfs":
        files = [file for file in (plan.base, *plan.changes) if file is not None]
        form = partition.folder, files, checkpoint.has_checksums, key_ranges
        rows = found_rows(*form)
        if rows is not None:
            if rows.num_rows:
                yield each(StoredRows(rows))
            return
        wanted = key_ranges
        kept = kept_rows(*form, lambda: _merged_rows(partition, plan, reading, _batch, family_id, None, wanted, None))
        if kept is not None:
            yield from (each(StoredRows(batch)) for batch in kept)
            return
    yield from _merged_rows(partition, plan, reading, each, family_id, family_ranges, key_ranges, hashes)


def _batch(rows: StoredRows) -> pa.RecordBatch:
    return rows.batch


def _of_keys(keys: pa.Array, rows: StoredRows) -> pa.RecordBatch:
    batch = rows.batch
    return batch.filter(pc.is_in(batch.column(0), value_set=keys))


def _merged_rows(
    partition: Partition,
    plan: LoadPlan,
    reading: BaseReading,
    each: Callable[[StoredRows], T],
    family_id: int | None,
    family_ranges: Sequence[KeyRange] | None,
    key_ranges: Sequence[KeyBounds] | None,
    hashes: HashRange | None,
) -> Iterator[T]:
    """Yield ``each`` of the rows of a base with the changes since then."""
    checkpoint = partition.checkpoint
    whole = hashes or HashRange(hashes_of_keys(partition.store))

    def changes(kept: HashRange = whole) -> Iterator[Changes]:
        read = partial(_changes_in, partition, family_id)
        form = family_id, checkpoint.has_checksums
        found = (
            read(plan.changes)
            if key_ranges is None
            else changes_in_ranges(partition.folder, plan.changes, read, form, key_ranges)
        )
        yield from (changes_kept(kept, change) for change in found)

    def base(over: Callable[[pa.RecordBatch], list[T]]) -> Iterator[T]:
        return reading.rows(_base(partition, plan.base, family_id, reading.counted(over), key_ranges, family_ranges))

    if not plan.changes:
        yield from base(partial(_rows_alone, each, whole))
        return
    with contextlib.suppress(FoundMerges):
        yield from bulk_rows(changes, base, whole, each)
        return

    def overlay(part: HashPass) -> Overlay:
        return overlay_of(changes(part.kept), checkpoint.delimiter, partial(fitted, part))

    for kept, newest in stored_passes(whole, overlay):
        replay = Replay(newest)
        yield from base(partial(_replayed, replay, each, kept))
        yield from (each(StoredRows(batch)) for batch in replay.rest())
        del newest, replay


def _rows_alone(each: Callable[[StoredRows], T], kept: HashRange, batch: pa.RecordBatch) -> list[T]:
    rows = rows_kept(kept, batch)
    return [each(StoredRows(rows))] if rows.num_rows else []


def _replayed(replay: Replay, each: Callable[[StoredRows], T], kept: HashRange, batch: pa.RecordBatch) -> list[T]:
    return [each(StoredRows(rows)) for rows in replay.over(rows_kept(kept, batch)) if rows.num_rows]


def hashes_of_keys(store: Store, hole: int | None = None) -> KeyHashes:
    """The hashing of a store's keys: without the id of their family, which a repartition changes."""
    return KeyHashes(FAMILY_BYTES if store.has_families else 0, hole)


def plan_version(
    partition: Partition,
    version: int,
    uid: str | None,
    base_version: int | None = None,
    without: Collection[str] = (),
) -> LoadPlan:
    """The files of a version; ``uid`` is that of the version in checkpoint format 2. ``without`` as in `plan_load`."""
    where = partition.folder.path
    if uid is None:
        return plan_load(partition.files, version, where, base_version=base_version, without=without)
    lineage = partial(changelog_lineage, partition.folder)
    return plan_lineage(partition.files, version, uid, where, lineage, base_version=base_version, without=without)


def on_whole_base(partition: Partition, use: Callable[[DataFile | None], T]) -> T:
    """Return the result of ``use`` for the newest base of the checkpoint's batch that can be read."""
    version, uid = partition.checkpoint.batch.version, _uid(partition)
    return with_whole_base(lambda without: plan_version(partition, version, uid, None, without), use)


def files_of_batch(partition: Partition) -> list[DataFile]:
    """The files from which the rows as of the checkpoint's batch are built.

    Table files have the kind "table" and version 0, because their names do not contain the version that wrote them.
    Raises NotFoundError SPARK_STATE_NOT_FOUND.
    """
    version, uid = partition.checkpoint.batch.version, _uid(partition)
    base, tables = on_whole_base(partition, lambda base: (base, _tables(partition, base)))
    others = [] if base is None else [file.name for file in partition.files if file.kind == base.kind and file != base]
    plan = plan_version(partition, version, uid, None, others)
    return [*([] if base is None else [base]), *tables, *plan.changes]


def keys_of_files(partition: Partition, files: Iterable[DataFile]) -> Iterator[tuple[DataFile, Iterator[Cells]]]:
    """Yield bases and files of changes, ascending, each with the stored keys of the family in it, those of deletions
    included.

    Each file is read once. One that cannot be read raises its error where its keys are read.
    """
    family = _FamilyOf(partition)
    for folder, file in read_ahead(partition.folder, files):
        yield file, _keys_of(replace(partition, folder=folder), file, family)


def _keys_of(partition: Partition, file: DataFile, family: _FamilyOf) -> Iterator[Cells]:
    family_id = family.id_in(file)
    if family_id is None and partition.store.has_families:
        return
    if file.kind in CHANGES:
        yield from (changes.keys for changes in _changes_in(partition, family_id, [file]))
    else:
        yield from _base(partition, file, family_id, lambda rows: cells_of(rows.column(0)), None, None)


@dataclass
class _FamilyOf:
    """The id of a partition's family in one file after the other: that of the file before where changes connect the
    two, as `_family_id` says."""

    partition: Partition
    version: int | None = None
    id: int | None = None

    def id_in(self, file: DataFile) -> int | None:
        is_change = file.kind in CHANGES
        if self.version is None or self.version != file.version - is_change:
            base = _base_of(self.partition, file.version, file.uid) if is_change else file
            self.id = family_id_at(self.partition, base, file.version)
        self.version = file.version
        return self.id


def _tables(partition: Partition, base: DataFile | None) -> list[DataFile]:
    if base is None or base.kind != "zip":
        return []
    shared = sorted(read_zip(partition.folder, base).tables.values())
    return [DataFile(f"SSTs/{name}", 0, None, "table", size) for name, size in shared]


def replayed_bytes(partition: Partition) -> int:
    """Bytes of the files that every read of the partition reads in whole, also a lookup.

    Raises NotFoundError SPARK_STATE_NOT_FOUND.
    """
    plan = plan_version(partition, partition.checkpoint.batch.version, _uid(partition))
    return sum(file.size for file in (plan.base, *plan.changes) if file is not None)


def counted_keys(partition: Partition) -> int | None:
    """The number of keys as of the checkpoint's batch, if Spark wrote it down for exactly this version."""
    plan = plan_version(partition, partition.checkpoint.batch.version, _uid(partition))
    if plan.base is None or plan.base.kind != "zip" or plan.changes:
        return None
    try:
        return read_zip(partition.folder, plan.base).keys
    except CorruptError:
        return None  # the reader of the rows does without it


def version_changes(partition: Partition, versions: Sequence[tuple[int, str | None]]) -> Iterator[Run]:
    """Yield the changes of versions in their order, of many versions at a time.

    The versions follow each other without a gap, and are given with their uids. Raises NotFoundError
    SPARK_STATE_NOT_FOUND for one without its file, after those before it.
    """
    files: list[DataFile] = []
    for version, uid in versions:
        file = partition.change_files.get((version, uid))
        if file is None:
            break
        files.append(file)
    if files:
        yield from _logged_changes(partition, files)
    if len(files) < len(versions):
        name = "delta" if partition.checkpoint.provider == "hdfs" else "changelog"
        problem = f"found no {name} of version {versions[len(files)][0]}; changes can be read only where each version "
        raise missing(partition.folder.path, f"{problem}has one")


def _logged_changes(partition: Partition, files: Sequence[DataFile]) -> Iterator[Run]:
    first = files[0]
    family_id = family_id_at(partition, _base_of(partition, first.version, first.uid), first.version)
    if family_id is None and partition.store.has_families:
        return
    for run in change_runs(partition.folder, files):
        yield from _own_changes(partition, run, family_id)


def writes_nothing(partition: Partition, versions: Sequence[tuple[int, str | None]]) -> bool:
    """Return whether the files of versions are changes and there are none in them, of no family.

    Raises the errors of `version_changes`.
    """
    files = [partition.change_files.get(each) for each in versions]
    if any(file is None for file in files):
        return False
    return not any(any(run.counts) for run in change_runs(partition.folder, [file for file in files if file]))


def has_change_file(partition: Partition, version: int, uid: str | None) -> bool:
    """Return whether `version_changes` can be read."""
    return (version, uid) in partition.change_files


def uid_of(partition: Partition, uids: Mapping[str, list[list[str]]]) -> str | None:
    """The uid that a commit names for the partition's store; None before checkpoint format 2."""
    if not uids:
        return None
    store = partition.store
    try:
        stores = uids[str(store.operator_id)][partition.number]
        return str(stores[store.number if len(stores) > 1 else 0])
    except (KeyError, IndexError, TypeError) as error:
        where = f"operator {store.operator_id}, partition {partition.number}, store {store.name}"
        raise corrupt_file(partition.checkpoint.root.at("commits").path, f"no stateUniqueIds of {where}") from error


def readable_batches(partition: Partition) -> list[int]:
    """The committed batches whose files are all kept here, ascending; in checkpoint format 2, those with a file."""
    versions = set(readable_versions(partition.files))
    versions |= {file.version for file in partition.files if file.uid is not None}
    return [batch for batch in partition.checkpoint.batches if batch + 1 in versions]


def _uid(partition: Partition) -> str | None:
    return uid_of(partition, partition.checkpoint.batch.uids)


def _base(
    partition: Partition,
    file: DataFile | None,
    family_id: int | None,
    each: Callable[[pa.RecordBatch], T],
    key_ranges: Sequence[KeyBounds] | None,
    family_ranges: Sequence[KeyRange] | None,
) -> Iterator[T]:
    folder = partition.folder
    if file is None:
        return iter(())
    if file.kind == "snapshot":
        read = partial(base_rows, folder, file)
        rows = read() if key_ranges is None else rows_in_ranges(folder, file, read, key_ranges)
        return in_order(each, rows, reading_threads())
    delimiter, ranges = partition.checkpoint.delimiter, family_ranges or key_ranges
    if ranges is None:
        ranges = [family_range(family_id)]
    return _looked_up(folder, file, each, delimiter, [_as_range(within) for within in ranges])


def _looked_up(
    folder: Folder, file: DataFile, each: Callable[[pa.RecordBatch], T], delimiter: bytes, ranges: Sequence[KeyRange]
) -> Iterator[T]:
    found, left = looked_up_rows(folder, file, ranges, delimiter)
    yield from map(each, found)
    if left:
        yield from zip_rows(folder, file, each, delimiter=delimiter, key_ranges=left)


def _as_range(within: KeyBounds | KeyRange) -> KeyRange:
    return within if isinstance(within, KeyRange) else KeyRange(*within)


def family_of(partition: Partition) -> int | None:
    """The id with which the keys of the family begin as of the checkpoint's batch.

    None for a store without families, or before this family was created.
    """
    version = partition.checkpoint.batch.version
    return family_id_at(partition, _base_of(partition, version, _uid(partition)), version)


def of_family(family_id: int | None, bounds: Sequence[KeyBounds]) -> list[KeyBounds]:
    """Convert bounds of a family's keys to bounds of stored keys, which begin with the family's id."""
    ranges = ranges_of_family(family_id, [KeyRange(*each) for each in bounds])
    return [(within.first, within.stop) for within in ranges]


def ranges_of_family(family_id: int | None, ranges: Sequence[KeyRange]) -> list[KeyRange]:
    """Convert ranges of a family's keys to ranges of stored keys."""
    if family_id is None:
        return list(ranges)
    prefix, behind = family_range(family_id)
    assert prefix is not None
    return [
        replace(
            within,
            first=prefix + (within.first or b""),
            stop=behind if within.stop is None else prefix + within.stop,
        )
        for within in ranges
    ]


def family_id_at(partition: Partition, base: DataFile | None, version: int) -> int | None:
    """The id of the partition's family as of a version whose base is known, or may not be.

    None for a store without families, or if this family has not been created yet. Ids stay the same until Spark
    repartitions the state, which assigns new ones and writes no changelogs. So the ids in a zip hold for the versions
    that changelogs connect with it, forward or backward.
    """
    if not partition.store.has_families:
        return None
    zips = [file for file in partition.files if file.kind == "zip"]
    logged = {file.version for file in partition.files if file.kind in CHANGES}

    def is_joined(file: DataFile) -> bool:
        low, high = sorted((version, file.version))
        return high - low <= len(logged) and logged.issuperset(range(low + 1, high + 1))

    before = [file for file in reversed(zips) if file.version <= version and is_joined(file)]
    after = [file for file in zips if file.version > version and is_joined(file)]
    bases = ([base] if base else []) + before + after
    damage: CorruptError | None = None
    for file in bases:
        try:
            family_id = read_zip(partition.folder, file).families.get(partition.family)
        except CorruptError as error:
            damage = damage or error
            continue
        if family_id is not None:
            return family_id
    if damage is not None:
        raise damage  # only the damaged zip may say that the family had been created
    if not bases and partition.files:
        raise missing(
            partition.folder.path, f"no zip is kept that contains the ids of column families in version {version}"
        )
    return None


def _base_of(partition: Partition, version: int, uid: str | None) -> DataFile | None:
    """The base of a version; None also if the version cannot be read in whole, or the store has no families."""
    if not partition.store.has_families:
        return None
    try:
        return plan_version(partition, version, uid).base
    except NotFoundError:
        return None


def _changes_in(partition: Partition, family_id: int | None, files: Sequence[DataFile]) -> Iterator[Changes]:
    """The changes of files to the family; keys of deletions are verified and returned without their checksums."""
    for run in change_runs(partition.folder, files):
        for own in _own_changes(partition, run, family_id):
            yield own.changes


def _own_changes(partition: Partition, run: Run, family_id: int | None) -> Iterator[Run]:
    if len(run.files) > 1:
        try:
            found = _own_changes_of(partition, run, family_id)
        except CorruptError:  # which names the file that is wrong, of one alone
            pass
        else:
            yield found
            return
    for single in run.by_file():
        yield _own_changes_of(partition, single, family_id)


def _own_changes_of(partition: Partition, run: Run, family_id: int | None) -> Run:
    changes = run.changes
    if partition.checkpoint.has_checksums:
        changes = bare_deletions(changes)
    if family_id is None:
        return replace(run, changes=changes)
    own = _of_family(changes, family_id, partition.folder.at(run.files[-1].name).path)
    return replace(run, changes=changes) if own is None else run.kept(changes, own)


def _of_family(changes: Changes, family_id: int, path: str) -> Bools | None:
    """A mask of the changes to a family; None: all are."""
    keys = changes.keys
    if len(keys) and int(keys.size.min()) < FAMILY_BYTES:
        raise corrupt_file(path, "found a key without the id of a column family")
    own: Bools = gather(keys.data, keys.start, "<i2") == int.from_bytes(family_prefix(family_id), "little", signed=True)
    return None if own.all() else own

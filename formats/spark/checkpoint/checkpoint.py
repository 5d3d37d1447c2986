"""A checkpoint of a Structured Streaming query: its operators, their state stores, and the state views one can read.

``open_checkpoint`` reads metadata only; ``state_rows`` and ``change_feed`` read state. A checkpoint may have been
moved: absolute paths in it are not followed.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from statestore.formats.errors import CorruptError, NotFoundError
from statestore.formats.places.folder import NUMBER, Folder
from statestore.formats.places.local_files import FileSystem
from statestore.formats.spark.checkpoint.checkpoint_files import (
    TABLES,
    DataFile,
    DataFiles,
    data_files,
    parse_json,
    read_metadata,
    spark_folder,
)
from statestore.formats.spark.checkpoint.given_types import NOTHING_GIVEN, Given, family_without_schema
from statestore.formats.spark.checkpoint.query_metadata import (
    Batch,
    StoreEntry,
    committed_batches,
    holds_files,
    operator_ids,
    read_batch,
    read_operator,
)
from statestore.formats.spark.checkpoint.schema_files import FamilySchema, read_schema_file
from statestore.formats.spark.checkpoint.spark_schema import LONG, StructOf
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, missing, unsupported

Provider = Literal["hdfs", "rocksdb"]

DEFAULT_STORE = "default"
_LIMIT = "globalLimit"
JOIN_FORM = "join.stateFormatVersion"
_NO_SCHEMA = (
    "no such file, and other stores of the operator have one; give keyType and valueType, or restore it from a copy"
)
_TOLD = 20
_PROVIDERS: dict[str, Provider] = {"HDFSBackedStateStoreProvider": "hdfs", "RocksDBStateStoreProvider": "rocksdb"}
_OWN_FOLDERS = (TABLES, "logs", "_metadata")
_WITH_TIMEOUTS = ("flatMapGroupsWithState", "applyInPandasWithState", "")  # Spark 3.5 writes no name


@dataclass(frozen=True)
class Written:
    """The rule for the number of partitions of a store that each batch writes; one task writes one.

    A ``single`` task writes a global limit, and an aggregation without keys, whatever the metadata says. When Spark
    repartitions such a state it writes as many partitions as were requested: these are the ``spread`` versions.
    ``named`` is false for Spark 3.5, which names no operators. ``recorded`` is the number in the metadata, which for
    the first version is that of batch 0.
    """

    single: bool
    named: bool
    recorded: int | None
    spread: frozenset[int] = frozenset()

    def count(self, batch: Batch, operator_id: int, folders: tuple[int, ...]) -> int:
        """The number of partitions as of a batch.

        Where no log has the number, it is the largest of any batch, so that a part is not taken for the whole.
        """
        most = folders[-1] + 1 if folders else 0
        shuffled, committed = batch.partitions or 0, len(batch.uids.get(str(operator_id), ()))
        if self.single:
            return committed or (max(shuffled, 1) if batch.version in self.spread else min(most, 1))
        if batch.logged and shuffled:
            return max(shuffled if self.named else min(shuffled, most), committed)
        return committed or max(self.recorded or 0, shuffled if self.named else 0, most)


@dataclass(frozen=True)
class Store:
    """A state store of an operator. ``families`` has one entry, unless ``has_families``: keys then start with a
    family's id.

    ``prefix_columns`` is None where Spark wrote no operator metadata (3.5). ``partitions`` are those of a batch.
    ``absent`` are the first of these that are missing though the query must have written them. ``folders`` are those of
    all batches. ``written`` is the rule that decides how many there must be. ``schema_files`` are those of the schema
    folder that the operator metadata lists, the oldest first.
    """

    operator_id: int
    name: str
    number: int
    folders: tuple[int, ...]
    prefix_columns: int | None
    families: tuple[FamilySchema, ...]
    has_families: bool
    schema_folder: str | None
    schema_files: tuple[str, ...] = ()
    written: Written = Written(False, False, None)
    partitions: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()

    @cached_property
    def count(self) -> int:
        """The number of partitions of the batch, or a lower bound of it."""
        return max((*self.partitions, *self.absent), default=-1) + 1

    @property
    def had_other_count(self) -> bool:
        """Return whether its files tell of another number of partitions than that of the batch.

        A repartition of Spark puts each row where it belongs. One that was interrupted, and whose query was made to go
        on, leaves rows where they were, or without their partition.
        """
        recorded = self.written.recorded
        return any(folder >= self.count for folder in self.folders) or recorded not in (None, self.count)

    def at(self, batch: Batch) -> Store:
        """The store with the partitions of a batch."""
        count = self.written.count(batch, self.operator_id, self.folders)
        if count and len(self.partitions) == count == self.partitions[-1] + 1:  # as most batches have as many
            return self
        have = frozenset(self.folders)
        absent = itertools.islice((number for number in range(count) if number not in have), _TOLD)
        present = tuple(number for number in self.folders if number < count)
        return replace(self, partitions=present, absent=tuple(absent))

    def check_partitions(self, where: str) -> None:
        """Raise NotFoundError SPARK_STATE_NOT_FOUND if a partition is absent: the rest is not the whole state."""
        if self.absent:
            raise missing(
                f"partition {self.absent[0]} of operator {self.operator_id} of {where}",
                f"there are only the partitions {_some(self.partitions)}, which a filter on partition_id reads; "
                "restore it from a copy",
            )

    def family(self, name: str) -> FamilySchema:
        """The column family of this name. Raises NotFoundError SPARK_STATE_NOT_FOUND."""
        for family in self.families:
            if family.name == name:
                return family
        names = ", ".join(family.name for family in self.families)
        raise missing(f"column family {name} of operator {self.operator_id}", f"expected one of {names}")


@dataclass(frozen=True)
class Operator:
    """A stateful operator; ``name`` is Spark's, empty for 3.5.

    ``variables`` maps the variables of transformWithState to their type.
    """

    operator_id: int
    name: str
    properties: Mapping[str, Any]
    stores: tuple[Store, ...]

    @cached_property
    def variables(self) -> dict[str, str]:
        entries = self.properties.get("stateVariables") or []
        try:
            return {str(entry["stateName"]): str(entry["stateVariableType"]) for entry in entries}
        except (KeyError, TypeError) as error:
            where = f"operator {self.operator_id}: operatorPropertiesJson"
            raise corrupt_file(where, "expected stateVariables with stateName and stateVariableType") from error


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint as of a batch; ``batches`` are all that are committed and kept, and on request ``begun`` ones."""

    root: Folder
    query_id: str
    batches: tuple[int, ...]
    batch: Batch
    provider: Provider
    operators: tuple[Operator, ...]
    given: Given = NOTHING_GIVEN
    begun: tuple[int, ...] = ()

    def operator(self, operator_id: int) -> Operator:
        """The operator of this number. Raises NotFoundError SPARK_STATE_NOT_FOUND."""
        for operator in self.operators:
            if operator.operator_id == operator_id:
                return operator
        ids = [operator.operator_id for operator in self.operators]
        raise missing(f"operator {operator_id} of {self.root.path}", f"expected one of {ids}")

    def folder(self, store: Store, partition: int) -> Folder:
        """The folder in which a store keeps a partition."""
        return _store_folder(self.root, store, partition)

    def list_partitions(self, store: Store, numbers: Sequence[int]) -> None:
        """List the folders of partitions into the memory of the root, at the same time where they are not local."""
        if self.root.seen is not None:
            self.root.fetch([self.folder(store, number) for number in numbers])

    @property
    def delimiter(self) -> bytes:
        """The delimiter that RocksDB puts between merged values."""
        return b"" if self.batch.setting("stateStore.rocksdb.mergeOperatorVersion", "1") == "2" else b","

    @property
    def has_checksums(self) -> bool:
        return self.batch.setting("stateStore.rowChecksum.enabled", "false") == "true"


def open_checkpoint(
    filesystem: FileSystem, path: str, batch_id: int | None = None, given: Given = NOTHING_GIVEN
) -> Checkpoint:
    """Open the checkpoint at ``path`` as of a batch, the last committed one by default.

    Raises NotFoundError SPARK_STATE_NOT_FOUND (no checkpoint, batch not committed or purged), CorruptError
    SPARK_STATE_FILE, UnsupportedError SPARK_STATE_UNSUPPORTED (state of an unknown provider or type), InvalidInputError
    NO_ACCESS.
    """
    checkpoint = open_in(spark_folder(filesystem, path.rstrip("/") or "/").remembering(), batch_id, given)
    return replace(checkpoint, root=checkpoint.root.fresh())


def open_in(root: Folder, batch_id: int | None = None, given: Given = NOTHING_GIVEN) -> Checkpoint:
    """Open the checkpoint in a folder that remembers listings and files, as `open_checkpoint` does."""
    fetch_ahead(root, batch_id)
    begun = tuple(_begun_batches(root)) if given.uncommitted else ()
    batches = [*committed_batches(root), *begun]
    is_newest = batch_id is None
    if batch_id is None:
        if not batches:
            planned = max(root.at("offsets").numbered(), default=None)
            planned_words = "" if planned is None else f" (batch {planned} was begun)"
            raise missing(
                root.path,
                f"no committed batch{planned_words}; the option uncommitted shows state that an unfinished batch has "
                "written; or let the query commit it, and see its log if it does not",
            )
        batch_id = batches[-1]
    try:
        batch = read_batch(root, batch_id, begun)
    except CorruptError as error:
        if not is_newest:
            raise
        raise _with_older(error, root, batches, begun) from error
    operators = tuple(_operator(root, operator_id, batch, given) for operator_id in operator_ids(root))
    provider = _provider(root, batch, operators)
    return Checkpoint(root, _query_id(root), tuple(batches), batch, provider, operators, given, begun)


def _begun_batches(root: Folder) -> list[int]:
    """Ids of the batches after the newest commit of which at least one partition has its state, ascending.

    A task writes its partition's state of a batch as soon as it is done, and the query commits the batch when all are.
    A query that dies between leaves state of a batch that did not happen: it runs that batch again, perhaps with other
    rows. Spark 2.1 logged no commits, so all that it left is such state.

    Raises UnsupportedError SPARK_STATE_UNSUPPORTED for checkpoint format 2, where only a commit names the files.
    """
    last = max(committed_batches(root), default=-1)
    begun = [number for number in root.at("offsets").numbered() if number > last]
    if not begun:
        return []
    files = [file for file in _state_files(root) if file.version - 1 in begun]
    if any(file.uid is not None for file in files):
        raise unsupported(
            f"{root.path}: state of batch {begun[-1]}, which was not committed, in checkpoint format 2: only its "
            "commit names the files; leave out uncommitted"
        )
    written = {file.version - 1 for file in files}
    return [number for number in begun if number in written]


def _state_files(root: Folder) -> Iterator[DataFile]:
    for operator_id in operator_ids(root):
        operator = root.at("state", operator_id)
        for partition in (operator.at(name) for name in operator.folders() if NUMBER.fullmatch(name)):
            yield from data_files(partition)
            for name in partition.folders():
                yield from data_files(partition.at(name))


def _with_older(error: CorruptError, root: Folder, batches: Sequence[int], begun: Collection[int]) -> CorruptError:
    """The error for the logs of the newest batch, with the newest batch whose logs are whole, and how to read it."""
    for number in batches[-2 : -2 - _TOLD : -1]:
        try:
            read_batch(root, number, begun)
        except (CorruptError, NotFoundError):
            continue
        last = batches[-1]
        later = f"commits/{number + 1}" if number + 1 == last else f"commits/{number + 1} to commits/{last}"
        return CorruptError(
            error.code,
            f"{error.message}; batch {number} is the newest whose logs are whole: a copy of the checkpoint without "
            f"{later} is read as of it",
        )
    return error


def _store_folder(root: Folder, store: Store, partition: int) -> Folder:
    names = () if store.name == DEFAULT_STORE else (store.name,)
    return root.at("state", store.operator_id, partition, *names)


def _query_id(root: Folder) -> str:
    if root.is_local and "metadata" not in root.files():
        return ""
    try:
        text = read_metadata(root, "metadata").decode("utf-8", "replace")
    except NotFoundError:
        return ""
    document = parse_json(text, root.at("metadata").path)
    return str(document.get("id", "")) if isinstance(document, dict) else ""


def _provider(root: Folder, batch: Batch, operators: tuple[Operator, ...]) -> Provider:
    name = batch.setting("stateStore.providerClass", "")
    if name:
        provider = _PROVIDERS.get(name.rsplit(".", 1)[-1])
        if provider is None:
            raise unsupported(f"state store provider {name[:200]}; expected one of {', '.join(_PROVIDERS)}")
        return provider
    # The log of offsets was purged, or is older than the setting: the names of files decide.
    stores = [store for operator in operators for store in operator.stores if store.folders]
    if not stores:
        return "hdfs"
    folder = _store_folder(root, stores[0], stores[0].folders[0])
    return "rocksdb" if any(file.kind in ("zip", "changelog") for file in data_files(folder)) else "hdfs"


def _operator(root: Folder, operator_id: int, batch: Batch, given: Given) -> Operator:
    folder = root.at("state", operator_id)
    metadata = read_operator(root, operator_id, batch.batch_id)
    # After a repartition by Spark batches have different numbers of partitions, so some may not belong to this one.
    partitions = tuple(sorted(int(name) for name in folder.folders() if NUMBER.fullmatch(name)))
    entries = metadata.stores or _stores_without_metadata(folder, partitions)
    stores = tuple(
        _store(folder, operator_id, number, entry, partitions)
        or _without_schema(operator_id, number, entry, partitions, batch, given)
        for number, entry in enumerate(entries)
    )
    _check_schemas(folder, stores)
    if metadata.name in _WITH_TIMEOUTS and batch.setting("flatMapGroupsWithState.stateFormatVersion", "2") == "1":
        stores = tuple(replace(store, families=tuple(map(_with_long_timeout, store.families))) for store in stores)
    stores = tuple(
        replace(store, written=_written(root, metadata.name, store, entry.partitions)).at(batch)
        for store, entry in zip(stores, entries, strict=True)
    )
    return Operator(operator_id, metadata.name, metadata.properties, stores)


def _written(root: Folder, operator: str, store: Store, recorded: int | None) -> Written:
    keys = max((len(family.key.fields) for family in store.families), default=0)
    if operator != _LIMIT and any("key" in family.opaque for family in store.families):
        return Written(False, recorded is not None, recorded)
    if operator != _LIMIT and keys > operator.startswith("sessionWindow"):
        return Written(False, recorded is not None, recorded)
    folders = [_store_folder(root, store, number) for number in store.folders[1:]]
    root.fetch(folders)
    spread = frozenset(file.version for folder in folders for file in data_files(folder))
    return Written(True, recorded is not None, recorded, spread)


def _some(numbers: tuple[int, ...]) -> str:
    listed = ", ".join(map(str, numbers[:_TOLD])) or "none"
    return listed if len(numbers) <= _TOLD else f"{listed}, …"


def _with_long_timeout(family: FamilySchema) -> FamilySchema:
    """Correct a schema of flatMapGroupsWithState, format 1.

    It declares the last column as an integer, although Spark writes the milliseconds of a moment into it.
    """
    fields = family.value.fields
    if not fields or not family.recorded or fields[-1].name != "timeoutTimestamp":
        return family
    return replace(family, value=StructOf((*fields[:-1], replace(fields[-1], type=LONG))))


def _stores_without_metadata(folder: Folder, partitions: tuple[int, ...]) -> tuple[StoreEntry, ...]:
    if not partitions:
        return ()
    first, *others = (folder.at(partition) for partition in partitions)
    names = [
        name
        for name in first.folders()
        if name not in _OWN_FOLDERS
        # Spark 4.1's own source leaves an empty folder behind if it is asked for a store that does not exist.
        and (holds_files(first.at(name)) or any(name in other.folders() for other in others))
    ]
    return tuple(StoreEntry(name, None, None) for name in names or [DEFAULT_STORE])


def _store(
    folder: Folder, operator_id: int, number: int, entry: StoreEntry, partitions: tuple[int, ...]
) -> Store | None:
    """The store with its schema; None where there is no schema file, and none is named."""
    schemas = folder.at("_stateSchema", entry.name)
    kept = schemas.files()
    # The paths are those at which the checkpoint was written, so only the names are used.
    names = [posixpath.basename(path) for path in entry.schema_files]
    if names or kept:
        name = names[-1] if names else max(kept, key=_batch_of)
        families = read_schema_file(read_metadata(schemas, name), schemas.at(name).path)
        return Store(
            operator_id,
            entry.name,
            number,
            partitions,
            entry.prefix_columns,
            families,
            True,
            schemas.path,
            tuple(names),
        )
    first = folder.at(partitions[0] if partitions else 0, *(() if entry.name == DEFAULT_STORE else (entry.name,)))
    try:
        data = first.at("_metadata").read_small("schema")
    except NotFoundError:
        return None
    families = read_schema_file(data, first.at("_metadata", "schema").path)
    return Store(operator_id, entry.name, number, partitions, entry.prefix_columns, families, False, None)


def _without_schema(
    operator_id: int, number: int, entry: StoreEntry, partitions: tuple[int, ...], batch: Batch, given: Given
) -> Store:
    # A release that does not write the setting wrote the first form.
    matched = batch.setting(JOIN_FORM, "1") != "1"
    family = family_without_schema(given, operator_id, entry.name, matched=matched)
    return Store(operator_id, entry.name, number, partitions, entry.prefix_columns, (family,), False, None)


def _check_schemas(folder: Folder, stores: tuple[Store, ...]) -> None:
    """Raise NotFoundError SPARK_STATE_NOT_FOUND for a schema that is missing where other stores have theirs."""
    without = [store for store in stores if not store.families[0].recorded]
    lost = [store for store in without if store.families[0].opaque]
    if lost and len(without) < len(stores):
        number = lost[0].folders[0] if lost[0].folders else 0
        raise missing(folder.at(number, lost[0].name, "_metadata", "schema").path, _NO_SCHEMA)


def _batch_of(schema_file: str) -> int:
    """The batch with which a schema file's name begins; -1 for another file."""
    batch = schema_file.split("_")[0]
    return int(batch) if batch.isdecimal() else -1


def value_schemas(checkpoint: Checkpoint, store: Store, family: FamilySchema) -> dict[int, StructOf]:
    """All schemas with which values of a family were written, by id; there are several after the schema evolved.

    Raises UnsupportedError SPARK_STATE_UNSUPPORTED for schemas without ids.
    """
    if family.value_id is None:
        raise unsupported("Avro rows without ids of their schemas, as a preview of Spark 4.0 wrote them")
    schemas = {family.value_id: family.value}
    if store.schema_folder is None:
        return schemas
    folder = replace(checkpoint.root, path=store.schema_folder)
    # Files that are not listed are those of attempts that failed, whose ids may be those of other schemas.
    for name in store.schema_files or folder.files():
        for other in read_schema_file(read_metadata(folder, name), folder.at(name).path):
            if other.name == family.name and other.value_id is not None:
                schemas.setdefault(other.value_id, other.value)
    return schemas


def partition_files(checkpoint: Checkpoint, store: Store, partition: int) -> DataFiles:
    """The data files of a store's partition."""
    if partition not in store.partitions:
        raise missing(
            f"partition {partition} of operator {store.operator_id}", f"expected one of {list(store.partitions)}"
        )
    return data_files(checkpoint.folder(store, partition))


# Requests for the files that opening a checkpoint will need, made together: four waits in place of a dozen and more.
#
# No decision is made here: a file that is fetched in vain, or not fetched, only takes time.


_OF_OPERATORS = ((), ("_metadata",), ("_metadata", "v2"), ("_stateSchema",))


def fetch_ahead(root: Folder, batch_id: int | None) -> None:
    """List and read what `open_checkpoint` needs into the memory of ``root``. Does nothing for local checkpoints."""
    if root.is_local:
        return
    commits, offsets, state = root.at("commits"), root.at("offsets"), root.at("state")
    root.fetch([commits, offsets, state], [(root, "metadata")])
    batch = batch_id if batch_id is not None else max(commits.numbered(), default=0)
    wanted = [(folder, batch) for folder in (commits, offsets) if str(batch) in folder.files()]
    operators = [state.at(name) for name in state.folders() if name.isdecimal()]
    root.fetch([each.at(*names) for each in operators for names in _OF_OPERATORS], wanted)
    partitions = [first for each in operators if (first := _first_partition(each)) is not None]
    schemas = [
        folder.at(name) for each in operators for folder in [each.at("_stateSchema")] for name in folder.folders()
    ]
    metadata = [(each.at("_metadata"), "metadata") for each in operators if "metadata" in each.at("_metadata").files()]
    versions = [(v2, v2.numbered()[-1]) for each in operators for v2 in [each.at("_metadata", "v2")] if v2.numbered()]
    root.fetch(schemas or partitions, [*metadata, *versions])
    files: list[tuple[Folder, str | int]] = [(folder, name) for folder in schemas for name in folder.files()]
    stores = [] if schemas else [each for first in partitions for each in _stores(first)]
    root.fetch(stores, files or [(each.at("_metadata"), "schema") for each in stores])


def _first_partition(operator: Folder) -> Folder | None:
    numbers = [int(name) for name in operator.folders() if name.isdecimal()]
    return operator.at(min(numbers)) if numbers else None


def _stores(partition: Folder) -> list[Folder]:
    """The folders of a partition with a schema each: its own for one store, else one for each store."""
    names = partition.folders()
    return [partition] if "_metadata" in names else [partition.at(name) for name in names]

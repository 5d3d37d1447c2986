"""A copy of a checkpoint with the state of its newest batch alone: with another number of partitions, another provider
or codec, or as it was, without what older batches have left.

The newest batch gets a whole base in each partition of each store, which is all that a query that goes on from it
loads. State of older batches, which has the former number of partitions, and rows that were deleted since, is left
behind, and with it the history: of the logs there are those that Spark reads as a query starts. No batch is added, so
sinks and sources see nothing of the change.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from statestore.formats.bytes.row_bags import RowBag, bags_of_text, text_of_bags
from statestore.formats.edits import CopiedFile, EditedSource, EditOptions, MovedRows, StateEdit, StoredSide, Target
from statestore.formats.engine import Source
from statestore.formats.spark.based_partitions import Layout, PartitionGroup, groups_of, write_group
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Operator, Provider, Store
from statestore.formats.spark.checkpoint.query_metadata import PARTITIONS, SETTINGS
from statestore.formats.spark.checkpoint.state_errors import not_editable, refused
from statestore.formats.spark.checkpoint_copy import CheckpointCopy, check_newest, notes_of_successor
from statestore.formats.spark.edit_settings import EditSettings, invalid_setting
from statestore.formats.spark.edited_states import edits_of_states, unordered_states
from statestore.formats.spark.edits.copied_files import copied_files
from statestore.formats.spark.edits.packed_streams import codec_of
from statestore.formats.spark.edits.rescaled_metadata import rescaled_metadata, rescaled_paths
from statestore.formats.spark.edits.stored_edits import StoredEdit
from statestore.formats.spark.moved_partitions import MovedPartitions
from statestore.formats.spark.providers.partition_load import files_of_batch, open_partition
from statestore.formats.spark.row_places import places_of
from statestore.formats.spark.state_at import Shown, view_of
from statestore.formats.spark.stored_sides import KnownSide, Names, StoredCheckpoint, compared_families

_PROVIDER, _CODEC = f"{SETTINGS}stateStore.providerClass", f"{SETTINGS}stateStore.compression.codec"
_STRICT = "statefulOperator.useStrictDistribution"
_CLASSES: Mapping[str, str] = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_CHANGELOGS = f"{SETTINGS}stateStore.rocksdb.changelogCheckpointing.enabled"
_OF_PARTITION = re.compile(r"state/\d+/\d+/(?!(?:[^/]+/)?_metadata/)")
"""Paths of files in the folder of a partition, but for the schemas of Spark 3 that lie there."""
_OF_BATCH = re.compile(r"(offsets|commits)/\.?(\d{1,18})(\.crc)?")
_LOGGED_BEFORE = {"commits": 0, "offsets": 1}
"""How many batches before the newest one have a log in the copy. Spark reads these as a query starts."""

_Read = tuple[int, str, tuple[int, ...]]
"""A part of the writing: operator, store and partitions that it reads."""


@dataclass(frozen=True)
class SparkRescalePlan(CheckpointCopy):
    """The plan of a copy with the newest batch alone, in another layout or in the same.

    ``settings`` are those of the query that change, by their whole names, ``compared`` the families that the copy has
    as they are stored. ``read`` are their rows in the source, by operator, store and partitions that were read.
    """

    layout: Layout
    settings: Mapping[str, str]
    edits: tuple[StoredEdit, ...]
    compared: Names
    read: dict[_Read, Mapping[str, RowBag]] = field(default_factory=dict, compare=False, repr=False)

    def copied(self) -> Iterator[CopiedFile]:
        written = rescaled_paths(self.checkpoint)
        for file in copied_files(self.checkpoint.root, self.checkpoint.batch.version, written):
            if not _OF_PARTITION.match(file.path) and not _is_older(file.path, self.version):
                yield file

    def parts(self) -> Sequence[PartitionGroup]:
        return groups_of(self.checkpoint, self.layout, self.edits)

    def written_bytes(self) -> int:
        stored = sum(
            file.size
            for operator in self.checkpoint.operators
            for store in operator.stores
            for number in store.partitions
            for file in files_of_batch(open_partition(self.checkpoint, store, number, store.families[0].name))
        )
        return stored + sum(int(edit.put.nbytes) for edit in self.edits)

    def write(self, part: PartitionGroup, target: Target) -> Mapping[str, int]:
        sizes, self.read[_read_by(part)] = write_group(self.checkpoint, part, self.layout, self.compared, target)
        return sizes

    def moved(self) -> MovedRows | None:
        layout = self.layout
        return None if layout.partitions is None else MovedPartitions(self.checkpoint, layout, self.edits)

    def noted(self, part: PartitionGroup) -> str:
        return text_of_bags([self.read[_read_by(part)]])

    def note(self, part: PartitionGroup, noted: str) -> None:
        (self.read[_read_by(part)],) = bags_of_text(noted)

    def stored_sides(self, source: EditedSource, target: EditedSource) -> tuple[StoredSide, StoredSide] | None:
        """Families by the bytes of their rows: those of the source as they were read to be written, or as they are read
        now where not all were, and those of the target as they are read now, each in the partition of its hash.
        """
        copy = _checkpoint_of(target, self.target_version)
        if copy is None or not self.compared:
            return None
        form = self.layout.provider != self.checkpoint.provider, self.layout.partitions is None
        before: StoredSide = StoredCheckpoint(self.checkpoint, self.compared, *form, placed=None)
        if {_read_by(part) for part in self.parts()} <= self.read.keys():
            before = KnownSide(tuple(self.read.values()))
        return before, StoredCheckpoint(copy, self.compared, *form, placed=self.layout.partitions)

    def last_files(self, target: Target) -> Mapping[str, bytes]:
        layout = self.layout
        return rescaled_metadata(self.checkpoint, self.settings, layout.partitions, layout.uids, target.path)


def _read_by(part: PartitionGroup) -> _Read:
    return part.operator_id, part.store, part.sources


def _checkpoint_of(source: EditedSource, version: int) -> Checkpoint | None:
    """The checkpoint of a source, if it was opened as of a version."""
    found = getattr(source, "checkpoint", None)
    return found if isinstance(found, Checkpoint) and found.batch.batch_id == version else None


def _is_older(path: str, batch: int) -> bool:
    """Return whether a log is of a batch that the copy does not have, and Spark does not read."""
    found = _OF_BATCH.fullmatch(path)
    return found is not None and int(found[2]) < batch - _LOGGED_BEFORE[found[1]]


def rescaling_plan(
    checkpoint: Checkpoint,
    states: Mapping[str, Shown],
    version: int,
    edits: Sequence[StateEdit],
    options: EditOptions,
    asked: EditSettings,
    reopen: Callable[[str], Source],
) -> SparkRescalePlan:
    """The plan of a copy of the checkpoint in the layout that is asked for, with the edits.

    ``states`` are those of the source by name. Raises InvalidInputError INVALID_OPTION for settings that the checkpoint
    cannot have, EDIT_REFUSED for a batch that is not the newest; UnsupportedError EDIT_UNSUPPORTED for state whose rows
    cannot be placed or converted; and what `edits_of_states` raises.
    """
    if options.as_batch:
        raise refused(
            f"{checkpoint.root.path}: with {', '.join(asked.layout)} all state of batch {version} is written anew, and "
            "no batch follows it; leave out as_batch"
        )
    check_newest(checkpoint, version)
    provider, count = _provider(checkpoint, asked), _partitions(checkpoint, asked)
    for operator in checkpoint.operators:
        for store in operator.stores:
            _check_store(checkpoint, operator, store, provider, count)
    settings = {_PROVIDER: checkpoint.batch.settings.get(_PROVIDER, _CLASSES[provider])}
    if count is not None:
        settings[PARTITIONS] = str(count)
    if provider != checkpoint.provider:
        settings[_PROVIDER] = _CLASSES[provider]
    if asked.codec is not None:
        settings[_CODEC] = asked.codec
    changed = {name: value for name, value in settings.items() if checkpoint.batch.settings.get(name) != value}
    codec = codec_of(replace(checkpoint.batch, settings={**checkpoint.batch.settings, **settings}))
    layout = Layout(count, provider, codec, _uids(checkpoint, count))
    stored, notes = edits_of_states(checkpoint, states, edits, options)
    said = (*notes, *_notes(checkpoint, layout, asked, stored), *notes_of_successor(checkpoint))
    bags = unordered_states(checkpoint, states, edits)
    views = {name: view_of(checkpoint, shown) for name, shown in states.items()}
    shown = {name: (view.store.operator_id, view.store.name, view.family.name) for name, view in views.items()}
    touched = {(edit.operator_id, edit.store, edit.family) for edit in stored}
    compared = compared_families(checkpoint, provider, shown, touched)
    return SparkRescalePlan(checkpoint, said, reopen, bags, layout, changed, tuple(stored), compared)


def _provider(checkpoint: Checkpoint, asked: EditSettings) -> Provider:
    wanted = asked.provider or checkpoint.provider
    if wanted == "hdfs" and asked.changelogs is not None:
        raise invalid_setting(
            "changelogs", f"is given, and {checkpoint.root.path} is HDFS-backed, which has none; leave it out"
        )
    if wanted == "hdfs" and checkpoint.batch.uids:
        raise not_editable(
            f"{checkpoint.root.path} has checkpoint format 2, which only RocksDB has; it cannot become state of the "
            "HDFS-backed provider"
        )
    return wanted


def _partitions(checkpoint: Checkpoint, asked: EditSettings) -> int | None:
    """The number of partitions to which rows go; None: each stays where it is."""
    if asked.partitions is not None and PARTITIONS not in checkpoint.batch.settings:
        raise not_editable(
            f"{checkpoint.root.path}: offsets/{checkpoint.batch.batch_id} has no {PARTITIONS}, from which the query "
            "would take the number of partitions; let Spark 2.4 or later run a batch of the query"
        )
    return asked.partitions


def _check_store(
    checkpoint: Checkpoint, operator: Operator, store: Store, provider: Provider, partitions: int | None
) -> None:
    """Raise for a store whose rows cannot be read in whole, converted, or, where they move, placed."""
    where = f"store {store.name} of operator {operator.operator_id} of {checkpoint.root.path}"
    store.check_partitions(checkpoint.root.path)
    if provider != checkpoint.provider and store.has_families:
        raise not_editable(f"{where} has column families, which only RocksDB has; leave out provider")
    if partitions is None:
        return
    if store.written.single:
        if store.partitions != (0,):
            raise not_editable(
                f"{where}: one task keeps its rows, and a repartition spread them over {store.count} partitions; let "
                "the query run a batch"
            )
        return
    if store.count != checkpoint.batch.partitions:
        raise not_editable(
            f"{where} has {store.count} partitions, and the query {checkpoint.batch.partitions}: where its rows belong "
            "is not known"
        )
    if checkpoint.batch.setting(_STRICT, "false") != "true":
        raise not_editable(
            f"{where}: the query was begun before Spark 3.3, and need not place rows by the hash of their whole key"
        )
    for family in store.families:
        places_of(checkpoint, operator, store, family)


def _uids(checkpoint: Checkpoint, count: int | None) -> Mapping[str, list[list[str]]]:
    """New names of the files of each partition in checkpoint format 2."""
    found = {}
    for operator_id, listed in checkpoint.batch.uids.items():
        stores = checkpoint.operator(int(operator_id)).stores
        partitions = len(listed) if count is None or all(store.written.single for store in stores) else count
        found[operator_id] = [[str(uuid.uuid4()) for _ in listed[0]] for _ in range(partitions)]
    return found


def _notes(checkpoint: Checkpoint, layout: Layout, asked: EditSettings, edits: Sequence[StoredEdit]) -> Iterator[str]:
    batch, where = checkpoint.batch.batch_id, checkpoint.root.path
    parted = "" if layout.partitions is None else f", in {layout.partitions} partitions"
    yield (
        f"The target has the state of batch {batch} alone{parted}: state of older batches, their changes and their "
        f"history stay in {where}."
    )
    if any(len(edit.erased) for edit in edits):
        yield f"Rows that were deleted are in no file of the target; they are in {where} until you remove it."
        if "sources" in checkpoint.root.folders():
            yield (
                "Logs of sources, which name the files that the query has read, are copied as they are, as the query "
                "would read these files again without them."
            )
    if layout.provider == "rocksdb" and asked.changelogs is not None:
        yield (
            f"Spark does not keep in a checkpoint whether RocksDB writes changelogs: start the query with "
            f"{_CHANGELOGS}={str(asked.changelogs).lower()}."
        )
    if layout.provider == "hdfs" and batch:
        yield (
            "Until the query has committed as many batches as it retains (spark.sql.streaming.minBatchesToRetain, by "
            "default 100), the maintenance of the HDFS-backed provider may warn that it cannot clean up files: it "
            "looks for those of older batches. Nothing is lost, and it removes files again from then on."
        )
    if layout.uids:
        yield f"Start the query with {SETTINGS}stateStore.checkpointFormatVersion=2, as before."

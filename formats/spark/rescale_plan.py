"""A copy of a checkpoint with another number of partitions, another provider or another codec.

The newest batch gets a whole base in each partition of each store, which is all that a query that goes on from it
loads. State of older batches, which has the former number of partitions, is left behind, and with it the history. No
batch is added, so sinks and sources see nothing of the change.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from statestore.formats.edits import CopiedFile, EditOptions, EditPlan, StateEdit, Target
from statestore.formats.engine import Source
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.spark.based_partitions import Layout, PartitionGroup, groups_of, write_group
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Operator, Provider, Store
from statestore.formats.spark.checkpoint.query_metadata import PARTITIONS, SETTINGS
from statestore.formats.spark.checkpoint.state_errors import not_editable, refused
from statestore.formats.spark.edit_plan import check_newest, notes_of_successor
from statestore.formats.spark.edits.copied_files import copied_files, stages
from statestore.formats.spark.edits.packed_streams import CODECS, codec_of
from statestore.formats.spark.edits.rescaled_metadata import rescaled_metadata, rescaled_paths
from statestore.formats.spark.providers.partition_load import files_of_batch, open_partition
from statestore.formats.spark.row_places import places_of

_PROVIDER, _CODEC = f"{SETTINGS}stateStore.providerClass", f"{SETTINGS}stateStore.compression.codec"
_STRICT = "statefulOperator.useStrictDistribution"
_CLASSES: Mapping[str, str] = {
    "hdfs": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
_CHANGELOGS = f"{SETTINGS}stateStore.rocksdb.changelogCheckpointing.enabled"
_MOST_PARTITIONS = 100_000
_COUNT = re.compile(r"[1-9][0-9]{0,5}")
_OF_PARTITION = re.compile(r"state/\d+/\d+/(?!(?:[^/]+/)?_metadata/)")
"""Paths of files in the folder of a partition, but for the schemas of Spark 3 that lie there."""


@dataclass(frozen=True)
class SparkRescalePlan(EditPlan):
    """The plan of a copy with another layout, of a checkpoint that was opened as of its newest batch.

    ``settings`` are those of the query that change, by their whole names. ``reopen`` opens the checkpoint at a path.
    """

    checkpoint: Checkpoint
    layout: Layout
    settings: Mapping[str, str]
    said: tuple[str, ...]
    reopen: Callable[[str], Source]

    @property
    def version(self) -> int:
        return self.checkpoint.batch.batch_id

    @property
    def target_version(self) -> int:
        return self.version

    @property
    def notes(self) -> Sequence[str]:
        return self.said

    def copied(self) -> Iterator[CopiedFile]:
        written = rescaled_paths(self.checkpoint)
        for file in copied_files(self.checkpoint.root, self.checkpoint.batch.version, written):
            if not _OF_PARTITION.match(file.path):
                yield file

    def parts(self) -> Sequence[PartitionGroup]:
        return groups_of(self.checkpoint, self.layout)

    def written_bytes(self) -> int:
        return sum(
            file.size
            for operator in self.checkpoint.operators
            for store in operator.stores
            for number in store.partitions
            for file in files_of_batch(open_partition(self.checkpoint, store, number, store.families[0].name))
        )

    def write(self, part: PartitionGroup, target: Target) -> Mapping[str, int]:
        return write_group(self.checkpoint, part, self.layout, target)

    def finish(self, target: Target) -> Mapping[str, int]:
        """Write the metadata, and the newest commit last of all: without it, the batch is not committed."""
        layout = self.layout
        made = rescaled_metadata(self.checkpoint, self.settings, layout.partitions, layout.uids, target.path)
        for path, content in made.items():
            with target.create(path) as stream:
                stream.write(content)
        return {path: len(content) for path, content in made.items()}

    def stages(self) -> Sequence[Sequence[str]]:
        return stages(self.checkpoint.root, self.target_version)

    def opened(self, path: str) -> Source:
        return self.reopen(path)


def rescaling_plan(
    checkpoint: Checkpoint,
    version: int,
    edits: Sequence[StateEdit],
    options: EditOptions,
    reopen: Callable[[str], Source],
) -> SparkRescalePlan:
    """The plan of a copy of the checkpoint with the settings of the options: ``partitions`` (a number), ``provider``
    (hdfs or rocksdb), ``codec`` (of state files), ``changelogs`` (true or false, of RocksDB).

    Raises InvalidInputError INVALID_OPTION for other values, EDIT_REFUSED for a batch that is not the newest, or
    rows to be edited along; UnsupportedError EDIT_UNSUPPORTED for state whose rows cannot be placed or converted.
    """
    where = checkpoint.root.path
    if edits:
        raise refused(
            f"{where}: rows cannot be edited along with the settings {', '.join(options.settings)}; make two edits: "
            "one of rows, and one of settings, of its target"
        )
    if options.as_batch:
        raise refused(
            f"{where}: other settings are those of batch {version}, and no batch of their own; leave out as_batch"
        )
    check_newest(checkpoint, version)
    asked = _asked(options.settings)
    provider, count = _provider(checkpoint, asked), _partitions(checkpoint, asked)
    for operator in checkpoint.operators:
        for store in operator.stores:
            _check_store(checkpoint, operator, store, provider)
    settings = {PARTITIONS: str(count), _PROVIDER: checkpoint.batch.settings.get(_PROVIDER, _CLASSES[provider])}
    if provider != checkpoint.provider:
        settings[_PROVIDER] = _CLASSES[provider]
    if "codec" in asked:
        settings[_CODEC] = asked["codec"]
    changed = {name: value for name, value in settings.items() if checkpoint.batch.settings.get(name) != value}
    codec = codec_of(replace(checkpoint.batch, settings={**checkpoint.batch.settings, **settings}))
    layout = Layout(count, provider, codec, _uids(checkpoint, count))
    notes = (*_notes(checkpoint, layout, asked), *notes_of_successor(checkpoint))
    return SparkRescalePlan(checkpoint, layout, changed, notes, reopen)


def _asked(settings: Mapping[str, str]) -> Mapping[str, str]:
    """The settings, each with a value that it can have."""
    allowed = {"provider": tuple(_CLASSES), "changelogs": ("true", "false"), "codec": CODECS}
    for name, value in settings.items():
        if name == "partitions":
            if not _COUNT.fullmatch(value) or int(value) > _MOST_PARTITIONS:
                raise _invalid(name, f"is {shown(value)}; expected a number from 1 to {_MOST_PARTITIONS}")
        elif value not in allowed[name]:
            raise _invalid(name, f"is {shown(value)}; expected one of {', '.join(allowed[name])}")
    if "changelogs" in settings and settings.get("provider", "rocksdb") != "rocksdb":
        raise _invalid("changelogs", "is given, and only RocksDB has them; leave it out, or choose provider rocksdb")
    return settings


def _invalid(name: str, problem: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.INVALID_OPTION, f"option {name} {problem}")


def _provider(checkpoint: Checkpoint, asked: Mapping[str, str]) -> Provider:
    wanted: Provider = checkpoint.provider
    if asked.get("provider") == "hdfs":
        wanted = "hdfs"
    elif asked.get("provider") == "rocksdb":
        wanted = "rocksdb"
    if wanted == "hdfs" and "changelogs" in asked:
        raise _invalid(
            "changelogs", f"is given, and {checkpoint.root.path} is HDFS-backed, which has none; leave it out"
        )
    if wanted == "hdfs" and checkpoint.batch.uids:
        raise not_editable(
            f"{checkpoint.root.path} has checkpoint format 2, which only RocksDB has; it cannot become state of the "
            "HDFS-backed provider"
        )
    return wanted


def _partitions(checkpoint: Checkpoint, asked: Mapping[str, str]) -> int:
    found = checkpoint.batch.partitions
    if found is None or PARTITIONS not in checkpoint.batch.settings:
        raise not_editable(
            f"{checkpoint.root.path}: offsets/{checkpoint.batch.batch_id} has no {PARTITIONS}, from which the query "
            "would take the number of partitions; let Spark 2.4 or later run a batch of the query"
        )
    return int(asked.get("partitions", found))


def _check_store(checkpoint: Checkpoint, operator: Operator, store: Store, provider: Provider) -> None:
    """Raise for a store whose rows cannot be read in whole, placed, or converted."""
    where = f"store {store.name} of operator {operator.operator_id} of {checkpoint.root.path}"
    store.check_partitions(checkpoint.root.path)
    if provider != checkpoint.provider and store.has_families:
        raise not_editable(f"{where} has column families, which only RocksDB has; leave out provider")
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


def _uids(checkpoint: Checkpoint, count: int) -> Mapping[str, list[list[str]]]:
    """New names of the files of each partition in checkpoint format 2."""
    found = {}
    for operator_id, listed in checkpoint.batch.uids.items():
        stores = checkpoint.operator(int(operator_id)).stores
        partitions = len(listed) if all(store.written.single for store in stores) else count
        found[operator_id] = [[str(uuid.uuid4()) for _ in listed[0]] for _ in range(partitions)]
    return found


def _notes(checkpoint: Checkpoint, layout: Layout, asked: Mapping[str, str]) -> Iterator[str]:
    batch = checkpoint.batch.batch_id
    yield (
        f"The target has the state of batch {batch} alone, in {layout.partitions} partitions: state of older batches, "
        f"their changes and their history stay in {checkpoint.root.path}."
    )
    if layout.provider == "rocksdb" and "changelogs" in asked:
        yield (
            f"Spark does not keep in a checkpoint whether RocksDB writes changelogs: start the query with "
            f"{_CHANGELOGS}={asked['changelogs']}."
        )
    if layout.provider == "hdfs" and batch:
        yield (
            "Until the query has committed as many batches as it retains (spark.sql.streaming.minBatchesToRetain, by "
            "default 100), the maintenance of the HDFS-backed provider may warn that it cannot clean up files: it "
            "looks for those of older batches. Nothing is lost, and it removes files again from then on."
        )
    if layout.uids:
        yield f"Start the query with {SETTINGS}stateStore.checkpointFormatVersion=2, as before."

"""The change feed of Spark's own state source as a `Source` with one state: what each batch wrote to a store.

Its columns are batch_id, change_type, and those of the state view; ``change_type`` is update, delete (the value is
null) or append (to a list). The feed is one bag of rows, which has one version, that of the last batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statestore.formats.engine import Source, StateAt, StateFile, StateInfo, StateSize, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.locations import Location
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.query_metadata import Batch, moves_rows
from statestore.formats.spark.checkpoint.spark_schema import renamed, unique_fields
from statestore.formats.spark.checkpoint.state_errors import unsupported
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.providers.file_records import DELETE, MERGE, PUT, Changes
from statestore.formats.spark.providers.partition_load import (
    Partition,
    has_change_file,
    open_partition,
    uid_of,
    version_changes,
)
from statestore.formats.spark.readable_batches import read_batches
from statestore.formats.spark.state_columns import Decoder, decode_columns, decoder_of
from statestore.formats.spark.state_rows import row_form
from statestore.formats.values.filters import Filter


@dataclass(frozen=True)
class FeedPart:
    """One partition of all batches."""

    partition: int

    @property
    def rows(self) -> None:
        """Always None: unknown until it is read."""


@dataclass(frozen=True)
class FeedSource(Source):
    """The changes of the batches from ``first`` to the batch of ``checkpoint``."""

    location: Location
    checkpoint: Checkpoint
    state_view: StateView
    first: int
    name: str

    @property
    def path(self) -> str:
        return str(self.location)

    @property
    def identity(self) -> str:
        return self.checkpoint.query_id

    @property
    def version_words(self) -> tuple[str, str]:
        return "batch", "batches"

    def states(self) -> Sequence[str]:
        return [self.name]

    def info(self, state: str) -> StateInfo:
        """The feed's only state. It is a bag: a batch may write a key several times."""
        return StateInfo(state, "change feed", unique_fields(feed_schema(self.state_view)), (), ())

    def newest(self, state: str) -> int:
        return self.checkpoint.batch.batch_id

    def kept(self, state: str) -> Sequence[int]:
        return range(self.first, self.newest(state) + 1)

    def check_readable(self, state: str, version: int) -> None:
        """Raise InvalidInputError STATE_SELECTION for any version but the only one, to which doors pin a read."""
        if version != self.newest(state):
            raise _no_moments()

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        raise _no_moments()

    def no_time(self, state: str, version: int) -> NotFoundError:
        raise _no_moments()

    def is_origin(self, state: str) -> bool:
        return self.first == 0

    def at(self, state: str, version: int) -> FeedAt:
        return FeedAt(self)

    def shared_schema(self, state: str) -> pa.Schema:
        raise _no_moments()

    def size(self, state: str) -> StateSize:
        raise _no_moments()


@dataclass(frozen=True)
class FeedAt(StateAt):
    """The feed as of its only version."""

    source: FeedSource

    @property
    def version(self) -> int:
        return self.source.checkpoint.batch.batch_id

    @property
    def schema(self) -> pa.Schema:
        return unique_fields(feed_schema(self.source.state_view))

    def parts(self, filters: Sequence[Filter]) -> Sequence[FeedPart]:
        source = self.source
        partitions = partitions_of_feed(source.checkpoint, source.state_view, source.first, self.version)
        return [FeedPart(partition) for partition in partitions]

    def rows(self, part: FeedPart, columns: Collection[str], filters: Sequence[Filter]) -> Iterator[pa.RecordBatch]:
        source = self.source
        return map(
            renamed, read_changes(source.checkpoint, source.state_view, part.partition, source.first, self.version)
        )

    def files(self) -> Iterator[StateFile]:
        raise _no_moments()


def _no_moments() -> InvalidInputError:
    return InvalidInputError(
        ErrorCode.STATE_SELECTION,
        "option changeStartBatchId asks for the changes of batches; it does not go with options that ask for a "
        "version, a time or the history",
    )


# Changes of batches in the order of their writes: Spark's own change feed (``readChangeFeed`` of its state source).
#
#     batch_id, change_type, the columns of the state view, partition_id
#
# ``change_type`` is ``update`` (a put), ``delete`` (the value is null) or ``append`` (a merge: entries added to a
# list). It needs the delta or changelog of each batch: RocksDB checkpoints without changelogs have no feed. A batch
# with which Spark repartitioned the state wrote all of it anew and changed none of it.


_TYPES = {PUT: "update", DELETE: "delete", MERGE: "append"}
_CODES = np.zeros(256, np.int8)
_CODES[list(_TYPES)] = np.arange(len(_TYPES))


def feed_schema(state_view: StateView) -> pa.Schema:
    """The Arrow schema of a state view's change feed."""
    state_view = _by_element(state_view)
    return pa.schema([pa.field("batch_id", pa.int64()), pa.field("change_type", pa.string()), *state_view.schema])


def read_changes(
    checkpoint: Checkpoint, state_view: StateView, partition: int, first_batch: int, last_batch: int
) -> Iterator[pa.RecordBatch]:
    """The changes of the batches from ``first_batch`` to ``last_batch``, both included, to one partition.

    Raises NotFoundError SPARK_STATE_NOT_FOUND for batches that are not committed or whose files are gone,
    InvalidInputError SPARK_STATE_RANGE, UnsupportedError SPARK_STATE_UNSUPPORTED for maps that are not flat, and
    CorruptError SPARK_STATE_FILE or SPARK_STATE_ROW.
    """
    if not 0 <= first_batch <= last_batch:
        asked = f"found batches {first_batch} to {last_batch}"
        raise InvalidInputError(
            ErrorCode.SPARK_STATE_RANGE, f"change feed: {asked}; expected a first batch from 0 to the last one"
        )
    if state_view.shape == "map" and not state_view.flat:
        raise unsupported("a change feed of whole maps; read the map flat, as it changes entry by entry")
    state_view = _by_element(state_view)
    decoder = decoder_of(checkpoint, state_view, row_form(checkpoint, state_view), partition=partition)
    batches = batches_of_feed(checkpoint, first_batch, last_batch)
    for written in _runs(checkpoint, state_view, partition, batches, first_batch):
        source, ids = written[0][0], {batch.version: batch.batch_id for _, batch in written}
        versions = [(batch.version, uid_of(source, batch.uids)) for _, batch in written]
        for run in version_changes(source, versions):
            if len(run.changes):
                numbers = np.repeat(np.array([ids[file.version] for file in run.files], np.int64), run.counts)
                yield _feed(decoder, run.changes, numbers, partition)


def _runs(
    checkpoint: Checkpoint, state_view: StateView, partition: int, batches: Sequence[Batch], first_batch: int
) -> Iterator[list[tuple[Partition, Batch]]]:
    """Yield the batches that wrote to a partition, those together that follow each other in a partition as it was."""
    run: list[tuple[Partition, Batch]] = []
    before: Batch | None = None
    for batch in batches:
        store = state_view.store.at(batch)
        if batch.batch_id >= first_batch and partition in store.partitions:
            if run and run[-1][0].store is store:
                source = run[-1][0]
            else:
                source = open_partition(replace(checkpoint, batch=batch), store, partition, state_view.family.name)
            if _has_changes(source, before, batch):
                if run and (run[-1][0] is not source or run[-1][1].version + 1 != batch.version):
                    yield run
                    run = []
                run.append((source, batch))
        before = batch
    if run:
        yield run


def _has_changes(source: Partition, before: Batch | None, batch: Batch) -> bool:
    """Return whether a batch has changes, or lacks a file that must be there."""
    if before is not None and before.version == batch.version:  # it was skipped
        return False
    return not moves_rows(before, batch) or has_change_file(source, batch.version, uid_of(source, batch.uids))


def batches_of_feed(checkpoint: Checkpoint, first_batch: int, last_batch: int) -> list[Batch]:
    """The batches of a feed, preceded by the batch before them, if it is kept.

    Only a comparison with it shows whether the first batch repartitioned the state. Raises NotFoundError
    SPARK_STATE_NOT_FOUND for batches that are not committed.
    """
    before = [first_batch - 1] if first_batch - 1 in checkpoint.batches else []
    return read_batches(checkpoint, [*before, *range(first_batch, last_batch + 1)])


def partitions_of_feed(checkpoint: Checkpoint, state_view: StateView, first_batch: int, last_batch: int) -> list[int]:
    """All partitions of the batches of a feed. Raises NotFoundError SPARK_STATE_NOT_FOUND if one is missing."""
    partitions: set[int] = set()
    for batch in batches_of_feed(checkpoint, first_batch, last_batch):
        if batch.batch_id >= first_batch:
            store = state_view.store.at(batch)
            store.check_partitions(checkpoint.root.path)
            partitions.update(store.partitions)
    return sorted(partitions)


def _by_element(state_view: StateView) -> StateView:
    """The state view whose changes are listed: single elements for a list, as in Spark."""
    return replace(state_view, flat=True) if state_view.shape == "list" else state_view


def _feed(decoder: Decoder, changes: Changes, batch_ids: Ints, partition: int) -> pa.RecordBatch:
    deleted = changes.kind == DELETE
    decoded = decode_columns(decoder, changes.keys, changes.values, deleted if deleted.any() else None)
    kinds = changes.kind
    if decoded.rows is not None:
        # A list that is put is an update and, from its second element on, appends, as in Spark.
        again = np.concatenate(([False], decoded.rows[1:] == decoded.rows[:-1]))[: len(decoded.rows)]
        kinds = np.where(again & (kinds[decoded.rows] == PUT), MERGE, kinds[decoded.rows])
        batch_ids = batch_ids[decoded.rows]
    types = pa.DictionaryArray.from_arrays(pa.array(_CODES[kinds]), pa.array(list(_TYPES.values()))).cast(pa.string())
    batches = pa.array(batch_ids)
    partitions = pa.array(np.full(len(kinds), partition, np.int32))
    return pa.RecordBatch.from_arrays(
        [batches, types, *decoded.columns, partitions], schema=feed_schema(decoder.state_view)
    )

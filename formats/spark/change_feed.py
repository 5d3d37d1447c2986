"""Changes of batches in the order of their writes: Spark's own change feed (``readChangeFeed`` of its state source).

    batch_id, change_type, the columns of the state view, partition_id

``change_type`` is ``update`` (a put), ``delete`` (the value is null) or ``append`` (a merge: entries added to a list).
It needs the delta or changelog of each batch: RocksDB checkpoints without changelogs have no feed. A batch with which
Spark repartitioned the state wrote all of it anew and changed none of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.query_metadata import Batch, moves_rows
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
    decoder = decoder_of(checkpoint, state_view, row_form(checkpoint, state_view))
    before: Batch | None = None
    for batch in batches_of_feed(checkpoint, first_batch, last_batch):
        store = state_view.store.at(batch)
        if batch.batch_id >= first_batch and partition in store.partitions:
            source = open_partition(replace(checkpoint, batch=batch), store, partition, state_view.family.name)
            for changes in _written(source, before, batch):
                if len(changes):
                    yield _feed(decoder, changes, batch.batch_id, partition)
        before = batch


def _written(source: Partition, before: Batch | None, batch: Batch) -> Iterator[Changes]:
    uid = uid_of(source, batch.uids)
    was_skipped = before is not None and before.version == batch.version
    if was_skipped or (moves_rows(before, batch) and not has_change_file(source, batch.version, uid)):
        return iter(())
    return version_changes(source, batch.version, uid)


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


def _feed(decoder: Decoder, changes: Changes, batch_id: int, partition: int) -> pa.RecordBatch:
    deleted = changes.kind == DELETE
    decoded = decode_columns(decoder, changes.keys, changes.values, deleted if deleted.any() else None)
    kinds = changes.kind
    if decoded.rows is not None:
        # A list that is put is an update and, from its second element on, appends, as in Spark.
        again = np.concatenate(([False], decoded.rows[1:] == decoded.rows[:-1]))[: len(decoded.rows)]
        kinds = np.where(again & (kinds[decoded.rows] == PUT), MERGE, kinds[decoded.rows])
    types = pa.DictionaryArray.from_arrays(pa.array(_CODES[kinds]), pa.array(list(_TYPES.values()))).cast(pa.string())
    batches = pa.array(np.full(len(kinds), batch_id, np.int64))
    partitions = pa.array(np.full(len(kinds), partition, np.int32))
    return pa.RecordBatch.from_arrays(
        [batches, types, *decoded.columns, partitions], schema=feed_schema(decoder.state_view)
    )

"""Rows that one batch wrote to a state, from the delta or changelog of each partition alone.

A stored key that the batch wrote several times is written once: with its last value, or as deleted. Values that it
added to a list which it did not write anew are appended to what the list had before, which no file of the batch says.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.hash_passes import HashPass, HashRange
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.kernels.compiled_use import load_if_it_pays
from statestore.formats.places.folder import PARALLEL_REQUESTS
from statestore.formats.places.reading_threads import in_order
from statestore.formats.spark.checkpoint.checkpoint_files import DataFile
from statestore.formats.spark.checkpoint.query_metadata import Batch, moves_rows
from statestore.formats.spark.checkpoint.spark_schema import renamed
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.checkpoint.state_views import NUMBER, number_within_key, row_key, state_fields
from statestore.formats.spark.providers.bulk_replay import changes_kept, fitted, stored_passes
from statestore.formats.spark.providers.file_records import DELETE, MERGE, PUT
from statestore.formats.spark.providers.partition_load import (
    Partition,
    hashes_of_keys,
    open_partition,
    uid_of,
    version_changes,
)
from statestore.formats.spark.providers.replay import Overlay, overlay_of, rows_in_batches
from statestore.formats.spark.state_at import CheckpointAt
from statestore.formats.spark.state_columns import Decoded, Decoder, decode_columns, decoder_of
from statestore.formats.spark.state_rows import row_form
from statestore.formats.written import APPEND, REMOVE, WRITE, Written
from statestore.formats.written import PUT as PUT_ROWS

_WRITES = np.full(256, -1, np.int8)
_WRITES[[PUT, DELETE, MERGE]] = PUT_ROWS, REMOVE, APPEND


_MOST_BYTES = 1 << 20  # of files of changes that are read together, or held


@dataclass(frozen=True)
class WritesPart:
    """The writes of a batch to some partitions with small files of changes, or to one."""

    partitions: tuple[int, ...]

    @property
    def rows(self) -> None:
        """Always None: unknown until it is read."""


@dataclass(frozen=True)
class BatchWrites(Written):
    """The writes of a batch; ``at`` is the state as of it."""

    at: CheckpointAt
    pieces: tuple[WritesPart, ...]

    @property
    def group(self) -> tuple[str, ...]:
        """The row key; where rows are numbered the key, and the number unless all rows of a key are written at once."""
        view = self.at.state_view
        return row_key(view) or (("key",) if view.listed else ("key", NUMBER.name))

    def parts(self) -> Sequence[WritesPart]:
        return self.pieces

    def rows(self, part: WritesPart) -> Iterator[pa.RecordBatch]:
        first, *others = part.partitions
        if not others:
            yield from self._of_partition(first)
            return
        threads = 1 if self.at.checkpoint.root.is_local else PARALLEL_REQUESTS
        for found in in_order(lambda number: list(self._of_partition(number)), part.partitions, threads):
            yield from found

    def _of_partition(self, number: int) -> Iterator[pa.RecordBatch]:
        checkpoint, view = self.at.checkpoint, self.at.state_view
        numbered = number_within_key(view)
        names = [field.name for field in state_fields(view)] + ([numbered] if numbered else [])
        decoder = decoder_of(checkpoint, view, row_form(checkpoint, view), names, partition=number)
        partition = open_partition(checkpoint, view.store, number, view.family.name)
        for newest in _newest(partition):
            for some in rows_in_batches(newest, np.arange(len(newest.kind))):
                yield _batch(decoder, newest, some)

    def explain_loss(self, error: StateStoreError, state: str, versions: Sequence[int]) -> StateStoreError:
        return self.at.explain_loss(error, state, versions)

    def explain_damage(self, error: CorruptError, state: str) -> CorruptError:
        return self.at.explain_damage(error, state)


def writes_of(at: CheckpointAt, before: Batch | None) -> BatchWrites | None:
    """The writes of the batch of ``at``, which follows ``before``; that is None where its logs are gone.

    None where a partition has no file of changes, or not the same partitions as before: rows may then have come, gone
    or moved that no file of changes tells of. Raises as `open_partition`.
    """
    batch, store = at.checkpoint.batch, at.state_view.store
    if at.shown.snapshot is not None or not at.state_view.flat or store.absent:
        return None
    if before is None:
        if batch.version != batch.batch_id + 1 or store.folders != store.partitions:
            return None
    elif before.version == batch.version:
        return BatchWrites(at, ())  # it was skipped
    elif (
        before.version + 1 != batch.version
        or moves_rows(before, batch)
        or store.at(before).partitions != store.partitions
    ):
        return None
    at.checkpoint.list_partitions(store, store.partitions)
    sizes = {}
    for number in store.partitions:
        file = _change_file(open_partition(at.checkpoint, store, number, at.state_view.family.name))
        if file is None:
            return None
        sizes[number] = file.size
    return BatchWrites(at, tuple(_pieces(sizes)))


def _pieces(sizes: Mapping[int, int]) -> Iterator[WritesPart]:
    """Yield the partitions, those with small files of changes together; ``sizes`` are those of the files."""
    together: list[int] = []
    size = 0
    for number, own in sizes.items():
        if together and size + own > _MOST_BYTES:
            yield WritesPart(tuple(together))
            together, size = [], 0
        together.append(number)
        size += own
    if together:
        yield WritesPart(tuple(together))


def _change_file(partition: Partition) -> DataFile | None:
    """The delta or changelog of the checkpoint's batch."""
    batch = partition.checkpoint.batch
    return partition.change_files.get((batch.version, uid_of(partition, batch.uids)))


def _hold(partition: Partition, file: DataFile) -> None:
    """Keep a changelog that has the changes of several states in memory for the others, and that of no other batch."""
    folder = partition.folder
    if folder.seen is None or not partition.store.has_families or file.size > _MOST_BYTES:
        return
    if posixpath.join(folder.path, file.name) in folder.seen.files:
        return
    for other in partition.change_files.values():
        folder.seen.files.pop(posixpath.join(folder.path, other.name), None)
    with suppress(StateStoreError):  # the read of the changes reports it
        folder.read_small(file.name)


def _newest(partition: Partition) -> Iterator[Overlay]:
    """Yield the newest change of each key in the file of changes; those of some keys at a time if they are many."""
    checkpoint = partition.checkpoint
    version, uid = checkpoint.batch.version, uid_of(partition, checkpoint.batch.uids)
    if (file := _change_file(partition)) is not None:
        load_if_it_pays(file.size)
        _hold(partition, file)

    def overlay(part: HashPass) -> Overlay:
        changes = (changes_kept(part.kept, run.changes) for run in version_changes(partition, [(version, uid)]))
        return overlay_of(changes, checkpoint.delimiter, partial(fitted, part))

    for _, newest in stored_passes(HashRange(hashes_of_keys(partition.store)), overlay):
        yield newest
        del newest


def _batch(decoder: Decoder, newest: Overlay, rows: Ints) -> pa.RecordBatch:
    keys, values = cells_of(newest.keys).select(rows), cells_of(newest.values).select(rows)
    kind, found = _decoded(decoder, keys, values, newest.kind[rows])
    stored = pa.schema(state_fields(decoder.state_view))
    shown = renamed(pa.RecordBatch.from_arrays(found.columns, schema=stored))
    columns, fields = [pa.array(kind), *shown.columns], [pa.field(WRITE, pa.int8()), *shown.schema]
    if found.numbers is not None:
        unnumbered = (kind == REMOVE) & decoder.state_view.listed
        columns.append(pa.array(found.numbers, mask=unnumbered))
        fields.append(NUMBER)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _decoded(
    decoder: Decoder, keys: Cells, values: Cells, kind: npt.NDArray[np.uint8]
) -> tuple[npt.NDArray[np.int8], Decoded]:
    """The write of each row, and the rows; a list that is put without an element is removed."""
    if not decoder.state_view.listed and (kind == MERGE).any():
        raise corrupt_row(f"found values added to values of {decoder.state_view.name}, which is no list")
    deleted = kind == DELETE
    found = decode_columns(decoder, keys, values, deleted if deleted.any() else None)
    if found.rows is None:
        return _WRITES[kind], found
    without = np.ones(len(kind), np.bool_)
    without[found.rows] = False
    without &= kind == PUT
    if without.any():
        return _decoded(decoder, keys, values, np.where(without, np.uint8(DELETE), kind))
    return _WRITES[kind[found.rows]], found

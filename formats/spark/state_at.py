"""The rows of one state as of one batch: a `StateAt`, in parts that are partitions or keys to look up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from statestore.formats.engine import (
    Part,
    Placement,
    StateAt,
    StateFile,
)
from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.locations import Location
from statestore.formats.places.reading_threads import are_for_tasks, processors, reading_threads
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Store
from statestore.formats.spark.checkpoint.spark_schema import renamed, unique_fields
from statestore.formats.spark.checkpoint.state_views import (
    PARTITION,
    StateView,
    find_state_view,
)
from statestore.formats.spark.key_lookup import placement_hashes
from statestore.formats.spark.providers.change_files import is_covered
from statestore.formats.spark.providers.partition_load import Partition, files_of_batch, open_partition
from statestore.formats.spark.providers.partition_splits import split_partition
from statestore.formats.spark.providers.stored_rows import KeyBounds
from statestore.formats.spark.read_parts import LookupPart, lookup_parts, read_lookup
from statestore.formats.spark.readable_batches import (
    explained,
    explained_damage,
)
from statestore.formats.spark.rows.key_placement import partition_of
from statestore.formats.spark.state_rows import (
    Made,
    read_state,
    read_unsafe,
    state_decoder,
    unsafe_columns,
    unsafe_decoder,
)
from statestore.formats.spark.state_size import rows_of
from statestore.formats.values.filters import Filter, mask
from statestore.formats.values.without_pandas import arrow_numbers

_OF_ROCKSDB = ("zip", "table")


@dataclass(frozen=True)
class Shown:
    """The state view of an operator that a state of a source shows.

    ``snapshot``: (batch, partition); the state is built on the snapshot of this batch, and only that partition is read.
    """

    operator_id: int
    view_name: str
    kind: str
    flat: bool = True
    snapshot: tuple[int, int] | None = None


@dataclass(frozen=True)
class PartitionPart:
    """One partition, or a part of a large one: the rows whose stored keys are within ``keys``, [from, to)."""

    partition: int
    keys: KeyBounds = (None, None)

    @property
    def rows(self) -> None:
        """Always None: unknown until it is read."""


@dataclass(frozen=True)
class CheckpointAt(StateAt):
    """One state as of one batch."""

    location: Location
    checkpoint: Checkpoint
    state_view: StateView
    shown: Shown

    @property
    def version(self) -> int:
        return self.checkpoint.batch.batch_id

    @property
    def schema(self) -> pa.Schema:
        return unique_fields(self.state_view.schema)

    def parts(self, filters: Sequence[Filter]) -> Sequence[Part]:
        """The parts to read: keys to look up, or partitions.

        Large partitions are split where they are read side by side and are fewer than the processors.
        """
        partitions = self.chosen_partitions(self.state_view.store, filters)
        if self.shown.snapshot is None:
            lookups = lookup_parts(self.checkpoint, self.state_view, partitions, filters)
            if lookups is not None:
                return lookups
        if not are_for_tasks():
            self.checkpoint.list_partitions(self.state_view.store, partitions)
        return list(self._partition_parts(partitions))

    def rows(
        self, part: PartitionPart | LookupPart, columns: Collection[str], filters: Sequence[Filter]
    ) -> Iterator[pa.RecordBatch]:
        return self.rows_with_fields(part, columns, {}, filters)

    def rows_with_fields(
        self,
        part: PartitionPart | LookupPart,
        columns: Collection[str],
        fields: Mapping[str, Collection[str]],
        filters: Sequence[Filter],
    ) -> Iterator[pa.RecordBatch]:
        if isinstance(part, LookupPart):

            def decoder(partition: int | Ints) -> Made:
                return state_decoder(self.checkpoint, self.state_view, partition, columns, fields)

            return map(renamed, read_lookup(self.checkpoint, self.state_view, part, decoder))
        read = partial(read_state, self.checkpoint, self.state_view, columns=columns, fields=fields)
        return map(renamed, self._of_part(part, read))

    @property
    def unsafe_columns(self) -> tuple[str, ...]:
        return unsafe_columns(self.checkpoint, self.state_view)

    def has_checksum(self, file: StateFile) -> bool | None:
        if file.role in _OF_ROCKSDB or self.checkpoint.has_checksums:
            return True
        *folders, name = file.name.split("/")
        return is_covered(self.checkpoint.root.at(*folders), name)

    def placement(self, part: PartitionPart | LookupPart) -> Placement | None:
        if isinstance(part, LookupPart) or not self.state_view.store.count:
            return None
        from statestore.formats.spark.misplaced_keys import placement_check

        return placement_check(self.checkpoint, self.state_view, part.partition)

    def unsafe_rows(
        self,
        part: PartitionPart | LookupPart,
        columns: Sequence[str],
        unsafe: Collection[str],
        filters: Sequence[Filter],
    ) -> Iterator[pa.RecordBatch]:
        def decoder(partition: int | Ints) -> Made:
            return unsafe_decoder(self.checkpoint, self.state_view, partition, columns, unsafe, filters)

        if isinstance(part, LookupPart):
            return read_lookup(self.checkpoint, self.state_view, part, decoder)
        read = partial(read_unsafe, self.checkpoint, self.state_view, columns=columns, unsafe=unsafe, filters=filters)
        return self._of_part(part, read)

    def rows_of_partition(self, columns: Collection[str], partition: int) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition."""
        return self.rows(PartitionPart(partition), columns, ())

    def _of_part(self, part: PartitionPart, read: Callable[..., Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
        ranges = None if part.keys == (None, None) else [part.keys]
        base = None if self.shown.snapshot is None else self.shown.snapshot[0] + 1
        return read(partition=part.partition, base_version=base, key_ranges=ranges)

    def count(self) -> int | None:
        return None if self.shown.snapshot is not None else rows_of(self.checkpoint, self.state_view)

    def files(self) -> Iterator[StateFile]:
        for partition in self._partitions():
            for file in files_of_batch(partition):
                version = file.version - 1 if file.version else None
                yield StateFile(f"{_folder(partition)}/{file.name}", file.kind, file.size, None, version, version)

    def total_bytes(self) -> int:
        return sum(file.size for partition in self._partitions() for file in files_of_batch(partition))

    def _partitions(self) -> Iterator[Partition]:
        for number in self.state_view.store.partitions:
            yield open_partition(self.checkpoint, self.state_view.store, number, self.state_view.family.name)

    def explain_loss(self, error: StateStoreError, state: str, versions: Sequence[int]) -> StateStoreError:
        return explained(error, self.location, self.state_view, versions)

    def explain_damage(self, error: CorruptError, state: str) -> CorruptError:
        return explained_damage(error, self.location, self.state_view)

    def chosen_partitions(self, store: Store, filters: Sequence[Filter]) -> tuple[int, ...]:
        """The partitions that filters leave: those on their number, and those that name whole keys."""
        snapshot = self.shown.snapshot
        partitions = (*store.partitions, *store.absent) if snapshot is None else (snapshot[1],)
        pruning = tuple(item for item in filters if item.column == PARTITION.name)
        if pruning:
            numbers = pa.RecordBatch.from_arrays(
                [arrow_numbers(np.array(partitions, np.int32))], names=[PARTITION.name]
            )
            selected = mask(pruning, numbers)
            partitions = partitions if selected is None else tuple(numbers.filter(selected).column(0).to_pylist())
        hashes = placement_hashes(self.checkpoint, self.state_view, filters)
        if hashes is not None and store.count:
            placed = {partition_of(each, store.count) for each in hashes}
            partitions = tuple(number for number in partitions if number in placed)
        if not set(partitions).isdisjoint(store.absent):
            store.check_partitions(str(self.location))
        return partitions

    def _partition_parts(self, partitions: Sequence[int]) -> Iterator[PartitionPart]:
        most = -(-processors() // (reading_threads() * max(len(partitions), 1)))
        for number in partitions:
            parts: list[KeyBounds] = [(None, None)]
            if most > 1 and self.state_view.flat and self.shown.snapshot is None:
                partition = open_partition(self.checkpoint, self.state_view.store, number, self.state_view.family.name)
                parts = split_partition(partition, most)
            for keys in parts:
                yield PartitionPart(number, keys)


def view_of(checkpoint: Checkpoint, shown: Shown) -> StateView:
    return find_state_view(checkpoint, shown.operator_id, shown.view_name, flat=shown.flat)


def _folder(partition: Partition) -> str:
    root = partition.checkpoint.root.path.rstrip("/")
    return partition.folder.path.removeprefix(f"{root}/")

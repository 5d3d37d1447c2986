"""The partitions of a checkpoint in another number, written by tasks between which rows move.

Whatever the numbers of partitions are, each source partition is read by one task, and each new one is written by
another, with the readers and writers of `statestore.formats.spark.based_partitions`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from statestore.formats.edits import MovedRows, Target
from statestore.formats.spark.based_partitions import (
    Layout,
    PartitionGroup,
    base_form,
    groups_of,
    moved_rows,
    no_bag,
    write_base,
)
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint, Operator, Store
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.edits.fresh_zips import ZipForm
from statestore.formats.spark.edits.stored_edits import StoredEdit
from statestore.formats.values.without_pandas import arrow_numbers

_SCHEMA = pa.schema([("destination", pa.int32()), ("key", pa.binary()), ("value", pa.binary())])


@dataclass(frozen=True)
class MovedPartition:
    """A partition of a store: of the source to be read, or of the target to be written in a form of zips."""

    operator_id: int
    store: str
    number: int
    form: ZipForm


@dataclass(frozen=True)
class MovedPartitions(MovedRows):
    """All stores of a checkpoint whose rows move; the plan's own parts are the others."""

    checkpoint: Checkpoint
    layout: Layout
    edits: tuple[StoredEdit, ...]

    @cached_property
    def _forms(self) -> list[tuple[Operator, Store, ZipForm]]:
        return [
            (operator, store, base_form(self.checkpoint, store, range(store.count), self.layout))
            for operator in self.checkpoint.operators
            for store in operator.stores
            if not store.written.single
        ]

    def sources(self) -> Sequence[MovedPartition]:
        return [
            MovedPartition(operator.operator_id, store.name, number, form)
            for operator, store, form in self._forms
            for number in store.partitions
        ]

    def targets(self) -> Sequence[MovedPartition]:
        assert self.layout.partitions is not None
        return [
            MovedPartition(operator.operator_id, store.name, number, form)
            for operator, store, form in self._forms
            for number in range(self.layout.partitions)
        ]

    def left(self) -> Sequence[PartitionGroup]:
        whole = groups_of(self.checkpoint, self.layout, self.edits)
        return [group for group in whole if self._store(group.operator_id, group.store).written.single]

    def read(self, source: MovedPartition) -> Iterator[pa.RecordBatch]:
        operator = self.checkpoint.operator(source.operator_id)
        store = self._store(source.operator_id, source.store)
        first = self._first_target(source)
        for family in store.families:
            place = source.operator_id, source.store, family.name, source.number
            edits = [e for e in self.edits if (e.operator_id, e.store, e.family, e.partition) == place]
            given = self.checkpoint, operator, store, family, source.number, self.layout, source.form, edits, no_bag
            for moved, _ in moved_rows(*given):
                if moved is not None:
                    to, keys, values = moved
                    columns = [cells.copied(corrupt_row) for cells in (keys, values)]
                    yield pa.RecordBatch.from_arrays(
                        [arrow_numbers((to + first).astype(np.int32)), *columns], schema=_SCHEMA
                    )

    def write(self, piece: MovedPartition, rows: Iterator[pa.RecordBatch], target: Target) -> Mapping[str, int]:
        store = self._store(piece.operator_id, piece.store)
        return write_base(self.checkpoint, store, piece.number, rows, self.layout, piece.form, target)

    def _store(self, operator_id: int, name: str) -> Store:
        return next(each for each in self.checkpoint.operator(operator_id).stores if each.name == name)

    def _first_target(self, source: MovedPartition) -> int:
        """The number of the target that is the first partition of the same store."""
        assert self.layout.partitions is not None
        moving = [
            (operator.operator_id, store.name)
            for operator in self.checkpoint.operators
            for store in operator.stores
            if not store.written.single
        ]
        return moving.index((source.operator_id, source.store)) * self.layout.partitions

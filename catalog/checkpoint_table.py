"""State in the checkpoint of a Structured Streaming query as a `StateTable`: read only, no Java, no Spark.

A version is a batch. State time is that of batches: as of a moment is the last batch that had begun by then, by the
times in the checkpoint. Columns are those of Spark's own state source (``statestore.formats.spark.views``); of several
struct fields with one name, which neither DuckDB nor Spark takes from us, the later ones get a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from statestore.formats.errors import NotFoundError, UnsupportedError
from statestore.formats.filters import check_filters, mask
from statestore.formats.locations import Location
from statestore.formats.reading_threads import reading_threads
from statestore.formats.spark.checkpoint import DEFAULT_STORE, Checkpoint
from statestore.formats.spark.key_bounds import KeyBounds
from statestore.formats.spark.located import open_located
from statestore.formats.spark.partition_load import open_partition, split_partition
from statestore.formats.spark.query_metadata import read_batch, with_batches
from statestore.formats.spark.state_rows import read_state
from statestore.formats.spark.unique_names import renamed, unique_fields
from statestore.formats.spark.views import View, view, views
from statestore.formats.state_table import Query
from statestore.formats.times import format_time


@dataclass(frozen=True)
class CheckpointSplit:
    """One partition as of one batch, or of a large one the rows whose stored keys are within ``keys``: [from, to)."""

    batch: int
    partition: int
    keys: KeyBounds = (None, None)

    @property
    def rows(self) -> None:
        """Nobody knows before it is read."""


@dataclass(frozen=True)
class CheckpointTable:
    """One view of the state of one operator. Picklable; holds no open files."""

    location: Location
    name: str
    operator_id: int
    view_name: str
    flat: bool = True
    snapshot: tuple[int, int] | None = None
    """(batch, partition): the state is built on the snapshot of this batch, and only that partition is read."""

    @property
    def path(self) -> str:
        """The location as it may be shown: without credentials."""
        return str(self.location)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ("key",)

    @property
    def identity(self) -> str:
        return self._checkpoint().query_id

    def kept_versions(self) -> tuple[int, int]:
        """(oldest, newest) committed batch; the state of the oldest ones may have been cleaned up."""
        batches = self._checkpoint().batches
        return batches[0], batches[-1]

    def lookup_floor(self, version: int) -> int | None:
        return None

    def schema(self, query: Query) -> pa.Schema:
        """Raises NotFoundError COLUMN_NOT_FOUND, UnsupportedError CHECKPOINT_READ for history and changes."""
        if query.mode != "snapshot":
            raise UnsupportedError(
                "CHECKPOINT_READ", f"{self.name} of {self.path} is read batch by batch; ask for a version or a time"
            )
        whole = unique_fields(self._view(self._checkpoint()).schema)
        if query.columns is None:
            return whole
        missing = [name for name in query.columns if name not in whole.names]
        if missing:
            raise NotFoundError(
                "COLUMN_NOT_FOUND", f"{self.name} has no column {missing[0]!r}; it has {', '.join(whole.names)}"
            )
        return pa.schema([whole.field(name) for name in query.columns])

    def splits(self, query: Query) -> Sequence[CheckpointSplit]:
        """A split a partition; those that ``partition_id`` leaves out are not read.

        Raises NotFoundError VERSION_NOT_FOUND or TIME_NOT_KEPT, stating what is kept.
        """
        whole = self.schema(Query())
        self.schema(query)
        for item in query.filters:
            if item.column not in whole.names:
                raise NotFoundError(
                    "COLUMN_NOT_FOUND", f"filter on {item.column!r}: {self.name} has {', '.join(whole.names)}"
                )
        check_filters(query.filters, whole)
        batch = self._batch(query)
        partitions = self._view(self._checkpoint(batch)).store.partitions
        if self.snapshot is not None:
            partitions = (self.snapshot[1],)
        pruning = tuple(item for item in query.filters if item.column == "partition_id")
        if pruning:
            numbers = pa.RecordBatch.from_arrays([pa.array(partitions, pa.int32())], names=["partition_id"])
            selected = mask(pruning, numbers)
            partitions = tuple(numbers.filter(selected).column(0).to_pylist())
        return list(self._parts(batch, partitions))

    def read(self, split: CheckpointSplit, query: Query) -> Iterator[pa.RecordBatch]:
        schema = self.schema(query)
        checkpoint = self._checkpoint(split.batch)
        needed = {*schema.names, *(item.column for item in query.filters)}
        ranges = None if split.keys == (None, None) else [split.keys]
        shown = self._view(checkpoint)
        base = None if self.snapshot is None else self.snapshot[0] + 1
        for batch in read_state(
            checkpoint, shown, split.partition, columns=needed, base_version=base, key_ranges=ranges
        ):
            found = renamed(batch)
            selected = mask(query.filters, found) if query.filters else None
            kept = found if selected is None else found.filter(selected)
            if kept.num_rows:
                yield kept.select(schema.names)

    def _parts(self, batch: int, partitions: Sequence[int]) -> Iterator[CheckpointSplit]:
        """Large partitions are cut where there are fewer of them than processors."""
        checkpoint = self._checkpoint(batch)
        shown = self._view(checkpoint)
        most = -(-reading_threads() // max(len(partitions), 1))
        for partition in partitions:
            parts: list[KeyBounds] = [(None, None)]
            if most > 1 and shown.flat and self.snapshot is None:
                parts = split_partition(open_partition(checkpoint, shown.store, partition, shown.family.name), most)
            for keys in parts:
                yield CheckpointSplit(batch, partition, keys)

    def _batch(self, query: Query) -> int:
        batches = self._checkpoint().batches
        if query.version is not None and query.version not in batches:
            raise NotFoundError(
                "VERSION_NOT_FOUND",
                f"{self.path} has no batch {query.version}; batches {batches[0]} to {batches[-1]} are committed",
            )
        known = [b for b in batches if query.version is None or b <= query.version]
        if query.as_of is None:
            return known[-1]
        root = with_batches(self._checkpoint().root, known)
        first = None
        for number in reversed(known):
            begun = read_batch(root, number).timestamp_ms
            if begun is not None and begun * 1000 <= query.as_of:
                return number
            first = begun if begun is not None else first
        kept = "" if first is None else f"keeps batches that began at {format_time(first * 1000)} or later, "
        raise NotFoundError("TIME_NOT_KEPT", f"{self.path} {kept}asked for {format_time(query.as_of)}")

    def _checkpoint(self, batch: int | None = None) -> Checkpoint:
        return open_located(self.location, batch)

    def _view(self, checkpoint: Checkpoint) -> View:
        return view(checkpoint, self.operator_id, self.view_name, flat=self.flat)


def checkpoint_tables(location: Location) -> dict[str, tuple[CheckpointTable, str]]:
    """(table, Spark's name of the operator) by table name, for what a user calls state: ``state``, or ``left`` and
    ``right`` of a join, or the variables and ``timers`` of transformWithState; numbered where there are several
    operators, counted from the sink."""
    checkpoint = open_located(location)
    several = len(checkpoint.operators) > 1
    found = {}
    for operator in checkpoint.operators:
        for each in views(checkpoint, operator):
            if each.user:
                base = "state" if each.name == DEFAULT_STORE else each.name
                name = f"{base}_{operator.operator_id}" if several else base
                found[name] = (CheckpointTable(location, name, operator.operator_id, each.name), operator.name)
    return found

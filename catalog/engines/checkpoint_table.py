"""State in the checkpoint of a Structured Streaming query as a `StateTable`: read only, no Java, no Spark.

A version is a batch. State time is that of batches: as of a moment is the last batch that had begun by then, by the
times in the checkpoint; history and changes are those of ``checkpoint_history``. Columns are those of Spark's own
state source (``statestore.formats.spark.checkpoint.views``); of several struct fields with one name, which neither
DuckDB nor Spark takes from us, the later ones get a number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from statestore.catalog.engines.checkpoint_history import (
    BatchesSplit,
    columns_of,
    history_start,
    plan_batches,
    read_batches_split,
)
from statestore.catalog.engines.checkpoint_lookup import LookupSplit, lookup_splits, read_lookup
from statestore.catalog.engines.checkpoint_summary import CheckpointSummary, summarize_checkpoint
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError, UnsupportedError, shown
from statestore.formats.places.locations import Location
from statestore.formats.places.reading_threads import processors, reading_threads
from statestore.formats.spark.checkpoint.checkpoint import DEFAULT_STORE, Checkpoint, Store
from statestore.formats.spark.checkpoint.damage import missing
from statestore.formats.spark.checkpoint.opened_checkpoints import open_located
from statestore.formats.spark.checkpoint.query_metadata import read_batch, with_batches
from statestore.formats.spark.checkpoint.unique_names import renamed, unique_fields
from statestore.formats.spark.checkpoint.views import PARTITION, View, row_key, view, views
from statestore.formats.spark.kept_batches import kept_batches, readable_batches
from statestore.formats.spark.providers.key_bounds import KeyBounds
from statestore.formats.spark.providers.partition_load import open_partition, split_partition
from statestore.formats.spark.state_rows import read_state
from statestore.formats.state_table import Query
from statestore.formats.values.filters import check_filters, mask, resolved
from statestore.formats.values.times import format_time


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
    def placement_columns(self) -> tuple[str, ...]:
        """Columns that say where Spark keeps a row, and nothing of the row."""
        return (PARTITION.name,)

    @property
    def row_key(self) -> tuple[str, ...]:
        """The key, and of a map the key within it, of timers their time; () for lists and sides of joins."""
        return row_key(self._view(self._checkpoint()))

    @property
    def identity(self) -> str:
        return self._checkpoint().query_id

    def kept_versions(self) -> tuple[int, int]:
        """(oldest, newest) batch whose state can be read now; NotFoundError SPARK_STATE_NOT_FOUND without any."""
        kept = self._kept()
        return kept[0], kept[-1]

    def change_start(self) -> int:
        """The batch before the first whose changes are known: the first batch of a query changes an empty state."""
        oldest = self.kept_versions()[0]
        return -1 if oldest == 0 else oldest

    def known_from(self, version: int) -> int | None:
        """When the first batch of the history up to a version began, in epoch microseconds; None for batch 0."""
        kept = self._kept()
        self._check_version(version, kept)
        return history_start(self._checkpoint(), kept, version)

    def opened(self, batch: int | None = None) -> tuple[Checkpoint, View]:
        """The checkpoint as of a batch, the newest by default, and what this table shows of it."""
        checkpoint = self._checkpoint(batch)
        return checkpoint, self._view(checkpoint)

    def summary(self) -> CheckpointSummary:
        """What is kept, since when, in how many bytes. Raises NotFoundError SPARK_STATE_NOT_FOUND if no batch can be
        read."""
        checkpoint, view = self.opened()
        return summarize_checkpoint(checkpoint, view.store, self._kept())

    def lookup_floor(self, version: int) -> int | None:
        return None

    def schema(self, query: Query) -> pa.Schema:
        """Raises NotFoundError COLUMN_NOT_FOUND, UnsupportedError CHECKPOINT_READ for histories of whole lists."""
        if query.mode != "snapshot" and (self.snapshot is not None or not self.flat):
            raise UnsupportedError(
                "CHECKPOINT_READ",
                f"{query.mode} of {self.name} of {self.path} is that of single rows and of all batches that are kept; "
                "leave out flattenCollectionTypes=false and snapshotStartBatchId",
            )
        whole = unique_fields(self._view(self._checkpoint()).schema)
        whole = pa.schema([*whole, *columns_of(query.mode)])
        if query.columns is None:
            return whole
        missing = [name for name in query.columns if name not in whole.names]
        if missing:
            raise NotFoundError(
                "COLUMN_NOT_FOUND",
                f"{self.name} has no column {missing[0]!r} in a {query.mode} read; it has {', '.join(whole.names)}",
            )
        return pa.schema([whole.field(name) for name in query.columns])

    def splits(self, query: Query) -> Sequence[CheckpointSplit | LookupSplit | BatchesSplit]:
        """A split a partition; those that ``partition_id`` leaves out are not read. Filters on fields of the key that
        tell its first bytes are looked up.

        Raises NotFoundError VERSION_NOT_FOUND or TIME_NOT_KEPT, stating what is kept.
        """
        _check_numbers(query)
        whole = self.schema(replace(query, columns=None))
        self.schema(query)
        query = replace(query, filters=resolved(query.filters, whole.names))
        for item in query.filters:
            if item.column not in whole.names:
                raise NotFoundError(
                    "COLUMN_NOT_FOUND", f"filter on {item.column!r}: {self.name} has {', '.join(whole.names)}"
                )
        check_filters(query.filters, whole)
        if query.mode != "snapshot":
            return self._over_batches(query)
        batch = self._batch(query)
        checkpoint, shown = self.opened(batch)
        partitions = self._partitions(query, shown.store)
        looked_up = None
        if self.snapshot is None:
            looked_up = lookup_splits(checkpoint, shown, partitions, query.filters)
        return list(self._parts(batch, partitions)) if looked_up is None else looked_up

    def read(self, split: CheckpointSplit | LookupSplit | BatchesSplit, query: Query) -> Iterator[pa.RecordBatch]:
        """Raises NotFoundError SPARK_STATE_NOT_FOUND, stating what is kept now, where files were cleaned up."""
        try:
            yield from self._read(split, query)
        except NotFoundError as error:
            if error.code != "SPARK_STATE_NOT_FOUND":
                raise
            raise self._gone(split.batch, error) from error

    def _read(self, split: CheckpointSplit | LookupSplit | BatchesSplit, query: Query) -> Iterator[pa.RecordBatch]:
        schema = self.schema(query)
        query = replace(query, filters=resolved(query.filters, self.schema(replace(query, columns=None)).names))
        checkpoint = self._checkpoint(split.batch)
        needed = {*schema.names, *(item.column for item in query.filters)}
        for batch in self._rows(checkpoint, split, query, needed):
            found = renamed(batch)
            selected = mask(query.filters, found) if query.filters else None
            kept = found if selected is None else found.filter(selected)
            if kept.num_rows:
                yield kept.select(schema.names)

    def _rows(
        self,
        checkpoint: Checkpoint,
        split: CheckpointSplit | LookupSplit | BatchesSplit,
        query: Query,
        columns: Collection[str],
    ) -> Iterator[pa.RecordBatch]:
        shown = self._view(checkpoint)
        if isinstance(split, BatchesSplit):
            return read_batches_split(checkpoint, shown, split, query, columns)
        if isinstance(split, LookupSplit):
            return read_lookup(checkpoint, shown, split, columns)
        ranges = None if split.keys == (None, None) else [split.keys]
        base = None if self.snapshot is None else self.snapshot[0] + 1
        return read_state(checkpoint, shown, split.partition, columns=columns, base_version=base, key_ranges=ranges)

    def _over_batches(self, query: Query) -> list[BatchesSplit]:
        kept = self._kept()
        self._check_version(query.version, kept)
        checkpoint = self._checkpoint(query.version if query.mode == "history" else None)
        chosen = partial(self._partitions, query)
        return plan_batches(checkpoint, kept, self._view(checkpoint), chosen, query)

    def _partitions(self, query: Query, store: Store) -> tuple[int, ...]:
        """Those that are left by filters on their number."""
        partitions = (*store.partitions, *store.absent) if self.snapshot is None else (self.snapshot[1],)
        pruning = tuple(item for item in query.filters if item.column == PARTITION.name)
        if pruning:
            numbers = pa.RecordBatch.from_arrays([pa.array(partitions, pa.int32())], names=[PARTITION.name])
            selected = mask(pruning, numbers)
            partitions = partitions if selected is None else tuple(numbers.filter(selected).column(0).to_pylist())
        if not set(partitions).isdisjoint(store.absent):
            store.check_partitions(self.path)
        return partitions

    def _parts(self, batch: int, partitions: Sequence[int]) -> Iterator[CheckpointSplit]:
        """Large partitions are cut where they are read side by side and there are fewer of them than processors."""
        checkpoint = self._checkpoint(batch)
        shown = self._view(checkpoint)
        most = -(-processors() // (reading_threads() * max(len(partitions), 1)))
        for partition in partitions:
            parts: list[KeyBounds] = [(None, None)]
            if most > 1 and shown.flat and self.snapshot is None:
                parts = split_partition(open_partition(checkpoint, shown.store, partition, shown.family.name), most)
            for keys in parts:
                yield CheckpointSplit(batch, partition, keys)

    def _batch(self, query: Query) -> int:
        newest = self._checkpoint().batches[-1]
        if query.as_of is None and query.version in (None, newest):
            return newest
        if query.as_of is None and query.version in self._readable():
            return int(query.version)  # whatever became of newer ones
        kept = self._kept()
        self._check_version(query.version, kept)
        known = [b for b in kept if query.version is None or b <= query.version]
        if query.as_of is None:
            return known[-1]
        root = with_batches(self._checkpoint().root, known)
        first = None
        for number in reversed(known):
            begun = read_batch(root, number).timestamp_ms
            if begun is not None and begun * 1000 <= query.as_of:
                return number
            first = begun if begun is not None else first
        since = "" if first is None else f"keeps batches that began at {format_time(first * 1000)} or later, "
        raise NotFoundError("TIME_NOT_KEPT", f"{self.path} {since}asked for {format_time(query.as_of)}")

    def _check_version(self, version: int | None, kept: Sequence[int]) -> None:
        if version is not None and version not in kept:
            raise NotFoundError(
                "VERSION_NOT_FOUND",
                f"{self.path} has no state of batch {version}; batches {kept[0]} to {kept[-1]} can be read",
            )

    def _readable(self) -> list[int]:
        checkpoint = self._checkpoint()
        return readable_batches(checkpoint, self._view(checkpoint).store)

    def _kept(self) -> list[int]:
        """The newest batches, without a gap, whose state can be read now."""
        checkpoint = self._checkpoint()
        kept = kept_batches(checkpoint, self._view(checkpoint).store)
        if not kept:
            self._view(checkpoint).store.check_partitions(self.path)
            raise missing(
                f"{self.name} of {self.path}",
                f"not all files that make up batch {checkpoint.batches[-1]}, the newest, are there; {self._rest()}",
            )
        return kept

    def _rest(self) -> str:
        """What can be read though the newest batch can not."""
        readable = self._readable()
        if not readable:
            return "no batch can be read now"
        return f"of those before it {', '.join(map(str, readable[-20:]))} can be read, by their version"

    def _gone(self, batch: int, error: NotFoundError) -> NotFoundError:
        kept = "no batch can be read now"
        with contextlib.suppress(StateStoreError):
            first, last = self.kept_versions()
            kept = f"batches {first} to {last} can be read now"
        return NotFoundError(error.code, f"reading up to batch {batch} of {self.path}: {error.message}; {kept}")

    def _checkpoint(self, batch: int | None = None) -> Checkpoint:
        return open_located(self.location, batch)

    def _view(self, checkpoint: Checkpoint) -> View:
        return view(checkpoint, self.operator_id, self.view_name, flat=self.flat)


def _check_numbers(query: Query) -> None:
    for version in (query.version, query.start_version, query.end_version):
        if version is not None and (isinstance(version, bool) or not isinstance(version, int | np.integer)):
            raise InvalidInputError(
                "INVALID_VERSION", f"version is {shown(version)}; expected an int, the number of a batch"
            )


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

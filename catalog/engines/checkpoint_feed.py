"""The change feed of Spark's own state source as a `StateTable`: what each batch wrote to a store, in its columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.places.locations import Location
from statestore.formats.spark.change_feed import feed_schema, partitions_of_feed, read_changes
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.opened_checkpoints import open_located
from statestore.formats.spark.checkpoint.unique_names import renamed, unique_fields
from statestore.formats.spark.checkpoint.views import View, view
from statestore.formats.state_table import Query
from statestore.formats.values.filters import check_filters, mask


@dataclass(frozen=True)
class FeedSplit:
    """One partition of all batches."""

    partition: int

    @property
    def rows(self) -> None:
        """Nobody knows before it is read."""


@dataclass(frozen=True)
class CheckpointFeed:
    """The changes of the batches ``first`` to ``last``: batch_id, change_type, and the columns of the view.

    ``change_type`` is update, delete (the value is null) or append (to a list).
    """

    location: Location
    name: str
    operator_id: int
    view_name: str
    flat: bool
    first: int
    last: int

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def row_key(self) -> tuple[str, ...]:
        """A bag: a batch may write a key several times."""
        return ()

    @property
    def placement_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def identity(self) -> str:
        return open_located(self.location).query_id

    def kept_versions(self) -> tuple[int, int]:
        return self.first, self.last

    def lookup_floor(self, version: int) -> int | None:
        return None

    def schema(self, query: Query) -> pa.Schema:
        """Raises NotFoundError COLUMN_NOT_FOUND, InvalidInputError STATE_SELECTION for a moment or another mode."""
        if query.mode != "snapshot" or query.as_of is not None or query.version is not None:
            raise InvalidInputError(
                "STATE_SELECTION",
                "option changeStartBatchId asks for the changes of batches; it does not go with options that ask for a "
                "version, a time or the history",
            )
        whole = unique_fields(feed_schema(self._view(self._checkpoint())))
        missing = [name for name in query.columns or () if name not in whole.names]
        if missing:
            raise NotFoundError(
                "COLUMN_NOT_FOUND", f"the change feed has no column {missing[0]!r}; it has {', '.join(whole.names)}"
            )
        return whole if query.columns is None else pa.schema([whole.field(name) for name in query.columns])

    def splits(self, query: Query) -> Sequence[FeedSplit]:
        self.schema(query)
        check_filters(query.filters, self.schema(replace(query, columns=None)))
        checkpoint = self._checkpoint()
        partitions = partitions_of_feed(checkpoint, self._view(checkpoint), self.first, self.last)
        return [FeedSplit(partition) for partition in partitions]

    def read(self, split: FeedSplit, query: Query) -> Iterator[pa.RecordBatch]:
        schema = self.schema(query)
        checkpoint = self._checkpoint()
        for batch in read_changes(checkpoint, self._view(checkpoint), split.partition, self.first, self.last):
            found = renamed(batch)
            selected = mask(query.filters, found) if query.filters else None
            kept = found if selected is None else found.filter(selected)
            if kept.num_rows:
                yield kept.select(schema.names)

    def _checkpoint(self) -> Checkpoint:
        return open_located(self.location, self.last)

    def _view(self, checkpoint: Checkpoint) -> View:
        return view(checkpoint, self.operator_id, self.view_name, flat=self.flat)

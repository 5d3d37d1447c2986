"""The change feed of Spark's own state source as a `Source` with one state: what each batch wrote to a store.

Its columns are batch_id, change_type, and those of the state view; ``change_type`` is update, delete (the value is
null) or append (to a list). The feed is one bag of rows, which has one version, that of the last batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from statestore.formats.engine import Source, StateAt, StateFile, StateInfo, StateSize, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.places.locations import Location
from statestore.formats.spark.change_feed import feed_schema, partitions_of_feed, read_changes
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.state_views import StateView
from statestore.formats.spark.checkpoint.unique_names import renamed, unique_fields
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

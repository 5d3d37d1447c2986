"""The spine: what every door (Spark, DuckDB, SQL, command line, Python) knows of a readable thing.

A reader of a new engine implements ``StateTable`` and every door opens for it. All times here are epoch
**microseconds**; doors convert from what their users write (``statestore.formats.values.times``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.values.filters import Filter

Mode = Literal["snapshot", "history", "changes"]


@dataclass(frozen=True)
class Query:
    """One question to a table.

    ``mode`` ``snapshot``: the rows valid at ``as_of`` (None: the newest moment known), as recorded by ``version``
    (None: the newest). ``history``: every version with its interval; ``start_time``/``end_time`` (both inclusive)
    keep those that were valid at some moment between. ``changes``: the change feed, either by
    ``start_version``/``end_version`` or, by state time, by ``start_time``/``end_time``, both ends inclusive.
    """

    columns: tuple[str, ...] | None = None
    filters: tuple[Filter, ...] = ()
    as_of: int | None = None
    version: int | None = None
    mode: Mode = "snapshot"
    start_version: int | None = None
    end_version: int | None = None
    start_time: int | None = None
    end_time: int | None = None


class Split(Protocol):
    """A small picklable piece of work, already pruned and pinned to a version."""

    @property
    def rows(self) -> int | None:
        """Upper bound of the rows that reading this split yields; None: unknown until it is read."""


class StateTable(Protocol):
    """Something with rows at points in time. Implementations are picklable and hold no open files."""

    @property
    def name(self) -> str: ...

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns of what a user calls the key; () without one."""

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns of which no two rows have equal values at a time; () for a bag, where equal rows may repeat."""

    @property
    def lookup_columns(self) -> tuple[tuple[str, ...], ...]:
        """The sets of columns that may be named to look rows up, the fewest first."""

    @property
    def placement_columns(self) -> tuple[str, ...]:
        """Columns that say where the engine stores a row: shown, but no part of the row when rows are compared."""

    @property
    def identity(self) -> str:
        """Tells this thing from whatever else may once stand at the same place."""

    def pin(self) -> StateTable:
        """The table as it stands now: further questions to it see no later version, and look nothing up twice."""

    def kept_versions(self) -> tuple[int, int]:
        """(oldest, newest) version that can be read now; changes are known of every version after `change_start`."""

    def change_start(self) -> int:
        """The version before the first whose changes are known."""

    def known_from(self, version: int) -> int | None:
        """The first state time (epoch microseconds) of which the history up to a version knows the state; None: all."""

    def check_resumable(self, version: int) -> None:
        """Raises NotFoundError VERSION_NOT_FOUND if a stream that has read the changes up to a version cannot go on."""

    def lookup_floor(self, version: int) -> int | None:
        """State times (epoch microseconds) before this are gone for point lookups, but for versions that are the newest
        still (KIP-889); None where none are."""

    def schema(self, query: Query) -> pa.Schema:
        """Columns of the answer in order; raises NotFoundError for an unknown column."""

    def splits(self, query: Query) -> Sequence[Split]:
        """Pruned pieces; versions and times are checked against the kept range here."""

    def read(self, split: Any, query: Query) -> Iterator[pa.RecordBatch]:
        """Batches with exactly ``schema(query)``, all filters applied."""


def column_names(given: Iterable[str], what: str) -> tuple[str, ...]:
    """Names as a tuple; a text is one name. Raises InvalidInputError INVALID_OPTION for what is no list of texts."""
    if isinstance(given, str):
        return (given,)
    found = tuple(given) if isinstance(given, Iterable) else None
    if found is None or not all(isinstance(name, str) for name in found):
        raise InvalidInputError("INVALID_OPTION", f"{what} is {shown(given)}; expected a list of column names")
    return found

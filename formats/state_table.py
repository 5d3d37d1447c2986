"""The table that every door reads: Spark, DuckDB, SQL, the command line and Python.

A new engine writes no table: it writes a `statestore.formats.engine.Source`, of which `statestore.catalog.engines`
makes tables. All times here are epoch **microseconds**; doors convert from what their users write
(``statestore.formats.values.times``).
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.values.filters import Filter

Mode = Literal["state", "history", "changes"]
MARK_TYPE = pa.int8()
SHARED_MARKS = 1 << 20


@dataclass(frozen=True)
class Query:
    """One question to a table.

    ``mode`` ``state``: the rows valid at ``as_of`` (None: the newest moment known), as recorded by ``version``
    (None: the newest). ``history``: every version with its interval; ``start_time``/``end_time`` (both inclusive)
    keep those that were valid at some moment between. ``changes``: the change feed, either by
    ``start_version``/``end_version`` or, by state time, by ``start_time``/``end_time``, both ends inclusive.

    ``fields`` are paths into struct columns, such as ("value", "count"): a struct that is named there is returned with
    these fields alone. ``unsafe`` are struct columns that are returned as binary rows of Spark
    (`StateTable.unsafe_columns`).
    """

    columns: tuple[str, ...] | None = None
    fields: tuple[tuple[str, ...], ...] = ()
    unsafe: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()
    as_of: int | None = None
    version: int | None = None
    mode: Mode = "state"
    start_version: int | None = None
    end_version: int | None = None
    start_time: int | None = None
    end_time: int | None = None


def check_number(version: object, expected: str = "an int") -> None:
    """Raise InvalidInputError INVALID_VERSION for a version that is no whole number; None is the newest."""
    if version is not None and (isinstance(version, bool) or not isinstance(version, int | np.integer)):
        raise InvalidInputError(ErrorCode.INVALID_VERSION, f"version is {shown(version)}; expected {expected}")


class Split(Protocol):
    """A small picklable piece of a query, already pruned and pinned to a version."""

    @property
    def rows(self) -> int | None:
        """Upper bound of the number of rows that this split returns; None: unknown until it is read."""


@dataclass(frozen=True)
class MaskedSplit:
    """Rows that `StateTable.read_marked` reads, in this order, and in ``marks`` a null (of MARK_TYPE) for each dead
    one.

    Without ``marks`` every row is live. ``live`` is the number of live rows, or None where only a read finds it.
    """

    split: Any
    marks: pa.Array | None
    live: int | None


class NewestBatch(NamedTuple):
    """Rows of a history, and in ``rest`` the latest start (epoch microseconds) that later rows may have; None: no more
    come.
    """

    rows: pa.RecordBatch
    rest: int | None


RowPair = tuple[Sequence[pa.RecordBatch], Sequence[pa.RecordBatch]]
"""Rows of a state, and rows of another one."""


class StateTable(ABC):
    """A table that can be read at points in time. Tables are picklable and hold no open files.

    The defaults are those of a table of a few rows without a key, a history and changes, whose splits hold no files. A
    class that passes calls on to another table must pass on all of them, because a default would hide what that has.
    """

    # What the table is

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def identity(self) -> str:
        """The id that distinguishes this table from another one at the same location, earlier or later."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that a user calls the key; () where there is no key."""
        return ()

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns in which no two rows are equal at one time; () for a bag, in which equal rows may repeat."""
        return ()

    @property
    def lookup_columns(self) -> tuple[tuple[str, ...], ...]:
        """The sets of columns by which rows can be looked up, the smallest set first."""
        return tuple(dict.fromkeys((self.key_columns, self.row_key or self.key_columns)))

    @property
    def one_zero(self) -> bool:
        """Whether 0.0 and -0.0 are one key, because the engine stores 0.0 for both."""
        return False

    @property
    def placement_columns(self) -> tuple[str, ...]:
        """Columns that say where the engine stores a row. They are shown, and they are not compared."""
        return ()

    @property
    def is_columnar(self) -> bool:
        """Whether a column is read at the cost of that column alone, without decoding rows."""
        return False

    @property
    def has_log(self) -> bool:
        """Whether a log alone decides what is read: equal `kept_versions` have equal plans, changes are planned alike
        for all filters, and dead rows can be returned with marks (`masked_splits`).
        """
        return False

    # The table in one state

    @abstractmethod
    def pin(self) -> StateTable:
        """Return the table pinned to its present state: answers contain no later version, and metadata is read once."""

    def for_plan(self) -> StateTable:
        """The table in its present state, for all questions of one plan, in this process; not to be kept longer.

        A look for the newest version costs requests in an object store, so a plan looks once.
        """
        return self.pin()

    def difference_filters(self, old: Query, new: Query) -> Sequence[Filter]:
        """Filters that leave out only rows which are the same in the answers to both queries, by default none."""
        return ()

    def differing(self, old: Query, new: Query) -> Iterator[RowPair] | None:
        """Pairs of the rows of two states, which hold all rows that differ, in the columns that the queries name.

        A row key is in one pair at most, with its rows of both states. Some rows of a pair may be equal. None, the
        default: the table has no way that costs less than a read of both states in whole.
        """
        return None

    def for_tasks(self) -> StateTable:
        """The table for tasks, which read splits and ask nothing else: it is sent without what the plan has seen."""
        return self

    def for_results(self) -> StateTable:
        """The table that reads the splits of a result, now and when the result is read again.

        By default it is pinned, so that its schema and its splits are those of one state.
        """
        return self.pin()

    # Versions and times

    @abstractmethod
    def kept_versions(self) -> tuple[int, int]:
        """The oldest and the newest version that can be read now.

        Changes are kept of every version after `change_start`.
        """

    @abstractmethod
    def versions(self) -> pa.Table:
        """One row per known version, oldest first, in the columns of the metadata table ``$versions``."""

    def change_start(self) -> int:
        """The version before the first one whose changes are kept; by default the newest one, for no changes."""
        return self.kept_versions()[1]

    def expired_to(self) -> tuple[int, int] | None:
        """The version and the state time (epoch microseconds) up to which an expiry has removed changes; None where
        there was no expiry.
        """
        return None

    def known_from(self, version: int) -> int | None:
        """The first state time (epoch microseconds) at which history up to a version has the state; None: all times.

        By default raises InvalidInputError INVALID_OPTION, for a table without a history.
        """
        raise self._without_history()

    def lookup_floor(self, version: int) -> int | None:
        """The state time (epoch microseconds) before which lookups no longer find values; None where they find all.

        A value that is still the newest of its key is found at any time (KIP-889). By default raises InvalidInputError
        INVALID_OPTION, for a table without a history.
        """
        raise self._without_history()

    def check_resumable(self, version: int) -> None:  # noqa: B027 - nothing is the default
        """Raise NotFoundError VERSION_NOT_FOUND if a stream that has read the changes up to a version cannot resume,
        because a single version between others was removed. By default none can be.
        """

    def _without_history(self) -> InvalidInputError:
        return InvalidInputError(ErrorCode.INVALID_OPTION, f"{self.name} has no history and no state time")

    # Answers

    @abstractmethod
    def schema(self, query: Query) -> pa.Schema:
        """Columns of the answer in order. Raises NotFoundError for an unknown column."""

    @abstractmethod
    def splits(self, query: Query) -> Sequence[Split]:
        """Pruned splits of the query. Versions and times are checked against the kept range here."""

    @abstractmethod
    def read(self, split: Any, query: Query) -> Iterator[pa.RecordBatch]:
        """Batches with exactly the columns of ``schema(query)``, all filters applied."""

    def repeatable(self, query: Query) -> Query | None:
        """A query that has later the answer that ``query`` has now; None if no query says that, but splits do.

        An answer of changes lasts as long as `expired_to` does.
        """
        return None

    # Answers without a read of all rows; None where only that read finds them

    def count(self, query: Query) -> int | None:
        """The number of rows of the answer."""
        return None

    def extremes(self, query: Query, name: str) -> tuple[Any, Any] | None:
        """The least and the greatest value of a column of the answer, None and None of no rows.

        Times are epoch microseconds.
        """
        return None

    def newest_first(self, query: Query, rows: int) -> Iterator[NewestBatch] | None:
        """All rows of a history, roughly the newest ones first, for a reader of some ``rows`` of them.

        None where the rows can only be read in another order.
        """
        return None

    def writers(self, query: Query) -> Sequence[int] | None:
        """The kept versions, ascending, up to that of the query, that wrote or deleted the keys that its filters name.

        Among them are those whose rows were replaced since. None where only the change feed finds them.
        """
        return None

    # Other ways to read

    def hashed_splits(self, query: Query, ranges: int) -> Sequence[tuple[int, Split]] | None:
        """Splits of the query for each of ``ranges`` equal ranges of key hashes (docs/key-hash.md), with the number of
        the range; None: not possible.

        Equal keys of two such tables lie in ranges of the same number, so they are joined without moving rows.
        """
        return None

    def unsafe_columns(self, query: Query) -> tuple[str, ...]:
        """The struct columns of the answer that are held as Spark's own rows (UnsafeRow), which Spark takes as they
        are. A query may name them in ``unsafe``; their bytes are checked when they are read.
        """
        return ()

    def masked_splits(self, splits: Sequence[Any]) -> Sequence[MaskedSplit]:
        """The rows of splits that were planned without filters, in splits that are read whole.

        To return dead rows with marks may cost less than to cut them out of batches. By default no row is dead.
        """
        return [MaskedSplit(split, None, None) for split in splits]

    def read_marked(self, split: Any, query: Query) -> Iterator[pa.RecordBatch]:
        """Batches of a split of `masked_splits`, with its dead rows, in the order of its marks."""
        return self.read(split, query)

    def is_mapped(self, split: Any, columns: Sequence[str]) -> bool:
        """Whether batches of a split are views of mapped files, which take no memory and can be kept."""
        return False

    # Files, which splits keep from being removed as long as they exist in the process that made them; by default none

    def released(self, splits: Sequence[Any]) -> Sequence[Any]:
        """The splits without their hold on the files, so that they can be kept for a later read."""
        return splits

    def held(self, splits: Sequence[Any]) -> Sequence[Any] | None:
        """Splits of `released` with a new hold on their files; None if some may be gone, and the read has to be planned
        again.
        """
        return splits

    def entrust(self, splits: Sequence[Any]) -> None:  # noqa: B027
        """Keep the files for readers in other processes for a while, although this process may end before."""


def all_live(rows: int) -> pa.Array:
    """The marks of so many live rows, without bits."""
    return pa.Array.from_buffers(MARK_TYPE, rows, [None, mark_bytes(rows)], 0)


def mark_bytes(rows: int) -> pa.Buffer:
    """The bytes of so many marks, which nobody reads; they are shared up to SHARED_MARKS."""
    return _shared_bytes() if rows <= SHARED_MARKS else pa.py_buffer(bytes(rows))


@functools.cache
def _shared_bytes() -> pa.Buffer:
    return pa.py_buffer(bytes(SHARED_MARKS))


def column_names(given: Iterable[str], what: str) -> tuple[str, ...]:
    """Names as a tuple; a text is one name.

    Raises InvalidInputError INVALID_OPTION for anything but a list of texts.
    """
    if isinstance(given, str):
        return (given,)
    found = tuple(given) if isinstance(given, Iterable) else None
    if found is None or not all(isinstance(name, str) for name in found):
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"{what} is {shown(given)}; expected a list of column names")
    return found

"""The reading protocol that every door uses: Spark, DuckDB, SQL, the command line and Python.

A reader of a new engine implements ``StateTable``, and every door can then open it. All times here are epoch
**microseconds**; doors convert from what their users write (``statestore.formats.values.times``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

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

    ``mode`` ``snapshot``: the rows valid at ``as_of`` (None: the newest moment known), as recorded by ``version``
    (None: the newest). ``history``: every version with its interval; ``start_time``/``end_time`` (both inclusive)
    keep those that were valid at some moment between. ``changes``: the change feed, either by
    ``start_version``/``end_version`` or, by state time, by ``start_time``/``end_time``, both ends inclusive.

    ``fields`` are paths into struct columns, such as ("value", "count"): a struct that is named there is returned with
    these fields alone. ``unsafe`` are struct columns that are returned as binary rows of Spark (`HoldsUnsafeRows`).
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


class Split(Protocol):
    """A small picklable piece of a query, already pruned and pinned to a version."""

    @property
    def rows(self) -> int | None:
        """Upper bound of the number of rows that this split returns; None: unknown until it is read."""


class StateTable(Protocol):
    """A table that can be read at points in time. Implementations are picklable and hold no open files."""

    @property
    def name(self) -> str: ...

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that a user calls the key; () where there is no key."""

    @property
    def row_key(self) -> tuple[str, ...]:
        """The columns in which no two rows are equal at one time; () for a bag, in which equal rows may repeat."""

    @property
    def lookup_columns(self) -> tuple[tuple[str, ...], ...]:
        """The sets of columns by which rows can be looked up, the smallest set first."""

    @property
    def one_zero(self) -> bool:
        """Whether 0.0 and -0.0 are one key, because the engine stores 0.0 for both."""

    @property
    def placement_columns(self) -> tuple[str, ...]:
        """Columns that say where the engine stores a row. They are shown, and they are not compared."""

    @property
    def is_columnar(self) -> bool:
        """Whether a column is read at the cost of that column alone, without decoding rows."""

    @property
    def identity(self) -> str:
        """The id that distinguishes this table from another one at the same location, earlier or later."""

    def pin(self) -> StateTable:
        """Return the table pinned to its present state: answers contain no later version, and metadata is read once."""

    def kept_versions(self) -> tuple[int, int]:
        """The oldest and the newest version that can be read now.

        Changes are kept of every version after `change_start`.
        """

    def versions(self) -> pa.Table:
        """One row per known version, oldest first, in the columns of the metadata table ``$versions``."""

    def change_start(self) -> int:
        """The version before the first one whose changes are kept."""

    def known_from(self, version: int) -> int | None:
        """The first state time (epoch microseconds) at which history up to a version has the state; None: all times."""

    def check_resumable(self, version: int) -> None:
        """Raise NotFoundError VERSION_NOT_FOUND if a stream that has read the changes up to a version cannot resume."""

    def lookup_floor(self, version: int) -> int | None:
        """The state time (epoch microseconds) before which lookups no longer find values; None where they find all.

        A value that is still the newest of its key is found at any time (KIP-889).
        """

    def schema(self, query: Query) -> pa.Schema:
        """Columns of the answer in order. Raises NotFoundError for an unknown column."""

    def splits(self, query: Query) -> Sequence[Split]:
        """Pruned splits of the query. Versions and times are checked against the kept range here."""

    def count(self, query: Query) -> int | None:
        """The number of rows of the answer; None where only a read finds it."""

    def read(self, split: Any, query: Query) -> Iterator[pa.RecordBatch]:
        """Batches with exactly the columns of ``schema(query)``, all filters applied."""


@runtime_checkable
class KnowsExtremes(Protocol):
    """A table that has the least and greatest values of some columns without reading them."""

    def extremes(self, query: Query, name: str) -> tuple[Any, Any] | None:
        """Return both values of a column of the answer, None and None of no rows; None where only a read finds them.

        Times are epoch microseconds.
        """


@dataclass(frozen=True)
class MaskedSplit:
    """Rows that `MarksDeadRows.read_marked` reads, in this order, and in ``marks`` a null (of MARK_TYPE) for each dead
    one.

    Without ``marks`` every row is live. ``live`` is the number of live rows, or None where only a read finds it.
    """

    split: Any
    marks: pa.Array | None
    live: int | None


@runtime_checkable
class MarksDeadRows(Protocol):
    """A table that can return dead rows with marks, which costs less than to cut them out of batches.

    Its log alone decides what it reads: equal `StateTable.kept_versions` have equal plans.
    """

    def masked_splits(self, splits: Sequence[Split]) -> Sequence[MaskedSplit]:
        """The rows of splits that were planned without filters, in splits that are read whole."""

    def read_marked(self, split: Any, query: Query) -> Iterator[pa.RecordBatch]:
        """Batches of a split of `masked_splits`, with its dead rows, in the order of its marks."""

    def is_mapped(self, split: Any, columns: Sequence[str]) -> bool:
        """Whether batches of a split are views of mapped files, which take no memory and can be kept."""

    def check_files(self, split: Any) -> None:
        """Raise CorruptError if a mapped file of a split was shortened, because touching it would end the process."""


@runtime_checkable
class KeepsFiles(Protocol):
    """A table whose splits keep their files from being removed, as long as they exist in the process that made them."""

    def released(self, splits: Sequence[Split]) -> Sequence[Split]:
        """The splits without their hold on the files, so that they can be kept for a later read."""

    def held(self, splits: Sequence[Split]) -> Sequence[Split] | None:
        """Splits of `released` with a new hold on their files; None if some may be gone, and the read has to be planned
        again.
        """

    def entrust(self, splits: Sequence[Split]) -> None:
        """Keep the files for readers in other processes for a while, although this process may end before."""


@runtime_checkable
class LooksForPlans(Protocol):
    """A table that looks for its newest version at each question, which costs requests in an object store."""

    def for_plan(self) -> StateTable:
        """The table in its present state, for all questions of one plan, in this process; not to be kept longer."""

    def for_tasks(self) -> StateTable:
        """The table for tasks, which read splits and ask nothing else: it is sent without what the plan has seen."""


def table_for_plan(table: StateTable) -> StateTable:
    """Return the table in its present state, for all questions of one plan."""
    return table.for_plan() if isinstance(table, LooksForPlans) else table.pin()


def table_for_tasks(table: StateTable) -> StateTable:
    """Return the table for tasks, which read splits of a plan."""
    return table.for_tasks() if isinstance(table, LooksForPlans) else table


@runtime_checkable
class RepeatsQueries(Protocol):
    """A table that states the version that a query means now, so that the same rows can be read again later."""

    def repeatable(self, query: Query) -> Query | None:
        """A query that has later the answer that ``query`` has now; None if no query says that, but splits do.

        An answer of changes lasts as long as `expired_to` does.
        """

    def expired_to(self) -> tuple[int, int] | None:
        """The version and the state time (epoch microseconds) up to which an expiry has removed changes."""


class NewestBatch(NamedTuple):
    """Rows of a history, and in ``rest`` the latest start (epoch microseconds) that later rows may have; None: no more
    come.
    """

    rows: pa.RecordBatch
    rest: int | None


@runtime_checkable
class FindsNewest(Protocol):
    """A table that reads the newest versions of a key without the older ones."""

    def newest_first(self, query: Query, rows: int) -> Iterator[NewestBatch] | None:
        """All rows of a history, roughly the newest ones first, for a reader of some ``rows`` of them.

        None where the rows can only be read in another order.
        """


@runtime_checkable
class FindsWriters(Protocol):
    """A table that finds the versions that wrote a key without reading the changes of all keys."""

    def writers(self, query: Query) -> Sequence[int] | None:
        """The kept versions, ascending, up to that of the query, that wrote or deleted the keys that its filters name.

        Among them are those whose rows were replaced since. None where only the change feed finds them.
        """


@runtime_checkable
class SplitsByHash(Protocol):
    """A table whose rows can be read by ranges of key hashes (docs/key-hash.md).

    Equal keys of two such tables lie in ranges of the same number, so they are joined without moving rows.
    """

    def hashed_splits(self, query: Query, ranges: int) -> Sequence[tuple[int, Split]] | None:
        """Splits of the query for each of ``ranges`` equal ranges, with the number of the range; None: not possible."""


@runtime_checkable
class HoldsUnsafeRows(Protocol):
    """A table that holds struct columns as Spark's own rows (UnsafeRow), which Spark takes as they are."""

    def unsafe_columns(self, query: Query) -> tuple[str, ...]:
        """The columns of the answer that a query may name in ``unsafe``; their bytes are checked when they are read."""


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

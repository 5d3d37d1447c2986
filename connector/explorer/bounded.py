"""Comparisons, which need memory: they end with the limits of a question, and before memory does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa

from statestore.catalog.reads.arguments import keys_named
from statestore.catalog.reads.difference import Point, difference
from statestore.catalog.reads.rows import Rows
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.connector.explorer.limits import Limits
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import Query, Split, StateTable
from statestore.formats.values.filters import Filter

MAX_BYTES = 1 << 30
BYTES_A_ROW = 16  # of a row of a store that differs: its place and its hash


def bounded_difference(
    table: StateTable, old: Point, new: Point, limits: Limits, filters: Sequence[Filter] = ()
) -> Rows:
    """Return `difference` of all columns, which ends with the limits also before its first row.

    Rows that the ``filters`` on columns of the key exclude may be left out: of a store of our own those of other keys,
    where whole keys are named.

    Raises UnsupportedError EXPLORER_LIMIT where the rows of both moments, or of a store of our own the list of those
    that differ, take more than MAX_BYTES.
    """
    table = table.pin()
    taken = 0

    def found(rows: int) -> None:
        nonlocal taken
        limits.check()
        taken += BYTES_A_ROW * rows
        if taken > MAX_BYTES:
            raise _too_large("the list of the rows that differ takes")

    of_keys = tuple(item for item in filters if item.column in (table.row_key or table.key_columns))
    if isinstance(table, VersionedTable) and keys_named(table, Query(filters=of_keys)) is None:
        return difference(table, old, new, None, found)
    return difference(cast("StateTable", _Bounded(table, limits)), old, new, of_keys=of_keys)


def _too_large(what: str) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.EXPLORER_LIMIT,
        f"{what} more than {MAX_BYTES >> 30} GiB, which is the most that the explorer compares; compare the moments "
        "with statestore diff, which has no limit",
    )


class _Bounded:
    def __init__(self, table: StateTable, limits: Limits) -> None:
        self._table = table
        self._limits = limits
        self._bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def pin(self) -> _Bounded:
        return self

    def read(self, split: Split, query: Query) -> Iterator[pa.RecordBatch]:
        for batch in self._limits.watched(iter(self._table.read(split, query))):
            self._bytes += batch.nbytes
            if self._bytes > MAX_BYTES:
                raise _too_large("the rows of both moments take")
            yield batch

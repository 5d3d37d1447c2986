"""Tables whose rows are compared in memory: their reads end with the limits of a question, and before memory does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa

from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.connector.explorer.limits import Limits
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import Query, Split, StateTable

MAX_BYTES = 1 << 30


def bounded(table: StateTable, limits: Limits) -> StateTable:
    """Return the table for one comparison, which reads it twice.

    Only what differs of a store of our own is read, so it is returned as it is.
    """
    table = table.pin()
    return table if isinstance(table, VersionedTable) else cast("StateTable", _Bounded(table, limits))


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
                raise UnsupportedError(
                    ErrorCode.EXPLORER_LIMIT,
                    f"the rows of both moments take more than {MAX_BYTES >> 30} GiB, which is the most that the "
                    "explorer compares; compare them with statestore diff, which has no limit",
                )
            yield batch

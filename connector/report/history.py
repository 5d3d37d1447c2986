"""The history of a table for the figures of a report, which go over it several times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from statestore.catalog.engines.history_columns import TIME_COLUMNS, ends_of
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import Filter

HELD_BYTES = 32 << 20


@dataclass(frozen=True)
class History:
    """The versions of the rows of a table. ``held``: all of them, in memory; None if they are read each time.

    ``ends`` are the columns of the beginning and the end of each: times, or versions where times are unknown.
    """

    table: StateTable
    held: Sequence[pa.RecordBatch] | None
    ends: tuple[str, str]

    @property
    def is_timed(self) -> bool:
        """Whether the ends are times."""
        return self.ends == TIME_COLUMNS

    def rows(self, columns: Sequence[str], filters: tuple[Filter, ...] = ()) -> Iterator[pa.RecordBatch]:
        """Yield some columns of all versions, or of those that pass the filters."""
        if self.held is None or filters:
            yield from read_rows(
                self.table, Query(mode="history", columns=tuple(dict.fromkeys(columns)), filters=filters)
            )
            return
        for batch in self.held:
            yield batch.select(list(dict.fromkeys(columns)))


def history_of(table: StateTable, columns: Sequence[str], held_bytes: int = HELD_BYTES) -> History:
    """Read the history of a table once and hold it, if these columns and its ends take at most so many bytes.

    The history of an engine's state is put together from every batch or snapshot, so each read of it costs as much as
    the first.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    ends = ends_of(table.schema(Query(mode="history")).names)
    for batch in read_rows(table, Query(mode="history", columns=tuple(dict.fromkeys((*columns, *ends))))):
        size += batch.nbytes
        if size > held_bytes:
            held.clear()  # before the caller reads again, which takes memory as well
            return History(table, None, ends)
        held.append(batch)
    return History(table, held, ends)


def read_rows(table: StateTable, query: Query) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query, split by split."""
    for split in table.splits(query):
        yield from table.read(split, query)

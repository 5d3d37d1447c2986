"""The history of a table for the figures of a report, which go over it several times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.engines.history_columns import TIME_COLUMNS, ends_of
from statestore.formats.kernels.arrays import Ints
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.filters import Filter

HELD_BYTES = 32 << 20


@dataclass(frozen=True)
class Counts:
    """The rows that each commit wrote, and those that it ended; ``now``: the rows of the newest version, if known."""

    written: Ints
    ended: Ints
    now: int | None = None


@dataclass(frozen=True)
class History:
    """The versions of the rows of a table. ``held``: all of them, in memory; None if they are read each time.

    ``ends`` are the columns of the beginning and the end of each: times, or versions where times are unknown.
    """

    table: StateTable
    held: Sequence[pa.RecordBatch] | None
    ends: tuple[str, str] = TIME_COLUMNS

    @property
    def is_timed(self) -> bool:
        """Whether the ends are times."""
        return self.ends == TIME_COLUMNS

    @property
    def of_versions(self) -> Sequence[pa.RecordBatch] | None:
        """The versions of the rows, if they are held and each begins and ends with a version of the table.

        Rows that have times themselves begin and end at these. Rows without an end are those of the newest version.
        """
        return None if TIME_COLUMNS[0] in self.table.schema(Query()).names else self.held

    def now(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of the rows of the newest version."""
        if self.of_versions is None:
            yield from read_rows(self.table, Query(columns=tuple(columns)))
            return
        for batch in self.of_versions:
            yield batch.filter(pc.is_null(batch.column(self.ends[1]))).select(list(columns))

    def counts(self, commits: pa.Table) -> Counts | None:
        """Return how many rows each commit wrote and ended; None where the history does not tell.

        A history by time does where each commit is later than the one before. ``commits`` has the columns ``version``
        and ``timestamp``.
        """
        axis = commits["timestamp" if self.is_timed else "version"].combine_chunks()
        moments = axis.cast(pa.int64()).fill_null(0).to_numpy()
        if self.of_versions is None or axis.null_count or not np.all(np.diff(moments) > 0):
            return None
        counted = [np.zeros(len(moments), np.int64) for _ in self.ends]
        rows = 0
        for batch in self.of_versions:
            for name, counts in zip(self.ends, counted, strict=True):
                found = batch.column(name).drop_null().cast(axis.type).cast(pa.int64()).to_numpy()
                at = np.searchsorted(moments, found)
                if len(found) and (int(at.max()) == len(moments) or np.any(moments[at] != found)):
                    return None
                counts += np.bincount(at, minlength=len(moments))
            rows += batch.column(self.ends[1]).null_count
        return Counts(counted[0], counted[1], rows)

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

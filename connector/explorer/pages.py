"""Pages of the rows of a state: the first ones as they are read, later and sorted ones from a file of all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.questions import Sorting
from statestore.connector.explorer.shown_rows import cut_rows
from statestore.connector.explorer.spools import Spool
from statestore.formats.state_table import Query, StateTable

MAX_ROWS = 500
READ_AT_ONCE = 2_000  # rows of an unsorted state that are read again for each page, without a file


@dataclass(frozen=True)
class Page:
    """Some rows of a state, and the number of all, or None where it is not known yet."""

    rows: pa.Table
    total: int | None
    is_last: bool


def page_of(
    table: StateTable,
    query: Query,
    sorting: Sorting | None,
    offset: int,
    limit: int,
    spool_of: Callable[[], Spool],
    limits: Limits,
) -> Page:
    """Return up to ``limit`` (at most MAX_ROWS) rows from ``offset`` on. ``spool_of`` returns the file of all rows."""
    limit = min(limit, MAX_ROWS)
    if sorting is not None or offset + limit > READ_AT_ONCE:
        spool = spool_of()
        rows = spool.rows(sorting, offset, limit, limits)
        return Page(rows, spool.count, offset + limit >= spool.count)
    rows = _taken(limits.read(table, query), table.schema(query), offset, limit + 1)
    is_last = rows.num_rows <= limit
    total = offset + rows.num_rows if is_last and (rows.num_rows or not offset) else counted(table, query)
    return Page(rows.slice(0, limit), total, is_last)


def counted(table: StateTable, query: Query) -> int | None:
    """Return the number of rows where no read is needed to find it."""
    return table.count(query) if not query.filters else None


def count_of(table: StateTable, query: Query, limits: Limits) -> int:
    """Return the number of rows, by a read of one column where it is needed."""
    known = counted(table, query)
    if known is not None:
        return known
    narrow = replace(query, columns=table.key_columns[:1] or table.schema(query).names[:1])
    return sum(batch.num_rows for batch in limits.read(table, narrow))


def batches_of(table: StateTable, query: Query) -> Iterator[pa.RecordBatch]:
    for split in table.splits(query):
        yield from table.read(split, query)


def _taken(batches: Iterator[pa.RecordBatch], schema: pa.Schema, offset: int, limit: int) -> pa.Table:
    taken: list[Any] = []
    left = limit
    for batch in batches:
        skipped = min(offset, batch.num_rows)
        offset -= skipped
        part = batch.slice(skipped, left)
        if part.num_rows:
            taken.append(cut_rows(part))  # a page of long values is not kept whole
            left -= part.num_rows
        if not left:
            break
    return pa.Table.from_batches(taken, schema)

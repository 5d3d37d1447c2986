"""Pages of the rows of a state: the first ones as they are read, later and sorted ones from a file of all rows. Every
cell is a text of bounded length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.questions import Sorting
from statestore.connector.explorer.row_files import RowFile
from statestore.connector.terminal import plain_text
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.python_times import python_values
from statestore.formats.values.types import shown_field

MAX_ROWS = 500
READ_AT_ONCE = 2_000
"""Rows of an unsorted state that are read again for each page, without a file. Of a million rows, the file takes 18
times as long as the first page, and a page at row 900,000 takes 140 times as long without it."""


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
    file_of: Callable[[], RowFile],
    limits: Limits,
) -> Page:
    """Return up to ``limit`` (at most MAX_ROWS) rows from ``offset`` on. ``file_of`` returns the file of all rows."""
    limit = min(limit, MAX_ROWS)
    if sorting is not None or offset + limit > READ_AT_ONCE:
        row_file = file_of()
        rows = row_file.rows(sorting, offset, limit, limits)
        return Page(rows, row_file.count, offset + limit >= row_file.count)
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


# Rows as the page shows them: every cell a text, as the command line prints it, and of bounded length.

CELL = 2_000  # characters that are sent of a cell
MARK = "…"
NULL = pa.scalar(None, pa.string())


def shown_rows(rows: pa.RecordBatch | pa.Table) -> pa.Table:
    """Return the rows with texts in all columns, and with the type of each column in the metadata of its field.

    A row is handled in Python, so this is for the rows of one page.
    """
    table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    fields = [shown_as(field) for field in table.schema]
    columns = [pa.array(_texts(column), pa.string()) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def shown_as(field: pa.Field) -> pa.Field:
    """Return the field of a column of texts that stands for a column."""
    numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
    return pa.field(field.name, pa.string(), metadata={"type": shown_field(field), "numeric": "1" if numeric else ""})


def _texts(column: pa.Array | pa.ChunkedArray) -> Sequence[str | None]:
    parts = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    whole = pa.chunked_array([_cut(part) for part in parts], column.type).combine_chunks()
    return [None if value is None else cell_text(value) for value in python_values(whole)]


def cut_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without what `shown_rows` cuts off, which may be most of their memory."""
    return pa.RecordBatch.from_arrays([_cut(column) for column in rows.columns], schema=rows.schema)


def _cut(column: pa.Array) -> pa.Array:
    """Return the column without bytes of long texts and binary values that `cell_text` cuts off.

    The text of a value is as long as all of its parts at least, so a part longer than CELL makes it longer, too. Binary
    values keep a number of bytes that base64 writes without padding.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.utf8_slice_codeunits(column, 0, CELL + 1)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pc.binary_slice(column, 0, 3 * CELL)
    if pa.types.is_struct(kind) and kind.num_fields:
        parts = [_cut(column.field(number)) for number in range(kind.num_fields)]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null())
    return column


def cell_text(value: Any) -> str:
    """Return a value as `plain_text` does, cut after CELL characters."""
    text = plain_text(value)
    return text if len(text) <= CELL else text[:CELL] + MARK

"""Rows as the page shows them: every cell a text, as the command line prints it, and of bounded length."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.connector.terminal.output import plain
from statestore.formats.values.python_times import python_values
from statestore.formats.values.types import shown_field

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
    """Return a value as text: a text as it is, times as ISO-8601, binary as base64, nested values as JSON."""
    found = plain(value)
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return text if len(text) <= CELL else text[:CELL] + MARK

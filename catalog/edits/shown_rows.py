"""Rows of edits as text and in terms of JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from statestore.formats.values.json_terms import plain
from statestore.formats.values.python_times import python_values

MOST_TEXT = 300
"""Characters of a row in a message."""


def json_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows in terms of JSON, in the terms in which doors print them."""
    columns = [[plain(value) for value in python_values(_array(rows.column(name)))] for name in rows.schema.names]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def shown_row(row: pa.RecordBatch) -> str:
    """Return a row for a message, cut where it is long."""
    text = json.dumps(json_rows(row)[0], ensure_ascii=False)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"

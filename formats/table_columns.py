"""Columns that a query names, checked against the columns of the table."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from statestore.formats.errors import NotFoundError
from statestore.formats.state_table import Query
from statestore.formats.values.filters import check_filters, resolved


def chosen_columns(whole: pa.Schema, query: Query, table: str) -> pa.Schema:
    """Columns of the answer in the order in which the query names them; by default all columns.

    Raises NotFoundError COLUMN_NOT_FOUND, naming the columns that ``table`` has.
    """
    if query.columns is None:
        return whole
    missing = [name for name in query.columns if name not in whole.names]
    if missing:
        raise NotFoundError(
            "COLUMN_NOT_FOUND",
            f"{table} has no column {missing[0]!r} in a {query.mode} read; it has {', '.join(whole.names)}",
        )
    return pa.schema([whole.field(name) for name in query.columns])


def checked_filters(whole: pa.Schema, query: Query, table: str) -> Query:
    """Return the query with each filter on ``column.field`` resolved to a field of a column.

    Raises NotFoundError COLUMN_NOT_FOUND for a filter on an unknown column, InvalidInputError INVALID_FILTER for a
    value that its column cannot be compared with.
    """
    filters = resolved(query.filters, whole.names)
    for item in filters:
        if item.column not in whole.names:
            raise NotFoundError("COLUMN_NOT_FOUND", f"filter on {item.column!r}: {table} has {', '.join(whole.names)}")
    check_filters(filters, whole)
    return replace(query, filters=tuple(filters))

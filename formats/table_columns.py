"""Columns that a caller names, checked against the columns there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, shown
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter, check_filters, resolved


def unknown_column(name: object, table: str, columns: Iterable[str], read: str = "") -> NotFoundError:
    """The error for a column that a table (in a kind of read) does not have."""
    return NotFoundError(
        ErrorCode.COLUMN_NOT_FOUND, f"{table} has no column {shown(name)}{read}; it has {', '.join(columns)}"
    )


def unknown_row_column(name: object, rows: str, columns: Iterable[str]) -> InvalidInputError:
    """The error for a column that the rows which the caller passes do not have."""
    return InvalidInputError(
        ErrorCode.COLUMN_NOT_FOUND, f"{rows} have no column {shown(name)}; they have {', '.join(columns)}"
    )


def chosen_columns(whole: pa.Schema, query: Query, table: str, hidden: Sequence[pa.Field] = ()) -> pa.Schema:
    """Columns of the answer in the order in which the query names them; by default all but the ``hidden`` ones.

    Raises NotFoundError COLUMN_NOT_FOUND, naming the columns that ``table`` has.
    """
    if query.columns is None:
        return whole
    known = {field.name: field for field in [*whole, *hidden]}
    for name in query.columns:
        if name not in known:
            raise unknown_column(name, table, known, f" in a {query.mode} read")
    return pa.schema([known[name] for name in query.columns])


def checked_filters(whole: pa.Schema, query: Query, table: str) -> Query:
    """Return the query with each filter on ``column.field`` resolved to a field of a column.

    Raises NotFoundError COLUMN_NOT_FOUND for a filter on an unknown column, InvalidInputError INVALID_FILTER for a
    value that its column cannot be compared with.
    """
    filters = resolved(query.filters, whole.names)
    check_filter_columns(filters, whole, query, table)
    return replace(query, filters=filters)


def check_filter_columns(filters: Sequence[Filter], whole: pa.Schema, query: Query, table: str) -> None:
    """Raise what `checked_filters` raises, without resolving fields."""
    for item in filters:
        if item.column not in whole.names:
            raise unknown_column(item.column, f"filter: {table}", whole.names, f" in a {query.mode} read")
    check_filters(filters, whole)

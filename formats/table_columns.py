"""Columns that a caller names, checked against the columns there are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, shown
from statestore.formats.state_table import Query
from statestore.formats.values.filters import NULL_TESTS, Filter, check_filters, resolved


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

    Structs have the fields that the query names; those that it wants as binary rows are binary.

    Raises NotFoundError COLUMN_NOT_FOUND, naming the columns that ``table`` has.
    """
    chosen = whole
    if query.columns is not None:
        known = {field.name: field for field in [*whole, *hidden]}
        for name in query.columns:
            if name not in known:
                raise unknown_column(name, table, known, f" in a {query.mode} read")
        chosen = pa.schema([known[name] for name in query.columns])
    if query.unsafe:
        chosen = pa.schema([f.with_type(pa.binary()) if f.name in query.unsafe else f for f in chosen])
    return chosen if not query.fields else pa.schema([_with_fields(field, query.fields) for field in chosen])


def _with_fields(field: pa.Field, paths: Collection[tuple[str, ...]]) -> pa.Field:
    """The field with the parts of its struct to which paths lead; a field that no path names is left as it is."""
    inside = [path[1:] for path in paths if path[0] == field.name]
    if not inside or not all(inside) or not pa.types.is_struct(field.type):
        return field
    named = {path[0] for path in inside}
    return field.with_type(pa.struct([_with_fields(each, inside) for each in field.type if each.name in named]))


def narrowed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema``, with the fields that their structs have there; no value is copied."""
    columns = [_narrowed(batch.column(field.name), field.type) for field in schema]
    fields = [batch.schema.field(field.name).with_type(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _narrowed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(kind) or column.type.equals(kind):
        return column
    parts = [_narrowed(column.field(column.type.get_field_index(field.name)), field.type) for field in kind]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=column.is_null() if column.null_count else None)


def fields_read(query: Query, names: Collection[str]) -> dict[str, frozenset[str]]:
    """The fields that a query needs of those struct columns of which it does not need all; ``names`` are the columns
    of the answer."""
    needed: dict[str, set[str]] = {}
    for column, first, *_ in (path for path in query.fields if len(path) > 1):
        needed.setdefault(column, set()).add(first)
    whole = set(names) - needed.keys()
    for item in query.filters:
        if item.path:
            needed.setdefault(item.column, set()).add(item.path[0])
        elif item.op in NULL_TESTS:
            needed.setdefault(item.column, set())
        else:
            whole.add(item.column)
    return {column: frozenset(fields) for column, fields in needed.items() if column not in whole}


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

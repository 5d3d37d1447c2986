"""Keys as users name them, as filters on the columns by which a table looks them up.

The columns that a key names are those of the first set in `StateTable.lookup_columns` that fits: for a dict the set
with these names, for a tuple the set with as many columns, for anything else the single column. Where no set fits, or
the key cannot be one of that set, it is one of the smallest set, and `KeyValues` reads it or refuses it. So a tuple of
two is the key and the map key of a map state, and the two fields of a key that is a struct where it cannot be those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from statestore.formats.errors import InvalidInputError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.canonical import of_scalars
from statestore.formats.values.comparison import has_floats
from statestore.formats.values.filters import Filter, key_lookups, with_whole_structs
from statestore.formats.values.key_codec import KeyValues, Row


def key_filters(table: StateTable, key: Any) -> tuple[Filter, ...]:
    """Return filters for equality on the columns of a key, as the table's engine compares keys.

    Raises InvalidInputError WRONG_KEY or NULL_KEY.
    """
    schema, key = table.schema(Query()), of_scalars(key)
    names, *others = _named(table, key)
    try:
        cells = _cells(schema, names, key)
    except InvalidInputError:
        found = next(filter(None, (_readable(schema, other, key) for other in others)), None)
        if found is None:
            raise
        names, cells = found
    return as_key(table, schema, [Filter(n, "=", cell) for n, cell in zip(names, cells, strict=True)])


def keys_named(table: StateTable, query: Query) -> int | None:
    """Return the number of keys to which the filters of a query limit its rows; None where they name no whole keys by
    which the table looks rows up."""
    if not query.filters:
        return None
    filters = query.filters
    if any(item.path for item in filters):
        filters = with_whole_structs(filters, table.schema(replace(query, columns=None, fields=())))
    found = (key_lookups(filters, names) for names in table.lookup_columns if names)
    return next((len(keys) for keys in found if keys is not None), None)


def _cells(schema: pa.Schema, names: tuple[str, ...], key: Any) -> Row:
    columns = pa.schema([schema.field(name) for name in names])
    if _is_null_field(columns, key):
        key = (key,)
    return KeyValues(columns).normalize(key)


def _is_null_field(columns: pa.Schema, key: Any) -> bool:
    """Return whether a dict is a struct whose one field is null, and has the name of the column: the other reading, a
    column that is null, is no key.
    """
    first = columns.field(0)
    if len(columns) > 1 or not isinstance(key, Mapping) or dict(key) != {first.name: None}:
        return False
    return pa.types.is_struct(first.type) and [field.name for field in first.type] == [first.name]


def _readable(schema: pa.Schema, names: tuple[str, ...], key: Any) -> tuple[tuple[str, ...], Row] | None:
    try:
        return names, _cells(schema, names, key)
    except InvalidInputError:
        return None


def as_key(table: StateTable, schema: pa.Schema, filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """Return filters with equality as the table's engine compares keys, in place of that of values.

    Most engines keep 0.0 and -0.0 as two keys, and a key is then the one that was named. One that makes a single zero
    of them stores neither as the other, so both names find it. ``schema`` are the columns of the table.
    """
    return tuple(replace(each, exact=_is_exact(table, schema, each)) for each in filters)


def _is_exact(table: StateTable, schema: pa.Schema, item: Filter) -> bool:
    return item.op == "=" and keeps_both_zeros(table, schema.field(item.column).type)


def keeps_both_zeros(table: StateTable, kind: pa.DataType) -> bool:
    """Return whether keys of a type that differ in bits are two keys of the table's engine, 0.0 and -0.0 included."""
    # Only floats have zeros of two signs, and the question may cost a look at the files of an engine.
    return not (has_floats(kind) and table.one_zero)


def _named(table: StateTable, key: Any) -> tuple[tuple[str, ...], ...]:
    """Return the sets of columns that a key may name: the key columns, or also those that distinguish its rows."""
    choices = table.lookup_columns
    if isinstance(key, Mapping):
        fit = [names for names in choices if set(names) == set(key)]
    else:
        count = len(key) if isinstance(key, tuple) else 1
        fit = [names for names in choices if len(names) == count]
    return tuple(dict.fromkeys((*fit[:1], choices[0])))

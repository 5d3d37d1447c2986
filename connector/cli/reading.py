"""Reading tables for commands: text arguments become keys, times and queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.catalog.discovery import open_warehouse
from statestore.formats.errors import InvalidInputError
from statestore.formats.filters import Filter
from statestore.formats.state_table import Mode, Query, StateTable
from statestore.formats.times import parse_time


def read_key(
    path: Path, store: str, key: str, *, mode: Mode, as_of: str | None = None, version: int | None = None
) -> pa.Table:
    """The rows of one key; InvalidInputError WRONG_KEY if the text is not a key of the store."""
    table = open_warehouse(path).table(store)
    moment = None if as_of is None else parse_time(as_of, "--as-of")
    query = Query(mode=mode, as_of=moment, version=version, filters=key_filters(table, key))
    return read_all(table, query)


def read_table(path: Path, name: str, query: Query | None = None) -> pa.Table:
    return read_all(open_warehouse(path).table(name), query or Query())


def read_all(table: StateTable, query: Query) -> pa.Table:
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return pa.Table.from_batches(batches, schema=table.schema(query))


def key_filters(table: StateTable, text: str) -> tuple[Filter, ...]:
    """Equality on each key column. One column takes its text as it is, several a JSON object."""
    schema = table.schema(Query())
    names = table.key_columns
    if not names:
        raise InvalidInputError("WRONG_KEY", f"{table.name} has no key; ask for it with: statestore sql")
    if len(names) == 1:
        return (Filter(names[0], "=", _cell(text, schema.field(names[0]))),)
    try:
        cells: Any = json.loads(text)
    except json.JSONDecodeError:
        cells = None
    if not isinstance(cells, dict) or set(cells) != set(names):
        raise InvalidInputError(
            "WRONG_KEY", f"key {text!r} of {table.name!r}: expected a JSON object with {', '.join(names)}"
        )
    return tuple(Filter(name, "=", _cell(cells[name], schema.field(name))) for name in names)


def _cell(value: Any, field: pa.Field) -> Any:
    """``value``, from the command line or JSON, as the column's type."""
    kind = field.type
    try:
        if isinstance(value, str) and not pa.types.is_string(kind):
            if pa.types.is_timestamp(kind) and kind.tz is not None:
                return pa.scalar(parse_time(value, field.name), pa.int64()).cast(kind).as_py()
            if pa.types.is_nested(kind):
                return pa.scalar(json.loads(value), kind).as_py()
            return pa.scalar(value).cast(kind).as_py()
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError, TypeError) as error:
        raise InvalidInputError(
            "WRONG_KEY", f"key column {field.name!r}: found {value!r}, expected {kind} ({error})"
        ) from error

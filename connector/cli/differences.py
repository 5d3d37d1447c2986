"""`statestore diff`: rows that differ, as JSON objects and as a table in which a change reads `old → new`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.reads.difference import CHANGE, CHANGED, NEW, OLD
from statestore.catalog.reads.rows import Rows
from statestore.connector.terminal import (
    DELIMITERS,
    Grid,
    cell,
    delimited_cell,
    printable,
    show_delimited,
    show_grid,
    show_line,
)
from statestore.formats.values.json_terms import plain
from statestore.formats.values.python_times import python_values

SORTED_ROWS = 100_000  # more rows are shown in the order they are read
ARROW = " → "


def first_and_counts(reader: Rows, limit: int) -> tuple[pa.Table, Counter[str]]:
    """``limit`` rows in order of key (in the order they are read where there are very many), and the number of rows of
    each kind."""
    counts: Counter[str] = Counter()
    kept: list[pa.RecordBatch] = []
    collected = 0
    for batch in reader:
        value_counts = pc.value_counts(batch.column(CHANGE)).to_pylist()
        counts.update({item["values"]: item["counts"] for item in value_counts})
        if collected < max(limit, SORTED_ROWS):
            kept.append(batch)
            collected += batch.num_rows
    table = pa.Table.from_batches(kept, schema=reader.schema)
    if counts.total() <= SORTED_ROWS:
        table = _by_key(table)
    return table.slice(0, limit), counts


def _by_key(table: pa.Table) -> pa.Table:
    keys = [f.name for f in table.schema if f.name not in (CHANGE, OLD, NEW, CHANGED)]
    sortable = [name for name in keys if not pa.types.is_nested(table.schema.field(name).type)]
    return table.sort_by([(name, "ascending") for name in [*sortable, CHANGE]])


def objects(table: pa.Table) -> Iterator[dict[str, Any]]:
    """{"change", "key", "old", "new", "columns"}: the old and new values of a row, and the columns that changed."""
    width = table.num_columns - 4
    for batch in table.to_batches():
        keys = batch.schema.names[1 : 1 + width]
        for change, *key, old, new, columns in zip(*(python_values(c) for c in batch.columns), strict=True):
            row = {"change": change, "key": dict(zip(keys, key, strict=True)), "old": old, "new": new}
            yield {**row, "columns": columns or []}


def show(table: pa.Table, form: str, full: bool) -> None:
    """Print rows that differ: as objects, as a table, or as CSV or TSV with two columns for each value."""
    if form == "json":
        for item in objects(table):
            show_line(item)
    elif form in DELIMITERS:
        _show_delimited(table, DELIMITERS[form])
    elif table.num_rows:
        show_grid(as_grid(table), full=full)


def _show_delimited(table: pa.Table, delimiter: str) -> None:
    keys = table.schema.names[1 : table.num_columns - 3]
    values = [(side, field.name) for field in table.schema.field(OLD).type for side in ("old", "new")]
    rows = (
        [
            item["change"],
            *(delimited_cell(plain(value)) for value in item["key"].values()),
            *(None if item[side] is None else delimited_cell(plain(item[side][name])) for side, name in values),
        ]
        for item in objects(table)
    )
    show_delimited(["change", *keys, *(f"{side}.{name}" for side, name in values)], rows, delimiter)


def as_grid(table: pa.Table) -> Grid:
    """Change, key and values; a value that changed shows both."""
    keys = table.schema.names[1 : table.num_columns - 3]
    values = [field.name for field in table.schema.field(OLD).type]
    rows = [
        [item["change"], *map(cell, item["key"].values()), *(_value(item, name) for name in values)]
        for item in objects(table)
    ]
    names = [printable(name) for name in itertools.chain(["change"], keys, values)]
    return Grid(names, [False] * len(names), rows)


def _value(item: dict[str, Any], name: str) -> str | None:
    old, new = (None if item[side] is None else cell(item[side][name]) for side in ("old", "new"))
    if name in item["columns"]:
        return f"{'null' if old is None else old}{ARROW}{'null' if new is None else new}"
    return old if item["new"] is None else new

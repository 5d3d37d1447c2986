"""The forms in which rows are printed: a table, CSV, TSV, JSON lines, or a block of lines for each row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from statestore.connector.terminal.output import (
    cell,
    grid_of,
    json_objects,
    show_blocks,
    show_grid,
    show_json,
    show_line,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

FORMS = ("table", "csv", "tsv", "json")
DELIMITERS = {"csv": ",", "tsv": "\t"}


def form_of(given: str | None, as_json: bool) -> str:
    """Return the form that --format and --json ask for. Raises InvalidInputError INVALID_OPTION."""
    if given is not None and given not in FORMS:
        raise InvalidInputError(ErrorCode.INVALID_OPTION, f"--format is {given}; expected {', '.join(FORMS)}")
    if as_json and given not in (None, "json"):
        raise InvalidInputError(ErrorCode.CONFLICTING_OPTIONS, f"--json and --format {given}: give one of them")
    return "json" if as_json else given or "table"


def show_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch], form: str, *, full: bool = False) -> None:
    """Print rows. CSV, TSV and JSON are printed as the batches arrive; ``line`` is a block for each row."""
    if form == "json":
        show_json(batches)
    elif form in DELIMITERS:
        _show_delimited(schema, batches, DELIMITERS[form])
    else:
        grid = grid_of(pa.Table.from_batches(batches, schema=schema))
        if form == "line":
            show_blocks(grid, None)
        else:
            show_grid(grid, full=full)


def show_objects(names: Sequence[str], rows: Sequence[Mapping[str, Any]], form: str) -> bool:
    """Print objects with these names in a form other than a table; return whether the form was one."""
    if form == "json":
        for row in rows:
            show_line(row)
    elif form in DELIMITERS:
        cells = ([delimited_cell(each) for each in map(row.get, names)] for row in rows)
        show_delimited(names, cells, DELIMITERS[form])
    return form != "table"


def _show_delimited(schema: pa.Schema, batches: Iterable[pa.RecordBatch], delimiter: str) -> None:
    rows = ([delimited_cell(each) for each in value.values()] for batch in batches for value in json_objects(batch))
    show_delimited(schema.names, rows, delimiter)


def delimited_cell(value: Any) -> str | None:
    """Return the text of a value in terms of JSON, as CSV has it: a text as it is, a nested value as JSON."""
    return value if isinstance(value, str) else cell(value)


def show_delimited(names: Sequence[str], rows: Iterable[Sequence[str | None]], delimiter: str) -> None:
    """Print a header and rows as RFC 4180 has them. Null is an empty cell, an empty text is one in quotes."""
    special = re.compile(f'[{delimiter}"\\r\\n]|^$')

    def quoted(text: str | None) -> str:
        if text is None or not special.search(text):
            return "" if text is None else text
        return '"' + text.replace('"', '""') + '"'

    print(delimiter.join(map(quoted, names)))
    for row in rows:
        print(delimiter.join(map(quoted, row)))

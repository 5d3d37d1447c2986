"""Texts and small HTML tables by which objects show themselves in a terminal and in a notebook.

Every name and value is escaped: what was stored is shown as text, never as markup.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

from statestore.formats.values.python_times import python_values
from statestore.formats.values.types import shown_field

MOST_TEXT = 100  # characters of a cell
MOST_COLUMNS = 50


def printable(text: str) -> str:
    """Return a text for a terminal, without control characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def escape(text: str) -> str:
    """Return a text as HTML that shows it."""
    return html.escape(text.encode(errors="backslashreplace").decode())


def shown_columns(schema: pa.Schema) -> str:
    """Return the columns with their types in one line."""
    parts = [f"{field.name} {shown_field(field)}" for field in list(schema)[:MOST_COLUMNS]]
    return listed(parts, len(schema)) or "no columns"


def listed(parts: Sequence[str], count: int | None = None) -> str:
    """Return names behind each other, with how many of ``count`` were left out."""
    left = (len(parts) if count is None else count) - len(parts[:MOST_COLUMNS])
    return ", ".join(parts[:MOST_COLUMNS]) + (f" and {left} more" if left > 0 else "")


def html_page(title: str, said: str, table: str = "") -> str:
    """Return a heading, a table that is HTML already, and a line below it."""
    return f"<div><b>{escape(title)}</b>{table}<small>{escape(said)}</small></div>"


def html_table(rows: pa.Table) -> str:
    """Return a few rows as an HTML table."""
    shown = rows.select(range(min(rows.num_columns, MOST_COLUMNS)))
    cells = [[_cell(value) for value in python_values(column)] for column in shown.columns]
    header = [f"{field.name}\n{shown_field(field)}" for field in shown.schema]
    return html_cells(header, zip(*cells, strict=True))


def html_cells(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return texts as an HTML table; a newline in the header begins a smaller line."""
    head = "".join(f"<th>{'<br><small>'.join(map(escape, h.split(chr(10), 1)))}{_closed(h)}</th>" for h in header)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if header else f"<table>{body}</table>"


def html_facts(facts: Iterable[tuple[str, str]]) -> str:
    """Return names and what they are, a row each."""
    return html_cells((), facts)


def _closed(header: str) -> str:
    return "</small>" if "\n" in header else ""


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    text = value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"

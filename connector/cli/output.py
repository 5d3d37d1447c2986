"""What commands print: tables for people, JSON for machines. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 200


def data_console() -> Console:
    """Stdout; without a terminal wide enough that a pipe gets whole cells."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, soft_wrap=False)


def message_console() -> Console:
    return Console(stderr=True, highlight=False)


def show_table(table: pa.Table, *, as_json: bool, title: str | None = None) -> None:
    """All rows of ``table``: JSON lines, one object a row, or a table."""
    if as_json:
        for batch in table.to_batches():
            for row in batch.to_pylist():
                print(json.dumps({name: plain(value) for name, value in row.items()}, ensure_ascii=False))
        return
    console = data_console()
    if title:
        console.print(Text(title, style="italic"))
    shown = Table(header_style="bold")
    for field in table.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        shown.add_column(Text(field.name), justify="right" if numeric else "left", overflow="fold")
    for row in table.to_pylist():
        shown.add_row(*(cell(value) for value in row.values()))
    console.print(shown)


def show_object(value: dict[str, Any], *, as_json: bool, title: str | None = None) -> None:
    """One thing: a JSON object, or a two-column table of its fields."""
    if as_json:
        print(json.dumps({name: plain(item) for name, item in value.items()}, ensure_ascii=False))
        return
    console = data_console()
    if title:
        console.print(Text(title, style="italic"))
    shown = Table(show_header=False)
    for name, item in value.items():
        shown.add_row(Text(name, style="bold"), cell(item))
    console.print(shown)


def say(text: str) -> None:
    """A message to the person at the terminal."""
    message_console().print(Text(text), soft_wrap=True)


def cell(value: Any) -> Text:
    """A value in a table; never read as markup."""
    if value is None:
        return Text("null", style="dim")
    if isinstance(value, str):
        return Text(value)
    shown = plain(value)
    return Text(shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False))


def plain(value: Any) -> Any:
    """``value`` in terms of JSON: times as ISO-8601 in UTC, binary as base64, decimals as text."""
    if isinstance(value, datetime):
        text = value.isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and value != value:
        return None
    return value


def human_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{int(size)} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def limited(rows: Sequence[Any], limit: int) -> tuple[Sequence[Any], int]:
    """(the first ``limit`` rows, how many more there are)."""
    return rows[:limit], max(0, len(rows) - limit)

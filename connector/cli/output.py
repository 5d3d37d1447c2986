"""What commands print: tables for people, JSON for machines. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 200
# All but tab and line feed: what a value holds must not move the cursor or recolour the terminal.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def data_console() -> Console:
    """Stdout; without a terminal wide enough that a pipe gets whole cells."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False, soft_wrap=False)


def message_console() -> Console:
    return Console(stderr=True, highlight=False)


def show_table(table: pa.Table, *, as_json: bool, title: str | None = None) -> None:
    """All rows of ``table``: JSON lines, one object a row, or a table."""
    if as_json:
        names = _unique(table.column_names)
        for row in _rows(table):
            print(json.dumps(dict(zip(names, map(plain, row), strict=True)), ensure_ascii=False))
        return
    console = data_console()
    if title:
        console.print(Text(title, style="italic"))
    shown = Table(header_style="bold")
    for field in table.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        shown.add_column(cell(field.name), justify="right" if numeric else "left", overflow="fold")
    for row in _rows(table):
        shown.add_row(*map(cell, row))
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
    message_console().print(Text(printable(text)), soft_wrap=True)


def say_error(text: str) -> None:
    """What went wrong, in one line."""
    say(f"statestore: {' '.join(text.split())}")


def cell(value: Any) -> Text:
    """A value in a table; never read as markup."""
    if value is None:
        return Text("null", style="dim")
    if isinstance(value, str):
        return Text(printable(value))
    shown = plain(value)
    return Text(printable(shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)))


def printable(text: str) -> str:
    """``text`` with control characters written out, like \\x1b."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def plain(value: Any) -> Any:
    """``value`` in terms of JSON: times as ISO-8601 in UTC, binary as base64, decimals and the like as text; NaN and
    the infinities, which JSON does not have, as text too."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    if isinstance(value, datetime):
        text = value.isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, pa.MonthDayNano):
        return {"months": value.months, "days": value.days, "nanoseconds": value.nanoseconds}
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return str(value)


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Not as dicts: SQL may name two columns alike."""
    for batch in table.to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _unique(names: Sequence[str]) -> list[str]:
    """Names for a JSON object: a, a_1, a_2 for three columns named a."""
    found: dict[str, None] = {}
    for name in names:
        candidate, number = name, 0
        while candidate in found:
            number += 1
            candidate = f"{name}_{number}"
        found[candidate] = None
    return list(found)


def human_bytes(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{int(size)} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_duration(milliseconds: int) -> str:
    """In the largest unit that gives a whole number: "30 days", "90 minutes", "250 ms"."""
    for unit, worth in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000)):
        if milliseconds and milliseconds % worth == 0:
            count = milliseconds // worth
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return f"{milliseconds} ms"

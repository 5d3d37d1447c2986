"""`statestore inspect` as a table: one row for each table; a damaged store does not hide the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from statestore.connector.terminal.grid import Grid, widths_within
from statestore.connector.terminal.output import cell, human_bytes

SHOWN = (
    "store",
    "kind",
    "key",
    "value",
    "keys",
    "version",
    "from",
    "to",
    "bytes",
    "retention",
    "last_commit",
    "writer",
)
FIRST = ("store", "kind", "keys", "version", "to", "bytes")  # on a terminal too narrow for all columns
NUMBERS = ("keys", "version", "bytes")


def as_grid(found: list[dict[str, Any]], shown: Sequence[str] = SHOWN) -> Grid:
    """The objects of `summaries` as cells."""
    rows = [[*(_cell(name, item[name]) for name in shown), "; ".join(item["health"]) or "ok"] for item in found]
    names = [name.replace("_", " ") for name in (*shown, "health")]
    return Grid(names, [name in NUMBERS for name in (*shown, "health")], rows)


def columns_within(found: list[dict[str, Any]], width: int | None) -> Sequence[str]:
    """All columns where they fit a terminal of this width or the width is None; else the most important ones."""
    if width is None or widths_within(as_grid(found), width) is not None:
        return SHOWN
    return FIRST


def _cell(name: str, value: Any) -> str | None:
    if isinstance(value, dict):
        return cell(", ".join(f"{column} {kind}" for column, kind in value.items()))
    if name == "retention" and value is None:
        return "for ever"
    return human_bytes(value) if name == "bytes" and value is not None else cell(value)

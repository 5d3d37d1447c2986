"""`statestore inspect` as a table: one row for each table; a damaged store does not hide the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from statestore.connector.terminal.grid import Grid, fits
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
    "disk_bytes",
    "retention",
    "last_commit",
    "writer",
)
GIVE_WAY = ("writer", "last_commit", "retention", "from", "kind", "version", "to", "bytes")  # the first one goes first
SIZES = {"bytes": "live", "disk_bytes": "on disk"}
NUMBERS = ("keys", "version", *SIZES)


def as_grid(found: list[dict[str, Any]], shown: Sequence[str] = SHOWN) -> Grid:
    """The objects of `summaries` as cells."""
    rows = [[*(_cell(name, item[name]) for name in shown), "; ".join(item["health"]) or "ok"] for item in found]
    names = [heading(name) for name in (*shown, "health")]
    return Grid(names, [name in NUMBERS for name in (*shown, "health")], rows)


def heading(name: str) -> str:
    """Return the words above a column."""
    return SIZES.get(name, name.replace("_", " "))


def whole_cells(summary: dict[str, Any]) -> list[str | None]:
    """Return the cells of CSV: numbers of bytes, the retention null where it has no end."""
    cells = [
        cell(summary[name]) if name in SIZES or name == "retention" else _cell(name, summary[name]) for name in SHOWN
    ]
    return [*cells, "; ".join(summary["health"]) or "ok"]


def columns_within(found: list[dict[str, Any]], width: int | None) -> Sequence[str] | None:
    """Return the columns that fit a terminal of this width without a cut; all where the width is None.

    The columns of GIVE_WAY are left out one by one. None: the others, with the key and the value, have no room.
    """
    shown = list(SHOWN)
    for name in (None, *GIVE_WAY):
        if name is not None:
            shown.remove(name)
        if width is None or fits(as_grid(found, shown)) <= width:
            return shown
    return None


def _cell(name: str, value: Any) -> str | None:
    if isinstance(value, dict):
        return cell(", ".join(f"{column} {kind}" for column, kind in value.items()))
    if name == "retention" and value is None:
        return "for ever"
    return human_bytes(value) if name in SIZES and value is not None else cell(value)

"""Cells of a table as texts: their widths, their shortening, and blocks of lines where a table is too wide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len, chop_cells

BORDER = 3  # characters between two cells
LEAST = 12  # a column is not cut to fewer characters
NULL = "null"


@dataclass(frozen=True)
class Grid:
    """A table of texts, None for null; ``numeric`` columns are aligned right."""

    names: list[str]
    numeric: list[bool]
    rows: list[list[str | None]]


def column_widths(grid: Grid) -> list[int]:
    widths = [cell_len(name) for name in grid.names]
    for row in grid.rows:
        widths = [max(width, cell_len(NULL if text is None else text)) for width, text in zip(widths, row, strict=True)]
    return widths


def fits(grid: Grid) -> int:
    """The width of the whole table."""
    return _with_borders(column_widths(grid))


def _with_borders(widths: Sequence[int]) -> int:
    return sum(widths) + BORDER * len(widths) + 1


def cut(text: str, width: int) -> str:
    """``text`` if it fits, else its beginning followed by …."""
    if cell_len(text) <= width:
        return text
    return (chop_cells(text, max(width - 1, 1))[0] if width > 1 else "") + "…"


def cut_to(grid: Grid, widths: int | Sequence[int]) -> Grid:
    """The grid with each cell cut to at most this width; names are cut like cells."""
    each = [widths] * len(grid.names) if isinstance(widths, int) else list(widths)
    rows = [[None if t is None else cut(t, w) for t, w in zip(row, each, strict=True)] for row in grid.rows]
    return replace(grid, names=[cut(n, w) for n, w in zip(grid.names, each, strict=True)], rows=rows)


def widths_within(grid: Grid, width: int) -> list[int] | None:
    """Widths that make the table fit, taken from the widest columns; None if columns would become too narrow."""
    widths = column_widths(grid)
    low, high = LEAST, max(widths, default=0)
    if _with_borders([min(w, low) for w in widths]) > width:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _with_borders([min(w, middle) for w in widths]) <= width else (low, middle - 1)
    return [min(w, low) for w in widths]


def blocks(grid: Grid, width: int | None, fold: bool = False) -> Iterator[str]:
    """Yield each row as lines of name and value, cut to ``width`` if one is given, or with ``fold`` continued below."""
    margin = max((cell_len(name) for name in grid.names), default=0) + 2
    for number, row in enumerate(grid.rows, 1):
        yield f"── {number} " + "─" * max((width or 40) - 5 - len(str(number)), 1)
        for name, text in zip(grid.names, row, strict=True):
            shown = NULL if text is None else text
            begun = name + " " * (margin - cell_len(name))
            if width is None or not fold:
                yield begun + shown if width is None else cut(begun + shown, width)
                continue
            for piece in chop_cells(shown, max(width - margin, LEAST)) or [""]:
                yield begun + piece
                begun = " " * margin

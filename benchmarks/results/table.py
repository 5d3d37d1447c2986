"""Figures as lines of text: what was found, the goal, and whether it is met."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results.figure import Figure

HEADS = ("measure", "load", "now", "goal", "met")


def number(value: float) -> str:
    """A number with as many digits as a ratio needs."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def with_unit(value: float, unit: str) -> str:
    if unit == "ratio":
        return number(value)
    return f"{value:,.0f} {unit}" if float(value).is_integer() else f"{number(value)} {unit}"


def goal_of(figure: Figure) -> str:
    if figure.goal is None:
        return ""
    return ("at least " if figure.at_least else "") + with_unit(figure.goal, figure.unit)


def met_of(figure: Figure) -> str:
    return {None: "", True: "yes", False: "no"}[figure.met]


def cells(figure: Figure) -> tuple[str, str, str, str, str]:
    name = f"{figure.name} / {figure.against}" if figure.against else figure.name
    return name, figure.load, with_unit(figure.value, figure.unit), goal_of(figure), met_of(figure)


def text_table(figures: Sequence[Figure]) -> str:
    """All figures as columns of text, each measure after a line with its name."""
    rows: list[tuple[str, ...]] = []
    for measure in dict.fromkeys(figure.measure for figure in figures):
        rows.append((f"{measure}:", "", "", "", ""))
        rows += [("  " + row[0], *row[1:]) for f in figures if f.measure == measure for row in [cells(f)]]
    widths = [max(len(row[n]) for row in [HEADS, *rows]) for n in range(len(HEADS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [HEADS, *rows]]
    return "\n".join(line.rstrip() for line in lines)

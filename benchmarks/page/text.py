"""The text of docs/performance.md: the template with tables in it, and with the losses that the run shows.

A line of the template that begins with ``{{`` stands for a part: ``{{summary}}``, ``{{circumstances}}``,
``{{absent}}``, ``{{moments MEASURE NAME}}`` and ``{{table MEASURE NAME}}`` for tables of the figures whose names begin
so. The lines from ``{{missed MEASURE NAME}}`` to ``{{end}}`` stay only where one of these figures misses its goal, as
delivered or compacted.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.page.summary import summary
from benchmarks.results.figure import Figure, Results
from benchmarks.results.table import HEADS, cells, goal_of, with_unit

TEMPLATE = Path(__file__).with_name("template.md")
BLOCK = re.compile(r"^\{\{missed (\w+) ?(.*?)\}\}\n(.*?)^\{\{end\}\}\n", re.MULTILINE | re.DOTALL)
PART = re.compile(r"^\{\{(\w+) ?(\w*) ?(.*?)\}\}\n", re.MULTILINE)
MOMENTS = ("old", "middle", "now", "now between commits")
WIDTH = 120


def page(results: Results) -> str:
    """The page of these results."""
    text = TEMPLATE.read_text("utf-8")
    text = BLOCK.sub(lambda found: found[3] if missed(results, found[1], found[2]) else "", text)
    return PART.sub(lambda found: "".join(_part(results, found[1], found[2], found[3])), text)


def missed(results: Results, measure: str, name: str) -> bool:
    return any(figure.met is False for figure in chosen(results, measure, name))


def chosen(results: Results, measure: str, name: str) -> list[Figure]:
    return [f for f in results.figures if f.measure == measure and f.name.startswith(name)]


def _part(results: Results, kind: str, measure: str, name: str) -> Iterator[str]:
    figures = chosen(results, measure, name)
    if kind == "summary":
        yield summary(results)
    elif kind == "circumstances":
        yield textwrap.fill(circumstances(results), WIDTH) + "\n"
    elif kind == "absent":
        yield from (textwrap.fill(reason, WIDTH) + "\n\n" for reason in results.absent)
    elif kind == "moments":
        yield from moments(figures)
    elif kind == "table":
        yield from table(figures)
    else:
        raise ValueError(f"The template has a part {kind}, which is not known.")


def circumstances(results: Results) -> str:
    run = results.run
    packages = ", ".join(f"{name} {version}" for name, version in run["packages"].items())
    parts = f" in {run['parts']} parts" if run["parts"] > 1 else ""
    return (
        f"Last run: {run['date']}{parts}, size {run['size']}, seed {run['seed']}, {run['runs']} runs of each side, "
        f"revision {run['revision']}, {run['cores']} cores, which had a load of {run['load_average']} at the start, "
        f"Python {run['python']}, {packages}."
    )


def moments(figures: Sequence[Figure]) -> Iterator[str]:
    """A line for each load, a column for each moment: names are ``what, moment``."""
    if not figures:
        return
    columns = list(dict.fromkeys(_moment(figure) for figure in figures))
    yield f"| | {' | '.join(columns)} |\n|{' --- |' * (len(columns) + 1)}\n"
    rows: dict[tuple[str, str], dict[str, Figure]] = {}
    for figure in figures:
        rows.setdefault((_without_moment(figure), figure.load), {})[_moment(figure)] = figure
    for (what, load), by_moment in rows.items():
        found = (_with_goal(by_moment[column]) if column in by_moment else "" for column in columns)
        yield f"| {what}, {load} | {' | '.join(found)} |\n"


def _moment(figure: Figure) -> str:
    return next((part for part in figure.name.split(", ") if part in MOMENTS), "")


def _without_moment(figure: Figure) -> str:
    return ", ".join(part for part in figure.name.split(", ") if part != _moment(figure))


def _with_goal(figure: Figure) -> str:
    value = with_unit(figure.value, figure.unit)
    if figure.goal is None:
        return value
    return f"{value} ({'missed: ' if not figure.met else ''}{goal_of(figure)})"


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """A line for each figure; without a goal among them, no columns for goals."""
    if not figures:
        return
    columns = len(HEADS) if any(figure.goal is not None for figure in figures) else HEADS.index("goal")
    yield f"| {' | '.join(HEADS[:columns])} |\n|{' --- |' * columns}\n"
    yield from (f"| {' | '.join(cells(figure)[:columns])} |\n" for figure in figures)

"""One measured figure, with its goal, and a run's figures as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.results.costs import Costs, ratio


@dataclass(frozen=True)
class Figure:
    """``value`` in ``unit`` is what was found; a goal is reached from below, or with ``at_least`` from above.

    ``details`` holds the times on both sides, in milliseconds, and what else explains the figure.
    """

    measure: str
    name: str
    value: float
    goal: float | None = None
    load: str = ""
    against: str = ""
    unit: str = "ratio"
    at_least: bool = False
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        if self.goal is None:
            return None
        return self.value >= self.goal if self.at_least else self.value <= self.goal

    @property
    def title(self) -> str:
        """The figure's name that a goal, a table or a page knows it by."""
        return ", ".join(part for part in (self.name, self.load) if part)


def compared(measure: str, name: str, ours: Costs, theirs: Costs, clock: str = "cpu", **fields: Any) -> Figure:
    """A figure that is our cost by theirs: medians on ``clock``, all the others in its details."""
    details = {
        "clock": clock,
        "runs": len(ours.wall),
        **{f"{other}_ratio": round(ratio(ours, theirs, other), 3) for other in ("wall", "cpu")},
        **{f"{other}_ratio_of_minima": round(ratio(ours, theirs, other, min), 3) for other in ("wall", "cpu")},
        "cost_ms": ours.summary(),
        "against_ms": theirs.summary(),
        **fields.pop("details", {}),
    }
    return Figure(measure, name, round(ratio(ours, theirs, clock), 3), details=details, **fields)


@dataclass(frozen=True)
class Results:
    """Results of one run: the circumstances, the figures, and what could not be measured."""

    run: dict[str, Any]
    figures: list[Figure]
    absent: list[str]


def as_line(figure: Figure) -> str:
    return json.dumps({**asdict(figure), "met": figure.met})


def read_results(lines: Iterable[str]) -> Results:
    """The results in JSON lines. Of figures with the same names the last one counts, so runs may be appended.

    ``run`` then has the circumstances of the last one, the number of ``parts``, and the highest load of all.
    """
    run: dict[str, Any] = {}
    figures: dict[tuple[str, ...], Figure] = {}
    absent: list[str] = []
    for line in lines:
        fields = json.loads(line)
        if "run" in fields:
            load = max(fields["run"]["load_average"], run.get("load_average", 0))
            run = {**fields["run"], "parts": run.get("parts", 0) + 1, "load_average": load}
        elif "absent" in fields:
            absent.append(fields["absent"])
        else:
            fields.pop("met")
            figure = Figure(**fields)
            figures[figure.measure, figure.name, figure.load, figure.against] = figure
    return Results(run, list(figures.values()), absent)


def read_file(path: Path) -> Results:
    return read_results(path.read_text("utf-8").splitlines())

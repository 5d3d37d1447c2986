"""The plot of docs/performance.md: copies as of three moments, and what late records do to layout and reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.results.figure import Results

STATES = ["as delivered", "compacted"]
COLORS = ["#d1495b", "#1b6ca8"]
PANELS = [f"{what}, {factor}" for what in ("copy", "aggregate in DuckDB") for factor in ("10x", "100x")]
SHORT = {"now between commits": "between"}
MOMENTS = ["old", "middle", "now", "between"]
LATE = ["0 %", "0.1 %", "1 %", "10 %"]


def save_plot(results: Results, path: Path) -> None:
    """Write the plot as PNG."""
    import altair as alt

    reads = (
        alt.Chart()
        .mark_bar()
        .encode(
            x=alt.X("moment:N", sort=MOMENTS, title=None, axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("state:N", sort=STATES),
            y=alt.Y("ratio:Q", title="CPU time / plain Arrow file"),
            color=alt.Color("state:N", scale=alt.Scale(domain=STATES, range=COLORS), legend=alt.Legend(title=None)),
        )
        .properties(width=150, height=180)
    )
    goal = alt.Chart().mark_tick(color="black", thickness=2, width=40)
    goal = goal.encode(x=alt.X("moment:N", sort=MOMENTS), y="goal:Q")
    layers = alt.layer(reads, goal, data=alt.InlineData(values=_reads(results)))
    first = layers.facet(column=alt.Column("panel:N", title=None, sort=PANELS)).properties(
        title="Scans as of a moment; black: goal"
    )
    second = _late(results, "segments", "segments") | _late(results, "copy, now", "copy now / plain file")
    (first & second).resolve_scale(color="independent").save(str(path), scale_factor=2)


def _late(results: Results, name: str, title: str) -> Any:
    import altair as alt

    return (
        alt.Chart(alt.InlineData(values=_by_late_share(results, name)))
        .mark_line(point=True)
        .encode(
            x=alt.X("late:N", sort=LATE, title="late records", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("value:Q", title=title),
            color=alt.Color("history:N", legend=alt.Legend(title="history"), scale=alt.Scale(range=COLORS)),
        )
        .properties(width=230, height=160)
    )


def _reads(results: Results) -> list[dict[str, Any]]:
    rows = []
    for figure in results.figures:
        what, _, moment = figure.name.partition(", ")
        if figure.measure == "reads" and moment:
            factor, _, state = figure.load.partition(", ")
            row = {"panel": f"{what}, {factor}", "moment": SHORT.get(moment, moment), "state": state}
            rows.append({**row, "ratio": figure.value, "goal": figure.goal})
    return rows


def _by_late_share(results: Results, name: str) -> list[dict[str, Any]]:
    return [
        {"late": f"{f.details['late'] * 100:g} %", "history": f"{f.details['factor']}x", "value": f.value}
        for f in results.figures
        if f.measure == "late_shares" and f.name == name
    ]

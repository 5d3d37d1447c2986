"""The demo's plot: one day and the whole year by both joins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

STATE, ARRIVAL = "as of departure (time travel)", "by order of arrival"


def save_plot(by_wind: pa.Table, day: pa.Table, path: Path) -> Path:
    """Write both panels as PNG and return the path."""
    import altair as alt

    color = alt.Color(
        "join:N",
        title=None,
        scale=alt.Scale(domain=[STATE, ARRIVAL], range=["#1b6ca8", "#d1495b"]),
        legend=alt.Legend(orient="top"),
    )
    one_day = (
        alt.Chart(alt.InlineData(values=_rows(day, "departed", "wind", "wind_by_arrival")))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("x:T", title="departure (UTC)", axis=alt.Axis(format="%H:%M", labelAngle=0)),
            y=alt.Y("y:Q", title="wind joined to the flight (mph)"),
            color=color,
        )
        .properties(width=620, height=240, title=f"{day['departed'][0].as_py():%d %B %Y}, one airport: which wind?")
    )
    year = (
        alt.Chart(alt.InlineData(values=_rows(by_wind, "wind_mph", "mean_delay", "mean_delay_by_arrival")))
        .mark_line(point=True, strokeWidth=2)
        .encode(
            x=alt.X("x:Q", title="wind known at departure, from (mph)"),
            y=alt.Y("y:Q", title="mean departure delay (minutes)", scale=alt.Scale(zero=False)),
            color=color,
        )
        .properties(width=620, height=200, title="All flights of the year: delay by wind")
    )
    title = alt.TitleParams("The same flights, the same weather, two joins", anchor="start", fontSize=16)
    (one_day & year).properties(title=title).save(str(path), scale_factor=2)
    return path


def _rows(table: pa.Table, x: str, state: str, arrival: str) -> list[dict[str, Any]]:
    rows = []
    for row in table.to_pylist():
        at = f"{row[x]:%Y-%m-%dT%H:%M:%S}" if hasattr(row[x], "isoformat") else row[x]
        rows += [{"x": at, "y": row[state], "join": STATE}, {"x": at, "y": row[arrival], "join": ARRIVAL}]
    return rows

"""The demo's plot: mean delay by wind, joined by state time and by order of arrival."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

NAMES = {"mean_delay": "as of departure (time travel)", "mean_delay_by_arrival": "by order of arrival"}


def save_plot(by_wind: pa.Table, path: Path) -> Path:
    """Write the plot as PNG; answers the path."""
    import altair as alt

    rows: list[dict[str, Any]] = [
        {"wind": row["wind_mph"] + 2.5, "delay": row[column], "join": name}
        for row in by_wind.to_pylist()
        for column, name in NAMES.items()
    ]
    scale = alt.Scale(domain=list(NAMES.values()), range=["#1b6ca8", "#d1495b"])
    lines = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_line(point=True, strokeWidth=2.5)
        .encode(
            x=alt.X("wind:Q", title="wind known at departure (mph)", scale=alt.Scale(domain=[0, 40])),
            y=alt.Y("delay:Q", title="mean departure delay (minutes)", scale=alt.Scale(zero=True)),
            color=alt.Color("join:N", title=None, scale=scale, legend=alt.Legend(orient="top")),
        )
    )
    title = alt.TitleParams("Delay by wind: the same flights, the same weather, two joins", anchor="start")
    lines.properties(width=560, height=320, title=title).save(str(path), scale_factor=2)
    return path

"""`statestore demo`: delay by the wind known at departure, and the result of the same join without time travel."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from statestore.catalog.catalog import connect
from statestore.connector.demo.data import WEATHER_VALUES, DemoData, load
from statestore.connector.demo.joining import BY_WIND, STORES, TOTALS, WORST, day_around, duckdb_join, spark_join
from statestore.connector.sql.query import sql
from statestore.connector.terminal import message_console, say, show_object, show_table
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError

MARKER = ".statestore-demo"


def run_demo(engine: str, out: Path, *, as_json: bool = False) -> None:
    """Build the stores, join on ``engine`` ("spark" or "duckdb"), print tables and save the plot into ``out``."""
    warehouse = _fresh_folder(out) / "warehouse"
    with _steps() as step:
        with step("reading flights and weather of 2013"):
            data = load()
        with step(f"writing {data.weather.num_rows:,} observations as they arrived"):
            _write_weather(warehouse, data)
        with step(f"joining {data.flights.num_rows:,} flights with the weather at their departure on {engine}"):
            ask = (spark_join if engine == "spark" else duckdb_join)(warehouse, data.flights)
            by_wind, totals, worst = ask(BY_WIND), ask(TOTALS), ask(WORST)
            day = ask(day_around(worst))
        with step("drawing"):
            plot = _save_plot(by_wind, day, out / "wind_known_at_departure.png")
    commits = sql(str(warehouse), """SELECT count(*) AS n FROM "weather$versions" WHERE operation = 'write'""")
    say(f"\nThe store `weather` has {commits['n'][0]} commits, and some observations came hours late.\n")
    show_table(_revised_moment(warehouse), as_json=as_json, title="One moment, as two commits recorded it")
    show_table(by_wind, as_json=as_json, title="Departure delay (minutes) by wind known at departure")
    show_object(totals.to_pylist()[0], as_json=as_json, title="Joined by order of arrival instead")
    show_table(worst, as_json=as_json, title="Where arrival order misleads most")
    question = "SELECT * FROM weather TIMESTAMP AS OF '2013-07-04T12:00Z'"
    say(f'\nPlot: {plot}\nAsk more: statestore sql {warehouse} "{question}"')


def _write_weather(warehouse: Path, data: DemoData) -> None:
    """Write both stores, with one commit for each month of arrival."""
    catalog = connect(warehouse)
    key = {"origin": "string"}
    by_state = catalog.create_store(STORES["by_state"], key=key, value=WEATHER_VALUES)
    by_arrival = catalog.create_store(STORES["by_arrival"], key=key, value={**WEATHER_VALUES, "observed": "timestamp"})
    for part in data.commits():
        by_state.put_all(part.drop_columns(["arrived"]))
        by_state.commit()
        names = ["observed" if n == "timestamp" else "timestamp" if n == "arrived" else n for n in part.column_names]
        by_arrival.put_all(part.rename_columns(names))
        by_arrival.commit()


def _revised_moment(warehouse: Path) -> pa.Table:
    """A moment that a late record changed: the answer of the store before the record arrived, and its answer now."""
    moment = _late_moment(warehouse)
    question = f"TIMESTAMP AS OF '{moment}'"
    return sql(
        str(warehouse),
        f"""
        SELECT 'commit 1' AS "as recorded by", origin, valid_from AS observed, round(wind_speed, 1) AS wind, temp
        FROM weather AT (VERSION => 1) {question}
        UNION ALL
        SELECT 'now', origin, valid_from, round(wind_speed, 1), temp FROM weather {question}
        ORDER BY origin, 1
        """,
    )


def _late_moment(warehouse: Path) -> str:
    """The newest moment recorded by commit 1 that a later commit changed."""
    found = sql(
        str(warehouse),
        """
        SELECT strftime(max(valid_from), '%Y-%m-%dT%H:%M:%SZ') AS moment
        FROM changes('weather', 2, 2)
        WHERE valid_from <= (SELECT stream_time FROM "weather$versions" WHERE version = 1)
        """,
    )
    return str(found["moment"][0].as_py())


def _fresh_folder(out: Path) -> Path:
    """Return ``out``, emptied if a demo made it; a folder with other files is refused."""
    if out.exists() and not out.is_dir():
        raise InvalidInputError(ErrorCode.NOT_A_FOLDER, f"--out {out}: that is a file; name a new folder")
    if out.exists() and any(out.iterdir()):
        if not (out / MARKER).is_file():
            raise InvalidInputError(
                ErrorCode.NOT_EMPTY, f"--out {out}: the folder holds other files; name a new folder"
            )
        shutil.rmtree(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).touch()
    return out


@contextmanager
def _steps() -> Iterator[Callable[[str], AbstractContextManager[None]]]:
    """Show progress on stderr: a spinner on a terminal, otherwise a line for each step."""
    console = message_console()
    columns = (SpinnerColumn(finished_text="✓"), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        @contextmanager
        def step(text: str) -> Iterator[None]:
            if not console.is_terminal:
                console.print(text, markup=False)
            task = progress.add_task(text, total=1)
            yield
            progress.update(task, completed=1)

        yield step


# The demo's plot: one day and the whole year by both joins.

STATE, ARRIVAL = "as of departure (time travel)", "by order of arrival"


def _save_plot(by_wind: pa.Table, day: pa.Table, path: Path) -> Path:
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

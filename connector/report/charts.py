"""The charts of a report as Vega-Lite specifications, each with its own data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from statestore.connector.report.figures import COMMIT_BARS, GROUP_CELLS, SAMPLED_VERSIONS, StoreFigures
from statestore.connector.terminal import plain_text

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # an identifier that is never loaded
TIME = {"type": "temporal", "scale": {"type": "utc"}}
BLUE, PURPLE = "#3d8fd1", "#9b72b8"  # with contrast on a light ground and on a dark one
NUMBER = "abs(datum.value) >= 1e9 ? format(datum.value, '.6~e') : format(datum.value, ',')"  # as short as an axis
WIDTH = "(scale('x', datum.to) - scale('x', datum.from))"  # of a bar, in pixels
TICKS = 5
CHANGE_COLORS = {"written": "#2a9d8f", "ended": "#d1495b"}


def charts_of(figures: StoreFigures) -> list[tuple[str, str, Spec]]:
    """(title, description, specification) of each chart that is not empty."""
    found = []
    if figures.growth:
        points = len(figures.growth)
        when = "each version" if points < SAMPLED_VERSIONS else f"{points} versions, evenly spread"
        found.append(("Rows", f"rows that are valid, as of {when}", _curve(figures, "keys", BLUE)))
        found.append(("Size", f"bytes on disk, as of {when}", _curve(figures, "bytes", PURPLE)))
    if figures.churn:
        run = max(1, -(-len(figures.commits) // COMMIT_BARS))
        each = "" if run == 1 else f", in runs of {run} commits"
        found.append(("Churn", f"versions of rows that commits wrote and ended{each}", _churn(figures)))
    if figures.heat:
        clock, by = ("state time", "time") if figures.is_timed else ("version", "version")
        what = f"versions of rows by the {clock} at which they begin, where it is known"
        found.append((f"Key groups by {by}", what, _heat(figures)))
    if figures.busiest:
        found.append(("Busiest keys", "keys with the most versions", _bars(figures.busiest, "versions", "#e9a23b")))
    if figures.biggest:
        found.append(("Biggest keys", "keys whose values take the most bytes", _bars(figures.biggest, "bytes", PURPLE)))
    return found


def lifelines_of(figures: StoreFigures) -> dict[str, Spec]:
    """The lifeline of each chosen key, with a panel for each value column: numbers as steps, other values as labelled
    bars."""
    return {key: _lifeline(figures, rows) for key, rows in figures.lifelines.items()}


def _spec(rows: list[dict[str, Any]], height: int = 220) -> Spec:
    return {"$schema": SCHEMA, "width": "container", "height": height, "data": {"values": rows}}


def _curve(figures: StoreFigures, column: str, color: str) -> Spec:
    most = max(row[column] for row in figures.growth)
    axis = byte_axis(most) if column == "bytes" else count_axis(most)
    return _spec(figures.growth) | {
        "mark": {
            "type": "area", "line": {"color": color, "strokeWidth": 2}, "color": color, "opacity": 0.25,
            "interpolate": "step-after", "point": {"color": color, "size": 18, "opacity": 1},
        },
        "encoding": {
            "x": _over(_has_times(figures.growth), "time", figures.growth, "committed"),
            "y": {"field": column, "type": "quantitative", "axis": axis, "scale": {} if most else {"domain": [0, 1]}},
            "tooltip": [
                {"field": "version", "type": "quantitative"},
                *_committed(figures.growth),
                {"field": column, "type": "quantitative", "format": ","},
            ],
        },
    }  # fmt: skip


def _churn(figures: StoreFigures) -> Spec:
    rows = [
        {
            **row,
            "version": f"{row['first']}" if row["first"] == row["last"] else f"{row['first']} to {row['last']}",
            "rows": abs(row["count"]),
        }
        for row in figures.churn
    ]
    counts = [row["count"] for row in rows]
    return _spec(rows) | {
        "mark": {"type": "bar"},
        "encoding": {
            "x": {
                "field": "first",
                "type": "ordinal",
                "title": "version",
                "axis": _version_axis(sorted({row["first"] for row in rows})),
            },
            "y": {"field": "count", "type": "quantitative", "axis": count_axis(max(0, *counts), min(0, *counts))},
            "color": {
                "field": "change",
                "type": "nominal",
                "title": None,
                "scale": {"domain": list(CHANGE_COLORS), "range": list(CHANGE_COLORS.values())},
                "legend": {"orient": "top"},
            },
            "tooltip": [
                {"field": "version", "type": "nominal"},
                *_committed(rows),
                {"field": "change", "type": "nominal"},
                {"field": "rows", "type": "quantitative", "format": ","},
            ],
        },
    }


def _heat(figures: StoreFigures) -> Spec:
    most = [cell["rows"] for cell in figures.heat]
    return _spec(figures.heat) | {
        "mark": {"type": "rect"},
        "encoding": {
            "x": _over(figures.is_timed, "from", figures.heat, "state time"),
            "x2": {"field": "to"},
            "y": {
                "field": "group",
                "type": "ordinal",
                "title": f"key group, of {GROUP_CELLS}",
                "scale": {"domain": list(range(GROUP_CELLS))},
                "axis": {"values": list(range(0, GROUP_CELLS, 8))},
            },
            "color": {
                "field": "rows", "type": "quantitative", "title": "versions", "scale": {"scheme": "viridis"},
                "legend": {
                    "orient": "top", "gradientLength": 160, "format": ",d", "values": sorted({min(most), max(most)}),
                },
            },
            "tooltip": [
                _at(figures, "from", "from", "%Y-%m-%d %H:%M"),
                {"field": "group", "type": "ordinal", "title": "key group"},
                {"field": "rows", "type": "quantitative", "title": "versions", "format": ","},
            ],
        },
    }  # fmt: skip


def _bars(rows: list[dict[str, Any]], column: str, color: str) -> Spec:
    most = max(row[column] for row in rows)
    return _spec(rows, 18 * len(rows) + 10) | {
        "mark": {"type": "bar", "color": color, "cornerRadiusEnd": 3},
        "encoding": {
            "y": {"field": "key", "type": "nominal", "sort": "-x", "title": None, "axis": {"labelLimit": 160}},
            "x": {
                "field": column,
                "type": "quantitative",
                "axis": byte_axis(most) if column == "bytes" else count_axis(most),
                "scale": {} if most else {"domain": [0, 1]},
            },
            "tooltip": [{"field": "key", "type": "nominal"}, {"field": column, "type": "quantitative", "format": ","}],
        },
    }


def _lifeline(figures: StoreFigures, rows: list[dict[str, Any]]) -> Spec:
    columns = list(dict.fromkeys(row["column"] for row in rows))
    panels = []
    for column in columns:
        mine = [
            {
                **row,
                "from": figures.first if row["from"] is None else row["from"],
                "to": figures.now if row["to"] is None else row["to"],
                "since": row["from"],
                "until": row["to"],
            }
            for row in rows
            if row["column"] == column
        ]
        for row in mine:
            row["text"] = plain_text(row["value"])
        numeric = column in figures.numeric and all(not isinstance(r["value"], str) for r in mine)
        panels.append((_steps if numeric else _spans)(figures, mine, column))
    return {
        "$schema": SCHEMA,
        "vconcat": panels,
        "resolve": {"scale": {"x": "shared", "color": "independent"}},
        "spacing": 12,
    }


def _over(is_timed: bool, name: str, rows: list[dict[str, Any]], what: str, ticks: int = TICKS) -> Spec:
    """The axis of a field of rows: ``what`` is the name of its times; versions where times are unknown."""
    if not is_timed and name == "time":
        name = "version"
    places = [row[end] for row in rows for end in {name, "to"} & row.keys()]
    if is_timed:
        return {"field": name, **TIME, "title": time_title(what, places), "axis": time_axis(places, ticks)}
    values = range(min(places), max(places) + 1)
    scale = {"zero": False, "nice": False}
    return {"field": name, "type": "quantitative", "title": "version", "axis": _version_axis(values), "scale": scale}


def _has_times(rows: list[dict[str, Any]]) -> bool:
    """Return whether the time of each version is known. A history may have times where versions have none."""
    return all(row["time"] is not None for row in rows)


def _committed(rows: list[dict[str, Any]]) -> list[Spec]:
    if not _has_times(rows):
        return []
    return [{"field": "time", **TIME, "title": "committed", "format": "%Y-%m-%d %H:%M:%S"}]


def _at(figures: StoreFigures, name: str, title: str, form: str) -> Spec:
    """A place on the axis, in a tooltip: a time, or a version."""
    if figures.is_timed:
        return {"field": name, **TIME, "title": title, "format": form}
    return {"field": name, "type": "quantitative", "title": title}


def _steps(figures: StoreFigures, rows: list[dict[str, Any]], column: str) -> Spec:
    x = _over(figures.is_timed, "from", rows, "state time", ticks=10)
    shared = {"x": x, "tooltip": _tooltip(figures, column)}
    version = {
        "field": "version",
        "type": "ordinal",
        "title": "commit",
        "scale": {"scheme": "tableau10"},
        "legend": None,
    }
    return {
        "width": "container",
        "height": 150,
        "title": {"text": column, "anchor": "start", "fontSize": 12},
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 3},
                "encoding": {
                    **shared,
                    "x2": {"field": "to"},
                    "y": {
                        "field": "value",
                        "type": "quantitative",
                        "title": None,
                        "scale": {"zero": False},
                        "axis": {"labelExpr": NUMBER},
                    },
                    "color": version,
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1},
                "encoding": {**shared, "y": {"field": "value", "type": "quantitative"}, "color": version},
            },
        ],
    }


def _spans(figures: StoreFigures, rows: list[dict[str, Any]], column: str) -> Spec:
    x = _over(figures.is_timed, "from", rows, "state time", ticks=10)
    return {
        "width": "container",
        "height": 46,
        "title": {"text": column, "anchor": "start", "fontSize": 12},
        "data": {"values": rows},
        "layer": [
            {
                "mark": {"type": "bar", "cornerRadius": 3, "stroke": "white", "strokeWidth": 1},
                "encoding": {
                    "x": x,
                    "x2": {"field": "to"},
                    "color": {"field": "text", "type": "nominal", "legend": None, "scale": {"scheme": "tableau20"}},
                    "tooltip": _tooltip(figures, column),
                },
            },
            {
                "mark": {
                    "type": "text", "align": "left", "dx": 5, "color": "black", "clip": True,
                    "limit": {"expr": f"max(1, {WIDTH} - 8)"}, "opacity": {"expr": f"{WIDTH} < 20 ? 0 : 1"},
                },
                "encoding": {"x": x, "text": {"field": "text"}},
            },
        ],
    }  # fmt: skip


def _tooltip(figures: StoreFigures, column: str) -> list[Spec]:
    return [
        {"field": "text", "type": "nominal", "title": column},
        _at(figures, "since", "valid from (null: unknown)", "%Y-%m-%d %H:%M:%S.%L"),
        _at(figures, "until", "valid to", "%Y-%m-%d %H:%M:%S.%L"),
        {"field": "version", "type": "ordinal", "title": "recorded by commit"},
    ]


# Axes of the report's charts: times with hours of a day, counts in whole numbers, bytes in powers of 1,024.

Axis = dict[str, Any]
DAY = 86_400

# The label of a tick, for a chart of less than so many seconds. Vega's own labels show the hours of half a day.
LABELS = (
    (10, "%H:%M:%S.%L"), (20 * 60, "%H:%M:%S"), (2 * DAY, "%H:%M"), (10 * DAY, "%d %b %H:%M"), (400 * DAY, "%d %b"),
    (3000 * DAY, "%b %Y"),
)  # fmt: skip
LONGER = "%Y"
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
VERSION_LABELS = 8


def time_axis(times: Iterable[int], ticks: int = TICKS) -> Axis:
    """Return the axis for these times in UTC (epoch milliseconds), with about so many labels."""
    first, last = _ends(times)
    label = next((text for seconds, text in LABELS if last - first < seconds * 1000), LONGER)
    axis = {"format": label, "tickCount": ticks, "labelOverlap": "greedy", "labelSeparation": 8}
    if last - first >= LABELS[0][0] * 1000:
        return axis
    step = int(_round_step(max((last - first) / ticks, 1)))  # Vega would choose a single moment of some milliseconds
    return {**axis, "values": {"expr": str(list(range(-(-first // step) * step, last + 1, step)))}}


def time_title(what: str, times: Iterable[int]) -> str:
    """Return the title of such an axis, with the day that the labels leave out."""
    first, last = _ends(times)
    if last - first >= 2 * DAY * 1000:
        return f"{what} (UTC)"
    days = [str(np.datetime64(time, "ms").astype("datetime64[D]")) for time in (first, last)]  # of any year
    return f"{what} (UTC, {days[0]})" if days[0] == days[1] else f"{what} (UTC, {days[0]} and {days[1]})"


def _ends(times: Iterable[int]) -> tuple[int, int]:
    known = list(times)
    return min(known), max(known)


def count_axis(most: int, least: int = 0) -> Axis:
    """Return the axis of counts up to ``most``; those from ``least`` to zero are drawn downwards, and have no sign."""
    step = max(1, int(_round_step(max(most - least, 1) / TICKS)))
    values = list(range(least // step * step, most + step, step))
    return {"title": None, "values": values, "labelExpr": "format(abs(datum.value), '~s')"}


def byte_axis(most: int) -> Axis:
    """Return the axis of up to ``most`` bytes, with a label at round numbers of one unit."""
    power = min(max(most.bit_length() - 1, 0) // 10, len(UNITS) - 1)
    unit = 1 << (10 * power)
    step = _round_step(max(most, 1) / unit / TICKS)
    if power == 0:
        step = max(step, 1.0)
    values = [number * step * unit for number in range(int(most / unit / step) + 2)]
    return {"title": None, "values": values, "labelExpr": f"format(datum.value / {unit}, '~g') + ' {UNITS[power]}'"}


def _round_step(least: float) -> float:
    """Return the least of 1, 2, 5, 10, 20, 50, ... or of their fractions that is not below ``least``."""
    scale = 1.0
    while scale > least:
        scale /= 10
    while scale * 10 <= least:
        scale *= 10
    return next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= least)


def _version_axis(versions: Sequence[int]) -> Axis:
    """Return the axis of versions in order, of which some have labels."""
    step = max(1, -(-len(versions) // VERSION_LABELS))
    return {"labelAngle": 0, "values": list(versions[::step]), "labelOverlap": "greedy", "labelSeparation": 8}

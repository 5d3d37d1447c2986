"""Axes of the report's charts: times with hours of a day, counts in whole numbers, bytes in powers of 1,024."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Axis = dict[str, Any]
DAY = 86_400

# The label of a tick, for a chart of less than so many seconds. Vega's own labels show the hours of half a day.
LABELS = (
    (10, "%H:%M:%S.%L"), (20 * 60, "%H:%M:%S"), (2 * DAY, "%H:%M"), (10 * DAY, "%d %b %H:%M"), (400 * DAY, "%d %b"),
    (3000 * DAY, "%b %Y"),
)  # fmt: skip
LONGER = "%Y"
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
TICKS = 5
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


def version_axis(versions: Sequence[int]) -> Axis:
    """Return the axis of versions in order, of which some have labels."""
    step = max(1, -(-len(versions) // VERSION_LABELS))
    return {"labelAngle": 0, "values": list(versions[::step]), "labelOverlap": "greedy", "labelSeparation": 8}

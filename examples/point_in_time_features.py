"""Features as they were known: do an airport's recent delays predict that a flight will leave late?

    pip install 'statestore[demo]'
    python examples/point_in_time_features.py [folder]

A store keeps one feature through the year 2013: the mean delay of the last 25 departures of each airport. A model that
warns two hours ahead may use only the feature as of two hours before the departure. The script fits one line with the
feature as of that time, and one with the feature as of just after the departure, which already contains the answer. It
tests both on December, with the feature as of two hours before.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import statestore
from statestore.connector.demo.data import load

WINDOW = 25
LEAD_US = 2 * 3600 * 1_000_000
TRAIN_UNTIL_MONTH = 11

Floats = npt.NDArray[np.float64]


def main(folder: Path) -> dict[str, float]:
    """Run everything in ``folder``; return the mean absolute error, in minutes, of each way to train."""
    flights = load().flights
    catalog = statestore.connect(folder / "warehouse")
    with catalog.create_store("recent", key={"origin": "string"}, value={"mean_delay": "double"}) as recent:
        recent.put_all(running_means(flights))
        recent.commit()
        moment = flights["departed"].cast(pa.int64())
        known = joined(flights, pc.subtract(moment, LEAD_US), recent)
        leaked = joined(flights, pc.add(moment, 60_000_000), recent)
    delay = flights["dep_delay"].to_numpy()
    december = pc.greater(pc.month(flights["departed"]), TRAIN_UNTIL_MONTH).to_numpy()
    usable = ~np.isnan(known) & ~np.isnan(leaked)
    errors = {}
    for name, feature in (("as of two hours before", known), ("as of just after", leaked)):
        slope, offset = np.polyfit(feature[usable & ~december], delay[usable & ~december], 1)
        test = usable & december
        training_error = np.abs(slope * feature + offset - delay)[usable & ~december].mean()
        errors[name] = float(np.abs(slope * known[test] + offset - delay[test]).mean())
        print(f"trained {name}: {training_error:.2f} minutes off in training, {errors[name]:.2f} in use")
    return errors


def running_means(flights: pa.Table) -> pa.Table:
    """The mean delay of the last WINDOW departures of each airport, from each departure on."""
    parts = []
    for origin in pc.unique(flights["origin"]).to_pylist():
        mine = flights.filter(pc.equal(flights["origin"], origin))
        sums = np.concatenate(([0.0], np.cumsum(mine["dep_delay"].to_numpy())))
        ends = np.arange(1, len(sums))
        begins = np.maximum(ends - WINDOW, 0)
        means = (sums[ends] - sums[begins]) / (ends - begins)
        parts.append(
            mine.select(["origin"])
            .append_column("mean_delay", pa.array(means))
            .append_column("timestamp", mine["departed"])
        )
    return pa.concat_tables(parts)


def joined(flights: pa.Table, moment: pa.ChunkedArray, recent: statestore.VersionedStore) -> Floats:
    """The feature as of a moment for each flight, NaN where there was none."""
    asked = flights.select(["origin"]).append_column("moment", moment.cast(pa.timestamp("us", "UTC")))
    found = statestore.asof_join(asked, recent, on="origin", left_time="moment", how="left")
    known: Floats = found["mean_delay"].to_numpy()
    return known


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))

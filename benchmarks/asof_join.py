"""As-of joins beside DuckDB's own ``ASOF JOIN`` over Parquet of the same history. Prints JSON lines.

    python benchmarks/asof_join.py           1M keys and 10M versions, two million left rows and a thousand
    python benchmarks/asof_join.py --quick   20k keys and 200k versions, 40,000 left rows and a thousand

The history has hot keys, 3 % deletes and 1 % late records, as its commits left it. Half of the left rows have hot keys,
and their times are anywhere in the stream. DuckDB checks the end of a version, too. A thousand left rows stand beside
``get_many`` of as many keys, whose moment is one for all. Both answers are compared first. Each line holds the ratio of
the processor time of both, medians of alternating runs, and the medians in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import statestore  # noqa: E402
from benchmarks.loads.stream import START_MS, STEP_MS, VALUE, Shape, Stream  # noqa: E402
from benchmarks.measures.workbench import open_reader, open_writer  # noqa: E402
from benchmarks.results.costs import alternate, ratio  # noqa: E402

FEW = 1_000
GOAL, GOAL_BESIDE_GETS = 0.6, 2.5
QUERY = """
    SELECT l.n, {0} FROM left_rows l ASOF JOIN read_parquet('{1}') h
    ON l.item = h.item AND l.at >= h.valid_from WHERE h.valid_to IS NULL OR l.at < h.valid_to
"""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    shape = Shape(20_000, 10, 20_000) if given.quick else Shape(1_000_000, 10, 100_000)
    stream = Stream(shape, given.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_writer(folder / "store") as store:
            for number in range(shape.commits):
                store.put_all(stream.commit(number))
                store.commit()
        with open_reader(folder / "store") as reader:
            pq.write_table(reader.history().read_all(), folder / "history.parquet")
            measure(reader, stream, folder / "history.parquet", 40_000 if given.quick else 2_000_000, given.runs)


def measure(reader: statestore.VersionedStore, stream: Stream, parquet: Path, rows: int, runs: int) -> None:
    """Print the ratios of a large and of a small left side."""
    for count in (rows, FEW):
        left = left_rows(stream, count)

        def ours(left: pa.Table = left) -> pa.Table:
            return statestore.asof_join(left, reader, on="item", left_time="at")

        load = f"{count:,} left rows of {stream.shape.events:,} changes"
        report("as-of join / DuckDB's ASOF JOIN over Parquet", load, ours, theirs(left, parquet), runs, GOAL)
        if count == FEW:
            keys, moment = left["item"].to_pylist(), stream.moment(0.5)
            gets = lambda keys=keys, moment=moment: reader.get_many(keys, as_of=moment)  # noqa: E731
            report("as-of join / get_many", load, ours, gets, runs, GOAL_BESIDE_GETS)


def left_rows(stream: Stream, count: int) -> pa.Table:
    random = np.random.default_rng(count)
    hot = stream.key[random.integers(0, stream.shape.events, count)]
    keys = np.where(random.random(count) < 0.5, hot, random.integers(0, stream.shape.keys, count))
    times = START_MS + random.integers(0, stream.shape.events * STEP_MS, count)
    at = pa.array(times * 1000).cast(pa.timestamp("us", "UTC"))
    return pa.table({"item": stream.names.take(pa.array(keys)), "at": at, "n": np.arange(count)})


def theirs(left: pa.Table, parquet: Path) -> Callable[[], pa.Table]:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("left_rows", left)
    query = QUERY.format(", ".join(f"h.{name}" for name in VALUE), parquet)
    return lambda: connection.sql(query).to_arrow_table()


def report(
    name: str, load: str, ours: Callable[[], pa.Table], beside: Callable[[], object], runs: int, goal: float
) -> None:
    answer = beside()
    if isinstance(answer, pa.Table):
        joined = ours().select(["n", *VALUE])
        if not joined.equals(answer.sort_by("n").cast(joined.schema)):
            raise AssertionError(f"{name}, {load}: the answers differ")
    costs = alternate({"ours": ours, "theirs": beside}, runs)
    medians = {f"{side}_ms": cost.summary()["cpu_median"] for side, cost in costs.items()}
    found = round(ratio(costs["ours"], costs["theirs"]), 3)
    print(json.dumps({"measure": name, "load": load, "ratio": found, "goal": goal, **medians}), flush=True)


if __name__ == "__main__":
    main()

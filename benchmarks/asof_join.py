"""As-of joins against DuckDB's own ``ASOF JOIN`` over the same tables. Prints a line for each size of the left side.

    python benchmarks/asof_join.py [keys [versions]]

DuckDB reads both sides from tables of its own, in memory, with the same check for the end of a version. This package
reads the history from the store. Runs alternate; the medians of seven are compared.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

import statestore

LEFT_ROWS = 1_000_000
RUNS = 7
BATCH = 500_000


def main(keys: int = 100_000, versions: int = 20) -> None:
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        catalog = statestore.connect(Path(folder))
        with catalog.create_store("prices", key={"item": "string"}, value={"price": "double"}) as store:
            fill(store, keys, versions, random)
            left = left_side(keys, versions, random)
            compare(store, left, "a million rows")
            compare(store, left.slice(0, 10_000), "10,000 rows")
            few = left.slice(0, 1_000)
            compare(store, few, "1,000 rows")


def fill(store: statestore.VersionedStore, keys: int, versions: int, random: np.random.Generator) -> None:
    for version in range(versions):
        for start in range(0, keys, BATCH):
            numbers = np.arange(start, min(start + BATCH, keys))
            times = version * 1_000_000 + random.integers(0, 1_000_000, len(numbers))
            table = pa.table(
                {
                    "item": names(numbers),
                    "price": random.random(len(numbers)),
                    "timestamp": times,
                }
            )
            store.write(table)
    store.compact(full=True)


def left_side(keys: int, versions: int, random: np.random.Generator) -> pa.Table:
    times = random.integers(0, versions * 1_000_000, LEFT_ROWS) * 1000
    return pa.table(
        {
            "item": names(random.integers(0, keys, LEFT_ROWS)),
            "at": pa.array(times).cast(pa.timestamp("us", "UTC")),
            "n": np.arange(LEFT_ROWS),
        }
    )


def names(numbers: np.ndarray) -> pa.Array:
    return pa.array([f"item-{n:08d}" for n in numbers.tolist()])


def compare(store: statestore.VersionedStore, left: pa.Table, what: str) -> None:
    history = store.history().read_all()
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("given", left)
    connection.register("told", history)
    connection.execute("CREATE TABLE l AS SELECT * FROM given; CREATE TABLE h AS SELECT * FROM told")
    query = """
        SELECT l.*, CASE WHEN h.valid_to IS NULL OR l.at < h.valid_to THEN h.price END AS price
        FROM l ASOF LEFT JOIN h ON l.item = h.item AND l.at >= h.valid_from
    """

    def theirs() -> pa.Table:
        return connection.sql(query).to_arrow_table()

    def ours() -> pa.Table:
        return statestore.asof_join(left, store, on="item", left_time="at", how="left")

    def total(table: pa.Table) -> float:
        return round(float(np.nansum(table["price"].to_numpy())), 3)

    assert total(ours()) == total(theirs())
    taken: dict[Callable[[], pa.Table], list[float]] = {ours: [], theirs: []}
    for _ in range(RUNS):
        for call, seconds in taken.items():
            begin = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - begin)
    mine, peer = (statistics.median(seconds) * 1000 for seconds in taken.values())
    print(
        f"{what} with {history.num_rows:,} versions: ours {mine:,.0f} ms, DuckDB's ASOF JOIN {peer:,.0f} ms, "
        f"ratio {mine / peer:.2f}"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""First answers of a new process, and a connection to many stores, beside Parquet. Prints JSON lines.

    python benchmarks/first_answers.py [--stores 200] [--quick]

A process imports a library, finds one key and ends: ours in a store, and DuckDB in a Parquet file of the same rows.
``attach`` makes a view of each store, and DuckDB one of as many Parquet files. Figures are processor times, the least
of runs that alternate, each with its ratio to the peer. Answers are compared before they are timed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import statestore

OURS = "import statestore; print(statestore.inspect({path!r}).table('store_0').get('tea')['price'])"
PEER = "import duckdb; print(duckdb.sql(\"SELECT price FROM '{path}/0.parquet' WHERE item = 'tea'\").fetchall()[0][0])"


def write(folder: Path, stores: int) -> None:
    """Write stores of one row, and a Parquet file of it for each."""
    (folder / "parquet").mkdir(parents=True)
    catalog = statestore.connect(folder / "stores")
    for number in range(stores):
        name = f"store_{number}"
        with catalog.create_store(name, key={"item": "string"}, value={"price": "double"}) as store:
            store.put("tea", 1.5, timestamp=1000)
            store.commit()
        pq.write_table(pa.table({"item": ["tea"], "price": [1.5]}), folder / "parquet" / f"{number}.parquet")


def of_process(script: str) -> Callable[[], float]:
    """Return a call that runs a script in a process of its own and returns the processor time of that."""

    def spent() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "1.5", done.stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return spent


def of_views(connect: Callable[[], duckdb.DuckDBPyConnection], name: str) -> Callable[[], float]:
    """Return a call that makes a connection with views, and returns the processor time of that."""

    def spent() -> float:
        begin = time.process_time()
        connection = connect()
        found = time.process_time() - begin
        assert connection.execute(f"SELECT price FROM {name}").fetchall() == [(1.5,)]
        connection.close()
        return found

    return spent


def parquet_views(folder: Path, stores: int) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for number in range(stores):
        connection.execute(f"CREATE VIEW store_{number} AS FROM '{folder}/{number}.parquet'")
    return connection


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="20 stores, three runs")
    given = parser.parse_args()
    stores, rounds = (20, 3) if given.quick else (given.stores, 7)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder, stores)
        ours, peer = folder / "stores", folder / "parquet"
        last = f"store_{stores - 1}"
        measures = {
            "one key in a new process": (
                of_process(OURS.format(path=str(ours))),
                of_process(PEER.format(path=peer)),
                0.3 / 0.247,
            ),
            f"attach {stores} stores": (
                of_views(lambda: statestore.attach(str(ours)), last),
                of_views(lambda: parquet_views(peer, stores), last),
                2.5,
            ),
        }
        for name, (of_ours, of_peer, goal) in measures.items():
            times = [(of_ours(), of_peer()) for _ in range(rounds)]
            best, other = min(a for a, _ in times), min(b for _, b in times)
            figure = {"measure": name, "ratio": round(best / other, 2), "goal": round(goal, 2)}
            print(json.dumps({**figure, "seconds": round(best, 3), "parquet": round(other, 3)}), flush=True)


if __name__ == "__main__":
    main()

"""First answers of a new process, and a connection to many stores, beside Parquet. Prints JSON lines.

    python benchmarks/first_answers.py [--stores 200] [--quick]

A process imports a library, finds one key and ends: ours in a store, and DuckDB in a Parquet file of the same rows.
Commands stand beside that, beside the import of ``pyarrow.compute``, which each command that reads needs, and
``--version`` beside a Python that does nothing. ``attach`` makes five views and two macros of each store, and DuckDB a
view of as many Parquet files. Lines that begin with "floor" have, in place of ours, what ours cannot do without: the
import of the libraries, and as many views and macros that read nothing. Figures are processor times, the least of runs
that alternate, each with its ratio to the peer. Answers are compared.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
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
SPARK = "import statestore; print(statestore.inspect({path!r}).table('state').get({{'k': 'key-00-'}})['value']['sum'])"
ARCHIVE = Path(__file__).parents[1] / "tests" / "data" / "spark" / "checkpoints.tar.xz"
CHECKPOINT = "checkpoints/spark4.3.0-agg__rkcl"
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


def of_process(*arguments: str, says: str) -> Callable[[], float]:
    """Return a call that runs Python in a process of its own, and returns the processor time of that. ``says`` is a
    text in its output."""

    def spent() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True)
        assert says in done.stdout, done.stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return spent


def ours_of(script: str, path: Path, says: str) -> Callable[[], float]:
    return of_process("-c", script.format(path=str(path)), says=says)


def command(*words: str, says: str) -> Callable[[], float]:
    return of_process("-m", "statestore", *words, says=says)


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


def empty_views(stores: int) -> duckdb.DuckDBPyConnection:
    """Make as many views and macros as ``attach`` does, of constants."""
    connection = duckdb.connect()
    made = ["BEGIN"]
    for number in range(stores):
        name = f"store_{number}"
        made += [f'CREATE VIEW "{name}{kind}" AS SELECT 1.5 AS price' for kind in ("", "$a", "$b", "$c", "$d")]
        made += [f"CREATE MACRO {name}_{kind}(moment) AS TABLE SELECT 1.5 AS price" for kind in ("e", "f")]
    connection.execute(";".join([*made, "COMMIT"]))
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
        shutil.unpack_archive(ARCHIVE, folder)
        ours, peer = folder / "stores", folder / "parquet"
        last = f"store_{stores - 1}"
        one_of_parquet = of_process("-c", PEER.format(path=peer), says="1.5")
        libraries = of_process("-c", "import pyarrow.compute", says="")
        imports = "import pyarrow.compute, duckdb, sqlglot.dialects.duckdb, typer"
        measures: dict[str, tuple[Callable[[], float], Callable[[], float], float | None]] = {
            "floor of a key: pyarrow.compute": (libraries, one_of_parquet, None),
            "floor of sql: libraries": (of_process("-c", imports, says=""), one_of_parquet, None),
            f"floor of attach: {5 * stores} empty views, {2 * stores} macros": (
                of_views(lambda: empty_views(stores), last),
                of_views(lambda: parquet_views(peer, stores), last),
                None,
            ),
            "one key in a new process": (ours_of(OURS, ours, "1.5"), one_of_parquet, 0.3 / 0.247),
            "one key of a Spark checkpoint": (ours_of(SPARK, folder / CHECKPOINT, "1070"), one_of_parquet, 0.3 / 0.247),
            "--version": (command("--version", says="0."), of_process("-c", "pass", says=""), 0.06 / 0.013),
            "get": (command("get", str(ours), "store_0", "tea", says="1.5"), libraries, 0.45 / 0.205),
            "inspect": (command("inspect", f"{ours}/store_0", says="price"), libraries, 0.45 / 0.205),
            "sql": (command("sql", str(ours), "SELECT price FROM store_0", says="1.5"), one_of_parquet, 0.6 / 0.247),
            f"attach {stores} stores": (
                of_views(lambda: statestore.attach(str(ours)), last),
                of_views(lambda: parquet_views(peer, stores), last),
                2.5,
            ),
        }
        for name, (of_ours, of_peer, goal) in measures.items():
            times = [(of_ours(), of_peer()) for _ in range(rounds)]
            best, other = min(a for a, _ in times), min(b for _, b in times)
            figure = {"measure": name, "ratio": round(best / other, 2), "goal": goal and round(goal, 2)}
            print(json.dumps({**figure, "seconds": round(best, 3), "parquet": round(other, 3)}), flush=True)


if __name__ == "__main__":
    main()

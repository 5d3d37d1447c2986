"""Read state of each engine through every door, in an environment that has the wheel and nothing else.

``python .ci/bare_doors.py FOLDER``: the folder has a copy of the archives of ``tests/data``, and is written to. Nothing
of an extra may be loaded, because it is not there, and a door that needs one names it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import statestore

ARCHIVES = ("kafka/orders", "kafka/zlib", "flink/snapshots", "spark/checkpoints")
TABLES = {  # a place, and a table that is read through every door
    "orders/state/orders": "stock",
    "orders/log": "orders-prices-changelog",
    "rk-zlib/state/rk-zlib": "counts",
    "rocksdb": "kv-string.count",
    "checkpoints/spark4.3.0-agg__rkcl": "state",
    "checkpoints/spark4.3.0-agg__hdfs": "state",
}
MOST_TABLES = 3
PROGRAM = Path(sys.executable).parent / "statestore"
EXTRAS = {"numba", "pyspark", "pandas", "starlette", "uvicorn", "confluent_kafka", "altair"}


def check(place: str, table: str) -> int:
    """Read some tables of a place in Python, and compare the rows of one with those through the other doors."""
    found = statestore.inspect(place)
    names = [table, *found.tables()[:MOST_TABLES]]
    counts = {name: found.table(name).scan().read_all().num_rows for name in names}
    assert counts[table], f"{place} has no rows"
    query = f'SELECT count(*) AS n FROM "{table}"'
    assert statestore.sql(place, query).to_pylist() == [{"n": counts[table]}], (place, "sql")
    assert statestore.attach(place).sql(query).fetchall() == [(counts[table],)], (place, "attach")
    printed = answer("scan", place, table, "--json")
    assert len([json.loads(line) for line in printed.splitlines()]) == counts[table], (place, table, "scan")
    return sum(counts.values())


def answer(*words: str) -> str:
    done = subprocess.run([str(PROGRAM), *words], capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def refused(call: str, *words: str) -> None:
    """Check that a command names the extra that it needs, in one line."""
    done = subprocess.run([str(PROGRAM), *words], capture_output=True, text=True)
    assert done.returncode != 0, words
    assert f"statestore[{call}]" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr


def main(folder: str) -> None:
    warnings.simplefilter("error")
    for name in ARCHIVES:
        with warnings.catch_warnings(action="ignore") if sys.version_info >= (3, 12) else warnings.catch_warnings():
            shutil.unpack_archive(Path(folder) / f"{name}.tar.xz", folder)
    rows = sum(check(str(Path(folder) / place), table) for place, table in TABLES.items())
    place = str(Path(folder) / "checkpoints/spark4.3.0-agg__rkcl")
    refused("explore", "explore", place, "--no-browser")
    refused("kafka", "inspect", "kafka://localhost:1")
    try:
        statestore.register(None)  # type: ignore[arg-type]
    except statestore.StateStoreError as error:
        assert error.code == "UNSUPPORTED_SPARK", error
    else:
        raise AssertionError("register needs PySpark")
    loaded = EXTRAS & set(sys.modules)
    assert not loaded, f"{loaded} must not be loaded without extras"
    print(f"Python {sys.version.split()[0]}: {rows} rows of {len(TABLES)} places, without extras")


if __name__ == "__main__":
    main(sys.argv[1])

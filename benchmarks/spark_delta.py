"""Spark SQL as of a moment over one history, kept as a Delta table and as a store. Prints JSON lines.

    python benchmarks/spark_delta.py            50 commits of 20k changes over 1M keys
    python benchmarks/spark_delta.py --quick    10 commits of 2k changes over 100k keys
    python benchmarks/spark_delta.py --jars a.jar,b.jar

The Delta table is made as its manual says: the first rows by ``saveAsTable``, each further commit by MERGE (update,
delete, insert). Its versions are asked for by TIMESTAMP AS OF the time at which each was committed, the store by the
state time of the same commit. ``delta`` has default settings; ``delta optimized`` is the version that OPTIMIZE makes at
the end: it rewrites no older one. All statements run in turn in one session
with two cores; figures are the least of the runs, in seconds. ``cpu`` is user and system time of the JVM, its Python
workers and this process; the ratios are Delta's to ours.

Without ``--jars``, Spark resolves the package io.delta:delta-spark_2.13 of the version that fits Spark.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
from pyspark.sql import SparkSession
from spark_sql import measured

import statestore

PACKAGES = {"4.1": "io.delta:delta-spark_2.13:4.1.0", "4.2": "io.delta:delta-spark_2.13:4.4.0"}
GOAL = 5.0
START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
MERGE = """
    MERGE INTO prices t USING changes s ON t.item = s.item
    WHEN MATCHED AND s._change_type = 'delete' THEN DELETE
    WHEN MATCHED THEN UPDATE SET price = s.price, n = s.n
    WHEN NOT MATCHED AND s._change_type = 'insert' THEN INSERT (item, price, n) VALUES (s.item, s.price, s.n)
"""
STATEMENTS = {
    "aggregate of all rows": "SELECT count(*), sum(n), min(price), max(price) FROM {t}",
    "one key": "SELECT item, price, n FROM {t} WHERE item = 'item-00004711'",
    "a range of keys": "SELECT count(*), sum(n) FROM {t} WHERE item >= 'item-00050000' AND item < 'item-00051000'",
    "groups": "SELECT n % 100 AS g, count(*), sum(n) FROM {t} GROUP BY n % 100",
}


def report(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def moment(commit: int) -> dt.datetime:
    """The state time of a commit."""
    return START + dt.timedelta(minutes=commit)


def write_changes(folder: Path, keys: int, commits: int, changes: int) -> None:
    """The changes of each commit as a Parquet file: the first has all keys, others update, delete and insert."""
    random = np.random.default_rng(11)
    for commit in range(commits + 1):
        numbers = np.arange(keys) if not commit else random.choice(keys * 21 // 20, changes, replace=False)
        gone = random.random(len(numbers)) < (0.05 if commit else 0)
        names = np.char.add("item-", np.char.zfill(numbers.astype("U8"), 8))
        rows = pa.table(
            {
                "item": pa.array(names.tolist()),
                "price": pa.array(random.random(len(numbers)).round(4), mask=gone),
                "n": pa.array(random.integers(0, 1 << 30, len(numbers)), mask=gone),
                "timestamp": pa.array([moment(commit)] * len(numbers), pa.timestamp("us", "UTC")),
                "_change_type": pa.array(np.where(gone, "delete", "insert").tolist()),
            }
        )
        pq.write_table(rows, folder / f"{commit:03d}.parquet")


def make_store(warehouse: Path, changes: Path) -> None:
    value = {"price": "double", "n": "bigint"}
    with statestore.connect(warehouse).create_store("prices", key={"item": "string"}, value=value) as store:
        for file in sorted(changes.iterdir()):
            store.write(pq.read_table(file))


def make_delta(spark: SparkSession, changes: Path) -> list[str]:
    """Write the Delta table; return the time of each of its commits, as TIMESTAMP AS OF takes it."""
    first, *further = sorted(changes.iterdir())
    spark.read.parquet(str(first)).select("item", "price", "n").write.format("delta").saveAsTable("prices")
    for file in further:
        spark.read.parquet(str(file)).createOrReplaceTempView("changes")
        spark.sql(MERGE)
    return commit_times(spark)


def commit_times(spark: SparkSession) -> list[str]:
    found = spark.sql("DESCRIBE HISTORY prices").selectExpr("version", "CAST(timestamp AS STRING)").orderBy("version")
    return [row[1] for row in found.collect()]


def session(folder: Path, jars: str | None) -> SparkSession:
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.warehouse.dir", str(folder / "delta"))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    )
    minor = ".".join(pyspark.__version__.split(".")[:2])
    builder = builder.config("spark.jars", jars) if jars else builder.config("spark.jars.packages", PACKAGES[minor])
    return builder.getOrCreate()


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def compare(spark: SparkSession, name: str, tables: dict[str, str], runs: int, at: str) -> None:
    """Run a statement over each of the tables in turn and report the least figures."""
    best: dict[str, tuple[float, float]] = {}
    answers = {}
    for _ in range(runs):
        for kind, table in tables.items():

            def run(kind: str = kind, table: str = table) -> None:
                answers[kind] = sorted(map(tuple, spark.sql(STATEMENTS[name].format(t=table)).collect()))

            cpu, wall = measured(run)
            least = best.get(kind, (cpu, wall))
            best[kind] = (min(least[0], cpu), min(least[1], wall))
    assert len({str(rows) for rows in answers.values()}) == 1, f"{name} {at}: the answers differ"
    ours_cpu, ours_wall = best.pop("ours")
    report(
        what=name,
        at=at,
        ours={"wall": round(ours_wall, 3), "cpu": round(ours_cpu, 2)},
        **{kind: {"wall": round(wall, 3), "cpu": round(cpu, 2)} for kind, (cpu, wall) in best.items()},
        ratio_wall={kind: round(wall / ours_wall, 2) for kind, (_, wall) in best.items()},
        ratio_cpu={kind: round(cpu / max(ours_cpu, 0.01), 2) for kind, (cpu, _) in best.items()},
        goal=GOAL,
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--runs", type=int, default=4)
    arguments.add_argument("--commits", type=int)
    arguments.add_argument("--jars")
    given = arguments.parse_args()
    keys, commits, changes = (100_000, 10, 2_000) if given.quick else (1_000_000, 50, 20_000)
    commits = given.commits or commits
    folder = Path(tempfile.mkdtemp(prefix="statestore-spark-delta-"))
    try:
        (folder / "changes").mkdir()
        write_changes(folder / "changes", keys, commits, changes)
        begin = time.perf_counter()
        make_store(folder / "warehouse", folder / "changes")
        ours = time.perf_counter() - begin
        spark = session(folder, given.jars)
        statestore.register(spark, folder / "warehouse", "state")
        begin = time.perf_counter()
        times = make_delta(spark, folder / "changes")
        theirs = time.perf_counter() - begin
        report(
            spark=pyspark.__version__, keys=keys, commits=commits, changes=changes,
            written={"ours": round(ours, 1), "delta": round(theirs, 1)},
            megabytes={"ours": size(folder / "warehouse") >> 20, "delta": size(folder / "delta") >> 20},
        )  # fmt: skip
        for label, commit in (("half", commits // 2), ("newest but one", commits - 1)):
            past = f"prices TIMESTAMP AS OF '{times[commit]}'"
            same = f"state.prices TIMESTAMP AS OF '{moment(commit).isoformat()}'"
            for name in STATEMENTS:
                compare(spark, name, {"delta": past, "ours": same}, given.runs, label)
        spark.sql("OPTIMIZE prices")
        past = f"prices TIMESTAMP AS OF '{commit_times(spark)[-1]}'"
        same = f"state.prices TIMESTAMP AS OF '{moment(commits).isoformat()}'"
        for name in STATEMENTS:
            compare(spark, name, {"delta optimized": past, "ours": same}, given.runs, "newest, after OPTIMIZE")
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

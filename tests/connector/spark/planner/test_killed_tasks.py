"""A worker that dies while it reads is started again by Spark, or the query fails; no row is lost or read twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import statestore

ROWS = 200_000
SCRIPT = """
import os, sys
from pathlib import Path
from pyspark.sql import SparkSession
import statestore
from statestore.connector.spark.planner import read_plan

folder, master, query = sys.argv[1:]
marks = os.path.join(folder, "marks")
os.makedirs(marks)

class DyingTask(read_plan.Task):
    def __call__(self, cells):
        for number, batch in enumerate(super().__call__(cells)):
            yield batch
            deaths = len(os.listdir(marks))
            if number == 0 and deaths < 2:
                open(os.path.join(marks, str(os.getpid())), "w").close()
                os.kill(os.getpid(), 9)

from statestore.connector.spark.planner import task_scan
import cloudpickle, pyspark.cloudpickle
pyspark.cloudpickle.register_pickle_by_value(sys.modules["__main__"])
task_scan.task_of = DyingTask
builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "OFF").getOrCreate()
statestore.register(spark, os.path.join(folder, "w"), "killed")
try:
    print("rows", [tuple(row) for row in spark.sql(query).collect()])
except Exception as error:
    print("error", "crashed" in str(error) or "EOF" in str(error))
print("deaths", len(os.listdir(marks)))
"""
QUERY = "SELECT count(v), sum(v), count(DISTINCT v % 1000) FROM killed.t WHERE id % 2 = 0"


@pytest.mark.slow
@pytest.mark.parametrize("master", ["local[2,4]", "local[2]"])
def test_a_killed_worker_loses_no_row(tmp_path: Path, master: str) -> None:
    catalog = statestore.connect(tmp_path / "w")
    with catalog.create_store("t", key={"id": "bigint"}, value={"v": "bigint"}, key_groups=4) as store:
        ids = pa.array(range(ROWS))
        store.write(pa.table({"id": ids, "v": ids, "timestamp": pa.array([1000] * ROWS)}))
    script = tmp_path / "killed.py"
    script.write_text(SCRIPT.replace("import cloudpickle, pyspark", "import pyspark"))
    command = [sys.executable, str(script), str(tmp_path), master, QUERY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ}, check=False)
    even = range(0, ROWS, 2)
    lines = done.stdout.splitlines()
    if master == "local[2,4]":
        assert lines == [f"rows [({len(even)}, {sum(even)}, 500)]", "deaths 2"], done.stderr[-2000:]
    else:
        assert lines == ["error True", "deaths 1"] or lines == ["error True", "deaths 2"], done.stderr[-2000:]

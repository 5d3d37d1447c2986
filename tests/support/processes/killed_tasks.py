"""Every kind of read and write in Spark, while tasks die in the middle of their rows.

``python killed_tasks.py MASTER WHO FOLDER`` prints as JSON, for each case, its answer and the number of deaths. WHO is
``worker``, whose tasks kill their own Python process twice a case, or ``executor``, where one task a case kills the
process of the executor. A death happens after the first rows were read or staged. FOLDER has the warehouse ``w``, in
which store ``t`` has the numbers below ROWS.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark.cloudpickle
from pyspark.sql import SparkSession

import statestore
from statestore.catalog.stores.versioned import task_writes
from statestore.connector.spark import frame_writer
from statestore.connector.spark.planner import hashed_scan, local_rows, read_plan, task_scan

ROWS = 200_000
OTHERS = "SELECT id, v + 1 AS v, TIMESTAMP '2024-01-01 00:00:00Z' AS {time} FROM killed.t WHERE id % 2 = 0"
READS = {
    "read": "SELECT count(v), sum(v), count(DISTINCT v % 1000) FROM killed.t WHERE id % 2 = 0",
    "join on the key": "SELECT count(*), sum(a.v + b.v) FROM killed.t a JOIN killed.t b ON a.id = b.id",
    "groups": "SELECT count(*), sum(n) FROM (SELECT v % 7 AS g, count(*) AS n FROM killed.t GROUP BY v % 7)",
    "aggregate": "SELECT count(v), sum(v), max(v) FROM killed.t",
}
WRITES = {
    "insert": "INSERT INTO killed.inserted " + OTHERS.format(time="valid_from"),
    "insert of many rows": "INSERT INTO killed.resolved " + OTHERS.format(time="valid_from"),
    "overwrite": "INSERT OVERWRITE killed.overwritten " + OTHERS.format(time="valid_from"),
    "create": "CREATE TABLE killed.created USING statestore TBLPROPERTIES (key = 'id') AS "
    + OTHERS.format(time="valid_from"),
}
OF_EXECUTORS = ("read", "join on the key", "insert of many rows", "overwrite", "save")  # each costs a new executor
TABLES = {"insert": "inserted", "insert of many rows": "resolved", "overwrite": "overwritten", "create": "created"}


class Death:
    """Kills this process, or the executor, until a case has had its deaths; can be pickled."""

    def __init__(self, marks: Path, who: str) -> None:
        self._marks = marks
        self._who = who

    def __call__(self) -> None:
        most = 2 if self._who == "worker" else 1
        if len(list(self._marks.iterdir())) >= most:
            return
        (self._marks / str(os.getpid())).touch()
        process = os.getpid() if self._who == "worker" else _parent(os.getppid())  # worker, daemon, executor
        os.kill(process, signal.SIGKILL)
        signal.pause()


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def main(master: str, who: str, folder: Path) -> None:
    by_value: Any = pyspark.cloudpickle.register_pickle_by_value
    by_value(sys.modules["__main__"])
    marks = folder / "marks"
    marks.mkdir()
    death, stage = Death(marks, who), frame_writer._stage

    class DyingTask(read_plan.Task):
        def __call__(self, cells: Any) -> Iterator[Any]:
            for batch in super().__call__(cells):
                death()
                yield batch

    def dying_stage(messages: Any, **given: Any) -> Iterator[Any]:
        for outcome in stage(messages, **given):
            death()
            yield outcome

    scans: list[Any] = [task_scan, hashed_scan]
    local_rows.MOST_READ = local_rows.MOST_SUMMED = -1  # all reads by tasks
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    builder = builder.config("spark.executorEnv.PYTHONPATH", os.pathsep.join(sys.path))
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    statestore.register(spark, folder / "w", "killed")

    def deaths() -> int:
        found = list(marks.iterdir())
        for mark in found:
            mark.unlink()
        return len(found)

    answers: dict[str, Any] = {}
    for scan in scans:
        scan.task_of = DyingTask

    def cases(statements: dict[str, str]) -> dict[str, str]:
        return {name: text for name, text in statements.items() if who == "worker" or name in OF_EXECUTORS}

    for name, statement in cases(READS).items():
        rows = [list(row) for row in spark.sql(statement).collect()]
        answers[name] = {"rows": rows, "deaths": deaths()}
    for scan in scans:
        scan.task_of = read_plan.task_of
    frame_writer._stage = dying_stage
    kept_rows = task_writes.MIN_ROWS
    for name, statement in cases(WRITES).items():
        task_writes.MIN_ROWS = 1_000 if "many" in name else kept_rows
        spark.sql(statement)
        answers[name] = {"deaths": deaths(), **_found(folder, TABLES[name])}
    frame = spark.sql(OTHERS.format(time="timestamp"))
    frame.write.format("statestore").mode("append").save(str(folder / "w" / "saved"))
    answers["save"] = {"deaths": deaths(), **_found(folder, "saved")}
    print(json.dumps(answers))


def _found(folder: Path, name: str) -> dict[str, Any]:
    with statestore.connect(folder / "w").open_store(name) as store:
        rows = store.scan().read_all()
        return {"versions": store.version, "rows": [[len(rows), sum(rows["v"].to_pylist())]]}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

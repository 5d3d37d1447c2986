"""Every kind of read and write in Spark, while tasks die in the middle of their rows.

``python killed_tasks.py MASTER WHO CASES FOLDER WAREHOUSE [HIDDEN]`` prints as JSON, for each case, its answer and the
number of deaths. CASES are names with commas between them; "save" and "compact" are always run. WHO is ``worker``,
whose tasks kill their own Python process twice a case, or ``executor``, where one task a case kills the process of the
executor. A death happens after the first rows were read or staged, or after the files of a range of keys were
compacted. In the warehouse, store ``t`` has the numbers below ROWS, and store ``compacted`` has them in several
commits. Marks of deaths are files in FOLDER. HIDDEN is a folder of this process that is empty for the tasks.
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
import pytest
from pyspark.sql import SparkSession

import statestore
from statestore.catalog.stores.versioned import task_writes
from statestore.catalog.upkeep import compaction_rules
from statestore.connector.spark import frame_writer
from statestore.connector.spark.planner import hashed_scan, read_plan, task_scan
from statestore.connector.spark.upkeep_tasks import UpkeepTasks
from statestore.formats.places.locations import parse_location

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
CASES = (*READS, *WRITES, "save", "compact")
FEW_CASES = ("read", "join on the key", "insert of many rows", "overwrite", "save", "compact")
"""Cases in which an executor dies, each of which costs a new one, or which are run for a share of the slow cases."""
HIDING_PYTHON = Path(__file__).with_name("hiding_python.sh")
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


def main(master: str, who: str, chosen: list[str], folder: Path, warehouse: str, hidden: str) -> None:
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

    run = UpkeepTasks.run

    def dying_run(tasks: UpkeepTasks, work: Any, count: int) -> list[str]:
        def dying(number: int) -> str:
            answer: str = work(number)
            death()
            return answer

        return run(tasks, dying, count)

    scans: list[Any] = [task_scan, hashed_scan]
    read_plan.MOST_READ = read_plan.MOST_SUMMED = -1  # all reads by tasks
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    builder = builder.config("spark.executorEnv.PYTHONPATH", os.pathsep.join(sys.path))
    for name, value in _hiding(hidden).items():
        builder = builder.config(f"spark.executorEnv.{name}", value)
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    statestore.register(spark, warehouse, "killed")
    if hidden:
        context: Any = spark.sparkContext
        context.pythonExec = str(HIDING_PYTHON)
        seen = context.range(2, numSlices=2).map(lambda _: len(list(Path(hidden).iterdir()))).collect()
        assert seen == [0, 0] and any(Path(hidden).iterdir()), "the folder of this process is hidden from the tasks"

    def deaths() -> int:
        found = list(marks.iterdir())
        for mark in found:
            mark.unlink()
        return len(found)

    answers: dict[str, Any] = {}
    for scan in scans:
        scan.task_of = DyingTask

    def cases(statements: dict[str, str]) -> dict[str, str]:
        return {name: text for name, text in statements.items() if name in chosen}

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
        answers[name] = {"deaths": deaths(), **_found(warehouse, TABLES[name])}
    task_writes.MIN_ROWS = kept_rows
    frame = spark.sql(OTHERS.format(time="timestamp"))
    frame.write.format("statestore").mode("append").save(parse_location(warehouse).at("saved").uri)
    answers["save"] = {"deaths": deaths(), **_found(warehouse, "saved")}
    compaction_rules.DEFAULT = compaction_rules.Rules(task_rows=1_000)
    with pytest.MonkeyPatch.context() as patch, statestore.connect(warehouse).open_store("compacted") as store:
        patch.setattr(UpkeepTasks, "run", dying_run)
        store.compact(full=True, spark=spark)
    answers["compact"] = {"deaths": deaths(), **_found(warehouse, "compacted")}
    print(json.dumps(answers))


def _hiding(hidden: str) -> dict[str, str]:
    """Variables of executors by which their Python processes do not see a folder."""
    if not hidden:
        return {}
    own = Path(hidden).with_name("of executors")
    places = {"STATESTORE_CACHE": str(own / "objects"), "STATESTORE_LOCAL": str(own / "stores")}
    return {"HIDDEN_FOLDER": hidden, "HIDING_PYTHON": sys.executable, **places}


def _found(warehouse: str, name: str) -> dict[str, Any]:
    with statestore.connect(warehouse).open_store(name, auto_compact=False) as store:
        rows = store.scan().read_all()
        return {"versions": store.version, "rows": [[len(rows), sum(rows["v"].to_pylist())]]}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3].split(","), Path(sys.argv[4]), sys.argv[5], "".join(sys.argv[6:]))

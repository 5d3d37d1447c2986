"""Edits in the tasks of a cluster of processes, in each of which a process dies.

``killed_edits.py MASTER SOURCE FOLDER CASES`` makes a target ``FOLDER/<number>`` for each of the CASES, a list as JSON
of who dies (``executor``, or ``driver``, which is this process), the moment, and how often it has come by then. It
prints the numbers of the targets whose edit met its death. The moments are: a condition was asked of a part
(``search``), a file was written (``file``), a file was copied (``copy``), a share was written (``answer``), and a share
was compared (``sums``).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark.cloudpickle
from pyspark.sql import SparkSession

import statestore
from statestore.connector.spark.upkeep_tasks import UpkeepTasks
from support.local_cluster import executor_settings

STATEMENTS = "UPDATE state SET value.count = 7 WHERE value.sum > 500; DELETE FROM state WHERE value.count = 3"


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


class Death:
    """Kills a process when a moment has come for the n-th time in a task; once, of which a file is the mark."""

    def __init__(self, mark: str, driver: int | None, after: int) -> None:
        self._mark, self._driver, self._after = mark, driver, after

    def pass_by(self) -> None:
        self._after -= 1
        if self._after or Path(self._mark).exists():
            return
        Path(self._mark).touch()
        os.kill(self._driver or parent(os.getppid()), signal.SIGKILL)  # worker, daemon, executor
        signal.pause()


def dying(work: Any, moment: str, death: Death) -> Callable[[int], str]:
    """Return a work that passes by death at each of these moments."""

    def patch(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def passing(*given: Any, **named: Any) -> Any:
            found = function(*given, **named)
            death.pass_by()
            return found

        setattr(owner, name, passing)

    def run(number: int) -> str:
        from statestore.catalog.edits import target_folder, task_sums, task_writing
        from statestore.connector.edit import chosen_in_tasks

        match moment:
            case "search":
                patch(chosen_in_tasks, "select_on_duckdb")
            case "file":
                patch(target_folder._NewFile, "close")
            case "copy":
                patch(task_writing, "copied_file")
            case "sums":
                patch(task_sums, "sums_of")
        answer: str = work(number)
        if moment == "answer" and "_attempt" in repr(work):
            death.pass_by()
        return answer

    return run


def main(master: str, source: str, folder: Path, cases: list[tuple[str, str, int]]) -> None:
    by_value: Any = pyspark.cloudpickle.register_pickle_by_value
    by_value(sys.modules["__main__"])
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    for name, value in executor_settings().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    run, met = UpkeepTasks.run, []
    for number, (who, moment, after) in enumerate(cases):
        mark = folder / f"mark {number}"
        death = Death(str(mark), os.getpid() if who == "driver" else None, after)

        def dying_run(
            tasks: UpkeepTasks, work: Any, count: int, moment: str = moment, death: Death = death
        ) -> list[str]:
            return run(tasks, dying(work, moment, death), count)

        setattr(UpkeepTasks, "run", dying_run)  # noqa: B010 - a function for a function
        with statestore.edit(source, folder / str(number), spark=spark) as edit:
            edit.sql(STATEMENTS)
        if mark.exists():
            met.append(number)
    spark.stop()
    print(json.dumps(met))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), json.loads(sys.argv[4]))

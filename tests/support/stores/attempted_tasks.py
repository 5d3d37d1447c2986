"""Tasks of upkeep in this process, as a cluster may run them: twice, or again after a death."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass, field

from statestore.catalog.upkeep.ranges.task_runs import Work


class TaskDied(BaseException):
    """The end of an attempt that has no time to tidy up."""


@dataclass
class AttemptedTasks:
    """Runs of tasks, each ``attempts`` times; the answer of the attempt ``counts`` is taken.

    An attempt that raises `TaskDied` has no answer and is followed by another. ``then`` is called after the last task.
    """

    parallelism: int = 4
    attempts: int = 1
    counts: int = 0
    then: Callable[[], object] = lambda: None
    jobs: list[int] = field(default_factory=list)  # tasks of each

    def run(self, work: Work, count: int) -> list[str]:
        self.jobs.append(count)
        sent = pickle.dumps(work)
        answers = [[self._answer(sent, number) for _ in range(self.attempts)][self.counts] for number in range(count)]
        self.then()
        return answers

    def _answer(self, sent: bytes, number: int) -> str:
        work: Work = pickle.loads(sent)
        try:
            return work(number)
        except TaskDied:
            return self._answer(sent, number)

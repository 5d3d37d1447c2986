"""Tasks of upkeep in this process, as a cluster may run them: twice, or again after a death."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from statestore.catalog.upkeep.ranges.task_runs import Read, Work, Write


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

    def move(self, read: Read, count: int, write: Write, destinations: int) -> list[str]:
        """Run as `run` does, with the rows of each destination in the reverse of their order."""
        self.jobs.append(destinations)
        sent = pickle.dumps((read, write))
        batches = [batch for number in range(count) for batch in self._rows(sent, number)][::-1]

        def attempt(number: int) -> str:
            try:
                return str(pickle.loads(sent)[1](number, _of(batches, number)))
            except TaskDied:
                return attempt(number)

        answers = [[attempt(number) for _ in range(self.attempts)][self.counts] for number in range(destinations)]
        self.then()
        return answers

    def _rows(self, sent: bytes, number: int) -> list[pa.RecordBatch]:
        try:
            return [list(pickle.loads(sent)[0](number)) for _ in range(self.attempts)][self.counts]
        except TaskDied:
            return self._rows(sent, number)

    def _answer(self, sent: bytes, number: int) -> str:
        work: Work = pickle.loads(sent)
        try:
            return work(number)
        except TaskDied:
            return self._answer(sent, number)


def _of(batches: list[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.filter(pc.equal(batch.column(0), number)).select(["key", "value"])

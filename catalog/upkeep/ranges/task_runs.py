"""Runs of work in many tasks: what a cluster does for upkeep, without a name of the cluster.

Upkeep divides its work into numbered pieces. A task gets the function and a number, runs in any process that sees the
store's files, and returns a text. A task may run twice, or die and run again: its answer counts once, whichever attempt
gave it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Work = Callable[[int], str]


class TaskRuns(Protocol):
    """A way to run tasks."""

    @property
    def parallelism(self) -> int:
        """Return how many tasks run at a time, about."""

    def run(self, work: Work, count: int) -> list[str]:
        """Return the answers of ``work`` to the numbers from 0 to ``count`` - 1, in their order.

        ``work`` can be pickled. Raises the error of a task that failed for good.
        """


_made: list[Callable[[Any], TaskRuns]] = []


def offer_runs(make: Callable[[Any], TaskRuns]) -> None:
    """Set the function that makes task runs of a session; the layer above, which knows the sessions, has it."""
    _made[:] = [make]


def runs_of(session: Any) -> TaskRuns:
    """Return the task runs of a session. Raises InvalidInputError WRONG_INPUT for a value that is no session."""
    (make,) = _made
    return make(session)

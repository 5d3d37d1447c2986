"""Shares of a work for tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from statestore.catalog.upkeep.ranges.task_runs import TaskRuns

TASKS_OF_CORE = 4
"""Tasks for each core, so that one with large pieces does not leave the others waiting."""

P = TypeVar("P")


def most_tasks(runs: TaskRuns) -> int:
    """Return the number of tasks beyond which more of them save nothing."""
    return TASKS_OF_CORE * max(1, runs.parallelism)


def striped(pieces: Sequence[P], runs: TaskRuns) -> list[tuple[P, ...]]:
    """Return pieces in as many shares as there are to be tasks, none of them empty."""
    count = min(len(pieces), most_tasks(runs))
    return [tuple(pieces[number::count]) for number in range(count)]

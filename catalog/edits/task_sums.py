"""Bags of rows of states that are read in whole in tasks, all by one job.

A state often has few rows and there are many of them, so that a job for each would cost more than reading them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from statestore.catalog.edits.row_sums import RowSums, no_rows, sums_of
from statestore.catalog.edits.task_shares import striped
from statestore.catalog.upkeep.ranges.task_runs import TaskRuns, error_of_text, text_of_error
from statestore.formats.engine import StateAt
from statestore.formats.errors import StateStoreError, StorageError
from statestore.formats.places.reading_threads import limit_reading_threads


@dataclass(frozen=True)
class SummedState:
    """A state of the source or the target, and the columns of its rows that count."""

    at: StateAt
    names: tuple[str, ...]


def sums_in_tasks(states: Sequence[SummedState], runs: TaskRuns) -> list[RowSums | StateStoreError]:
    """Return the bag of all rows of each state, or the error with which it cannot be read. Raises StorageError."""
    found: list[RowSums | StateStoreError] = [no_rows() for _ in states]
    pieces: list[tuple[int, Any]] = []
    for number, each in enumerate(states):
        try:
            pieces += [(number, part) for part in each.at.parts(())]
        except StateStoreError as error:
            found[number] = error
    shares = striped(pieces, runs)
    for answer in runs.run(partial(_sums_of_share, tuple(states), shares), len(shares)) if shares else ():
        for number, (text, failed) in json.loads(answer).items():
            known = found[int(number)]
            if failed is not None:
                found[int(number)] = error_of_text(failed)
            elif isinstance(known, RowSums):
                found[int(number)] = known + RowSums.of_text(text)
    return found


def _sums_of_share(states: Sequence[SummedState], shares: Sequence[Sequence[tuple[int, Any]]], share: int) -> str:
    """Return the bag of the rows of each state in a share of the parts, or its error, by its number."""
    limit_reading_threads(1)  # a task has one core; others run beside it
    sums: dict[int, RowSums] = {}
    failed: dict[int, str] = {}
    for number, part in shares[share]:
        state = states[number]
        if number in failed:
            continue
        try:
            here = sums_of(state.at.rows(part, state.names, ()), state.names)
        except StorageError:  # another attempt may read it
            raise
        except StateStoreError as error:
            failed[number] = text_of_error(error)
        else:
            sums[number] = sums.get(number, no_rows()) + here
    answers: Mapping[int, tuple[str, str | None]] = {
        **{number: (each.as_text(), None) for number, each in sums.items()},
        **{number: ("", text) for number, text in failed.items()},
    }
    return json.dumps(answers)

"""A plain model of what the rows of a checkpoint were: each batch read as it stands, taken row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.query_metadata import read_batch
from statestore.formats.spark.checkpoint.state_views import StateView, state_views
from statestore.formats.spark.state_rows import read_state
from support.checkpoints.spark_state_fixtures import multiset, opened

Row = tuple[Any, ...]
States = dict[int, Counter[Row]]


def shown_views(name: str) -> Iterator[StateView]:
    """The state views of a checkpoint that users see, and for joins the state views that Spark keeps."""
    checkpoint = opened(name)
    for operator in checkpoint.operators:
        yield from (view for view in state_views(checkpoint, operator) if view.user or "KeyWith" in view.name)


def states_of(checkpoint: Checkpoint, state_view: StateView) -> States:
    """The rows of a view as of each committed batch."""
    found = {}
    for number in checkpoint.batches:
        then = replace(checkpoint, batch=read_batch(checkpoint.root, number))
        parts = [part for partition in state_view.store.partitions for part in read_state(then, state_view, partition)]
        found[number] = multiset(pa.Table.from_batches(parts, state_view.schema))
    return found


def history_of(states: States) -> Counter[Row]:
    """(row…, first batch, batch that ended it or None); of equal rows the newest ends first."""
    open_: dict[Row, list[int]] = {}
    found: Counter[Row] = Counter()
    for batch, state in sorted(states.items()):
        for row in set(open_) | set(state):
            stack = open_.setdefault(row, [])
            while len(stack) > state[row]:
                found[*row, stack.pop(), batch] += 1
            stack += [batch] * (state[row] - len(stack))
    found.update((*row, first, None) for row, stack in open_.items() for first in stack)
    return found


def changes_of(states: States, first: int, key_cells: int | None) -> Counter[Row]:
    """(row…, batch, change type) of the batches from ``first`` on.

    The first ``key_cells`` cells and the last one, which is the partition, identify a row. With None nothing identifies
    rows, and there are no updates.
    """
    found: Counter[Row] = Counter()
    before: Counter[Row] = Counter()
    for batch, state in sorted(states.items()):
        gone, come = before - state, state - before
        if batch >= first:
            for rows, other, alone, paired in (
                (gone, come, "delete", "update_preimage"),
                (come, gone, "insert", "update_postimage"),
            ):
                keys = {(*row[:key_cells], row[-1]) for row in other} if key_cells else set()
                for row, count in rows.items():
                    updated = key_cells and (*row[:key_cells], row[-1]) in keys
                    found[*row, batch, paired if updated else alone] += count
        before = state
    return found

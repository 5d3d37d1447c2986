"""Edits of states whose rows belong together, copied, verified and published: the verification reads what it should."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import opened, rows_of
from support.checkpoints.spark_state_fixtures import checkpoint_path, multiset
from support.parameters import mostly_slow

from statestore.catalog.edits.apply import apply_edit
from statestore.formats.edits import EditOptions, StateEdit

VARIABLES = ("lst", "tlst", "tval", "tmp", "timers")
CASES = [
    ("spark4.3.0-join__hdfs", ("left", "right"), False),
    ("spark4.3.0-join__rkj3", ("left", "right"), True),
    ("spark4.3.0-join__rkj4", ("left", "right"), True),
    ("spark4.3.0-twsttl__rk", VARIABLES, False),
    ("spark4.3.0-twsttl__rkck", VARIABLES, False),
]
QUICK = [CASES[1], CASES[3]]


@pytest.mark.parametrize(("name", "states", "as_batch"), mostly_slow(CASES, QUICK))
def test_a_row_of_each_state_is_removed_and_no_other(
    name: str, states: tuple[str, ...], as_batch: bool, tmp_path: Path
) -> None:
    source = opened(checkpoint_path(name))
    edits, left = [], {}
    for state in states:
        rows = rows_of(source, state)
        keys = rows["key"].to_pylist()
        mine = pa.array([key == keys[3] for key in keys])
        unit = rows.filter(mine)
        edits.append(StateEdit(state, ("key",), unit, unit.slice(1)))
        left[state] = multiset(rows) - multiset(unit.slice(0, 1))
    receipt = apply_edit(source, source.newest(states[0]), edits, tmp_path / "copy", EditOptions(as_batch=as_batch))
    assert [(each.removed, each.added, each.changed) for each in receipt.states] == [(1, 0, 0)] * len(states)
    target = opened(tmp_path / "copy")
    assert {state: multiset(rows_of(target, state)) for state in states} == left

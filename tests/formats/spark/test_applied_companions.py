"""Edits of states whose rows belong together, copied, verified and published: the verification reads what it should."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import opened, rows_of
from support.checkpoints.spark_state_fixtures import checkpoint_path, multiset
from support.parameters import mostly_slow

import statestore
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
QUICK_JOINS = [("spark4.3.0-join__hdfs", False)]


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


@pytest.mark.parametrize(("name", "as_batch"), mostly_slow([(case[0], case[2]) for case in CASES[:3]], QUICK_JOINS))
def test_one_of_several_rows_of_a_key_is_changed(name: str, as_batch: bool, tmp_path: Path) -> None:
    """Rows of a side have no order: a changed row keeps its number, and may be read after others of its key."""
    path = checkpoint_path(name)
    column = {"left": "v", "right": "rv"}
    with statestore.edit(path, tmp_path / "copy", as_batch=as_batch) as edit:
        for side, v in column.items():
            edit.sql(f"UPDATE {side} SET value.{v} = value.{v} + 1000000 WHERE value.{v} % 7 = 0")
    source, target = opened(path), opened(tmp_path / "copy")
    for side, v in column.items():
        rows = [(row["key"], row["value"]) for row in rows_of(source, side).to_pylist()]
        changed = [value[v] is not None and value[v] % 7 == 0 for _, value in rows]
        expected = [
            (key, value | {v: value[v] + 1_000_000} if is_changed else value)
            for (key, value), is_changed in zip(rows, changed, strict=True)
        ]
        found = [(row["key"], row["value"]) for row in rows_of(target, side).to_pylist()]
        assert Counter(map(repr, found)) == Counter(map(repr, expected)) != Counter(map(repr, rows))

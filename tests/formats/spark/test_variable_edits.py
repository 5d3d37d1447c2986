"""Edits of variables and timers of transformWithState in copies of checkpoints that Spark wrote, compared with plain
dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import opened, rows_of
from support.checkpoints.spark_state_fixtures import ARCHIVE, MORE, checkpoint_path
from support.checkpoints.variable_families import Row, check_families, view_rows
from support.edited_copies import write_copy
from support.parameters import mostly_slow

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.spark.checkpoint.state_views import state_views
from statestore.formats.spark.edit_plan import SparkEditPlan
from statestore.formats.spark.edits.stored_edits import by_partition
from statestore.formats.spark.source import CheckpointSource
from statestore.formats.spark.variable_edits import variable_edits

LAYOUTS = [
    (f"spark4.3.0-{name}", ARCHIVE)
    for name in ("twsno__rk", "twsrow__rkcl", "twsttl__rk", "twsttl__rkav", "twsttl__rkck", "twsttl__rkcl")
]
LAYOUTS += [("spark4.3.0-twsttl__rkmo1", ARCHIVE), ("spark4.3.0-twsttl__rkv2", ARCHIVE)]
LAYOUTS += [("spark4.0.5-tws__rkav", MORE), ("spark4.0.5-twskeys__rkcl", MORE), ("spark4.1.4-scala__rkcl", MORE)]
QUICK = [("spark4.3.0-twsttl__rk", ARCHIVE), ("spark4.3.0-twsttl__rkav", ARCHIVE), ("spark4.3.0-twsttl__rkck", ARCHIVE)]
END = 1_999_999_999_999


def all_rows(source: CheckpointSource) -> dict[str, Counter[str]]:
    """The rows of all views, with their partitions; entries of lists in their order."""
    views = state_views(source.checkpoint, source.checkpoint.operators[0])
    found = {}
    for view in views:
        numbers: Counter[str] = Counter()
        rows: Counter[str] = Counter()
        for row in view_rows(source, view.name):
            number = ""
            if view.shape == "list":
                numbers[repr(row["key"])] += 1
                number = f"{numbers[repr(row['key'])]}: "
            rows[number + repr(row)] += 1
        found[view.name] = rows
    return found


def edit_of(source: CheckpointSource, state: str, change: Callable[[list[Row]], list[Row]]) -> StateEdit:
    """An edit of all rows of a state."""
    table = rows_of(source, state)
    kind = source.info(state).columns
    assert kind.names[:-1] == table.schema.names
    return StateEdit(state, ("key",), table, pa.Table.from_pylist(change(table.to_pylist()), table.schema))


def changed(rows: list[Row], shape: str) -> list[Row]:
    """Some keys erased, some rows changed, of lists some entries erased, added, and moved; rows of a new key."""
    keys = list({repr(row["key"]): row["key"] for row in rows}.values())
    erased, repaired, shorter = (repr(key) for key in keys[:3])
    fresh = {name: _other(value) for name, value in keys[3].items()}
    found, of_shorter = [], 0
    for row in rows:
        key = repr(row["key"])
        if key == erased:
            continue
        if key == repaired:
            row = _repaired(row, shape)
        if key == shorter:
            of_shorter += 1
            if of_shorter == 1:
                continue
        found.append(row)
        if key == repaired and shape == "list":
            found.append(row)
    return [*found, *({**row, "key": fresh} for row in rows if repr(row["key"]) == repr(keys[3]))]


def _other(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _other(each) for name, each in value.items()}
    return f"{value}, new" if isinstance(value, str) else value if value is None else value + 1_000_003


def _repaired(row: Row, shape: str) -> Row:
    if shape == "timers":
        return {**row, "expiration_timestamp_ms": row["expiration_timestamp_ms"] + 1}
    column = {"list": "list_element", "map": "user_map_value", "rows": "value"}[shape]
    value = dict(row[column])
    if "ttlExpirationMs" in value:
        value["ttlExpirationMs"] = END
    return {**row, column: value}


def model_of(rows: list[Row], shape: str) -> Counter[str]:
    numbers: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for row in rows:
        row = {name: value for name, value in row.items() if name != "partition_id"}
        numbers[repr(row["key"])] += shape == "list"
        found[f"{numbers[repr(row['key'])]}: {row!r}"] += 1
    return found


def copied(source: CheckpointSource, edits: list[StateEdit], folder: Path) -> CheckpointSource:
    write_copy(source.edit_plan(source.newest(edits[0].state), edits, EditOptions()), folder)
    return opened(folder)


@pytest.mark.parametrize(("name", "archive"), mostly_slow(LAYOUTS, QUICK))
def test_rows_that_no_table_shows_follow(name: str, archive: Path, tmp_path: Path) -> None:
    source = opened(checkpoint_path(name, archive))
    before = all_rows(source)
    assert check_families(source)
    views = {view.name: view for view in state_views(source.checkpoint, source.checkpoint.operators[0]) if view.user}
    edits, models, untouched = [], {}, set(before)
    for state, view in views.items():
        if len({repr(row["key"]) for row in view_rows(source, state)}) < 4:
            continue
        edit = edit_of(source, state, partial(changed, shape=view.shape))
        edits.append(edit)
        models[state] = model_of(edit.added.to_pylist(), view.shape)
    assert edits
    target = copied(source, edits, tmp_path / "copy")
    assert check_families(target) == check_families(source)
    for state, model in models.items():
        assert model_of(view_rows(target, state), views[state].shape) == model
        untouched -= {state, f"$rowCounter_{state}", f"$count_{state}", f"$min_{state}", f"$ttl_{state}"}
        if views[state].shape == "timers":
            untouched -= {each for each in untouched if "Timers_" in each}
    after = all_rows(target)
    assert {state: after[state] for state in untouched} == {state: before[state] for state in untouched}


def test_a_list_that_is_gone_leaves_nothing(tmp_path: Path) -> None:
    source = opened(checkpoint_path("spark4.3.0-twsttl__rkcl"))
    for state in ("lst", "tlst"):
        target = copied(source, [edit_of(source, state, lambda rows: [])], tmp_path / state)
        names = {view.name for view in state_views(target.checkpoint, target.checkpoint.operators[0])}
        of_list = names & {state, *(f"${kind}_{state}" for kind in ("rowCounter", "count", "min", "ttl"))}
        assert len(of_list) == (2 if state == "lst" else 5)
        assert [row for name in of_list for row in view_rows(target, name)] == []
        assert check_families(target)


def test_rows_that_stay_are_not_written() -> None:
    source = opened(checkpoint_path("spark4.3.0-twsttl__rkck"))
    for state in ("lst", "tlst", "tmp", "tval", "timers", "mp", "val"):
        plan = source.edit_plan(source.newest(state), [edit_of(source, state, lambda rows: rows)], EditOptions())
        assert list(plan.parts()) == [], state


def test_users_are_told_of_what_follows_and_what_is_due() -> None:
    source = opened(checkpoint_path("spark4.3.0-twsttl__rkck"))

    def early(rows: list[Row]) -> list[Row]:
        return [{**rows[0], "list_element": {**rows[0]["list_element"], "ttlExpirationMs": 1}}, *rows[1:]]

    plan = source.edit_plan(source.newest("tlst"), [edit_of(source, "tlst", early)], EditOptions())
    assert any("$min_tlst (1 written, 0 erased), $ttl_tlst (1 written, 1 erased)" in note for note in plan.notes)
    assert any("1 of the added rows have expired" in note for note in plan.notes)
    due = [{"key": {"k": "new", "id": 1}, "expiration_timestamp_ms": 5}]
    plan = source.edit_plan(
        source.newest("timers"), [edit_of(source, "timers", lambda rows: [*rows, *due])], EditOptions()
    )
    assert any("1 timers among the added rows are due" in note for note in plan.notes)


def _refusals(source: CheckpointSource) -> list[tuple[StateEdit, str]]:
    lists, values = (edit_of(source, state, lambda rows: rows) for state in ("tlst", "tval"))
    endless = [{**row, "value": {**row["value"], "ttlExpirationMs": None}} for row in values.added.to_pylist()]
    return [
        (StateEdit("tlst", ("key",), lists.removed.slice(1), lists.added), "not stored as the edit says"),
        (StateEdit("tlst", ("key",), lists.removed.slice(0, 0), lists.added), "keys that are stored"),
        (StateEdit("tval", ("key",), values.removed.slice(0, 0), values.added), "keys that are stored"),
        (
            StateEdit("tval", ("key",), values.removed, pa.Table.from_pylist(endless, values.added.schema)),
            "no time at which they expire",
        ),
    ]


def test_what_is_not_stored_so_is_refused() -> None:
    source = opened(checkpoint_path("spark4.3.0-twsttl__rkcl"))
    for edit, words in _refusals(source):
        with pytest.raises(InvalidInputError, match=words) as caught:
            source.edit_plan(source.newest(edit.state), [edit], EditOptions())
        assert caught.value.code == "EDIT_REFUSED"


def test_an_index_that_lacks_rows_is_not_guessed(tmp_path: Path) -> None:
    """As where another program wrote the state: no edit goes on from it."""
    source = opened(checkpoint_path("spark4.3.0-twsttl__rkcl"))
    found, _ = variable_edits(
        source.checkpoint, source.state_view("tval"), edit_of(source, "tval", lambda rows: []), EditOptions()
    )
    index_only = by_partition(each for each in found if each.family == "$ttl_tval")
    write_copy(
        SparkEditPlan(source.checkpoint, (), lambda path: opened(Path(path)), frozenset(), tuple(index_only)),
        tmp_path / "broken",
    )
    broken = opened(tmp_path / "broken")
    with pytest.raises(StateStoreError, match=r"\$ttl_tval, whose rows follow.* are not stored") as caught:
        broken.edit_plan(broken.newest("tval"), [edit_of(broken, "tval", lambda rows: [])], EditOptions())
    assert caught.value.code == "EDIT_REFUSED"

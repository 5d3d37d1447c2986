"""Edits of sides of joins of state format 4 in copies of a checkpoint that Spark wrote, compared with plain lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import opened, rows_of
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.checkpoints.variable_families import view_rows
from support.edited_copies import write_copy

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.errors import InvalidInputError
from statestore.formats.spark.source import CheckpointSource

Row = dict[str, Any]
Key = tuple[Any, ...]
Change = Callable[[list[Row]], list[Row]]
NAME = "spark4.3.0-join__rkj4"
COLUMNS = {"left": ("ts", "v", int), "right": ("rts", "rv", float)}


def lists(source: CheckpointSource, side: str) -> dict[Key, list[tuple[Row, bool]]]:
    """The rows of each key and time, with ``matched``; there must be as many entries by time, in the same partition."""
    found: dict[Key, list[tuple[Row, bool]]] = {}
    entries: Counter[Any] = Counter()
    for row in view_rows(source, f"{side}-keyWithTsToValues"):
        value = dict(row["value"])
        matched = value.pop("matched")
        found.setdefault(tuple(row["key"].values()), []).append((value, matched))
        entries[repr(row["key"]), row["partition_id"]] += 1
    by_time = Counter((repr(row["key"]), row["partition_id"]) for row in view_rows(source, f"{side}-tsWithKey"))
    assert by_time == entries
    return found


def edit_of(source: CheckpointSource, side: str, changes: Mapping[Key, Change]) -> StateEdit:
    table = rows_of(source, side)
    names = [field.name for field in table.schema.field("key").type]
    rows = table.to_pylist()
    removed = [number for number, row in enumerate(rows) if tuple(row["key"].values()) in changes]
    added = [
        {"key": dict(zip(names, key, strict=True)), "value": value}
        for key, change in changes.items()
        for value in change([row["value"] for row in rows if tuple(row["key"].values()) == key])
    ]
    return StateEdit(side, ("key",), table.take(removed), pa.Table.from_pylist(added, table.schema))


def copied(source: CheckpointSource, edit: StateEdit, folder: Path) -> CheckpointSource:
    write_copy(source.edit_plan(source.newest(edit.state), [edit], EditOptions()), folder)
    return opened(folder)


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_are_listed_by_time_along(side: str, tmp_path: Path) -> None:
    source = opened(checkpoint_path(NAME))
    time, number, cast = COLUMNS[side]
    model = lists(source, side)
    gone, longer, repaired = list(model)[:3]
    fresh = ("nobody", 4711, 1_704_070_000_000_000)

    def row(key: Key, value: int) -> Row:
        return model[longer][0][0] | {time: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=key[2]),
                                      number: cast(value)}  # fmt: skip

    first = edit_of(
        source,
        side,
        {
            gone: lambda rows: [],
            longer: lambda rows: [*rows, row(longer, 1), row(longer, 2)],
            repaired: lambda rows: [rows[0] | {number: cast(-1)}],
            fresh: lambda rows: [row(fresh, 3), row(fresh, 3), row(fresh, 4)],
        },
    )
    once = copied(source, first, tmp_path / "once")
    expected = dict(model)
    del expected[gone]
    expected[longer] = [*model[longer], (row(longer, 1), False), (row(longer, 2), False)]
    expected[repaired] = [(model[repaired][0][0] | {number: cast(-1)}, model[repaired][0][1])]
    expected[fresh] = [(row(fresh, 3), False), (row(fresh, 3), False), (row(fresh, 4), False)]
    assert lists(once, side) == expected

    second = {longer: lambda rows: [rows[0], rows[2]], fresh: lambda rows: [], repaired: lambda rows: rows}
    twice = copied(once, edit_of(once, side, second), tmp_path / "twice")
    expected[longer] = [expected[longer][0], expected[longer][2]]
    del expected[fresh]
    assert lists(twice, side) == expected
    other = "right" if side == "left" else "left"
    assert lists(twice, other) == lists(source, other)


def test_the_time_of_a_key_is_that_of_its_rows() -> None:
    source = opened(checkpoint_path(NAME))
    key = next(iter(lists(source, "left")))
    later = edit_of(source, "left", {key: lambda rows: [rows[0] | {"ts": rows[0]["ts"] + timedelta(seconds=1)}]})
    with pytest.raises(InvalidInputError, match=r"another time in key\.__event_time") as caught:
        source.edit_plan(source.newest("left"), [later], EditOptions())
    assert caught.value.code == "EDIT_REFUSED"


def test_what_is_not_stored_so_is_refused() -> None:
    source = opened(checkpoint_path(NAME))
    edit = edit_of(source, "left", {key: lambda rows: rows for key in list(lists(source, "left"))[:2]})
    for removed, words in [
        (edit.removed.slice(1), "keys that are stored"),
        (pa.concat_tables([edit.removed] * 2), "1 are stored"),
    ]:
        with pytest.raises(InvalidInputError, match=words) as caught:
            source.edit_plan(source.newest("left"), [StateEdit("left", ("key",), removed, edit.added)], EditOptions())
        assert caught.value.code == "EDIT_REFUSED"

"""Edits of sides of joins in copies of checkpoints that Spark wrote, compared with plain lists of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.running_queries import opened, rows_of
from support.checkpoints.spark_state_fixtures import ARCHIVE, MORE, checkpoint_path
from support.checkpoints.variable_families import view_rows
from support.edited_copies import write_copy
from support.parameters import mostly_slow

from statestore.formats.edits import EditOptions, StateEdit
from statestore.formats.errors import InvalidInputError
from statestore.formats.spark.source import CheckpointSource

Row = dict[str, Any]
Key = tuple[Any, ...]
NAMES = ("4.0.1-join__rkcl", "4.3.0-join__hdfs", "4.3.0-join__rkcl", "4.3.0-join__rkj3", "4.3.0-join__rkv2")
LAYOUTS = [(f"spark{name}", ARCHIVE) for name in NAMES]
LAYOUTS += [("spark3.5.9-join1__hdfs", MORE)]  # format 1, which has no column matched
QUICK = [LAYOUTS[1], LAYOUTS[3], LAYOUTS[5]]
SIDES = ("left", "right")


def key_of(row: Row) -> Key:
    return tuple(value for name, value in row["key"].items() if name != "index")


def units(source: CheckpointSource, side: str) -> dict[Key, list[tuple[Row, bool]]]:
    """The rows of each key by their index, with ``matched``; counts and indexes must agree, and lie together."""
    found: dict[Key, dict[int, tuple[Row, bool]]] = {}
    places: dict[Key, set[int]] = {}
    for row in view_rows(source, f"{side}-keyWithIndexToValue"):
        value = dict(row["value"])
        matched = value.pop("matched", False)
        assert row["key"]["index"] not in found.setdefault(key_of(row), {})
        found[key_of(row)][row["key"]["index"]] = value, matched
        places.setdefault(key_of(row), set()).add(row["partition_id"])
    counts = {}
    for row in view_rows(source, f"{side}-keyToNumValues"):
        assert key_of(row) not in counts
        counts[key_of(row)] = row["value"]["value"]
        places[key_of(row)].add(row["partition_id"])
    assert counts == {key: len(rows) for key, rows in found.items()}
    assert all(set(rows) == set(range(len(rows))) for rows in found.values())
    assert all(len(each) == 1 for each in places.values())
    return {key: [rows[index] for index in range(len(rows))] for key, rows in found.items()}


Change = Callable[[list[Row]], list[Row]]


def edit_of(source: CheckpointSource, side: str, changes: Mapping[Key, Change]) -> StateEdit:
    """An edit of whole keys: the rows of each become those that its function makes of them."""
    table = rows_of(source, side)
    rows = table.to_pylist()
    removed = [number for number, row in enumerate(rows) if key_of(row) in changes]
    added = []
    for key, change in changes.items():
        names = [field.name for field in table.schema.field("key").type]
        values = change([row["value"] for row in rows if key_of(row) == key])
        added += [{"key": dict(zip(names, key, strict=True)), "value": value} for value in values]
    return StateEdit(side, ("key",), table.take(removed), pa.Table.from_pylist(added, table.schema))


def copied(source: CheckpointSource, edits: list[StateEdit], folder: Path) -> CheckpointSource:
    write_copy(source.edit_plan(source.newest(edits[0].state), edits, EditOptions()), folder)
    return opened(folder)


def bag(rows: list[tuple[Row, bool]]) -> Counter[str]:
    return Counter(repr(row) for row in rows)


@pytest.mark.parametrize(
    ("name", "archive", "side"),
    mostly_slow([(*n, s) for n in LAYOUTS for s in SIDES], [(*n, s) for n in QUICK for s in SIDES]),
)
def test_rows_are_numbered_and_counted_anew(name: str, archive: Path, side: str, tmp_path: Path) -> None:
    source = opened(checkpoint_path(name, archive))
    before = units(source, side)
    several = [key for key, rows in before.items() if len(rows) > 1]
    single = [key for key in before if key not in several[:3]]
    row = next(iter(before.values()))[0][0]
    number = next(column for column in row if column in ("v", "lv", "rv"))
    cast = type(row[number])
    new = row | {number: cast(77)}
    fresh = ("nobody", 4711)[: len(next(iter(before)))]

    def repaired(rows: list[Row]) -> list[Row]:
        return [rows[0] | {number: cast(-1)}, *rows[1:]]

    changes: dict[Key, Change] = {
        several[0]: lambda rows: [],
        several[1]: lambda rows: rows[1:],
        single[0]: lambda rows: [],
        single[1]: lambda rows: [*rows, new, new],
        single[2]: repaired,
        fresh: lambda rows: [new, new | {number: cast(78)}],
    }
    if len(several) > 2:
        changes[several[2]] = repaired
    shown = {key: [row["value"] for row in rows_of(source, side).to_pylist() if key_of(row) == key] for key in changes}
    after = units(copied(source, [edit_of(source, side, changes)], tmp_path / "copy"), side)

    model = {key: bag(rows) for key, rows in before.items()}
    del model[several[0]], model[single[0]]
    flags = {(key, repr(row)): matched for key, rows in before.items() for row, matched in rows}
    model[several[1]] = bag([(row, flags[several[1], repr(row)]) for row in shown[several[1]][1:]])
    model[single[1]] = bag([*before[single[1]], (new, False), (new, False)])
    model[fresh] = bag([(new, False), (new | {number: cast(78)}, False)])
    for key in [single[2], *several[2:3]]:
        first, rest = shown[key][0], shown[key][1:]
        kept = [(row, flags[key, repr(row)]) for row in rest]
        model[key] = bag([(first | {number: cast(-1)}, flags[key, repr(first)]), *kept])
    assert {key: bag(rows) for key, rows in after.items()} == model
    other = "right" if side == "left" else "left"
    assert units(opened(tmp_path / "copy"), other) == units(source, other)


def test_rows_that_stay_are_not_written(tmp_path: Path) -> None:
    source = opened(checkpoint_path("spark4.3.0-join__rkj3"))
    key = next(key for key, rows in units(source, "left").items() if len(rows) > 1)
    plan = source.edit_plan(
        source.newest("left"), [edit_of(source, "left", {key: lambda rows: list(reversed(rows))})], EditOptions()
    )
    assert list(plan.parts()) == []


def test_equal_rows_keep_as_many_flags_as_they_had(tmp_path: Path) -> None:
    source = opened(checkpoint_path("spark4.3.0-join__hdfs"))
    key, rows = next((key, rows) for key, rows in units(source, "left").items() if rows[0][1])
    twice = copied(source, [edit_of(source, "left", {key: lambda rows: [*rows, rows[0]]})], tmp_path / "twice")
    assert bag(units(twice, "left")[key]) == bag([*rows, (rows[0][0], False)])
    once = copied(twice, [edit_of(twice, "left", {key: lambda rows: rows[:-1]})], tmp_path / "once")
    assert len(units(once, "left")[key]) == len(rows)


def test_what_is_not_stored_so_is_refused() -> None:
    source = opened(checkpoint_path("spark4.3.0-join__hdfs"))
    key = next(key for key, rows in units(source, "left").items() if len(rows) > 1)
    good = edit_of(source, "left", {key: lambda rows: []})
    other = good.removed.to_pylist()
    other[0]["value"]["v"] = -12345
    for removed, words in [
        (good.removed.slice(1), "are not stored as the edit says"),
        (pa.concat_tables([good.removed, good.removed.slice(0, 1)]), "is not stored"),
        (pa.Table.from_pylist(other, good.removed.schema), "are not stored as the edit says"),
        (good.removed.slice(0, 0), "keys that are stored"),
    ]:
        edit = StateEdit("left", ("key",), removed, good.removed)
        with pytest.raises(InvalidInputError, match=words) as caught:
            source.edit_plan(source.newest("left"), [edit], EditOptions())
        assert caught.value.code == "EDIT_REFUSED", removed


def test_it_must_be_certain_which_row_takes_the_place_of_which() -> None:
    source = opened(checkpoint_path("spark4.3.0-join__hdfs"))
    key = next(k for k, r in units(source, "left").items() if len(r) > 1 and any(m for _, m in r))
    edit = edit_of(source, "left", {key: lambda rows: [rows[0] | {"v": -1}] + [rows[0] | {"v": -2}] * len(rows)})
    with pytest.raises(InvalidInputError, match="change rows of a key in one edit") as caught:
        source.edit_plan(source.newest("left"), [edit], EditOptions())
    assert caught.value.code == "EDIT_REFUSED"

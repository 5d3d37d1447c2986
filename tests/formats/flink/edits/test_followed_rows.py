"""Rows that follow from an edit: positions of list elements, timers of erased keys, what belongs to windows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.flink.edited import planned, state_edit, written
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import rows_of, source_at

from statestore.formats.edits import StateEdit
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.flink.columns.value_bytes import plain_values
from statestore.formats.flink.source import FlinkSource
from statestore.formats.values.key_groups import key_groups

NEW = "4711"
Lists = dict[str, list[Any]]


def source_of(run: str, place: int) -> FlinkSource:
    return source_at(fixture(run) / manifest(run)["snapshots"][place]["path"])


def own_rows(source: FlinkSource, state: str) -> pa.Table:
    return rows_of(source, state).drop_columns(list(source.info(state).placement))


def cells(rows: pa.Table) -> list[tuple[str, ...]]:
    """Each row as texts."""
    columns = [map(repr, plain_values(rows.column(name).combine_chunks())) for name in rows.schema.names]
    return list(zip(*columns, strict=True))


def chosen(rows: pa.Table, pick: Callable[[dict[str, Any]], bool]) -> pa.Table:
    return rows.filter(pa.array([pick(row) for row in rows.to_pylist()], pa.bool_()))


def removal(source: FlinkSource, state: str, pick: Callable[[dict[str, Any]], bool]) -> StateEdit:
    rows = own_rows(source, state)
    gone = chosen(rows, pick)
    assert gone.num_rows
    return state_edit(source, state, gone, rows.slice(0, 0))


def check_followed(source: FlinkSource, edits: list[StateEdit], folder: Path) -> FlinkSource:
    """Write the edit; the states of its operators must have become what it and the rows that follow say."""
    plan = planned(source, edits)
    copy = written(plan, folder, by_tasks=True)
    labels = {edit.state.split(".")[0] for edit in edits}
    for state in (each for each in source.states() if each.split(".")[0] in labels):
        expected = Counter(cells(own_rows(source, state)))
        for edit in (*edits, *plan.followed):
            if edit.state == state:
                expected.subtract(cells(edit.removed))
                expected.update(cells(edit.added))
        assert +expected == Counter(cells(own_rows(copy, state))), state
        assert not -expected, state
    return copy


# Lists


def as_lists(rows: pa.Table) -> Lists:
    """The elements of each list, whatever their positions are, in the order of these; those without one last."""
    names = [name for name in rows.schema.names if name != "position"]
    found: dict[str, list[tuple[float, int, Any]]] = {}
    for number, row in enumerate(rows.to_pylist()):
        place = float("inf") if row["position"] is None else row["position"]
        value = tuple(repr(row[name]) for name in names if name not in ("key", "namespace"))
        found.setdefault(repr((row["key"], row.get("namespace"))), []).append((place, number, value))
    return {key: [value for _, _, value in sorted(each)] for key, each in found.items()}


def changed_list_rows(rows: pa.Table, seed: int) -> tuple[pa.Table, pa.Table]:
    """Rows of lists that go, and rows that come: at free positions, beyond the end, or without a position."""
    dice = random.Random(seed)
    gone = [dice.random() < 0.3 for _ in range(rows.num_rows)]
    plain, come = rows.to_pylist(), []
    for row, goes in zip(plain, gone, strict=True):
        if goes and dice.random() < 0.4:
            come.append({**dice.choice(plain), **{name: row[name] for name in row if name in ("key", "namespace")}})
            come[-1]["position"] = row["position"]
    for row in plain:
        if row["position"] == 0 and dice.random() < 0.5:
            come += [{**row, "position": 1000 - number} for number in range(dice.randrange(4))]
            come += [{**row, "position": None}] * dice.randrange(2)
    added = pa.Table.from_pylist(come, rows.schema)
    return rows.filter(pa.array(gone)), added


@pytest.mark.parametrize(
    ("run", "place", "state", "seed"),
    [
        ("rocksdb", 2, "kv-long.history", 1),
        ("rocksdb", 0, "ttl.ttl-list", 2),
        ("hashmap", 1, "win-slide-list.window-contents", 3),
        ("rocksdb", 2, "ns-string.list-by-ns", 4),
    ],
)
def test_elements_are_numbered_anew(run: str, place: int, state: str, seed: int, tmp_path: Path) -> None:
    source = source_of(run, place)
    rows = own_rows(source, state)
    removed, added = changed_list_rows(rows, seed)
    gone = Counter(cells(removed))
    left = rows.filter(pa.array([not gone[each] for each in cells(rows)]))
    expected = as_lists(pa.concat_tables([left, added]))
    copy = check_followed(source, [state_edit(source, state, removed, added)], tmp_path / "target")
    new = own_rows(copy, state)
    assert as_lists(new) == expected
    assert any(len(each) > 1 for each in expected.values())
    by_key: dict[str, list[int]] = {}
    for row in new.to_pylist():
        by_key.setdefault(repr((row["key"], row.get("namespace"))), []).append(row["position"])
    assert all(sorted(each) == list(range(len(each))) for each in by_key.values())


def test_a_position_that_an_element_keeps_is_refused(tmp_path: Path) -> None:
    source = source_of("rocksdb", 2)
    first = own_rows(source, "kv-long.history").slice(0, 1)
    plan = planned(source, [state_edit(source, "kv-long.history", first.slice(0, 0), first)])
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*element at position 0 already"):
        written(plan, tmp_path / "target")


# Timers of erased keys


def test_timers_of_erased_keys_go_along(tmp_path: Path) -> None:
    """Of keys without rows in all states of the operator; those of keys that are in another state stay."""
    source = source_of("windows-rocksdb", 1)
    left, right = (
        {row["key"] for row in own_rows(source, f"interval-join.{side}_BUFFER").to_pylist()}
        for side in ("LEFT", "RIGHT")
    )
    timers = "interval-join.event_CLEANUP_TIMER"
    (both, *_), (survivor, *_) = sorted(left & right), sorted(left & right)[1:]
    alone = removal(source, "interval-join.LEFT_BUFFER", lambda row: row["key"] in (both, survivor))
    edits = [alone, removal(source, "interval-join.RIGHT_BUFFER", lambda row: row["key"] == both)]
    copy = check_followed(source, edits, tmp_path / "target")
    before = Counter(row["key"] for row in own_rows(source, timers).to_pylist())
    after = Counter(row["key"] for row in own_rows(copy, timers).to_pylist())
    assert before[both] and before[survivor]
    assert after == Counter({key: count for key, count in before.items() if key != both})
    notes = planned(source, edits).notes
    assert [each for each in notes if each.startswith(f"{before[both]} timers of keys that are erased go along")]
    assert [each for each in notes if each.startswith(f"{before[survivor]} timers stay in {timers}")]


def test_timers_in_raw_keyed_state_go_and_come_along(tmp_path: Path) -> None:
    """The checkpoint is one of RocksDB whose timers are on the heap."""
    source, contents = source_of("heap-timers", 0), "win-tumble.window-contents"
    names = [f"win-tumble.{each}_window-timers" for each in ("event", "processing")]
    before = sum((Counter(cells(own_rows(source, name))) for name in names), Counter[Any]())
    rows = own_rows(source, contents)
    key = rows.column("key")[0].as_py()
    mine = chosen(rows, lambda row: row["key"] == key)
    new = mine.set_column(0, "key", pa.array([NEW] * mine.num_rows))
    copy = check_followed(source, [state_edit(source, contents, mine, new)], tmp_path / "target")
    after = sum((Counter(cells(own_rows(copy, name))) for name in names), Counter[Any]())
    windows = set(cells(mine.select(["namespace"])))
    gone, come = before - after, after - before
    assert {cell[0] for cell in gone} == {repr(key)} and {cell[0] for cell in come} == {repr(NEW)}
    assert len(windows) == mine.num_rows == gone.total() == come.total()
    assert sorted(cell[1:] for cell in gone) == sorted(cell[1:] for cell in come)


def test_timers_in_raw_keyed_state_are_edited_by_themselves(tmp_path: Path) -> None:
    """The operator has nothing but timers. What is refused of other timers is so of them."""
    source, state = source_of("heap-timers", 0), "timers.event_user-timers"
    rows = own_rows(source, state)
    old, new = rows.slice(0, 3), rows.slice(0, 3).set_column(0, "key", pa.array([NEW, "another", NEW]))
    copy = written(planned(source, [state_edit(source, state, old, new)]), tmp_path / "target", by_tasks=True)
    expected = Counter(cells(rows.slice(3))) + Counter(cells(new))
    assert Counter(cells(own_rows(copy, state))) == expected
    groups = {row["key"]: row["key_group"] for row in rows_of(copy, state).to_pylist()}
    assert groups[NEW] == key_groups([pa.array([NEW])], 128)[0]
    empty = rows.slice(0, 0)
    for edit, why in (
        (state_edit(source, state, new, empty), "is not stored"),
        (state_edit(source, state, empty, old), "is stored already"),
    ):
        with pytest.raises(InvalidInputError, match=f"EDIT_REFUSED.*{why}"):
            written(planned(source, [edit]), tmp_path / why)


def test_a_native_savepoint_without_timers_is_warned_of() -> None:
    """Flink 2.3 writes one where timers are on the heap: of windows it has no timers, neither raw nor in RocksDB."""
    source = source_of("heap-timers", 0)
    plan = planned(source, [removal(source, "win-tumble.window-contents", lambda row: True)])
    (operator,) = plan._operators.values()
    assert operator.lost_timers is None
    metadata = replace(operator.snapshot.metadata, is_savepoint=True)
    assert replace(operator, snapshot=replace(operator.snapshot, metadata=metadata)).lost_timers is None
    without = {operator.id: replace(operator.snapshot.stored(operator.id), timers=())}
    told = replace(operator, snapshot=replace(operator.snapshot, metadata=metadata, found=without)).lost_timers
    assert told is not None and "win-tumble has no timers in this native savepoint" in told


def test_a_window_of_null_is_refused(tmp_path: Path) -> None:
    source, contents = source_of("heap-timers", 0), "win-tumble.window-contents"
    old = own_rows(source, contents).slice(0, 1)
    place = old.schema.get_field_index("namespace")
    new = old.set_column(place, old.schema.field(place), pa.nulls(1, old.schema.field(place).type))
    with pytest.raises(StateStoreError, match=r"(EDIT_REFUSED|WRONG_VALUE|EDIT_UNSUPPORTED).*namespace"):
        written(planned(source, [state_edit(source, contents, old, new)]), tmp_path / "target")


def test_timers_that_the_edit_names_are_not_named_twice(tmp_path: Path) -> None:
    source = source_of("rocksdb", 2)
    keys = {row["key"] for row in own_rows(source, "win-tumble.window-contents").slice(0, 3).to_pylist()}
    names = ("win-tumble.window-contents", "win-tumble.event_window-timers")
    edits = [removal(source, name, lambda row: row["key"] in keys) for name in names]
    plan = planned(source, edits)
    assert not plan.followed and not plan.notes
    check_followed(source, edits, tmp_path / "target")


def test_values_without_bytes_stand_in_no_edit_of_others_way(tmp_path: Path) -> None:
    """A list whose number of elements no file tells is beside maps to nulls, which are removed and added again."""
    source = source_of("void-rocksdb", 1)
    rows = own_rows(source, "sets.set")
    assert pa.types.is_map(rows.schema.field("value").type)
    edit = state_edit(source, "sets.set", rows.slice(0, 2), rows.slice(1, 1))
    copy = written(planned(source, [edit]), tmp_path / "target")
    assert Counter(cells(own_rows(copy, "sets.set"))) == Counter(cells(rows.slice(1)))


# Windows


def test_a_window_goes_with_its_timers_and_its_entry(tmp_path: Path) -> None:
    """Sessions, whose timers are under the merged window."""
    source = source_of("rocksdb-1.20", 0)
    label = next(each for each in source.states() if "merging" in each).split(".")[0]
    contents = f"{label}.window-contents"
    entries = own_rows(source, f"{label}.merging-window-set").to_pylist()
    merged = next((each for each in entries if each["value"]["f0"] != each["value"]["f1"]), entries[0])
    stored, whole = merged["value"]["f1"], merged["value"]["f0"]
    edit = removal(source, contents, lambda row: row["key"] == merged["key"] and row["namespace"] == stored)
    copy = check_followed(source, [edit], tmp_path / "target")
    gone_timers = Counter(cells(own_rows(source, f"{label}.event_window-timers")))
    gone_timers.subtract(cells(own_rows(copy, f"{label}.event_window-timers")))
    timers = own_rows(source, f"{label}.event_window-timers")
    gone = chosen(timers, lambda row: row["key"] == merged["key"] and row["namespace"] == whole)
    assert gone.num_rows and +gone_timers == Counter(cells(gone))
    left = own_rows(copy, f"{label}.merging-window-set").to_pylist()
    mine = [each for each in entries if each["key"] == merged["key"]]
    assert [each["value"] for each in left if each["key"] == merged["key"]] == [
        each["value"] for each in mine if each["value"] != merged["value"]
    ]
    assert len(left) == len(entries) - 1


@pytest.mark.parametrize(
    ("run", "place", "label", "distances"),
    [
        ("rocksdb-1.20", 0, "", [-1]),
        ("windows-rocksdb", 0, "late", [-1, 29_999]),
        ("windows-hashmap", 1, "late", [-1, 29_999]),
        ("rocksdb", 2, "win-tumble", [-1]),
    ],
)
def test_a_new_window_comes_with_its_timers(
    run: str, place: int, label: str, distances: list[int], tmp_path: Path
) -> None:
    source = source_of(run, place)
    label = label or next(each for each in source.states() if "merging" in each).split(".")[0]
    rows = own_rows(source, f"{label}.window-contents")
    old = rows.to_pylist()[0]
    mine = chosen(rows, lambda row: row["key"] == old["key"] and row["namespace"] == old["namespace"])
    new = mine.set_column(0, "key", pa.array([NEW] * mine.num_rows).cast(mine.schema.field(0).type))
    edit = state_edit(source, f"{label}.window-contents", rows.slice(0, 0), new)
    copy = check_followed(source, [edit], tmp_path / "target")
    timers = chosen(own_rows(copy, f"{label}.event_window-timers"), lambda row: str(row["key"]) == NEW)
    end = old["namespace"]["end"].timestamp() * 1000
    assert {tuple(row["namespace"].values()) for row in timers.to_pylist()} == {tuple(old["namespace"].values())}
    assert sorted(row["timestamp_ms"] - end for row in timers.to_pylist()) == distances
    if f"{label}.merging-window-set" in source.states():
        entries = chosen(own_rows(copy, f"{label}.merging-window-set"), lambda row: str(row["key"]) == NEW)
        assert [(row["position"], *row["value"].values()) for row in entries.to_pylist()] == [
            (0, old["namespace"], old["namespace"])
        ]


@pytest.mark.parametrize("run", ["windows-rocksdb", "windows-hashmap"])
def test_the_count_of_a_window_goes_with_its_contents(run: str, tmp_path: Path) -> None:
    """And stays, as a note says, where the window has other elements, unless the edit has its count, too."""
    source, contents, count = source_of(run, 0), "count-evicting.window-contents", "count-evicting.count"
    counts = {row["key"]: row["value"] for row in own_rows(source, count).to_pylist()}
    erased, smaller, whole = sorted(counts)
    edit = removal(
        source, contents, lambda row: row["key"] == erased or (row["key"] == smaller and not row["position"])
    )
    plan = planned(source, [edit])
    copy = check_followed(source, [edit], tmp_path / "target")
    left = {row["key"]: row["value"] for row in own_rows(copy, count).to_pylist()}
    assert left == {key: counts[key] for key in (smaller, whole)}
    assert [each for each in plan.notes if each.startswith("1 counts of windows")]
    assert [each for each in plan.notes if each.startswith("1 windows have more or fewer contents")]
    mine = chosen(own_rows(source, count), lambda row: row["key"] == smaller)
    other = mine.set_column(mine.schema.names.index("value"), mine.schema.field("value"), pa.array([1]))
    notes = planned(source, [edit, state_edit(source, count, mine, other)]).notes
    assert not [each for each in notes if "more or fewer" in each]


def test_a_new_window_without_timers_is_told_of(tmp_path: Path) -> None:
    """No other window tells which timers the job sets."""
    contents, timers = "win-tumble.window-contents", "win-tumble.event_window-timers"
    source = source_of("rocksdb", 2)
    without = written(planned(source, [removal(source, timers, lambda row: True)]), tmp_path / "without")
    rows = own_rows(without, contents)
    new = rows.slice(0, 1).set_column(0, "key", pa.array([NEW]))
    plan = planned(without, [state_edit(without, contents, rows.slice(0, 0), new)])
    assert any("1 new windows have no timers" in each and timers in each for each in plan.notes)
    assert not plan.followed

"""Edits of operator state, compared with a plain model; what no edit names keeps its bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.flink.edited import planned, state_edit, written
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import rows_of, source_at
from support.parameters import mostly_slow

from statestore.formats.edits import StateEdit
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.flink.erased_keys import erased_texts, notes_of_elements
from statestore.formats.flink.source import FlinkSource
from statestore.formats.flink.streams.operator_rows import element_cells

RUNS = [
    ("operator-rocksdb", 1),
    ("operator-rocksdb", 0),
    ("operator-hashmap-snappy", 0),
    ("operator-hashmap-snappy", 2),
]
LISTS = ("buffers.split", "buffers.union", "buffers.orders", "rules.counts")
MAPS = ("rules.rules", "rules.priçes")


def source_of(run: str, place: int) -> FlinkSource:
    return source_at(fixture(run) / manifest(run)["snapshots"][place]["path"])


def own_rows(source: FlinkSource, state: str) -> pa.Table:
    return rows_of(source, state).drop_columns(list(source.info(state).placement))


def table(rows: list[dict[str, Any]], like: pa.Table) -> pa.Table:
    return pa.Table.from_pylist(rows, like.schema)


def elements(source: FlinkSource) -> dict[tuple[str, int], list[bytes]]:
    """The bytes of all elements, by state and subtask."""
    opened = source.opened(source.refs[-1][0])
    found = {}
    for operator in opened.metadata.operators:
        for stored in opened.stored(operator.id).elements:
            with opened.files.open_at(stored.handle.stream) as part:
                for state in stored.handle.states:
                    cells = element_cells(state.name, part, stored.handle, stored.header.compressed)
                    found[f"{operator.id} {state.name}", stored.subtask] = [cells.cell(n) for n in range(len(cells))]
    return found


@pytest.mark.parametrize(("run", "place"), mostly_slow(RUNS, RUNS[:1]))
def test_lists_and_maps_become_what_the_edit_says(run: str, place: int, tmp_path: Path) -> None:
    """Lists lose their first and third elements, change the second, and get others; maps one entry of each kind."""
    source = source_of(run, place)
    edits: list[StateEdit] = []
    expected: dict[str, Any] = {}
    for state in LISTS:
        rows = own_rows(source, state)
        every = rows.to_pylist()
        last = max(every, key=lambda row: row["position"])
        gone = [row for row in every if row["position"] in (0, 1, 2)]
        come = [{**row, "value": last["value"]} for row in gone if row["position"] == 1]
        come += [{**every[0], "position": 10_000}, {**every[0], "position": None}]
        edits.append(state_edit(source, state, table(gone, rows), table(come, rows)))
        by_subtask: dict[int, list[Any]] = {}
        for subtask in sorted({row["subtask"] for row in every}):
            mine = [row["value"] for row in every if row["subtask"] == subtask]
            new = [each["value"] for each in come if each["subtask"] == subtask and each["position"] == 1]
            new += mine[3:]
            new += [every[0]["value"]] * (2 if subtask == every[0]["subtask"] else 0)
            by_subtask[subtask] = new
        expected[state] = {subtask: each for subtask, each in by_subtask.items() if each}
    for state in MAPS:
        rows = own_rows(source, state)
        first, second, *others = rows.to_pylist()
        key = "a new rule" if isinstance(first["map_key"], str) else 4711
        come = [{**second, "map_value": others[0]["map_value"]}, {**others[-1], "map_key": key}]
        edits.append(state_edit(source, state, table([first, second], rows), table(come, rows)))
        expected[state] = {row["map_key"]: row["map_value"] for row in (*come, *others)}
    plan = planned(source, edits)
    copy = written(plan, tmp_path / "target", by_tasks=True)
    for state in LISTS:
        found: dict[int, list[Any]] = {}
        for row in own_rows(copy, state).to_pylist():
            assert row["position"] == len(found.setdefault(row["subtask"], []))
            found[row["subtask"]].append(row["value"])
        assert found == expected[state], state
    for state in MAPS:
        assert {row["map_key"]: row["map_value"] for row in own_rows(copy, state).to_pylist()} == expected[state]
    maps = [each for (name, _), each in elements(copy).items() if name.endswith(" rules")]
    assert maps and all(each == maps[0] for each in maps)  # the same bytes in all subtasks
    assert len(maps) > 1 or run.endswith("snappy")


@pytest.mark.parametrize(("run", "place"), mostly_slow(RUNS, RUNS[1:2]))
def test_what_no_edit_names_keeps_its_bytes(run: str, place: int, tmp_path: Path) -> None:
    source = source_of(run, place)
    rows = own_rows(source, "buffers.split")
    first = rows.slice(0, 1)
    copy = written(
        planned(source, [state_edit(source, "buffers.split", first, first.slice(0, 0))]), tmp_path / "target"
    )
    old, new = elements(source), elements(copy)
    changed = [each for each in old if old[each] != new[each]]
    assert [subtask for _, subtask in changed] == first.column("subtask").to_pylist()
    assert [new[each] for each in changed] == [old[each][1:] for each in changed]
    assert old.keys() == new.keys()


def test_operator_state_that_cannot_be_edited(tmp_path: Path) -> None:
    source = source_of("operator-rocksdb", 1)

    def edit(state: str, removed: list[dict[str, Any]], added: list[dict[str, Any]]) -> StateEdit:
        like = own_rows(source, state)
        return state_edit(source, state, table(removed, like), table(added, like))

    split = own_rows(source, "src.SourceReaderState").to_pylist()
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*source or sink"):
        planned(source, [edit("src.SourceReaderState", split[:1], [])])
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*subtask 99; the state is in subtasks 0, 1"):
        planned(source, [edit("buffers.split", [], [{"subtask": 99, "position": 0, "value": 1}])])
    rule = own_rows(source, "rules.rules").to_pylist()[0]
    for removed, added, message in (
        ([{**rule, "map_key": "nothing"}], [], "is not stored"),
        ([], [rule], "is stored already"),
    ):
        with pytest.raises(InvalidInputError, match=rf"EDIT_REFUSED.*{message}"):
            written(planned(source, [edit("rules.rules", removed, added)]), tmp_path / message.replace(" ", "-"))
    row = own_rows(source, "buffers.split").to_pylist()[0]
    for name, removed, added in (
        ("beyond", [{**row, "position": 5000}], []),
        ("taken", [], [row]),
        ("twice", [], [{**row, "position": 900}, {**row, "position": 900}]),
    ):
        with pytest.raises(InvalidInputError, match="EDIT_REFUSED"):
            written(planned(source, [edit("buffers.split", removed, added)]), tmp_path / name)


def test_elements_without_bytes_take_none_from_others(tmp_path: Path) -> None:
    """Elements of ``NullValue`` begin where those of the next state do, whose bytes are not theirs."""
    source = source_of("void-rocksdb", 1)
    places = {each: own_rows(source, each) for each in source.states() if each.startswith("everywhere.")}
    lists = {state: rows for state, rows in places.items() if rows.num_rows and "position" in rows.schema.names}
    assert "everywhere.signs" in lists and "value" not in lists["everywhere.signs"].schema.names
    for state, rows in lists.items():
        first = rows.slice(0, 1)
        edit = state_edit(source, state, first, first.slice(0, 0))
        copy = written(planned(source, [edit]), tmp_path / state)
        for other, mine in lists.items():
            assert own_rows(copy, other).num_rows == mine.num_rows - (other == state)
        stored = source.opened(source.refs[-1][0]).files
        streams = [each.stat().st_size for each in (tmp_path / state).glob("operator-*")]
        assert streams and sum(streams) < 2 * sum(each.stat().st_size for each in Path(stored.path).parent.iterdir())
    signs = [len(each) for (name, _), each in elements(source).items() if name.endswith(" signs")]
    assert sum(signs) == lists["everywhere.signs"].num_rows


def test_erased_keys_in_other_operator_state_are_told_of() -> None:
    """A key that is a text in a list of the job, in whatever encoding of Flink, and not one that is nowhere."""
    source = source_of("operator-rocksdb", 1)
    text = own_rows(source, "buffers.union").column("value").to_pylist()[0]
    assert not text.isascii()
    found = list(notes_of_elements(source, source.refs[-1][0], {text, "nobody-at-all"}, ()))
    assert len(found) == 1 and "of 1 keys" in found[0] and "buffers.union" in found[0] and text not in found[0]
    assert not list(notes_of_elements(source, source.refs[-1][0], {text}, ["buffers.union"]))
    rows = pa.table({"key": ["gone", "changed"]})
    assert erased_texts([StateEdit("any", ("key",), rows, rows.slice(1))]) == {"gone"}

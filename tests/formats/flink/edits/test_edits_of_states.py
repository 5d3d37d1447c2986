"""Edits of every state of real snapshots, compared with what becomes of the rows of the source in a plain table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from support.flink.edited import planned, state_edit, written
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import rows_of, source_at
from support.parameters import mostly_slow

from statestore.formats.edits import StateEdit
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.flink.columns.value_bytes import plain_values
from statestore.formats.flink.snapshot.handles import KeyGroupHandle
from statestore.formats.flink.source import FlinkSource
from statestore.formats.flink.state_at import KeyedAt

RUNS = [
    ("rocksdb", 0),
    ("rocksdb", 2),
    ("rocksdb-1.20", 1),
    ("hashmap", 0),
    ("hashmap", 1),
    ("types-rocksdb", 0),
    ("wide-hashmap", 0),
    ("wide-rocksdb", 0),
    ("sql", 1),
    ("shapes-rocksdb", 0),
    ("windows-rocksdb", 0),
]
OF_KNOWN_HASH = [each for each in RUNS if not each[0].startswith(("sql", "shapes"))]
QUICK = [("rocksdb", 2)]


def folder_of(run: str, place: int) -> Path:
    found: str = manifest(run)["snapshots"][place]["path"]
    return fixture(run) / found


def plain_rows(rows: pa.Table) -> list[str]:
    """Rows as texts in one order, without where they are stored."""
    names = [name for name in rows.schema.names if name not in ("key_group", "stored_bytes")]
    columns = [plain_values(rows.column(name).combine_chunks()) for name in names]
    return sorted(map(repr, zip(*columns, strict=True)))


def keyed_states(source: FlinkSource) -> dict[str, pa.Table]:
    """The rows of each keyed state that has some."""
    found = {}
    for state in source.states():
        at = source.at(state, source.newest(state))
        try:
            rows = rows_of(source, state)
        except UnsupportedError:  # values of the job's own classes, which pass as bytes
            continue
        if isinstance(at, KeyedAt) and rows.num_rows:
            found[state] = rows
    return found


def apart(states: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The states without timers that follow rows of others (test_followed_rows.py)."""
    others = {name.rpartition(".")[0] for name in states if not name.endswith("timers") and "_TIMER" not in name}
    timers = {name for name in states if name.endswith("timers") or "_TIMER" in name}
    return {name: rows for name, rows in states.items() if name not in timers or name.rpartition(".")[0] not in others}


def keys_of(rows: pa.Table) -> list[str]:
    """The key of each row, with its namespace, as text."""
    names = [name for name in ("key", "namespace") if name in rows.schema.names]
    return list(map(repr, zip(*(plain_values(rows.column(name).combine_chunks()) for name in names), strict=True)))


def of_keys(rows: pa.Table, keys: Sequence[str], *, others: bool = False) -> pa.Table:
    return rows.filter(pa.array([(each in keys) is not others for each in keys_of(rows)]))


@pytest.mark.parametrize(("run", "place"), mostly_slow(RUNS, QUICK))
def test_erased_keys_are_gone_and_all_else_is_there(run: str, place: int, tmp_path: Path) -> None:
    source = source_at(folder_of(run, place))
    states = apart(keyed_states(source))
    gone = {state: sorted(set(keys_of(rows)))[::3] for state, rows in states.items()}
    edits = [state_edit(source, state, of_keys(rows, gone[state]), rows.slice(0, 0)) for state, rows in states.items()]
    copy = written(planned(source, edits), tmp_path / "target")
    for state, rows in states.items():
        assert gone[state]
        assert plain_rows(rows_of(copy, state)) == plain_rows(of_keys(rows, gone[state], others=True)), state


@pytest.mark.parametrize(("run", "place"), mostly_slow(OF_KNOWN_HASH, [("wide-hashmap", 0), ("wide-rocksdb", 0)]))
def test_what_was_erased_and_is_added_again_has_the_same_bytes(run: str, place: int, tmp_path: Path) -> None:
    """Of keys whose hash is known, and of values whose bytes are. The heap has keys in no order."""
    source = source_at(folder_of(run, place))
    states = apart(keyed_states(source))
    erased = {state: of_keys(rows, sorted(set(keys_of(rows)))[::3]) for state, rows in states.items()}
    whole = written(planned(source, rewrite=True), tmp_path / "whole")
    with_edits = planned(source, [state_edit(source, state, rows, rows.slice(0, 0)) for state, rows in erased.items()])
    without = written(with_edits, tmp_path / "without")
    added = []
    for state, rows in erased.items():
        edit = state_edit(without, state, rows.slice(0, 0), rows)
        try:
            planned(without, [edit])
        except UnsupportedError as error:
            assert error.code == "EDIT_UNSUPPORTED"
            continue
        added.append(edit)
    assert len(added) >= min(len(erased) // 2, 8)
    again = written(planned(without, added), tmp_path / "again", by_tasks=True)
    for edit in added:
        old, new = rows_of(whole, edit.state), rows_of(again, edit.state)
        assert plain_rows(old) == plain_rows(new) if "hashmap" in run else old.equals(new), edit.state


@pytest.mark.parametrize(("run", "place"), mostly_slow(RUNS, QUICK))
def test_changed_values_are_those_of_the_edit(run: str, place: int, tmp_path: Path) -> None:
    """Each row of one key in three gets the value of another one."""
    source = source_at(folder_of(run, place))
    edits: list[StateEdit] = []
    expected: dict[str, list[str]] = {}
    for state, rows in keyed_states(source).items():
        key = source.info(state).row_key
        values = [name for name in rows.schema.names if name not in key and name not in source.info(state).placement]
        if not values or not key or "timestamp" in values:
            continue
        old = rows.slice(0, rows.num_rows // 3 + 1)
        new = old
        for name in values:
            other = rows.column(name).slice(rows.num_rows - old.num_rows)
            new = new.set_column(new.schema.names.index(name), rows.schema.field(name), other)
        edit = state_edit(source, state, old, new)
        try:
            written(planned(source, [edit]), tmp_path / f"one-{len(edits)}-{state}")
        except UnsupportedError as error:
            assert error.code == "EDIT_UNSUPPORTED", error
            continue
        edits.append(edit)
        expected[state] = plain_rows(pa.concat_tables([new, rows.slice(old.num_rows)]))
    assert len(edits) >= 2
    copy = written(planned(source, edits), tmp_path / "target")
    for state, rows in expected.items():
        assert plain_rows(rows_of(copy, state)) == rows, state


def test_an_erased_key_is_in_no_file_of_the_target(tmp_path: Path) -> None:
    """Neither in streams, which are written anew, nor in handles of small state, which ``_metadata`` holds."""
    folder = folder_of("rocksdb", 2)
    source = source_at(folder)
    stored = b"\x07user-9"  # as a key or part of one: a length, and six characters
    edits = []
    for state, rows in keyed_states(source).items():
        mine = rows.filter(pa.array(["'user-9'" in repr(each) for each in rows.to_pylist()]))  # another key names it
        if mine.num_rows:
            edits.append(state_edit(source, state, mine, rows.slice(0, 0)))
    assert len(edits) > 10
    assert any(stored in each.read_bytes() for each in folder.iterdir())
    written(planned(source, edits), tmp_path / "target")
    assert not [each.name for each in (tmp_path / "target").iterdir() if stored in each.read_bytes()]


def test_rows_that_are_not_stored_are_refused(tmp_path: Path) -> None:
    source = source_at(folder_of("rocksdb", 2))
    rows = rows_of(source, "kv-string.count")
    stranger = rows.slice(0, 1).set_column(0, "key", pa.array(["nobody"]))
    plan = planned(source, [state_edit(source, "kv-string.count", stranger, rows.slice(0, 0))])
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*nobody"):
        written(plan, tmp_path / "removed")
    plan = planned(source, [state_edit(source, "kv-string.count", rows.slice(0, 0), rows.slice(0, 1))])
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*is stored already"):
        written(plan, tmp_path / "added")


@pytest.mark.parametrize("opaque", [None, "ttl"])
def test_one_edit_makes_all_operators_of_the_heap_canonical(opaque: str | None, tmp_path: Path) -> None:
    """But those with values that nothing describes, of which a note tells."""
    state, heap = "kv-long.balance", set() if opaque is None else {opaque}
    source = source_at(folder_of("hashmap", 0), {} if opaque is None else {"type": f"{opaque}.ttl-value=binary"})
    before = keyed_states(source)
    rows = before[state]
    plan = planned(source, [state_edit(source, state, rows.slice(0, 1), rows.slice(0, 0))])
    copy = written(plan, tmp_path / "target", by_tasks=True)
    for name, expected in before.items():
        assert plain_rows(rows_of(copy, name)) == plain_rows(expected.slice(1) if name == state else expected), name
    snapshot = copy.opened(copy.refs[-1][0])
    forms = {
        snapshot.labels[each.id]: subtask.managed_keyed.form
        for each in snapshot.metadata.operators
        for subtask in each.subtasks
        if isinstance(subtask.managed_keyed, KeyGroupHandle)
    }
    assert {label for label, form in forms.items() if form == "heap"} == heap and len(forms) > len(heap)
    told = [each for each in plan.notes if "the heap backend alone" in each]
    assert len(told) == len(heap) and all(label in told[0] for label in heap)

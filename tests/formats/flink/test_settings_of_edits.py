"""Edits with settings: another max parallelism, other uids, and state that is left out."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.flink.edited import planned, state_edit, written
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import rows_of, source_at
from support.parameters import mostly_slow

from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.flink.columns.value_bytes import plain_values
from statestore.formats.flink.edits import key_group_runs
from statestore.formats.flink.snapshot.handles import KeyGroupHandle
from statestore.formats.flink.snapshot.operator_ids import operator_id
from statestore.formats.flink.source import FlinkSource

UNKNOWN_KEYS = {
    "rocksdb": "kv-pojo",
    "hashmap": "kv-pojo",
    "types-rocksdb": "rich-pojo,generic-key",
}
"""Operators that are dropped, because the hash codes of their keys are those of the job's classes."""
RUNS = [
    ("max-1024-hashmap", 0),  # a share of the slow cases takes the first
    ("rocksdb", 2),
    ("rocksdb-1.20", 1),
    ("hashmap", 0),
    ("hashmap-1.20", 0),
    ("max-32768-rocksdb-snappy", 0),
    ("rescaled-small", 1),
    ("windows-rocksdb", 0),
    ("windows-hashmap", 0),
    ("operator-rocksdb", 1),
    ("wide-rocksdb", 0),
    ("sql", 1),
    ("sql-types-hashmap", 0),
    ("sql-window", 0),
]
QUICK = [("sql", 1)]


def source_of(run: str, place: int) -> FlinkSource:
    return source_at(fixture(run) / manifest(run)["snapshots"][place]["path"])


def listed(rows: pa.Table, *without: str) -> list[str]:
    """Rows as texts in one order."""
    names = [name for name in rows.schema.names if name not in ("stored_bytes", *without)]
    columns = [plain_values(rows.column(name).combine_chunks()) for name in names]
    return sorted(map(repr, zip(*columns, strict=True)))


def states_of(source: FlinkSource, *without: str) -> dict[str, list[str]]:
    """The rows of each state that can be read."""
    found = {}
    for state in source.states():
        try:
            found[state] = listed(rows_of(source, state), *without)
        except StateStoreError as error:
            found[state] = [str(error.code)]
    return found


@pytest.mark.parametrize(("run", "place"), mostly_slow(RUNS, QUICK))
def test_keys_move_to_the_key_groups_of_another_max_parallelism_and_back(
    run: str, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flink itself has placed the keys of the source, so they lie there again after the way back.

    The first way is of more entries than memory may hold.
    """
    source = source_of(run, place)
    before = source.opened(source.refs[-1][0]).metadata.operators
    most = before[0].max_parallelism
    assert {each.max_parallelism for each in before} == {most}
    drop = {"drop": UNKNOWN_KEYS[run]} if run in UNKNOWN_KEYS else {}
    if drop:
        source = written(planned(source, settings=drop), tmp_path / "kept")
    monkeypatch.setattr(key_group_runs, "MOST", 4000)
    there = written(planned(source, settings={"max_parallelism": "300"}), tmp_path / "there", by_tasks=True)
    monkeypatch.undo()
    after = there.opened(there.refs[-1][0]).metadata.operators
    assert {each.max_parallelism for each in after} == {300}
    for each in after:
        keyed = [task.managed_keyed for task in each.subtasks if isinstance(task.managed_keyed, KeyGroupHandle)]
        assert sum(handle.groups for handle in keyed) == (300 if keyed else 0)
    assert states_of(there, "key_group") == states_of(source, "key_group")
    assert most == 300 or states_of(there) != states_of(source)
    back = written(planned(there, settings={"max_parallelism": str(most)}), tmp_path / "back")
    assert states_of(back) == states_of(source)


def test_rows_of_an_edit_move_along(tmp_path: Path) -> None:
    source = source_of("rocksdb-1.20", 1)
    state = next(each for each in source.states() if each.endswith(".count"))
    rows = rows_of(source, state)
    new = rows.slice(0, 1).set_column(0, "key", pa.array(["nobody"]))
    edit = state_edit(source, state, rows.slice(1, 2), new)
    copy = written(planned(source, [edit], settings={"max_parallelism": "64"}), tmp_path / "target")
    expected = pa.concat_tables([rows.slice(0, 1), rows.slice(3), new])
    assert listed(rows_of(copy, state), "key_group") == listed(expected, "key_group")
    gone = state_edit(source, state, new, rows.slice(0, 0))
    with pytest.raises(InvalidInputError, match=r"EDIT_REFUSED.*nobody"):
        written(planned(source, [gone], settings={"max_parallelism": "64"}), tmp_path / "refused")


@pytest.mark.parametrize("new", ["counts of keys", "0123456789abcdef" * 2])
def test_an_operator_has_another_uid_or_id(new: str, tmp_path: Path) -> None:
    source = source_of("rocksdb", 2)
    plan = planned(source, settings={"rename_operator": f"kv-string={new}, {operator_id('kv-long')} = kv-string"})
    copy = written(plan, tmp_path / "target")
    assert states_of(copy) == states_of(source)  # under the names that states of the source have
    assert any("kv-string" in each and "which the job has to give it" in each for each in plan.notes)
    found = source_at(tmp_path / "target")
    labels = {each.id: each.uid for each in found.opened(found.refs[-1][0]).metadata.operators}
    assert labels[operator_id("kv-string")] == "kv-string"
    assert operator_id("kv-long") not in labels
    is_id = len(new) == 32
    assert labels[new if is_id else operator_id(new)] == (None if is_id else new)
    renamed = "KeyedProcess" if is_id else new  # the name of the operator, where it has no uid
    assert listed(rows_of(found, f"{renamed}.count")) == listed(rows_of(source, "kv-string.count"))
    assert listed(rows_of(found, "kv-string.balance")) == listed(rows_of(source, "kv-long.balance"))


def test_operators_and_states_are_left_out(tmp_path: Path) -> None:
    source = source_of("rocksdb", 2)
    plan = planned(source, settings={"drop": f"kv-long, kv-string.count, {operator_id('kv-string')}.event_user-timers"})
    copy = written(plan, tmp_path / "target")
    gone = {each for each in source.states() if each.startswith("kv-long.")}
    gone |= {"kv-string.count", "kv-string.event_user-timers"}
    assert set(plan.dropped) == gone
    assert states_of(copy) == {name: rows for name, rows in states_of(source).items() if name not in gone}
    operators = copy.opened(copy.refs[-1][0]).metadata.operators
    assert operator_id("kv-long") not in {each.id for each in operators}
    assert len(operators) == len(source.opened(source.refs[-1][0]).metadata.operators) - 1
    assert b"count" not in (tmp_path / "target" / f"keyed-{operator_id('kv-string')}-0").read_bytes()
    assert any("kv-long is not in the target" in each for each in plan.notes)


@pytest.mark.parametrize("run", ["operator-rocksdb", "operator-hashmap-snappy", "merged-operator"])
def test_lists_and_broadcast_maps_are_left_out(run: str, tmp_path: Path) -> None:
    """Each of an operator by itself: the header names it no more, and all other state is as it was."""
    source = source_of(run, 0)
    before, number = states_of(source), source.refs[-1][0]
    lists = [each.identity for each in source.opened(number).states().values() if each.identity[1] == "operator"]
    assert len(lists) > 3
    for place, (operator, kind, stored) in enumerate(lists):
        name = source.names()[operator, kind, stored]
        plan = planned(source, settings={"drop": name})
        copy = written(plan, tmp_path / str(place), by_tasks=True)
        assert set(plan.dropped) == {name}
        assert states_of(copy) == {each: rows for each, rows in before.items() if each != name}
        for each in copy.opened(number).stored(operator).elements:
            assert stored not in [state.name for state in each.header.states]
            assert stored not in [state.name for state in each.header.broadcasts]
        assert any(f"the target has no {stored}" in each for each in plan.notes)


def test_files_of_a_dropped_operator_are_not_copied(tmp_path: Path) -> None:
    source = source_of("rocksdb", 0)
    every = {each.path for each in planned(source).copied()}
    kept = {each.path for each in planned(source, settings={"drop": "kv-long"}).copied()}
    assert kept < every
    copy = written(planned(source, settings={"drop": "kv-long"}), tmp_path / "target")
    assert {each.name for each in (tmp_path / "target").iterdir()} == {*kept, "_metadata"}
    assert "kv-string.count" in copy.states()


@pytest.mark.parametrize(
    ("run", "place", "settings", "message"),
    [
        ("rocksdb", 2, {"max_parallelism": "0"}, "expected a number from 1 to 32768"),
        ("rocksdb", 2, {"max_parallelism": "1"}, "has 2 subtasks"),
        ("rocksdb", 2, {"parallelism": "4"}, "expected one of max_parallelism, rename_operator, drop"),
        ("rocksdb", 2, {"rename_operator": "kv-string"}, "expected old=new"),
        ("rocksdb", 2, {"rename_operator": "kv=new"}, "no operator 'kv'; there are .*kv-string"),
        ("rocksdb", 2, {"rename_operator": "kv-string=kv-long"}, "would both have id"),
        ("rocksdb", 2, {"rename_operator": "kv-string=a,kv-string=b"}, "named twice"),
        ("rocksdb", 2, {"rename_operator": "kv-string=a", "drop": "kv-string"}, "is dropped by drop"),
        ("rocksdb", 2, {"drop": "kv-string.nothing"}, "no operator and no state 'kv-string.nothing'; .*kv-string"),
        ("rocksdb", 2, {"max_parallelism": "300"}, "the hash code of POJO"),
        ("sql", 0, {"max_parallelism": "300", "drop": "nothing"}, "no operator and no state"),
        ("heap-timers", 0, {"max_parallelism": "300"}, "raw keyed state"),
        ("heap-timers", 0, {"drop": "timers.event_user-timers"}, "raw keyed state, which cannot be left out"),
        ("unaligned", 0, {"max_parallelism": "300"}, "records in flight"),
    ],
)
def test_settings_that_are_refused(run: str, place: int, settings: dict[str, str], message: str) -> None:
    with pytest.raises((InvalidInputError, UnsupportedError), match=rf"(?s)(INVALID_OPTION|EDIT_UNSUPP).*({message})"):
        planned(source_of(run, place), settings=settings)


def test_rows_of_what_is_dropped_are_not_edited() -> None:
    source = source_of("rocksdb", 2)
    rows = rows_of(source, "kv-string.count").slice(0, 1)
    edit = state_edit(source, "kv-string.count", rows, rows.slice(0, 0))
    with pytest.raises(InvalidInputError, match=r"INVALID_OPTION.*kv-string.count, which is dropped"):
        planned(source, [edit], settings={"drop": "kv-string"})

"""History, change feed and differences of keyed states, compared with plain dicts of the kept snapshots."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.keyed.keyed_made import (
    STATES,
    Made,
    expected_changes,
    expected_history,
    make,
    rows,
    told_changes,
    told_history,
)
from support.parameters import mostly_slow
from support.places import DIRECTORY, MEMORY, warehouse_in

import statestore
from statestore.catalog.reads.table import Table
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.state_table import Mode, Query

HISTORIES = [
    (1, 1, 6, ()),
    (2, 2, 6, (3,)),
    (3, 1, 7, (1,)),
    (4, 2, 6, (1, 2, 5)),
    (5, 3, 5, (2, 5)),
]
CASES = [
    pytest.param((DIRECTORY, *case), marks=() if case in HISTORIES[1::2] else pytest.mark.slow) for case in HISTORIES
]
CASES += [pytest.param((MEMORY, *HISTORIES[1])), pytest.param((MEMORY, *HISTORIES[3]), marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=CASES, ids=str)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    kind, seed, tasks, versions, discard = request.param
    place = warehouse_in(kind, request, tmp_path_factory.mktemp("keyed"))
    return make(place, seed, tasks, versions, discard)


@pytest.mark.quick("('directory', 4*")
@pytest.mark.parametrize("state", mostly_slow(STATES, list(STATES)[:1]))
def test_changes_are_the_differences_of_kept_snapshots(made: Made, state: str) -> None:
    table = made.table(state)
    assert told_changes(made, table.changes().read_all()) == expected_changes(made, state)
    found = statestore.sql(made.path, f"SELECT * FROM changes('sessions.{state}')")
    assert told_changes(made, found) == expected_changes(made, state)
    newest = max(made.times)
    for first in range(0 if made.whole else min(made.kept) + 1, newest + 1):
        for last in {first, first + 1, newest} & set(range(newest + 1)):
            answer = table.changes(first, last).read_all()
            assert told_changes(made, answer) == expected_changes(made, state, first, last)


@pytest.mark.quick("('directory', 4*-attrs")
@pytest.mark.parametrize("state", STATES)
def test_history_is_when_rows_were_as_they_were(made: Made, state: str) -> None:
    table = made.table(state)
    assert told_history(table.history().read_all()) == expected_history(made, state)
    found = statestore.sql(made.path, f"SELECT * FROM history('sessions.{state}')")
    assert told_history(found) == expected_history(made, state)
    for version in made.kept:
        assert told_history(table.history(version=version).read_all()) == expected_history(made, state, version)


@pytest.mark.quick("('directory', 4*")
def test_history_and_changes_between_times(made: Made) -> None:
    table = made.table("counts")
    kept = sorted(made.kept)
    known = expected_history(made, "counts")
    for start in kept:
        for end in {start, kept[-1]}:
            first, last = made.at(start), made.at(end)
            within = {
                row for row in known if (row[-3] is None or row[-3] <= last) and (row[-2] is None or row[-2] > first)
            }
            assert set(told_history(table.history(start_time=first, end_time=last).read_all())) == within
            if made.whole or start != kept[0]:
                then = {v for v in kept if first <= made.at(v) <= last}
                expected = {row for row in expected_changes(made, "counts") if row[-1] in then}
                answer = table.changes(start_time=first, end_time=last).read_all()
                assert set(told_changes(made, answer)) == expected


def test_what_is_not_known_is_refused(made: Made) -> None:
    table = made.table("counts")
    oldest, beyond = min(made.kept), max(made.times) + 1
    with pytest.raises(NotFoundError, match="VERSION_NOT_FOUND"):
        table.changes(end_version=beyond)
    with pytest.raises(InvalidInputError, match="INVALID_RANGE"):
        table.changes(beyond, 1)
    with pytest.raises(InvalidInputError, match="INVALID_VERSION"):
        table.changes(True)
    if not made.whole:
        with pytest.raises(NotFoundError, match=f"VERSION_NOT_FOUND.*those of {oldest + 1} to"):
            table.changes(oldest)
        with pytest.raises(NotFoundError, match="TIME_NOT_KEPT"):
            table.changes(start_time=made.at(oldest))
        with pytest.raises(NotFoundError, match="TIME_NOT_KEPT"):
            table.history(start_time=made.times[oldest] // 1000 - 1)


@pytest.mark.quick("('directory', 4*")
def test_filters_select_what_python_selects(made: Made) -> None:
    for state in STATES:
        table = made.table(state)
        history, changes = table.history().read_all().to_pylist(), table.changes().read_all().to_pylist()
        for user in ("user 7", "", "nobody"):
            for value in ((), (("value", ">=", 3),)):
                asked = [("user", "=", user), *value]
                wanted = [row for row in history if row["user"] == user and (not value or _least(row["value"]))]
                found = table.history(filter=asked).read_all().to_pylist()
                assert sorted(map(str, found)) == sorted(map(str, wanted))
                wanted = [row for row in changes if row["user"] == user and (not value or _least(row["value"]))]
                found = table.changes(filter=asked, columns=table.schema.names).read_all().to_pylist()
                names = table.schema.names
                assert sorted(map(str, found)) == sorted(str({n: row[n] for n in names}) for row in wanted)
        kinds = [row for row in changes if row["_change_type"] == "delete"]
        assert len(table.changes(filter=("_change_type", "=", "delete")).read_all()) == len(kinds)


def _least(value: float | None) -> bool:
    return value is not None and value >= 3


@pytest.mark.quick("('directory', 4*-counts")
@pytest.mark.parametrize("state", STATES)
def test_differences_of_any_two_snapshots(made: Made, state: str) -> None:
    table = made.table(state)
    for old in made.kept:
        for new in made.kept:
            before, after = made.kept[old][state], made.kept[new][state]
            found = {}
            for row in table.diff(old, new).read_all().to_pylist():
                change, *key, was, is_, _ = row.values()
                found[tuple(key)] = change, was and was["value"], is_ and is_["value"]
            expected = {key: ("added", None, after[key]) for key in after.keys() - before.keys()}
            expected |= {key: ("removed", before[key], None) for key in before.keys() - after.keys()}
            expected |= {
                key: ("changed", before[key], after[key])
                for key in before.keys() & after.keys()
                if before[key] != after[key]
            }
            assert found == expected


@pytest.mark.quick("('memory*")
def test_tables_and_splits_travel(made: Made) -> None:
    modes: tuple[Mode, ...] = ("state", "history", "changes")
    for mode in modes:
        query = Query(mode=mode)
        table = pickle.loads(pickle.dumps(made.table("counts").table))
        splits = pickle.loads(pickle.dumps(table.splits(query)))
        batches = [batch for split in splits for batch in table.read(split, query)]
        assert all(batch.schema == table.schema(query) for batch in batches)
        whole = statestore.inspect(made.path).table("sessions.counts")
        answers = {"state": whole.scan(), "history": whole.history(), "changes": whole.changes()}
        assert sum(batch.num_rows for batch in batches) == answers[mode].read_all().num_rows


def test_a_migrated_state_is_told_in_its_widest_type(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "int"}) as store:
        for kind in ("full", "incremental"):
            with store.backend() as backend:
                state = backend.value_state(kind, "int")
                for key in (1, 2, 3):
                    backend.set_current_key(key)
                    state.update(key)
                store.commit([backend.snapshot("full" if kind == "full" else "incremental").result()])
        with store.backend() as backend:
            state = backend.value_state("full", "bigint")
            backend.set_current_key(1)
            state.update(1 << 40)
            store.commit([backend.snapshot().result()])
    table = statestore.inspect(str(tmp_path)).table("s.full")
    assert rows(table.scan(version=1).read_all()) == {(1,): 1, (2,): 2, (3,): 3}
    changed = [(r["k"], r["_old"]["value"], r["_new"]["value"]) for r in table.diff(1).read_all().to_pylist()]
    assert changed == [(1, 1, 1 << 40)]
    told = table.changes(3, 3, columns=["k", "value", "_change_type"]).read_all().to_pylist()
    assert sorted((r["k"], r["value"], r["_change_type"]) for r in told) == [
        (1, 1, "update_preimage"),
        (1, 1 << 40, "update_postimage"),
    ]
    assert len(table.history(key=2).read_all()) == 1


def test_a_state_comes_late_and_goes(tmp_path: Path) -> None:
    """A state has no rows before it was registered, and after a store was begun anew without it."""
    with statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "int"}) as store:
        for version, names in ((None, ["a"]), (None, ["a", "b"]), (0, ["b"])):
            with store.backend(version=version) as backend:
                for name in names:
                    state = backend.value_state(name, "int")
                    backend.set_current_key(5)
                    state.update(len(names))
                store.commit([backend.snapshot("incremental").result()])
    inspected = statestore.inspect(str(tmp_path))
    assert inspected.tables() == ["s.b"]
    told = {
        name: [
            (r["_commit_version"], r["_change_type"], r["value"])
            for r in inspected.table(f"s.{name}").changes().read_all().to_pylist()
        ]
        for name in ("a", "b")
    }
    assert sorted(told["a"]) == [
        (1, "insert", 1),
        (2, "update_postimage", 2),
        (2, "update_preimage", 1),
        (3, "delete", 2),
    ]
    assert sorted(told["b"]) == [(2, "insert", 2), (3, "update_postimage", 1), (3, "update_preimage", 2)]
    assert rows(inspected.table("s.a").scan(version=2).read_all()) == {(5,): 2}
    with pytest.raises(NotFoundError, match=r"STATE_NOT_FOUND.*version 1, 2 has it"):
        inspected.table("s.a").scan()
    assert statestore.sql(str(tmp_path), "SELECT value FROM s.a VERSION AS OF 1").to_pylist() == [{"value": 1}]


# A state whose type was widened and which was then restored from an earlier snapshot: every read uses the widest type.

KINDS: list[tuple[str, str, Any, Any]] = [
    ("int", "bigint", 7, 1 << 40),
    ("float", "double", 0.5, 0.1),
    ("struct<a:int>", "struct<a:bigint,b:string>", {"a": 7}, {"a": 1 << 40, "b": "x"}),
    ("array<int>", "array<bigint>", [7], [1 << 40]),
    ("map<string,float>", "map<string,double>", {"x": 0.5}, {"x": 0.1}),
    ("decimal(5,2)", "decimal(20,4)", 7, 12345678),
]


def widened(root: Path, narrow: str, wide: str, small: Any, large: Any) -> tuple[Table, list[int]]:
    """Snapshots 1 (narrow), 2 (wide), 3 (narrow: from snapshot 1)."""
    with statestore.connect(root).create_store("s", kind="keyed", key={"k": "int"}) as store:
        for kind, version, value in ((narrow, None, small), (wide, None, large), (narrow, 1, small)):
            with store.backend(version=version) as backend:
                state = backend.value_state("v", kind)
                for key in (1, 2):
                    backend.set_current_key(key)
                    if key == 1:
                        state.update(value)
                    elif version is None and kind == narrow:
                        state.update(small)
                store.commit([backend.snapshot().result()])
    table = statestore.inspect(str(root)).table("s.v")
    found = statestore.inspect(str(root)).table("s.v$versions").scan().read_all()
    return table, [round(moment.timestamp() * 1e6) for moment in found["timestamp"].to_pylist()]


def values(table: Table, version: int) -> dict[int, Any]:
    return {row["k"]: row["value"] for row in table.scan(version=version).read_all().to_pylist()}


def shown(value: Any) -> Any:
    """The value without the fields that the narrower type lacks; maps as dicts."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        value = dict(value)
    return {name: cell for name, cell in value.items() if cell is not None} if isinstance(value, dict) else value


@pytest.mark.quick("bigint", "struct*", "array*")
@pytest.mark.parametrize(("narrow", "wide", "small", "large"), KINDS, ids=[kind[1] for kind in KINDS])
def test_every_read_across_a_widening(narrow: str, wide: str, small: Any, large: Any, tmp_path: Path) -> None:
    table, times = widened(tmp_path, narrow, wide, small, large)
    kinds = {version: table.table.schema(statestore_query(version)).field("value").type for version in (1, 2, 3)}
    assert kinds[1] == kinds[3] != kinds[2]
    states = {version: values(table, version) for version in (1, 2, 3)}
    for old in (1, 2, 3):
        for new in (1, 2, 3):
            reader = table.diff(old, new)
            expected = kinds[2] if 2 in (old, new) else kinds[1]
            assert reader.schema.field("_new").type.field("value").type == expected
            found = reader.read_all().to_pylist()
            assert [row["k"] for row in found] == ([1] if 2 in (old, new) and old != new else [])
            for row in found:
                assert shown(row["_old"]["value"]) == shown(states[old][1])
                assert shown(row["_new"]["value"]) == shown(states[new][1])
    for answer in (table.history().read_all(), table.changes().read_all()):
        assert answer.schema.field("value").type == kinds[2]
    told = table.changes(filter=("k", "=", 1)).read_all()
    assert [(row["_commit_version"], row["_change_type"], shown(row["value"])) for row in told.to_pylist()] == [
        (1, "insert", shown(states[1][1])),
        (2, "update_preimage", shown(states[1][1])),
        (2, "update_postimage", shown(states[2][1])),
        (3, "update_preimage", shown(states[2][1])),
        (3, "update_postimage", shown(states[3][1])),
    ]
    left = pa.table({"k": pa.array([1] * 3, pa.int32()), "t": pa.array(times, pa.timestamp("us", "UTC"))})
    for engine in ("arrow", "duckdb"):
        joined = statestore.asof_join(left, table, on="k", left_time="t", engine=engine)
        assert [shown(cell) for cell in joined["value"].to_pylist()] == [shown(states[n][1]) for n in (1, 2, 3)]


def statestore_query(version: int) -> Any:
    from statestore.formats.state_table import Query

    return Query(version=version)


def test_types_without_a_common_one_are_refused(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "int"}) as store:
        for kind, value in (("string", "7"), ("bigint", 7)):
            with store.backend(version=0) as backend:
                state = backend.value_state("v", kind)
                backend.set_current_key(1)
                state.update(value)
                store.commit([backend.snapshot().result()])
    table = statestore.inspect(str(tmp_path)).table("s.v")
    asks: list[Callable[[], Any]] = [lambda: table.diff(1, 2), lambda: table.diff(2, 1), table.history, table.changes]
    for ask in asks:
        with pytest.raises(statestore.InvalidInputError, match="INCOMPATIBLE_STATE"):
            ask().read_all()
    assert table.diff(1, 1).read_all().num_rows == table.diff(2).read_all().num_rows == 0


def test_fields_that_were_added_on_both_sides_of_a_widening(tmp_path: Path) -> None:
    """Neither type is the wider one: the answer has the fields of both, in the wider numbers."""
    with statestore.connect(tmp_path).create_store("s", kind="keyed", key={"k": "int"}) as store:
        for kind, value, version in (
            ("struct<a:int>", {"a": 1}, None),
            ("struct<a:bigint>", {"a": 1 << 40}, 1),
            ("struct<a:int,b:string>", {"a": 2, "b": "x"}, 1),
        ):
            with store.backend(version=version) as backend:
                state = backend.value_state("v", kind)
                backend.set_current_key(1)
                state.update(value)
                store.commit([backend.snapshot().result()])
    table = statestore.inspect(str(tmp_path)).table("s.v")
    for old, new in ((2, 3), (3, 2)):
        (row,) = table.diff(old, new).read_all().to_pylist()
        sides = {old: row["_old"]["value"], new: row["_new"]["value"]}
        assert sides == {2: {"a": 1 << 40, "b": None}, 3: {"a": 2, "b": "x"}}
    values = {row["_commit_version"]: row["value"] for row in table.history().read_all().to_pylist()}
    assert values == {1: {"a": 1, "b": None}, 2: {"a": 1 << 40, "b": None}, 3: {"a": 2, "b": "x"}}

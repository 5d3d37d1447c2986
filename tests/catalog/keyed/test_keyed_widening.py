"""A state whose type was widened and which was then restored from an earlier snapshot: every read uses the widest
type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import statestore
from statestore.catalog.reads.table import Table

KINDS: list[tuple[str, str, Any, Any]] = [
    ("int", "bigint", 7, 1 << 40),
    ("float", "double", 0.5, 0.1),
    ("struct<a:int>", "struct<a:bigint,b:string>", {"a": 7}, {"a": 1 << 40, "b": "x"}),
    ("array<int>", "array<bigint>", [7], [1 << 40]),
    ("map<string,float>", "map<string,double>", {"x": 0.5}, {"x": 0.1}),
    ("decimal(5,2)", "decimal(20,4)", 7, 12345678),
]


def made(root: Path, narrow: str, wide: str, small: Any, large: Any) -> tuple[Table, list[int]]:
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


def rows(table: Table, version: int) -> dict[int, Any]:
    return {row["k"]: row["value"] for row in table.scan(version=version).read_all().to_pylist()}


def shown(value: Any) -> Any:
    """The value without the fields that the narrower type lacks; maps as dicts."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        value = dict(value)
    return {name: cell for name, cell in value.items() if cell is not None} if isinstance(value, dict) else value


@pytest.mark.quick("bigint", "struct*", "array*")
@pytest.mark.parametrize(("narrow", "wide", "small", "large"), KINDS, ids=[kind[1] for kind in KINDS])
def test_every_read_across_a_widening(narrow: str, wide: str, small: Any, large: Any, tmp_path: Path) -> None:
    table, times = made(tmp_path, narrow, wide, small, large)
    kinds = {version: table.table.schema(statestore_query(version)).field("value").type for version in (1, 2, 3)}
    assert kinds[1] == kinds[3] != kinds[2]
    states = {version: rows(table, version) for version in (1, 2, 3)}
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

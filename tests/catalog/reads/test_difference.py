"""Differences between two points, against the model and against values of every type."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.in_memory_table import MemoryTable, Row
from support.stores.versioned_checks import as_table, create
from support.stores.versioned_model import Model

import statestore
from statestore.catalog.reads import difference
from statestore.catalog.reads.table import Table
from statestore.catalog.warehouse import open_table
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.values.comparable_values import comparable

Rows = dict[str, Any]
NAN = float("nan")


def told(reader: pa.RecordBatchReader) -> dict[str, list[tuple[Any, ...]]]:
    """Per kind of change the rows (key, old values, new values), sorted."""
    found: dict[str, list[tuple[Any, ...]]] = {"added": [], "changed": [], "removed": []}
    for row in reader.read_all().to_pylist():
        found[row["_change"]].append((row["k"], row["_old"], row["_new"]))
        assert row["_changed_columns"] == (["v"] if row["_change"] == "changed" else None)
    return {kind: sorted(rows, key=repr) for kind, rows in found.items()}


def expected(old: Rows, new: Rows) -> dict[str, list[tuple[Any, ...]]]:
    return {
        "added": sorted((k, None, {"v": v}) for k, v in new.items() if k not in old),
        "changed": sorted((k, {"v": v}, {"v": new[k]}) for k, v in old.items() if k in new and new[k] != v),
        "removed": sorted((k, {"v": v}, None) for k, v in old.items() if k not in new),
    }


@pytest.mark.quick("False")
@pytest.mark.parametrize("compacted", [False, True])
def test_every_pair_of_points(tmp_path: Path, compacted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random histories with late records and deletes; each two of (version, time), also in several parts."""
    chance = random.Random(7)
    model = Model()
    with create(statestore.connect(tmp_path)) as store:
        for _ in range(4):
            rows = [(chance.choice("abcdef"), chance.choice([1, 2, 3, None]), chance.randrange(12)) for _ in range(6)]
            rows = list({(k, t): (k, v, t) for k, v, t in rows}.values())
            store.write(as_table(rows))
            for row in rows:
                model.put(*row)
            model.commit()
        if compacted:
            store.compact(full=True)
            model.same_again()
    points = [(version, time) for version in range(store.version + 1) for time in (None, 3, 8)]
    states = {point: {row[0]: row[1] for row in model.state_at(*point)} for point in points}
    table = Table(open_table(tmp_path / "s"))
    for part_rows in (2, 1 << 20):
        monkeypatch.setattr(difference, "PART_ROWS", part_rows)
        for old in points:
            for new in points[:: (1 if compacted else 3) if part_rows == 2 else 4]:
                found = told(table.diff(old[0], new[0], old[1], new[1]))
                assert found == expected(states[old], states[new]), (old, new)


def test_no_end_is_now(tmp_path: Path) -> None:
    with create(statestore.connect(tmp_path)) as store:
        store.write(as_table([("a", 1, 1)]))
        store.write(as_table([("a", 2, 2), ("b", 1, 2)]))
    table = Table(open_table(tmp_path / "s"))
    assert told(table.diff(start_time=1)) == expected({"a": 1}, {"a": 2, "b": 1})
    assert told(table.diff(start_version=2)) == expected({}, {})


PAIRS: list[tuple[str, Any, Any, bool]] = [
    ("double", NAN, NAN, True),
    ("double", 0.0, -0.0, True),
    ("double", NAN, 1.0, False),
    ("float", 1.5, 1.5, True),
    ("float", None, NAN, False),
    ("string", None, None, True),
    ("string", None, "", False),
    ("boolean", True, False, False),
    ("decimal(10,2)", Decimal("1.50"), Decimal("1.5"), True),
    ("array<double>", [1.0, NAN, None], [1.0, NAN, None], True),
    ("array<double>", [1.0], [1.0, None], False),
    ("array<double>", [], None, False),
    ("struct<x:double,y:array<float>>", {"x": NAN, "y": [-0.0]}, {"x": NAN, "y": [0.0]}, True),
    ("struct<x:double,y:array<float>>", {"x": None, "y": None}, None, False),
    ("map<string,double>", {"a": NAN, "b": 2.0}, {"b": 2.0, "a": NAN}, True),
    ("map<string,double>", {"a": 1.0}, {"a": None}, False),
    ("map<string,array<map<bigint,double>>>", {"a": [{1: NAN, 2: 0.0}]}, {"a": [{2: -0.0, 1: NAN}]}, True),
]


@pytest.mark.parametrize(("kind", "old", "new", "same"), PAIRS)
def test_values_are_compared_as_people_do(tmp_path: Path, kind: str, old: Any, new: Any, same: bool) -> None:
    """Null is a value like others, NaN equals NaN, zero has no sign and maps no order: at any depth."""
    columns = {"v": kind, "other": "bigint"}
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value=columns) as store:
        for version, value in enumerate((old, new)):
            for key in ("a", "b"):  # the second with something in front of it in Arrow's buffers
                store.put(key, {"v": value, "other": 7}, timestamp=version)
            store.commit()
        found = Table(store.table).diff(1, 2).read_all().to_pylist()
    names = sorted((row["k"], row["_changed_columns"]) for row in found)
    assert names == ([] if same else [("a", ["v"]), ("b", ["v"])])


@pytest.mark.parametrize("start", [0, 1, 2])
def test_map_entries_of_slices_and_nulls(start: int) -> None:
    """A slice begins inside Arrow's buffers; null maps stay null."""
    kind = pa.map_(pa.string(), pa.float64())
    column = pa.array([{"x": 1.0}, {"a": 1.0, "b": 2.0}, None, {"b": 2.0, "a": 1.0}, {}], kind)
    whole = comparable(column)
    assert whole[1].equals(whole[3]) and whole.null_count == 1 and not whole[0].equals(whole[1])
    assert comparable(column.slice(start)).equals(whole.slice(start))


def test_every_nan_is_one() -> None:
    """Arithmetic makes NaNs of other bits."""
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000001, -1, 0], np.int64)
    found = comparable(pa.array(bits.view(np.float64)))
    assert found[0] == found[1] == found[2] != found[3]


def test_columns_choose_what_is_compared(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"a": "int", "b": "int"}) as store:
        store.put("x", (1, 1), timestamp=1)
        store.put("y", (1, 1), timestamp=1)
        store.commit()
        store.put("x", (1, 2), timestamp=2)
        store.put("y", (2, 2), timestamp=2)
        store.commit()
        table = Table(store.table)
        assert [row["k"] for row in table.diff(1, 2, columns=["a"]).read_all().to_pylist()] == ["y"]
        whole = {row["k"]: row for row in table.diff(1, 2).read_all().to_pylist()}
        assert whole["y"] == {
            "_change": "changed",
            "k": "y",
            "_old": {"a": 1, "b": 1},
            "_new": {"a": 2, "b": 2},
            "_changed_columns": ["a", "b"],
        }
        assert whole["x"]["_changed_columns"] == ["b"]
        with pytest.raises(NotFoundError, match="COLUMN_NOT_FOUND"):
            table.diff(1, 2, columns=["c"])
        with pytest.raises(InvalidInputError, match="INVALID_OPTION"):
            table.diff(1, 2, columns=["k"])


def test_wrong_points_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    with create(statestore.connect(tmp_path)) as store:
        store.write(as_table([("a", 1, 1)]))
        store.write(as_table([("a", 2, 9)]))
        store.expire(before=5)
        table = Table(store.table)
        with pytest.raises(NotFoundError, match="VERSION_NOT_FOUND"):
            table.diff(1, 99)
        with pytest.raises(NotFoundError, match="TIME_NOT_KEPT"):
            table.diff(start_time=4)
        with pytest.raises(InvalidInputError, match="MISSING_OPTION"):
            table.diff(end_version=1)


def test_windows_of_one_key_are_rows_of_their_own(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    columns: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "bigint"}}
    with catalog.create_store("w", kind="window", retention="1 hour", window_size=10, **columns) as store:
        store.put("a", 1, 0)
        store.put("a", 2, 10)
        store.commit()
        store.put("a", 3, 10)
        store.put("a", 4, 20)
        store.commit()
        found = Table(store.table).diff(1, 2).read_all().to_pylist()
    assert sorted((row["_change"], row["window_start"].microsecond // 1000) for row in found) == [
        ("added", 20),
        ("changed", 10),
    ]


def test_any_table(tmp_path: Path) -> None:
    commits: list[Sequence[Row]] = [
        [("a", 1.0, 0, None), ("b", NAN, 0, None), ("c", 3.0, 0, None)],
        [("a", 2.0, 1, None), ("b", NAN, 1, None), ("d", None, 1, None)],
    ]
    found = Table(MemoryTable("t", commits)).diff(0).read_all().to_pylist()
    assert sorted((row["_change"], row["item"], row["_old"], row["_new"]) for row in found) == [
        ("added", "d", None, {"price": None}),
        ("changed", "a", {"price": 1.0}, {"price": 2.0}),
        ("removed", "c", {"price": 3.0}, None),
    ]


def test_rows_that_their_key_does_not_tell_apart_are_wholes() -> None:
    """Equal rows of a key that repeats (a list, a side of a join) cancel out one by one."""
    commits: list[Sequence[Row]] = [
        [("a", 1.0, 0, None), ("a", 1.0, 0, None), ("a", 2.0, 0, None)],
        [("a", 1.0, 0, None), ("a", 3.0, 0, None), ("a", 3.0, 0, None)],
    ]
    found = Table(MemoryTable("t", commits, row_key=())).diff(0, 1).read_all().to_pylist()
    assert sorted((row["_change"], (row["_new"] or row["_old"])["price"]) for row in found) == [
        ("added", 3.0),
        ("added", 3.0),
        ("removed", 1.0),
        ("removed", 2.0),
    ]


def test_metadata_tables(tmp_path: Path) -> None:
    """The segments that a commit added."""
    with create(statestore.connect(tmp_path)) as store:
        store.write(as_table([("a", 1, 1)]))
        store.write(as_table([("b", 2, 9)]))
    found = Table(open_table(tmp_path / "s$segments")).diff(1, 2).read_all().to_pylist()
    assert [(row["_change"], row["_new"]["first_commit"]) for row in found] == [("added", 2)]

"""Every type that a key or a value may have is read back unchanged, through every way to write and read."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.parameters import mostly_slow
from support.stores.layout_invariants import layout_violations, uniqueness_violations

import statestore
from statestore.catalog.reads.segment_files import _shared

KEYS: dict[str, tuple[dict[str, str], list[Any]]] = {
    "string": ({"k": "string"}, ["", "a", "aa", "é", "\0", "x" * 40]),
    "binary": ({"k": "binary"}, [b"", b"\0", b"\0\0", b"\xff\xfe"]),
    "boolean": ({"k": "boolean"}, [False, True]),
    "tinyint": ({"k": "tinyint"}, [-128, -1, 0, 127]),
    "smallint": ({"k": "smallint"}, [-(2**15), 0, 2**15 - 1]),
    "int": ({"k": "int"}, [-(2**31), -1, 0, 2**31 - 1]),
    "bigint": ({"k": "bigint"}, [-(2**63), -1, 0, 2**53 + 1, 2**63 - 1]),
    "decimal": ({"k": "decimal(10,2)"}, [Decimal("-99999999.99"), Decimal("0.00"), Decimal("1.50")]),
    "wide decimal": ({"k": "decimal(38,10)"}, [Decimal(10) ** 27, Decimal("-0.0000000001"), Decimal(0)]),
    "date": ({"k": "date"}, [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)]),
    "timestamp": (
        {"k": "timestamp"},
        [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2024, 2, 29, tzinfo=UTC)],
    ),
    "timestamp_ntz": ({"k": "timestamp_ntz"}, [datetime(1969, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4)]),
    "interval": ({"k": "interval day to second"}, [timedelta(0), timedelta(days=-1, microseconds=1)]),
    "struct": (
        {"k": "struct<a:int,b:string>"},
        [{"a": 1, "b": "x"}, {"a": 1, "b": None}, {"a": None, "b": "x"}, {"a": None, "b": None}],
    ),
    "nested struct": (
        {"k": "struct<a:struct<b:decimal(5,1),c:date>,d:array<int>>"},
        [
            {"a": {"b": Decimal("1.5"), "c": date(2020, 1, 1)}, "d": [1]},
            {"a": {"b": Decimal("1.5"), "c": None}, "d": []},
            {"a": None, "d": None},
        ],
    ),
    "list": ({"k": "array<string>"}, [[], [""], ["", ""], ["a", None], [None]]),
    "list of structs": ({"k": "array<struct<a:int>>"}, [[], [{"a": 1}], [{"a": None}], [None]]),
    "two columns": (
        {"a": "string", "b": "bigint"},
        [{"a": "x", "b": 1}, {"a": "x", "b": 2}, {"a": "y", "b": 1}],
    ),
    "three columns": (
        {"a": "date", "b": "binary", "c": "struct<d:boolean>"},
        [
            {"a": date(2020, 1, 1), "b": b"", "c": {"d": True}},
            {"a": date(2020, 1, 1), "b": b"", "c": {"d": None}},
            {"a": date(2020, 1, 1), "b": b"\0", "c": {"d": True}},
        ],
    ),
}

VALUES: dict[str, tuple[dict[str, str], list[Any]]] = {
    "string": ({"v": "string"}, ["", "é", "x" * 40]),
    "binary": ({"v": "binary"}, [b"", b"\0\xff"]),
    "boolean": ({"v": "boolean"}, [False, True]),
    "tinyint": ({"v": "tinyint"}, [-128, 127]),
    "smallint": ({"v": "smallint"}, [-(2**15), 2**15 - 1]),
    "int": ({"v": "int"}, [-(2**31), 2**31 - 1]),
    "bigint": ({"v": "bigint"}, [-(2**63), 2**63 - 1]),
    "float": ({"v": "float"}, [0.5, -0.0, float("inf")]),
    "double": ({"v": "double"}, [0.1, -1e308, float("-inf")]),
    "decimal": ({"v": "decimal(38,18)"}, [Decimal("0.000000000000000001"), Decimal("-12345678901234567890")]),
    "date": ({"v": "date"}, [date(1, 1, 1), date(9999, 12, 31)]),
    "timestamp": ({"v": "timestamp"}, [datetime(2024, 2, 29, 1, 2, 3, 456789, UTC)]),
    "timestamp_ntz": ({"v": "timestamp_ntz"}, [datetime(2024, 2, 29, 1, 2, 3, 456789)]),
    "interval": ({"v": "interval day to second"}, [timedelta(days=-3, microseconds=7)]),
    "struct": ({"v": "struct<a:int,b:struct<c:string>>"}, [{"a": 1, "b": {"c": "x"}}, {"a": None, "b": None}]),
    "list": ({"v": "array<array<bigint>>"}, [[], [[]], [[1, None], None]]),
    "map": ({"v": "map<string,decimal(5,2)>"}, [{}, {"a": Decimal("1.50"), "b": None}]),
    "map of structs": (
        {"v": "map<int,struct<a:array<map<string,int>>>>"},
        [{}, {1: {"a": [{"x": 1}, None]}, 2: None}, {1: {"a": None}}],
    ),
    "list of structs": ({"v": "array<struct<a:map<string,double>,b:date>>"}, [[None, {"a": {"x": 0.5}, "b": None}]]),
    "columns": (
        {"a": "string", "b": "decimal(5,2)", "c": "map<string,int>"},
        [
            {"a": None, "b": None, "c": None},
            {"a": "x", "b": Decimal("1.00"), "c": {"y": None}},
            {"a": None, "b": Decimal("-0.01"), "c": {}},
        ],
    ),
}

# Types that are stored in different ways: of fixed width, as bits, as bytes, nested, in several columns.
QUICK_KEYS = ("string", "boolean", "bigint", "wide decimal", "date", "nested struct", "three columns")
QUICK_VALUES = ("binary", "boolean", "int", "double", "decimal", "interval", "list", "map of structs", "columns")

Timelines = dict[Any, tuple[Any, list[tuple[int, Any]]]]


def frozen(value: Any) -> Any:
    """Hashable and sortable; equal only for equal values of the same type."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return ("moment", value.astimezone(UTC).isoformat())
    if isinstance(value, Decimal):
        return ("decimal", str(value.normalize(Context(prec=40))))
    if isinstance(value, dict):
        return ("map", *sorted((frozen(k), frozen(v)) for k, v in value.items()))
    if isinstance(value, list | tuple):
        return ("list", *(frozen(v) for v in value))
    return (type(value).__name__, repr(value))


class Checked:
    """A store and the dictionary of the values that were put into it."""

    def __init__(self, root: Path, key: dict[str, str], value: dict[str, str]) -> None:
        self.catalog = statestore.connect(root)
        self.key, self.value = list(key), list(value)
        self.store = self.catalog.create_store("s", key=key, value=value)
        self.expected: Timelines = {}

    def record(self, key: Any, value: Any, time: int) -> None:
        _, versions = self.expected.setdefault(frozen(key), (key, []))
        versions[:] = sorted([v for v in versions if v[0] != time] + [(time, value)], key=lambda v: v[0])

    def put(self, key: Any, value: Any, time: int) -> None:
        self.store.put(key, value, timestamp=time)
        self.record(key, value, time)

    def put_all(self, rows: list[tuple[Any, Any, int]]) -> None:
        fields = [*self.store.spec.key, *self.store.spec.value]
        columns: list[list[Any]] = [[] for _ in fields]
        for key, value, time in rows:
            cells = [*_cells(key, self.key), *_cells(value, self.value)]
            for column, cell, field in zip(columns, cells, fields, strict=True):
                column.append(_arrow(cell, field.type))
            self.record(key, value, time)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
        table = pa.Table.from_arrays(arrays, names=[f.name for f in fields])
        self.store.put_all(table.append_column("timestamp", pa.array([time for _, _, time in rows])))

    def reopen(self) -> None:
        self.store.close()
        _shared.clear()
        self.store = self.catalog.open_store("s")

    def check_points(self) -> None:
        for key, versions in self.expected.values():
            for number, (time, value) in enumerate(versions):
                end = versions[number + 1][0] if number + 1 < len(versions) else None
                found = self.store.get(key, as_of=time)
                assert found is not None
                assert (found.valid_from, found.valid_to) == (time, end)
                assert frozen(found.value) == frozen(value)
            assert self.store.get(key) == self.store.get(key, as_of=10**6)
            assert self.store.get(key, as_of=versions[0][0] - 1) is None
            assert len(list(self.store.get_versions(key))) == len(versions)

    def check_tables(self) -> None:
        every = [(k, t, v) for k, versions in self.expected.values() for t, v in versions]
        assert self._rows(self.store.history()) == sorted(self._row(*row) for row in every)
        for moment in {t for _, t, _ in every}:
            alive = [[(k, t, v) for t, v in vs if t <= moment][-1:] for k, vs in self.expected.values()]
            rows = sorted(self._row(*row) for some in alive for row in some)
            assert self._rows(self.store.scan(as_of=moment)) == rows
        for key, versions in self.expected.values():
            assert self._rows(self.store.history(key=key)) == sorted(self._row(key, t, v) for t, v in versions)
        after = self.store.changes(filter=[("_change_type", "in", ["insert", "update_postimage"])])
        assert self._rows(after) == sorted(self._row(*row) for row in every)
        assert layout_violations(self.store._files, self.store._log_state) == []
        assert uniqueness_violations(self.store._files, self.store._log_state, self.store.version) == []

    def _rows(self, reader: pa.RecordBatchReader) -> list[Any]:
        rows = reader.read_all().to_pylist(maps_as_pydicts="strict")
        return sorted(
            (frozen([row[name] for name in (*self.key, *self.value)]), _milliseconds(row["valid_from"])) for row in rows
        )

    def _row(self, key: Any, time: int, value: Any) -> Any:
        return frozen([*_cells(key, self.key), *_cells(value, self.value)]), time


def _cells(given: Any, names: list[str]) -> list[Any]:
    return [given] if len(names) == 1 else [given[name] for name in names]


def _arrow(cell: Any, kind: pa.DataType) -> Any:
    """Maps as pairs, as pyarrow takes them inside other values."""
    if cell is None:
        return None
    if pa.types.is_map(kind):
        return [(_arrow(k, kind.key_type), _arrow(v, kind.item_type)) for k, v in cell.items()]
    if pa.types.is_list(kind):
        return [_arrow(item, kind.value_type) for item in cell]
    if pa.types.is_struct(kind):
        return {field.name: _arrow(cell[field.name], field.type) for field in kind}
    return cell


def _milliseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def _round_trip(checked: Checked, keys: list[Any], values: list[Any]) -> None:
    """Put rows one by one and in bulk, late and at equal times, then commit, compact and reopen."""
    rows = [(key, values[(n + m) % len(values)], 10 * m + 1) for n, key in enumerate(keys) for m in range(3)]
    for row in rows[::2]:
        checked.put(*row)
    checked.check_points()
    checked.store.commit()
    checked.check_points()
    checked.put_all(rows[1::2])
    checked.reopen()
    checked.check_points()
    checked.store.commit()
    checked.put_all([(key, values[-1], 5) for key in keys])
    checked.check_points()
    checked.store.commit()
    checked.check_tables()
    checked.store.compact(full=True)
    checked.reopen()
    checked.check_points()
    checked.check_tables()
    _delete(checked, keys[0])
    checked.store.close()


def _delete(checked: Checked, key: Any) -> None:
    before = checked.store.scan().read_all().num_rows
    assert checked.store.delete(key, timestamp=50) is not None
    assert checked.store.get(key) is None
    checked.store.commit()
    assert checked.store.get(key) is None
    assert checked.store.scan().read_all().num_rows == before - 1


@pytest.mark.parametrize("name", mostly_slow(KEYS, QUICK_KEYS))
def test_key_type(tmp_path: Path, name: str) -> None:
    key, keys = KEYS[name]
    _round_trip(Checked(tmp_path, key, {"v": "string"}), keys, ["x", "", "y"])


@pytest.mark.parametrize("name", mostly_slow(VALUES, QUICK_VALUES))
def test_value_type(tmp_path: Path, name: str) -> None:
    """Among the values of a store of several columns are nulls; one column's null deletes, in a table it is a value."""
    value, values = VALUES[name]
    _round_trip(Checked(tmp_path, {"k": "string"}, value), ["a", "b"], values)


@pytest.mark.parametrize("name", mostly_slow(VALUES, ("boolean", "decimal", "map of structs", "columns")))
def test_null_in_a_value_column(tmp_path: Path, name: str) -> None:
    """A null in a table is a value like another; it does not delete."""
    value, values = VALUES[name]
    checked = Checked(tmp_path, {"k": "string"}, value)
    null = None if len(value) == 1 else dict.fromkeys(value)
    checked.put_all([("a", null, 1), ("b", values[0], 1), ("a", values[0], 2), ("b", null, 2)])
    checked.check_points()
    checked.store.commit()
    checked.check_tables()
    checked.store.compact(full=True)
    checked.reopen()
    checked.check_points()
    checked.check_tables()
    checked.store.close()


def test_columns_in_the_order_asked_for(tmp_path: Path) -> None:
    key, keys = KEYS["two columns"]
    checked = Checked(tmp_path, key, {"c": "map<string,int>", "d": "decimal(5,2)"})
    checked.put_all([(keys[0], {"c": {"x": 1}, "d": None}, 1), (keys[1], {"c": None, "d": Decimal("0.5")}, 2)])
    checked.store.commit()
    columns = ["c", "valid_from", "_commit_version", "b"]
    found = checked.store.scan(columns=columns).read_all()
    assert found.column_names == columns
    assert found["b"].to_pylist() == [1, 2] and found["_commit_version"].to_pylist() == [1, 1]
    checked.store.close()

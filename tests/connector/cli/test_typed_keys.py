"""Every key that a command prints can be typed: alone as in its table, and in JSON as `--json` prints it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.command_line import cells, run
from support.key_strategies import key_types

import statestore
from statestore.connector.key_text import cells_of, of_text
from statestore.connector.terminal.output import cell, plain
from statestore.formats.error_codes import ErrorCode
from statestore.formats.values.python_times import python_values

RAW = [b"", b"ada", b"\x00\xff", "ünï".encode(), b"base64:AP8=", b"hex:00", b"AP8=", b"\xc3("]


def column_of(value: Any, kind: pa.DataType) -> pa.Array:
    """An array of one value; structs of the strategies are tuples, and Arrow takes them by name."""
    return pa.array([named(value, kind)], kind)


def named(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: named(part, field.type) for field, part in zip(kind, value, strict=True)}
    if pa.types.is_list(kind):
        return [named(part, kind.value_type) for part in value]
    return value


@st.composite
def keys(draw: st.DrawFn) -> pa.Array:
    kind, values = draw(key_types())
    return column_of(draw(values), kind)


def same(found: Any, column: pa.Array) -> bool:
    return bool(pa.array([found], column.type).equals(column))


@given(keys())
@example(pa.array([b"\x00\xff"]))
@example(pa.array([b"hex:00"]))
def test_a_printed_key_is_typed(column: pa.Array) -> None:
    """Texts in a table have their control characters written out, so the text of `--json` is taken for those."""
    (value,) = python_values(column)
    shown = value if isinstance(value, str) else cell(value)
    assert shown is not None and same(of_text(shown, column.type), column)


@given(keys(), keys())
def test_a_key_of_several_columns_is_typed_as_json_prints_it(first: pa.Array, second: pa.Array) -> None:
    batch = pa.record_batch({"a": first, "b": second})
    values = {name: python_values(batch.column(name))[0] for name in ("a", "b")}
    found = cells_of(batch.schema, json.dumps(plain(values), ensure_ascii=False), ErrorCode.WRONG_KEY)
    assert same(found["a"], first) and same(found["b"], second)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("warehouse")
    catalog = statestore.connect(root)
    with catalog.create_store("raw", key={"k": "binary"}, value={"v": "bigint"}) as store:
        for number, key in enumerate(RAW):
            store.put(key, number, timestamp=number)
        store.commit()
    with catalog.create_store("pairs", key={"a": "binary", "b": "bigint"}, value={"v": "bigint"}) as store:
        for number, key in enumerate(RAW):
            store.put((key, number), number, timestamp=number)
        store.commit()
    return root


def test_binary_keys_of_a_table_are_typed(warehouse: Path) -> None:
    _, *rows = cells(run("scan", warehouse, "raw", "--columns", "k,v"))
    assert {of_text(key, pa.binary()): int(value) for key, value in rows} == {key: n for n, key in enumerate(RAW)}
    for key, value in rows:
        for command in ("get", "history"):
            (row,) = run(command, warehouse, "raw", key, "--json").rows
            assert row["v"] == int(value)
    for row in run("scan", warehouse, "pairs", "--json").rows:
        for spelling in ("{}", "base64:{}"):
            key = json.dumps({"a": spelling.format(row["a"]), "b": row["b"]})
            assert [each["v"] for each in run("get", warehouse, "pairs", key, "--json").rows] == [row["v"]]
    put = run("put", warehouse, "raw", "hex:00 FF", "7", "--timestamp", "9")
    assert put.code == 0 and run("get", warehouse, "raw", "base64:AP8=", "--json").rows[0]["v"] == 7


def test_binary_in_csv_is_base64(warehouse: Path) -> None:
    assert "\nAP8=," in run("scan", warehouse, "raw", "--format", "csv", "--columns", "k,v").out
    assert "added,AP8=," in run("diff", warehouse, "raw", "--from", "0", "--format", "csv").out


@pytest.mark.parametrize("key", ["base64:AP8", "hex:0", "base64:ü"])
def test_a_wrong_code_is_refused(warehouse: Path, key: str) -> None:
    found = run("get", warehouse, "raw", key)
    assert found.code == 2 and "WRONG_KEY" in found.err and "binary" in found.err

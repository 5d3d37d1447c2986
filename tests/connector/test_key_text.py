"""Every key that a command prints can be typed: alone as in its table, and in JSON as `--json` prints it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.command_line import cells, in_encoding, run
from support.key_strategies import key_types

import statestore
from statestore.connector.key_text import _ESCAPE, MANY_ESCAPES, cells_of, of_text, readings_of
from statestore.connector.terminal import cell, printable
from statestore.formats.error_codes import ErrorCode
from statestore.formats.values.canonical import ErrorPath
from statestore.formats.values.comparison import same_key
from statestore.formats.values.json_terms import plain
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
    """NaN is like NaN, and -0.0 is not 0.0."""
    return bool(same_key(column, found, ErrorPath(ErrorCode.WRONG_KEY, "key", column.type))[0].as_py())


CONTROLS = "\x00\x1b\n\t\x7f\x80\x9f\u2028"
STRUCT = pa.struct([("a", pa.string()), ("b", pa.float64()), ("c", pa.binary()), ("d", pa.timestamp("us", "UTC"))])


@settings(max_examples=40)  # beside those that are named
@given(keys())
@example(pa.array([b"\x00\xff"]))
@example(pa.array([b"hex:00"]))
@example(pa.array([{"a": CONTROLS, "b": float("nan"), "c": b"\xff", "d": 0}], STRUCT))
@example(pa.array([{"a": None, "b": -0.0, "c": None, "d": None}], STRUCT))
@example(pa.array([[CONTROLS, None]], pa.list_(pa.string())))
@example(pa.array([1_714_550_000_123_456_789], pa.timestamp("ns", "UTC")))
@example(pa.array([1_714_550_000_123_456_789], pa.timestamp("ns")))
@example(pa.array([34_215_250_001], pa.time64("us")))
@example(pa.array([34_215_250_000_001], pa.time64("ns")))
@example(pa.array([34_215_250], pa.time32("ms")))
@example(pa.array([-0.0]))
@example(pa.array([float("nan")]))
@example(pa.array([datetime(2024, 5, 1, 9, 30, 15, 250001, UTC)], pa.timestamp("us", "UTC")))
def test_a_printed_key_is_typed(column: pa.Array) -> None:
    """A text alone is looked up in each way in which it can be read; see below."""
    (value,) = python_values(column)
    shown = value if isinstance(value, str) else cell(value)
    assert shown is not None and not (set(shown) & set(CONTROLS) and value != shown)
    assert same(of_text(shown, column.type), column)


@given(st.text(st.sampled_from(["\\", "x", "7", "f", "n", "u", "0", *CONTROLS, "ü", "\U0001f600"]), max_size=12))
@example("C:\\new\nline")
@example("\\x7f\x7f")
@example("a\x7fb")
def test_a_printed_text_names_its_key(text: str) -> None:
    """Also as a terminal without Unicode shows it."""
    shown = printable(text)
    for typed in (shown, shown.encode("ascii", "backslashreplace").decode()):
        readings = readings_of(typed, pa.string())
        assert typed in readings
        assert text in readings or len(_ESCAPE.findall(typed)) > MANY_ESCAPES


@settings(max_examples=20)  # each value alone is tried above
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


@pytest.mark.slow
def test_binary_keys_of_a_table_are_typed(warehouse: Path) -> None:
    _, *rows = cells(run("scan", warehouse, "raw", "--columns", "k,v"))
    assert {of_text(key, pa.binary()): int(value) for key, value in rows} == {key: n for n, key in enumerate(RAW)}
    for key, value in rows:
        for command in ("get", "history"):
            (row,) = run(command, warehouse, "raw", key, "--json").rows
            assert row["v"] == int(value)
    for row in run("scan", warehouse, "raw", "--json").rows:
        for spelled in (row["k"], json.dumps({"k": row["k"]})):  # as CSV and as JSON lines show it
            assert row["v"] in [each["v"] for each in run("get", warehouse, "raw", spelled, "--json").rows]
    for row in run("scan", warehouse, "pairs", "--json").rows:
        for spelling in ("{}", "base64:{}"):
            key = json.dumps({"a": spelling.format(row["a"]), "b": row["b"]})
            assert [each["v"] for each in run("get", warehouse, "pairs", key, "--json").rows] == [row["v"]]
    put = run("put", warehouse, "raw", "hex:00 FF", "7", "--timestamp", "9")
    assert put.code == 0 and run("get", warehouse, "raw", "base64:AP8=", "--json").rows[0]["v"] == 7


def test_binary_in_csv_is_base64(warehouse: Path) -> None:
    assert "\nAP8=," in run("scan", warehouse, "raw", "--format", "csv", "--columns", "k,v").out
    assert "added,AP8=," in run("diff", warehouse, "raw", "--from", "0", "--format", "csv").out


@pytest.mark.parametrize(
    ("kind", "values"),
    [("bigint", [-5, -(2**63), 5]), ("decimal(5,2)", [Decimal("-0.50"), Decimal("0.50")])],
)
def test_a_key_below_zero_is_typed_as_it_is_printed(tmp_path: Path, kind: str, values: list[Any]) -> None:
    store = "below"
    with statestore.connect(tmp_path).create_store(store, key={"k": kind}, value={"v": "bigint"}) as made:
        for number, key in enumerate(values):
            made.put(key, number, timestamp=number)
        made.commit()
    printed = cells(run("scan", tmp_path, store, "--columns", "k,v"))[1:]
    assert sorted(int(value) for _, value in printed) == list(range(len(values)))
    for key, value in printed:
        for words in ([key, "--json"], ["--json", key], ["--json", "--", key]):
            found = run("get", tmp_path, store, *words)
            assert [row["v"] for row in found.rows] == [int(value)], (words, found.err)
        assert [row["v"] for row in run("history", "--json", tmp_path, store, key).rows] == [int(value)]
    key = printed[0][0]
    assert run("put", tmp_path, store, key, "-7", "--timestamp", "-9").code == 0
    assert [row["v"] for row in run("get", tmp_path, store, key, "--json", "--as-of", "-8").rows] == [-7]


def test_an_option_that_is_not_there_is_no_key(warehouse: Path) -> None:
    for words in (["-x"], ["--limitt", "5"], ["-x", "-5"]):
        found = run("get", warehouse, "raw", *words)
        assert found.code == 2 and "No such option" in found.err


@pytest.mark.parametrize("key", ["base64:AP8", "hex:0", "base64:ü"])
def test_a_wrong_code_is_refused(warehouse: Path, key: str) -> None:
    found = run("get", warehouse, "raw", key)
    assert found.code == 2 and "WRONG_KEY" in found.err and "binary" in found.err


def test_a_key_with_control_characters_is_copied_from_a_table(tmp_path: Path) -> None:
    """A key that has the escape itself looks the same: both are shown."""
    catalog = statestore.connect(tmp_path)
    kind = {"a": "string", "b": "bigint"}
    with (
        catalog.create_store("texts", key={"k": "string"}, value={"v": "bigint"}) as texts,
        catalog.create_store(
            "structs", key={"k": pa.struct([("a", pa.string()), ("b", pa.int64())])}, value=kind
        ) as pairs,
    ):
        for number, key in enumerate(["a\x7fb", "line\nbreak", "C:\\new", "C:\new", "ü"]):
            texts.put(key, number, timestamp=number)
            pairs.put({"a": key, "b": number}, (key, number), timestamp=number)
        texts.commit()
        pairs.commit()
    found = {"C:\\new": [2, 3]}
    for key, value in cells(run("scan", tmp_path, "texts", "--columns", "k,v"))[1:]:
        for command in ("get", "history"):
            rows = run(command, tmp_path, "texts", key, "--json").rows
            assert sorted(row["v"] for row in rows) == found.get(key, [int(value)])
    for key, count in cells(run("scan", tmp_path, "structs", "--columns", "k,b"))[1:]:
        for command in ("get", "history"):
            (row,) = run(command, tmp_path, "structs", key, "--json").rows
            assert row["b"] == int(count)


@pytest.mark.parametrize("key", ["nobody", "k=ada"])
def test_a_key_that_is_not_there(warehouse: Path, key: str) -> None:
    for command in ("get", "history"):
        found = run(command, warehouse, "raw", key)
        assert (found.code, found.out) == (1, "") and "this key in raw" in found.err


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("s", key={"k": "string"}, value={"v": "array<string>"}) as store:
        store.put("ü", ["…", "\U0001f600"], timestamp=0)
        store.commit()

    def said(*arguments: str) -> str:
        code, out, _ = in_encoding("ascii", *arguments)
        assert code == 0
        return out.decode("ascii")

    assert json.loads(said("scan", str(tmp_path), "s", "--json"))["v"] == ["…", "\U0001f600"]
    table = said("get", str(tmp_path), "s", "\\xfc")
    assert "\\xfc" in table and r'["\u2026", "\ud83d\ude00"]' in table

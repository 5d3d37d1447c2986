"""Stores made, written, loaded, imported, exported and removed on the command line, compared with Python's reads."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.command_line import Answer, cells, in_encoding, run
from support.engines.imported import every_kind, made, moment, one_operator, operator_engine
from support.engines.operator_engine import write_operators

import statestore
from statestore.formats.state_table import Query, StateTable

BEGIN = 1_577_836_800_000


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    root = tmp_path / "warehouse"
    types = "price:decimal(10,2),tags:array<struct<a:int,b:string>>"
    assert run("create", root, "prices", "--key", "item:string", "--value", types).code == 0
    with statestore.connect(root).open_store("prices") as store:
        for number in range(3000):
            store.put(f"i{number}", {"price": number, "tags": []}, BEGIN + number)
        store.commit()
        store.put("i1", {"price": 7, "tags": [{"a": 1, "b": "x,y"}]}, BEGIN + 5000)
        store.put("i2", None, BEGIN + 6000)
        store.commit()
    return root


def rows_of(root: Path, store: str = "prices", **query: Any) -> list[tuple[Any, ...]]:
    found = statestore.inspect(root).table(store).scan(**query).read_all()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=repr)


def test_a_store_from_nothing(tmp_path: Path) -> None:
    """Every kind is made with its options, and a value put is the value got."""
    root = tmp_path / "w"
    made = run("create", root, "a", "--key", "k:bigint", "--value", "v:string", "--history-retention", "30 days")
    assert (made.code, made.out, made.err) == (0, "", f"created a, a versioned store, in {root}\n")
    run("create", root, "b", "--kind", "key_value", "--key", "k:bigint,l:string", "--value", "v:double,w:string")
    run("create", root, "c", "--kind", "session", "--retention", "1 day", "--key", "k:string", "--value", "n:bigint")
    run("create", root, "d", "--kind", "window", "--retention", "1h", "--window-size", "1 min", "--key", "k:string",
        "--value", "n:int", "--serde", "kafka", "--key-groups", "16")  # fmt: skip
    kinds = {row["store"]: (row["kind"], row["retention"]) for row in run("inspect", root, "--json").rows}
    assert kinds == {
        "a": ("versioned", "30 days"),
        "b": ("key_value", None),
        "c": ("session", "1 day"),
        "d": ("window", "1 hour"),
    }
    assert run("put", root, "a", "5", "five", "--timestamp", "2020-01-01T00:00Z").err == "version 1 of a\n"
    assert run("put", root, "b", '{"k": 1, "l": "x"}', '{"v": 2.5, "w": null}').code == 0
    session = '{"k": "u", "session_start": "2020-01-01T00:00:00Z", "session_end": "2020-01-01T00:01:00Z"}'
    assert run("put", root, "c", session, "3").code == 0
    (row,) = run("get", root, "a", "5", "--json").rows
    assert (row["v"], row["valid_from"]) == ("five", "2020-01-01T00:00:00.000Z")
    assert [(row["v"], row["w"]) for row in run("get", root, "b", '{"k": 1, "l": "x"}', "--json").rows] == [(2.5, None)]
    assert [row["n"] for row in run("get", root, "c", session, "--json").rows] == [3]
    late = run("put", root, "a", "5", "old", "--timestamp", "2019-01-01T00:00Z")
    assert late.code == 1 and "older than a keeps" in late.err
    assert [row["v"] for row in run("history", root, "a", "5", "--json").rows] == ["five"]


@pytest.mark.parametrize(
    ("code", "name", "arguments"),
    [
        (2, "INVALID_OPTION", ("create", "{}", "s", "--key", "item", "--value", "v:int")),
        (2, "MISSING_OPTION", ("create", "{}", "s", "--key", "k:int")),
        (2, "--retention", ("create", "{}", "s", "--kind", "session", "--key", "k:int", "--value", "v:int")),
        (2, "STORE_EXISTS", ("create", "{}", "prices", "--key", "k:int", "--value", "v:int")),
        (2, "WRONG_VALUE", ("put", "{}", "prices", "i1", '{"price": "x", "tags": []}')),
        (2, "WRONG_VALUE", ("put", "{}", "prices", "i1", '{"price": 1}')),
        (2, "NAIVE_DATETIME", ("put", "{}", "prices", "i1", '{"price": 1, "tags": []}', "--timestamp", "2020-01-01")),
        (1, "TABLE_NOT_FOUND", ("put", "{}", "price", "i1", "1")),
        (1, "PATH_NOT_FOUND", ("put", "{}/nothing", "prices", "i1", "1")),
        (1, "TABLE_NOT_FOUND", ("drop", "{}", "prices$versions", "--yes")),
        (2, "INVALID_OPTION", ("export", "{}", "prices", "-o", "rows.xls")),
        (2, "CONFLICTING_OPTIONS", ("export", "{}", "prices", "-o", "x.csv", "--history", "--changes")),
        (2, "INVALID_SQL", ("export", "{}", "prices", "-o", "{}/x.parquet", "--where", "weight > 1")),
    ],
)
def test_failures(warehouse: Path, code: int, name: str, arguments: tuple[str, ...]) -> None:
    found = run(*(argument.replace("{}", str(warehouse), 1) for argument in arguments))
    assert (found.code, found.out) == (code, "") and name in found.err
    assert sorted(path.name for path in warehouse.iterdir()) == ["prices"]
    assert len(rows_of(warehouse)) == 2999


@pytest.mark.parametrize(("answer", "stays"), [("n\n", True), ("", True), ("y\n", False)])
def test_drop_asks(warehouse: Path, answer: str, stays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    found = run("drop", warehouse, "prices")
    assert (found.code, found.out) == (int(stays), "") and "Remove prices" in found.err
    assert (warehouse / "prices").exists() is stays
    if stays:
        assert run("drop", warehouse, "prices", "--yes").code == 0 and not (warehouse / "prices").exists()


def exported(warehouse: Path, name: str, *options: str) -> tuple[Answer, Path]:
    file = warehouse.parent / name
    return run("export", warehouse, "prices", "-o", file, *options), file


@pytest.mark.slow
def test_exports_have_the_rows_of_reads(warehouse: Path) -> None:
    """Every format and every kind of read, with columns and filter; nothing but the file is left behind."""
    found, file = exported(warehouse, "now.parquet")
    assert (found.code, found.out, found.err) == (0, "", f"2999 rows in {file}\n")
    assert table_rows(pq.read_table(file)) == rows_of(warehouse)
    _, file = exported(warehouse, "then.arrow", "--as-of", str(BEGIN + 10))
    with pa.memory_map(str(file)) as mapped:
        assert table_rows(pa.ipc.open_file(mapped).read_all()) == rows_of(warehouse, as_of=BEGIN + 10)
    _, file = exported(
        warehouse, "first.tsv", "--version", "1", "--columns", "item,price", "--where", "valid_to IS NULL"
    )
    with file.open() as lines:
        header, *body = csv.reader(lines, delimiter="\t")
    assert header == ["item", "price"] and len(body) == 3000 and ["i2", "2.00"] in body
    table: StateTable = statestore.inspect(warehouse).open("prices")
    for option, mode in (("--history", "history"), ("--changes", "changes")):
        _, file = exported(warehouse, "all.parquet", option)
        query = Query(mode=mode)  # type: ignore[arg-type]
        whole = pa.Table.from_batches(
            [b for s in table.splits(query) for b in table.read(s, query)], table.schema(query)
        )
        assert table_rows(pq.read_table(file)) == table_rows(whole)
    _, file = exported(warehouse, "some.jsonl", "--where", "price = 7 AND len(tags) = 1")
    assert [json.loads(line) for line in file.read_text().splitlines()] == run(
        "scan", warehouse, "prices", "--where", "price = 7 AND len(tags) = 1", "--json"
    ).rows
    _, file = exported(warehouse, "nested.csv", "--where", "price = 7", "--columns", "item,tags")
    printed = run("scan", warehouse, "prices", "--where", "price = 7", "--columns", "item,tags", "--format", "csv")
    with file.open() as lines:
        assert sorted(csv.reader(lines)) == sorted(csv.reader(printed.out.splitlines()))
    names = {"now.parquet", "then.arrow", "first.tsv", "all.parquet", "some.jsonl", "nested.csv", "warehouse"}
    assert {path.name for path in warehouse.parent.iterdir()} == names


def test_rows_go_to_stdout(tmp_path: Path) -> None:
    """As they arrive, so in formats that no position of a file is needed for."""
    columns: dict[str, Any] = {"key": {"k": "string"}, "value": {"v": "struct<a:string,b:array<int>>", "n": "bigint"}}
    with statestore.connect(tmp_path).create_store("s", **columns) as store:
        store.put("ü", ({"a": 'x"\n', "b": [1]}, None), BEGIN)
        store.commit()
    for form in ("csv", "tsv", "json"):
        answer = run("export", tmp_path, "s", "-o", "-", "--format", form, "--columns", "k,v,n")
        assert answer.code == 0 and answer.err == "1 row\n"
        if form == "json":
            assert answer.rows == [{"k": "ü", "v": {"a": 'x"\n', "b": [1]}, "n": None}]
        else:
            _, (key, value, number) = csv.reader(io.StringIO(answer.out), delimiter="," if form == "csv" else "\t")
            assert (key, json.loads(value), number) == ("ü", {"a": 'x"\n', "b": [1]}, "")
    code, out, _ = in_encoding("utf-8", "export", tmp_path, "s", "-o", "-", "--format", "arrow")
    assert code == 0 and pa.ipc.open_stream(out).read_all()["k"].to_pylist() == ["ü"]
    for form, code in (("parquet", 1), ("arrow", 2)):  # the text in place of stdout takes no arrow
        assert run("export", tmp_path, "s", "-o", "-", "--format", form).code == code
    assert run("export", tmp_path, "s", "-o", "-").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["s"] and not Path("-").exists()


def table_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


@pytest.mark.quick("rows.tsv", "rows.parquet")
@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow", "rows.csv", "rows.tsv", "rows.jsonl"])
def test_an_exported_change_feed_can_be_loaded(tmp_path: Path, name: str) -> None:
    """The copy has the timelines of the store."""
    root, columns = tmp_path / "w", ("--key", "k:string", "--value", "v:double,n:bigint")
    run("create", root, "a", *columns)
    run("create", root, "b", *columns)
    with statestore.connect(root).open_store("a") as store:
        store.put('x,\n"y"', (1.5, None), BEGIN)
        store.put("", (2.5, 1), BEGIN)
        store.put("z", (3.5, 2), BEGIN + 10)
        store.commit()
        store.put("z", (4.5, 3), BEGIN + 20)
        store.put("", None, BEGIN + 30)
        store.commit()
    chosen = "k,v,n,valid_from,_change_type"
    assert run("export", root, "a", "-o", tmp_path / name, "--changes", "--columns", chosen).code == 0
    refused = run("load", root, "b", tmp_path / name)
    assert refused.code == 2 and "--columns" in refused.err
    loaded = run("load", root, "b", tmp_path / name, "--timestamp", "valid_from")
    assert (loaded.code, loaded.err) == (0, "version 1 of b\n")
    assert rows_of(root, "b") == rows_of(root, "a")
    assert rows_of(root, "b", as_of=BEGIN + 15) == rows_of(root, "a", as_of=BEGIN + 15)


def test_a_file_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    run("create", tmp_path, "a", "--key", "k:bigint", "--value", "v:double")
    for name, text, said in (
        ("a.csv", "k,v,timestamp\n1,x,5\n", "WRONG_INPUT"),
        ("b.csv", "k,v,more,timestamp\n1,2,3,5\n", "column more"),
        ("c.csv", "k,timestamp\n1,5\n", "WRONG_SCHEMA"),
        ("e.jsonl", '{"k": 1, "v": 2.5, "timestamp": "2020-01-01T00:00:00"}\n', "zone"),
        ("d.parquet", "no", "WRONG_INPUT"),
    ):
        (tmp_path / name).write_text(text)
        found = run("load", tmp_path, "a", tmp_path / name)
        assert found.code == 2 and said in found.err and found.err.count("\n") == 1
    assert run("load", tmp_path, "a", tmp_path / "no.csv").code == 1
    assert rows_of(tmp_path, "a") == []


# Imports


@pytest.fixture(scope="module")
def engine() -> Iterator[None]:
    with operator_engine():
        yield


@pytest.mark.usefixtures("engine")
def test_the_states_are_listed(tmp_path: Path) -> None:
    source, store = one_operator(tmp_path, *every_kind()), tmp_path / "w" / "users"
    answer = run("import", source, store)
    assert answer.code == 0, answer.err
    head, *listed = cells(answer)
    assert head == ["state", "from", "is", "rows"]
    assert ["count", "count", "value of bigint", "40"] in listed
    windows = "timer of boolean by window_start timestamp, window_end timestamp"
    assert ["_timer_state_event_ends", "_timer_state/event_ends", windows, "40"] in listed
    assert f"operator counter is version 1 of {store}, keyed by key, in 16 key groups" in answer.err
    assert statestore.connect(store.parent).open_store("users").states() == sorted(row[0] for row in listed)


@pytest.mark.usefixtures("engine")
def test_flags(tmp_path: Path) -> None:
    key = pa.struct([("a", pa.string()), ("b", pa.int32())])
    limited = made(
        "n",
        "value",
        {"key": [{"a": "x", "b": 1}], "value": [5], "last_access": [moment(0)]},
        key,
        value=pa.int64(),
        last_access=pa.timestamp("us", tz="UTC"),
    )
    source = write_operators(tmp_path / "s", {"first": [limited], "second": every_kind()})
    chosen = (
        "--operator",
        "FIRST",
        "--states",
        "n",
        "--last-access",
        "drop",
        "--tasks",
        "1",
        "--version",
        "7",
        "--json",
    )
    answer = run("import", source, tmp_path / "w" / "named", *chosen, "--key", "who, day")
    assert (answer.code, answer.rows) == (0, [{"state": "n", "from": "n", "is": "value of bigint", "rows": 1}])
    whole = run("import", source, tmp_path / "w" / "whole", *chosen, "--whole-key")
    assert whole.code == 0
    tables = statestore.inspect(tmp_path / "w")
    assert tables.table("named.n").scan().read_all().to_pylist() == [{"who": "x", "day": 1, "value": 5}]
    assert tables.table("whole.n").scan().read_all().to_pylist() == [{"key": {"a": "x", "b": 1}, "value": 5}]


@pytest.mark.usefixtures("engine")
def test_refusals_are_one_line_and_leave_nothing(tmp_path: Path) -> None:
    source = write_operators(tmp_path / "s", {"first": every_kind(), "second": []})
    store = tmp_path / "w" / "users"
    for flags, code, told in (
        (("--operator", "third"), 1, "STATE_NOT_FOUND"),
        (("--states", " , "), 2, "--states is ' , '"),
        (("--key", "a,b"), 2, "WRONG_KEY"),
        (("--last-access", "forget"), 2, "expected keep or drop"),
        (("--tasks", "17"), 2, "17 tasks; expected 1 to 16"),
        (("--version", "3"), 1, "VERSION_NOT_FOUND"),
    ):
        answer = run("import", source, store, *flags)
        assert (answer.code, answer.out) == (code, ""), answer
        assert told in answer.err and len(answer.err.splitlines()) == 1
    assert not store.parent.exists() or not list(store.parent.iterdir())
    assert run("import", source, store).code == 0
    again = run("import", source, store)
    assert again.code == 2 and "STORE_EXISTS" in again.err

"""Commands that write, on warehouses in an object store; the truth is what Python reads there."""

from __future__ import annotations

import io
import json
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.command_line import Answer, run
from support.object_stores.doubles import memory_location

import statestore
from statestore.connector.cli import watch_commands

KINDS = {
    "versioned": (),
    "key_value": (),
    "window": ("--retention", "1h", "--window-size", "1min"),
    "join_window": ("--retention", "1h"),
    "session": ("--retention", "1h"),
    "keyed": (),
}


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("STATESTORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STATESTORE_LOCAL", str(tmp_path / "own"))
    return memory_location().uri


def created(warehouse: str, name: str = "prices", *options: str) -> Answer:
    return run("create", warehouse, name, "--key", "item:string", "--value", "price:double", *options)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_created_and_dropped(warehouse: str, kind: str) -> None:
    value = () if kind == "keyed" else ("--value", "v:bigint")
    made = run("create", warehouse, "s", "--kind", kind, "--key", "k:string", *value, *KINDS[kind])
    assert (made.code, made.out, made.err) == (0, "", f"created s, a {kind} store, in {warehouse}\n")
    again = run("create", warehouse, "s", "--kind", kind, "--key", "k:string", *value, *KINDS[kind])
    assert again.code == 2 and "STORE_EXISTS" in again.err
    assert statestore.connect(warehouse).stores() == ["s"]
    assert run("drop", warehouse, "s", "--yes").code == 0
    assert statestore.connect(warehouse).stores() == []
    assert run("create", warehouse, "s", "--kind", kind, "--key", "k:string", *value, *KINDS[kind]).code == 0


def test_put_get_and_drop(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert created(warehouse).code == 0
    put = run("put", warehouse, "prices", "curry", "8.5", "--timestamp", "2024-05-01T09:30Z")
    assert (put.code, put.out, put.err) == (0, "", "version 1 of prices\n")
    with statestore.connect(warehouse).open_store("prices", read_only=True) as store:
        assert store.get("curry").value == 8.5
    (row,) = run("get", warehouse, "prices", "curry", "--json").rows
    assert (row["price"], row["valid_from"]) == (8.5, "2024-05-01T09:30:00.000Z")
    assert run("put", warehouse, "nothing", "curry", "8.5").code == 1
    assert run("put", warehouse, "prices", "curry", "much").code == 2
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert run("drop", warehouse, "prices").code == 1
    assert statestore.connect(warehouse).stores() == ["prices"]
    assert run("drop", warehouse, "prices", "--yes").code == 0
    gone = run("put", warehouse, "prices", "curry", "8.5")
    assert gone.code == 1 and gone.err.count("\n") == 1


def test_a_live_store_takes_puts_of_one_command_after_the_other(warehouse: str) -> None:
    """Each command lets the store go, so that the next one, or another machine, can write."""
    assert created(warehouse, "live", "--kind", "key_value").code == 0
    for number in range(3):
        assert run("put", warehouse, "live", f"i{number}", str(number)).err == f"version {number + 1} of live\n"
    assert {row["item"]: row["price"] for row in run("scan", warehouse, "live", "--json").rows} == {
        "i0": 0.0,
        "i1": 1.0,
        "i2": 2.0,
    }


@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.jsonl"])
def test_load_and_export(warehouse: str, tmp_path: Path, name: str) -> None:
    created(warehouse, "a")
    created(warehouse, "b")
    file = tmp_path / "in.jsonl"
    rows = [{"item": f"i{n}", "price": n / 2, "timestamp": f"2024-05-01T09:30:{n:02}Z"} for n in range(50)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("load", warehouse, "a", file).err == "version 1 of a\n"
    found = run("export", warehouse, "a", "-o", tmp_path / name, "--where", "price >= 5")
    assert (found.code, found.err) == (0, f"40 rows in {tmp_path / name}\n")
    loaded = run(
        "load", warehouse, "b", tmp_path / name, "--columns", "item,price,valid_from", "--timestamp", "valid_from"
    )
    assert (loaded.code, loaded.err) == (0, "version 1 of b\n")
    read = statestore.inspect(warehouse).table("b").scan(columns=["item", "price"]).read_all().to_pylist()
    assert sorted((row["item"], row["price"]) for row in read) == sorted((f"i{n}", n / 2) for n in range(10, 50))
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"item": "x", "price": "much", "timestamp": 1}\n')
    assert run("load", warehouse, "a", broken).code == 2
    assert statestore.connect(warehouse).open_store("a", read_only=True).version == 1


def test_watch_prints_what_another_writer_commits(warehouse: str, monkeypatch: pytest.MonkeyPatch) -> None:
    created(warehouse)

    def commit(_seconds: float) -> None:
        writer = threading.Thread(target=write)
        writer.start()
        writer.join()

    def write() -> None:
        with statestore.connect(warehouse).open_store("prices") as store:
            store.put("curry", 8.5, "2024-05-01T09:30Z")
            store.commit()

    monkeypatch.setattr(watch_commands, "time", SimpleNamespace(sleep=commit))
    found = run("watch", warehouse, "prices", "--count", "1", "--json")
    assert found.code == 0
    assert [(row["_change_type"], row["item"], row["price"]) for row in found.rows] == [("insert", "curry", 8.5)]


def test_upkeep_by_name(warehouse: str) -> None:
    created(warehouse, "prices", "--history-retention", "1 day")
    for day in (1, 2, 5):
        run("put", warehouse, "prices", "curry", str(day), "--timestamp", f"2024-05-0{day}T00:00Z")
    (compacted,) = run("compact", warehouse, "prices", "--full", "--json").rows
    (expired,) = run("expire", warehouse, "prices", "--json").rows
    assert expired["kept_from"] == "2024-05-04T00:00:00.000Z" and compacted["store"] == "prices"
    assert run("vacuum", warehouse, "prices", "--json").code == 0
    (verified,) = run("verify", warehouse, "--json").rows
    assert verified["ok"] and [row["price"] for row in run("scan", warehouse, "prices", "--json").rows] == [5.0]

"""Upkeep prints CSV, TSV and JSON, and asks before all history of a store goes."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

import pytest
from support.command_line import run

import statestore

COMMANDS = ("verify", "compact", "expire", "vacuum")


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    catalog = statestore.connect(tmp_path / "w")
    for name in ("a", "b"):
        with catalog.create_store(name, key={"k": "string"}, value={"v": "double"}) as store:
            for number in range(3):
                store.put("x", number, timestamp=f"2024-05-0{number + 1}T00:00Z")
                store.commit()
    return tmp_path / "w"


@pytest.mark.parametrize("command", COMMANDS)
def test_csv_has_the_values_of_json(warehouse: Path, command: str) -> None:
    """Seconds differ between two runs, and are left out."""
    first: list[str | Path] = [command, warehouse, "--dry-run"] if command == "vacuum" else [command, warehouse]
    as_json, as_csv, as_tsv = (run(*first, "--format", form) for form in ("json", "csv", "tsv"))
    assert (as_json.code, as_csv.code, as_tsv.code) == (0, 0, 0)
    rows = list(csv.DictReader(io.StringIO(as_csv.out)))
    assert rows == list(csv.DictReader(io.StringIO(as_tsv.out), delimiter="\t")) or command == "compact"
    assert [row["store"] for row in rows] == [row["store"] for row in as_json.rows]
    for row, item in zip(rows, as_json.rows, strict=True):
        numbers = {name: text for name, text in row.items() if isinstance(item[name], int) and name != "ok"}
        assert numbers and {n: t for n, t in numbers.items() if t not in ("true", "false")} == {
            n: str(item[n]) for n in numbers if not isinstance(item[n], bool)
        }
    assert run(*first, "--format", "xml").code == 2


def test_vacuum_without_files_prints_the_header(warehouse: Path) -> None:
    assert run("vacuum", warehouse, "--format", "csv").code == 0
    assert run("vacuum", warehouse, "--format", "csv").out == "store,file,bytes,removed\n"


def test_problems_are_said_beside_csv(warehouse: Path) -> None:
    (log,) = (warehouse / "a" / "log").glob("*2.json")
    log.write_bytes(b"{}")
    found = run("verify", warehouse, "--format", "csv")
    rows = {row["store"]: row["result"] for row in csv.DictReader(io.StringIO(found.out))}
    assert found.code == 1 and rows["b"] == "ok" and "problem" in rows["a"] and "a: " in found.err


@pytest.mark.parametrize("answer", ["", "n\n", "y\n"])
def test_all_history_goes_after_a_question(warehouse: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    found = run("expire", warehouse, "a", "--before", "2024-06-01T00:00Z", "--json")
    assert "Remove all history of a, whose newest value is from 2024-05-03T00:00:00.000Z" in found.err
    expired = statestore.inspect(warehouse)["a"].versions()["operation"].to_pylist().count("expire")
    assert (found.code, expired) == ((0, 1) if answer == "y\n" else (1, 0))
    if expired:
        assert run("get", warehouse, "a", "x", "--json").rows[0]["v"] == 2.0


def test_no_question_with_yes_or_where_values_stay(warehouse: Path) -> None:
    assert run("expire", warehouse, "a", "--before", "2024-05-02T00:00Z").err == ""
    found = run("expire", warehouse, "--before", "2024-06-01T00:00Z", "--yes", "--json")
    assert (found.code, found.err) == (0, "") and [row["expired"] for row in found.rows] == [True, True]


def test_the_future_does_not_expire(warehouse: Path) -> None:
    """A horizon in the future would refuse reads and writes of today."""
    found = run("expire", warehouse, "--before", "2999-01-01T00:00Z", "--yes")
    assert (found.code, found.out) == (2, "") and "--before is 2999-01-01T00:00:00.000Z, in the future" in found.err
    with statestore.connect(warehouse).open_store("a") as store:
        with pytest.raises(statestore.InvalidInputError, match="in the future of 'a'"):
            store.expire(before="2999-01-01T00:00Z")
        store.put("x", 9.0, timestamp="2998-01-01T00:00Z")  # then that is the newest moment
        store.commit()
        store.expire(before="2997-12-31T00:00Z")
    assert run("get", warehouse, "a", "x", "--json").rows[0]["v"] == 9.0

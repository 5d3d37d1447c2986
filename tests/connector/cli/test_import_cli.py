"""`statestore import` makes a keyed store of an operator's states, and reports them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.command_line import cells, run
from support.engines.imported import every_kind, made, moment, one_operator, operator_engine
from support.engines.operator_engine import write_operators

import statestore


@pytest.fixture(scope="module", autouse=True)
def engine() -> Iterator[None]:
    with operator_engine():
        yield


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

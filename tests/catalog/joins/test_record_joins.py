"""Kafka's cases of stream-table joins, table-table joins and table aggregations, through the public operators."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.stores.kafka_vectors import Case, cases

import statestore

CASES = {case["id"]: case for name in ("joins", "engine-joins") for case in cases(name)}
WORDS: Callable[[Any, Any], str] = lambda left, right: "-".join("null" if v is None else v for v in (left, right))  # noqa: E731


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Any]:
    catalog = statestore.connect(tmp_path)

    def make(case: Case, name: str, versioned: bool, value: str = "string") -> Any:
        if versioned:
            retention = case["history_retention_ms"]
            return catalog.create_store(
                name, kind="versioned", key={"k": "string"}, value={"v": value}, history_retention=retention
            )
        columns = {"v": value, "event_time": "bigint"}
        return catalog.create_store(name, kind="key_value", key={"k": "string"}, value=columns)

    return make


def of_kind(kind: str) -> list[str]:
    return [name for name, case in CASES.items() if case["kind"] == kind]


def plain(emitted: list[statestore.joins.Emitted]) -> list[dict[str, Any]]:
    return [{"key": e.key, "value": e.value, "ts": e.timestamp} for e in emitted]


def table_of(outputs: list[list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The result table that a run of outputs makes."""
    found = {row["key"]: {"value": row["value"], "ts": row["ts"]} for rows in outputs for row in rows}
    return {key: row for key, row in found.items() if row["value"] is not None}


def test_there_are_cases_of_each_kind() -> None:
    assert {case["kind"] for case in CASES.values()} == {"stream-table", "table-table", "table-count-by-value"}
    assert len(CASES) == 32


@pytest.mark.parametrize("name", of_kind("stream-table"))
def test_stream_table(make: Callable[..., Any], name: str) -> None:
    case = CASES[name]
    join = statestore.joins.StreamTableJoin(
        make(case, "table", case["table_versioned"]), WORDS, case["join"], grace=case["grace_ms"]
    )
    outputs: list[list[dict[str, Any]]] = []
    for record in case["inputs"]:
        given = record["key"], record["value"], record["ts"]
        if record["side"] == "left":
            outputs.append(plain(join.stream_record(*given)))
        else:
            join.table_record(*given)
            outputs.append([])
    assert outputs == case["expect"]
    assert join.waiting == case["expect_buffered"]


@pytest.mark.parametrize("name", of_kind("table-table"))
def test_table_table(make: Callable[..., Any], name: str) -> None:
    case = CASES[name]
    sides = [make(case, side, case[f"{side}_versioned"]) for side in ("left", "right")]
    join = statestore.joins.TableTableJoin(sides[0], sides[1], WORDS, case["join"])
    records = {"left": join.left_record, "right": join.right_record}
    outputs = [plain(records[r["side"]](r["key"], r["value"], r["ts"])) for r in case["inputs"]]
    assert outputs == case["expect"]
    assert table_of(outputs) == case["expect_table"]


@pytest.mark.parametrize("name", of_kind("table-count-by-value"))
def test_table_count(make: Callable[..., Any], name: str) -> None:
    case = CASES[name]
    counts = make(case, "counts", False, "bigint")
    votes = statestore.joins.count_by(lambda _, value: value, make(case, "table", case["table_versioned"]), counts)
    outputs = [plain(votes.record(r["key"], r["value"], r["ts"])) for r in case["inputs"]]
    assert outputs == case["expect"]
    assert table_of(outputs) == case["expect_table"]
    kept = {row.key: {"value": row.value["v"], "ts": row.value["event_time"]} for row in counts.all()}
    assert kept == case["expect_table"]


def test_grace_needs_the_history_to_wait_for(make: Callable[..., Any]) -> None:
    case = {"history_retention_ms": 100}
    for versioned, grace in ((True, 101), (False, 0)):
        with pytest.raises(statestore.InvalidInputError, match="GRACE_TOO_LONG"):
            statestore.joins.StreamTableJoin(make(case, f"t{grace}", versioned), WORDS, grace=grace)
    statestore.joins.StreamTableJoin(make(case, "enough", True), WORDS, grace=100)


def test_nulls_are_skipped_and_do_not_move_time(make: Callable[..., Any]) -> None:
    table = make({"history_retention_ms": 1000}, "table", True)
    join = statestore.joins.StreamTableJoin(table, WORDS, "left", grace=2)
    assert join.stream_record("k", "a", 1) == []
    assert join.stream_record("k", None, 50) == join.stream_record(None, "b", 50) == []
    assert join.waiting == 1
    assert plain(join.stream_record("k", "c", 3)) == [{"key": "k", "value": "a-null", "ts": 1}]


def test_what_is_no_table(tmp_path: Path) -> None:
    catalog = statestore.connect(tmp_path)
    bare = catalog.create_store("bare", kind="key_value", key={"k": "string"}, value={"v": "string"})
    with pytest.raises(statestore.InvalidInputError, match=r"WRONG_SCHEMA.*event_time"):
        statestore.joins.StreamTableJoin(bare, WORDS)
    sessions = catalog.create_store("s", kind="session", key={"k": "string"}, value={"v": "string"}, retention="1 hour")
    with pytest.raises(statestore.UnsupportedError, match="JOIN_KIND"):
        statestore.joins.TableTableJoin(sessions, sessions, WORDS)

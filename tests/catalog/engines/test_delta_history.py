"""Rows that are older than the kept versions: their start is null in every door, and never the oldest version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.checkpoints.checkpoint_tables import micros, tables
from support.checkpoints.purged_checkpoints import purged
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.command_line import run
from support.keyed.keyed_kinds import keyed

import statestore
from statestore.catalog.warehouse import open_warehouse
from statestore.connector.report.figures import figures_of

NAME = "spark4.3.0-agg__hdfs"


def truth(whole: list[dict[str, Any]], oldest: int) -> set[tuple[Any, ...]]:
    """(key, value, from, to, version) of the rows that existed in batch ``oldest`` or later."""
    kept = [row for row in whole if row["ended"] is None or row["ended"] > oldest]
    return {
        (
            str(row["key"]),
            str(row["value"]),
            row["valid_from"] if row["_commit_version"] > oldest else None,
            row["valid_to"],
            row["_commit_version"] if row["_commit_version"] > oldest else None,
        )
        for row in kept
    }


def with_ends(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    began = {row["valid_from"]: row["_commit_version"] for row in rows}
    return [{**row, "ended": None if row["valid_to"] is None else began[row["valid_to"]]} for row in rows]


def test_every_door_of_a_checkpoint(tmp_path: Path) -> None:
    whole = with_ends(tables(checkpoint_path(NAME))["state"].history().read_all().to_pylist())
    assert 0 in {row["_commit_version"] for row in whole}, "what batch 0 has was written by it"
    assert all(row["valid_from"] is not None and row["_commit_version"] is not None for row in whole)
    path = purged(NAME, tmp_path, 4)
    table = tables(path)["state"]
    oldest = table.table.kept_versions()[0]
    expected = truth(whole, oldest)
    assert any(row[-1] is None for row in expected) and any(row[-1] is not None for row in expected)
    columns = ("key", "value", "valid_from", "valid_to", "_commit_version")
    for found in (
        table.history().read_all(),
        statestore.sql(str(path), "SELECT * FROM history('state')"),
        table.history(columns=columns).read_all(),
    ):
        rows = [tuple(row[name] for name in columns) for row in found.to_pylist()]
        assert {(str(key), str(value), *rest) for key, value, *rest in rows} == expected
    unknown = {row[0] for row in expected if row[-1] is None}
    first = table.changes().read_all().to_pylist()
    assert {row["_commit_version"] for row in first} == set(range(oldest + 1, table.table.kept_versions()[1] + 1))
    key = next(row["key"] for row in table.history().read_all().to_pylist() if str(row["key"]) in unknown)
    shown = run("history", path, "state", key["k"], "--json").rows
    assert (shown[0]["valid_from"], shown[0]["_commit_version"]) == (None, None)
    assert all(row["valid_from"] is not None for row in shown[1:])


@pytest.mark.slow
def test_a_report_has_them_without_a_start(tmp_path: Path) -> None:
    path = purged(NAME, tmp_path, 4)
    rows = tables(path)["state"].history().read_all().to_pylist()
    figures = figures_of(open_warehouse(path).open("state").pin())
    assert sum(cell["rows"] for cell in figures.heat) == sum(row["valid_from"] is not None for row in rows)
    assert sum(row["versions"] for row in figures.busiest) > 0
    starts = [row["from"] for rows in figures.lifelines.values() for row in rows]
    assert None in starts and min(start for start in starts if start is not None) >= figures.first > 1_500_000_000_000
    assert statestore.write_report(path, tmp_path / "report.html").stat().st_size > 0


@pytest.mark.parametrize("discarded", [1, 2])
def test_every_door_of_a_keyed_store(discarded: int, tmp_path: Path) -> None:
    """Every start is known in a store whose first snapshot is kept."""
    found, times = keyed(tmp_path)
    whole = found.table("s.value").history().read_all().to_pylist()
    assert [row["valid_from"] is None for row in whole] == [False] * len(whole)
    with statestore.connect(tmp_path).open_store("s") as store:
        store.discard(discarded)
        answers = [store.history("value").read_all() if hasattr(store, "history") else None]
    table = statestore.inspect(str(tmp_path)).table("s.value")
    answers += [table.history().read_all(), statestore.sql(str(tmp_path), "SELECT * FROM history('s.value')")]
    oldest = 2 if discarded == 1 else 1
    assert table.table.known_from(3) == (micros(times[1]) if discarded == 1 else None)
    then = {row["k"] for row in table.scan(version=oldest).read_all().to_pylist()}
    for answer in answers:
        if answer is None:
            continue
        rows = answer.to_pylist()
        first = [row for row in rows if row["valid_from"] in (None, times[oldest - 1])]
        assert {row["k"] for row in first} == then
        unknown = [row["valid_from"] is None and row["_commit_version"] is None for row in first]
        assert unknown == [discarded == 1] * len(first)
    shown = run("history", tmp_path, "s.value", "a", "--json").rows
    assert (shown[0]["valid_from"] is None) == (discarded == 1)


def test_a_store_of_ours_knows_the_start_of_what_it_keeps(tmp_path: Path) -> None:
    with statestore.connect(tmp_path).create_store("p", key={"k": "string"}, value={"v": "int"}) as store:
        for time in (1_000, 2_000, 3_000):
            store.put("a", time, timestamp=time)
            store.commit()
        store.put("b", 1, timestamp=500)
        store.commit()
        store.expire(2_500)
        rows = {(row["k"], row["v"]): row for row in store.history().read_all().to_pylist()}
    assert {key: row["valid_from"].timestamp() * 1000 for key, row in rows.items()} == {
        ("a", 2_000): 2_000,
        ("a", 3_000): 3_000,
        ("b", 1): 500,
    }
    assert [rows[key]["_commit_version"] for key in (("a", 2_000), ("a", 3_000), ("b", 1))] == [2, 3, 4]

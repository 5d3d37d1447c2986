"""A captured store through every door: hidden columns stay hidden, and a gap is told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.command_line import run
from support.stores.captured import BAG, BAG_COLUMNS, FLOATS, FLOATS_COLUMNS, capture, new_store

import statestore
from statestore.catalog.log.source_versions import SourceVersion
from statestore.connector.explorer.app import _versions_of
from statestore.formats.notices import notices_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECOND = 1_000_000
GAP = "batches 2 to 3 were gone before they could be captured"
IN_GAP = "1970-01-01T00:00:20Z"
BEFORE = Counter({("a", 1): 2, ("b", 2): 1})
NOW = Counter({("a", 1): 1, ("b", 3): 1})


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Batches 1 and 4 of a list, at 10 and 40 seconds; 2 and 3 are missing. Beside it a state with a null as a key."""
    path = tmp_path_factory.mktemp("captured")
    first = {("a", 0): (1,), ("a", 1): (1,), ("b", 0): (2,)}
    with new_store(path, "events", BAG, BAG_COLUMNS) as store:
        capture(store, SourceVersion(1, 10 * SECOND, 9 * SECOND, "at 1"), {}, first, None)
        capture(store, SourceVersion(4, 40 * SECOND, missing=(2, 3)), first, {("a", 0): (1,), ("b", 0): (3,)}, 1)
    with new_store(path, "rates", FLOATS, FLOATS_COLUMNS) as store:
        capture(store, SourceVersion(1, 10 * SECOND), {}, {(b"1",): (None, 1), (b"2",): (2.5, 2)}, None)
    return path


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    assert all("_copy" not in row for row in rows)
    return Counter((row["k"], row["n"]) for row in rows)


def test_sql(warehouse: Path) -> None:
    told: list[str] = []
    with notices_to(told.append, all_threads=True):  # DuckDB plans in a thread of its own
        assert counted(statestore.sql(str(warehouse), "SELECT * FROM events").to_pylist()) == NOW
        assert not told
        text = f"SELECT * FROM events TIMESTAMP AS OF '{IN_GAP}'"
        assert counted(statestore.sql(str(warehouse), text).to_pylist()) == BEFORE
    assert len(told) == 1 and GAP in told[0]
    text = 'SELECT missing_from, missing_to, "offsets" FROM "events$versions" ORDER BY version'
    found = [tuple(row.values()) for row in statestore.sql(str(warehouse), text).to_pylist()]
    assert found == [(None, None, None), (None, None, "at 1"), (2, 3, None)]
    attached = statestore.attach(str(warehouse))
    assert Counter(attached.sql("SELECT k, n FROM events").fetchall()) == NOW
    assert attached.sql("SELECT * FROM events").columns == ["k", "n", "valid_from", "valid_to"]


def test_the_command_line(warehouse: Path) -> None:
    store = warehouse / "events"
    answer = run("scan", store, "--as-of", IN_GAP, "--json")
    assert counted(answer.rows) == BEFORE and GAP in answer.err
    refused = run("scan", store, "--as-of", IN_GAP, "--strict")
    assert refused.code != 0 and "ROWS_UNCERTAIN" in refused.err and GAP in refused.err
    assert counted(run("get", warehouse, "events", "b", "--json").rows) == Counter([("b", 3)])
    life = run("history", warehouse, "events", "a", "--json")
    assert counted(life.rows) == Counter({("a", 1): 2}) and GAP in life.err
    changes = run("changes", store, "--json")
    assert {row["_change_type"] for row in changes.rows} == {"insert", "delete", "update_preimage", "update_postimage"}
    assert GAP in changes.err
    counted(changes.rows)
    assert [row["missing_to"] for row in run("versions", store, "--json").rows] == [3, None, None]
    shown = run("inspect", store)
    assert "captured list" in shown.out and "1 gap" in shown.out.replace("\n", " ")
    assert GAP in shown.out + shown.err and "newest captured batch: 4 of" in shown.out + shown.err
    refused = run("put", warehouse, "events", "a", "1")
    assert refused.code != 0 and "READ_ONLY" in refused.err


def test_the_axis_of_the_explorer_marks_the_gap(warehouse: Path) -> None:
    axis = _versions_of(statestore.inspect(warehouse).table("events").table)
    assert axis["missing"].to_pylist() == [0.0, 0.0, 2.0]


def test_spark(warehouse: Path, spark: SparkSession) -> None:
    def of(name: str, **options: str) -> Any:
        return spark.read.format("statestore").options(**options).load(str(warehouse / name))

    frame = of("events")
    assert frame.columns == ["k", "n", "valid_from", "valid_to"]
    assert Counter((row["k"], row["n"]) for row in frame.collect()) == NOW
    told: list[str] = []
    with notices_to(told.append, all_threads=True):  # Spark plans in a thread of the JVM
        past = of("events", timestampAsOf=IN_GAP)
        assert Counter((row["k"], row["n"]) for row in past.collect()) == BEFORE
        assert {row["k"]: row["count"] for row in past.groupBy("k").count().collect()} == {"a": 2, "b": 1}
    assert len(told) == 1 and GAP in told[0]
    with pytest.raises(Exception, match="ROWS_UNCERTAIN"):
        of("events", timestampAsOf=IN_GAP, strict="true").collect()
    assert of("rates").selectExpr("count(f)", "count(distinct f)", "count(*)").collect() == [(1, 1, 2)]

"""Checkpoints of Spark through our own doors: Python, SQL, DuckDB and the command line; truth is what Spark read."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from command_line import run
from spark_state_fixtures import checkpoint_path, index, multiset, opened, truth

import statestore
from statestore.catalog.checkpoint_table import CheckpointSplit, CheckpointTable
from statestore.formats.filters import Filter
from statestore.formats.state_table import Query

SPARK_READS_WRONG = "join__rkj4"
NAMES = sorted(name for name in index() if SPARK_READS_WRONG not in name)
AGGREGATION = "spark4.3.0-agg__rkcl"


def table_name(name: str, options: dict[str, Any]) -> str:
    """Our table for options of Spark's source."""
    timers = "timers" if options.get("readRegisteredTimers") else None
    base = options.get("joinSide") or options.get("stateVarName") or timers or "state"
    return f"{base}_{options['operatorId']}" if len(opened(name).operators) > 1 else str(base)


def plain_reads(name: str) -> list[dict[str, Any]]:
    """Reads of whole states as users see them."""
    other = {"readChangeFeed", "storeName", "flattenCollectionTypes"}
    reads = index()[name]["reads"].values()
    return [read for read in reads if "error" not in read and not other & set(read["options"])]


@pytest.mark.parametrize("name", NAMES)
def test_each_batch_is_a_version(name: str) -> None:
    found = statestore.inspect(checkpoint_path(name))
    reads = plain_reads(name)
    assert reads or "rkav" in name
    for read in reads:
        table = found.table(table_name(name, read["options"]))
        rows = table.scan(version=read["options"].get("batchId")).read_all()
        assert multiset(rows) == multiset(truth(read))


@pytest.mark.parametrize("name", sorted(index()))
def test_duckdb_reads_every_table(name: str) -> None:
    """Also those with several struct fields of one name, which DuckDB does not take."""
    path = str(checkpoint_path(name))
    connection = statestore.attach(path)
    for table in statestore.inspect(path).tables():
        count = len(connection.sql(f'SELECT * FROM "{table}"').fetchall())
        assert count == statestore.inspect(path).table(table).scan().read_all().num_rows


def test_sql_with_batches_and_moments() -> None:
    path = str(checkpoint_path(AGGREGATION))
    first = "SELECT key.k AS k, value.count AS n FROM state VERSION AS OF 2 ORDER BY k LIMIT 1"
    assert statestore.sql(path, first).to_pylist() == [{"k": "key-00-", "n": 2}]
    began = [opened(AGGREGATION, batch).batch.timestamp_ms or 0 for batch in range(3)]
    for moment, batch in ((began[1], 1), (began[2], 2), (began[2] - 1, 1)):
        texts = [
            f"SELECT sum(value.count) FROM state {c}" for c in (f"TIMESTAMP AS OF {moment}", f"VERSION AS OF {batch}")
        ]
        assert statestore.sql(path, texts[0]) == statestore.sql(path, texts[1])
    joined = (
        "SELECT count(*) FROM state VERSION AS OF 1 o JOIN state n ON o.key = n.key WHERE n.value.count > o.value.count"
    )
    assert statestore.sql(path, joined).column(0)[0].as_py() > 0


def test_partitions_that_are_filtered_out_are_not_read() -> None:
    table = statestore.inspect(checkpoint_path(AGGREGATION)).table("state").table
    assert isinstance(table, CheckpointTable)
    query = Query(filters=(Filter("partition_id", "=", 1),))
    splits = table.splits(query)
    assert len(splits) == 1 and isinstance(splits[0], CheckpointSplit) and splits[0].partition == 1
    again = pickle.loads(pickle.dumps(table))
    rows = pa.Table.from_batches(batch for split in again.splits(query) for batch in again.read(split, query))
    assert set(rows["partition_id"].to_pylist()) == {1}


def test_chosen_columns_and_filters() -> None:
    table = statestore.inspect(checkpoint_path(AGGREGATION)).table("state")
    whole = table.scan().read_all()
    assert table.scan(columns=["value"]).read_all().equals(whole.select(["value"]))
    assert table.scan(columns=["partition_id", "key"]).read_all().equals(whole.select(["partition_id", "key"]))
    key = {"k": "key-00-"}
    found = table.scan(columns=["value"], filter=("key", "=", key)).read_all().to_pylist()
    assert found == [{"value": row["value"]} for row in whole.to_pylist() if row["key"] == key]


def test_joins_variables_and_several_operators_have_tables_of_their_own() -> None:
    def tables(name: str) -> list[str]:
        return statestore.inspect(checkpoint_path(name)).tables()

    assert tables("spark4.3.0-join__hdfs") == ["left", "right"]
    assert tables("spark4.3.0-chain__rkcl") == ["state_0", "state_1"]
    assert tables("spark4.3.0-twsno__rk") == ["lst", "mp", "timers", "val"]


def test_the_command_line() -> None:
    path = checkpoint_path(AGGREGATION)
    (told,) = run("inspect", path, "--json").rows
    assert (told["store"], told["kind"], told["version"]) == ("state", "stateStoreSave", 5)
    (row,) = run("get", path, "state", '{"k": "key-00-"}', "--json").rows
    assert row["value"]["count"] == 4 and row["value"]["sum_1"] == -12.0
    assert run("scan", path, "state", "--limit", "2").err == "more rows; a greater --limit shows them\n"
    changes = run("diff", path, "state", "--from", "2", "--to", "3", "--json").rows
    assert {change["change"] for change in changes} == {"changed"}
    assert run("compact", path).code == 1


REFUSED: list[tuple[Any, str]] = [
    (lambda t: t.scan(version=99), "VERSION_NOT_FOUND.*0 to 5"),
    (lambda t: t.scan(as_of=0), "TIME_NOT_KEPT.*or later"),
    (lambda t: t.scan(columns=["nope"]), "COLUMN_NOT_FOUND.*key, value, partition_id"),
    (lambda t: t.scan(filter=("nope", "=", 1)), "COLUMN_NOT_FOUND"),
]


@pytest.mark.parametrize(("ask", "said"), REFUSED)
def test_what_is_refused(ask: Any, said: str) -> None:
    table = statestore.inspect(checkpoint_path(AGGREGATION)).table("state")
    with pytest.raises(statestore.StateStoreError, match=said):
        ask(table).read_all()


def test_a_folder_that_is_neither(tmp_path: Path) -> None:
    with pytest.raises(statestore.NotFoundError, match=r"NOTHING_HERE.*checkpoint"):
        statestore.inspect(tmp_path)
    assert isinstance(statestore.inspect(checkpoint_path(AGGREGATION)).table("state").table, CheckpointTable)

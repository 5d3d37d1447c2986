"""History, changes, moments and look-ups of checkpoints through Python, DuckDB and the command line.

The truth is the state of each batch, read as it stands, and what plain Python makes of these rows.
"""

from __future__ import annotations

import json
import pickle
import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from support.checkpoints.checkpoint_filters import as_written, passing, random_filter
from support.checkpoints.checkpoint_models import Row
from support.checkpoints.checkpoint_tables import (
    began,
    counted,
    expected_changes,
    expected_history,
    key_cells,
    micros,
    states_of,
    tables,
)
from support.checkpoints.spark_state_fixtures import QUICK, checkpoint_path, index, multiset
from support.command_line import run
from support.object_store import object_store
from support.parameters import mostly_slow, named

import statestore
from statestore.catalog.engines.engine_table import EngineTable
from statestore.catalog.reads.table import Table
from statestore.formats.state_table import Query
from statestore.formats.values.filters import Filter
from statestore.formats.values.json_terms import plain as as_json

NAMES = sorted(index())
AGGREGATION, HDFS, WINDOWS = "spark4.3.0-agg__rkcl", "spark4.3.0-agg__hdfs", "spark4.3.0-win__rkcl"
JOIN, VARIABLES = "spark4.3.0-join__hdfs", "spark4.3.0-twsttl__rkcl"


SOME = [
    (HDFS, "state"),
    (AGGREGATION, "state"),
    (WINDOWS, "state"),
    ("spark4.0.1-chain__rkcl", "state_0"),
    ("spark4.0.1-chain__rkcl", "state_1"),
    (JOIN, "left"),
    ("spark4.3.0-join__rkj4", "right"),
    (VARIABLES, "tmp"),
    (VARIABLES, "lst"),
    ("spark4.3.0-twsttl__rkv2", "timers"),
]


@pytest.mark.parametrize(("name", "shown"), mostly_slow(SOME, [SOME[0], SOME[8]]))
def test_history_and_changes_in_python_and_in_sql(name: str, shown: str) -> None:
    path = checkpoint_path(name)
    table = tables(path)[shown]
    states = states_of(table)
    history, changes = expected_history(path, states), expected_changes(path, states, 0, key_cells(table))
    assert counted(table.history().read_all(), "history") == history
    assert counted(table.changes().read_all(), "changes") == changes
    for mode, expected in (("history", history), ("changes", changes)):
        found = statestore.sql(str(path), f"SELECT * FROM {mode}('{shown}')")
        assert counted(found, mode) == expected


@pytest.mark.parametrize(
    ("name", "shown"), mostly_slow([(AGGREGATION, "state"), (JOIN, "left"), (VARIABLES, "tmp")], 3)
)
def test_ranges_of_batches_and_of_moments(name: str, shown: str) -> None:
    path = checkpoint_path(name)
    table = tables(path)[shown]
    states = states_of(table)
    whole = expected_history(path, states)
    for first, last in ((0, 0), (2, max(states))):
        some = {batch: state for batch, state in states.items() if batch <= last}
        expected = expected_changes(path, some, first, key_cells(table))
        start, end = began(path, first), began(path, last)
        by_time = table.changes(start_time=start, end_time=end).read_all()
        assert counted(table.changes(first, last).read_all(), "changes") == counted(by_time, "changes") == expected
        for bounds in (f"{first}, {last}", f"'{start.isoformat()}', '{end.isoformat()}'"):
            found = statestore.sql(str(path), f"SELECT * FROM changes('{shown}', {bounds})")
            assert counted(found, "changes") == expected
        then = Counter({row: n for row, n in whole.items() if valid_within(row, micros(start), micros(end))})
        assert counted(table.history(start_time=start, end_time=end).read_all(), "history") == then
        found = statestore.sql(
            str(path), f"SELECT * FROM history('{shown}', '{start.isoformat()}', '{end.isoformat()}')"
        )
        assert counted(found, "history") == then
        assert counted(table.history(version=last).read_all(), "history") == expected_history(path, some)


def valid_within(row: Row, start: int, end: int) -> bool:
    return bool(row[-3] <= end and (row[-2] is None or row[-2] > start))


@pytest.mark.parametrize(("name", "shown"), mostly_slow([(AGGREGATION, "state"), (JOIN, "right")], 2))
def test_moments_are_batches(name: str, shown: str) -> None:
    path = checkpoint_path(name)
    table = tables(path)[shown]
    last = table.table.kept_versions()[1]
    for batch in (0, 2, last):
        begin = began(path, batch)
        until = began(path, batch + 1) if batch < last else begin + timedelta(days=1)
        expected = table.scan(version=batch).read_all()
        for moment in (begin, until - timedelta(milliseconds=1)):
            assert table.scan(as_of=moment).read_all().equals(expected)
            text = f"SELECT * FROM \"{shown}\" TIMESTAMP AS OF '{moment.isoformat()}'"
            assert multiset(statestore.sql(str(path), text)) == multiset(expected)
        attached = statestore.attach(str(path), as_of=begin).sql(f'SELECT * FROM "{shown}"')
        assert multiset(attached.to_arrow_table()) == multiset(expected)


@pytest.mark.parametrize("name", mostly_slow(NAMES, sorted(QUICK)[::6]))
def test_filters_select_what_python_selects(name: str) -> None:
    chance = random.Random(name)
    found_tables = tables(checkpoint_path(name))
    for shown in chance.sample(sorted(found_tables), min(2, len(found_tables))):
        table = found_tables[shown]
        for read, times in ((table.scan, 4), (table.history, 2), (table.changes, 2)):
            whole = read().read_all()
            rows = whole.to_pylist()
            for _ in range(times):
                filters = [random_filter(chance, whole.schema, rows) for _ in range(chance.choice([1, 1, 2]))]
                found = read(filter=[as_written(item) for item in filters]).read_all()
                expected = pa.Table.from_pylist(passing(rows, filters), whole.schema)
                assert multiset(found) == multiset(expected), filters


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(NAMES, QUICK))
def test_a_key_as_json_shows_it_is_a_key(name: str) -> None:
    """`get` and `history` take the key of each row, nulls and times included, as `--json` prints it."""
    if "limit" in name:
        return  # its key is a column of nulls
    path = checkpoint_path(name)
    chance = random.Random(name)
    for shown, table in chance.sample(sorted(tables(path).items()), 1):
        rows = table.scan().read_all().to_pylist()
        for row in chance.sample(rows, min(1, len(rows))):
            text = json.dumps(as_json(row["key"]), ensure_ascii=False)
            same = [as_json(other) for other in rows if other["key"] == row["key"]]
            found = run("get", path, shown, text, "--json")
            assert sorted(map(str, found.rows)) == sorted(map(str, same)), found.err
            versions = run("history", path, shown, text, "--json").rows
            expected = [as_json(other) for other in table.history(key=row["key"]).read_all().to_pylist()]
            assert sorted(map(str, versions)) == sorted(map(str, expected))
            assert [other["valid_from"] for other in versions] == sorted(other["valid_from"] for other in versions)


def test_the_null_key_is_looked_up_by_its_name_only() -> None:
    path = checkpoint_path(AGGREGATION)
    (row,) = run("get", path, "state", '{"k": null}', "--json").rows
    assert row["key"] == {"k": None}
    assert run("get", path, "state", "null", "--json").code == 1  # the text
    assert run("get", path, "state", "key-00-", "--json").rows[0]["key"] == {"k": "key-00-"}
    assert run("get", path, "state", '{"k": "no such key"}').err == "no value for this key in state\n"
    assert run("history", path, "state", '{"k": "no such key"}', "--json").rows == []


WRONG_KEYS = [
    (AGGREGATION, '{"a": 1}', "found {'a': 1}, expected a JSON object with k"),
    (AGGREGATION, '{"k": "key-00-", "a": 1}', "expected a JSON object with k"),
    (AGGREGATION, '{"k": "key-00-", "k": "key-01-é"}', "given twice"),
    (AGGREGATION, "{}", "expected a JSON object with k"),
    (AGGREGATION, '{"k": 1}', "found int 1, expected string"),
    (WINDOWS, "key-40-", "expected a JSON object with window, k"),
    (WINDOWS, "null", "expected a JSON object with window, k"),
    (WINDOWS, '{"window": {"begin": 1}, "k": "a"}', "expected a JSON object with start, end"),
    (WINDOWS, '{"window": {"start": "2024-01-01", "end": "2024-01-01"}, "k": "a"}', "without a time zone"),
    (WINDOWS, '{"window": [1, 2], "k": "a"}', "expected a JSON object with start, end"),
    ("spark4.3.0-aggmulti__rkcl", "1", "expected a JSON object with k, i, sh"),
    (WINDOWS, "[" * 100_000, "expected"),
]


def test_what_is_no_key() -> None:
    for name, key, said in WRONG_KEYS:
        for command in ("get", "history"):
            found = run(command, checkpoint_path(name), "state", key)
            assert (found.code, found.out) == (2, ""), (name, key[:20])
            assert "[WRONG_KEY]" in found.err and said in found.err, (name, key[:20])


@pytest.mark.parametrize("name", mostly_slow([HDFS, AGGREGATION, JOIN, VARIABLES, "spark4.0.1-chain__rkcl"], [HDFS]))
def test_splits_travel(name: str) -> None:
    """Pickled and read in any order, as Spark does, they give the same rows; filters on partitions leave some out."""
    for table in list(tables(checkpoint_path(name)).values())[-2:]:
        assert isinstance(table.table, EngineTable)
        key = table.scan().read_all().to_pylist()[0]["key"]
        some = Filter("partition_id", "in", (1, 7))
        for mode in ("state", "history", "changes"):
            for filters in ((), (some,), (Filter("key", "=", key),), (Filter("partition_id", "is_not_null"),)):
                query = Query(mode=mode, filters=filters)
                splits = table.table.splits(query)
                travelled = [pickle.loads(pickle.dumps((table.table, split, query))) for split in reversed(splits)]
                batches = [batch for other, split, asked in travelled for batch in other.read(split, asked)]
                expected = [batch for split in splits for batch in table.table.read(split, query)]
                assert rows_of(batches) == rows_of(expected)
                if filters == (some,):
                    assert len(splits) == 1
                assert all(len(pickle.dumps(split)) < 5000 for split in splits)


def rows_of(batches: list[pa.RecordBatch]) -> Counter[Row]:
    return sum((multiset(pa.Table.from_batches([batch])) for batch in batches), Counter())


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow([HDFS, AGGREGATION, JOIN, VARIABLES], [JOIN]))
def test_any_columns_in_any_order(name: str) -> None:
    chance = random.Random(name)
    for shown, table in list(tables(checkpoint_path(name)).items())[-2:]:
        for mode, read in (("", table.scan), ("history", table.history), ("changes", table.changes)):
            whole = read().read_all()
            source = f'"{shown}"' if not mode else f"{mode}('{shown}')"
            path = str(checkpoint_path(name))
            assert statestore.sql(path, f"SELECT count(*) FROM {source}")[0][0].as_py() == whole.num_rows
            for _ in range(3):
                names = chance.sample(whole.column_names, chance.randint(1, len(whole.column_names)))
                found = read(columns=names).read_all()
                assert found.column_names == names and multiset(found) == multiset(whole.select(names))
                columns = ", ".join(f'"{column}"' for column in names)
                answer = statestore.sql(path, f"SELECT {columns} FROM {source} LIMIT 5")
                assert answer.num_rows == min(5, whole.num_rows)
                assert multiset(answer) <= multiset(whole.select(names))


def test_state_that_is_empty() -> None:
    path = checkpoint_path("spark4.3.0-twsno__rk")
    table = tables(path)["timers"]
    for rows in (table.scan(), table.history(), table.changes(), table.diff(0)):
        assert rows.read_all().num_rows == 0
    assert statestore.sql(str(path), "SELECT * FROM history('timers')").num_rows == 0
    for command in (("scan",), ("changes",), ("diff", "--from", "0")):
        found = run(command[0], path, "timers", *command[1:], "--json")
        assert (found.code, found.rows) == (0, [])


SQL_FILTERS = [
    "key.k = 'key-00-'",
    "key = {'k': 'key-00-'}",
    "key.k IN ('key-00-', 'key-01-é', 'none')",
    "key.k IS NULL",
    "key = {'k': NULL}",
    "key IS NULL",
    "key.k = NULL",
    "key.k > 'key-40'",
    "key.k BETWEEN 'key-00' AND 'key-02'",
    "key.k LIKE 'key-0%'",
    "key.k = 'key-00-' OR key.k = 'key-01-é'",
    "NOT key.k = 'key-00-'",
    "value.count > 3 AND key.k < 'key-10'",
    "partition_id = 1",
    "partition_id = 7",
    "partition_id IS NOT NULL AND value.max IS NOT NULL",
]


SQL_WHERE = [*SQL_FILTERS, "_commit_version = 3", "valid_to IS NULL AND _commit_version < 5"]


@cache
def all_rows(source: str) -> pa.Table:
    return sql_of(f"SELECT * FROM {source}")


@pytest.mark.parametrize("where", mostly_slow(SQL_WHERE, SQL_WHERE[1::3]))
def test_sql_filters_select_what_duckdb_selects(where: str) -> None:
    """Pushed into the read or not, they mean the same."""
    for source in ("state", "history('state')"):
        if "history" not in source and "_" in where.replace("partition_id", ""):
            continue
        expected = duckdb.from_arrow(all_rows(source)).filter(where).to_arrow_table()
        assert multiset(sql_of(f"SELECT * FROM {source} WHERE {where}")) == multiset(expected)


REFUSED: list[tuple[str, Callable[[Table], Any]]] = [
    ("VERSION_NOT_FOUND.*0 to 5", lambda t: t.scan(version=6)),
    ("VERSION_NOT_FOUND.*0 to 5", lambda t: t.history(version=-1)),
    ("VERSION_NOT_FOUND.*0 to 5", lambda t: t.changes(end_version=6)),
    ("INVALID_VERSION", lambda t: t.scan(version="2")),  # type: ignore[arg-type]
    ("INVALID_VERSION", lambda t: t.scan(version=True)),
    ("INVALID_VERSION", lambda t: t.changes(start_version="2")),  # type: ignore[arg-type]
    ("INVALID_RANGE.*from version 3 to 2", lambda t: t.changes(3, 2)),
    ("INVALID_RANGE.*start is after the end", lambda t: t.history(start_time=2, end_time=1)),
    ("INVALID_RANGE.*start is after the end", lambda t: t.changes(start_time=2, end_time=1)),
    ("TIME_NOT_KEPT.*or later", lambda t: t.scan(as_of=0)),
    ("COLUMN_NOT_FOUND", lambda t: t.scan(filter=("_commit_version", "=", 1))),
    ("COLUMN_NOT_FOUND", lambda t: t.history(columns=["_change_type"])),
    ("COLUMN_NOT_FOUND", lambda t: t.changes(filter=("valid_to", "is null"))),
    ("INVALID_FILTER.*no field 'a'", lambda t: t.scan(filter=("key.a", "=", 1))),
    ("INVALID_FILTER.*found int 1", lambda t: t.history(filter=("key.k", "=", 1))),
    ("INVALID_FILTER.*write a dict", lambda t: t.changes(filter=("key", "=", {"a": 1}))),
    ("WRONG_KEY.*write a dict", lambda t: t.history(key={"a": 1})),
    ("WRONG_KEY.*write a dict", lambda t: t.history(key={"k": "key-00-", "a": 1})),
    ("INVALID_SQL.*changes.*VERSION AS OF", lambda t: sql_of("SELECT * FROM changes('state') VERSION AS OF 2")),
    ("INVALID_SQL.*TIMESTAMP AS OF", lambda t: sql_of("SELECT * FROM history('state') TIMESTAMP AS OF 2")),
    (
        "VERSION_NOT_FOUND.*line 1, column 15.*0 to 5",
        lambda t: sql_of("SELECT * FROM history('state') VERSION AS OF 9"),
    ),
    ("VERSION_NOT_FOUND.*line 1, column 15.*0 to 5", lambda t: sql_of("SELECT * FROM changes('state', 9)")),
    ("TABLE_NOT_FOUND.*did you mean 'state'", lambda t: sql_of("SELECT * FROM history('stat')")),
]


def sql_of(text: str) -> pa.Table:
    return statestore.sql(str(checkpoint_path(AGGREGATION)), text)


def test_what_is_refused() -> None:
    table = tables(checkpoint_path(AGGREGATION))["state"]
    for number, (said, ask) in enumerate(REFUSED):
        with named(f"{number}: {said}"), pytest.raises(statestore.StateStoreError, match=said):
            ask(table)


@pytest.mark.parametrize(
    ("name", "shown"),
    mostly_slow(
        [(AGGREGATION, "state"), (JOIN, "left"), (VARIABLES, "tmp"), ("spark4.0.1-chain__rkcl", "state_1")],
        [(VARIABLES, "tmp")],
    ),
)
def test_the_command_line_tells_the_same(name: str, shown: str) -> None:
    path = checkpoint_path(name)
    table = tables(path)[shown]
    told = [as_json(row) for row in table.changes(2, 4).read_all().to_pylist()]
    found = run("changes", path, shown, "--from", "2", "--to", "4", "--limit", "10000", "--json")
    assert sorted(map(str, found.rows)) == sorted(map(str, told))
    few = run("changes", path, shown, "--limit", "3", "--json", "--columns", "_change_type,_commit_version")
    assert len(few.rows) == 3 and few.err == "more rows; a greater --limit shows them\n"
    diff = run("diff", path, shown, "--from", "1", "--to", "3", "--json", "--limit", "10000").rows
    before, after = (table.scan(version=batch).read_all().to_pylist() for batch in (1, 3))
    old, new = (Counter(map(str, map(as_json, rows))) for rows in (before, after))
    assert len([row for row in diff if row["old"] is not None]) == (old - new).total()
    assert len([row for row in diff if row["new"] is not None]) == (new - old).total()


def test_ranges_that_the_command_line_refuses() -> None:
    for arguments in (("--from", "3", "--to", "2"), ("--from", "9")):
        assert run("changes", checkpoint_path(AGGREGATION), "state", *arguments).code in (1, 2)


@pytest.mark.slow
def test_a_report_of_a_checkpoint(tmp_path: Path) -> None:
    for name in (AGGREGATION, JOIN):
        out = tmp_path / f"{name}.html"
        assert run("report", checkpoint_path(name), "--out", out).code == 0
        page = out.read_text()
        assert all(f">{shown}<" in page for shown in tables(checkpoint_path(name)))


@pytest.mark.parametrize("name", mostly_slow([AGGREGATION, HDFS, "spark4.3.0-agg__rkv2"], ()))
def test_history_and_changes_in_an_object_store(name: str) -> None:
    here = tables(checkpoint_path(name))["state"]
    with object_store() as store:
        uri = store.upload(checkpoint_path(name), name)
        there = statestore.inspect(uri).table("state")
        key = {"k": "key-00-"}
        for ours, theirs in (
            (here.history(), there.history()),
            (here.changes(2, 3), there.changes(2, 3)),
            (here.history(key=key), there.history(key=key)),
            (here.scan(version=1, filter=("key", "=", key)), there.scan(version=1, filter=("key", "=", key))),
            (here.changes(filter=("key.k", "=", "key-00-")), there.changes(filter=("key.k", "=", "key-00-"))),
        ):
            expected = multiset(ours.read_all())
            assert multiset(theirs.read_all()) == expected and expected
        found = statestore.sql(uri, "SELECT * FROM history('state')")
        assert multiset(found) == multiset(here.history().read_all())
        versions = run("history", uri, "state", "key-00-", "--json").rows
        assert len(versions) == here.history(key=key).read_all().num_rows

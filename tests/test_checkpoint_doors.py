"""History, changes, moments and look-ups of checkpoints through Python, DuckDB and the command line.

The truth is the state of each batch, read as it stands, and what plain Python makes of these rows.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from checkpoint_filters import as_written, passing, random_filter
from checkpoint_models import Row, States, changes_of, history_of
from command_line import run
from spark_state_fixtures import checkpoint_path, index, multiset

import statestore
from statestore.catalog.table_reads import ReadableTable
from statestore.connector.cli.output import plain as as_json

NAMES = sorted(index())
AGGREGATION, HDFS, WINDOWS = "spark4.3.0-agg__rkcl", "spark4.3.0-agg__hdfs", "spark4.3.0-win__rkcl"
JOIN, VARIABLES = "spark4.3.0-join__hdfs", "spark4.3.0-twsttl__rkcl"
TIME_OF_A_ROW = {"history": ["valid_from", "valid_to"], "changes": ["valid_from", "_commit_timestamp"]}
REST = {"history": ["_commit_version"], "changes": ["_commit_version", "_change_type"]}


def tables(path: Path) -> dict[str, ReadableTable]:
    found = statestore.inspect(path)
    return {name: found.table(name) for name in found.tables()}


def began(path: Path, batch: int) -> datetime:
    """As the log of offsets says."""
    said = json.loads((path / "offsets" / str(batch)).read_text().splitlines()[1])
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=said["batchTimestampMs"])


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def states_of(table: ReadableTable, first: int = 0) -> States:
    _, last = table.table.kept_versions()
    return {batch: multiset(table.scan(version=batch).read_all()) for batch in range(first, last + 1)}


def key_cells(table: ReadableTable) -> int | None:
    """How many columns tell rows apart; none do in lists and sides of joins."""
    names = table.schema.names
    if "list_element" in names or table.name in ("left", "right"):
        return None
    return 2 if {"user_map_key", "expiration_timestamp_ms"} & set(names) else 1


def expected_history(path: Path, states: States) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for (*row, first, end), count in history_of(states).items():
        until = None if end is None else micros(began(path, end))
        found[*row, micros(began(path, first)), until, first] += count
    return found


def expected_changes(path: Path, states: States, first: int, cells: int | None) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for (*row, batch, kind), count in changes_of(states, first, cells).items():
        moment = micros(began(path, batch))
        found[*row, moment, moment, batch, kind] += count
    return found


def counted(rows: pa.Table, mode: str) -> Counter[Row]:
    """The rows with what the model says of them in its order."""
    last = [*TIME_OF_A_ROW[mode], *REST[mode]]
    return multiset(rows.select([*(name for name in rows.column_names if name not in last), *last]))


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


@pytest.mark.parametrize(("name", "shown"), SOME)
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


@pytest.mark.parametrize(("name", "shown"), [(AGGREGATION, "state"), (JOIN, "left"), (VARIABLES, "tmp")])
def test_ranges_of_batches_and_of_moments(name: str, shown: str) -> None:
    path = checkpoint_path(name)
    table = tables(path)[shown]
    states = states_of(table)
    whole = expected_history(path, states)
    for first, last in ((0, 0), (2, 4), (max(states), max(states))):
        some = {batch: state for batch, state in states.items() if batch <= last}
        expected = expected_changes(path, some, first, key_cells(table))
        start, end = began(path, first), began(path, last)
        by_time = table.changes(start_timestamp=start, end_timestamp=end).read_all()
        assert counted(table.changes(first, last).read_all(), "changes") == counted(by_time, "changes") == expected
        for bounds in (f"{first}, {last}", f"'{start.isoformat()}', '{end.isoformat()}'"):
            found = statestore.sql(str(path), f"SELECT * FROM changes('{shown}', {bounds})")
            assert counted(found, "changes") == expected
        then = Counter({row: n for row, n in whole.items() if valid_within(row, micros(start), micros(end))})
        assert counted(table.history(start=start, end=end).read_all(), "history") == then
        found = statestore.sql(
            str(path), f"SELECT * FROM history('{shown}', '{start.isoformat()}', '{end.isoformat()}')"
        )
        assert counted(found, "history") == then
        assert counted(table.history(version=last).read_all(), "history") == expected_history(path, some)


def valid_within(row: Row, start: int, end: int) -> bool:
    return bool(row[-3] <= end and (row[-2] is None or row[-2] > start))


@pytest.mark.parametrize(("name", "shown"), [(AGGREGATION, "state"), (JOIN, "right")])
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


@pytest.mark.parametrize("name", NAMES)
def test_filters_select_what_python_selects(name: str) -> None:
    chance = random.Random(name)
    found_tables = tables(checkpoint_path(name))
    for shown in chance.sample(sorted(found_tables), min(2, len(found_tables))):
        table = found_tables[shown]
        for read, times in ((table.scan, 5), (table.history, 3), (table.changes, 3)):
            whole = read().read_all()
            rows = whole.to_pylist()
            for _ in range(times):
                filters = [random_filter(chance, whole.schema, rows) for _ in range(chance.choice([1, 1, 2]))]
                found = read(filter=[as_written(item) for item in filters]).read_all()
                expected = pa.Table.from_pylist(passing(rows, filters), whole.schema)
                assert multiset(found) == multiset(expected), filters


@pytest.mark.parametrize("name", NAMES)
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


@pytest.mark.parametrize(("name", "key", "said"), WRONG_KEYS, ids=[f"{n}-{k[:20]}" for n, k, _ in WRONG_KEYS])
def test_what_is_no_key(name: str, key: str, said: str) -> None:
    for command in ("get", "history"):
        found = run(command, checkpoint_path(name), "state", key)
        assert (found.code, found.out) == (2, "")
        assert "[WRONG_KEY]" in found.err and said in found.err

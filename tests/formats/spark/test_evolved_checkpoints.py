"""Checkpoints of Spark 4.3.0 in Avro whose variables evolved twice, with timers, and with times to live.

``data/spark/evolved_checkpoints.tar.xz`` has ``plain`` and ``ttl``, each of six batches, and in ``truth.json`` the rows
that Spark's own source read, as JSON: of each variable as of each batch, and its change feed. Fields were added,
removed and reordered, also within arrays and maps, and numbers became wider. The last state has rows of all three
schemas.
"""

from __future__ import annotations

import json
import shutil
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import LOCAL, unpacked
from support.paths import DATA

import statestore
from statestore.catalog.warehouse import open_table
from statestore.connector.options import query_of
from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.errors import CorruptError
from statestore.formats.spark.checkpoint.checkpoint import open_checkpoint
from statestore.formats.spark.checkpoint.state_errors import corrupt_row
from statestore.formats.spark.checkpoint.state_views import find_state_view
from statestore.formats.spark.providers.partition_load import open_partition, stored_rows
from statestore.formats.spark.rows.avro_row import value_decoder
from statestore.formats.spark.state_rows import read_state

ARCHIVE = DATA / "spark" / "evolved_checkpoints.tar.xz"
LAST = 5
VARIABLES = [(name, variable) for name in ("plain", "ttl") for variable in ("val", "lst", "mp", "timers")]


def root(name: str) -> Path:
    return unpacked(ARCHIVE) / "evolved" / name


@cache
def truth() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads((root("truth.json")).read_text())
    return found


def expected(name: str, variable: str, what: object) -> list[str]:
    return sorted(text(json.loads(row)) for row in truth()[f"{name}/{variable}/{what}"])


def text(row: Any) -> str:
    return json.dumps(plain(row), sort_keys=True)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(cell) for name, cell in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        return {name: plain(cell) for name, cell in value}  # a map
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value


def texts(rows: pa.Table) -> list[str]:
    return sorted(map(text, rows.to_pylist()))


@pytest.mark.parametrize(("name", "variable"), VARIABLES)
def test_every_batch_has_the_rows_that_spark_read(name: str, variable: str) -> None:
    table = statestore.inspect(root(name)).table(variable)
    for batch in range(LAST + 1):
        assert texts(table.scan(version=batch).read_all()) == expected(name, variable, batch), batch


@pytest.mark.parametrize(("name", "variable"), [each for each in VARIABLES if each[1] != "timers"])
def test_the_change_feed_is_that_of_spark(name: str, variable: str) -> None:
    options = {"stateVarName": variable, "readChangeFeed": "true", "changeStartBatchId": "0"}
    table, query = open_table(root(name), options), query_of(options)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    assert texts(pa.Table.from_batches(batches)) == expected(name, variable, "feed")


@pytest.mark.parametrize("variable", ["val", "lst", "mp"])
def test_histories_and_differences_cross_the_evolutions(variable: str) -> None:
    """All rows come in the columns of the newest schema, and those that are still valid are the newest state."""
    table = statestore.inspect(root("plain")).table(variable)
    columns = table.scan().read_all().column_names
    history = table.history().read_all()
    now = history.filter(history["valid_to"].is_null()).select(columns)
    assert texts(now) == expected("plain", variable, LAST)
    changes = table.changes(start_version=2).read_all()
    assert set(changes["_commit_version"].to_pylist()) == set(range(2, LAST + 1))
    if variable == "val":
        diff = table.diff(start_version=1, end_version=LAST).read_all()
        assert {row["_new"]["value"]["tag"] for row in diff.to_pylist() if row["_new"]} == {"z"}


RANGES = [
    ("plain", "$eventTimers_timestampToKey", "timers", ("key", "k")),
    ("ttl", "$procTimers_timestampToKey", "timers", ("key", "k")),
    ("ttl", "$ttl_val", "val", ("elementKey", "k")),
    ("ttl", "$ttl_mp", "mp", ("elementKey", "key", "k")),
]


@pytest.mark.parametrize(("name", "family", "variable", "path"), RANGES)
def test_keys_that_are_ordered_by_time(name: str, family: str, variable: str, path: tuple[str, ...]) -> None:
    """Spark keeps an index by time beside each family with times: it has the same keys and times."""
    checkpoint = open_checkpoint(LOCAL, str(root(name)))
    view = find_state_view(checkpoint, 0, family)
    rows = [row for part in (0, 1) for batch in read_state(checkpoint, view, part) for row in batch.to_pylist()]
    found = sorted((at(row["key"], path), row["key"][view.family.key.names[0]]) for row in rows)
    shown = [json.loads(row) for row in truth()[f"{name}/{variable}/{LAST}"]]
    assert found == sorted((row["key"]["k"], moment_of(row)) for row in shown)


def at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value[name]
    return value


def moment_of(row: dict[str, Any]) -> int:
    held = row.get("value") or row.get("user_map_value") or {}
    return int(row.get("expiration_timestamp_ms") or held["ttlExpirationMs"])


def test_schemas_of_attempts_that_failed_are_not_those_of_rows(tmp_path: Path) -> None:
    """A failed attempt leaves a file whose new schema has the id that the next attempt gives to another one."""
    copy = shutil.copytree(root("plain"), tmp_path / "copy")
    schemas = copy / "state" / "0" / "_stateSchema" / "default"
    (second,) = schemas.glob("2_*")
    (schemas / "2_00000000-failed").write_bytes(second.read_bytes().replace(b'"tag"', b'"gat"'))
    table = statestore.inspect(copy).table("val")
    assert texts(table.scan().read_all()) == expected("plain", "val", LAST)


def test_an_unknown_schema_is_named() -> None:
    checkpoint = open_checkpoint(LOCAL, str(root("plain")))
    view = find_state_view(checkpoint, 0, "val")
    source = open_partition(checkpoint, view.store, 0, view.family.name)
    (rows,) = stored_rows(source, lambda stored: stored.batch)
    values = cells_of(rows.column("value")).behind(1, "a value", corrupt_row)
    with pytest.raises(CorruptError, match="Avro schema id 2, expected one of \\[0\\]"):
        value_decoder({0: view.family.value})(values, view.family.value)

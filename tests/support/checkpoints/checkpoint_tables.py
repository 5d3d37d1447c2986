"""Tables of checkpoints, and a plain model of their history and changes, with the columns that doors show."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

import statestore
from statestore.catalog.reads.table import Table
from support.checkpoints.checkpoint_models import Row, States, changes_of, history_of
from support.checkpoints.spark_state_fixtures import multiset, plain

TIME = pa.timestamp("us", "UTC")
TIME_OF_A_ROW = {"history": ["valid_from", "valid_to"], "changes": ["valid_from", "_commit_timestamp"]}
REST = {"history": ["_commit_version"], "changes": ["_commit_version", "_change_type"]}


def tables(path: Path) -> dict[str, Table]:
    found = statestore.inspect(path)
    return {name: found.table(name) for name in found.tables()}


def began(path: Path, batch: int) -> datetime:
    """The time at which a batch began, from the log of offsets."""
    said = json.loads((path / "offsets" / str(batch)).read_text().splitlines()[1])
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=said["batchTimestampMs"])


def micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def states_of(table: Table, first: int = 0) -> States:
    _, last = table.table.kept_versions()
    return {batch: multiset(table.scan(version=batch).read_all()) for batch in range(first, last + 1)}


@cache
def states_in_archive(path: Path) -> dict[str, States]:
    """The states of each table of a checkpoint of the archives, which does not change: read once, never written to."""
    return {name: states_of(table) for name, table in tables(path).items()}


def since(states: States, first: int) -> States:
    """The states of the batches from ``first`` on."""
    return {batch: rows for batch, rows in states.items() if batch >= first}


def key_cells(table: Table) -> int | None:
    """The number of columns in the row key; None for lists and sides of joins."""
    names = table.schema.names
    if "list_element" in names or table.name in ("left", "right"):
        return None
    return 2 if {"user_map_key", "expiration_timestamp_ms"} & set(names) else 1


def expected_history(path: Path, states: States) -> Counter[Row]:
    """The history by the model. Starts of rows in the oldest batch are unknown, unless that is batch 0."""
    found: Counter[Row] = Counter()
    oldest = min(states)
    for (*row, first, end), count in history_of(states).items():
        until = None if end is None else micros(began(path, end))
        known = first > oldest or first == 0
        found[*row, micros(began(path, first)) if known else None, until, first if known else None] += count
    return found


def expected_changes(path: Path, states: States, first: int, cells: int | None) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for (*row, batch, kind), count in changes_of(states, first, cells).items():
        moment = micros(began(path, batch))
        found[*row, moment, moment, batch, kind] += count
    return found


def counted(rows: pa.Table, mode: str) -> Counter[Row]:
    """The rows, counted, with the model's columns in the model's order."""
    last = [*TIME_OF_A_ROW[mode], *REST[mode]]
    return multiset(rows.select([*(name for name in rows.column_names if name not in last), *last]))


def all_rows(table: Table) -> dict[int, pa.Table]:
    """The rows of each kept batch."""
    first, last = table.table.kept_versions()
    return {batch: table.scan(version=batch).read_all() for batch in range(first, last + 1)}


def left_rows(states: dict[int, pa.Table], key: tuple[str, ...], moments: list[int]) -> pa.Table:
    """Every row key that ever existed, at each of the moments (epoch microseconds)."""
    every = pa.concat_tables([state.select(key) for state in states.values()])
    cells = list(zip(*(plain(column.combine_chunks()) for column in _arrays(every)), strict=True))
    distinct = every.take(pa.array(list({cell: n for n, cell in enumerate(cells)}.values()), pa.int64()))
    parts = [
        distinct.append_column("t", pa.array([moment] * distinct.num_rows, pa.int64()).cast(TIME)) for moment in moments
    ]
    return pa.concat_tables(parts)


def _arrays(rows: pa.Table) -> list[Any]:
    return [pa.chunked_array([pa.concat_arrays(c.chunks)]) if c.num_chunks else c for c in rows.columns]

"""States read without any column have as many rows as in all columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pytest
from support.flink.fixtures import fixture, manifest

from statestore.formats.engine import StateAt
from statestore.formats.flink.flink_options import FlinkSettings
from statestore.formats.flink.opening import open_source
from statestore.formats.places.locations import parse_location


def _states(run: str) -> Iterator[tuple[str, StateAt]]:
    source = open_source(parse_location(str(fixture(run) / manifest(run)["snapshots"][0]["path"])), FlinkSettings())
    for state in source.states():
        yield state, source.at(state, source.newest(state))


def _rows(at: StateAt, columns: Collection[str]) -> list[pa.RecordBatch]:
    return [rows for part in at.parts(()) for rows in at.rows(part, columns, ())]


@pytest.mark.parametrize("run", ["heap-timers", "void-hashmap"])
def test_rows_can_be_counted_without_any_column(run: str) -> None:
    for state, at in _states(run):
        whole = sum(rows.num_rows for rows in _rows(at, at.schema.names))
        assert (state, sum(rows.num_rows for rows in _rows(at, ()))) == (state, whole)

"""Captures of each engine's state: the stores have what every version had, by version and by time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.engines.cases import CASES, rows_of
from support.engines.toys import write_package
from support.parameters import mostly_slow

import statestore
from statestore.catalog.warehouse import inspect, open_table
from statestore.connector.capture.looks import store_name
from statestore.formats.state_table import Query, StateTable

Row = tuple[Any, ...]


def read(table: StateTable, query: Query, names: tuple[str, ...]) -> Counter[Row]:
    query = Query(columns=names, version=query.version, as_of=query.as_of)
    batches = [batch for split in table.splits(query) for batch in table.read(split, query)]
    return rows_of(pa.Table.from_batches(batches, table.schema(query)))


@pytest.mark.parametrize("name", mostly_slow(list(CASES), ["toy", "flink rescaled", "spark spark4.3.0-agg__hdfs"]))
def test_every_version_is_in_the_stores(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are those of the case, without the columns that say where the engine keeps them."""
    monkeypatch.syspath_prepend(write_package(tmp_path / "toys.zip"))
    (tmp_path / "case").mkdir()
    case = CASES[name](tmp_path / "case")
    own = {state: state.rpartition(".")[2] if name.startswith("keyed") else state for state in case.states}
    path = f"{case.path}/sessions" if name.startswith("keyed") else case.path
    done = statestore.capture(path, tmp_path / "w", states=list(own.values()))
    assert {each.state for each in done.states} == set(own.values())
    for state, versions in case.states.items():
        source = inspect(case.path).open(state)
        store = open_table(tmp_path / "w" / store_name(own[state]))
        names = source.schema(Query()).names
        shown = [place for place, column in enumerate(names) if column not in source.placement_columns]
        kept = store.schema(Query()).names
        columns = tuple(names[place] if names[place] in kept else f"state_{names[place]}" for place in shown)
        taken = {row["batch"]: row["version"] for row in store.versions().to_pylist() if row["batch"] is not None}
        assert set(taken) == set(versions)
        for version, rows in versions.items():
            want = Counter[Row]()
            for row, count in rows.items():
                want[tuple(row[place] for place in shown)] += count
            assert read(store, Query(version=taken[version]), columns) == want
            assert read(store, Query(as_of=case.times[version]), columns) == want
    assert statestore.capture(path, tmp_path / "w", states=list(own.values())).versions == 0

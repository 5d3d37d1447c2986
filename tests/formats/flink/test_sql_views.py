"""State of SQL's aggregate functions and of variants, against what Flink's own serializers read in it.

``sql-views.tar.xz`` has canonical savepoints, and ``truth.jsonl`` beside each, which ``DumpSavepoint`` of
``tests/engines/flink/sql`` printed: ``functions-120`` and ``retract-120`` of Flink 1.20.3, ``variant-23`` of 2.3.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.archives import unpacked
from support.flink.snapshot_reads import rows_of, source_at
from support.flink.truth_rows import lines_of, lines_of_truth
from support.flink.value_model import column_of
from support.paths import DATA

from statestore.formats.flink.serializers.flink_types import Logical, RowDataOf
from statestore.formats.flink.source import FlinkSource
from statestore.formats.flink.state_at import KeyedAt

RUNS = ("functions-120", "retract-120", "variant-23")


def run(name: str) -> Path:
    return unpacked(DATA / "flink" / "sql-views.tar.xz") / name


@cache
def source(name: str) -> FlinkSource:
    return source_at(run(name) / "savepoint")


def states(name: str) -> Iterator[tuple[str, tuple[str, str], KeyedAt]]:
    """Name, operator and state, and the state of each keyed state."""
    found = source(name)
    for state in found.opened(found.refs[-1][0]).states().values():
        at = found.at(state.name, found.newest(state.name))
        if isinstance(at, KeyedAt):
            yield state.name, (state.identity[0], state.identity[2]), at


def with_sorted_maps(value: Any) -> Any:
    """JSON whose maps are in one order; texts of JSON are read, too."""
    if isinstance(value, dict) and set(value) == {"$map"}:
        return {"$map": sorted(map(with_sorted_maps, value["$map"]), key=json.dumps)}
    if isinstance(value, dict):
        return {name: with_sorted_maps(each) for name, each in value.items()}
    if isinstance(value, list):
        return [with_sorted_maps(each) for each in value]
    if isinstance(value, str) and value.startswith("{"):
        return with_sorted_maps(json.loads(value))
    return value


def sorted_lines(lines: dict[str, str]) -> dict[str, Any]:
    return {key: value and with_sorted_maps(json.loads(value)) for key, value in lines.items()}


@pytest.mark.parametrize("name", RUNS)
def test_every_state_has_the_rows_that_flink_reads(name: str) -> None:
    truth: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in (run(name) / "truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        truth.setdefault((row["operator"], row["state"]), []).append(row)
    compared = set()
    for state, place, at in states(name):
        if place not in truth or "Totals" in str(at.form.element):  # objects of the job's own class
            compared.add(place)
            continue
        lines = lines_of(at.form, rows_of(source(name), state))
        assert sorted_lines(lines) == sorted_lines(lines_of_truth(truth[place])), state
        compared.add(place)
    assert compared >= set(truth)


def test_views_have_no_column() -> None:
    values = [at for _, (_, state), at in states("functions-120") if state == "accState"]
    columns = {str(at.schema.field("value").type) for at in values if at.form.has_value}
    assert "struct<f0: struct<count: int64, last: string, sum: double>, f1: int64>" in columns
    assert not any("seen: binary" in each or "ids" in each for each in columns)
    assert [at.form.has_value for at in values].count(False) == 1  # of a function whose accumulator is made of views


def test_raw_values_of_kryo_have_the_type_of_what_they_hold() -> None:
    (column,) = [
        at.schema.field("value").type
        for _, (_, state), at in states("functions-120")
        if state == "accState" and "Totals" in str(at.form.element)
    ]
    assert column.field("f0").type == pa.map_(pa.string(), pa.list_(pa.int64()))
    assert column.field("f1").type == pa.binary()
    assert b"SqlFunctions$Totals" in column.field("f1").metadata[b"statestore.serializer"]


def test_an_absent_field_still_has_its_place_in_the_row() -> None:
    view = Logical("ABSENT")
    kind = Logical("ROW", children=(view, Logical("BIGINT"), Logical("ROW", children=(view,)), Logical("INTEGER")))
    row = bytes(8) + b"".join(each.to_bytes(8, "little") for each in (1 << 32, 7, 1 << 32, 9))
    column = column_of(RowDataOf(kind), len(row).to_bytes(4) + row)
    assert column.to_pylist() == [{"f1": 7, "f3": 9}]

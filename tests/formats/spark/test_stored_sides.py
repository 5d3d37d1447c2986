"""Copies in another layout are proven by their stored bytes: what a faulty writer does to them is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.checkpoints.spark_state_fixtures import checkpoint_path
from support.parameters import mostly_slow
from support.refusals import refused

from statestore.catalog.edits import apply, verification
from statestore.catalog.edits.apply import apply_edit
from statestore.formats.edits import EditOptions
from statestore.formats.errors import StateStoreError
from statestore.formats.places.locations import parse_location
from statestore.formats.spark import based_partitions
from statestore.formats.spark.source import open_source

Rows = Iterator[pa.RecordBatch]
AGG, FAMILIES = "spark4.3.0-agg__hdfs", "spark4.3.0-twsttl__rkcl"
LAYOUTS: list[tuple[str, dict[str, str]]] = [
    (AGG, {"partitions": "5"}),
    (AGG, {"compact": "true"}),
    (AGG, {"partitions": "3", "provider": "rocksdb"}),
    ("spark4.3.0-agg__rkcl", {"provider": "hdfs"}),
    (FAMILIES, {"partitions": "3"}),
    ("spark4.3.0-join__rkj4", {"partitions": "3"}),
]


def copy(name: str, target: Path, settings: dict[str, str]) -> None:
    source = open_source(parse_location(checkpoint_path(name)))
    apply_edit(source, source.checkpoint.batch.batch_id, [], target, EditOptions(settings=settings))


@pytest.mark.parametrize(("name", "settings"), mostly_slow(LAYOUTS, LAYOUTS[:3]))
def test_rows_that_are_moved_are_not_decoded(
    name: str, settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decoded(*given: Any) -> None:
        raise AssertionError("rows are decoded")

    monkeypatch.setattr(verification, "_check_rows", decoded)
    copy(name, tmp_path / "target", settings)
    assert (tmp_path / "target" / "edit.json").exists()


def whole(rows: Rows) -> pa.Table:
    return pa.Table.from_batches(rows, pa.schema([("key", pa.binary()), ("value", pa.binary())]))


def without_one(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


def exchanged(rows: pa.Table) -> pa.Table:
    """Two rows with each other's values."""
    values = rows.column(1).to_pylist()
    other = next(number for number, value in enumerate(values) if value != values[0])
    values[0], values[other] = values[other], values[0]
    return rows.set_column(1, "value", pa.array(values, pa.binary()))


def of_other_bits(rows: pa.Table) -> pa.Table:
    """A value with its last bit turned, which is one of padding that no column shows."""
    values = rows.column(1).to_pylist()
    values[0] = values[0][:-1] + bytes([values[0][-1] ^ 1])
    return rows.set_column(1, "value", pa.array(values, pa.binary()))


FAULTS: list[tuple[str, Callable[[pa.Table], pa.Table], str]] = [
    (AGG, without_one, "lacks a row"),
    (AGG, exchanged, "a row that it must"),
    (FAMILIES, without_one, ""),
    (AGG, of_other_bits, "is not stored as that of the source"),
]


@pytest.mark.parametrize(("name", "fault", "told"), mostly_slow(FAULTS, FAULTS[:2]))
def test_a_fault_of_the_writer_is_found(
    name: str, fault: Callable[[pa.Table], pa.Table], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = based_partitions.write_base
    faults: list[int] = []

    def faulty(checkpoint: Any, store: Any, number: int, rows: Rows, *given: Any) -> Any:
        table = whole(rows)
        if table.num_rows > 1 and not faults:
            faults.append(number)
            table = fault(table)
        return write(checkpoint, store, number, iter(table.combine_chunks().to_batches()), *given)

    monkeypatch.setattr(based_partitions, "write_base", faulty)
    call = lambda: copy(name, tmp_path / "target", {"partitions": "3"})  # noqa: E731
    refused(StateStoreError, "EDIT_DIFFERS", call, told)
    assert faults and not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("settings", "told"),
    [({"partitions": "3"}, "belong to another one"), ({"compact": "true"}, " is not stored as that of the source")],
)
def test_a_row_in_a_wrong_partition_is_found(
    settings: dict[str, str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows are there, one of them in the next partition that is written."""
    write = based_partitions.write_base
    kept: list[pa.Table] = []
    monkeypatch.setattr(apply, "processors", lambda: 1)

    def faulty(checkpoint: Any, store: Any, number: int, rows: Rows, *given: Any) -> Any:
        table = whole(rows)
        kept.append(table.slice(0, 1))
        table = table.slice(1) if len(kept) == 1 else pa.concat_tables([table, *kept[len(kept) - 2 : 1]])
        return write(checkpoint, store, number, iter(table.combine_chunks().to_batches()), *given)

    monkeypatch.setattr(based_partitions, "write_base", faulty)
    call = lambda: copy(AGG, tmp_path / "target", settings)  # noqa: E731
    refused(StateStoreError, "EDIT_DIFFERS", call, told)

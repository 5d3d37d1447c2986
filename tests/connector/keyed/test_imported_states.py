"""A keyed function goes on with states that were imported from an engine's operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support.engines.imported import made, one_operator, operator_engine
from support.keyed.keyed_rows import OUTPUT, Model, emitted, followed, some_rows, state, versions
from support.parameters import mostly_slow

import statestore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def imported(folder: Path, model: Model) -> Path:
    """A store with the states of `followed` after the rows of the model, imported from an operator with two tasks."""
    amounts = [(user, place, amount) for user, all_ in model.amounts.items() for place, amount in enumerate(all_)]
    users, places, values = (list(column) for column in zip(*amounts, strict=True))
    seen = {"key": list(model.amounts), "value": [len(all_) for all_ in model.amounts.values()]}
    states = (
        made("seen", "value", seen, value=pa.int64()),
        made(
            "amounts",
            "list",
            {"key": users, "position": places, "value": values},
            position=pa.int32(),
            value=pa.int64(),
        ),
    )
    with operator_engine():
        statestore.import_keyed(one_operator(folder, *states), folder / "w" / "users", key=["user"])
    return folder / "w" / "users"


@pytest.mark.parametrize(("tasks", "batches"), mostly_slow([(None, 2), (3, 2), (3, 1)], [(3, 1)]))
def test_batches_go_on_with_imported_states(
    spark: SparkSession, tmp_path: Path, tasks: int | None, batches: int
) -> None:
    model = Model()
    model.batch(some_rows(0))
    store = imported(tmp_path, model)
    for number in range(1, batches + 1):
        rows = some_rows(number)
        frame = spark.createDataFrame(rows, "user string, amount bigint").coalesce(1)
        answer = statestore.run_keyed(frame, followed, key="user", store=store, output=OUTPUT, tasks=tasks)
        assert emitted(answer) == model.batch(rows)
        assert state(store) == model.amounts
    assert versions(store) == list(range(1, batches + 2))


@pytest.mark.slow
def test_a_stream_goes_on_with_imported_states(spark: SparkSession, tmp_path: Path) -> None:
    model = Model()
    model.batch(some_rows(0))
    store = imported(tmp_path, model)
    rows = some_rows(1)
    frame = spark.createDataFrame(rows, "user string, amount bigint")
    frame.coalesce(1).write.parquet(str(tmp_path / "rows"))
    answers: list[Any] = []
    query = statestore.run_keyed_stream(
        spark.readStream.schema("user string, amount bigint").parquet(str(tmp_path / "rows")),
        followed,
        key="user",
        store=store,
        output=OUTPUT,
        sink=lambda found, batch: answers.append(emitted(found)),
        checkpoint=tmp_path / "checkpoint",
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    assert answers == [model.batch(rows)]
    assert state(store) == model.amounts

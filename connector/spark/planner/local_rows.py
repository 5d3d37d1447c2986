"""Rows that the driver reads while a query is planned: so few that no task is worth its start."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore.catalog.reads.arguments import keys_named
from statestore.connector.spark.jvm import CONNECTOR, Jvm
from statestore.connector.spark.planner.aggregation import Aggregate
from statestore.connector.spark.planner.read_plan import ReadPlan
from statestore.connector.spark.planner.task_scan import PlannedScan
from statestore.connector.spark.schema import arrow_schema
from statestore.formats.state_table import Query, StateTable

MOST_ROWS = 10_000  # that the driver returns
MOST_READ = 50_000  # that it reads for an aggregate or a filter
MOST_SUMMED = 10_000_000  # of which it reads numbers for an aggregate, at 10 ns each: a task takes longer to start
MOST_KEYS = 64
MOST_COLUMNS = 4
WIDE = ("string", "binary", "struct", "array", "map", "variant")


def read_here(plan: ReadPlan) -> pa.Table | None:
    """The rows of a small read; None if tasks have to read it."""
    known = _from_metadata(plan)
    if known is not None:
        return known
    partitions = plan.partitions()
    sizes = [partition.rows for partition in partitions]
    looked_up = few_keys(plan.table, plan.query)
    most = MOST_SUMMED if _is_summed(plan) else MOST_READ
    if not looked_up and (None in sizes or sum(rows or 0 for rows in sizes) > most):
        return None
    found: list[pa.RecordBatch] = []
    rows = 0
    for batch in plan.read_all(partitions):
        rows += batch.num_rows
        if rows > MOST_ROWS:
            return None
        found.append(batch)
    return pa.Table.from_batches(found, schema=arrow_schema(plan.result))


def _from_metadata(plan: ReadPlan) -> pa.Table | None:
    """The one row of an aggregation of all rows, where metadata has each of its values."""
    aggregation = plan.aggregation
    if aggregation is None or aggregation.groups:
        return None
    schema = arrow_schema(plan.result)
    found = []
    for item, field in zip(aggregation.functions, schema, strict=True):
        value = _value(plan, item)
        if value is None:
            return None
        found.append(pa.array([value.value], field.type))
    return pa.Table.from_arrays(found, schema=schema)


@dataclass(frozen=True)
class _Value:
    value: Any


def _value(plan: ReadPlan, item: Aggregate) -> _Value | None:
    """The value of a function; None where only a read finds it."""
    if item.function == "rows":
        rows = plan.table.count(plan.query)
        return None if rows is None else _Value(rows)
    if item.function not in ("min", "max") or item.column is None:
        return None
    bounds = plan.table.extremes(plan.query, item.column)
    return None if bounds is None else _Value(bounds[0 if item.function == "min" else 1])


def _is_summed(plan: ReadPlan) -> bool:
    """Return whether the read aggregates a few columns of numbers that lie in memory as they are."""
    if plan.aggregation is None or not plan.table.is_columnar or plan.query.mode != "state":
        return False
    return len(plan.schema) <= MOST_COLUMNS and all(field.dataType.typeName() not in WIDE for field in plan.schema)


def few_keys(table: StateTable, query: Query) -> bool:
    """Return whether the filters limit the rows to those of a few keys that the table can look up."""
    if query.mode != "state":
        return False
    keys = keys_named(table, query)
    return keys is not None and keys <= MOST_KEYS


class LocalRows(PlannedScan):
    """A scan whose rows are here already."""

    def __init__(self, jvm: Jvm, plan: ReadPlan, rows: pa.Table, description: str) -> None:
        super().__init__(jvm, plan, description)
        self._rows = rows

    def rows(self) -> Any:
        """The rows in Spark's own form, made from a stream of Arrow, as `SparkSession.createDataFrame` makes them."""
        python = self._jvm.kind("org.apache.spark.sql.api.python.PythonSQLUtils")
        descriptor, path = tempfile.mkstemp(prefix="statestore", suffix=".arrow")
        try:
            with os.fdopen(descriptor, "wb") as file, pa.ipc.new_stream(file, self._rows.schema) as stream:
                stream.write_table(self._rows)
            batches = python.readArrowStreamFromFile(path)
            frame = python.toDataFrame(batches, self._plan.result.json(), self._jvm.session)
        finally:
            Path(path).unlink()
        plan = frame.queryExecution().analyzed()
        if str(plan.getClass().getSimpleName()) != "LocalRelation":  # rows beyond a setting are in blocks of Spark
            return frame.queryExecution().executedPlan().executeCollect()
        row = self._jvm.kind("org.apache.spark.sql.catalyst.InternalRow")
        rows = self._jvm.gateway.new_array(row, len(self._rows))
        plan.data().copyToArray(rows)
        return rows

    class Java:
        implements = (CONNECTOR + "read.LocalScan",)

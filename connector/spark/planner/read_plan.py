"""Columns and rows that one read of a table returns to Spark, and how a task reads a split of it. Needs no JVM."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import BinaryType, StructField, StructType

from statestore.catalog.reads.arguments import keys_named
from statestore.connector.spark.errors import message_only
from statestore.connector.spark.partitions import TablePartition, partitions_of, read_partition
from statestore.connector.spark.planner.aggregation import Aggregate, Aggregation, partial_rows, result_schema
from statestore.connector.spark.schema import arrow_schema
from statestore.formats.places.reading_threads import reading_in_tasks
from statestore.formats.state_table import Query, StateTable


@dataclass(frozen=True)
class ReadPlan:
    """One read: ``schema`` are the columns of ``query`` as Spark has them.

    ``limit`` and ``orders`` hold for each split; ``aggregation`` is computed for each split. ``ranges``: the number of
    ranges of key hashes into which the rows are divided; None: as the table divides them. ``tasks``: the number of
    tasks that run side by side; None: each split has its own task.
    """

    table: StateTable
    query: Query
    schema: StructType
    limit: int | None = None
    orders: tuple[Order, ...] = ()
    aggregation: Aggregation | None = None
    ranges: int | None = None
    tasks: int | None = None

    @property
    def sent(self) -> StructType:
        """The columns as tasks send them: structs that are rows of Spark already are binary."""
        if not self.query.unsafe:
            return self.result
        return StructType(
            [StructField(f.name, BinaryType()) if f.name in self.query.unsafe else f for f in self.result]
        )

    @property
    def result(self) -> StructType:
        """The columns that Spark receives."""
        if self.aggregation is None:
            return self.schema
        found = result_schema(self.aggregation, self.schema)
        assert found is not None, "checked when the aggregation was pushed"
        return found

    def partitions(self) -> Sequence[TablePartition]:
        """The splits as partitions. An aggregation without groups has at least one, which returns its only row."""
        found = partitions_of(self.table, self.query, self.tasks)
        if not found and self.aggregation is not None:
            found = [TablePartition((), self.query)]
        return found

    def hashed_partitions(self) -> Sequence[tuple[int, TablePartition]]:
        """The splits as partitions, each with the number of its range of key hashes."""
        assert self.ranges is not None
        with message_only(), reading_in_tasks():
            splits = self.table.hashed_splits(self.query, self.ranges)
        assert splits is not None, "the scan was divided because the table divides it"
        return [(number, TablePartition((split,), self.query)) for number, split in splits]

    def read_all(self, partitions: Sequence[TablePartition]) -> Iterator[pa.RecordBatch]:
        """The rows of all partitions, in one process. An aggregation without groups is one row, if one row holds it."""
        if self.aggregation is None or self.aggregation.groups:
            return itertools.chain.from_iterable(self.read(each) for each in partitions)
        batches = (batch for each in partitions for batch in read_partition(self.table, each, self.schema))
        return partial_rows(batches, self.aggregation, self.result)

    def read(self, partition: TablePartition) -> Iterator[pa.RecordBatch]:
        """The rows of a partition, in the Arrow schema that Spark expects."""
        batches = read_partition(self.table, partition, self.sent if self.query.unsafe else self.schema)
        if self.aggregation is not None:
            return partial_rows(batches, self.aggregation, self.result)
        if self.limit is not None and self.orders:
            return top_rows(batches, self.orders, self.limit)
        return batches if self.limit is None else limited(batches, self.limit)


def unconverted(plan: ReadPlan) -> ReadPlan:
    """The plan that leaves structs as the table stores them, where it stores rows of Spark.

    A row of Spark holds a struct as the bytes of another row, and does not know the type of a cell. So the source may
    declare these columns as binary, and the scan as structs: Spark copies the bytes, and finds the struct in them.
    Nothing is converted on either side. Rows that tasks sort or aggregate are decoded.
    """
    if plan.aggregation is not None or plan.orders:
        return plan
    columns = plan.table.unsafe_columns(plan.query)
    return plan if not columns else replace(plan, query=replace(plan.query, unsafe=columns))


def task_of(plan: ReadPlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that Spark runs in a task: it gets a pickled partition as the only cell of a batch."""
    return Task(replace(plan, table=plan.table.for_tasks()))


class Task:
    """A read as the function of a Spark task. Spark pickles it in the driver."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan

    def __call__(self, cells: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        data: Any = [batch.column(0)[0].as_py() for batch in cells]
        partition = pickle.loads(data[-1])  # the driver of this query pickled it
        assert isinstance(partition, TablePartition)
        return self._plan.read(partition)


# The first rows of a split: as many as a limit asks for, in any order or in that of some columns.

MAX_SORTED = 10_000  # rows that a task holds; without, the first 10 of five million rows take eight times as long


@dataclass(frozen=True)
class Order:
    """One column of an order. Nulls come first or last, NaN is greater than every number, as in Spark."""

    column: str
    descending: bool
    nulls_first: bool


def limited(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """At most ``limit`` rows; no further batch is read."""
    left = limit
    if left <= 0:
        return
    for batch in batches:
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def top_rows(batches: Iterable[pa.RecordBatch], orders: tuple[Order, ...], limit: int) -> Iterator[pa.RecordBatch]:
    """The first ``limit`` rows in an order, sorted."""
    best: pa.RecordBatch | None = None
    for batch in batches:
        both = batch if best is None else pa.concat_batches([best, batch])
        best = both.take(_sorted(both, orders)[:limit])
    if best is not None and best.num_rows:
        yield best


def can_sort(kind: pa.DataType) -> bool:
    """Return whether values of the type are ordered by Arrow as they are by Spark."""
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    texts = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return bool(
        plain or texts or pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_decimal128(kind)
    )


def _sorted(batch: pa.RecordBatch, orders: tuple[Order, ...]) -> pa.Array:
    arrays: list[pa.Array] = []
    keys: list[tuple[str, str]] = []

    def by(array: pa.Array, descending: bool) -> None:
        keys.append((str(len(arrays)), "descending" if descending else "ascending"))
        arrays.append(array)

    for order in orders:
        column = batch.column(order.column)
        if column.null_count:
            by(pc.is_null(column), order.nulls_first)
        if pa.types.is_floating(column.type):
            by(pc.fill_null(pc.is_nan(column), False), order.descending)
        by(column, order.descending)
    return pc.sort_indices(pa.table(arrays, names=[name for name, _ in keys]), sort_keys=keys)


# Rows that the driver reads while a query is planned: so few that no task is worth its start.

MOST_ROWS = 10_000  # that the driver returns
# That it reads for an aggregate or a filter. By tasks, a read of 2,000 rows takes 1.6 times as long.
MOST_READ = 50_000
# Of which it reads numbers for an aggregate, at 10 ns each: a task takes longer to start. By tasks, the sum of a column
# takes 1.4 times as long with a million rows, and four times with five million.
MOST_SUMMED = 10_000_000
MOST_CELLS = 40_000_000  # of all its columns: six of five million rows take 1.8 s (4.0 s by two tasks)
# That it looks up, alone: 1,000 of five million rows take 1.6 s (2.1 s by two tasks), 5,000 would take 9 s.
MOST_KEYS = 1_000
WIDE = ("string", "binary", "struct", "array", "map", "variant")


def read_here(plan: ReadPlan) -> pa.Table | None:
    """The rows of a small read; None if tasks have to read it."""
    known = _from_metadata(plan)
    if known is not None:
        return known
    partitions = plan.partitions()
    sizes = [partition.rows for partition in partitions]
    looked_up = few_keys(plan.table, plan.query)
    most = min(MOST_SUMMED, MOST_CELLS // max(len(plan.schema), 1)) if _is_summed(plan) else MOST_READ
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
    if item.function not in ("min", "max") or item.column is None or item.path:
        return None
    bounds = plan.table.extremes(plan.query, item.column)
    return None if bounds is None else _Value(bounds[0 if item.function == "min" else 1])


def _is_summed(plan: ReadPlan) -> bool:
    """Return whether the read aggregates columns of numbers that lie in memory as they are."""
    if plan.aggregation is None or not plan.table.is_columnar or plan.query.mode != "state":
        return False
    return all(field.dataType.typeName() not in WIDE for field in plan.schema)


def few_keys(table: StateTable, query: Query) -> bool:
    """Return whether the filters limit the rows to those of a few keys that the table can look up."""
    if query.mode != "state":
        return False
    keys = keys_named(table, query)
    return keys is not None and keys <= MOST_KEYS

"""One split as one Spark partition, and its batches in the form that Spark expects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from statestore.connector.spark.errors import message_only
from statestore.connector.spark.intervals import calendar_parts
from statestore.connector.spark.schema import arrow_schema
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.places.reading_threads import limit_reading_threads, reading_in_tasks
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.comparable_values import comparable
from statestore.formats.values.exact_cast import retyped

BATCH_ROWS = 1 << 16
BATCH_BYTES = 1 << 25
"""Rows and bytes that one batch sends to Spark at most, because both sides hold it in whole.

Larger batches save nothing: from 16,384 rows on all cost the same, of 60 bytes as well as of 2.4 kB. With 2,048 rows a
read costs a fifth more.
"""


MOST_GROUPED = 8
"""Splits of unknown size that one task reads at most."""


@dataclass
class TablePartition(InputPartition):
    """Splits of the result of ``query``, which one task reads one after another; none for a read without any row."""

    splits: tuple[Any, ...]
    query: Query

    @property
    def rows(self) -> int | None:
        """Upper bound of the rows; None: unknown until they are read."""
        known = [split.rows for split in self.splits]
        return None if None in known else sum(known)


def partitions_of(table: StateTable, query: Query, tasks: int | None = None) -> Sequence[TablePartition]:
    """The splits of the query as partitions: one each, or where their sizes are unknown in about ``tasks`` groups.

    A store of an engine often has many more partitions than Spark has cores, and a task costs as much as reading some
    ten thousand rows.
    """
    with message_only(), reading_in_tasks():
        splits = table.splits(query)
    if tasks is None or len(splits) <= tasks or any(split.rows is not None for split in splits):
        return [TablePartition((split,), query) for split in splits]
    groups = max(tasks, -(-len(splits) // MOST_GROUPED))
    return [TablePartition(tuple(splits[number::groups]), query) for number in range(groups)]


def read_partition(table: StateTable, partition: InputPartition, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a partition in the Arrow schema that Spark expects, at most BATCH_ROWS and BATCH_BYTES in a batch."""
    assert isinstance(partition, TablePartition)
    expected = arrow_schema(schema)
    limit_reading_threads(1)  # a task of Spark has one core; others run beside it
    with message_only():
        for split in partition.splits:
            for batch in table.read(split, partition.query):
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    for piece in _cut(batch.slice(start, BATCH_ROWS)):
                        yield _as_spark_has_it(piece, expected)


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in order, in batches of at most BATCH_BYTES; a row that has more is a batch of its own."""
    if batch.num_rows <= 1 or batch.nbytes <= BATCH_BYTES:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _cut(batch.slice(0, middle))
    yield from _cut(batch.slice(middle))


def _as_spark_has_it(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the names that Spark gives to fields inside lists and maps; plain columns are not copied."""
    exchanged = [calendar_parts(column) for column in batch.columns]
    for column, field in zip(batch.columns, schema, strict=True):
        if column.null_count and not field.nullable:  # Spark would report corrupt data
            raise InvalidInputError(
                ErrorCode.NULL_NOT_EXPECTED,
                f"column {field.name!r} holds a null, but the schema given to the read says NOT NULL; leave that out",
            )
    columns = [
        column if column.type == field.type else _cast(column, field)
        for column, field in zip(exchanged, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        found: pa.Array = retyped(column, field.type)
        if _narrows(column.type, field.type) and not comparable(found.cast(column.type)).equals(comparable(column)):
            raise pa.ArrowInvalid("a number would be rounded")
        return found
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        if _has_nanoseconds(column.type):
            raise UnsupportedError(
                ErrorCode.UNSUPPORTED_TYPE,
                f"column {field.name!r} has times with nanoseconds, which Spark's {field.type} does not hold "
                f"({error}); leave the column out, read it in Python, or as text if an option of the engine (type) "
                "allows that",
            ) from error
        raise InvalidInputError(
            ErrorCode.SCHEMA_CHANGED,
            f"column {field.name!r} now holds {column.type}, but the query was planned for {field.type} ({error}); "
            "restart it, or leave out the schema given to the read",
        ) from error


def _has_nanoseconds(kind: pa.DataType) -> bool:
    """Return whether a type has times in nanoseconds, at any depth."""
    if pa.types.is_nested(kind):
        return any(_has_nanoseconds(kind.field(number).type) for number in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind)) and "[ns" in str(kind)


def _narrows(given: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether doubles become floats, at any depth."""
    if pa.types.is_float64(given):
        return bool(pa.types.is_float32(kind))
    if not pa.types.is_nested(given) or given.num_fields != kind.num_fields:
        return False
    return any(_narrows(given.field(n).type, kind.field(n).type) for n in range(given.num_fields))

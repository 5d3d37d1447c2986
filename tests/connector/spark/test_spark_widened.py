"""A query that was planned before a type was widened: values that its type holds are read, others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, DataType, FloatType, IntegerType, StructField, StructType

from statestore.connector.spark.partitions import TablePartition, read_partition
from statestore.formats.state_table import Query, StateTable


@dataclass(frozen=True)
class Widened:
    """A table of one column."""

    values: pa.Array

    def read(self, split: Any, query: Query) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_arrays([self.values], names=["v"])


def read(values: pa.Array, kind: DataType) -> list[Any]:
    partition = TablePartition(("split",), Query())
    schema = StructType([StructField("v", kind)])
    table = cast(StateTable, Widened(values))
    return [cell for batch in read_partition(table, partition, schema) for cell in batch.column(0).to_pylist()]


def test_values_that_fit_are_read() -> None:
    assert read(pa.array([1, None], pa.int64()), IntegerType()) == [1, None]
    assert read(pa.array([0.5, None, float("inf")]), FloatType()) == [0.5, None, float("inf")]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1 << 40]), IntegerType()),
        (pa.array([0.1]), FloatType()),
        (pa.array([[0.5, 0.1]]), ArrayType(FloatType())),
        (pa.array(["x"]), IntegerType()),
    ],
    ids=str,
)
def test_values_that_do_not_are_refused(values: pa.Array, kind: DataType) -> None:
    with pytest.raises(Exception, match="SCHEMA_CHANGED"):
        read(values, kind)

"""Rows of a DataFrame moved to tasks by ranges of key groups, in the order that they have in the DataFrame.

A task of a write then has all rows of its keys, and the driver has no keys of several tasks to join.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructType

from statestore.catalog.log.store_spec import StoreSpec
from statestore.formats.values.exact_cast import cast_exactly
from statestore.formats.values.key_hash import hash_keys, key_groups_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASK, ORDER = "__statestore_task", "__statestore_order"


def moved_by_key(rows: DataFrame, spec: StoreSpec, tasks: int) -> DataFrame:
    """Return the rows in ``tasks`` partitions, each with a range of key groups, in order of the DataFrame."""
    count = max(1, min(tasks, spec.key_groups))
    ordered = rows.withColumn(ORDER, F.monotonically_increasing_id())
    schema = StructType([*ordered.schema.fields]).add(TASK, IntegerType())
    key = spec.key
    groups = spec.key_groups

    def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            task = task_numbers(batch, key, groups, count)
            yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(task)], names=[*batch.schema.names, TASK])

    moved = ordered.mapInArrow(numbered, schema).repartitionById(count, TASK)
    return moved.sortWithinPartitions(ORDER).drop(ORDER, TASK)


def task_numbers(batch: pa.RecordBatch, key: pa.Schema, groups: int, count: int) -> npt.NDArray[np.int32]:
    """Return the task of each row.

    Rows whose key the store does not take go to the first task, which reports them.
    """
    names = [name.lower() for name in batch.schema.names]
    try:
        columns = [cast_exactly(batch.column(names.index(field.name.lower())), field.type) for field in key]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return np.zeros(batch.num_rows, np.int32)
    found = key_groups_of(hash_keys(columns), groups)
    return (found * count // groups).astype(np.int32)

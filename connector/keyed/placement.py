"""The assignment of rows to tasks by key group: one shuffle, to the partition with the task's number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as f

from statestore.connector.keyed.keyed_job import KeyedJob, key_column
from statestore.formats.errors import StateStoreError
from statestore.formats.values.key_groups import key_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASK, ARRIVAL = "__statestore_task", "__statestore_arrival"


def with_tasks(rows: DataFrame, job: KeyedJob, groups: Sequence[range]) -> DataFrame:
    """Return the task, the position in the DataFrame, and the columns, shuffled to the partitions of the tasks.

    Columns are named by number, because PySpark takes a name with a dot for a path. Each task gets one more row,
    without a position, so that every task runs even where Spark drops empty partitions, and so that a partition knows
    its tasks if it has several.
    """
    names = [f"c{index}" for index in range(len(job.rows))]
    task = _task_of(job, groups)(*(names[index] for index in job.key))
    arrived = rows.toDF(*names).withColumn(ARRIVAL, f.monotonically_increasing_id())
    with_task = arrived.select(task.alias(TASK), ARRIVAL, *names)
    empty = [f.lit(None).cast(field.dataType).alias(field.name) for field in with_task.schema.fields[1:]]
    starters = rows.sparkSession.range(0, len(groups), 1, 1).select(f.col("id").cast("int").alias(TASK), *empty)
    return with_task.unionAll(starters).repartitionById(len(groups), TASK)


def _task_of(job: KeyedJob, groups: Sequence[range]) -> Any:
    """A function of the key columns that returns the number of the task, or null where a key is null or not of the
    store's type. Rows with null go to the first task, which reports the error."""
    firsts = np.array([each.start for each in groups])
    columns, most = job.columns, job.key_groups
    names = [job.rows.field(index).name for index in job.key]

    def task_of(first: pa.Array, *others: pa.Array) -> pa.Array:
        key_columns = (first, *others)
        has_key = np.ones(len(first), bool)
        for column in key_columns:
            if column.null_count:
                has_key &= column.is_valid().to_numpy(zero_copy_only=False)
        try:
            whole = has_key.all()
            keys = [
                key_column(column if whole else column.filter(pa.array(has_key)), field, name)
                for column, field, name in zip(key_columns, columns, names, strict=True)
            ]
        except StateStoreError:
            return pa.nulls(len(first), pa.int32())
        tasks = np.zeros(len(first), np.int32)
        if has_key.any():
            tasks[has_key] = np.searchsorted(firsts, key_groups(keys, most), "right") - 1
        return pa.array(tasks, pa.int32(), mask=~has_key)

    functions: Any = f  # its stubs lack arrow_udf
    return functions.arrow_udf(task_of, "int")

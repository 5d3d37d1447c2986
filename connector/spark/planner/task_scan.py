"""A scan that Spark's tasks read: one task for each split, in Spark's own reader for Python sources.

The driver plans it, so no planning process is started. Partitions and the function of the tasks are made here in the
form in which Spark's Python data source has them (`PythonInputPartition`, `PythonPartitionReaderFactory`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.types import StructType
from pyspark.sql.udf import _wrap_function

from statestore.connector.spark.filters import limits_of
from statestore.connector.spark.jvm import CONNECTOR, JavaObject, Jvm, answering
from statestore.connector.spark.partitions import TablePartition
from statestore.connector.spark.planner.read_plan import ReadPlan, task_of
from statestore.connector.spark.schema import arrow_schema
from statestore.connector.spark.source import StateStoreSource

PYTHON = "org.apache.spark.sql.execution.datasources.v2.python."


class PlannedScan(JavaObject):
    """The columns of a plan, and its text in EXPLAIN."""

    def __init__(self, jvm: Jvm, plan: ReadPlan, description: str) -> None:
        super().__init__(jvm)
        self._plan = plan
        self._description = description

    def readSchema(self) -> Any:
        return self._jvm.struct(self._plan.result)

    def description(self) -> str:
        return self._description

    def supportedCustomMetrics(self) -> Any:
        return self._jvm.array(CONNECTOR + "metric.CustomMetric", ())

    def reportDriverMetrics(self) -> Any:
        return self._jvm.array(CONNECTOR + "metric.CustomTaskMetric", ())

    def columnarSupportMode(self) -> Any:
        return self._jvm.constant(CONNECTOR + "read.Scan$ColumnarSupportMode", "UNSUPPORTED")


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


class TaskScan(PlannedScan):
    """The scan of a plan."""

    def __init__(self, jvm: Jvm, plan: ReadPlan, description: str) -> None:
        super().__init__(jvm, plan, description)
        self._partitions: Sequence[TablePartition] | None = None

    # Statistics

    @answering
    def estimateStatistics(self) -> Any:
        rows = self._rows()
        width = self._jvm.struct(self._plan.result).defaultSize()
        return _TableStatistics(self._jvm, rows, None if rows is None else rows * max(1, width))

    def estimateSizeInBytes(self) -> Any:
        return self.estimateStatistics().sizeInBytes()

    def reflectsFullyPushedDownFilters(self) -> bool:
        return False

    def _rows(self) -> int | None:
        """An upper bound of the rows; None if a split does not know its own."""
        found = 0
        for partition in self._planned():
            if partition.rows is None:
                return None
            found += partition.rows
        limit = self._plan.limit
        return found if limit is None else min(found, limit * len(self._planned()))

    # Filters that a join makes while the query runs

    def filterAttributes(self) -> Any:
        """The columns of the key: a filter on them is a look-up."""
        names = self._plan.table.row_key if self._plan.aggregation is None else ()
        return self._jvm.references(name for name in names if name in self._plan.schema.names)

    @answering
    def filter(self, predicates: Any) -> None:
        schema = arrow_schema(self._plan.schema)
        found = [limit for each in predicates for limit in limits_of(each, schema)]
        if found:
            query = replace(self._plan.query, filters=(*self._plan.query.filters, *found))
            self._plan = replace(self._plan, query=query)
            self._partitions = None

    def pushedPredicates(self) -> Any:
        return self._jvm.array(CONNECTOR + "expressions.filter.Predicate", ())

    def supportsIterativePushdown(self) -> bool:
        return False

    # Tasks

    @answering
    def toBatch(self) -> TaskBatch:
        return TaskBatch(self._jvm, self._plan, self._planned(), self._description)

    def _planned(self) -> Sequence[TablePartition]:
        if self._partitions is None:
            self._partitions = self._plan.partitions()
        return self._partitions

    class Java:
        implements = (CONNECTOR + "read.SupportsReportStatistics", CONNECTOR + "read.SupportsRuntimeV2Filtering")


class TaskBatch(JavaObject):
    """The partitions of a scan, and the function that reads one of them."""

    def __init__(self, jvm: Jvm, plan: ReadPlan, partitions: Sequence[TablePartition], description: str) -> None:
        super().__init__(jvm)
        self._plan = plan
        self._partitions = partitions
        self._description = description

    def identity(self) -> tuple[Any, ...]:
        plan = self._plan
        return plan.table.identity, self._description, plan.query, plan.result.json(), plan.limit, plan.orders

    def planInputPartitions(self) -> Any:
        partition = self._jvm.kind(PYTHON + "PythonInputPartition")
        dump = _pickler().dumps
        made = [partition(number, bytearray(dump(each))) for number, each in enumerate(self._partitions)]
        return self._jvm.array(CONNECTOR + "read.InputPartition", made)

    def createReaderFactory(self) -> Any:
        function = task_of(self._plan)
        command = _pickler().dumps((function, self._plan.sent))
        return _reader_factory(self._jvm, command, self._plan.sent)

    class Java:
        implements = (CONNECTOR + "read.Batch",)


def _pickler() -> Any:
    kind: Any = CloudPickleSerializer
    return kind()


def _reader_factory(jvm: Jvm, command: bytes, schema: StructType) -> Any:
    """Spark's own factory of readers that run a pickled function in a Python worker."""
    context: Any = jvm.spark.sparkContext
    source = jvm.kind(PYTHON + "UserDefinedPythonDataSource")(_wrap_function(context, StateStoreSource))
    kind = jvm.kind(PYTHON + "PythonPartitionReaderFactory")
    artifacts = jvm.none()
    given = (source, bytearray(command), jvm.struct(schema), artifacts)
    return kind(*given, jvm.none()) if _takes_session(jvm) else kind(*given)


def _takes_session(jvm: Jvm) -> bool:
    """Return whether the factory also takes the id of a session, as since Spark 4.2."""
    found = jvm.kind("java.lang.Class").forName(PYTHON + "PythonPartitionReaderFactory")
    return bool(len(found.getConstructors()[0].getParameterTypes()) > 4)


class _TableStatistics(JavaObject):
    """Rows and bytes that a scan returns at most; None: unknown."""

    def __init__(self, jvm: Jvm, rows: int | None, size: int | None) -> None:
        super().__init__(jvm)
        self._rows = rows
        self._size = size

    def sizeInBytes(self) -> Any:
        return self._jvm.optional_long(self._size)

    def numRows(self) -> Any:
        return self._jvm.optional_long(self._rows)

    def columnStats(self) -> Any:
        return self._jvm.map()

    class Java:
        implements = (CONNECTOR + "read.Statistics",)

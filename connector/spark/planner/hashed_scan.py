"""A scan whose partitions hold the keys of one range of hashes each: Spark joins and groups them where they are.

Spark's storage-partitioned joins compare a function of the key that both sides report, and the value of that function
in each partition. Here the function gives the number of the range. Spark never calls it: it moves no rows by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.serializers import CloudPickleSerializer

from statestore.connector.spark.jvm import CONNECTOR, REPLACED_WHEN_SENT, JavaObject, Jvm, answering, thrown
from statestore.connector.spark.partitions import TablePartition
from statestore.connector.spark.planner.task_scan import PYTHON, TaskBatch, TaskScan

FUNCTION = "bucket"
"""The only function of Spark's own transforms that takes a number and a column."""


class HashedScan(TaskScan):
    """The scan of a plan that is divided by ranges of key hashes."""

    def outputPartitioning(self) -> Any:
        ranges = self._plan.ranges
        texts = self._jvm.array("java.lang.String", self._plan.table.row_key)
        function = self._jvm.static(CONNECTOR + "expressions.Expressions", FUNCTION)(ranges, texts)
        keys = self._jvm.array(CONNECTOR + "expressions.Expression", [function])
        return self._jvm.kind(CONNECTOR + "read.partitioning.KeyGroupedPartitioning")(keys, ranges)

    @answering
    def toBatch(self) -> TaskBatch:
        return HashedBatch(self._jvm, self._plan, self._planned(), self._description)

    def _planned(self) -> Sequence[TablePartition]:
        return [partition for _, partition in self._plan.hashed_partitions()]

    class Java:
        implements = (*TaskScan.Java.implements, CONNECTOR + "read.SupportsReportPartitioning")


class HashedBatch(TaskBatch):
    """The partitions of a divided scan."""

    _held: Sequence[tuple[int, TablePartition]] = ()

    def planInputPartitions(self) -> Any:
        found = self._held = self._plan.hashed_partitions()  # they keep their files while the tasks run
        made = [
            HashedPartition(self._jvm, position, number, CloudPickle.dumps(partition))
            for position, (number, partition) in enumerate(found)
        ]
        return self._jvm.array(CONNECTOR + "read.InputPartition", made)


class HashedPartition(JavaObject):
    """A partition that knows its range. Spark sends its own kind of partition to the task instead."""

    def __init__(self, jvm: Jvm, position: int, number: int, pickled: bytes) -> None:
        super().__init__(jvm)
        self._position = position
        self._number = number
        self._pickled = pickled

    def partitionKey(self) -> Any:
        values = self._jvm.gateway.new_array(self._jvm.kind("java.lang.Object"), 1)
        values[0] = self._number
        return self._jvm.kind("org.apache.spark.sql.catalyst.expressions.GenericInternalRow")(values)

    def preferredLocations(self) -> Any:
        return self._jvm.array("java.lang.String", ())

    def writeReplace(self) -> Any:
        return self._jvm.kind(PYTHON + "PythonInputPartition")(self._position, bytearray(self._pickled))

    class Java:
        implements = (CONNECTOR + "read.HasPartitionKey", REPLACED_WHEN_SENT)


class RangeFunctions(JavaObject):
    """A catalog of this function, which Spark asks for it by the table's name."""

    def initialize(self, name: str, options: Any) -> None:
        """Spark calls this for catalogs that it makes by itself."""

    def name(self) -> str:
        return "statestore"

    def defaultNamespace(self) -> Any:
        return self._jvm.array("java.lang.String", ())

    def listFunctions(self, namespace: Any) -> Any:
        return self._jvm.array(CONNECTOR + "catalog.Identifier", ())

    def functionExists(self, identifier: Any) -> bool:
        return str(identifier.name()) == FUNCTION

    @answering
    def loadFunction(self, identifier: Any) -> RangeFunction:
        if not self.functionExists(identifier):
            missing = "org.apache.spark.sql.catalyst.analysis.NoSuchFunctionException"
            raise thrown(self._jvm.kind(missing)(identifier))
        return RangeFunction(self._jvm)

    class Java:
        implements: tuple[str, ...] = (CONNECTOR + "catalog.FunctionCatalog",)


class RangeFunction(JavaObject):
    """The function that gives the number of a key's range; Spark binds it to the types of its arguments."""

    def name(self) -> str:
        return FUNCTION

    def description(self) -> str:
        return "the number of the range of key hashes to which a key belongs"

    def bind(self, types: Any) -> Any:
        return BoundRangeFunction(self._jvm, types)

    class Java:
        implements = (CONNECTOR + "catalog.functions.UnboundFunction",)


class BoundRangeFunction(JavaObject):
    """The function for keys of one type. Tasks have no use for it, so null is sent to them."""

    def __init__(self, jvm: Jvm, types: Any) -> None:
        super().__init__(jvm)
        self._types = types

    def identity(self) -> tuple[Any, ...]:
        return (self.canonicalName(),)

    def name(self) -> str:
        return FUNCTION

    def canonicalName(self) -> str:
        return "statestore.key_hash_range"

    def inputTypes(self) -> Any:
        kinds = [field.dataType() for field in self._types.fields()]
        return self._jvm.array("org.apache.spark.sql.types.DataType", kinds)

    def resultType(self) -> Any:
        return self._jvm.static("org.apache.spark.sql.types.DataType", "fromJson")('"integer"')

    def isResultNullable(self) -> bool:
        return False

    def isDeterministic(self) -> bool:
        return True

    def writeReplace(self) -> None:
        return None

    class Java:
        implements = (CONNECTOR + "catalog.functions.BoundFunction", REPLACED_WHEN_SENT)


CloudPickle: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]

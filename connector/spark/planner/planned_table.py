"""A table of this package as Spark's planner sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.types import StructType

from statestore.connector.options import checked_options
from statestore.connector.spark.jvm import CONNECTOR, JavaObject, Jvm, answering, entries
from statestore.connector.spark.planner.scan_builder import TableScanBuilder
from statestore.connector.spark.schema import spark_schema
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.state_table import Query, StateTable

_OF_SPARK = frozenset(("versionasof", "timestampasof"))
_PYTHON_TABLE = "org.apache.spark.sql.execution.datasources.v2.python.PythonTable"


@dataclass(frozen=True)
class Face:
    """A table at one moment: what ``query`` asks of it. ``name`` is how Spark's plans call it.

    ``marked``: the metadata of columns holds the types of intervals that are read as numbers. ``applied``: the options
    of a reader, in lower case, that the query has taken in.
    """

    name: str
    table: StateTable
    query: Query
    marked: bool = False
    applied: frozenset[str] = frozenset()

    @property
    def schema(self) -> StructType:
        fields = self.table.schema(self.query)
        return spark_schema(fields, marked=self.marked, event_times=self.query.mode == "state")

    @property
    def shown(self) -> str:
        """The table and its moment, for EXPLAIN."""
        query = self.query
        version = query.version if query.version is not None else self.table.kept_versions()[1]
        mode = "" if query.mode == "state" else f" {query.mode}"
        return f"{self.table.name}{mode} version {version}" + ("" if query.as_of is None else f" as of {query.as_of}")


class PlannedTable(JavaObject):
    """A table that can be read."""

    _can: tuple[str, ...] = ("BATCH_READ",)

    def __init__(self, jvm: Jvm, face: Face, properties: dict[str, str] | None = None) -> None:
        super().__init__(jvm)
        self._face = face
        self._schema = face.schema
        self._struct: Any = None
        self._properties = properties or {}

    def identity(self) -> tuple[Any, ...]:
        """The table and what is asked of it. Two tables at the newest version are equal: a plan reads one version."""
        return self._face.table.identity, self._face.query, self._face.name

    def name(self) -> str:
        return self._face.name

    def id(self) -> str:
        """The table at its version: Spark 4.3 gives a cached table's rows for every table of its name and id."""
        query = self._face.query
        version = query.version if query.version is not None else self._face.table.kept_versions()[1]
        return f"{self._face.table.identity} version {version}"

    def version(self) -> None:
        return None

    def schema(self) -> Any:
        if self._struct is None:
            self._struct = self._jvm.struct(self._schema)
        return self._struct

    def columns(self) -> Any:
        """The columns as Spark makes them for a table of a Python source."""
        return self._jvm.kind(_PYTHON_TABLE)(None, self._face.name, self.schema()).columns()

    def partitioning(self) -> Any:
        return self._jvm.array(CONNECTOR + "expressions.Transform", ())

    def constraints(self) -> Any:
        return self._jvm.array(CONNECTOR + "catalog.constraints.Constraint", ())

    def properties(self) -> Any:
        return self._jvm.map(self._properties)

    def capabilities(self) -> Any:
        return self._jvm.set(self._jvm.constant(CONNECTOR + "catalog.TableCapability", name) for name in self._can)

    def reportDriverMetrics(self) -> Any:
        """Nothing: Spark 4.3 asks the target of a DELETE."""
        return self._jvm.array(CONNECTOR + "metric.CustomTaskMetric", ())

    @answering
    def newScanBuilder(self, options: Any) -> TableScanBuilder:
        face = self._face
        given = {} if options.isEmpty() else checked_options(entries(options), "read")
        left = sorted(given.keys() - face.applied - _OF_SPARK)
        if left:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"option {left[0]} of spark.read.table needs Spark 4.3, this is {self._jvm.spark.version}; name a "
                "table such as state.prices.history, or load the path with spark.read.format('arrow_statestore')",
            )
        planned = replace(face, table=face.table.for_plan())
        return TableScanBuilder(self._jvm, planned.table, face.query, self._schema, planned.shown, face.table)

    class Java:
        implements = (CONNECTOR + "catalog.SupportsRead",)

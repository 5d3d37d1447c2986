"""A table of this package as Spark's planner sees it, and ``spark.read.format("statestore").load(path)`` as one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql.types import StructType

from statestore.catalog.warehouse import open_table
from statestore.connector.options import SESSION_TIME_ZONE, checked_options, intervals_as_numbers, query_of
from statestore.connector.spark.jvm import CONNECTOR, JavaObject, Jvm, answering, entries, listen
from statestore.connector.spark.location import checked_path, session_settings, with_settings
from statestore.connector.spark.planner.hashed_scan import RangeFunctions
from statestore.connector.spark.planner.scan_builder import TableScanBuilder
from statestore.connector.spark.schema import spark_schema
from statestore.connector.spark.source import as_spelled
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.state_table import Query, StateTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


class Changes(JavaObject):
    """The change feed of a table as Spark's changelog.

    Rows are those of `Table.changes`: each update has its row before and after.
    """

    def __init__(self, jvm: Jvm, face: Face) -> None:
        super().__init__(jvm)
        self._face = face
        self._table = PlannedTable(jvm, face)

    def identity(self) -> tuple[Any, ...]:
        return self._table.identity()

    def name(self) -> str:
        return self._face.name

    def columns(self) -> Any:
        return self._table.columns()

    def containsCarryoverRows(self) -> bool:
        return False

    def containsIntermediateChanges(self) -> bool:
        return True

    def representsUpdateAsDeleteAndInsert(self) -> bool:
        return False

    def rowId(self) -> Any:
        return self._jvm.references(self._face.table.row_key)

    def rowVersion(self) -> Any:
        return self._jvm.static(CONNECTOR + "expressions.Expressions", "column")("_commit_version")

    @answering
    def newScanBuilder(self, options: Any) -> TableScanBuilder:
        return self._table.newScanBuilder(options)

    class Java:
        implements = (CONNECTOR + "catalog.Changelog",)


# `spark.read.format("statestore").load(path)` as a table that Spark's planner shapes.

ZONE_CONF = "spark.sql.session.timeZone"


def planned_frame(spark: SparkSession, path: str | None, options: Mapping[str, Any]) -> DataFrame:
    """The DataFrame of a table at a path, read as the options of a batch read ask.

    Raises AnalysisException with this package's text for a path, option, version or time that cannot be read.
    """
    given = {name: str(value) for name, value in options.items()}
    given |= {} if path is None else {"path": path}
    given |= {name: value for name, value in session_settings(spark, given.get("path")).items() if name not in given}
    given[SESSION_TIME_ZONE] = str(spark.conf.get(ZONE_CONF))
    try:
        location = with_settings(checked_path(given), given)
        table = open_table(location, given)
        query = as_spelled(table, query_of(given))
        return frame_of(spark, table, query, marked=not intervals_as_numbers(given))
    except StateStoreError as error:
        raise AnalysisException(message=str(error)) from None


def frame_of(spark: SparkSession, table: StateTable, query: Query, *, marked: bool = True) -> DataFrame:
    """The DataFrame of a query of a table; for ``marked`` see `Face`."""
    from pyspark.sql import DataFrame

    jvm = Jvm(spark)
    listen(jvm)
    return DataFrame(_rows(jvm, PlannedTable(jvm, Face(table.name, table, query, marked=marked))), spark)


def _rows(jvm: Jvm, table: PlannedTable) -> Any:
    relations = jvm.singleton("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
    options = jvm.static("org.apache.spark.sql.util.CaseInsensitiveStringMap", "empty")()
    given = [table, jvm.some(RangeFunctions(jvm)), jvm.none(), options]
    if hasattr(relations, "create$default$5"):
        given.append(jvm.none())
    return jvm.singleton("org.apache.spark.sql.classic.Dataset").ofRows(jvm.session, relations.create(*given))

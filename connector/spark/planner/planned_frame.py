"""`spark.read.format("statestore").load(path)` as a table that Spark's planner shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from statestore.catalog.warehouse import open_table
from statestore.connector.options import SESSION_TIME_ZONE, intervals_as_numbers, query_of
from statestore.connector.spark.jvm import Jvm, listen
from statestore.connector.spark.location import checked_path
from statestore.connector.spark.planner.hashed_scan import RangeFunctions
from statestore.connector.spark.planner.planned_table import Face, PlannedTable
from statestore.connector.spark.s3a import session_settings, with_settings
from statestore.connector.spark.source import as_spelled
from statestore.formats.errors import StateStoreError
from statestore.formats.state_table import Query, StateTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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

"""`sql`: one statement over the tables of a path, with time travel, on DuckDB or on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from statestore.catalog.warehouse import Warehouse, open_warehouse, pinned_for_statement
from statestore.connector.sql.interruptible import answer_or_stop, check_query
from statestore.connector.supported_spark import check_session
from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.replaced_versions import again

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@overload
def sql(
    path: str, query: str, spark: None = None, *, allow_external_access: bool = False, **options: Any
) -> pa.Table: ...
@overload
def sql(
    path: str, query: str, spark: SparkSession, *, allow_external_access: bool = False, **options: Any
) -> DataFrame: ...
def sql(
    path: str,
    query: str,
    spark: SparkSession | None = None,
    *,
    allow_external_access: bool = False,
    **options: Any,
) -> pa.Table | DataFrame:
    """Run one SQL statement over the tables at ``path``.

    Without ``spark`` the statement is in DuckDB's SQL and runs on DuckDB, and the result is a ``pyarrow.Table``. The
    database is in memory, its time zone is UTC, and without ``allow_external_access`` it cannot reach files, the
    network or Python variables. With ``spark`` the result is a Spark DataFrame, and other tables of the session can be
    joined.

    A table is read at a moment by ``prices TIMESTAMP AS OF '2013-01-01T05:00:00Z'``, ``VERSION AS OF 12``, ``FOR
    SYSTEM_TIME AS OF …``, ``FOR SYSTEM_VERSION AS OF …`` or ``AT (VERSION => 12)`` / ``AT (TIMESTAMP => …)``; the two
    kinds can be combined (``prices AT (VERSION => 7) TIMESTAMP AS OF …``). A time is a string or ``TIMESTAMP '…'``
    like '2024-05-01T09:30Z' (docs/time-travel.md lists the forms), an integer of epoch milliseconds or an expression
    such as ``current_timestamp - interval '1 hour'``; only with ``spark`` may a time have no zone: it is then one of
    the session's time zone. ``history('prices', start, end)`` lists every version, ``changes('prices', start, end)``
    the change feed (integers are versions, other values times), and ``prices$versions`` and similar tables hold
    metadata. ``SHOW STORES`` and ``DESCRIBE HISTORY prices`` also work.

    The statement sees one version of each store, or of each directory of an engine, whatever it names of it. Several
    stores have no commit in common: each is at a version of its own.
    ``options`` are those of engines that select state, such as ``operator_id=1`` (docs/reference.md).

    Raises NotFoundError for a table, version or time that does not exist and InvalidInputError INVALID_SQL or
    NAIVE_TIMESTAMP.
    """
    selected = engine_options_of("sql", options)
    if spark is None:
        return answer_or_stop(partial(for_statement, path, selected), query, allow_external_access)
    check_query(query)
    check_session(spark)
    from statestore.connector.spark.s3a import session_settings, with_settings
    from statestore.connector.sql.sql_spark import run_on_spark

    path = with_settings(path, session_settings(spark, path))
    return again(lambda: run_on_spark(open_warehouse(path, selected).pin(), query, spark))


def for_statement(path: str, selected: Mapping[str, str]) -> Warehouse:
    """Open the tables that one statement reads. ``selected`` are options of engines, by their names in Spark."""
    return pinned_for_statement(open_warehouse(path, selected))

"""`sql`: one statement over the tables of a path, with time travel, on DuckDB, where Ctrl-C stops it, or on Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa

from statestore.catalog.warehouse import Warehouse, open_warehouse, pinned_for_statement
from statestore.connector.supported_spark import check_session
from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.places.interrupts import held_back, stoppable
from statestore.formats.replaced_versions import again

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

    from statestore.connector.sql.sql_duckdb import FirstRows


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
    _check_query(query)
    check_session(spark)
    from statestore.connector.spark.location import session_settings, with_settings
    from statestore.connector.sql.sql_spark import run_on_spark

    path = with_settings(path, session_settings(spark, path))
    return again(lambda: run_on_spark(open_warehouse(path, selected).pin(), query, spark))


def for_statement(path: str, selected: Mapping[str, str]) -> Warehouse:
    """Open the tables that one statement reads. ``selected`` are options of engines, by their names in Spark."""
    return pinned_for_statement(open_warehouse(path, selected))


# One statement on DuckDB, which Ctrl-C stops. DuckDB notices Ctrl-C in no thread, so the statement runs in another one
# than the main thread, which has it interrupted.


def answer_or_stop(
    opened: Callable[[], Warehouse],
    text: str,
    allow_external_access: bool = False,
    first: FirstRows | None = None,
    versions: Mapping[str, int] | None = None,
) -> pa.Table:
    """Run a statement as `answer` does, in another thread. At Ctrl-C it is stopped, and KeyboardInterrupt is raised;
    at a second one without waiting for its end."""
    running: list[duckdb.DuckDBPyConnection] = []

    def stop() -> None:
        from duckdb import Error

        for connection in running:
            with contextlib.suppress(Error):  # closed meanwhile
                connection.interrupt()

    return stoppable(lambda: answer(opened, text, allow_external_access, running.append, first, versions), stop)


def answer(
    opened: Callable[[], Warehouse],
    query: str,
    allow_external_access: bool = False,
    started: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
    first: FirstRows | None = None,
    versions: Mapping[str, int] | None = None,
) -> pa.Table:
    """Run a statement on DuckDB as `sql` does, over the tables that ``opened`` returns.

    ``started`` is called with the connection that is going to run the statement, so that another thread can interrupt
    it; the call then raises ``duckdb.InterruptException``. With ``first`` only so many rows are returned.
    ``versions`` are those of tables, by their names, that the statement reads without a version or time.
    """
    _check_query(query)

    def once() -> pa.Table:
        warehouse = opened()
        with held_back():
            from statestore.connector.sql.sql_duckdb import run_on_duckdb

        return run_on_duckdb(warehouse, query, allow_external_access, started, first, versions)

    return again(once)


def _check_query(query: object) -> None:
    """Raise InvalidInputError INVALID_SQL for a query that is no text, or no valid Unicode. Bytes on a command line
    that are not UTF-8 become halves of surrogate pairs, which no engine accepts."""
    if not isinstance(query, str):
        raise InvalidInputError(
            ErrorCode.INVALID_SQL, f"query is {shown(query)} ({type(query).__name__}); expected a text"
        )
    try:
        query.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(ErrorCode.INVALID_SQL, f"the query is not valid Unicode: {error}") from None

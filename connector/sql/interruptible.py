"""One statement on DuckDB, which Ctrl-C stops. DuckDB notices Ctrl-C in no thread, so the statement runs in another one
than the main thread, which has it interrupted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa

from statestore.catalog.warehouse import Warehouse
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown
from statestore.formats.places.interrupts import held_back, stoppable
from statestore.formats.replaced_versions import again

if TYPE_CHECKING:
    import duckdb

    from statestore.connector.sql.first_rows import FirstRows


def answer_or_stop(
    opened: Callable[[], Warehouse],
    text: str,
    allow_external_access: bool = False,
    first: FirstRows | None = None,
) -> pa.Table:
    """Run a statement as `answer` does, in another thread. At Ctrl-C it is stopped, and KeyboardInterrupt is raised;
    at a second one without waiting for its end."""
    running: list[duckdb.DuckDBPyConnection] = []

    def stop() -> None:
        from duckdb import Error

        for connection in running:
            with contextlib.suppress(Error):  # closed meanwhile
                connection.interrupt()

    return stoppable(lambda: answer(opened, text, allow_external_access, running.append, first), stop)


def answer(
    opened: Callable[[], Warehouse],
    query: str,
    allow_external_access: bool = False,
    started: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
    first: FirstRows | None = None,
) -> pa.Table:
    """Run a statement on DuckDB as `sql` does, over the tables that ``opened`` returns.

    ``started`` is called with the connection that is going to run the statement, so that another thread can interrupt
    it; the call then raises ``duckdb.InterruptException``. With ``first`` only so many rows are returned.
    """
    check_query(query)

    def once() -> pa.Table:
        warehouse = opened()
        with held_back():
            from statestore.connector.sql.sql_duckdb import run_on_duckdb

        return run_on_duckdb(warehouse, query, allow_external_access, started, first)

    return again(once)


def check_query(query: object) -> None:
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

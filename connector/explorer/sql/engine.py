"""DuckDB for one question: without access to files, and with a limit on memory and on time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import duckdb

from statestore.catalog.warehouse import Warehouse
from statestore.connector.duckdb.attach import connect
from statestore.connector.explorer.limits import Limits
from statestore.connector.sql.first_rows import TakesRows
from statestore.connector.sql.sql_duckdb import read_on_duckdb
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError

MEMORY_MB = 1024
MAX_TEXT = 20_000  # characters
MAX_DEPTH = 250  # of expressions; DuckDB needs seconds for lists that are nested deeper, and cannot be interrupted then
SECONDS_BETWEEN = 0.05


def run(warehouse: Warehouse, text: str, rows: TakesRows, limits: Limits) -> None:
    """Give the rows of one statement that reads to ``rows``.

    Raises NobodyWaits and UnsupportedError EXPLORER_LIMIT as `Limits`, the latter also for too much memory, and the
    errors of `statestore sql`, which name the place in the statement.
    """
    if len(text) > MAX_TEXT:
        raise InvalidInputError(
            ErrorCode.INVALID_SQL,
            f"the statement has {len(text):,} characters, and the explorer takes {MAX_TEXT:,}; pass it to "
            "statestore sql on stdin",
        )
    with sandbox() as connection, _interrupted(connection, limits):
        try:
            read_on_duckdb(warehouse, connection, text, rows)
        except duckdb.InterruptException:
            limits.check()
            raise
        except RecursionError:
            raise InvalidInputError(ErrorCode.INVALID_SQL, "the statement is nested too deeply") from None
        except StateStoreError as error:
            limits.check()
            if str(error.__cause__).startswith("Out of Memory Error"):
                raise UnsupportedError(
                    ErrorCode.EXPLORER_LIMIT,
                    f"the answer takes more than {MEMORY_MB:,} MiB of memory; narrow the statement, or run it with "
                    "statestore sql, which has no limit",
                ) from error
            raise


@contextlib.contextmanager
def sandbox() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection of its own that reaches no file and whose configuration is locked.

    It has no temporary directory, because DuckDB gives statements access to that one.
    """
    with connect(False, {"memory_limit": f"{MEMORY_MB}MiB", "temp_directory": ""}) as connection:
        connection.execute(f"SET max_expression_depth = {MAX_DEPTH}; SET lock_configuration = true")
        yield connection


@contextlib.contextmanager
def _interrupted(connection: duckdb.DuckDBPyConnection, limits: Limits) -> Iterator[None]:
    """Interrupt the connection, again and again, as soon as a limit is passed."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(SECONDS_BETWEEN):
            if limits.are_passed():  # what is interrupted before it runs goes on
                with contextlib.suppress(duckdb.Error):
                    connection.interrupt()

    watcher = threading.Thread(target=watch, name="statestore-sql-limits", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()

"""One statement that only reads: without access to files, and with limits of memory and of time. It may use the names
that `names_of` lists.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol

import duckdb

from statestore.catalog.warehouse import Warehouse
from statestore.connector.duckdb.attach import connect
from statestore.connector.sql.sql_duckdb import TakesRows, read_on_duckdb
from statestore.connector.sql.sql_statement import NESTED_TOO_DEEPLY
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError, UnsupportedError
from statestore.formats.state_table import Query
from statestore.formats.values.types import shown_field

MEMORY_MB = 1024
MAX_TEXT = 20_000  # characters
MAX_DEPTH = 250  # of expressions; DuckDB needs seconds for lists that are nested deeper, and cannot be interrupted then
SECONDS_BETWEEN = 0.05


class _Limited(Protocol):
    """The limits of one statement, other than those of this module."""

    def are_passed(self) -> bool:
        """Return whether the statement has to end."""

    def check(self) -> None:
        """Raise the error of a limit that is passed."""


def run_limited(warehouse: Warehouse, text: str, rows: TakesRows, limits: _Limited) -> None:
    """Give the rows of one statement that reads to ``rows``.

    Raises what ``limits`` raises, UnsupportedError EXPLORER_LIMIT for too much memory, and the errors of `statestore
    sql`, which name the place in the statement.
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
            raise InvalidInputError(ErrorCode.INVALID_SQL, NESTED_TOO_DEEPLY) from None
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
def _interrupted(connection: duckdb.DuckDBPyConnection, limits: _Limited) -> Iterator[None]:
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


# The names that a statement may use: tables with their columns, functions and words of DuckDB.

_PLAIN = re.compile("[a-z][a-z0-9_]*")
_OUTSIDE = re.compile(
    "read_.*|.*_scan|parquet_.*|sniff_csv|glob|pg_.*|duckdb_.*|pragma_.*|.*checkpoint|enable_.*|disable_.*|which_.*"
    "|write_log|parse_duckdb.*|test_.*|has_.*_privilege|storage_info|query|query_table|set_config|setseed|nextval"
    "|currval|sql_auto_complete|json_execute.*|in_search_path|txid_current|icu_.*|getvariable"
)
"""Functions that need files, or tell about the engine and not about data."""
_FUNCTIONS = """
    SELECT function_name, any_value(function_type), any_value(description),
        arg_min(function_name || '(' || array_to_string(parameters, ', ') || ')', len(parameters))
    FROM duckdb_functions() WHERE function_type IN ('scalar', 'aggregate', 'table', 'macro', 'table_macro')
    GROUP BY function_name ORDER BY function_name
"""


def names_of(warehouse: Warehouse) -> dict[str, Any]:
    """Return the tables of a place, also those of metadata, and what DuckDB has; all of them in the order to show."""
    return {
        "tables": [
            *({**_table(warehouse, name), "metadata": False} for name in warehouse.tables()),
            *({**_table(warehouse, name), "metadata": True} for name in warehouse.metadata_tables()),
        ],
        **_of_duckdb(),
    }


def _table(warehouse: Warehouse, name: str) -> dict[str, Any]:
    try:
        schema = warehouse.open(name).schema(Query())
    except (StateStoreError, OSError):  # a damaged table has a name all the same
        schema = ()
    return {"name": name, "columns": [{"name": field.name, "type": shown_field(field)} for field in schema]}


@cache
def _of_duckdb() -> dict[str, Any]:
    with sandbox() as connection:
        functions = connection.execute(_FUNCTIONS).fetchall()
        words = connection.execute("SELECT keyword_name, keyword_category FROM duckdb_keywords()").fetchall()
        types = connection.execute("SELECT DISTINCT lower(type_name) FROM duckdb_types()").fetchall()
    return {
        "functions": [
            {"name": name, "kind": kind, "signature": signature or f"{name}()", "description": description or ""}
            for name, kind, description, signature in functions
            if _PLAIN.fullmatch(name) and not _OUTSIDE.fullmatch(name)
        ],
        "words": sorted(word for word, _ in words),
        "reserved": sorted(word for word, category in words if category == "reserved"),
        "types": sorted(name for (name,) in types if _PLAIN.fullmatch(name)),
    }

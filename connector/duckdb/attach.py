"""A DuckDB connection in which every table of a path is a view."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import duckdb

from statestore.catalog.discovery import open_warehouse
from statestore.connector.duckdb.relation import create_view
from statestore.formats.errors import InvalidInputError
from statestore.formats.state_table import Query
from statestore.formats.times import to_us


def attach(path: str, *, as_of: int | datetime | None = None, version: int | None = None) -> duckdb.DuckDBPyConnection:
    """Opens an in-memory DuckDB database with a view for every table found at ``path``.

    Nothing but schemas is read now. Each query then reads only the columns and rows it needs, at the newest commit;
    inside a transaction (``BEGIN``) all queries see the commit that the first one saw. With ``as_of`` (epoch
    milliseconds or an aware datetime) or ``version`` every view shows that moment instead. Stores that are created
    later are not seen. The session's time zone is UTC.

    Raises NotFoundError where ``path`` holds nothing readable and InvalidInputError for a naive datetime.
    """
    moment = None if as_of is None else to_us(as_of, "as_of")
    warehouse = open_warehouse(path)
    check_names_differ(warehouse.tables())
    connection = connect()
    for name in warehouse.tables():
        create_view(connection, name, warehouse.table(name), Query(as_of=moment, version=version))
    for name in warehouse.metadata_tables():  # these tell of the store, not of a moment of its state
        create_view(connection, name, warehouse.table(name), Query())
    return connection


def connect(allow_external_access: bool = True) -> duckdb.DuckDBPyConnection:
    """An in-memory connection in UTC; files, extensions and Python variables are out of reach where asked."""
    connection = duckdb.connect(config={"enable_external_access": allow_external_access})
    connection.execute("SET TimeZone = 'UTC'")
    if not allow_external_access:
        connection.execute("SET python_enable_replacements = false")
    return connection


def check_names_differ(names: Iterable[str]) -> None:
    """Raises InvalidInputError AMBIGUOUS_NAME where DuckDB, which ignores case, could not tell two tables apart."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InvalidInputError(
                "AMBIGUOUS_NAME",
                f"tables {other!r} and {name!r} differ by case only, which DuckDB does not tell apart; "
                "attach the path of one of them",
            )

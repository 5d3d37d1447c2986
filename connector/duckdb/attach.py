"""A DuckDB connection in which every table of a path is a view.

A view is read only when a query needs it, and only as far as it needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import duckdb

from statestore.catalog.describe.metadata_table import TABLES
from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.store_tables import metadata_of
from statestore.catalog.warehouse import Warehouse, open_warehouse, pinned_anew
from statestore.connector.duckdb.kept_rows import MARKS
from statestore.connector.duckdb.reading import PIN_COLUMN, Reading
from statestore.connector.duckdb.transactions import PinnedWarehouses, Transactions
from statestore.connector.identifiers import quoted
from statestore.formats.engine_arguments import engine_options_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError
from statestore.formats.places.interrupts import raise_in_callers_of_duckdb
from statestore.formats.replaced_versions import again, is_gone
from statestore.formats.state_table import Query, StateTable, check_number
from statestore.formats.values.times import Time, to_us


def attach(
    path: str, *, as_of: Time | None = None, version: int | None = None, **options: Any
) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB database with a view for every table found at ``path``.

    Only schemas are read at first. Each query then reads the columns and rows it needs, at the newest version of each
    source: a store, with all its metadata and all states of a keyed store, or the directory of an engine, with all its
    states. Inside a transaction (``BEGIN``) all queries of a source read the version that the first one read. Several
    stores of a warehouse have no commit in common: each is at a version of its own. With ``as_of`` (epoch
    milliseconds, an aware datetime or a text like 2024-05-01T09:30Z) or ``version``, every view shows that moment
    instead. Stores that are created later have no view. With DuckDB 2 and without ``as_of`` and ``version``, the table
    macros ``prices_as_of('2024-05-01T09:30Z')``, ``prices_at_version(3)``, ``as_of('prices', …)`` and
    ``at_version('prices', …)`` read a table at a moment.
    The session's time zone is UTC. A keyed store is a schema with a view for each of its states (``FROM
    sessions.counts``); states that did not exist yet at that moment have no view. ``options`` are
    those of engines that select state, such as ``operator_id=1`` (docs/reference.md).

    A Ctrl-C while a query reads a table ends it, and while DuckDB computes it waits for the end; both are
    KeyboardInterrupt.

    Raises NotFoundError if ``path`` holds nothing readable, and InvalidInputError for a naive datetime.
    """
    raise_in_callers_of_duckdb()
    moment = None if as_of is None else to_us(as_of, "as_of")
    check_number(version)
    warehouse = open_warehouse(path, engine_options_of("attach", options))
    check_names_differ(warehouse.tables())
    query = Query(as_of=moment, version=version)
    try:
        return _attached(warehouse, warehouse.pin(), query)
    except NotFoundError as error:  # a running job has removed the version whose columns are declared
        if not is_gone(error):
            raise
    return again(lambda: _attached(warehouse, pinned_anew(warehouse), query))


def _attached(warehouse: Warehouse, present: Warehouse, query: Query) -> duckdb.DuckDBPyConnection:
    """Create the views and macros. ``present`` is pinned, so that metadata is read once for the columns of all tables.

    Raises NotFoundError VERSION_GONE where a running job removed its version meanwhile.
    """
    connection = connect()
    bound: dict[str, StateTable] = {}
    opened: dict[str, StateTable] = {}
    for name in warehouse.tables():
        table = present.open(name)
        is_store = isinstance(table, VersionedTable)  # knows its columns; its description is not read once more
        bound[name] = table.for_tasks() if is_store else table
        opened[name] = bound[name] if is_store else warehouse.open(name)
    tables: dict[str, Transactions] = {}
    pinned = PinnedWarehouses(warehouse)
    # The handles of sources and the functions of macros belong to the connection, through a function that has them, and
    # to each view of a table, which lives as long as the database: a cursor may outlive the connection, and DuckDB
    # crashes where it calls a function of Python that is gone.
    held: list[object] = []
    for name, table in opened.items():
        shared = pinned.of(name, table)
        with _left_out_before_its_time():
            reading = create_view(connection, name, table, query, transactions=shared, bound=bound[name])
            reading.held, tables[name] = held, shared
    held += _create_metadata_views(connection, opened, pinned)
    if HAS_SOURCES and query == Query():
        from statestore.connector.duckdb.moments import create_macros

        held += create_macros(connection, bound, tables)
    if HAS_SOURCES:
        connection.create_function("__statestore_held", lambda: len(held), [], "BIGINT")
    create_schemas(connection, warehouse)
    return connection


def _create_metadata_views(
    connection: duckdb.DuckDBPyConnection, opened: Mapping[str, StateTable], pinned: PinnedWarehouses
) -> Sequence[object]:
    """Create the views of metadata tables, which describe stores and not their state at a moment.

    Return the handles of what they read.
    """

    def described(name: str, suffix: str) -> tuple[StateTable, Transactions]:
        metadata = metadata_of(opened[name], suffix)
        return metadata, pinned.of(f"{name}${suffix}", metadata)

    if HAS_SOURCES:
        from statestore.connector.duckdb.metadata_views import create_metadata_views

        return create_metadata_views(connection, tuple(opened), described)
    for name in opened:
        for suffix in TABLES:
            metadata, transactions = described(name, suffix)
            create_view(connection, f"{name}${suffix}", metadata, Query(), transactions=transactions)
    return ()


@contextlib.contextmanager
def _left_out_before_its_time() -> Iterator[None]:
    try:
        yield
    except NotFoundError as error:
        if error.code != ErrorCode.STATE_NOT_FOUND:
            raise


def create_schemas(connection: duckdb.DuckDBPyConnection, warehouse: Warehouse) -> None:
    """Create a schema for each keyed store, so that the view ``"sessions.counts"`` is also ``sessions.counts``.

    A store whose name DuckDB needs for a schema of its own gets none.
    """
    taken = "SELECT schema_name FROM duckdb_schemas() UNION SELECT database_name FROM duckdb_databases()"
    reserved = {name.lower() for (name,) in connection.execute(taken).fetchall()}
    schemas = {name.lower() for name in warehouse.schemas()} - reserved
    known = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND schema_name = 'main'"
    for (name,) in connection.execute(known).fetchall():
        schema, _, shown = name.rpartition(".")
        if schema.lower() in schemas:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
            connection.execute(f"CREATE VIEW {quoted(schema)}.{quoted(shown)} AS FROM main.{quoted(name)}")


def connect(
    allow_external_access: bool = True, config: Mapping[str, str | bool] = MappingProxyType({})
) -> duckdb.DuckDBPyConnection:
    """An in-memory connection in UTC, on request without access to files, extensions and Python variables."""
    # With these, DuckDB would look for an extension's file and download it when one of its functions is called.
    names = ("autoinstall_known_extensions", "autoload_known_extensions")
    connection = duckdb.connect(config={**config, **({} if allow_external_access else dict.fromkeys(names, False))})
    connection.execute("SET TimeZone = 'UTC'")
    if not allow_external_access:
        # Not in the configuration: an instance that starts without access may still write a file called :memory:.
        connection.execute("SET enable_external_access = false; SET python_enable_replacements = false")
    return connection


def check_names_differ(names: Iterable[str]) -> None:
    """Raise InvalidInputError AMBIGUOUS_NAME if two tables differ by case only, which DuckDB ignores."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InvalidInputError(
                ErrorCode.AMBIGUOUS_NAME,
                f"tables {other!r} and {name!r} differ by case only, which DuckDB ignores; "
                "attach the path of one of them",
            )


# A `StateTable` as a DuckDB view, which is read only when a query needs it and only as far as it needs it.
#
# All scans of one query must read one version, although DuckDB opens them at different moments. Therefore the view
# compares the column ``__pin`` with ``txid_current()``. DuckDB folds the call to a constant and pushes it into the
# scan, where the value identifies the transaction.
#
# From DuckDB 2 on, dead rows are among the batches, and the view leaves out the rows whose mark is null. DuckDB skips
# them faster than they could be cut out here. Older releases scan an Arrow dataset with live rows only.

try:
    from statestore.connector.duckdb.scan_source import ScanSource, create_source_view
except ImportError:  # DuckDB 1
    ScanSource = None  # type: ignore[misc,assignment]
HAS_SOURCES = ScanSource is not None
"""Whether DuckDB tells a source which filters it has, from release 2 on."""


def create_view(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    table: StateTable,
    query: Query,
    temporary: bool = False,
    transactions: Transactions | None = None,
    bound: StateTable | None = None,
) -> Reading:
    """Create the view ``name`` over the result of ``query``; only the schema is read now, that of ``bound`` if given.

    Views with the same ``transactions`` read one version in each transaction (`Reading`).

    A ``temporary`` view belongs to this connection, and other connections to the instance do not see it.

    The returned `Reading` holds the last error that a scan raised, which DuckDB would only pass on as text.
    """
    reading = Reading(table, query, transactions, bound)
    columns = ", ".join(
        f"{quoted(source)} AS {quoted(shown)}"
        for source, shown in zip(reading.source_names, reading.schema.names, strict=True)
    )
    condition = f"{PIN_COLUMN} = txid_current()"
    if ScanSource is not None:
        condition += f" AND {MARKS} IS NOT NULL"
    if ScanSource is not None and not temporary:
        create_source_view(connection, name, columns, ScanSource(reading), condition)
        return reading
    source: Any = _dataset(reading) if ScanSource is None else ScanSource(reading)
    if temporary:
        hidden = f"__source of {name}"
        connection.register(hidden, source)
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS SELECT {columns} FROM {quoted(hidden)} WHERE {condition}"
        )
        return reading
    connection.from_arrow(source).filter(condition).project(columns).create_view(name, replace=True)
    return reading


def _dataset(reading: Reading) -> Any:
    from statestore.connector.duckdb.arrow_dataset import ReadingDataset  # pyarrow.dataset loads pandas

    return ReadingDataset(reading)

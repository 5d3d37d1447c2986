"""A `StateTable` as a DuckDB view, which is read only when a query needs it and only as far as it needs it.

All scans of one query must read one version, although DuckDB opens them at different moments. Therefore the view
compares the column ``__pin`` with ``txid_current()``. DuckDB folds the call to a constant and pushes it into the scan,
where the value identifies the transaction.

From DuckDB 2 on, dead rows are among the batches, and the view leaves out the rows whose mark is null. DuckDB skips
them faster than they could be cut out here. Older releases scan an Arrow dataset with live rows only.
"""

from __future__ import annotations

from typing import Any

import duckdb

from statestore.connector.duckdb.arrow_dataset import ReadingDataset
from statestore.connector.duckdb.kept_rows import MARKS
from statestore.connector.duckdb.reading import PIN_COLUMN, Reading
from statestore.connector.duckdb.transactions import Transactions
from statestore.connector.identifiers import quoted
from statestore.formats.state_table import Query, StateTable

try:
    from statestore.connector.duckdb.scan_source import ScanSource
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
) -> Reading:
    """Create the view ``name`` over the result of ``query``; only the schema is read now.

    Views with the same ``transactions`` read one version in each transaction (`Reading`).

    A ``temporary`` view belongs to this connection, and other connections to the instance do not see it.

    The returned `Reading` holds the last error that a scan raised, which DuckDB would only pass on as text.
    """
    reading = Reading(table, query, transactions)
    columns = ", ".join(
        f"{quoted(source)} AS {quoted(shown)}"
        for source, shown in zip(reading.source_names, reading.schema.names, strict=True)
    )
    source: Any = ReadingDataset(reading) if ScanSource is None else ScanSource(reading)
    condition = f"{PIN_COLUMN} = txid_current()"
    if ScanSource is not None:
        condition += f" AND {MARKS} IS NOT NULL"
    if temporary:
        hidden = f"__source of {name}"
        connection.register(hidden, source)
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {quoted(name)} AS SELECT {columns} FROM {quoted(hidden)} WHERE {condition}"
        )
        return reading
    connection.from_arrow(source).filter(condition).project(columns).create_view(name, replace=True)
    return reading

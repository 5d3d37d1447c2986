"""Views of metadata tables on an attached connection: one source for all tables of a kind, such as ``$versions``.

A connection has four such views for each table, and few are ever read. They have the same columns for every table. So
a view compares the hidden column ``__table`` with the number of its table, and a table is opened when it is first read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property

import duckdb
import pyarrow as pa
from duckdb._seam import SourceHandle
from duckdb._sources import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, Lit, Node

from statestore.catalog.describe.metadata_table import TABLES
from statestore.connector.duckdb.kept_rows import MARKS
from statestore.connector.duckdb.reading import PIN_COLUMN, Reading
from statestore.connector.duckdb.scan_source import ScanSource, registered
from statestore.connector.duckdb.transactions import Transactions
from statestore.connector.identifiers import quoted
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.state_table import Query, StateTable

TABLE_COLUMN = "__table"

Described = Callable[[str, str], tuple[StateTable, Transactions]]
"""Opens a metadata table, by the name of the table that it describes and the suffix, with its transactions."""


class MetadataSource(ScanSource):
    """The columns of the metadata tables of one suffix, and last the number of the table."""

    def __init__(self, suffix: str, names: Sequence[str], described: Described) -> None:
        ArrowScanSource.__init__(self, suffix)
        self._suffix = suffix
        self._names = names
        self._described = described
        self._opened: dict[int, ScanSource] = {}
        self._lock = threading.Lock()  # all cursors read the source

    @cached_property
    def reading(self) -> Reading:
        """The reading of the first table, whose columns are those of all."""
        return self._of(0).reading

    @cached_property
    def _schema(self) -> pa.Schema:
        return self.reading.marked_schema().append(pa.field(TABLE_COLUMN, pa.int64()))

    def accepts(self, predicate: Node) -> bool:
        return _table_of(predicate) is not None or super().accepts(predicate)

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        asked = {number for number in map(_table_of, filters) if number is not None}
        if len(asked) != 1 or columns is None or len(self._schema) - 1 in columns:
            raise UnsupportedError(
                ErrorCode.FILTER_PUSHDOWN_OFF,
                f"the tables ${self._suffix} cannot be read with DuckDB's filter pushdown switched off; enable the "
                "optimizer again (PRAGMA enable_optimizer, SET disabled_optimizers = '')",
            )
        return self._of(asked.pop()).stream(columns, [each for each in filters if _table_of(each) is None])

    def _of(self, number: int) -> ScanSource:
        with self._lock:
            if number not in self._opened:
                metadata, transactions = self._described(self._names[number], self._suffix)
                self._opened[number] = ScanSource(Reading(metadata, Query(), transactions))
            return self._opened[number]


def _table_of(predicate: Node) -> int | None:
    match predicate:
        case Binary(op="=", left=Col(parts=(name,)), right=Lit(value=int(number))) if name == TABLE_COLUMN:
            return number
    return None


def create_metadata_views(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str], described: Described
) -> Sequence[SourceHandle]:
    """Create the views of all metadata tables of the tables ``names``.

    They can be read as long as the returned handles live.
    """
    if not names:
        return ()
    handles = [registered(connection, MetadataSource(suffix, names, described)) for suffix in TABLES]
    views = [
        f"CREATE VIEW {quoted(f'{name}${suffix}')} AS SELECT * EXCLUDE ({MARKS}, {PIN_COLUMN}, {TABLE_COLUMN}) "
        f"FROM {quoted(handle.name)} WHERE {TABLE_COLUMN} = {number} AND {PIN_COLUMN} = txid_current()"
        for number, name in enumerate(names)
        for suffix, handle in zip(TABLES, handles, strict=True)
    ]
    connection.execute(";".join(["BEGIN", *views, "COMMIT"]))
    return handles

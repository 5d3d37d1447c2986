"""Table macros that read the tables of an attached connection at a moment, in DuckDB's own SQL.

A macro calls a Python function while DuckDB binds the query. The function checks the moment, and returns a query of a
view in which the hidden column ``__moment`` is compared with the reading's number. DuckDB refuses arguments that are
columns or subqueries. A scan without that comparison raises an error, so that no row is of another moment.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
from duckdb._sources.nodes import Binary, Col, Lit, Node
from duckdb.func import FunctionNullHandling

from statestore.connector.duckdb.kept_rows import MARKS
from statestore.connector.duckdb.reading import PIN_COLUMN, Reading
from statestore.connector.duckdb.scan_source import ScanSource
from statestore.connector.identifiers import quoted
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, UnsupportedError
from statestore.formats.state_table import KeepsFiles, Query, StateTable
from statestore.formats.values.times import moment_us

MOMENT_COLUMN = "__moment"
SCHEMA = "__statestore"
KEPT_READINGS = 256


@dataclass(eq=False)
class _Moments:
    """The readings of one table by number, one for each moment asked for."""

    table: StateTable
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    readings: OrderedDict[int, ScanSource] = field(default_factory=OrderedDict)
    known: dict[Query, int] = field(default_factory=dict)
    declared: pa.Schema | None = None

    def number_of(self, query: Query) -> int:
        """The number of the reading for ``query``, which is planned once, so that a moment out of range is refused
        even where DuckDB needs no row."""
        splits = self.table.splits(query)
        if isinstance(self.table, KeepsFiles):
            self.table.released(splits)
        number = self.known.get(query)
        if number is None:
            reading = Reading(self.table, query)
            if reading.marked_schema() != self.declared:
                raise UnsupportedError(
                    ErrorCode.ENGINE_FAILED,
                    f"table {self.table.name!r} had other columns at that moment than when it was attached; "
                    "read it with statestore.sql, or attach its path with as_of or version",
                )
            number = self.known[query] = next(self.numbers)
            self.readings[number] = ScanSource(reading)
            if len(self.readings) > KEPT_READINGS:
                oldest, _ = self.readings.popitem(last=False)
                self.known = {each: kept for each, kept in self.known.items() if kept != oldest}
        return number


class MomentSource(ScanSource):
    """The columns of a table, and last the number of the reading that the query compares them with."""

    def __init__(self, moments: _Moments) -> None:
        super().__init__(Reading(moments.table, Query()))
        self._moments = moments
        moments.declared = self._schema
        self._schema = self._schema.append(pa.field(MOMENT_COLUMN, pa.int64()))

    def accepts(self, predicate: Node) -> bool:
        return _number_of(predicate) is not None or super().accepts(predicate)

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        numbers = {number for number in map(_number_of, filters) if number is not None}
        last = len(self._schema) - 1
        source = self._moments.readings.get(next(iter(numbers))) if len(numbers) == 1 else None
        if source is None or columns is None or last in columns:
            raise UnsupportedError(
                ErrorCode.ENGINE_FAILED, "the moment of this read is not known; run the query with its macro again"
            )
        return source.stream(columns, [each for each in filters if _number_of(each) is None])


def _number_of(predicate: Node) -> int | None:
    match predicate:
        case Binary(op="=", left=Col(parts=(name,)), right=Lit(value=int(number))) if name == MOMENT_COLUMN:
            return number
    return None


def create_macros(connection: duckdb.DuckDBPyConnection, tables: dict[str, StateTable]) -> None:
    """Create ``as_of(name, time)`` and ``at_version(name, version)``, and ``<name>_as_of(time)`` and
    ``<name>_at_version(version)`` for each table. A table with the name of a macro is not affected: macros are called
    with parentheses."""
    moments = {name.lower(): _Moments(table) for name, table in tables.items()}
    connection.execute(f"CREATE SCHEMA {SCHEMA}; SET schema = '{SCHEMA}'")
    for name, each in moments.items():
        connection.from_arrow(MomentSource(each)).create_view(name)
    connection.execute("SET schema = 'main'")

    def text_of(name: str, query: Query) -> str:
        each = moments.get(name.lower())
        if each is None:
            raise NotFoundError(ErrorCode.STORE_NOT_FOUND, f"no table {name!r}; SHOW TABLES lists those attached")
        number = each.number_of(query)
        reading = each.readings[number].reading
        columns = ", ".join(
            f"{quoted(source)} AS {quoted(shown)}"
            for source, shown in zip(reading.source_names, reading.schema.names, strict=True)
        )
        return (
            f"SELECT {columns} FROM {SCHEMA}.{quoted(name.lower())} WHERE {MOMENT_COLUMN} = {number} "
            f"AND {PIN_COLUMN} = txid_current() AND {MARKS} IS NOT NULL"
        )

    def at_time(name: str | None, moment: str | None) -> str:
        if name is None or moment is None:
            raise InvalidInputError(ErrorCode.INVALID_TIME, "the table or time is NULL; expected a time with a zone")
        return text_of(name, Query(as_of=moment_us(moment, "time")))

    def at_number(name: str | None, version: int | None) -> str:
        if name is None or version is None:
            raise InvalidInputError(ErrorCode.INVALID_VERSION, "the table or version is NULL; expected an integer")
        return text_of(name, Query(version=version))

    for macro, function, kind in (("as_of", at_time, "VARCHAR"), ("at_version", at_number, "BIGINT")):
        called = f"__statestore_{macro}"
        connection.create_function(
            called, function, ["VARCHAR", kind], "VARCHAR", null_handling=FunctionNullHandling.SPECIAL
        )
        value = "m::VARCHAR" if kind == "VARCHAR" else "m"
        connection.execute(f"CREATE MACRO {macro}(t, m) AS TABLE FROM query({called}(t, {value}))")
        for name in tables:
            literal = "'" + name.replace("'", "''") + "'"
            connection.execute(
                f"CREATE MACRO {quoted(f'{name}_{macro}')}(m) AS TABLE FROM query({called}({literal}, {value}))"
            )

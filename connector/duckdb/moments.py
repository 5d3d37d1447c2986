"""Table macros that read the tables of an attached connection at a moment, in DuckDB's own SQL.

A macro calls a Python function while DuckDB binds the query. The function checks the moment, and returns a query of a
view in which the hidden column ``__moment`` is compared with the reading's number. DuckDB refuses arguments that are
columns or subqueries. A scan without that comparison raises an error, so that no row is of another moment.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import pyarrow as pa
from duckdb._sources.nodes import Binary, Col, Lit, Node
from duckdb.func import FunctionNullHandling

from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.warehouse import Warehouse
from statestore.connector.duckdb.kept_rows import MARKS
from statestore.connector.duckdb.reading import PIN_COLUMN, Reading
from statestore.connector.duckdb.scan_source import ScanSource
from statestore.connector.identifiers import quoted
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError, UnsupportedError
from statestore.formats.state_table import KeepsFiles, Mode, Query, StateTable
from statestore.formats.values.times import to_us

MOMENT_COLUMN = "__moment"
SCHEMA = "__statestore"
KEPT_READINGS = 4096
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")


@dataclass(eq=False)
class _Moments:
    """The readings of one table by number, one for each moment asked for."""

    table: StateTable
    mode: Mode
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

    def __init__(self, moments: _Moments, bound: StateTable) -> None:
        """``bound`` is the table in its present state, whose columns are declared to DuckDB."""
        super().__init__(Reading(bound, Query(mode=moments.mode)))
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


MODES: tuple[Mode, ...] = ("state", "history", "changes")


def create_macros(
    connection: duckdb.DuckDBPyConnection, warehouse: Warehouse, tables: Mapping[str, StateTable]
) -> None:
    """Create ``as_of``, ``at_version``, ``history``, ``changes`` and ``versions``, whose first argument is the name of
    a table, and ``<name>_as_of`` and ``<name>_at_version`` for each table.

    A table with the name of a macro is not affected: macros are called with parentheses.
    """
    asked = {(name.lower(), mode): _Moments(table, mode) for name, table in tables.items() for mode in MODES}
    sources: list[tuple[str, Mode, MomentSource]] = []
    present = warehouse.pin()  # so that metadata is read once for all tables and modes
    for name, table in tables.items():
        bound = table if isinstance(table, VersionedTable) else present.open(name)  # a store knows its columns
        for mode in MODES:
            with contextlib.suppress(StateStoreError):  # a table without a history: its macro says why
                sources.append((name.lower(), mode, MomentSource(asked[name.lower(), mode], bound)))
    for mode in MODES:
        connection.execute(f"CREATE SCHEMA {_schema_of(mode)}; SET schema = '{_schema_of(mode)}'")
        for name, of_mode, source in sources:
            if of_mode == mode:
                connection.from_arrow(source).create_view(name)
    connection.execute("SET schema = 'main'")
    texts = _Texts(asked)
    for macro in MACROS:
        called = f"__statestore_{macro.name}"
        kinds: list[Any] = ["VARCHAR", *(kind for _, kind, _ in macro.parameters)]
        function = getattr(texts, macro.name)
        connection.create_function(called, function, kinds, "VARCHAR", null_handling=FunctionNullHandling.SPECIAL)
        declared = ", ".join(f"{name} := NULL" if optional else name for name, _, optional in macro.parameters)
        given = ", ".join(_cast(name, kind) for name, kind, _ in macro.parameters)
        after = ", " if declared else ""
        connection.execute(
            f"CREATE MACRO {macro.name}(table_name{after}{declared}) AS TABLE "
            f"FROM query({called}(table_name{after}{given}))"
        )
        for name in tables if macro.of_each_table else ():
            literal = "'" + name.replace("'", "''") + "'"
            connection.execute(
                f"CREATE MACRO {quoted(f'{name}_{macro.name}')}({declared}) AS TABLE "
                f"FROM query({called}({literal}, {given}))"
            )


def _cast(name: str, kind: str) -> str:
    """Return an argument as the function takes it: numbers are milliseconds, which text of four digits is not."""
    if kind != "VARCHAR":
        return f"{name}::{kind}"
    return f"CASE WHEN typeof({name}) IN {INTEGERS} THEN {name}::VARCHAR || 'ms' ELSE {name}::VARCHAR END"


@dataclass(frozen=True)
class _Macro:
    """A macro with its parameters after the table's name: each with its type, and whether it may be left out."""

    name: str
    parameters: tuple[tuple[str, str, bool], ...]
    of_each_table: bool = False


# Times are cast to text, so that one with a zone, a TIMESTAMPTZ and epoch milliseconds are read by one grammar.
MACROS = (
    _Macro("as_of", (("moment", "VARCHAR", False), ("version", "BIGINT", True)), True),
    _Macro("at_version", (("version", "BIGINT", False),), True),
    _Macro("history", (("start_time", "VARCHAR", True), ("end_time", "VARCHAR", True), ("version", "BIGINT", True))),
    _Macro(
        "changes",
        (
            ("start_version", "BIGINT", True), ("end_version", "BIGINT", True),
            ("start_time", "VARCHAR", True), ("end_time", "VARCHAR", True),
        ),
    ),
    _Macro("versions", ()),
)  # fmt: skip


@dataclass(frozen=True)
class _Texts:
    """The queries that macros stand for, by the macro's name."""

    asked: dict[tuple[str, Mode], _Moments]

    def as_of(self, name: str | None, moment: str | None, version: int | None) -> str:
        if moment is None:
            raise InvalidInputError(ErrorCode.INVALID_TIME, "moment is NULL; expected a time with a zone")
        return self._text(name, Query(as_of=to_us(moment, "moment"), version=version))

    def at_version(self, name: str | None, version: int | None) -> str:
        if version is None:
            raise InvalidInputError(ErrorCode.INVALID_VERSION, "version is NULL; expected an integer")
        return self._text(name, Query(version=version))

    def history(self, name: str | None, start: str | None, end: str | None, version: int | None) -> str:
        first, last = _time(start, "start_time"), _time(end, "end_time")
        return self._text(name, Query(mode="history", version=version, start_time=first, end_time=last))

    def changes(self, name: str | None, first: int | None, last: int | None, start: str | None, end: str | None) -> str:
        query = Query(mode="changes", start_version=first, end_version=last)
        times = _time(start, "start_time"), _time(end, "end_time")
        return self._text(name, replace(query, start_time=times[0], end_time=times[1]))

    def versions(self, name: str | None) -> str:
        self._moments(name, "state")
        return f"FROM main.{quoted(f'{name}$versions')}"

    def _moments(self, name: str | None, mode: Mode) -> _Moments:
        found = None if name is None else self.asked.get((name.lower(), mode))
        if found is None:
            raise NotFoundError(
                ErrorCode.TABLE_NOT_FOUND, f"no table {name!r} on this connection; SHOW TABLES lists those attached"
            )
        return found

    def _text(self, name: str | None, query: Query) -> str:
        moments = self._moments(name, query.mode)
        number = moments.number_of(query)
        reading = moments.readings[number].reading
        columns = ", ".join(
            f"{quoted(source)} AS {quoted(shown)}"
            for source, shown in zip(reading.source_names, reading.schema.names, strict=True)
        )
        return (
            f"SELECT {columns} FROM {_schema_of(query.mode)}.{quoted(str(name).lower())} "
            f"WHERE {MOMENT_COLUMN} = {number} AND {PIN_COLUMN} = txid_current() AND {MARKS} IS NOT NULL"
        )


def _time(text: str | None, what: str) -> int | None:
    return None if text is None else to_us(text, what)


def _schema_of(mode: Mode) -> str:
    return SCHEMA if mode == "state" else f"{SCHEMA}_{mode}"

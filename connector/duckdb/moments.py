"""Table macros that read the tables of an attached connection at a moment, in DuckDB's own SQL.

A macro calls a Python function while DuckDB binds the query. The function checks the moment, and returns a query of a
view in which the hidden column ``__moment`` is compared with the moment as text. DuckDB refuses arguments that are
columns or subqueries. A scan without that comparison raises an error, so that no row is of another moment.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import duckdb
import pyarrow as pa
from duckdb._seam import SourceHandle
from duckdb._sources import ArrowScanSource
from duckdb._sources.nodes import Binary, Col, Lit, Node
from duckdb.func import FunctionNullHandling

from statestore.connector.duckdb.kept_rows import COPIED_BYTES, MARKS
from statestore.connector.duckdb.reading import PIN_COLUMN, Reading
from statestore.connector.duckdb.scan_source import ScanSource, registered
from statestore.connector.duckdb.transactions import Transactions
from statestore.connector.identifiers import quoted
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError, UnsupportedError
from statestore.formats.state_table import Mode, Query, StateTable
from statestore.formats.values.times import to_us

MOMENT_COLUMN = "__moment"
SHOWN_TABLES = 20
INTEGERS = tuple(
    f"{sign}{name}" for sign in ("", "U") for name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
)
INSTANTS = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
FIELDS = ("as_of", "version", "start_time", "end_time", "start_version", "end_version")


def moment_text(query: Query) -> str:
    """The times and versions of a query as text, of which `query_of` makes the query again."""
    return ",".join("" if getattr(query, name) is None else str(getattr(query, name)) for name in FIELDS)


def query_of(text: str, mode: Mode) -> Query | None:
    """The query of `moment_text`; None for any other text."""
    values = text.split(",")
    if len(values) != len(FIELDS) or not all(re.fullmatch(r"(-?[0-9]{1,40})?", value, re.ASCII) for value in values):
        return None
    given = {name: int(value) for name, value in zip(FIELDS, values, strict=True) if value}
    return replace(Query(mode=mode), **given)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class _Moments:
    """The readings of one table, one for each moment asked for."""

    transactions: Transactions
    mode: Mode
    kept: KeptReadings

    @property
    def table(self) -> StateTable:
        return self.transactions.table

    def check(self, query: Query) -> None:
        """Plan the query once, so that a moment out of range is refused even where DuckDB needs no row."""
        self.table.splits(query)

    def source(self, query: Query, declared: pa.Schema) -> ScanSource:
        """The rows of ``query``. Raises InvalidInputError SCHEMA_CHANGED if they have not the columns ``declared``."""

        def made() -> ScanSource:
            return ScanSource(Reading(self.table, query, self.transactions))

        source = self.kept.get((self.table.name, query), made)
        if source.reading.marked_schema() != declared:
            raise InvalidInputError(
                ErrorCode.SCHEMA_CHANGED,
                f"table {self.table.name!r} has other columns at that moment than when it was attached; "
                "attach its path again, or read it with statestore.sql",
            )
        return source


class MomentSource(ScanSource):
    """The columns of a table, and last the moment that the query compares them with.

    Its columns are found when it is first named: a connection has three of these for each of its tables.
    """

    def __init__(self, moments: _Moments, bound: StateTable) -> None:
        """``bound`` is the table in its present state, whose columns are declared to DuckDB."""
        ArrowScanSource.__init__(self, moments)
        self.moments = moments
        self._bound = bound

    @cached_property
    def reading(self) -> Reading:
        """The reading of the present state. Raises StateStoreError for a table without a history."""
        return Reading(self._bound, Query(mode=self.moments.mode))

    @cached_property
    def declared(self) -> pa.Schema:
        """The columns that every moment has to have."""
        return self.reading.marked_schema()

    @cached_property
    def _schema(self) -> pa.Schema:
        return self.declared.append(pa.field(MOMENT_COLUMN, pa.string()))

    def accepts(self, predicate: Node) -> bool:
        return _moment_of(predicate) is not None or super().accepts(predicate)

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        asked = {text for text in map(_moment_of, filters) if text is not None}
        query = query_of(asked.pop(), self.moments.mode) if len(asked) == 1 else None
        if query is None or columns is None or len(self._schema) - 1 in columns:
            name = self.moments.table.name
            raise UnsupportedError(
                ErrorCode.FILTER_PUSHDOWN_OFF,
                f"table {name!r} cannot be read at a moment without a macro such as as_of('{name}', …), or with "
                "DuckDB's filter pushdown switched off; enable the optimizer again (PRAGMA enable_optimizer, "
                "SET disabled_optimizers = '')",
            )
        source = self.moments.source(query, self.declared)
        return source.stream(columns, [each for each in filters if _moment_of(each) is None])

    def columns_of(self, query: Query) -> str:
        """The columns to select for ``query``, by their names in the table."""
        reading = self.moments.source(query, self.declared).reading
        names = zip(reading.source_names, reading.schema.names, strict=True)
        return ", ".join(f"{quoted(source)} AS {quoted(shown)}" for source, shown in names)


def _moment_of(predicate: Node) -> str | None:
    match predicate:
        case Binary(op="=", left=Col(parts=(name,)), right=Lit(value=str(text))) if name == MOMENT_COLUMN:
            return text
    return None


MODES: tuple[Mode, ...] = ("state", "history", "changes")


def create_macros(
    connection: duckdb.DuckDBPyConnection, bound: Mapping[str, StateTable], tables: Mapping[str, Transactions]
) -> Sequence[object]:
    """Create ``as_of``, ``at_version``, ``history``, ``changes`` and ``versions``, whose first argument is the name of
    a table, and ``<name>_as_of`` and ``<name>_at_version`` for each table.

    A table with the name of a macro is not affected: macros are called with parentheses. ``bound`` are the tables in
    their present state. Return the functions that the macros call.
    """
    functions = list[Callable[..., str]]()
    kept = KeptReadings()
    sources: dict[tuple[str, Mode], _Named | StateStoreError] = {}
    for name, transactions in tables.items():
        for mode in MODES:
            source = MomentSource(_Moments(transactions, mode, kept), bound[name])
            try:
                if not bound[name].has_log:  # versions of an engine go, and with them what tells its columns
                    _ = source.declared
            except StateStoreError as error:  # a table without a history: its macro says why
                sources[name.lower(), mode] = error
            else:
                sources[name.lower(), mode] = _Named(source, registered(connection, source))
    ((database,),) = connection.execute("SELECT current_database()").fetchall()
    texts = _Texts(sources, tuple(tables), quoted(database))
    for macro in MACROS:
        called = f"__statestore_{macro.name}"
        kinds: list[Any] = ["VARCHAR"] * (1 + len(macro.parameters))
        function = getattr(texts, macro.name)
        functions.append(function)
        connection.create_function(called, function, kinds, "VARCHAR", null_handling=FunctionNullHandling.SPECIAL)
        declared = ", ".join(f"{name} := NULL" if optional else name for name, optional in macro.parameters)
        given = ", ".join(_cast(name) for name, _ in macro.parameters)
        after = ", " if declared else ""
        connection.execute(
            f"CREATE MACRO {macro.name}(table_name{after}{declared}) AS TABLE "
            f"FROM query({called}(table_name::VARCHAR{after}{given}))"
        )
        literals = {name: "'" + name.replace("'", "''") + "'" for name in tables} if macro.of_each_table else {}
        passed = ", ".join(f"{name} := {name}" if optional else name for name, optional in macro.parameters)
        # A macro that calls the one of all tables is made in half the time of one with its text.
        each = [
            f"CREATE MACRO {quoted(f'{name}_{macro.name}')}({declared}) AS TABLE "
            f"FROM {texts.database}.main.{macro.name}({literal}, {passed})"
            for name, literal in literals.items()
        ]
        if each:
            connection.execute(";".join(["BEGIN", *each, "COMMIT"]))
    return functions


def _cast(name: str) -> str:
    """Return an argument as text, as the function takes it.

    Versions are read in Python, because DuckDB's cast to an integer rounds. Times are one grammar: those with a zone
    are milliseconds, floored, because their text depends on the zone of the session and has forms of its own; integers
    are milliseconds, which text of four digits is not.
    """
    if name.endswith("version"):
        return f"{name}::VARCHAR"
    us = f"epoch_us(TRY_CAST({name} AS TIMESTAMPTZ))"
    milliseconds = f"(({us} - (({us} % 1000) + 1000) % 1000) // 1000)::VARCHAR || 'ms'"  # // rounds towards zero
    return (
        f"CASE WHEN typeof({name}) IN {INTEGERS} THEN {name}::VARCHAR || 'ms' "
        f"WHEN typeof({name}) IN {INSTANTS} AND {us} IS NOT NULL THEN {milliseconds} ELSE {name}::VARCHAR END"
    )


@dataclass(frozen=True)
class _Macro:
    """A macro with its parameters after the table's name, and whether each may be left out."""

    name: str
    parameters: tuple[tuple[str, bool], ...]
    of_each_table: bool = False


MACROS = (
    _Macro("as_of", (("moment", False), ("version", True)), True),
    _Macro("at_version", (("version", False),), True),
    _Macro("history", (("start_time", True), ("end_time", True), ("version", True))),
    _Macro("changes", (("start_version", True), ("end_version", True), ("start_time", True), ("end_time", True))),
    _Macro("versions", ()),
)


@dataclass(frozen=True)
class _Named:
    """A source, with the name by which a query reads it as long as the handle lives."""

    source: MomentSource
    handle: SourceHandle


@dataclass(frozen=True)
class _Texts:
    """The queries that macros stand for, by the macro's name."""

    sources: Mapping[tuple[str, Mode], _Named | StateStoreError]
    tables: tuple[str, ...]
    database: str

    def as_of(self, name: str | None, moment: str | None, version: str | None) -> str:
        if moment is None:
            raise InvalidInputError(ErrorCode.INVALID_TIME, "moment is NULL; expected a time with a zone")
        return self._text(name, Query(as_of=to_us(moment, "moment"), version=_version(version, "version")))

    def at_version(self, name: str | None, version: str | None) -> str:
        if version is None:
            raise InvalidInputError(ErrorCode.INVALID_VERSION, "version is NULL; expected an integer")
        return self._text(name, Query(version=_version(version, "version")))

    def history(self, name: str | None, start: str | None, end: str | None, version: str | None) -> str:
        first, last = _time(start, "start_time"), _time(end, "end_time")
        number = _version(version, "version")
        return self._text(name, Query(mode="history", version=number, start_time=first, end_time=last))

    def changes(self, name: str | None, first: str | None, last: str | None, start: str | None, end: str | None) -> str:
        versions = _version(first, "start_version"), _version(last, "end_version")
        query = Query(mode="changes", start_version=versions[0], end_version=versions[1])
        times = _time(start, "start_time"), _time(end, "end_time")
        return self._text(name, replace(query, start_time=times[0], end_time=times[1]))

    def versions(self, name: str | None) -> str:
        self._source(name, "state")
        return f"FROM {self.database}.main.{quoted(f'{name}$versions')}"

    def _source(self, name: str | None, mode: Mode) -> _Named:
        if name is None:
            raise InvalidInputError(ErrorCode.INVALID_NAME, "table_name is NULL; expected the name of a table")
        found = self.sources.get((name.lower(), mode))
        if isinstance(found, StateStoreError):
            raise found
        if found is None:
            more = ", …" if len(self.tables) > SHOWN_TABLES else ""
            raise NotFoundError(
                ErrorCode.TABLE_NOT_FOUND,
                f"no table {name!r} with a past on this connection, which has "
                f"{', '.join(self.tables[:SHOWN_TABLES]) or 'none'}{more}; name one of them",
            )
        return found

    def _text(self, name: str | None, query: Query) -> str:
        named = self._source(name, query.mode)
        _ = named.source.declared  # raises where the table has no history
        named.source.moments.check(query)
        return (
            f"SELECT {named.source.columns_of(query)} FROM {quoted(named.handle.name)} "
            f"WHERE {MOMENT_COLUMN} = '{moment_text(query)}' AND {PIN_COLUMN} = txid_current() AND {MARKS} IS NOT NULL"
        )


def _time(text: str | None, what: str) -> int | None:
    return None if text is None else to_us(text, what)


def _version(text: str | None, what: str) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text.strip(), re.ASCII):
        raise InvalidInputError(ErrorCode.INVALID_VERSION, f"{what} is {text}; expected an integer")
    return int(text)


# The readings of moments that are kept for the next query, as many as there is room for.
#
# A moment that is asked for again after its reading left is read anew. Nothing else depends on what is kept.

KEPT_READINGS = 64
KEPT_BYTES = 4 * COPIED_BYTES  # of copies for all of them


class KeptReadings:
    """The readings of all tables of a connection, the one asked for last at the end."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, Query], ScanSource] = OrderedDict()
        self._lock = threading.Lock()  # macros are bound by the threads of all cursors

    def get(self, key: tuple[str, Query], make: Callable[[], ScanSource]) -> ScanSource:
        """The reading of a table's moment, which ``make`` makes if none is kept."""
        with self._lock:
            found = self._kept.get(key)
        made = make() if found is None else found  # without the lock, because metadata may be read
        with self._lock:
            source = self._kept.setdefault(key, made)
            self._kept.move_to_end(key)
            copied = sum(each.reading.copied_bytes for each in self._kept.values())
            while len(self._kept) > 1 and (len(self._kept) > KEPT_READINGS or copied > KEPT_BYTES):
                copied -= self._kept.popitem(last=False)[1].reading.copied_bytes
        return source

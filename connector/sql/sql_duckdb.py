"""One statement on DuckDB."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import duckdb
import pyarrow as pa
from sqlglot import exp

from statestore.catalog.reads.versioned_table import VersionedTable
from statestore.catalog.warehouse import Warehouse
from statestore.connector.duckdb.attach import connect, create_schemas, create_view
from statestore.connector.duckdb.reading import Reading
from statestore.connector.identifiers import quoted
from statestore.connector.sql.fields_of_statement import fields_read, names_its_fields
from statestore.connector.sql.named_tables import (
    Value,
    check_answerable,
    find_table,
    is_qualified,
    queries_of,
    time_of,
    with_exact_times,
)
from statestore.connector.sql.shared_duckdb import OwnInstanceNeeded, runs_shared, shared_cursor
from statestore.connector.sql.sql_statement import (
    NESTED_TOO_DEEPLY,
    DuckDBSQL,
    TableReference,
    check_reads_only,
    described_history,
    find_references,
    located,
    parse,
    position_of_quoted,
    replace_table,
    words,
)
from statestore.connector.sql.struct_keys import compare_fields
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, ReadOnlyError, StateStoreError, UnsupportedError
from statestore.formats.places.held_tables import ROWS_AT_ONCE, held_rows
from statestore.formats.state_table import Query, StateTable


def run_on_duckdb(
    warehouse: Warehouse,
    text: str,
    allow_external_access: bool,
    started: Callable[[duckdb.DuckDBPyConnection], None] | None = None,
    first: FirstRows | None = None,
    versions: Mapping[str, int] | None = None,
) -> pa.Table:
    """Run one statement; see `statestore.connector.sql.query.sql`, and for the last three arguments `answer` there."""
    if not allow_external_access and runs_shared(text):
        with contextlib.suppress(OwnInstanceNeeded), shared_cursor() as cursor:
            if started is not None:
                started(cursor)
            run = _Run(warehouse, cursor, allow_external_access, shared=True, first=first, versions=versions)
            return run.answer(text)
    with connect(allow_external_access) as connection:
        if started is not None:
            started(connection)
        return _Run(warehouse, connection, allow_external_access, first=first, versions=versions).answer(text)


def read_on_duckdb(warehouse: Warehouse, connection: duckdb.DuckDBPyConnection, text: str, rows: TakesRows) -> pa.Table:
    """Run one statement that reads and has rows on a connection of its own, whose configuration is locked and which has
    no external access. Raises ReadOnlyError READ_ONLY for any other statement."""
    return _Run(warehouse, connection, external=False, first=rows, only_reads=True).answer(text)


Opened = Callable[[TableReference], "tuple[StateTable, bool] | None"]
"""Finds the table that a reference means in the place of one of the warehouse, and whether it has the name of one of
these; None for the table of the warehouse."""


def select_on_duckdb(
    warehouse: Warehouse, connection: duckdb.DuckDBPyConnection, tree: exp.Query, text: str, opened: Opened
) -> pa.Table:
    """Run a query that was made of a part of the statement ``text`` on a connection of its own, as `read_on_duckdb`
    does. ``opened`` finds tables first. The tree is changed. An answer of very many rows is held in a file."""
    run = _Run(warehouse, connection, external=False, first=_EveryRow(), only_reads=True, opened=opened)
    return run.answer_tree(tree, text)


class _EveryRow:
    """Takes all rows of an answer."""

    def of(self, relation: duckdb.DuckDBPyRelation) -> pa.Table:
        reader = relation.to_arrow_reader(ROWS_AT_ONCE)
        return held_rows(reader.schema, _batches_of(reader))


_READS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN, duckdb.StatementType.MULTI)
_BEFORE_PIVOT = {"PIVOT", "UNPIVOT", "SELECT", "FROM", "WITH", "("}
"""Types of statements that have rows and change nothing. One with PIVOT is several statements for DuckDB, also where it
is CREATE TABLE or COPY, so its first word decides."""
_ANSWERS = tuple(duckdb.StatementType.__members__[name] for name in ("PRAGMA", "CALL", "COPY", "EXPORT", "LOAD"))
"""Types of other statements that answer something, or do something outside the instance, where they are allowed."""
_LOCKED = (duckdb.StatementType.SET, duckdb.StatementType.ATTACH)
"""Types of statements that DuckDB refuses by itself, where the configuration is locked and files are out of reach."""
_BEFORE_READING = (
    duckdb.ParserException,
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.PermissionException,
    duckdb.FatalException,
    duckdb.InternalException,
)
"""Errors about a statement rather than its rows, and those after which DuckDB refuses to go on."""
_IN_EXTENSION = re.compile(r'with name "([^"]+)" is not in the catalog, but it exists in the (\w+) extension')

_MACRO = re.compile(r'Table Function with name "?(?:(.+)_)?(as_of|at_version)"? does not exist')


class _Run:
    """One statement on one DuckDB connection, which may be one to a ``shared`` instance."""

    def __init__(
        self,
        warehouse: Warehouse,
        connection: duckdb.DuckDBPyConnection,
        external: bool,
        shared: bool = False,
        first: TakesRows | None = None,
        only_reads: bool = False,
        opened: Opened = lambda reference: None,
        versions: Mapping[str, int] | None = None,
    ) -> None:
        self.warehouse = warehouse
        self.connection = connection
        self.external = external
        self.shared = shared
        self.first = first
        self.only_reads = only_reads
        self.opened = opened
        self.versions = versions or {}
        self.by_name = False  # whether the statement knows fields of structs by their names alone
        self.readings: dict[Reading, str] = {}  # and the names of their views
        self.text = ""

    def answer(self, text: str) -> pa.Table:
        self.text = text
        known = self._own_statement(text)
        if known is not None:
            return known
        tree, native = self._parsed(text)
        if self.shared and not isinstance(tree, exp.Query):
            raise OwnInstanceNeeded
        references = [] if tree is None else find_references(tree, text, partial(is_qualified, self.warehouse))
        if tree is not None:
            check_reads_only(tree, text, self._is_ours)
        if tree is None or (not references and isinstance(tree, exp.Command | exp.Show)):
            self._view_all()
            return self._execute(text, [])
        changed = self._create_views(references)
        self.by_name = names_its_fields(tree)
        return self._execute(text if native and not changed else tree.sql(dialect=DuckDBSQL), references)

    def answer_tree(self, tree: exp.Query, text: str) -> pa.Table:
        self.text = text
        references = find_references(tree, text, partial(is_qualified, self.warehouse))
        self._create_views(references)
        self.by_name = names_its_fields(tree)
        return self._execute(tree.sql(dialect=DuckDBSQL), references)

    def _own_statement(self, text: str) -> pa.Table | None:
        """Run SHOW STORES or DESCRIBE HISTORY, which DuckDB does not have; None for any other statement."""
        if [word.upper() for word in words(text, DuckDBSQL)] in (["SHOW", "STORES"], ["SHOW", "TABLES"]):
            names = pa.table({"name": pa.array(self.warehouse.tables(), pa.string())})
            return names if self.first is None else self.first.of(self.connection.from_arrow(names))
        described = described_history(text, DuckDBSQL)
        if described is not None:
            name = f"{find_table(self.warehouse, *described).name}$versions"
            return self.answer(f"SELECT * FROM {quoted(name)} ORDER BY version DESC")
        return None

    def _parsed(self, text: str) -> tuple[exp.Expr | None, bool]:
        """(tree, whether it was parsed as DuckDB's SQL); the tree is None if only DuckDB itself can parse the
        statement."""
        try:
            return parse(text, DuckDBSQL), True
        except InvalidInputError as error:
            try:
                self.connection.extract_statements(text)
                return None, True
            except duckdb.Error as refused:
                if error.message == NESTED_TOO_DEEPLY:
                    raise error from None
                if not error.message.startswith("line "):  # sqlglot does not say where a text or comment begins
                    said, place = str(refused).partition("\nLINE ")[0].strip(), _place_of(str(refused), text)
                    error = InvalidInputError(ErrorCode.INVALID_SQL, f"{place}: {said}" if place else said)
            try:
                from statestore.connector.sql.spark_dialect import SparkSQL

                return parse(text, SparkSQL), False
            except InvalidInputError:
                raise error from None

    def _view_all(self) -> None:
        for name in (*self.warehouse.tables(), *self.warehouse.metadata_tables()):
            self._view(name, self.warehouse.open(name), Query(version=self.versions.get(name)))
        create_schemas(self.connection, self.warehouse)

    def _view(self, name: str, table: StateTable, query: Query) -> None:
        self.readings[create_view(self.connection, name, table, query, temporary=self.shared)] = name

    def _create_views(self, references: Sequence[TableReference]) -> bool:
        """Make a view for each table that is read; return whether the tree was changed because a bare name was not
        enough."""
        queries = queries_of(references, _DuckDBEvaluator(self.connection))
        views: dict[tuple[str, Query], str] = {}
        changed = False
        for reference, query in zip(references, queries, strict=True):
            found = self.opened(reference)
            try:
                table = find_table(self.warehouse, reference.name, reference.position) if found is None else found[0]
            except NotFoundError:
                if self.shared:
                    raise OwnInstanceNeeded from None
                if reference.plain and not reference.qualified:
                    continue  # a table or view of DuckDB's own, or an error that DuckDB reports
                raise
            if reference.plain and table.name in self.versions:
                query = replace(query, version=self.versions[table.name])
            check_answerable(table, query, reference)
            is_named = found is None or found[1]
            key = (table.name if is_named else reference.name, query)
            bare = is_named and reference.plain and not reference.qualified and not self._is_ambiguous(table)
            if key not in views:
                views[key] = table.name if bare else f"__statestore_{len(views) + 1}"
                self._view(views[key], table, query)
            if not bare:
                replace_table(reference.node, views[key], reference.shown)
                changed = True
            columns = table.schema(query)
            keys = pa.schema([columns.field(name) for name in table.key_columns if columns.names.count(name) == 1])
            changed |= compare_fields(reference, keys)
        return changed

    def _is_ours(self, name: str) -> bool:
        return any(n.lower() == name.lower() for n in self.warehouse.tables())

    def _is_ambiguous(self, table: StateTable) -> bool:
        """Return whether other tables have this name in another case. Without a dot, only stores have that of a store,
        and none is looked at for its name."""
        is_store = isinstance(table, VersionedTable) and "." not in table.name
        names = self.warehouse.stores() if is_store else self.warehouse.tables()
        return sum(name.lower() == table.name.lower() for name in names) > 1

    def _execute(self, text: str, references: Sequence[TableReference]) -> pa.Table:
        try:
            statements = self.connection.extract_statements(text)
            if self.shared:
                if [each.type for each in statements] != [duckdb.StatementType.SELECT] or not runs_shared(text):
                    raise OwnInstanceNeeded
            elif len(statements) != 1:
                raise InvalidInputError(ErrorCode.INVALID_SQL, "expected one SQL statement; pass several one by one")
            elif self.only_reads:
                self._check_reads(statements[0].type)
            elif not self.external:
                self.connection.execute("SET lock_configuration = true")
            kind = statements[0].type
            is_locked = not self.external and kind in _LOCKED
            if not is_locked:
                self._check_kept(kind)
            relation = self._relation(text)
            if is_locked:  # DuckDB's own refusal says more
                self._check_kept(kind)
            if relation is None:
                return pa.table({})
            return relation.to_arrow_table() if self.first is None else self.first.of(relation)
        except duckdb.Error as error:
            if self.shared and isinstance(error, _BEFORE_READING):
                raise OwnInstanceNeeded from None
            raise self._translated(error, references, text) from error

    def _relation(self, text: str) -> duckdb.DuckDBPyRelation | None:
        """The rows of the statement, from views that have only the fields of structs that it reads, where it tells."""
        if not self.by_name:
            return self.connection.sql(text)
        views = dict(self.readings)
        limited = fields_read(self.connection, text, tuple(views))
        for reading, fields in limited.items():
            self._view(views[reading], reading.table, replace(reading.query, fields=fields))
        try:
            return self.connection.sql(text)
        except duckdb.BinderException:
            if not limited:
                raise
        for reading in limited:  # the plan does without a field that the statement names
            self._view(views[reading], reading.table, reading.query)
        return self.connection.sql(text)

    def _check_reads(self, kind: duckdb.StatementType) -> None:
        begin = words(self.text, DuckDBSQL)[:1] if kind == duckdb.StatementType.MULTI else []
        if kind not in _READS or not {word.upper() for word in begin} <= _BEFORE_PIVOT:
            raise ReadOnlyError(
                ErrorCode.READ_ONLY,
                f"{begin[0].upper() if begin else kind.name} is not allowed here; expected a statement that reads: "
                "SELECT, FROM, WITH, PIVOT, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN",
            )

    def _check_kept(self, kind: duckdb.StatementType) -> None:
        """Raise ReadOnlyError READ_ONLY for a statement whose effect would end with it, such as CREATE TABLE."""
        begin = words(self.text, DuckDBSQL)[:1] if kind == duckdb.StatementType.MULTI else []
        word = begin[0].upper() if begin else kind.name
        if kind not in (*_READS, *_ANSWERS) or (begin and word not in {*_BEFORE_PIVOT, "COPY", "EXPLAIN"}):
            raise ReadOnlyError(
                ErrorCode.READ_ONLY,
                f"{word.replace('_INTO', '')} would have no effect: each statement runs by itself, and what it makes, "
                "changes or sets ends with it; write WITH name AS (SELECT …) in the statement that needs it, or use a "
                "connection of statestore.attach, which keeps it",
            )

    def _translated(self, error: duckdb.Error, references: Sequence[TableReference], run: str) -> Exception:
        for reading in self.readings:
            if reading.error is not None:
                return reading.error
        if isinstance(error, duckdb.CatalogException):
            for reference in references:
                if f"Table with name {reference.name} does not exist" in str(error):
                    try:
                        find_table(self.warehouse, reference.name, reference.position)
                    except StateStoreError as missing:
                        return missing
        said = str(error).partition("\nLINE ")[0].strip()
        trusted = "" if self.only_reads else "{}pass allow_external_access=True if the statement is trusted"
        extension = _IN_EXTENSION.search(said)
        if extension is not None and not self.external:
            refused = UnsupportedError(
                ErrorCode.EXTERNAL_ACCESS_OFF,
                f"the statement needs DuckDB's extension {extension[2]!r} for {extension[1]!r}; extensions are not "
                f"loaded{trusted.format('; ')}",
            )
            return located(refused, position_of_quoted(f'"{extension[1]}"', self.text, DuckDBSQL))
        if isinstance(error, duckdb.PermissionException):
            return UnsupportedError(ErrorCode.EXTERNAL_ACCESS_OFF, f"{said}{trusted.format('; ')}")
        if isinstance(error, duckdb.ProgrammingError | duckdb.DataError | duckdb.NotSupportedError):
            place = self._place(error, run) or position_of_quoted(said, self.text, DuckDBSQL)
            return located(InvalidInputError(ErrorCode.INVALID_SQL, said + _hint_on_macros(said)), place)
        if isinstance(error, duckdb.InterruptException):
            return error
        return UnsupportedError(ErrorCode.ENGINE_FAILED, f"DuckDB cannot answer the statement: {said}")

    def _place(self, error: duckdb.Error, run: str) -> str:
        """The place of an error as DuckDB reports it; empty if it ran another text than the user's."""
        if run != self.text:
            return ""
        if not isinstance(error, duckdb.BinderException | duckdb.CatalogException):
            return _place_of(str(error), run)
        try:  # a relation's errors of names have no place, and those of the same statement have one; no row is read
            self.connection.execute(run)
        except duckdb.Error as again:
            return _place_of(str(again), run)
        return ""


class _DuckDBEvaluator:
    """Versions and times as DuckDB computes them, in UTC; a time without a zone is refused."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection

    def time(self, text: str) -> int:
        return _zoned_time(text)

    def evaluate(self, expressions: Sequence[exp.Expr]) -> list[Value]:
        texts = [with_exact_times(e, self, "make_timestamptz").sql(dialect=DuckDBSQL) for e in expressions]
        try:
            row = self.connection.sql(f"SELECT {', '.join(texts)}").to_arrow_table()
        except duckdb.Error as error:
            raise InvalidInputError(ErrorCode.INVALID_TIME, f"cannot evaluate {', '.join(texts)}: {error}") from error
        return [_value(row.column(i)[0], e.sql(dialect=DuckDBSQL)) for i, e in enumerate(expressions)]


def _zoned_time(text: str) -> int:
    return time_of(text, lambda: None)


def _value(scalar: Any, text: str) -> Value:
    type_ = scalar.type
    if scalar.is_valid and pa.types.is_timestamp(type_) and type_.tz is not None:
        return Value("time", scalar.cast(pa.timestamp("us", "UTC")).value)
    if scalar.is_valid and pa.types.is_integer(type_):
        return Value("integer", scalar.as_py())
    if scalar.is_valid and pa.types.is_string(type_):
        return Value("time", _zoned_time(scalar.as_py()))
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        raise InvalidInputError(
            ErrorCode.NAIVE_TIMESTAMP,
            f"{text} has no time zone; write a zone (TIMESTAMPTZ '2013-01-01 05:00:00+00') or AT TIME ZONE 'UTC'",
        )
    raise InvalidInputError(ErrorCode.INVALID_TIME, f"{text} is {scalar}; expected a time with a zone or an integer")


def _hint_on_macros(said: str) -> str:
    """Return the words of `sql` for a macro of `attach`, which somebody knows from there; "" for other errors."""
    found = _MACRO.search(said)
    if found is None:
        return ""
    clause = "VERSION AS OF 3" if found[2] == "at_version" else "TIMESTAMP AS OF '2024-05-01T09:30Z'"
    return f" (macros are for connections of statestore.attach; here write FROM {found[1] or 'prices'} {clause})"


# The first rows of an answer. The others are counted as they pass and not kept, because there may be any number.

BATCH_ROWS = 1 << 16
_FATAL = ("FATAL Error", "INTERNAL Error")
_FAILED = ("Out of Memory Error", "IO Error")


class TakesRows(Protocol):
    """Takes the rows of an answer as they come."""

    def of(self, relation: duckdb.DuckDBPyRelation) -> pa.Table:
        """Return those rows of a relation that the caller wants as a table. Raises duckdb.Error."""


@dataclass
class FirstRows:
    """At most ``most`` rows of an answer; ``total`` is the number of all, once they have passed."""

    most: int
    total: int = 0

    def of(self, relation: duckdb.DuckDBPyRelation) -> pa.Table:
        """Return the first rows of a relation. Raises duckdb.Error, also for errors of later rows."""
        kept: list[pa.RecordBatch] = []
        self.total = 0
        reader = relation.to_arrow_reader(BATCH_ROWS)
        for batch in _batches_of(reader):
            if self.total < self.most:
                kept.append(batch.slice(0, self.most - self.total))
            self.total += batch.num_rows
        return pa.Table.from_batches(kept, schema=reader.schema)


def _batches_of(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of an answer. Raises duckdb.Error."""
    while True:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        except (OSError, pa.ArrowException) as error:
            raise error_of_duckdb(str(error)) from error
        yield batch


def error_of_duckdb(said: str) -> duckdb.Error:
    """DuckDB's error by its text, because the reader passes it on as one of Arrow."""
    if said.startswith("INTERRUPT Error"):
        return duckdb.InterruptException(said)
    if said.startswith(_FATAL):
        return duckdb.FatalException(said)
    return duckdb.OperationalError(said) if said.startswith(_FAILED) else duckdb.InvalidInputException(said)


# The place in a statement to which an error of DuckDB points with a caret.

_POINTED = re.compile(r"^(LINE (\d+): )(.*)\n( *)\^", re.MULTILINE)
_CUT = "..."


def _place_of(said: str, text: str) -> str:
    """Return the place of an error of the statement ``text`` as ``line 1, column 8``; empty if it is not known."""
    found = _POINTED.search(said)
    lines = text.split("\n")
    if found is None or int(found[2]) > len(lines):
        return ""
    shown, line = found[3], lines[int(found[2]) - 1]
    left = len(found[4]) - len(found[1])
    column = 1
    if shown.startswith(_CUT):  # DuckDB shows a part of a long line
        shown, left = shown.removeprefix(_CUT), left - len(_CUT)
        part = shown.removesuffix(_CUT)
        if line.count(part) != 1:
            return ""
        column += line.index(part)
    for sign in shown:
        if left <= 0:
            break
        left -= _width(sign)
        column += 1
    return f"line {found[2]}, column {column}"


def _width(sign: str) -> int:
    """The columns of a terminal that a sign takes, which is what DuckDB counts."""
    return 0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in ("W", "F") else 1

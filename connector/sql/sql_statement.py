"""The tables that an SQL statement names, with their versions and times.

Two dialects are parsed, DuckDB's and Spark's (`spark_dialect`), both with ``TIMESTAMP AS OF``, ``VERSION AS OF``,
``FOR SYSTEM_TIME AS OF``, ``FOR SYSTEM_VERSION AS OF`` and ``AT (VERSION => n)`` / ``AT (TIMESTAMP => t)``. Tables are
replaced in the syntax tree, never in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import SqlglotError
from sqlglot.parsers.duckdb import DuckDBParser

from statestore.catalog.reads.arguments import RANGE, unknown_argument
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, ReadOnlyError, StateStoreError
from statestore.formats.state_table import Mode

PHRASES = {
    ("FOR", "SYSTEM_VERSION"): "VERSION",
    ("SYSTEM_VERSION", "AS", "OF"): "VERSION",
    ("SYSTEM_TIME", "AS", "OF"): "TIMESTAMP",
}
_SECOND = "second clause"
_WRITES = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.TruncateTable)
_QUOTED = re.compile(r"\"([^\"]+)\"|`([^`]+)`|[Nn]ame (\w+)")
_SQLGLOT_WORDS = re.compile(r"Required keyword: '\w+' missing for <class '[\w.]+'>")

_RANGES = {"history": ("start_time", "end_time"), "changes": RANGE}


class _DuckDBSQLParser(DuckDBParser):
    VERSION_PHRASES = {**DuckDBParser.VERSION_PHRASES, **PHRASES}  # noqa: RUF012

    def _parse_version(self) -> exp.Version | None:
        return with_second(super()._parse_version(), super()._parse_version)

    def _warn_unsupported(self) -> None:
        """Give no warning: statements that sqlglot cannot parse in detail are passed to DuckDB unchanged."""


def with_second(version: exp.Version | None, parse_next: Callable[[], exp.Version | None]) -> exp.Version | None:
    """Let a VERSION AS OF follow a TIMESTAMP AS OF, and the other way round."""
    if version is not None and (second := parse_next()) is not None:
        version.meta[_SECOND] = second
    return version


class DuckDBSQL(DuckDB):
    """DuckDB's SQL with the AS OF spellings."""

    Parser = _DuckDBSQLParser


@dataclass(frozen=True)
class TableReference:
    """One position in a statement at which a table is read; the bounds are unevaluated expressions."""

    node: exp.Table
    name: str
    position: str
    mode: Mode = "state"
    version: exp.Expr | None = None
    time: exp.Expr | None = None
    bounds: tuple[tuple[str, exp.Expr], ...] = ()

    @property
    def qualified(self) -> bool:
        """Return whether the name has parts, as in ``sessions.counts``."""
        return bool(self.node.db)

    @property
    def shown(self) -> str:
        """The name by which columns are qualified."""
        return self.node.name if self.qualified else self.name

    @property
    def plain(self) -> bool:
        """Return whether the table is read without a version or time, by its name alone."""
        return self.mode == "state" and self.version is None and self.time is None

    def expressions(self) -> Iterator[tuple[str, exp.Expr]]:
        """Yield all expressions to evaluate: (field of Query or ``start``/``end``, expression)."""
        if self.version is not None:
            yield "version", self.version
        if self.time is not None:
            yield "as_of", self.time
        yield from self.bounds


NESTED_TOO_DEEPLY = "the statement is nested too deeply"


def parse(text: str, dialect: type[sqlglot.Dialect]) -> exp.Expr:
    """The syntax tree of one statement. Raises InvalidInputError INVALID_SQL, which names the position."""
    try:
        trees = [tree for tree in sqlglot.parse(text, read=dialect) if tree is not None]
    except SqlglotError as error:
        raise InvalidInputError(ErrorCode.INVALID_SQL, _describe(error)) from None
    except RecursionError:
        raise InvalidInputError(ErrorCode.INVALID_SQL, NESTED_TOO_DEEPLY) from None
    if len(trees) != 1:
        raise InvalidInputError(
            ErrorCode.INVALID_SQL, f"expected one SQL statement, found {len(trees)}; pass them one by one"
        )
    return trees[0]


def words(text: str, dialect: type[sqlglot.Dialect]) -> list[str]:
    """The statement's tokens without a final semicolon; an empty list if it cannot even be split into tokens."""
    try:
        tokens = [token.text for token in sqlglot.tokenize(text, read=dialect)]
    except SqlglotError:
        return []
    return tokens[:-1] if tokens and tokens[-1] == ";" else tokens


def described_history(text: str, dialect: type[sqlglot.Dialect]) -> tuple[str, str] | None:
    """(name, position) of the table in ``DESCRIBE HISTORY name``; None for any other statement."""
    statement = words(text, dialect)
    if [word.upper() for word in statement[:2]] != ["DESCRIBE", "HISTORY"] or len(statement) % 2 == 0:
        return None
    if len(statement) < 3 or any(word != "." for word in statement[3::2]):
        return None
    return ".".join(statement[2::2]), _line_and_column(text, sqlglot.tokenize(text, read=dialect)[2].start)


def full_name(node: exp.Table) -> str:
    """The name with its qualifiers, as in ``sessions.counts``."""
    return ".".join(part.name for part in node.parts)


def find_references(
    tree: exp.Expr, text: str, is_ours: Callable[[str], bool] = lambda name: False
) -> list[TableReference]:
    """The tables that a statement reads, in order of appearance.

    They are every unqualified table, every table whose qualified name ``is_ours``, and every ``history(…)`` and
    ``changes(…)``. Names that a common table expression defines are not tables. Raises InvalidInputError INVALID_SQL
    for a clause that cannot be answered.
    """
    references = []
    for node in tree.find_all(exp.Table):
        position = position_of(node, text)
        if isinstance(node.this, exp.Anonymous) and node.this.name.lower() in ("history", "changes"):
            references.append(_function(node, position))
        elif isinstance(node.this, exp.Identifier) and not node.db:
            reference = _named(node, position)
            if not _is_cte(node):
                references.append(reference)
            elif not reference.plain:
                raise _invalid(f"{node.name!r} is defined by WITH; put the AS OF clause inside its query", position)
        elif isinstance(node.this, exp.Identifier) and is_ours(full_name(node)):
            references.append(_named(node, position))
    return references


def replace_table(node: exp.Table, name: str, shown: str) -> None:
    """Make ``node`` read the table ``name``, while columns can still be qualified by ``shown`` or by the full original
    name."""
    if node.db:
        _shorten_columns(node)
        node.set("db", None)
        node.set("catalog", None)
    node.set("this", exp.to_identifier(name, quoted=True))
    node.set("version", None)
    node.set("when", None)
    if not node.alias and not isinstance(node.parent, exp.Describe | exp.Summarize):
        alias = node.args.get("alias") or exp.TableAlias()
        alias.set("this", exp.to_identifier(shown, quoted=True))
        node.set("alias", alias)


def _shorten_columns(node: exp.Table) -> None:
    """Replace ``sessions.counts.value`` by ``counts.value`` in the whole statement."""
    qualified = [part.name.lower() for part in node.parts]
    width = len(qualified)
    for column in list(node.root().find_all(exp.Column)):
        parts = column.parts
        if len(parts) > width and [part.name.lower() for part in parts[:width]] == qualified:
            kept = parts[width - 1 :]
            for index, argument in enumerate(("this", "table", "db", "catalog"), 1):
                column.set(argument, kept[-index] if index <= len(kept) else None)


def _named(node: exp.Table, position: str) -> TableReference:
    version, time = _clauses(node, position)
    return TableReference(node, full_name(node), position, "state", version, time)


def _clauses(node: exp.Table, position: str) -> tuple[exp.Expr | None, exp.Expr | None]:
    """(version, time) expressions of the table's time travel clauses; both may be given, each once."""
    parts: dict[str, exp.Expr] = {}
    clauses: list[Any] = []
    if (version := node.args.get("version")) is not None:
        clauses += [version, *([version.meta[_SECOND]] if _SECOND in version.meta else [])]
    if (when := node.args.get("when")) is not None:
        clauses.append(when)
    for clause in clauses:
        historical = isinstance(clause, exp.HistoricalData)
        kind = clause.args["kind"] if historical else clause.name
        wrong = clause.name != "AT" if historical else clause.args["kind"] != "AS OF"
        if wrong or kind not in ("VERSION", "TIMESTAMP"):
            raise _invalid(
                f"table {node.name!r} is read by a clause other than AS OF or AT (VERSION | TIMESTAMP => …); "
                f"for a range of time use history('{node.name}', start, end)",
                position,
            )
        if kind in parts:
            raise _invalid(f"table {node.name!r} has two {kind} clauses; keep one", position)
        parts[kind] = clause.expression
    return parts.get("VERSION"), parts.get("TIMESTAMP")


def _function(node: exp.Table, position: str) -> TableReference:
    mode: Mode = "history" if node.this.name.lower() == "history" else "changes"
    arguments = node.this.expressions
    if not arguments or not (isinstance(arguments[0], exp.Literal) and arguments[0].is_string):
        raise _invalid(f"{mode}(…) takes the table's name as a string first, as in {mode}('prices')", position)
    bounds: dict[str, exp.Expr] = {}
    for index, argument in enumerate(arguments[1:]):
        if isinstance(argument, exp.Kwarg | exp.PropertyEQ | exp.EQ):
            name = argument.this.name.lower()
            if name not in _RANGES[mode]:
                raise _invalid(unknown_argument(mode, argument.this.name, _RANGES[mode]), position)
            if name in bounds:
                raise _invalid(f"{mode}(…) is given {name} twice; write it once", position)
            bounds[name] = argument.expression
        elif index < 2:
            bounds[("start", "end")[index]] = argument
        else:
            raise _invalid(f"{mode}(…) takes a name, a start and an end, found {len(arguments)} arguments", position)
    version, time = _clauses(node, position)
    if time is not None:
        raise _invalid(f"{mode}(…) cannot be combined with TIMESTAMP AS OF; give a start and an end", position)
    if version is not None and mode == "changes":
        raise _invalid("changes(…) cannot be combined with VERSION AS OF; give a start and an end", position)
    return TableReference(node, arguments[0].name, position, mode, version, None, tuple(bounds.items()))


def _is_cte(node: exp.Table) -> bool:
    """Return whether a common table expression that is visible at ``node`` has its name."""
    child: exp.Expr = node
    inside: exp.Expr | None = None  # the CTE of the current level that the node is part of
    while (parent := child.parent) is not None:
        if isinstance(child, exp.CTE):
            inside = child
        with_ = parent.args.get("with_") or parent.args.get("with")
        if with_ is not None and not isinstance(parent, exp.With):
            within = inside if inside is not None and inside.parent is with_ else None
            for cte in with_.expressions:
                if cte is within and not with_.args.get("recursive"):
                    break
                if cte.alias.lower() == node.name.lower():
                    return True
                if cte is within:
                    break
        child = parent
    return False


def position_of(node: exp.Expr, text: str) -> str:
    """The line and column at which the name of a table or column begins; empty if it is not known."""
    parts = node.parts if isinstance(node, exp.Table | exp.Column | exp.Dot) else [node]
    start = (parts[0] if parts else node.this).meta.get("start")
    if start is None:
        return ""
    return _line_and_column(text, start)


def _line_and_column(text: str, start: int) -> str:
    before = text[:start]
    return f"line {before.count(chr(10)) + 1}, column {start - (before.rfind(chr(10)) + 1) + 1}"


def located(error: StateStoreError, position: str) -> StateStoreError:
    """The error with the position in the statement that it concerns, unless it names one already."""
    if not position or error.message.startswith("line "):
        return error
    return type(error)(error.code, f"{position}: {error.message}")


def position_of_quoted(message: str, text: str, dialect: type[sqlglot.Dialect]) -> str:
    """The position in the statement of the first name that an engine's ``message`` quotes; empty if there is none.

    Engines run a statement with other table names, so the positions that they report do not fit ``text``.
    """
    names = [name.split(".")[-1] for quoted in _QUOTED.findall(message) for name in quoted if name]
    try:
        tokens = sqlglot.tokenize(text, read=dialect)
    except SqlglotError:
        return ""
    for name in names:
        for token in tokens:
            if token.text.lower() == name.lower():
                return _line_and_column(text, token.start)
    return ""


def check_reads_only(tree: exp.Expr, text: str, is_ours: Callable[[str], bool]) -> None:
    """Raise ReadOnlyError READ_ONLY for a statement that would change a table of the warehouse."""
    if not isinstance(tree, _WRITES):
        return
    target = (tree.this if isinstance(tree.this, exp.Expr) else tree).find(exp.Table)
    if target is not None and is_ours(full_name(target)):
        raise located(
            ReadOnlyError(
                ErrorCode.READ_ONLY,
                f"SQL reads {full_name(target)!r} and does not change it; write with put, put_all or write in Python, "
                "or from Spark with df.write and writeStream",
            ),
            position_of(target, text),
        )


def _invalid(message: str, position: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.INVALID_SQL, f"{position}: {message}" if position else message)


def _describe(error: SqlglotError) -> str:
    details = getattr(error, "errors", None)
    if not details:
        return str(error)
    first = details[0]
    near = f"{first.get('start_context') or ''}>>>{first.get('highlight') or ''}<<<{first.get('end_context') or ''}"
    what = _SQLGLOT_WORDS.sub("something is missing", str(first.get("description")))
    column = int(first.get("col") or 0)  # of the last sign of what is highlighted
    column = max(1, column - len((first.get("highlight") or " ").rpartition("\n")[2]) + 1)
    return f"line {first.get('line')}, column {column}: {what}, near {near!r}"

"""The tables that a statement names: their lookup, the columns that it may need, and its versions
and times as queries.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Literal, Protocol

from sqlglot import exp

from statestore.catalog.warehouse import Warehouse
from statestore.connector.sql.sql_statement import TableReference, located
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.times import session_time, to_us


def find_table(warehouse: Warehouse, name: str, position: str = "") -> StateTable:
    """The table called ``name``. Case is ignored, as in DuckDB and Spark, unless two names differ by case only.

    Raises NotFoundError TABLE_NOT_FOUND, which names the position, the nearest table and the existing ones.
    """
    try:
        return warehouse.open(name)  # as it is written, so that no other store is looked at
    except NotFoundError as error:
        names = (*warehouse.tables(), *warehouse.metadata_tables()) if error.code == ErrorCode.TABLE_NOT_FOUND else ()
        same = [each for each in names if each.lower() == name.lower()]
        if len(same) != 1 or same == [name]:
            raise located(error, position) from None
    try:
        return warehouse.open(same[0])
    except NotFoundError as error:
        raise located(error, position) from None


def is_qualified(warehouse: Warehouse, name: str) -> bool:
    """Return whether a name of several parts is a table of the warehouse, or belongs to a store whose tables have such
    names."""
    names = (*warehouse.tables(), *warehouse.metadata_tables())
    schema = name.rpartition(".")[0].lower()
    return any(schema == known.lower() for known in warehouse.schemas()) or name.lower() in map(str.lower, names)


def check_answerable(table: StateTable, query: Query, reference: TableReference) -> None:
    """Raise now, with the position in the statement, any error that planning the read would raise."""
    if reference.plain:
        return
    try:
        table.splits(query)
    except StateStoreError as error:
        raise located(error, reference.position) from None


def columns_named(tree: exp.Expr, references: Sequence[TableReference]) -> set[str] | None:
    """Lower-case names that include all columns the statement reads; None if it may read any column.

    Every name in the statement counts, so no column is missed. Constructs that read columns without naming them (stars,
    natural joins, pivots, aliases by position) give None.
    """
    if not isinstance(tree, exp.Query) or tree.find(exp.Pivot, exp.Command) is not None:
        return None
    for reference in references:
        alias = reference.node.args.get("alias")
        if not isinstance(reference.node.parent, exp.From | exp.Join) or (alias is not None and alias.columns):
            return None
    if any(join.method == "NATURAL" for join in tree.find_all(exp.Join)):
        return None
    for star in tree.find_all(exp.Star):
        if not isinstance(star.parent, exp.Count):
            return None
    if any(not select.expressions for select in tree.find_all(exp.Select)):
        return None
    return {str(identifier.this).lower() for identifier in tree.find_all(exp.Identifier)}


# Evaluation of the versions and times in a statement to a `Query`.

_DIGITS = re.compile("[0-9]+")
_MOST_DIGITS = 30
_DATES = (exp.DataType.Type.DATE, exp.DataType.Type.DATE32)
_TIMES = tuple(exp.DataType.TEMPORAL_TYPES - {*_DATES, exp.DataType.Type.TIME, exp.DataType.Type.TIMETZ})


@dataclass(frozen=True)
class Value:
    """A constant of a statement: an ``_integer`` as written, or a ``time`` in epoch microseconds."""

    kind: Literal["integer", "time"]
    value: int


class _Evaluator(Protocol):
    """Computes constant expressions as one engine does."""

    def time(self, text: str) -> int:
        """Epoch microseconds of a time as text, in the grammar of `parse_time`.

        Raises InvalidInputError NAIVE_TIMESTAMP for one without a zone, unless the engine's session has one."""

    def evaluate(self, expressions: Sequence[exp.Expr]) -> list[Value]:
        """One value each, all at one current time. Raises InvalidInputError for an expression that is no version and no
        time."""


def queries_of(references: Sequence[TableReference], evaluator: _Evaluator) -> list[Query]:
    """The query of each reference."""
    wanted = [(reference, key, part) for reference in references for key, part in reference.expressions()]
    fields: dict[int, dict[str, Any]] = {id(reference): {} for reference in references}
    for (reference, key, part), value in zip(wanted, _values(wanted, evaluator), strict=True):
        name, number = _field(reference, key, value, part)
        if name in fields[id(reference)]:
            raise InvalidInputError(
                ErrorCode.INVALID_SQL, f"{reference.position}: {name} of {reference.name!r} is given twice"
            )
        fields[id(reference)][name] = number
    return [Query(mode=reference.mode, **fields[id(reference)]) for reference in references]


def _values(wanted: Sequence[tuple[TableReference, str, exp.Expr]], evaluator: _Evaluator) -> Iterator[Value]:
    """The values of all expressions: those that are written out, and those that the engine computes."""
    written: list[Value | None] = []
    for reference, key, part in wanted:
        _check_constant(reference, part)
        try:
            written.append(_written(reference, key, part, evaluator))
        except StateStoreError as error:
            raise located(error, reference.position) from None
    rest = [(reference, part) for (reference, _, part), value in zip(wanted, written, strict=True) if value is None]
    try:
        computed = iter(evaluator.evaluate([part for _, part in rest]) if rest else ())
    except StateStoreError:
        for reference, part in rest:
            try:
                evaluator.evaluate([part])
            except StateStoreError as error:
                raise located(error, reference.position) from None
        raise
    return (next(computed) if value is None else value for value in written)


def _written(reference: TableReference, key: str, part: exp.Expr, evaluator: _Evaluator) -> Value | None:
    """The value of a number or text; None for an expression. Digits in quotes are a version where one is expected."""
    found = _literal(part)
    if isinstance(found, int):
        return Value("integer", found)
    text = _written_time(part, (*_TIMES, *_DATES)) if found is None else found
    if text is None:
        return None
    may_be_version = key.endswith("version") or (reference.mode == "changes" and key in ("start", "end"))
    number = _integer(text) if may_be_version and found is not None else None
    if number is not None:
        return Value("integer", number)
    return Value("time", 0 if key.endswith("version") else evaluator.time(text))


def _written_time(expression: exp.Expr, kinds: Sequence[Any]) -> str | None:
    """The text of ``TIMESTAMP '…'``, ``CAST('…' AS TIMESTAMP)`` and the like; None for another expression."""
    if isinstance(expression, exp.Paren):
        return _written_time(expression.this, kinds)
    if not isinstance(expression, exp.Cast) or not expression.this.is_string or not expression.to.is_type(*kinds):
        return None
    return str(expression.this.name)


def with_exact_times(expression: exp.Expr, evaluator: _Evaluator, function: str) -> exp.Expr:
    """The expression with its times as text replaced by calls of ``function``, which makes a time of epoch
    microseconds. A text without a zone may stand before AT TIME ZONE."""

    def exact(node: exp.Expr) -> exp.Expr:
        text = _written_time(node, _TIMES) if isinstance(node, exp.Cast) else None
        if text is None:
            return node
        try:
            return exp.Anonymous(this=function, expressions=[_number(evaluator.time(text))])
        except InvalidInputError as error:
            if error.code == ErrorCode.NAIVE_TIMESTAMP and isinstance(node.parent, exp.AtTimeZone):
                return node
            raise

    return expression.copy().transform(exact)


def _number(value: int) -> exp.Expr:
    number = exp.Literal.number(abs(value))
    return exp.Neg(this=number) if value < 0 else number


def time_of(text: str, zone: Callable[[], tzinfo | None]) -> int:
    """Epoch microseconds of a time as text; ``zone`` is asked for the zone of the session if the text has none, and
    InvalidInputError NAIVE_TIMESTAMP is raised if there is none either."""
    try:
        return session_time(text, "time", zone)
    except InvalidInputError as error:
        code = ErrorCode.NAIVE_TIMESTAMP if error.code == ErrorCode.NAIVE_DATETIME else error.code
        raise InvalidInputError(code, error.message) from None


def _literal(expression: exp.Expr) -> int | str | None:
    """A bare integer or string (also as ``TIMESTAMP '…'``), or None for an expression that an engine must evaluate."""
    if isinstance(expression, exp.Paren):
        return _literal(expression.this)
    if isinstance(expression, exp.Neg):
        inner = _literal(expression.this)
        return -inner if isinstance(inner, int) else None
    if isinstance(expression, exp.Literal):
        if expression.is_string:
            return str(expression.this)
        return _integer(str(expression.this))
    return None


def _integer(text: str) -> int | None:
    """The number that ``text`` writes in digits; None for any other text. InvalidInputError INVALID_SQL for too many
    digits."""
    if not _DIGITS.fullmatch(text):
        return None
    if len(text) > _MOST_DIGITS:
        raise InvalidInputError(
            ErrorCode.INVALID_SQL, f"a version or time has {len(text)} digits, at most {_MOST_DIGITS}"
        )
    return int(text)


def _check_constant(reference: TableReference, part: exp.Expr) -> None:
    if part.find(exp.Column, exp.Query, exp.Subquery, exp.Placeholder) is not None:
        raise InvalidInputError(
            ErrorCode.INVALID_SQL,
            f"{reference.position}: the version or time of {reference.name!r} is {part.sql()}; "
            "expected a constant expression without columns and subqueries",
        )


def _field(reference: TableReference, key: str, value: Value, part: exp.Expr) -> tuple[str, int]:
    """The name of the `Query` field and its value."""
    if key in ("start", "end"):
        by_version = reference.mode == "changes" and value.kind == "integer"
        key = f"{key}_{'version' if by_version else 'time'}"
    if key.endswith("version"):
        if value.kind != "integer":
            raise InvalidInputError(
                ErrorCode.INVALID_VERSION,
                f"{reference.position}: version {part.sql()} of {reference.name!r} is not an integer",
            )
        return key, value.value
    if value.kind == "time":
        return key, to_us(value.value // 1000, f"time of {reference.name!r}")
    return key, to_us(value.value, f"time of {reference.name!r}")

"""Evaluation of the versions and times in a statement to a `Query`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Literal, Protocol

from sqlglot import exp

from statestore.connector.sql.sql_statement import TableReference, located
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.state_table import Query
from statestore.formats.values.times import session_time, to_us

_DIGITS = re.compile("[0-9]+")
_MOST_DIGITS = 30
_DATES = (exp.DataType.Type.DATE, exp.DataType.Type.DATE32)
_TIMES = tuple(exp.DataType.TEMPORAL_TYPES - {*_DATES, exp.DataType.Type.TIME, exp.DataType.Type.TIMETZ})


@dataclass(frozen=True)
class Value:
    """A constant of a statement: an ``integer`` as written, or a ``time`` in epoch microseconds."""

    kind: Literal["integer", "time"]
    value: int


class Evaluator(Protocol):
    """Computes constant expressions as one engine does."""

    def time(self, text: str) -> int:
        """Epoch microseconds of a time as text, in the grammar of `parse_time`.

        Raises InvalidInputError NAIVE_TIMESTAMP for one without a zone, unless the engine's session has one."""

    def evaluate(self, expressions: Sequence[exp.Expr]) -> list[Value]:
        """One value each, all at one current time. Raises InvalidInputError for an expression that is no version and no
        time."""


def queries_of(references: Sequence[TableReference], evaluator: Evaluator) -> list[Query]:
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


def _values(wanted: Sequence[tuple[TableReference, str, exp.Expr]], evaluator: Evaluator) -> Iterator[Value]:
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


def _written(reference: TableReference, key: str, part: exp.Expr, evaluator: Evaluator) -> Value | None:
    """The value of a number or text; None for an expression. Digits in quotes are a version where one is expected."""
    found = literal(part)
    if isinstance(found, int):
        return Value("integer", found)
    text = _written_time(part, (*_TIMES, *_DATES)) if found is None else found
    if text is None:
        return None
    may_be_version = key.endswith("version") or (reference.mode == "changes" and key in ("start", "end"))
    number = integer(text) if may_be_version and found is not None else None
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


def with_exact_times(expression: exp.Expr, evaluator: Evaluator, function: str) -> exp.Expr:
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


def literal(expression: exp.Expr) -> int | str | None:
    """A bare integer or string (also as ``TIMESTAMP '…'``), or None for an expression that an engine must evaluate."""
    if isinstance(expression, exp.Paren):
        return literal(expression.this)
    if isinstance(expression, exp.Neg):
        inner = literal(expression.this)
        return -inner if isinstance(inner, int) else None
    if isinstance(expression, exp.Literal):
        if expression.is_string:
            return str(expression.this)
        return integer(str(expression.this))
    return None


def integer(text: str) -> int | None:
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

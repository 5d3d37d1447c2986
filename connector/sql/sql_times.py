"""Evaluation of the versions and times in a statement to a `Query`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from sqlglot import exp

from statestore.connector.sql.sql_statement import TableReference, located
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, StateStoreError
from statestore.formats.state_table import Query
from statestore.formats.values.times import parse_time, to_us

_DIGITS = re.compile("[0-9]+")
_MOST_DIGITS = 30


@dataclass(frozen=True)
class Value:
    """A constant of a statement: an ``integer`` as written, or a ``time`` in epoch microseconds."""

    kind: Literal["integer", "time"]
    value: int


class Evaluator(Protocol):
    """Computes constant expressions as one engine does."""

    def evaluate(self, expressions: Sequence[exp.Expr]) -> list[Value]:
        """One value each, all at one current time. Raises InvalidInputError for an expression that is no version and no
        time."""


def queries_of(references: Sequence[TableReference], evaluator: Evaluator) -> list[Query]:
    """The query of each reference."""
    wanted = [(reference, key, part) for reference in references for key, part in reference.expressions()]
    for reference, _, part in wanted:
        _check_constant(reference, part)
    try:
        values = evaluator.evaluate([part for _, _, part in wanted])
    except StateStoreError:
        for reference, _, part in wanted:
            try:
                evaluator.evaluate([part])
            except StateStoreError as error:
                raise located(error, reference.position) from None
        raise
    fields: dict[int, dict[str, Any]] = {id(reference): {} for reference in references}
    for (reference, key, part), value in zip(wanted, values, strict=True):
        name, number = _field(reference, key, value, part)
        if name in fields[id(reference)]:
            raise InvalidInputError(
                ErrorCode.INVALID_SQL, f"{reference.position}: {name} of {reference.name!r} is given twice"
            )
        fields[id(reference)][name] = number
    return [Query(mode=reference.mode, **fields[id(reference)]) for reference in references]


def zoned_time(text: str) -> int:
    """Epoch microseconds of a time written with its zone; raises InvalidInputError NAIVE_TIMESTAMP without one."""
    try:
        return parse_time(text, "time")
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

"""Points of a chart: two columns of an answer as numbers, times or texts, and a third one that names the series."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from statestore.connector.explorer.limits import Limits
from statestore.connector.explorer.shown_rows import shown_rows
from statestore.connector.explorer.sql_answers import Answer
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, shown

MAX_POINTS = 5_000


def kind_of(kind: pa.DataType) -> str:
    """Return how a chart takes a column: as a ``number``, a ``time``, or as ``text``."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "time" if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else "text"


def points_of(answer: Answer, given: Mapping[str, str], limits: Limits) -> pa.Table:
    """Return ``x``, ``y`` and ``series`` of the first MAX_POINTS rows.

    Numbers are doubles and times epoch milliseconds. Rows whose x or y is null or no finite number are left out. The
    metadata has the number of all rows as ``rows``, of those that were looked at as ``seen``, and of those left out as
    ``left_out``.
    """
    x, y = _column(answer, given, "x"), _column(answer, given, "y")
    series = _column(answer, given, "series") if given.get("series") else None
    if kind_of(answer.schema.field(y).type) != "number":
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION,
            f"y is {shown(given.get('y'))} of type {answer.schema.field(y).type}; expected a column of numbers",
        )
    rows = answer.spool.rows(None, 0, MAX_POINTS, limits)
    named = pa.nulls(rows.num_rows, pa.string()) if series is None else _values(rows, series, as_text=True)
    found = pa.table({"x": _values(rows, x), "y": _values(rows, y), "series": named})
    kept = found.filter(pc.and_(_is_drawable(found["x"]), _is_drawable(found["y"])))
    facts = {"rows": answer.spool.count, "seen": rows.num_rows, "left_out": rows.num_rows - kept.num_rows}
    return kept.replace_schema_metadata({name: str(value) for name, value in facts.items()})


def _column(answer: Answer, given: Mapping[str, str], name: str) -> int:
    wanted = given.get(name) or ""
    if wanted not in answer.schema.names:
        raise InvalidInputError(
            ErrorCode.INVALID_OPTION, f"{name} is {shown(wanted)}; expected one of {', '.join(answer.schema.names)}"
        )
    return int(answer.schema.get_field_index(wanted))


def _values(rows: pa.Table, at: int, as_text: bool = False) -> pa.Array:
    column = rows.column(at)
    kind = "text" if as_text else kind_of(column.type)
    if kind == "text":
        return shown_rows(rows.select([at])).column(0)
    if kind == "number":
        return column.cast(pa.float64(), safe=False)
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("ms"))
    per_ms = {"s": 1e-3, "ms": 1, "us": 1e3, "ns": 1e6}[column.type.unit]
    return pc.divide(column.cast(pa.int64()).cast(pa.float64(), safe=False), per_ms)


def _is_drawable(column: pa.ChunkedArray) -> pa.Array:
    known = pc.is_valid(column)
    if not pa.types.is_floating(column.type):
        return known
    return pc.and_(known, pc.fill_null(pc.is_finite(column), False))

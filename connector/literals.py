"""Values and filters as text of Python, of DuckDB's SQL and of Spark's SQL, whatever characters they hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.connector.data_files import is_binary
from statestore.connector.identifiers import quoted, spark_quoted
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.values.filters import NULL_TESTS, TEXT_OPERATORS, Filter


@dataclass(frozen=True)
class Dialect:
    """How an engine writes names and values, and calls functions on texts."""

    engine: str
    name: Callable[[str], str]
    text: Callable[[str], str]
    binary: Callable[[bytes], str]
    array: tuple[str, str]
    naive: str
    starts: str
    ends: str


def python_literal(value: Any) -> str:
    """Return an expression of Python for a value; times and decimals are those of the modules of their names."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {python_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(python_literal, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, Decimal):
        return f"decimal.Decimal({str(value)!r})"
    if isinstance(value, datetime):
        zone = "" if value.tzinfo is None else "+00:00"
        return f"datetime.datetime.fromisoformat({_time(value) + zone!r})"
    if isinstance(value, date | time):
        return f"datetime.{type(value).__name__}.fromisoformat({value.isoformat()!r})"
    if isinstance(value, np.datetime64 | np.timedelta64):  # of columns in nanoseconds
        return f"np.{type(value).__name__}({value.astype(np.int64)}, 'ns')"
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    raise _unknown("Python", value)


def sql_literal(value: Any, dialect: Dialect) -> str:
    """Return an expression of SQL for a value. Raises UnsupportedError UNSUPPORTED_TYPE for one that has none."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"CAST('{value!r}' AS DOUBLE)"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS {_decimal(value)})"
    if isinstance(value, str):
        return dialect.text(value)
    if isinstance(value, bytes):
        return dialect.binary(value)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            return f"{dialect.naive} '{_time(value)}'"
        return f"CAST('{_time(value)}+00:00' AS {_instant(dialect)})"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, time):
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, list | tuple):
        begin, end = dialect.array
        return begin + ", ".join(sql_literal(each, dialect) for each in value) + end
    raise _unknown(dialect.engine, value)


def _instant(dialect: Dialect) -> str:
    return "TIMESTAMPTZ" if dialect.engine == "DuckDB" else "TIMESTAMP"


def _time(value: datetime) -> str:
    if getattr(value, "nanosecond", 0):
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_TYPE, f"{value} has nanoseconds, which a text of this time would lose"
        )
    whole = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return whole.isoformat(sep=" ", timespec="microseconds")


def _decimal(value: Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise _unknown("SQL", value)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    return f"DECIMAL({precision}, {scale})" if precision <= 38 else "DOUBLE"


def _unknown(engine: str, value: Any) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.UNSUPPORTED_TYPE, f"a value of type {type(value).__name__} has no literal here in {engine}"
    )


def _duckdb_text(text: str) -> str:
    """Return a text of DuckDB's SQL, which cannot hold the character 0."""
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
    return parts[0] if len(parts) == 1 else "(" + " || chr(0) || ".join(parts) + ")"


def _spark_text(text: str) -> str:
    """Return a text of Spark's SQL: in it a backslash escapes, and Spark would replace a variable after a dollar."""
    return "'" + "".join(_spark_character(each) for each in text) + "'"


def _spark_character(character: str) -> str:
    if character in "\\'":
        return "\\" + character
    return f"\\u{ord(character):04x}" if character == "$" or ord(character) < 32 else character


DUCKDB = Dialect(
    "DuckDB",
    quoted,
    _duckdb_text,
    lambda value: f"from_hex('{value.hex()}')",
    ("[", "]"),
    "TIMESTAMP",
    "starts_with",
    "ends_with",
)
SPARK = Dialect(
    "Spark",
    spark_quoted,
    _spark_text,
    lambda value: f"X'{value.hex()}'",
    ("array(", ")"),
    "TIMESTAMP_NTZ",
    "startswith",
    "endswith",
)


# Filters as conditions of SQL, with exactly their meaning.


def condition_of(filters: Sequence[Filter], schema: pa.Schema, dialect: Dialect, row: str = "") -> str:
    """Return the conjunction of filters as SQL; TRUE where there are none. ``row`` is the name of the row's relation.

    Raises UnsupportedError UNSUPPORTED_TYPE for a filter that this SQL cannot say.
    """
    return " AND ".join(_one(each, schema, dialect, row) for each in filters) or "TRUE"


def _one(each: Filter, schema: pa.Schema, dialect: Dialect, row: str) -> str:
    column = (f"{row}." if row else "") + dialect.name(each.column)
    kind = schema.field(each.column).type
    for name in each.path:
        column = _field(column, name, dialect)
        kind = kind.field(name).type
    if each.op in NULL_TESTS:
        return f"{column} IS {'NOT ' if each.op == 'is_not_null' else ''}NULL"
    if each.op == "in":
        values = [value for value in each.value if value is not None]
        if pa.types.is_nested(kind):
            return "(" + (" OR ".join(_same(column, value, kind, dialect) for value in values) or "FALSE") + ")"
        return f"{column} IN ({', '.join(sql_literal(each, dialect) for each in values)})" if values else "FALSE"
    if each.op == "<=>" and each.value is None:
        return f"{column} IS NULL"
    if each.value is None:
        return "FALSE"
    if each.exact:
        return _same(column, each.value, kind, dialect, as_key=True)
    if pa.types.is_nested(kind):
        same = _same(column, each.value, kind, dialect)
        return f"({column} IS NOT NULL AND NOT ({same}))" if each.op == "!=" else same
    if each.op in TEXT_OPERATORS:
        if is_binary(kind) and dialect is DUCKDB:
            raise UnsupportedError(ErrorCode.UNSUPPORTED_TYPE, f"{dialect.engine} has no {each.op} of binary values")
        function = {"starts_with": dialect.starts, "ends_with": dialect.ends, "contains": "contains"}[each.op]
        return f"{function}({column}, {sql_literal(each.value, dialect)})"
    return f"{column} {'=' if each.op == '<=>' else each.op} {sql_literal(each.value, dialect)}"


def _same(column: str, value: Any, kind: pa.DataType, dialect: Dialect, *, as_key: bool = False) -> str:
    """Return the test that a column has a value; inside structs and lists null equals null. ``as_key``: zeros of both
    signs are two values, as in `statestore.formats.values.comparison.same_key`."""
    if value is None:
        return f"{column} IS NULL"
    if pa.types.is_map(kind):
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_TYPE, f"{dialect.engine} compares maps by the order of their entries"
        )
    if pa.types.is_floating(kind) and value == 0 and as_key:
        return f"CAST({column} AS STRING) = '{float(value)}'"
    if pa.types.is_list(kind) and as_key:
        size = f"{'len' if dialect is DUCKDB else 'size'}({column})"
        tests = [f"{column} IS NOT NULL", f"{size} = {len(value)}"]
        for position, member in enumerate(value):
            tests.append(_same(_member(column, position, dialect), member, kind.value_type, dialect, as_key=True))
        return "(" + " AND ".join(tests) + ")"
    if not pa.types.is_struct(kind):
        return f"{column} IS NOT DISTINCT FROM {sql_literal(value, dialect)}"
    tests = [f"{column} IS NOT NULL"]
    for field in kind:
        part = _field(column, field.name, dialect)
        tests.append(_same(part, value[field.name], field.type, dialect, as_key=as_key))
    return "(" + " AND ".join(tests) + ")"


def _member(column: str, position: int, dialect: Dialect) -> str:
    return f"list_extract({column}, {position + 1})" if dialect is DUCKDB else f"get({column}, {position})"


def _field(column: str, name: str, dialect: Dialect) -> str:
    is_duckdb = dialect is DUCKDB
    return f"struct_extract({column}, {dialect.text(name)})" if is_duckdb else f"{column}.{dialect.name(name)}"

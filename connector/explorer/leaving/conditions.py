"""Filters as conditions of SQL, with exactly their meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from statestore.connector.explorer.leaving.literals import DUCKDB, Dialect, sql_literal
from statestore.connector.files.data_files import is_binary
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.values.filters import NULL_TESTS, TEXT_OPERATORS, Filter


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

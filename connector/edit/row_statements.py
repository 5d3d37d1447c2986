"""Statements that name one row of a state as it is: an UPDATE that sets what it holds already, and a DELETE.

They are to be copied and changed. A value stands there so that the row has it afterwards bit by bit, and a condition so
that it holds for this row alone. Where SQL has no such text, the statement is refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import sqlglot

from statestore.catalog.engines.engine_table import EngineTable
from statestore.connector.edit.editing import Editing
from statestore.connector.edit.named_rows import Path
from statestore.connector.edit.run_statement import run_delete
from statestore.connector.edit.statements import Delete, Text, parsed
from statestore.connector.edit.units import one_array
from statestore.connector.identifiers import quoted
from statestore.connector.literals import DUCKDB, sql_literal
from statestore.connector.sql.sql_statement import DuckDBSQL
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.values.times import MAX_MS, MIN_MS

_SIMPLE = re.compile(r"[a-z_][a-z0-9_]*")
_MICROSECONDS = {"s": 1_000_000, "ms": 1000, "us": 1}
_FEW_DIGITS = re.compile(r"-?[0-9]{1,7}\.[0-9]{1,8}")
"""Texts of doubles that DuckDB reads as decimals, and makes the same doubles of."""


@dataclass(frozen=True)
class RowStatements:
    """The statements for a row, each as its text or as the error that says why there is none: an UPDATE of the row, a
    DELETE of it, and one of all rows with its key, None where the row is all that its key has."""

    update: str | UnsupportedError
    delete: str | UnsupportedError
    delete_key: str | UnsupportedError | None


def statements_of_row(editing: Editing, name: str, row: pa.Table) -> RowStatements:
    """Return the statements for a row of a state, of which ``row`` has all columns.

    Where keys may repeat, the DELETE is tried: a row that SQL cannot tell from another one has no statements.
    """
    table = editing.state(name).table
    update, delete, of_key = (_tried(make, table, row) for make in (update_of, delete_of, delete_of_key))
    assert update is not None and delete is not None, "of every row"
    if isinstance(delete, str) and (not table.info.row_key or set(table.info.row_key) & set(table.info.placement)):
        again = replace(editing, states={})
        state = again.state(name)
        text = Text(delete, delete)
        statement = parsed(text)
        assert isinstance(statement, Delete)
        run_delete(again, text, statement)
        count = state.before.num_rows - state.now.num_rows
        if count != 1:
            update = delete = _unsupported(
                f"{name!r} has {count} rows like this one, and a statement cannot name one of them; edit all rows of "
                "the key"
            )
    return RowStatements(update, delete, of_key)


def _tried(make: Callable[[EngineTable, pa.Table], str | None], table: EngineTable, row: pa.Table) -> Any:
    try:
        return make(table, row)
    except UnsupportedError as error:
        return error


def update_of(table: EngineTable, row: pa.Table) -> str:
    """Return an UPDATE that sets all columns of a row but those that name it, each field of a struct by itself.

    Raises UnsupportedError UNSUPPORTED_TYPE for a row that is nothing but its key, and for a value or key that SQL has
    no text for.
    """
    names = _naming(table)
    own = [name for name in _own(table) if name not in (table.info.row_key or table.info.key)]
    sets = [
        f"{_written(table, path)} = {literal(value)}"
        for name in own
        for path, value in _leaves((name,), _cell(row, name))
    ]
    if not sets:
        raise _unsupported(f"a row of {table.name!r} has nothing but its key; delete it, and insert another one")
    return f"UPDATE {_name(table.name)} SET {', '.join(sets)} WHERE {_conditions(table, row, names)}"


def delete_of(table: EngineTable, row: pa.Table) -> str:
    """Return a DELETE of a row. Raises UnsupportedError UNSUPPORTED_TYPE as `update_of`."""
    return f"DELETE FROM {_name(table.name)} WHERE {_conditions(table, row, _naming(table))}"


def delete_of_key(table: EngineTable, row: pa.Table) -> str | None:
    """Return a DELETE of all rows with the key of a row; None where the row is all that its key has."""
    names = [name for name in table.info.key if name in _own(table)]
    if not names or set(names) >= set(_naming(table)):
        return None
    return f"DELETE FROM {_name(table.name)} WHERE {_conditions(table, row, names)}"


def _own(table: EngineTable) -> list[str]:
    placement = table.info.placement
    return [field.name for field in table.info.columns if field.name not in placement]


def _naming(table: EngineTable) -> list[str]:
    """Return the columns that name a row: its key, or all of them where equal rows may repeat."""
    own = _own(table)
    return [name for name in table.info.row_key if name in own] or own


def _cell(row: pa.Table, name: str) -> pa.Scalar:
    return one_array(row.column(name))[0]


def _conditions(table: EngineTable, row: pa.Table, names: Sequence[str]) -> str:
    return " AND ".join(test for name in names for test in _tests(table, (name,), _cell(row, name)))


def _tests(table: EngineTable, path: Path, value: pa.Scalar) -> Iterator[str]:
    """Yield conditions that hold for this value alone."""
    name, kind = _written(table, path), value.type
    if not value.is_valid:
        yield f"{name} IS NULL"
    elif pa.types.is_struct(kind):
        members = [(kind.field(at).name, value[at]) for at in range(kind.num_fields)]
        if not any(each.is_valid for _, each in members):
            yield f"{name} IS NOT NULL"
        for member, each in members:
            yield from _tests(table, (*path, member), each)
    elif pa.types.is_map(kind):
        raise _unsupported(f"{'.'.join(path)} is a map, which SQL compares by the order of its entries")
    elif pa.types.is_floating(kind) and value.as_py() == 0:
        yield f"CAST({name} AS VARCHAR) = '{value.as_py()!r}'"  # zeros of both signs are equal in SQL
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield f"{name} IS NOT DISTINCT FROM {literal(value)}"
    else:
        yield f"{name} = {literal(value)}"


def _leaves(path: Path, value: pa.Scalar) -> Iterator[tuple[Path, pa.Scalar]]:
    """Yield a column, or each field of a struct that is there, with its value."""
    kind = value.type
    if not value.is_valid or not pa.types.is_struct(kind) or not kind.num_fields:
        yield path, value
        return
    for at in range(kind.num_fields):
        yield from _leaves((*path, kind.field(at).name), value[at])


# Names


def _written(table: EngineTable, path: Path) -> str:
    """Return a path as a statement has it, behind the state where a column is called like that."""
    is_unclear = any(name.lower() == table.name.lower() for name in table.info.columns.names)
    return ".".join(map(_name, (table.name, *path) if is_unclear else path))


def _name(name: str) -> str:
    """Return a name, in quotes where SQL would not read it as it is."""
    is_plain = _SIMPLE.fullmatch(name) and name not in _reserved() and _is_word(name)
    return name if is_plain else quoted(name)


def _is_word(name: str) -> bool:
    return [token.token_type.name for token in sqlglot.tokenize(name, read=DuckDBSQL)] == ["VAR"]


@functools.cache
def _reserved() -> frozenset[str]:
    import duckdb

    with duckdb.connect() as connection:
        found = connection.execute("SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'")
        return frozenset(name for (name,) in found.fetchall())


# Values


def literal(value: pa.Scalar) -> str:
    """Return an expression of DuckDB for a value, which fits a column of its type as it is.

    Raises UnsupportedError UNSUPPORTED_TYPE for a value that has none.
    """
    kind, types = value.type, pa.types
    if not value.is_valid:
        return "NULL"
    if types.is_struct(kind):
        members = [f"{DUCKDB.text(kind.field(at).name)}: {literal(value[at])}" for at in range(kind.num_fields)]
        if not members or any(not kind.field(at).name for at in range(kind.num_fields)):
            raise _unsupported("a struct without fields, or with one without a name, has no text in DuckDB's SQL")
        return f"{{{', '.join(members)}}}"
    if types.is_map(kind):
        entries = [(entry["key"], entry["value"]) for entry in _members(value)]
        inside = ", ".join(f"{literal(key)}: {literal(each)}" for key, each in entries)
        return f"MAP {{{inside}}}" if entries else "MAP([], [])"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return f"[{', '.join(map(literal, _members(value)))}]"
    if types.is_timestamp(kind):
        return _instant(value, kind)
    if types.is_date(kind):
        days = value.cast(pa.date32()).cast(pa.int32()).as_py()
        is_of_python = MIN_MS <= days * 86_400_000 <= MAX_MS
        return f"DATE '{value.as_py().isoformat()}'" if is_of_python else f"(DATE '1970-01-01' + {days})"
    if types.is_floating(kind):
        text = repr(value.as_py())
        return text if _FEW_DIGITS.fullmatch(text) and value.as_py() else f"CAST('{text}' AS DOUBLE)"
    if types.is_dictionary(kind):
        return literal(value.cast(kind.value_type))
    if types.is_duration(kind) or types.is_interval(kind) or (types.is_time64(kind) and kind.unit == "ns"):
        raise _unsupported(f"a value of type {kind} has no text in DuckDB's SQL")
    return sql_literal(value.as_py(), DUCKDB)


def _members(value: pa.Scalar) -> list[Any]:
    return [value.values[at] for at in range(len(value.values))]


def _instant(value: pa.Scalar, kind: pa.DataType) -> str:
    """Return a time: as a text where a text has all of it, and else by its number."""
    number = value.value
    if kind.unit == "ns":
        if kind.tz is not None:
            raise _unsupported(f"a value of type {kind} has no text in DuckDB's SQL")
        return f"make_timestamp_ns({number})"
    us = number * _MICROSECONDS[kind.unit]
    if not MIN_MS <= us // 1000 < MAX_MS:
        return f"make_timestamp{'' if kind.tz is None else 'tz'}({us})"
    whole = datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)
    return sql_literal(whole if kind.tz is not None else whole.replace(tzinfo=None), DUCKDB)


def _unsupported(text: str) -> UnsupportedError:
    return UnsupportedError(ErrorCode.UNSUPPORTED_TYPE, text)

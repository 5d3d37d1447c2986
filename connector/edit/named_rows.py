"""The units of a state that a statement names by its condition, so that these are looked up and no state is read in
whole.

A condition names units where each column by which rows can be looked up, or each field of it, has to equal a value that
does not depend on the state: a constant, or a column of another table (``state.key = other.key``). These values are
computed first. What is found are candidates: the statement itself decides among their rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sqlglot import exp

from statestore.connector.edit.edited_state import EditedState, of_values
from statestore.connector.edit.fitted_values import in_type
from statestore.connector.edit.statements import parts_of
from statestore.connector.edit.units import one_array
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.values.filters import MAX_LOOKUPS
from statestore.formats.values.without_pandas import arrow_numbers, bools

Path = tuple[str, ...]
Values = Sequence[exp.Expr] | exp.Expr
"""Expressions, or a query of one column."""
Select = Callable[[exp.Query], pa.Table]
BY_CHANCE = (exp.Limit, exp.Fetch, exp.Offset, exp.TableSample, exp.Rand, exp.AnyValue, exp.First, exp.Last)
"""Parts by which a query may have other rows when it runs again."""
VALUES = exp.TableAlias(this=exp.to_identifier("values", quoted=True))


@dataclass(frozen=True)
class Columns:
    """The meaning of names in a statement: columns of the state by their ``alias``, or those of other tables."""

    alias: str
    state: pa.Schema
    others: frozenset[str]  # aliases of the other tables, in lower case

    @staticmethod
    def of(alias: str, state: pa.Schema, sources: Sequence[exp.Expr]) -> Columns:
        named = [each for source in sources for each in (source, *source.find_all(exp.Table, exp.Subquery))]
        return Columns(alias, state, frozenset(each.alias_or_name.lower() for each in named))

    def path_of(self, node: exp.Expr) -> Path | None:
        """Return the column of the state that an expression is, with the fields behind it, as the state spells them."""
        names = parts_of(node.unnest())
        return None if names is None else self.resolved(names)

    def resolved(self, names: Sequence[str]) -> Path | None:
        """Return a column and its fields as the state spells them; None for a name that it does not have."""
        if len(names) > 1 and names[0].lower() == self.alias.lower():
            found = spelled(self.state, names[1:])
            if found is not None:
                return found
        if names[0].lower() in self.others and len(names) > 1:
            return None
        return spelled(self.state, names)

    def may_name_state(self, node: exp.Expr) -> bool:
        """Return whether an expression may depend on a row of the state."""
        if node.find(exp.Query, exp.Subquery, exp.Star) is not None:
            return True
        known = {name.lower() for name in self.state.names}
        for column in node.find_all(exp.Column):
            first = column.parts[0].name.lower()
            if len(column.parts) > 1 and first in self.others and first != self.alias.lower():
                continue
            if first in known or first == self.alias.lower() or len(column.parts) > 1:
                return True
        return False


def spelled(schema: pa.Schema, names: Sequence[str]) -> Path | None:
    """Return a column and the fields behind it as the schema spells them; None where it has no such names."""
    fields: Sequence[pa.Field] = list(schema)
    found: list[str] = []
    for name in names:
        same = [each for each in fields if each.name == name] or [
            each for each in fields if each.name.lower() == name.lower()
        ]
        if len(same) != 1:
            return None
        found.append(same[0].name)
        fields = list(same[0].type) if pa.types.is_struct(same[0].type) else []
    return tuple(found)


def type_at(schema: pa.Schema, path: Path) -> pa.DataType:
    kind = schema.field(path[0]).type
    for name in path[1:]:
        kind = kind.field(name).type
    return kind


def fields_of(schema: pa.Schema) -> Iterator[Path]:
    """Yield the paths of all fields of structs."""
    for column in schema:
        yield from _within((column.name,), column.type)


def _within(path: Path, kind: pa.DataType) -> Iterator[Path]:
    for field in kind if pa.types.is_struct(kind) else ():
        yield (*path, field.name)
        yield from _within((*path, field.name), field.type)


def load_named(
    state: EditedState, columns: Columns, sources: Sequence[exp.Expr], condition: exp.Expr | None, select: Select
) -> bool:
    """Load the units to which a condition limits a statement; return whether it names them.

    ``select`` runs a query over the tables that the statement reads.
    """
    if condition is None or not state.unit:
        return False
    parts = [part.unnest() for part in (condition.flatten() if isinstance(condition, exp.And) else [condition])]
    limits = dict(_limits(parts, columns))
    lookups = [names for names in state.table.lookup_columns if names and set(names) <= set(state.unit)]
    sets = [names for names in (state.unit, *lookups) if all(_covered(state.schema, limits, (name,)) for name in names)]
    if not sets:
        return False
    names = sets[0]
    shapes = pa.schema([state.schema.field(name) for name in names])
    used = {path: values for path, values in limits.items() if path[0] in names}
    others = [part for part in parts if sources and not columns.may_name_state(part)]
    try:
        cells = _cells(shapes, used, sources, others, select)
    except (InvalidInputError, UnsupportedError):  # the statement itself may not compute these values, or says why not
        return False
    if cells is None:
        return False
    keys = pa.Table.from_arrays([_assembled(field.type, (field.name,), cells) for field in shapes], schema=shapes)
    if names == state.unit:
        state.load(keys)
        return True
    filters = of_values({name: one_array(keys.column(name)) for name in names})
    if filters is None:
        return False
    state.load_where(filters)
    return True


def _limits(parts: Sequence[exp.Expr], columns: Columns) -> Iterator[tuple[Path, Values]]:
    """Yield the columns and fields of the state that have to equal one of some values, which do not depend on it."""
    for part in parts:
        if part.find(exp.Collate) is not None:
            continue  # equal to other texts, too
        if isinstance(part, exp.EQ):
            for ours, theirs in ((part.this, part.expression), (part.expression, part.this)):
                path = columns.path_of(ours)
                if path is not None and not columns.may_name_state(theirs):
                    yield path, [theirs]
                    break
        elif isinstance(part, exp.In):
            path, query = columns.path_of(part.this), part.args.get("query")
            if path is None or part.find(*BY_CHANCE) is not None:
                continue
            if query is not None:
                yield path, query.unnest()
            elif part.expressions and not any(each.find(exp.Column, exp.Query) for each in part.expressions):
                yield path, part.expressions


def _covered(schema: pa.Schema, limits: Mapping[Path, Values], path: Path) -> bool:
    """Return whether a column, or each field of it, is limited."""
    if path in limits:
        return True
    kind = type_at(schema, path)
    if not pa.types.is_struct(kind) or not kind.num_fields:
        return False
    return all(_covered(schema, limits, (*path, field.name)) for field in kind)


def _cells(
    shapes: pa.Schema,
    limits: Mapping[Path, Values],
    sources: Sequence[exp.Expr],
    others: Sequence[exp.Expr],
    select: Select,
) -> dict[Path, pa.Array] | None:
    """Return the values of limited columns and fields, row by row those that a row of the state may have together.

    None where DuckDB may compare them in another type than the state has, and where they are too many. ``others`` are
    conditions on the ``sources`` alone.
    """
    single = {
        path: values[0] for path, values in limits.items() if not isinstance(values, exp.Expr) and len(values) == 1
    }
    where = exp.and_(*(part.copy() for part in others)) if others else None
    found = (
        select(query_of([each.copy() for each in single.values()], sources, where, distinct=True)) if single else None
    )
    cells = {} if found is None else _comparable_cells(shapes, list(single), found)
    if cells is None:
        return None
    rows = 1 if found is None else len(next(iter(cells.values())))
    for path, values in limits.items():
        if path in single:
            continue
        column = _comparable_cells(
            shapes, [path], select(query_of([exp.Star()], [_listed(values)], None, distinct=True))
        )
        if column is None:
            return None
        members = column[path].unique() if not pa.types.is_nested(column[path].type) else column[path]
        if rows * len(members) > MAX_LOOKUPS:
            return None
        places = arrow_numbers(np.repeat(np.arange(rows), len(members)))
        cells = {each: cell.take(places) for each, cell in cells.items()}
        cells[path] = members.take(arrow_numbers(np.tile(np.arange(len(members)), rows)))
        rows *= len(members)
    return cells


def _listed(values: Values) -> exp.Expr:
    """Return values as a table of one column."""
    if isinstance(values, exp.Expr):
        return exp.Subquery(this=values.copy(), alias=VALUES.copy())
    rows = [exp.Tuple(expressions=[each.copy()]) for each in values]
    return exp.Values(expressions=rows, alias=VALUES.copy())


def _comparable_cells(shapes: pa.Schema, paths: Sequence[Path], found: pa.Table) -> dict[Path, pa.Array] | None:
    """Return computed values in the types of the state, without rows that have a null; None where they may equal a
    value of the state in another type."""
    columns = [
        _in_same_type(one_array(each), type_at(shapes, path)) for path, each in zip(paths, found.columns, strict=True)
    ]
    known = [each for each in columns if each is not None]
    if len(known) < len(columns):
        return None
    kept = functools.reduce(np.logical_and, [bools(each.is_valid()) for each in known])
    return {path: each.filter(arrow_numbers(kept)) for path, each in zip(paths, known, strict=True)}


def _in_same_type(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    if not _is_compared_as_is(column.type, kind):
        return None
    try:
        return in_type(column, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # a number beyond those of the type
        return None


def _is_compared_as_is(given: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether DuckDB finds two values of the types equal only if they are so in the second type."""
    types = pa.types
    if types.is_struct(given) and types.is_struct(kind):
        return [field.name for field in given] == [field.name for field in kind] and all(
            _is_compared_as_is(ours.type, theirs.type) for ours, theirs in zip(given, kind, strict=True)
        )
    if types.is_timestamp(given) and types.is_timestamp(kind):
        return given.unit == kind.unit and (given.tz is None) == (kind.tz is None)
    families = (types.is_integer, types.is_boolean, types.is_date32, _is_text, _is_bytes)
    return any(each(given) and each(kind) for each in families) or (types.is_decimal(kind) and given == kind)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _assembled(kind: pa.DataType, path: Path, cells: Mapping[Path, pa.Array]) -> pa.Array:
    """Return a column of its own values, or of those of its fields."""
    if path in cells:
        return cells[path]
    members = [_assembled(field.type, (*path, field.name), cells) for field in kind]
    return pa.StructArray.from_arrays(members, fields=list(kind))


# Queries


def query_of(
    columns: Sequence[exp.Expr], sources: Sequence[exp.Expr], where: exp.Expr | None, *, distinct: bool = False
) -> exp.Select:
    """Return SELECT with columns, which get numbers as names, from tables that are joined by commas."""
    named = [
        each if isinstance(each, exp.Star) else exp.Alias(this=each, alias=exp.to_identifier(f"__value_{number}"))
        for number, each in enumerate(columns)
    ]
    tree = exp.Select(expressions=named)
    if sources:
        tree.set("from_", exp.From(this=sources[0].copy()))
        tree.set("joins", [exp.Join(this=each.copy()) for each in sources[1:]])
    if where is not None:
        tree.set("where", exp.Where(this=where.copy()))
    if distinct:
        tree.set("distinct", exp.Distinct())
    return tree

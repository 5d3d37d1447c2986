"""Comparisons of a key that is a struct, so that DuckDB tells the scan which key is asked for.

DuckDB offers a scan comparisons of columns and of fields inside them with constants, and keeps a comparison of a whole
struct to itself, after all rows were read. Each such comparison of a table's key therefore gets one that follows from
it for each field: ``key = {'k': 'a'}`` becomes ``(key = {'k': 'a'} AND struct_extract(key, 'k') = 'a')``. The first one
still decides, so the answer is the same, also where it is null: a field is compared only with a constant other than
null, and of the type that it has, so that DuckDB converts neither side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from sqlglot import exp

from statestore.connector.sql.sql_statement import TableReference

Path = tuple[str, ...]
_CASTS = {"DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"), "TIMESTAMPTZ": pa.timestamp("us", "UTC")}


def compare_fields(reference: TableReference, keys: pa.Schema) -> bool:
    """Add comparisons of fields to the condition on a table with these key columns; return whether there were any.

    Only the WHERE clause of the query that reads the table is looked at, where its columns are named beyond doubt.
    """
    node, place = reference.node, reference.node.parent
    query = place.parent if isinstance(place, exp.From | exp.Join) else None
    where = query.args.get("where") if isinstance(query, exp.Select) else None
    kinds = {field.name.lower(): field.type for field in keys if pa.types.is_struct(field.type)}
    if where is None or query is None or len(kinds) < sum(pa.types.is_struct(field.type) for field in keys):
        return False
    alone = isinstance(place, exp.From) and not query.args.get("joins") and not query.args.get("laterals")
    changed = False
    for each in list(where.find_all(exp.EQ, exp.In)):
        column, values = _compared(each)
        if column is None or each.find_ancestor(exp.Select) is not query or each.find_ancestor(exp.Lambda):
            continue
        is_ours = column.table.lower() == node.alias_or_name.lower() if column.table else alone
        kind = kinds.get(column.name.lower())
        if kind is None or not is_ours or column.args.get("db"):
            continue
        conditions = list(_conditions(column, kind, values))
        if conditions:
            each.replace(exp.paren(exp.and_(each.copy(), *conditions), copy=False))
            changed = True
    return changed


def _compared(each: exp.Expr) -> tuple[exp.Column | None, Sequence[exp.Expr]]:
    """Return the column of a comparison and the values, of which it is one; None for another comparison."""
    if isinstance(each, exp.In):
        column, values = each.this, each.expressions
    else:
        column, values = each.this, [each.expression]
        if not isinstance(column, exp.Column):
            column, values = each.expression, [each.this]
    return (column, values) if isinstance(column, exp.Column) and values else (None, ())


def _conditions(column: exp.Column, kind: pa.StructType, values: Sequence[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield a comparison for each field that has a plain constant in every value."""
    found = [dict(_constants(kind, value, ())) for value in values]
    for path in found[0]:
        constants = [fields[path] for fields in found if path in fields]
        if len(constants) < len(found):
            continue
        part: exp.Expr = column.copy()
        for name in path:
            part = exp.Anonymous(this="struct_extract", expressions=[part, exp.Literal.string(name)])
        copies = [constant.copy() for constant in constants]
        yield exp.EQ(this=part, expression=copies[0]) if len(copies) == 1 else exp.In(this=part, expressions=copies)


def _constants(kind: pa.StructType, value: exp.Expr, path: Path) -> Iterator[tuple[Path, exp.Expr]]:
    """Yield the constants that a struct in a statement has for the fields of a type; none for a struct of other names,
    which DuckDB converts or refuses."""
    names = [field.name for field in kind]
    if isinstance(value, exp.Struct):
        if [each.name.lower() for each in value.expressions] != [name.lower() for name in names]:
            return
        members = [each.expression if isinstance(each, exp.PropertyEQ) else each for each in value.expressions]
    elif isinstance(value, exp.Tuple) or (isinstance(value, exp.Anonymous) and value.name.lower() == "row"):
        members = value.expressions
    else:
        return
    if len(members) != len(names) or len({name.lower() for name in names}) < len(names):
        return
    for name, field, member in zip(names, kind, members, strict=True):
        if pa.types.is_struct(field.type):
            yield from _constants(field.type, member, (*path, name))
        elif _has_type(member, field.type):
            yield (*path, name), member


def _has_type(constant: exp.Expr, kind: pa.DataType) -> bool:
    """Return whether an expression is a constant, other than null, that has the type already."""
    if isinstance(constant, exp.Cast):
        text, named = constant.this, _CASTS.get(constant.to.sql(dialect="duckdb").upper())
        return isinstance(text, exp.Literal) and text.is_string and named == kind
    if isinstance(constant, exp.Boolean):
        return bool(pa.types.is_boolean(kind))
    if isinstance(constant, exp.Literal) and constant.is_string:
        return bool(pa.types.is_string(kind))
    whole = constant.this if isinstance(constant, exp.Neg) else constant
    if not isinstance(whole, exp.Literal) or not whole.this.isdecimal() or not pa.types.is_signed_integer(kind):
        return False
    number = -int(whole.this) if whole is not constant else int(whole.this)
    return bool(-(1 << kind.bit_width - 1) <= number < 1 << kind.bit_width - 1)

"""Comparisons of keys, so that DuckDB tells the scan which keys are asked for.

DuckDB offers a scan comparisons of columns and of fields inside them with constants, joined by AND and OR. It keeps a
comparison of a whole struct to itself, after all rows were read, and so it does with IS NOT DISTINCT FROM, with
= ANY of a list, and with a number of another type. Each such comparison of a table's key therefore gets one that
follows from it: ``key = {'k': 'a'}`` becomes ``(key = {'k': 'a'} AND struct_extract(key, 'k') = 'a')``. The first one
still decides, so the answer is the same, also where it is null: a key or a field is compared only with a constant other
than null, and of the type that it has, so that DuckDB converts neither side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from statestore.connector.sql.sql_statement import TableReference

Path = tuple[str, ...]
_CASTS = {"DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"), "TIMESTAMPTZ": pa.timestamp("us", "UTC")}
_EXACT_DIGITS = 30
"""The most digits of a number with a decimal point, which DuckDB does not round."""


@dataclass(frozen=True)
class _Compared:
    """The only values that a column can have where a condition holds; ``offered`` says whether DuckDB tells a scan."""

    column: exp.Column
    values: Sequence[exp.Expr]
    offered: bool


def compare_fields(reference: TableReference, keys: pa.Schema) -> bool:
    """Add comparisons to the condition on a table with these key columns; return whether there were any.

    Only the WHERE clause of the query that reads the table is looked at, where its columns are named beyond doubt.
    """
    node, place = reference.node, reference.node.parent
    query = place.parent if isinstance(place, exp.From | exp.Join) else None
    where = query.args.get("where") if isinstance(query, exp.Select) else None
    kinds = {field.name.lower(): field.type for field in keys}
    if where is None or query is None or len(kinds) < len(keys):
        return False
    alone = isinstance(place, exp.From) and not query.args.get("joins") and not query.args.get("laterals")
    changed = False
    for each in list(where.find_all(exp.Or, exp.EQ, exp.NullSafeEQ, exp.In)):
        compared = _compared(each)
        if compared is None or each.find_ancestor(exp.Select) is not query or each.find_ancestor(exp.Lambda):
            continue
        column = compared.column
        is_ours = column.table.lower() == node.alias_or_name.lower() if column.table else alone
        kind = kinds.get(column.name.lower())
        if kind is None or not is_ours or column.args.get("db"):
            continue
        if compared.offered and not pa.types.is_struct(kind):
            continue
        conditions = _conditions(column, kind, compared.values)
        if conditions:  # what stands inside of a replaced one has no query above it any more
            each.replace(exp.paren(exp.and_(each.copy(), *conditions), copy=False))
            changed = True
    return changed


def _compared(each: exp.Expr) -> _Compared | None:
    """Return the values to which a condition limits a column; None where it limits none."""
    each = each.unnest()
    if isinstance(each, exp.Or):
        branches = [_compared(branch) for branch in each.flatten()]
        known = [branch for branch in branches if branch is not None]
        if len(known) < len(branches) or len({_name(branch.column) for branch in known}) > 1:
            return None
        values = [value for branch in known for value in branch.values]
        return _Compared(known[0].column, values, all(branch.offered for branch in known))
    if isinstance(each, exp.In):
        column, values, offered = each.this, each.expressions, True
    elif isinstance(each, exp.EQ | exp.NullSafeEQ):
        column, values = each.this, [each.expression]
        if not isinstance(column, exp.Column):
            column, values = each.expression, [each.this]
        offered = isinstance(each, exp.EQ)
        listed = values[0].this.unnest() if isinstance(values[0], exp.Any) else None
        if isinstance(listed, exp.Array) and offered:
            values, offered = listed.expressions, False
    else:
        return None
    if not isinstance(column, exp.Column) or not values:
        return None
    return _Compared(column, values, offered and not any(map(_has_point, values)))


def _name(column: exp.Column) -> tuple[str, str]:
    return column.table.lower(), column.name.lower()


def _has_point(value: exp.Expr) -> bool:
    """Return whether an expression is a number with a decimal point, for which DuckDB converts the column."""
    whole = value.this if isinstance(value, exp.Neg) else value
    return isinstance(whole, exp.Literal) and not whole.is_string and "." in whole.this


def _conditions(column: exp.Column, kind: pa.DataType, values: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return comparisons with the plain constants that all values have for a field, which all must hold.

    Several whole structs are named one by one, so that no more keys are looked up than there are.
    """
    found = [dict(_constants(kind, value, ())) for value in values]
    shared = [path for path in found[0] if all(path in fields for fields in found)]
    if len(found) > 1 and 1 < len(shared) == _leaves(kind):
        return [exp.or_(*(exp.and_(*(_equal(column, path, [each[path]]) for path in shared)) for each in found))]
    return [_equal(column, path, [each[path] for each in found]) for path in shared]


def _equal(column: exp.Column, path: Path, constants: Sequence[exp.Expr]) -> exp.Expr:
    part: exp.Expr = column.copy()
    for name in path:
        part = exp.Anonymous(this="struct_extract", expressions=[part, exp.Literal.string(name)])
    copies = [constant.copy() for constant in constants]
    return exp.EQ(this=part, expression=copies[0]) if len(copies) == 1 else exp.In(this=part, expressions=copies)


def _leaves(kind: pa.DataType) -> int:
    return sum(_leaves(field.type) for field in kind) if pa.types.is_struct(kind) else 1


def _constants(kind: pa.DataType, value: exp.Expr, path: Path) -> Iterator[tuple[Path, exp.Expr]]:
    """Yield the constants that a value in a statement has for a type, or for the fields of one; none for a struct of
    other names, which DuckDB converts or refuses."""
    if not pa.types.is_struct(kind):
        whole = _without_point(value) if not path else value
        if _has_type(whole, kind):
            yield path, whole
        return
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
        yield from _constants(field.type, member, (*path, name))


def _without_point(value: exp.Expr) -> exp.Expr:
    """Return a whole number that is written with a decimal point as one without; any other expression as it is."""
    number = value.this if isinstance(value, exp.Neg) else value
    if not _has_point(value) or len(number.this) > _EXACT_DIGITS:
        return value
    whole, _, rest = number.this.partition(".")
    if not whole.isdecimal() or rest.strip("0"):
        return value
    without = exp.Literal.number(whole)
    return exp.Neg(this=without) if isinstance(value, exp.Neg) else without


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

"""Spark's pushed filters, and its predicates and references, as filters of `StateTable`: only those that mean the same
on every row; a filter that cannot be evaluated exactly is left to Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import Filter as SparkFilter

from statestore.formats.errors import StateStoreError
from statestore.formats.values.declared_types import has_collation
from statestore.formats.values.filters import NULL_TESTS, Filter, Op, limits_of_either, mask, one_of

_COMPARISONS: dict[type, Op] = {
    spark.EqualTo: "=",
    spark.EqualNullSafe: "<=>",
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
    spark.In: "in",
    spark.StringStartsWith: "starts_with",
    spark.StringEndsWith: "ends_with",
    spark.StringContains: "contains",
}
_NULL_TESTS: dict[type, Op] = {spark.IsNull: "is_null", spark.IsNotNull: "is_not_null"}


def as_filter(pushed: Any, schema: pa.Schema) -> Filter | None:
    """The filter with exactly the meaning of ``pushed`` on a table of ``schema``, or None."""
    found = _translate(pushed)
    return found if found is not None and _compares_alike(found, schema) else None


def _compares_alike(found: Filter, schema: pa.Schema) -> bool:
    """Return whether a filter passes the rows of a table of ``schema`` that Spark's comparison passes."""
    if found.column not in schema.names:
        return False
    field = schema.field(found.column)
    for name in found.path:
        if not pa.types.is_struct(field.type) or field.type.get_field_index(name) < 0:
            return False
        field = field.type.field(name)
    if found.op not in NULL_TESTS and not _has_same_equality(field):
        return False
    try:  # a value that does not fit the column's type is left to Spark to compare
        mask((found,), pa.RecordBatch.from_pylist([], schema=schema))
    except (StateStoreError, pa.ArrowException):
        return False
    return True


def _translate(pushed: Any) -> Filter | None:
    if isinstance(pushed, spark.Not):
        child = pushed.child
        if isinstance(child, spark.EqualTo):
            return Filter(child.attribute[0], "!=", child.value, tuple(child.attribute[1:]))
        if isinstance(child, spark.IsNull):
            return _translate(spark.IsNotNull(child.attribute))
        return None
    attribute: tuple[str, ...] = getattr(pushed, "attribute", ())
    if not attribute:
        return None
    column, *path = attribute
    if type(pushed) in _NULL_TESTS:
        return Filter(column, _NULL_TESTS[type(pushed)], path=tuple(path))
    op = _COMPARISONS.get(type(pushed))
    if op is None:
        return None
    return Filter(column, op, tuple(pushed.value) if op == "in" else pushed.value, tuple(path))


def _has_same_equality(field: pa.Field) -> bool:
    """Return whether Spark compares values of the field as this package does.

    It does not with a collation, which the bytes do not show, with intervals, which reach Spark in another form, and
    with floats inside structs and lists, where Spark has NaN equal to NaN.
    """
    kind = field.type
    if has_collation(field) or _holds(kind, pa.types.is_interval):
        return False
    return not (pa.types.is_nested(kind) and _holds(kind, pa.types.is_floating))


def _holds(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    return test(kind) or any(_holds(kind.field(i).type, test) for i in range(kind.num_fields))


# Spark's predicates and references as filters of tables: only those that mean the same on every row.

_EPOCH = datetime(1970, 1, 1)
_PREDICATES: dict[str, Callable[..., SparkFilter]] = {
    "=": spark.EqualTo,
    "<=>": spark.EqualNullSafe,
    ">": spark.GreaterThan,
    ">=": spark.GreaterThanOrEqual,
    "<": spark.LessThan,
    "<=": spark.LessThanOrEqual,
    "STARTS_WITH": spark.StringStartsWith,
    "ENDS_WITH": spark.StringEndsWith,
    "CONTAINS": spark.StringContains,
}
_NULL_PREDICATES: dict[str, Callable[..., SparkFilter]] = {"IS_NULL": spark.IsNull, "IS_NOT_NULL": spark.IsNotNull}


class NotTranslated(Exception):
    """An expression that has no equivalent here."""


def filter_of(predicate: Any, schema: pa.Schema) -> Filter | None:
    """The filter with exactly the meaning of a V2 predicate on a table of ``schema``, or None."""
    if predicate.name() == "OR":
        branches = [
            [filter_of(each, schema) for each in _operands(branch, "AND")] for branch in _operands(predicate, "OR")
        ]
        known = [[each for each in branch if each is not None] for branch in branches]
        one = one_of(known, schema) if list(map(len, known)) == list(map(len, branches)) else None
        return one if one is not None and _compares_alike(one, schema) else None
    try:
        return as_filter(_pushed(predicate), schema)
    except (NotTranslated, ValueError, OverflowError):
        return None


def limits_of(predicate: Any, schema: pa.Schema) -> tuple[Filter, ...]:
    """Filters that all rows pass for which a V2 predicate is true, and perhaps others: those that its operands of OR
    have in common."""
    found = filter_of(predicate, schema)
    if found is not None:
        return (found,)
    if predicate.name() != "OR":
        return ()
    branches = _operands(predicate, "OR")
    return limits_of_either(
        [[f for e in _operands(branch, "AND") for f in limits_of(e, schema)] for branch in branches]
    )


def _operands(predicate: Any, operator: str) -> Iterator[Any]:
    """The operands of AND or OR in order, at any depth; the predicate itself where it is another one."""
    left = [predicate]
    while left:
        each = left.pop()
        if each.name() == operator:
            left += reversed(list(each.children()))
        else:
            yield each


def reference(expression: Any) -> tuple[str, ...]:
    """The name of a column, field by field. Raises NotTranslated for any other expression."""
    if not _is(expression, "expressions.FieldReference"):
        raise NotTranslated
    return tuple(str(name) for name in expression.fieldNames())


def _pushed(predicate: Any) -> SparkFilter:
    name, children = str(predicate.name()), list(predicate.children())
    if name in _NULL_PREDICATES and len(children) == 1:
        return _NULL_PREDICATES[name](reference(children[0]))
    if name == "NOT" and len(children) == 1:
        return spark.Not(_pushed(children[0]))
    if name == "<>" and len(children) == 2:
        return spark.Not(spark.EqualTo(reference(children[0]), _literal(children[1])))
    if name in _PREDICATES and len(children) == 2:
        return _PREDICATES[name](reference(children[0]), _literal(children[1]))
    if name == "IN" and children:
        return spark.In(reference(children[0]), tuple(_literal(child) for child in children[1:]))
    raise NotTranslated


def _literal(expression: Any) -> Any:
    """A constant as Python has it. Raises NotTranslated for other expressions and for types without such a value."""
    if not _is(expression, "expressions.LiteralValue"):
        raise NotTranslated
    value = expression.value()
    if value is None:
        return None
    return _cell(value, expression.dataType())


def _cell(value: Any, kind: Any) -> Any:
    """A value of Spark's type ``kind``; that of a struct, a row of Spark's, as a tuple of its fields."""
    described = json.loads(kind.json())
    if isinstance(described, str):
        return _value(value, described)
    if described["type"] != "struct":
        raise NotTranslated
    kinds = [field.dataType() for field in kind.fields()]
    return tuple(
        None if value.isNullAt(number) else _cell(value.get(number, each), each) for number, each in enumerate(kinds)
    )


def _value(value: Any, kind: str) -> Any:
    if kind in ("byte", "short", "integer", "long", "double", "boolean"):
        return value
    if kind == "float":
        return float(np.float32(value))  # py4j passes the shortest text of a float, which means another double
    if kind == "string" or kind.startswith(("char(", "varchar(")):
        return value if isinstance(value, str) else bytes(value.getBytes()).decode()  # ValueError: no text
    if kind == "binary":
        return bytes(value)
    if kind.startswith("decimal"):
        return Decimal(str(value))
    if kind == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    if kind == "timestamp":
        return (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=UTC)
    if kind == "timestamp_ntz":
        return _EPOCH + timedelta(microseconds=value)
    raise NotTranslated


def _is(expression: Any, name: str) -> bool:
    return str(expression.getClass().getName()).endswith(name)

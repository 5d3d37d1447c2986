"""Spark's pushed filters as filters of `StateTable`; a filter that cannot be evaluated exactly is left to Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark

from statestore.formats.errors import StateStoreError
from statestore.formats.values.declared_types import has_collation
from statestore.formats.values.filters import NULL_TESTS, Filter, Op, mask

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
    return found if found is not None and compares_alike(found, schema) else None


def compares_alike(found: Filter, schema: pa.Schema) -> bool:
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

"""Aggregates that tasks compute before Spark does: one row for a batch or a split instead of its rows.

Spark aggregates these rows once more, so a partial result may come in several rows. Sums of integers and decimals are
exact. Spark casts a partial sum of decimals to the type of the summands, and one of integers to a 64-bit integer, so
what does not fit is passed in several rows; Spark reports an overflow or wraps, as its settings say.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from statestore.connector.spark.filters import NotTranslated, reference
from statestore.connector.spark.schema import arrow_schema

Function = Literal["rows", "count", "sum", "min", "max"]

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_FLOATS = (FloatType, DoubleType)
_ORDERED = (BooleanType, DateType, TimestampType, TimestampNTZType, BinaryType, *_INTEGERS)
_LARGEST = (1 << 63) - 1
_LOWER = (1 << 32) - 1
_MAX_SUMMED_DIGITS = 28  # of a decimal: Arrow sums in 38 digits, and no batch has more than ten digits of rows
_EXACT = Context(prec=76)


@dataclass(frozen=True)
class Aggregate:
    """One function over the rows of a group; ``column`` is None for the number of rows.

    ``path`` leads to a field inside a struct column; it is empty for the column itself.
    """

    function: Function
    column: str | None = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True)
class Aggregation:
    """Functions over the rows that are equal in ``groups``; without groups, over all rows."""

    groups: tuple[str, ...]
    functions: tuple[Aggregate, ...]

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """The columns that are read, and the paths to fields inside them."""
        used = ((item.column, *item.path) for item in self.functions if item.column is not None)
        return tuple(dict.fromkeys((*((name,) for name in self.groups), *used)))


def result_schema(aggregation: Aggregation, schema: StructType) -> StructType | None:
    """The columns of the partial result, in Spark's order; None if a function cannot be computed exactly here."""
    if not all(_is_field(item, schema) for item in aggregation.functions):
        return None
    fields = [schema[name] for name in aggregation.groups]
    if not all(is_plain(field.dataType) for field in fields) or _may_be_average(aggregation, schema):
        return None
    for position, item in enumerate(aggregation.functions):
        kind = _result(item, _input(item, schema))
        if kind is None:
            return None
        fields.append(StructField(f"{item.function}_{position}", kind, True))
    return StructType(fields)


def _may_be_average(aggregation: Aggregation, schema: StructType) -> bool:
    """Return whether Spark may have asked for a sum and a number to divide them.

    It sums 64-bit integers as doubles for an average, but would add partial sums as integers, which may overflow.
    """
    counted = {(item.column, item.path) for item in aggregation.functions if item.function == "count"}
    summed = [item for item in aggregation.functions if item.function == "sum"]
    return any(isinstance(_input(item, schema), LongType) for item in summed if (item.column, item.path) in counted)


def _is_field(item: Aggregate, schema: StructType) -> bool:
    """Return whether the path of a function leads through structs alone."""
    kind: DataType = schema if item.column is None else schema[item.column].dataType
    for name in item.path:
        if not isinstance(kind, StructType) or name not in kind.names:
            return False
        kind = kind[name].dataType
    return True


def _input(item: Aggregate, schema: StructType) -> DataType | None:
    """The type of what a function is computed of; None for the number of rows."""
    if item.column is None:
        return None
    kind = schema[item.column].dataType
    for name in item.path:
        assert isinstance(kind, StructType)
        kind = kind[name].dataType
    return kind


def _result(item: Aggregate, kind: DataType | None) -> DataType | None:
    if item.function in ("rows", "count"):
        return LongType()
    if item.function in ("min", "max"):
        return kind if kind is not None and (is_plain(kind) or isinstance(kind, _FLOATS)) else None
    if isinstance(kind, _INTEGERS):
        return LongType()
    if isinstance(kind, _FLOATS):
        return DoubleType()
    if isinstance(kind, DecimalType) and kind.precision <= _MAX_SUMMED_DIGITS:
        return kind
    return None


def is_plain(kind: DataType) -> bool:
    """Return whether equal and ordered values of the type are so for Arrow and Spark alike."""
    return isinstance(kind, (*_ORDERED, DecimalType)) or (type(kind) is StringType and kind == StringType())


def partial_rows(
    batches: Iterable[pa.RecordBatch], aggregation: Aggregation, result: StructType
) -> Iterator[pa.RecordBatch]:
    """The partial results of a split, in the schema ``result``; without groups at least one row."""
    schema = arrow_schema(result)
    inside = [item for item in aggregation.functions if item.path]
    if inside:
        batches = (_with_fields(batch, inside) for batch in batches)
        aggregation = replace(aggregation, functions=tuple(map(_of_column, aggregation.functions)))
    if aggregation.groups:
        for batch in batches:
            if batch.num_rows:
                yield _grouped(batch, aggregation, schema)
        return
    totals = [_Total(item, _largest(field.type)) for item, field in zip(aggregation.functions, schema, strict=True)]
    for batch in batches:
        for total in totals:
            total.add(batch)
    columns = [total.rows() for total in totals]
    length = max(map(len, columns))
    for column, total in zip(columns, totals, strict=True):
        column += [total.nothing] * (length - len(column))
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _with_fields(batch: pa.RecordBatch, functions: Sequence[Aggregate]) -> pa.RecordBatch:
    """The batch with a column for each field that functions are computed of; it is null where its struct is null."""
    for name, item in {_of_column(item).column: item for item in functions}.items():
        batch = batch.append_column(name, pc.struct_field(batch.column(item.column), list(item.path)))
    return batch


def _of_column(item: Aggregate) -> Aggregate:
    """The function over the column that `_with_fields` makes of its field."""
    return item if not item.path else Aggregate(item.function, "\0".join((str(item.column), *item.path)))


def _largest(kind: pa.DataType) -> Any:
    """The largest partial sum that a type holds."""
    if not pa.types.is_decimal(kind):
        return _LARGEST
    return Decimal((0, (9,) * kind.precision, -kind.scale))


class _Total:
    """One function over all batches of a split. ``largest``: what one row of a sum can pass at most."""

    def __init__(self, item: Aggregate, largest: Any) -> None:
        self.item = item
        self.largest = largest
        self.nothing: Any = 0 if item.function in ("rows", "count") else None
        self.value: Any = self.nothing

    def add(self, batch: pa.RecordBatch) -> None:
        if self.item.column is None:
            self.value += batch.num_rows
            return
        column = batch.column(self.item.column)
        valid = len(column) - column.null_count
        if self.item.function == "count":
            self.value += valid
        elif valid:
            found = _sum(column) if self.item.function == "sum" else _extreme(column, self.item.function)
            self.value = found if self.value is None else self._with(found)

    def _with(self, found: Any) -> Any:
        if self.item.function == "sum":
            exact = isinstance(found, Decimal)  # Python's own context rounds to 28 digits
            return _EXACT.add(self.value, found) if exact else self.value + found
        both = pa.array([self.value, found])
        return _extreme(both, self.item.function)

    def rows(self) -> list[Any]:
        """The result as values that their type holds."""
        if not isinstance(self.value, int | Decimal) or self.item.function != "sum":
            return [self.value]
        rest, parts = self.value, []
        while not -self.largest <= rest <= self.largest:
            part = self.largest if rest > 0 else -self.largest
            parts.append(part)
            rest = _EXACT.subtract(rest, part) if isinstance(rest, Decimal) else rest - part
        return [*parts, rest]


def _sum(column: pa.Array) -> Any:
    """The exact sum of integers and decimals; the sum of floats in Arrow's order."""
    if not pa.types.is_integer(column.type):
        return pc.sum(column).as_py()
    if _fits(column):
        return pc.sum(column).as_py()
    high = pc.sum(pc.shift_right(column, 32)).as_py()
    low = pc.sum(pc.bit_wise_and(column, pa.scalar(_LOWER, column.type))).as_py()
    return (high << 32) + low


def _fits(column: pa.Array) -> bool:
    """Return whether no partial sum of these integers can overflow."""
    if column.type.bit_width < 64 or column.null_count == len(column):
        return True
    bounds = pc.min_max(column).as_py()
    return bool(max(-bounds["min"], bounds["max"]) * len(column) <= _LARGEST)


def _extreme(column: pa.Array, function: Function) -> Any:
    """The least or greatest value. NaN is greater than all numbers, as in Spark."""
    if pa.types.is_floating(column.type):
        numbers = column.filter(pc.invert(pc.is_nan(column)))
        numbers = numbers.drop_null()
        undefined = len(numbers) < len(column) - column.null_count
        if undefined and (function == "max" or not len(numbers)):
            return math.nan
        column = numbers
    return pc.min_max(column)[function].as_py()


_ARROW = {"rows": "count_all", "count": "count", "sum": "sum", "min": "min", "max": "max"}


def _grouped(batch: pa.RecordBatch, aggregation: Aggregation, schema: pa.Schema) -> pa.RecordBatch:
    if not all(_groups_exactly(batch, item) for item in aggregation.functions):
        return _each_row(batch, aggregation, schema)
    functions: list[Any] = []
    for item in aggregation.functions:
        functions.append(([] if item.column is None else item.column, _ARROW[item.function]))
    grouped = pa.Table.from_batches([batch]).group_by(list(aggregation.groups), use_threads=False)
    found = grouped.aggregate(functions).combine_chunks()
    width = len(aggregation.groups)
    arrays = [*found.columns[:width], *found.columns[width:]]
    try:
        cast = [_whole(column).cast(field.type) for column, field in zip(arrays, schema, strict=True)]
    except pa.ArrowInvalid:  # a sum of decimals has more digits than they have
        return _each_row(batch, aggregation, schema)
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _groups_exactly(batch: pa.RecordBatch, item: Aggregate) -> bool:
    if item.column is None or item.function == "count":
        return True
    column = batch.column(item.column)
    if item.function == "sum":
        return not pa.types.is_integer(column.type) or _fits(column)
    return not pa.types.is_floating(column.type) or not pc.any(pc.is_nan(column)).as_py()


def _each_row(batch: pa.RecordBatch, aggregation: Aggregation, schema: pa.Schema) -> pa.RecordBatch:
    """Each row as a group of its own."""
    arrays = [batch.column(name) for name in aggregation.groups]
    for item in aggregation.functions:
        if item.column is None:
            arrays.append(pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows))
        elif item.function == "count":
            arrays.append(pc.is_valid(batch.column(item.column)))
        else:
            arrays.append(batch.column(item.column))
    cast = [column.cast(field.type) for column, field in zip(arrays, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


# Spark's aggregate functions as those that tasks compute.


def aggregation_of(pushed: Any, unique: str | None = None) -> Aggregation | None:
    """The aggregation of Spark's planner; None if some of it is not computed here.

    ``unique`` is a column in which no two rows are equal and none is null, where the result is that of all rows: the
    number of its different values is that of rows.
    """
    try:
        groups = tuple(_column(item) for item in pushed.groupByExpressions())
        return Aggregation(groups, tuple(_function(item, unique) for item in pushed.aggregateExpressions()))
    except NotTranslated:
        return None


def groups_of(pushed: Any) -> tuple[str, ...]:
    """The columns by which the rows are grouped, without expressions."""
    found = []
    for item in pushed.groupByExpressions():
        with contextlib.suppress(NotTranslated):
            found.append(_column(item))
    return tuple(found)


def _function(item: Any, unique: str | None) -> Aggregate:
    name = str(item.getClass().getSimpleName())
    if name == "CountStar" or (name == "Count" and item.isDistinct() and reference(item.column()) == (unique,)):
        return Aggregate("rows")
    if name == "Count" and not item.isDistinct():
        return _of_reference("count", item.column())
    if name == "Sum" and not item.isDistinct():
        return _of_reference("sum", item.column())
    if name == "Min":
        return _of_reference("min", item.column())
    if name == "Max":
        return _of_reference("max", item.column())
    raise NotTranslated


def _of_reference(function: Function, expression: Any) -> Aggregate:
    column, *path = reference(expression)
    return Aggregate(function, column, tuple(path))


def _column(expression: Any) -> str:
    names = reference(expression)
    if len(names) != 1:
        raise NotTranslated
    return names[0]

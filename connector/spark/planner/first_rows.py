"""The first rows of a split: as many as a limit asks for, in any order or in that of some columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

MAX_SORTED = 10_000


@dataclass(frozen=True)
class Order:
    """One column of an order. Nulls come first or last, NaN is greater than every number, as in Spark."""

    column: str
    descending: bool
    nulls_first: bool


def limited(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """At most ``limit`` rows; no further batch is read."""
    left = limit
    if left <= 0:
        return
    for batch in batches:
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def top_rows(batches: Iterable[pa.RecordBatch], orders: tuple[Order, ...], limit: int) -> Iterator[pa.RecordBatch]:
    """The first ``limit`` rows in an order, sorted."""
    best: pa.RecordBatch | None = None
    for batch in batches:
        both = batch if best is None else pa.concat_batches([best, batch])
        best = both.take(_sorted(both, orders)[:limit])
    if best is not None and best.num_rows:
        yield best


def can_sort(kind: pa.DataType) -> bool:
    """Return whether values of the type are ordered by Arrow as they are by Spark."""
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    texts = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return bool(
        plain or texts or pa.types.is_date32(kind) or pa.types.is_timestamp(kind) or pa.types.is_decimal128(kind)
    )


def _sorted(batch: pa.RecordBatch, orders: tuple[Order, ...]) -> pa.Array:
    arrays: list[pa.Array] = []
    keys: list[tuple[str, str]] = []

    def by(array: pa.Array, descending: bool) -> None:
        keys.append((str(len(arrays)), "descending" if descending else "ascending"))
        arrays.append(array)

    for order in orders:
        column = batch.column(order.column)
        if column.null_count:
            by(pc.is_null(column), order.nulls_first)
        if pa.types.is_floating(column.type):
            by(pc.fill_null(pc.is_nan(column), False), order.descending)
        by(column, order.descending)
    return pc.sort_indices(pa.table(arrays, names=[name for name, _ in keys]), sort_keys=keys)

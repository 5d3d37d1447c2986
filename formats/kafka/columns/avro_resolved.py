"""Avro values as columns of a reader's schema, by a plan of how values of their writer's schema become such."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kafka.columns.avro_values import avro_values, blocks, whole_numbers
from statestore.formats.kafka.schemas.avro_resolution import (
    Blocks,
    FromUnion,
    IntoUnion,
    Plan,
    Record,
    Same,
    Symbols,
    Widened,
)
from statestore.formats.kafka.schemas.avro_schema import AvroType


def resolved_values(cursor: Cursor, plan: Plan) -> pa.Array:
    """Read a value of each cell as one of the reader's type. Cells that are bad get any value.

    Raises InvalidInputError WRONG_SCHEMA about a value that the reader cannot have.
    """
    if isinstance(plan, Same):
        return avro_values(cursor, plan.kind)
    if isinstance(plan, Record):
        return _record(cursor, plan)
    if isinstance(plan, Blocks):
        return blocks(cursor, plan.kind, lambda part: resolved_values(part, plan.part))
    if isinstance(plan, Widened):
        return _widened(cursor, plan)
    if isinstance(plan, Symbols):
        return _symbols(cursor, plan)
    if isinstance(plan, FromUnion):
        return _from_union(cursor, plan)
    if isinstance(plan, IntoUnion):
        return _into_union(cursor, plan)
    if not cursor.bad.all():
        raise InvalidInputError(ErrorCode.WRONG_SCHEMA, plan.why)
    return pa.nulls(len(cursor.at), plan.column)


def _record(cursor: Cursor, plan: Record) -> pa.Array:
    found = [resolved_values(cursor, part) for part in plan.parts]
    count = len(cursor.at)
    if not plan.places:
        return pa.array([{}] * count, plan.kind.column)
    columns = [
        found[place] if isinstance(place, int) else _repeated(kind, place, count)
        for kind, place in zip(plan.kind.parts, plan.places, strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(plan.kind.column))


def _repeated(kind: AvroType, default: bytes, count: int) -> pa.Array:
    """The default of a field for each of ``count`` cells."""
    data = np.frombuffer(default, np.uint8) if default else np.zeros(1, np.uint8)
    cursor = Cursor(Cells(data, np.zeros(1, np.int64), np.array([len(default)])))
    try:
        one = avro_values(cursor, kind)
    except pa.ArrowInvalid:
        cursor.refuse(np.ones(1, bool))
    if cursor.bad.any():
        raise InvalidInputError(ErrorCode.WRONG_SCHEMA, f"the default of a field of {kind.shown} cannot be read")
    return one.take(pa.array(np.zeros(count, np.int64)))


def _widened(cursor: Cursor, plan: Widened) -> pa.Array:
    values, kind = avro_values(cursor, plan.written), plan.kind
    if kind.base.form == "long":
        return whole_numbers(cursor, values.to_numpy(zero_copy_only=False).astype(np.int64), kind)
    return values.cast(kind.column, safe=False)


def _symbols(cursor: Cursor, plan: Symbols) -> pa.Array:
    number = cursor.varlong()
    cursor.refuse((number < 0) | (number >= len(plan.names)))
    number = np.where(cursor.bad, 0, number)
    missing = np.array([name is None for name in plan.names] or [False])
    unknown = missing[number] & ~cursor.bad
    if unknown.any():
        at = int(number[unknown.argmax()])
        raise InvalidInputError(
            ErrorCode.WRONG_SCHEMA, f"its symbol number {at} is none of the reader's enum, which has no default"
        )
    return pa.array(plan.names or [""], pa.string()).take(pa.array(number))


def _from_union(cursor: Cursor, plan: FromUnion) -> pa.Array:
    branch = cursor.varlong()
    cursor.refuse((branch < 0) | (branch >= len(plan.branches)))
    parts = []
    place = np.full(len(cursor.at), -1)
    before = 0
    for number, part in enumerate(plan.branches):
        rows = np.flatnonzero((branch == number) & ~cursor.bad)
        if not len(rows):
            continue
        some = cursor.select(rows)
        parts.append(resolved_values(some, part))
        cursor.put_back(rows, some)
        place[rows] = before + np.arange(len(rows))
        before += len(rows)
    if not parts:
        return pa.nulls(len(cursor.at), plan.column)
    return pa.concat_arrays(parts).take(pa.array(place, mask=place < 0))


def _into_union(cursor: Cursor, plan: IntoUnion) -> pa.Array:
    kind, count = plan.kind, len(cursor.at)
    values = resolved_values(cursor, plan.part)
    branch = kind.branches[plan.number]
    if branch.form == "null":
        return pa.nulls(count, kind.column)
    if kind.form == "nullable" or len(kind.parts) == 1:
        return values
    others = [part for part in kind.parts if part.form != "null"]
    columns = [values if part is branch else pa.nulls(count, part.column) for part in others]
    return pa.StructArray.from_arrays(columns, fields=list(kind.column))

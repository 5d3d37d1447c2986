"""Rows of a source's state as the columns of the state's table in a keyed store, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.rows.state_rows import table_schema
from statestore.connector.imports.import_plan import PlannedState
from statestore.formats.engine import Part
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.jobs import (
    KEY,
    LAST_ACCESS,
    MAP_KEY,
    MAP_VALUE,
    NAMESPACE,
    POSITION,
    TIMESTAMP_MS,
    VALUE,
)
from statestore.formats.values.exact_cast import cast_exactly
from statestore.formats.values.types import TIME

_LAST_US = (1 << 63) - 1
_LAST_MS = _LAST_US // 1000


def imported_rows(
    planned: PlannedState, parts: Sequence[Part], key: pa.Schema, fields: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of these parts of the state in the columns of its table.

    Raises InvalidInputError NULL_KEY for a null in a key, namespace, position or key of a map, WRONG_SCHEMA for a value
    that its column cannot hold.
    """
    schema = table_schema(key, planned.spec)
    columns = _columns_of(planned, fields)
    names = [name for name in _needed(planned) if name in planned.at.schema.names]
    for part in parts:
        for batch in planned.at.rows(part, names, []):
            if batch.num_rows:
                yield _conformed(planned, schema, columns(batch), bool(fields))


def _needed(planned: PlannedState) -> tuple[str, ...]:
    access = (LAST_ACCESS,) if planned.keeps_access else ()
    return (KEY, NAMESPACE, POSITION, MAP_KEY, MAP_VALUE, TIMESTAMP_MS, VALUE, *access)


def _columns_of(planned: PlannedState, fields: Sequence[str]) -> Callable[[pa.RecordBatch], list[pa.Array]]:
    """A function from a batch to the columns of the table, before they are cast."""
    kind, has_namespace = planned.spec.kind, len(planned.spec.namespace) > 0

    def columns(batch: pa.RecordBatch) -> list[pa.Array]:
        named = _members(batch.column(KEY)) if fields else [batch.column(KEY)]
        namespace = _members(batch.column(NAMESPACE)) if has_namespace else []
        if kind == "timer":
            return [_times(batch.column(TIMESTAMP_MS)), *named, *namespace, _true(batch.num_rows)]
        last = [batch.column(POSITION)] if kind == "list" else [batch.column(MAP_KEY)] if kind == "map" else []
        column = MAP_VALUE if kind == "map" else VALUE
        value = batch.column(column) if column in batch.schema.names else _true(batch.num_rows)
        if planned.keeps_access:
            access = cast_exactly(batch.column(LAST_ACCESS), TIME)
            value = pa.StructArray.from_arrays([value, access], [VALUE, LAST_ACCESS])
        return [*named, *namespace, *last, value]

    return columns


def _true(count: int) -> pa.Array:
    """The values of states that have none: all that they say is that there is a row."""
    return pa.array(np.ones(count, bool))


def _members(column: pa.Array) -> list[pa.Array]:
    """The fields of a struct, null where the struct is; another column alone."""
    return column.flatten() if pa.types.is_struct(column.type) else [column]


def _times(milliseconds: pa.Array) -> pa.Array:
    """Times in microseconds; those beyond the range of timestamps become its end, which no moment reaches."""
    given = milliseconds.to_numpy()
    micros = np.clip(given, -_LAST_MS, _LAST_MS) * 1000
    micros[given > _LAST_MS] = _LAST_US
    micros[given < -_LAST_MS] = -_LAST_US
    return pa.array(micros, pa.int64()).cast(TIME)


def _conformed(planned: PlannedState, schema: pa.Schema, columns: Sequence[pa.Array], split: bool) -> pa.RecordBatch:
    found = []
    for number, (field, column) in enumerate(zip(schema, columns, strict=True)):
        if number < len(schema) - 1 and column.null_count:
            hint = "import with whole_key=True, which keeps the key as one struct" if split else "leave the state out"
            raise InvalidInputError(
                ErrorCode.NULL_KEY,
                f"state {planned.source.name!r}: column {field.name!r} is null in {column.null_count} of "
                f"{len(column)} rows, and keys and namespaces have no nulls; {hint}",
            )
        try:
            found.append(cast_exactly(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
            raise InvalidInputError(
                ErrorCode.WRONG_SCHEMA,
                f"state {planned.source.name!r}: column {field.name!r} is {column.type} and does not fit "
                f"{field.type} ({error}); leave the state out with states=",
            ) from None
    return pa.RecordBatch.from_arrays(found, schema=schema)

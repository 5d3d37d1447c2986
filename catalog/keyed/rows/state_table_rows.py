"""The rows of a state as columns by key group: key, namespace, a map's key or an element's position, and value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.keyed.rows.row_keys import ONE, stored_key
from statestore.catalog.keyed.rows.state_spec import StateDescriptor
from statestore.formats.serdes import natural_keys, natural_values
from statestore.formats.serdes.value_layout import value_layout
from statestore.formats.values.wider_types import cast_wider

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Grouped:
    """Rows with the key group of each, ascending."""

    groups: Ints
    rows: pa.RecordBatch


def table_schema(key: pa.Schema, spec: StateDescriptor) -> pa.Schema:
    """Return the columns that users see of a state."""
    columns = [field for field in stored_key(key, spec) if field != ONE][1:]
    return pa.schema([*columns, pa.field("value", spec.value)])


def decoder(key: pa.Schema, spec: StateDescriptor) -> Callable[[pa.RecordBatch], Grouped]:
    """Return a function from stored rows (key, value: binary) to columns; it raises CorruptError ROW_CORRUPT."""
    keys, schema = stored_key(key, spec), table_schema(key, spec)
    layout = value_layout(pa.schema([pa.field("value", spec.value)]))

    def decoded(stored: pa.RecordBatch) -> Grouped:
        group, *columns = natural_keys.keys_from_bytes(keys, stored.column(0).cast(pa.binary()))
        values = natural_values.values_from_bytes(layout, stored.column(1).cast(pa.binary()))
        kept = columns[: len(schema) - 1]
        return Grouped(group.to_numpy().astype(np.int64), pa.RecordBatch.from_arrays([*kept, *values], schema=schema))

    return decoded


def widened(key: pa.Schema, spec: StateDescriptor) -> Callable[[Grouped], Grouped]:
    """Return a function from rows of a state before a migration to rows after it; added fields are null."""
    schema = table_schema(key, spec)

    def wide(grouped: Grouped) -> Grouped:
        if grouped.rows.schema.field(-1).type == spec.value:
            return grouped
        *columns, value = grouped.rows.columns
        return Grouped(
            grouped.groups, pa.RecordBatch.from_arrays([*columns, cast_wider(value, spec.value)], schema=schema)
        )

    return wide


def encoder(key: pa.Schema, spec: StateDescriptor) -> Callable[[Grouped], pa.RecordBatch]:
    """Return the inverse of `decoder`, a function from columns to stored rows."""
    keys = stored_key(key, spec)
    layout = value_layout(pa.schema([pa.field("value", spec.value)]))

    def encoded(grouped: Grouped) -> pa.RecordBatch:
        count = grouped.rows.num_rows
        group = pa.array(grouped.groups.astype(np.int16))
        last = [pa.array(np.zeros(count, np.int8))] if keys.field(-1) == ONE else []
        stored = natural_keys.keys_to_bytes(keys, [group, *grouped.rows.columns[:-1], *last])
        values = natural_values.values_to_bytes(layout, [grouped.rows.column(grouped.rows.num_columns - 1)])
        return pa.RecordBatch.from_arrays([stored, values], names=["key", "value"])

    return encoded

"""Stored rows of keyed states, as bytes and as columns by key group: the group, the key, the namespace, a last
distinguishing cell, and the value.

A stored key has the natural serde (``formats.serdes.plain_keys``) with the columns of `stored_key`: the group, the
columns of the key and of the namespace, and a last column. The last column is the key of a map, the position of an
element in a list, or a constant. Therefore the bytes of key and namespace are a prefix of all their rows, and rows sort
by group, key and namespace. Whole columns are decoded by ``formats.serdes.natural_keys``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.keyed.rows.state_spec import StateDescriptor
from statestore.formats.kernels.arrays import Ints
from statestore.formats.serdes import natural_keys, natural_values, plain_keys
from statestore.formats.serdes.plain_values import value_decoder, value_encoder
from statestore.formats.serdes.value_layout import value_layout
from statestore.formats.values.key_codec import KeyCodec, ValueCodec
from statestore.formats.values.types import TIME
from statestore.formats.values.wider_types import cast_wider

GROUP_BYTES, DUE_BYTES = 2, 8
GROUP, POSITION, ONE = pa.field("_group", pa.int16()), pa.field("position", pa.int64()), pa.field("_one", pa.int8())
DUE = pa.field("_due", TIME, nullable=False)
ONLY = b"\x80"
"""The cell of ``ONE``: zero."""
_SIGN, _WIDE_SIGN = 1 << 15, 1 << 63

Encode = Callable[[Any], bytes]
Decode = Callable[[bytes, int], tuple[Any, int]]


def prefix_encoder(schema: pa.Schema) -> Encode:
    """Return a function from users' values for these columns to the bytes with which stored keys begin.

    Without columns the bytes are empty. The function raises InvalidInputError NULL_KEY or WRONG_KEY.
    """
    if not len(schema):
        return lambda value: b""
    codec = KeyCodec(schema)
    encoders = [encode for encode, _ in plain_keys.key_cells(pa.schema([*schema, ONE]))[:-1]]

    def encoded(value: Any) -> bytes:
        return b"".join([encode(cell) for encode, cell in zip(encoders, codec.normalize(value), strict=True)])

    return encoded


def prefix_decoder(schema: pa.Schema) -> Decode:
    """Return the inverse of `prefix_encoder`.

    It takes a stored key and an offset, and returns the users' values and the offset of the next bytes.
    """
    if not len(schema):
        return lambda data, at: (None, at)
    codec = KeyCodec(schema)
    decoders = [decode for _, decode in plain_keys.key_cells(pa.schema([*schema, ONE]))[:-1]]

    def decoded(data: bytes, at: int) -> tuple[Any, int]:
        row = []
        for decode in decoders:
            cell, at = decode(data, at)
            row.append(cell)
        return codec.to_user(tuple(row)), at

    return decoded


@dataclass(frozen=True)
class StateRows:
    """Encoders and decoders of a state's namespaces, user keys and values."""

    namespace: Encode
    user_key: Encode
    user_key_of: Callable[[bytes], Any]
    value: Encode
    value_of: Callable[[bytes], Any]


def state_rows(spec: StateDescriptor) -> StateRows:
    """Return the encoders and decoders of a state's rows. Raises UnsupportedError UNSUPPORTED_KEY_TYPE or
    UNSUPPORTED_TYPE.
    """
    values = ValueCodec(pa.schema([pa.field(spec.name, spec.value)]))  # the name appears in errors
    layout = value_layout(values.schema)
    user_key: Encode = _none
    user_key_of: Callable[[bytes], Any] = _none_of
    if spec.user_key is not None:
        codec = KeyCodec(pa.schema([pa.field("user_key", spec.user_key, nullable=False)]))
        user_key, user_key_of = _cell_encoder(codec), plain_keys.key_decoder(codec)
    encoded = value_encoder(layout, values)
    return StateRows(
        prefix_encoder(spec.namespace),
        user_key,
        user_key_of,
        lambda value: encoded((value,)),
        value_decoder(layout, values),
    )


def _cell_encoder(codec: KeyCodec) -> Encode:
    """Return an encoder of a column's value, including a value that looks like a row with the column."""
    encode = plain_keys.key_encoder(codec)
    return (lambda value: encode((value,))) if pa.types.is_nested(codec.schema.field(0).type) else encode


def stored_key(key: pa.Schema, spec: StateDescriptor) -> pa.Schema:
    """Return the columns of a state's stored keys."""
    last = ONE
    if spec.kind == "list":
        last = POSITION
    elif spec.user_key is not None:
        last = pa.field("user_key", spec.user_key, nullable=False)
    if spec.kind == "timer":  # ordered by time, so that due timers come first
        return pa.schema([GROUP, DUE, *key, *spec.namespace, ONE])
    return pa.schema([GROUP, *key, *spec.namespace, last])


def group_bytes(group: int) -> bytes:
    return (group ^ _SIGN).to_bytes(GROUP_BYTES)


def position_bytes(position: int) -> bytes:
    return (position ^ _WIDE_SIGN).to_bytes(8)


def _none(value: Any) -> bytes:
    return b""


def _none_of(data: bytes) -> Any:
    return None


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

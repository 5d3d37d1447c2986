"""Serde "kafka": one key and one value column in the bytes of Kafka's built-in serdes.

String, ByteArray, Boolean, Short, Integer, Long, Float and Double (``org.apache.kafka.common.serialization.Serdes``):
text is UTF-8, numbers are big-endian, so in the order of bytes negative numbers come after positive ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kafka.serdes import deserializer, serde_of, serializer
from statestore.formats.key_codec import KeyCodec, ValueCodec
from statestore.formats.row_bytes.cells import corrupt, number_bytes
from statestore.formats.row_bytes.columns import as_binary, as_text, bounds, from_matrix, gather, matrix

TYPES = "string, binary, boolean, smallint, int, bigint, float, double"

Bytes = Callable[[Any], bytes]
Forms = tuple[
    Bytes,
    Callable[[bytes], Any],
    Bytes,
    Callable[[bytes], Any],
    Callable[[list[pa.Array]], pa.BinaryArray],
    Callable[[pa.BinaryArray], list[pa.Array]],
    Callable[[list[pa.Array]], pa.BinaryArray],
    Callable[[pa.BinaryArray], list[pa.Array]],
]


def kafka_rows(key: pa.Schema, value: pa.Schema) -> Forms:
    """The members of a `RowSerde`; UnsupportedError UNSUPPORTED_SERDE naming the column that has no serde."""
    key_kind, value_kind = _only_kind(key, "key"), _only_kind(value, "value")
    keys, values = KeyCodec(key), ValueCodec(value)
    encode_value, name = _encoder(value_kind), value.field(0).name

    def value_bytes(given: Any) -> bytes:
        cell = values.normalize(given)[0]
        if cell is None:
            raise InvalidInputError(
                "WRONG_VALUE",
                f"Column {name!r}: found null, expected {value_kind}; in Kafka's serdes null is a delete: put None.",
            )
        return encode_value(cell)

    return (
        _fast(key_kind, _encoder(key_kind), lambda given: keys.normalize(given)[0]),
        deserializer(serde_of(key_kind)),
        _fast(value_kind, encode_value, lambda given: given, value_bytes),
        deserializer(serde_of(value_kind)),
        lambda columns: _to_bytes(columns[0]),
        lambda rows: [_from_bytes(rows, key_kind)],
        lambda columns: _to_bytes(columns[0]),
        lambda rows: [_from_bytes(rows, value_kind)],
    )


def _only_kind(schema: pa.Schema, what: str) -> pa.DataType:
    columns = ", ".join(f"{field.name} {field.type}" for field in schema)
    kind = schema.field(0).type if len(schema) == 1 else None
    try:
        if kind is not None:
            serde_of(kind)
            return kind
    except UnsupportedError:
        pass
    raise UnsupportedError(
        "UNSUPPORTED_SERDE",
        f'serde "kafka": the {what} is ({columns}); Kafka has serdes for one column of type {TYPES}; '
        'use one of these, or serde="natural"',
    )


def _encoder(kind: pa.DataType) -> Bytes:
    """Of canonical values, which are never null."""
    return serializer(serde_of(kind))  # type: ignore[return-value]


def _fast(kind: pa.DataType, encode: Bytes, normalize: Callable[[Any], Any], slowly: Bytes | None = None) -> Bytes:
    """The encoder with a short way for the plain Python value that most callers give."""
    otherwise = slowly or (lambda given: encode(normalize(given)))
    if pa.types.is_string(kind):
        return lambda given: given.encode() if type(given) is str and given.isascii() else otherwise(given)
    if pa.types.is_binary(kind):
        return lambda given: given if type(given) is bytes else otherwise(given)
    if pa.types.is_signed_integer(kind):
        half = 1 << (kind.bit_width - 1)
        return lambda given: encode(given) if type(given) is int and -half <= given < half else otherwise(given)
    return otherwise


def _to_bytes(column: pa.Array) -> pa.BinaryArray:
    """Nulls stay nulls."""
    width = number_bytes(column.type)
    if not width:
        return column.cast(pa.binary())
    rows = as_binary(matrix(column, width)[:, ::-1])
    if not column.null_count:
        return rows
    places = np.arange(len(rows))
    return rows.take(pa.array(places, mask=column.is_null().to_numpy(zero_copy_only=False)))


def _from_bytes(rows: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    width = number_bytes(kind)
    if not width:
        return rows if pa.types.is_binary(kind) else as_text(rows)
    valid = rows.is_valid().to_numpy(zero_copy_only=False)
    data, begin, end = bounds(rows.fill_null(bytes(width)) if rows.null_count else rows)
    if (end - begin != width).any():
        raise corrupt(f"a cell that is not the {width} bytes of {kind}")
    cells = np.ascontiguousarray(gather(data, begin, width, end)[:, ::-1])
    return from_matrix(cells, kind, None if valid.all() else valid)

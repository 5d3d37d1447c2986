"""Row serdes: the bytes that live stores keep of a key and a value, in RocksDB and in the changelog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.serdes import kafka_serde as kafka_rows
from statestore.formats.serdes import natural_keys, natural_values, plain_keys, plain_values
from statestore.formats.serdes.value_layout import value_layout
from statestore.formats.values.key_codec import KeyCodec, ValueCodec


class ValuesToBytes(Protocol):
    """A function from value columns to one binary column; ``rows`` is their number where there is no value column."""

    def __call__(self, columns: list[pa.Array], rows: int | None = None) -> pa.BinaryArray: ...


@dataclass(frozen=True)
class RowSerde:
    """Keys and values of one store as bytes and back.

    ``key_row_bytes`` and ``value_row_bytes`` take canonical rows, the other functions single keys and values as users
    write and see them (`KeyCodec.normalize` and ``to_user``). A wrong one raises the codecs' errors (NULL_KEY,
    WRONG_KEY, WRONG_VALUE), bytes that are not a row CorruptError ROW_CORRUPT, a time outside the years that Python has
    UnsupportedError TIME_OUT_OF_RANGE. Columns are of the schema's types; a null in a column of value bytes (a delete)
    is a row of nulls.
    """

    key_bytes: Callable[[Any], bytes]
    key_row_bytes: Callable[[tuple[Any, ...]], bytes]
    key_of: Callable[[bytes], Any]
    value_bytes: Callable[[Any], bytes]
    value_row_bytes: Callable[[tuple[Any, ...]], bytes]
    value_of: Callable[[bytes], Any]
    keys_to_bytes: Callable[[list[pa.Array]], pa.BinaryArray]
    keys_from_bytes: Callable[[pa.BinaryArray], list[pa.Array]]
    values_to_bytes: ValuesToBytes
    values_from_bytes: Callable[[pa.BinaryArray], list[pa.Array]]


def row_serde(serde: str, key: pa.Schema, value: pa.Schema) -> RowSerde:
    """The serde of a store: "natural", or "kafka" with one key and one value column of types for which Kafka has
    serdes.

    Raises UnsupportedError UNSUPPORTED_SERDE.
    """
    if serde == "natural":
        return _natural(KeyCodec(key), ValueCodec(value))
    if serde != "kafka":
        raise UnsupportedError(ErrorCode.UNSUPPORTED_SERDE, f'serde {serde!r}; expected "natural" or "kafka"')
    key_kind, value_kind = kafka_rows.kafka_kind(key, "key"), kafka_rows.kafka_kind(value, "value")
    return _kafka(KeyCodec(key), key_kind, ValueCodec(value), value_kind)


def _natural(key: KeyCodec, value: ValueCodec) -> RowSerde:
    layout = value_layout(value.schema)
    return RowSerde(
        plain_keys.key_encoder(key),
        plain_keys.row_encoder(key),
        plain_keys.key_decoder(key),
        plain_values.value_encoder(layout, value),
        plain_values.row_encoder(layout, value),
        plain_values.value_decoder(layout, value),
        partial(natural_keys.keys_to_bytes, key.schema),
        partial(natural_keys.keys_from_bytes, key.schema),
        partial(natural_values.values_to_bytes, layout),
        partial(natural_values.values_from_bytes, layout),
    )


def _kafka(key: KeyCodec, key_kind: pa.DataType, value: ValueCodec, value_kind: pa.DataType) -> RowSerde:
    def to_bytes(columns: list[pa.Array], rows: int | None = None) -> pa.BinaryArray:
        return kafka_rows.column_to_bytes(columns[0])

    return RowSerde(
        (key_bytes := kafka_rows.key_encoder(key)),
        lambda row: key_bytes(row[0]),
        kafka_rows.decoder(key_kind),
        (value_bytes := kafka_rows.value_encoder(value)),
        lambda row: value_bytes(row[0]),
        kafka_rows.decoder(value_kind),
        to_bytes,
        lambda cells: [kafka_rows.column_from_bytes(cells, key_kind)],
        to_bytes,
        lambda cells: [kafka_rows.column_from_bytes(cells, value_kind)],
    )

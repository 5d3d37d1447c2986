"""Row serdes: what live stores keep of a key and a value, in RocksDB and in the changelog."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from statestore.formats.row_bytes.kafka_rows import kafka_rows
from statestore.formats.row_bytes.natural_keys import NaturalKeys
from statestore.formats.row_bytes.natural_values import NaturalValues


@dataclass(frozen=True)
class RowSerde:
    """Keys and values of one store as bytes and back.

    Single ones are as users write and see them (`KeyCodec.normalize` and ``to_user``); a wrong one raises what the
    codecs raise (NULL_KEY, WRONG_KEY, WRONG_VALUE), bytes that are no row CorruptError ROW_CORRUPT. Columns are of the
    schema's types; a null in a column of value bytes (a delete) is a row of nulls.
    """

    key_bytes: Callable[[Any], bytes]
    key_of: Callable[[bytes], Any]
    value_bytes: Callable[[Any], bytes]
    value_of: Callable[[bytes], Any]
    keys_to_bytes: Callable[[list[pa.Array]], pa.BinaryArray]
    keys_from_bytes: Callable[[pa.BinaryArray], list[pa.Array]]
    values_to_bytes: Callable[[list[pa.Array]], pa.BinaryArray]
    values_from_bytes: Callable[[pa.BinaryArray], list[pa.Array]]


def row_serde(serde: str, key: pa.Schema, value: pa.Schema) -> RowSerde:
    """The serde of a store: "natural", or "kafka" with one key and one value column of types Kafka has serdes for.

    Raises UnsupportedError UNSUPPORTED_SERDE.
    """
    if serde == "kafka":
        return RowSerde(*kafka_rows(key, value))
    keys, values = NaturalKeys(key), NaturalValues(value)
    return RowSerde(
        keys.key_bytes(),
        keys.key_of(),
        values.value_bytes(),
        values.value_of(),
        keys.to_bytes,
        keys.from_bytes,
        values.to_bytes,
        values.from_bytes,
    )

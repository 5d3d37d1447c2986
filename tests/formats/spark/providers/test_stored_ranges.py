"""Rows and changes of ranges of stored keys: of single keys exactly, however many they are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.spark.providers.stored_rows import MANY_RANGES, KeyBounds, rows_within

KEYS = [b"key-%04d" % number for number in range(0, 1000, 2)]


def rows_of(keys: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys)], schema=ROW_SCHEMA)


@pytest.mark.parametrize("count", [1, 2, MANY_RANGES, 5 * MANY_RANGES])
def test_single_keys_are_found_alone(count: int) -> None:
    asked = [b"key-%04d" % (3 * number) for number in range(count)]
    bounds: list[KeyBounds] = [(key, key + b"\0") for key in asked]
    found = rows_within(rows_of(KEYS), bounds).column("key").to_pylist()
    assert found == [key for key in KEYS if key in asked]


def test_of_many_other_ranges_the_span_is_read() -> None:
    bounds: list[KeyBounds] = [(b"key-%04d" % number, b"key-%04d" % (number + 1)) for number in range(100, 900, 4)]
    found = rows_within(rows_of(KEYS), bounds).column("key").to_pylist()
    assert found == [key for key in KEYS if b"key-0100" <= key < b"key-0897"]

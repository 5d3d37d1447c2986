"""Stored keys and values that are written in columns: each form by hand, and read back."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints.unsafe_row_cases import every_kind, value_of
from support.checkpoints.unsafe_row_model import row_bytes
from support.rocksdb.compiled_loops import compiled_or_not  # noqa: F401

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.byte_parts import joined_parts
from statestore.formats.errors import StateStoreError
from statestore.formats.spark.checkpoint.schema_files import KeyEncoder
from statestore.formats.spark.checkpoint.spark_schema import BINARY, LONG, Field, SparkType, StructOf, named_type
from statestore.formats.spark.rows.row_encoding import RowForm, decode_keys, split_values
from statestore.formats.spark.rows.row_framing import (
    WrittenForm,
    deleted_keys,
    key_parts,
    list_values,
    value_parts,
    with_checksums,
    with_sized_checksums,
)
from statestore.formats.spark.rows.unsafe_row import decode_rows

pytestmark = pytest.mark.usefixtures("compiled_or_not")

BARE, ENCODED = WrittenForm(bare=True), WrittenForm()
KEY = StructOf(tuple(Field(name, named_type(kind)) for name, kind in (("a", "string"), ("b", "long"), ("c", "string"))))
ROWS = [("x", -1, "é" * 9), (None, None, ""), ("", 2**40, None)]


def spans(*cells: bytes) -> Cells:
    return cells_of(pa.array(cells, pa.binary()))


def sized(part: bytes) -> bytes:
    return struct.pack("<i", len(part)) + part


def columns_of(rows: list[tuple[Any, ...]], schema: StructOf) -> list[pa.Array]:
    found = decode_rows(spans(*(row_bytes(row, schema) for row in rows)), schema)
    return [found.field(number) for number in range(len(schema.fields))]


def keys_of(rows: list[tuple[Any, ...]], schema: StructOf, encoder: KeyEncoder, form: WrittenForm) -> list[bytes]:
    parts = key_parts(columns_of(rows, schema), schema, encoder, form, len(rows))
    found: list[bytes] = joined_parts(parts, len(rows)).copied().to_pylist()
    return found


def crc32c(data: bytes) -> int:
    """RFC 3720, bit by bit."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def test_bare_and_plain_keys() -> None:
    bare = [row_bytes(row, KEY) for row in ROWS]
    assert keys_of(ROWS, KEY, KeyEncoder("prefix", 1), BARE) == bare
    assert keys_of(ROWS, KEY, KeyEncoder(), ENCODED) == [b"\0" + row for row in bare]
    values = value_parts(columns_of(ROWS, KEY), KEY, ENCODED, 3)
    assert joined_parts(values, 3).copied().to_pylist() == [b"\0" + row for row in bare]


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_keys_with_a_prefix(columns: int) -> None:
    first, rest = StructOf(KEY.fields[:columns]), StructOf(KEY.fields[columns:])
    expected = [
        sized(b"\0" + row_bytes(row[:columns], first))
        + (b"\0" + row_bytes(row[columns:], rest) if rest.fields else b"")
        for row in ROWS
    ]
    assert keys_of(ROWS, KEY, KeyEncoder("prefix", columns), ENCODED) == expected


@pytest.mark.parametrize("before", [True, False])
def test_keys_with_their_time(before: bool) -> None:
    schema = StructOf((KEY.fields[0], Field("__event_time", LONG)))
    times = [-(2**63), -1, 0, 2**63 - 1]
    row = b"\0" + row_bytes(("k",), StructOf(KEY.fields[:1]))
    packed = [struct.pack(">Q", time + 2**63) for time in times]
    encoder = KeyEncoder("timestamp-prefix" if before else "timestamp-postfix")
    found = keys_of([("k", time) for time in times], schema, encoder, ENCODED)
    assert found == [time + row if before else row + time for time in packed]
    with pytest.raises(StateStoreError, match="__event_time: found null"):
        keys_of([("k", None)], schema, encoder, ENCODED)


ORDERED: list[tuple[str, str, list[Any]]] = [
    ("byte", ">b", [-128, 0, 127]),
    ("short", ">h", [-(2**15), 5]),
    ("integer", ">i", [-(2**31), -1, 2**31 - 1]),
    ("long", ">q", [-(2**63), -1, 0, 7]),
    ("float", ">f", [-1.5, 0.0, 2.5]),
    ("double", ">d", [-1e300, 3.25]),
    ("boolean", ">B", [0, 1]),
]


@pytest.mark.parametrize(("kind", "form", "values"), ORDERED)
def test_range_keys(kind: str, form: str, values: list[Any]) -> None:
    """Null and negative values have markers, negative floats inverted bits; without nulls the bytes are in order."""
    schema = StructOf((Field("name", named_type("string")), Field("order", named_type(kind))))
    binaries, names = StructOf((Field("order", BINARY),)), StructOf(schema.fields[:1])
    cells = [bytes([2]) + bytes(struct.calcsize(form))]
    for value in values:
        raw = struct.pack(form, value)
        inverted = bytes(byte ^ 0xFF for byte in raw) if value < 0 and form[1] in "fd" else raw
        cells.append(bytes([0 if value < 0 else 1]) + inverted)
    expected = [sized(b"\0" + row_bytes((cell,), binaries)) + b"\0" + row_bytes(("n",), names) for cell in cells]
    rows = [("n", value) for value in (None, *values)]
    assert keys_of(rows, schema, KeyEncoder("range", ordinals=(1,)), ENCODED) == expected
    assert cells[1:] == sorted(cells[1:])
    never = StructOf((schema.fields[0], Field("order", named_type(kind), nullable=False)))
    with pytest.raises(StateStoreError, match="order: found null"):
        keys_of(rows, never, KeyEncoder("range", ordinals=(1,)), ENCODED)


ENCODERS = [
    KeyEncoder(),
    KeyEncoder("prefix", 1),
    KeyEncoder("prefix", 2),
    KeyEncoder("range", ordinals=(0,)),
    KeyEncoder("range", ordinals=(2, 0)),
    KeyEncoder("timestamp-prefix"),
    KeyEncoder("timestamp-postfix"),
]


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(ENCODERS), every_kind, st.integers(1, 9), st.randoms(use_true_random=False))
def test_keys_are_read_back(encoder: KeyEncoder, kind: SparkType, count: int, rng: random.Random) -> None:
    schema = StructOf((Field("n", named_type("integer")), Field("any", kind), Field("time", LONG)))
    rows = [(rng.randrange(-5, 5), value_of(kind, rng), rng.randrange(-(2**63), 2**63)) for _ in range(count)]
    stored = keys_of(rows, schema, encoder, ENCODED)
    found = decode_keys(spans(*stored), schema, encoder, RowForm())
    again = [row_bytes(row, schema) for row in rows]
    parts = key_parts([found.field(number) for number in range(3)], schema, KeyEncoder(), BARE, count)
    assert joined_parts(parts, count).copied().to_pylist() == again


def test_checksums() -> None:
    keys, rows = [b"", b"key", b"\1\0longer key"], [b"row", b"", b"another row"]
    sums = [struct.pack("<I", crc32c(key + row)) for key, row in zip(keys, rows, strict=True)]
    found = with_checksums(spans(*keys), spans(*rows)).copied().to_pylist()
    assert found == [check + row for check, row in zip(sums, rows, strict=True)]
    found = with_sized_checksums(spans(*keys), spans(*rows)).copied().to_pylist()
    assert found == [check + sized(row) for check, row in zip(sums, rows, strict=True)]
    assert deleted_keys(spans(*keys)).copied().to_pylist() == [struct.pack("<I", crc32c(key)) + key for key in keys]


@pytest.mark.parametrize("delimiter", [b"", b","])
@pytest.mark.parametrize("checksums", [False, True])
def test_lists(delimiter: bytes, checksums: bool) -> None:
    keys, lists = [b"k", b"key"], [[b"a"], [b"", b"bb", b"c" * 40]]
    expected = []
    for key, entries in zip(keys, lists, strict=True):
        records = [sized(entry) for entry in entries]
        if checksums:
            records = [struct.pack("<I", crc32c(key + record)) + sized(record) for record in records]
        expected.append(delimiter.join(records))
    rows = spans(*(entry for each in lists for entry in each))
    values = list_values(spans(*keys), rows, np.array([1, 3]), delimiter, checksums=checksums)
    assert values.copied().to_pylist() == expected
    if not checksums:
        counts, back = split_values(values, delimiter)
        assert counts.tolist() == [1, 3] and back.copied().to_pylist() == rows.copied().to_pylist()

"""Keys that are split, ordered or timed, and rows in Avro: written by hand, read in columns."""

from __future__ import annotations

import random
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.checkpoints.avro_row_cases import AVRO, NULL, present, schema_of, text, zigzag
from support.checkpoints.unsafe_row_model import row_bytes
from support.rocksdb.compiled_loops import compiled_or_not  # noqa: F401

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.errors import CorruptError, StateStoreError, UnsupportedError
from statestore.formats.spark.checkpoint.schema_files import KeyEncoder
from statestore.formats.spark.checkpoint.spark_schema import BINARY, Field, StructOf
from statestore.formats.spark.rows.avro_row import decode_record
from statestore.formats.spark.rows.row_encoding import RowForm, decode_keys, decode_values, looks_prefixed, split_values

pytestmark = pytest.mark.usefixtures("compiled_or_not")


def spans(*cells: bytes) -> Cells:
    return cells_of(pa.array(cells, pa.binary()))


def sized(part: bytes) -> bytes:
    return struct.pack("<i", len(part)) + part


KEY = schema_of(a="string", b="long", c="string")
ROWS = [("x", -1, "é" * 9), (None, None, ""), ("", 2**40, None)]
BARE, ENCODED = RowForm(bare=True), RowForm()


def prefixed(row: tuple[Any, ...], columns: int) -> bytes:
    first, rest = StructOf(KEY.fields[:columns]), StructOf(KEY.fields[columns:])
    return sized(b"\0" + row_bytes(row[:columns], first)) + b"\0" + row_bytes(row[columns:], rest)


def test_bare_keys_are_never_split() -> None:
    keys = spans(*(row_bytes(row, KEY) for row in ROWS))
    found = decode_keys(keys, KEY, KeyEncoder("prefix", 1), BARE)
    assert [tuple(row.values()) for row in found.to_pylist()] == ROWS


@pytest.mark.parametrize("columns", [1, 2])
def test_keys_with_a_prefix(columns: int) -> None:
    keys = spans(*(prefixed(row, columns) for row in ROWS))
    found = decode_keys(keys, KEY, KeyEncoder("prefix", columns), ENCODED)
    assert [tuple(row.values()) for row in found.to_pylist()] == ROWS
    assert looks_prefixed(keys)
    assert not looks_prefixed(spans(*(b"\0" + row_bytes(row, KEY) for row in ROWS)))


@pytest.mark.parametrize("before", [True, False])
def test_keys_with_their_time(before: bool) -> None:
    schema = StructOf((*KEY.fields[:1], *schema_of(__event_time="long").fields))
    times = [-(2**63), -1, 0, 2**63 - 1]
    packed = [struct.pack(">Q", (time + 2**63) % 2**64) for time in times]
    assert packed == sorted(packed)
    row = b"\0" + row_bytes(("k",), StructOf(KEY.fields[:1]))
    keys = spans(*(time + row if before else row + time for time in packed))
    found = decode_keys(keys, schema, KeyEncoder("timestamp-prefix" if before else "timestamp-postfix"), ENCODED)
    assert found.field(1).to_pylist() == times and found.field(0).to_pylist() == ["k"] * 4


ORDERED: list[tuple[str, str, list[Any]]] = [
    ("byte", ">b", [-128, 0, 127]),
    ("short", ">h", [-(2**15), 5]),
    ("integer", ">i", [-1, 2**31 - 1]),
    ("long", ">q", [-(2**63), 7]),
    ("float", ">f", [-1.5, 0.0, 2.5]),
    ("double", ">d", [-1e300, 3.25]),
    ("boolean", ">B", [0, 1]),
]


@pytest.mark.parametrize(("kind", "form", "values"), ORDERED)
def test_range_keys(kind: str, form: str, values: list[Any]) -> None:
    """The ordering column is the second of the key; null and negative have markers, negative floats inverted bits."""
    schema = schema_of(name="string", order=kind)
    binaries, names = StructOf((Field("order", BINARY),)), StructOf(schema.fields[:1])
    cells = [bytes([2]) + bytes(struct.calcsize(form))]
    for value in values:
        raw = struct.pack(form, value)
        inverted = bytes(byte ^ 0xFF for byte in raw) if value < 0 and form[1] in "fd" else raw
        cells.append(bytes([0 if value < 0 else 1]) + inverted)
    keys = [sized(b"\0" + row_bytes((cell,), binaries)) + b"\0" + row_bytes(("n",), names) for cell in cells]
    found = decode_keys(spans(*keys), schema, KeyEncoder("range", ordinals=(1,)), ENCODED)
    assert found.field(1).to_pylist() == [None, *values]
    assert found.field(0).to_pylist() == ["n"] * len(cells)


DAMAGED_KEYS = {
    "empty": b"",
    "first part too large": struct.pack("<i", 99) + b"\0" * 40,
    "first part negative": struct.pack("<i", -1) + b"\0" * 40,
    "second part missing": prefixed(ROWS[0], 1)[:30],
}


@pytest.mark.parametrize("key", DAMAGED_KEYS.values(), ids=DAMAGED_KEYS)
@pytest.mark.parametrize("encoder", [KeyEncoder("prefix", 1), KeyEncoder("range", ordinals=(0,)), KeyEncoder()])
def test_damaged_keys_are_refused(key: bytes, encoder: KeyEncoder) -> None:
    with pytest.raises(StateStoreError, match="SPARK_STATE"):
        decode_keys(spans(key), KEY, encoder, ENCODED)


def test_newer_encodings_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="row encoding version 1"):
        decode_values(spans(b"\1" + row_bytes(ROWS[0], KEY)), KEY, ENCODED)


@pytest.mark.parametrize("end", [b"", b","])
def test_one_long_list_among_short_ones(end: bytes) -> None:
    long = b",".join(sized(b"%d" % number) for number in range(5000)) + end
    values = spans(sized(b"a"), long, sized(b"b"))
    if end:
        with pytest.raises(CorruptError, match="list value 1"):
            split_values(values, b",")
        return
    counts, entries = split_values(values, b",")
    assert counts.tolist() == [1, 5000, 1]
    assert bytes(entries.data[entries.start[5000] : entries.start[5000] + entries.size[5000]]) == b"4999"


@pytest.mark.parametrize(("kind", "data", "expected"), AVRO, ids=[str(case[0])[:40] + str(case[2]) for case in AVRO])
def test_avro_values_with_nulls_between(kind: Any, data: bytes, expected: Any) -> None:
    schema = schema_of(a="long", b=kind, c="void", d="string")
    row = present(zigzag(1)) + present(data) + present(text("z"))
    found = decode_record(spans(row, NULL * 3, row), schema)
    assert [column.to_pylist() for column in found] == [
        [1, None, 1],
        [expected, None, expected],
        [None] * 3,
        ["z", None, "z"],
    ]


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(AVRO), st.randoms(use_true_random=False))
def test_tampered_avro_is_refused_or_stays_valid(case: tuple[Any, bytes, Any], rng: random.Random) -> None:
    row = bytearray(present(case[1]) + present(text("z")))
    for _ in range(rng.randrange(1, 3)):
        row[rng.randrange(len(row))] = rng.randrange(256)
    del row[len(row) - rng.randrange(2) :]
    try:
        for column in decode_record(spans(bytes(row), bytes(row)), schema_of(a=case[0], b="string")):
            column.validate()
    except CorruptError as error:
        assert error.code == "SPARK_STATE_ROW"


@pytest.mark.parametrize("kind", ["variant", {"type": "map", "keyType": "long", "valueType": "long"}])
def test_avro_types_that_are_not_known_are_named(kind: Any) -> None:
    with pytest.raises(UnsupportedError, match="in Avro"):
        decode_record(spans(present(b"\0\0")), schema_of(a=kind))


def test_an_avro_row_of_no_bytes_per_element_ends() -> None:
    voids = {"type": "array", "elementType": "void", "containsNull": True}
    with pytest.raises(StateStoreError, match="SPARK_STATE"):
        decode_record(spans(present(zigzag(2**40))), schema_of(a=voids))

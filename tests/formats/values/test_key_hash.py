"""The hash of keys: fixed for ever, the same for columns and for single keys."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.key_strategies import key_tables
from support.paths import DOCS
from support.properties import few_or_many
from xxhash import xxh64_intdigest

from statestore.formats.errors import UnsupportedError
from statestore.formats.values.key_codec import KeyCodec
from statestore.formats.values.key_hash import NULL_HASH, hash_keys, key_groups_of, scalar_hash

DEFINITION = DOCS / "key-hash.md"
PAIR = pa.struct([("a", pa.int64()), ("b", pa.string())])
MICRO = datetime(2013, 1, 1, 5, 0, 0, 1)

# As in docs/key-hash.md: column types, the key, its hash. A change of any of these breaks every store there is.
VECTORS: list[tuple[list[pa.DataType], tuple[Any, ...], int]] = [
    ([pa.string()], ("",), 0xEF46DB3751D8E999),
    ([pa.string()], ("a",), 0xD24EC4F1A98C6E5B),
    ([pa.string()], ("curry",), 0xFC7E3CF10ADB29E4),
    ([pa.string()], ("Zürich",), 0x85F1DEBCBB1A8279),
    ([pa.string()], ("0123456789abcdef0123456789abcdef0123456789",), 0xA76190C3ACF08A1C),
    ([pa.binary()], (b"\x00\xff",), 0xE0D97D9A03131D7D),
    ([pa.int64()], (0,), 0x34C96ACDCADB1BBB),
    ([pa.int64()], (42,), 0xB556806FB6D14353),
    ([pa.int8()], (42,), 0xB556806FB6D14353),
    ([pa.int64()], (-1,), 0x85D136ADB773C6C9),
    ([pa.bool_()], (True,), 0x9F29CB17A2A49995),
    ([pa.date32()], (date(2013, 1, 1),), 0x5DD98B93EEBA1A12),
    ([pa.timestamp("us", "UTC")], (MICRO.replace(tzinfo=UTC),), 0xB0A4EB5776298B7F),
    ([pa.timestamp("us")], (MICRO,), 0xB0A4EB5776298B7F),
    ([pa.duration("us")], (timedelta(milliseconds=-1),), 0x4FA58E1CBCE894CD),
    ([pa.decimal128(10, 2)], (Decimal("-1.50"),), 0x222C5249D59081A0),
    ([PAIR], ((1, "x"),), 0xB995391267EB3C05),
    ([PAIR], ((None, "x"),), 0x15C20535B895F34D),
    ([pa.struct([("a", pa.int64())])], ((42,),), 0x2475A2282A8FAE71),
    ([pa.list_(pa.int64())], ((),), 0xEF46DB3751D8E999),
    ([pa.list_(pa.int64())], ((1, None, 3),), 0xECC8E09B11DC1CB4),
    ([pa.list_(pa.list_(pa.string()))], (((), None, ("x",)),), 0xEAF321FC7DD432E2),
    ([pa.string(), pa.int64()], ("curry", 42), 0x7C8203DA2EB1287A),
    (
        [pa.string(), pa.int32(), pa.date32(), pa.bool_()],
        ("curry", 42, date(2013, 1, 1), False),
        0x3D0827F71E4F251A,
    ),
]


def _codec(types: list[pa.DataType]) -> KeyCodec:
    return KeyCodec(pa.schema([(f"k{number}", kind) for number, kind in enumerate(types)]))


@pytest.mark.parametrize(("types", "key", "expected"), VECTORS)
def test_vectors(types: list[pa.DataType], key: tuple[Any, ...], expected: int) -> None:
    """Single keys and columns give the documented hash."""
    codec = _codec(types)
    assert codec.hash(codec.normalize(key)) == expected
    assert hash_keys(codec.to_columns([key])).tolist() == [expected]


def test_definition_lists_the_same_vectors() -> None:
    """docs/key-hash.md shows each vector's hash and key group, in this order."""
    rows = [line.split(" | ") for line in DEFINITION.read_text().splitlines() if line.endswith(" |")]
    listed = [(int(row[-2].strip("`"), 16), int(row[-1].strip(" |"))) for row in rows if row[-2].startswith("`")]
    hashes = [expected for _, _, expected in VECTORS]
    groups = key_groups_of(np.array(hashes, np.uint64), 128).tolist()
    assert listed == list(zip(hashes, groups, strict=True))
    assert f"`{NULL_HASH:016x}`" in DEFINITION.read_text()


@few_or_many(10, 100, key_tables(), st.data())
def test_columns_and_single_keys_agree(table: tuple[pa.Schema, list[tuple[Any, ...]]], data: st.DataObject) -> None:
    """Whole arrays, slices of them and single keys: the same bits."""
    schema, keys = table
    codec = KeyCodec(schema)
    expected = [codec.hash(key) for key in keys]
    columns = codec.to_columns(keys)
    assert hash_keys(columns).tolist() == expected
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(keys))] * 2)))
    assert hash_keys([column.slice(start, stop - start) for column in columns]).tolist() == expected[start:stop]


@few_or_many(10, 100, key_tables())
def test_equal_keys_are_those_of_equal_hash(table: tuple[pa.Schema, list[tuple[Any, ...]]]) -> None:
    """Equal keys have one hash; and no two different small keys were ever seen to share one."""
    schema, keys = table
    hashes = hash_keys(KeyCodec(schema).to_columns(keys)).tolist()
    assert len(set(hashes)) == len(set(keys))


def test_null_list_and_empty_list_differ() -> None:
    """Inside a key, null is not the same as empty."""
    column = pa.array([[None], [[]], [], [[None]]], pa.list_(pa.list_(pa.string())))
    assert len(set(hash_keys([column]).tolist())) == 4


def test_bytes_under_nulls_do_not_matter() -> None:
    """A null slot may hold anything."""
    values = pa.array(["x", "y"])
    hidden = pa.StringArray.from_buffers(2, values.buffers()[1], values.buffers()[2], pa.py_buffer(b"\x02"))
    assert hash_keys([hidden]).tolist() == [NULL_HASH, xxh64_intdigest(b"y")]


def test_slice_of_struct_and_of_list() -> None:
    """Offsets of the parent reach the children."""
    structs = pa.array([{"a": n, "b": str(n)} for n in range(6)], PAIR)
    lists = pa.array([[n, None] for n in range(6)], pa.list_(pa.int32()))
    for column in (structs, lists, pa.array([n % 2 == 0 for n in range(6)])):
        assert hash_keys([column.slice(2, 3)]).tolist() == hash_keys([column]).tolist()[2:5]


def test_large_offsets_hash_alike() -> None:
    """large_string and large_list are the same keys as string and list."""
    small = pa.array([["a", None], [], ["bc"]], pa.list_(pa.string()))
    assert hash_keys([small]).tolist() == hash_keys([small.cast(pa.large_list(pa.large_string()))]).tolist()


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), PAIR, pa.list_(pa.int64()), pa.decimal128(5, 1), pa.bool_()])
def test_no_rows(kind: pa.DataType) -> None:
    assert hash_keys([pa.array([], kind)]).tolist() == []
    assert hash_keys([pa.array([], kind)] * 5).tolist() == []


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.uint64(), pa.timestamp("ns"), pa.map_(pa.string(), pa.int64()), pa.list_(pa.float32())]
)
def test_types_that_keys_can_not_have(kind: pa.DataType) -> None:
    """Both paths refuse alike, also inside a list."""
    for attempt in (lambda: hash_keys([pa.array([], kind)]), lambda: scalar_hash(kind)):
        with pytest.raises(UnsupportedError, match="UNSUPPORTED_KEY_TYPE"):
            attempt()


def test_key_groups_are_even_and_ascend_with_the_hash() -> None:
    """Consecutive numbers spread over the groups; both ends of the range are reached."""
    hashes = np.sort(hash_keys([pa.array(np.arange(128_000))]))
    groups = key_groups_of(hashes, 128)
    assert (np.diff(groups) >= 0).all()
    assert 800 < np.bincount(groups, minlength=128).min() <= np.bincount(groups).max() < 1200
    assert key_groups_of(np.array([0, 2**64 - 1], np.uint64), 2**15).tolist() == [0, 2**15 - 1]

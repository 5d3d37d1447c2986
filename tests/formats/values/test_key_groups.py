"""Key groups are Flink's: groups that Flink stored, and groups by its rules, for single keys and for whole columns."""

from __future__ import annotations

import json
import lzma
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.key_strategies import key_tables
from support.paths import DATA
from support.properties import few_or_many

from statestore.formats.errors import UnsupportedError
from statestore.formats.values.key_codec import KeyCodec
from statestore.formats.values.key_groups import MAX_PARALLELISM, key_group_function, key_groups
from statestore.formats.values.key_hash import hash_keys

STORED = DATA / "flink" / "key_groups.json.xz"
"""[types of the key's columns, key, max parallelism, key group]: the key group that Flink 2.3.0 and 1.20.3 wrote before
each key in canonical savepoints, of operators whose keys are Java strings, longs, ints and tuples."""

TYPES = {"string": pa.string(), "bigint": pa.int64(), "int": pa.int32(), "smallint": pa.int16(), "tinyint": pa.int8()}
TYPES["boolean"] = pa.bool_()
SIGNED = 1 << 31


def as_int(number: int) -> int:
    """The value of a Java int after overflow."""
    return (number + SIGNED) % (1 << 32) - SIGNED


def java_hash(value: Any, kind: pa.DataType) -> int:
    """``hashCode`` of Boolean, Byte, Short, Integer, Long and String, as the Java library documents them."""
    if pa.types.is_boolean(kind):
        return 1231 if value else 1237
    if pa.types.is_string(kind):
        found = 0
        units = value.encode("utf-16-be")
        for number in range(0, len(units), 2):
            found = as_int(31 * found + int.from_bytes(units[number : number + 2]))
        return found
    if pa.types.is_int64(kind):
        unsigned = value % (1 << 64)
        return as_int(unsigned ^ (unsigned >> 32))
    assert isinstance(value, int)
    return value


def tuple_hash(hashes: Sequence[int]) -> int:
    """``hashCode`` of Flink's Tuple2 and so on; a key that is no tuple has its own."""
    found = hashes[0]
    for each in hashes[1:]:
        found = as_int(31 * found + each)
    return found


def murmur(code: int) -> int:
    """``MathUtils.murmurHash``, statement by statement."""

    def rotated(number: int, bits: int) -> int:
        unsigned = number % (1 << 32)
        return as_int(unsigned << bits | unsigned >> (32 - bits))

    def shifted(number: int, bits: int) -> int:
        return number % (1 << 32) >> bits

    code = as_int(code * as_int(0xCC9E2D51))
    code = rotated(code, 15)
    code = as_int(code * 0x1B873593)
    code = rotated(code, 13)
    code = as_int(code * 5 + as_int(0xE6546B64))
    code ^= 4
    code ^= shifted(code, 16)
    code = as_int(code * as_int(0x85EBCA6B))
    code ^= shifted(code, 13)
    code = as_int(code * as_int(0xC2B2AE35))
    code ^= shifted(code, 16)
    if code >= 0:
        return code
    return -code if code != -SIGNED else 0


def has_java_hash(kind: pa.DataType) -> bool:
    return kind in TYPES.values()


def schema_of(kinds: Sequence[pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(f"k{number}", kind, nullable=False) for number, kind in enumerate(kinds)])


def groups_of(schema: pa.Schema, keys: list[tuple[Any, ...]], max_parallelism: int) -> list[int]:
    """The groups of the keys one by one, after a comparison with those of whole columns, whole and sliced."""
    codec, of_key = KeyCodec(schema), key_group_function(schema, max_parallelism)
    rows = [codec.normalize(key) for key in keys]
    columns = codec.to_columns(rows)
    one_by_one = [of_key(row) for row in rows]
    assert key_groups(columns, max_parallelism).tolist() == one_by_one
    cut = [column.slice(1) for column in columns]
    assert key_groups(cut, max_parallelism).tolist() == one_by_one[1:]
    assert all(type(group) is int and 0 <= group < max_parallelism for group in one_by_one)
    return one_by_one


def test_key_groups_are_those_that_flink_stored() -> None:
    cases: dict[tuple[str, int], list[tuple[Any, int]]] = {}
    for kinds, key, max_parallelism, group in json.loads(lzma.decompress(STORED.read_bytes())):
        cases.setdefault((kinds, max_parallelism), []).append((key, group))
    assert {kinds for kinds, _ in cases} == {"string", "bigint", "int", "string,int"}
    assert {max_parallelism for _, max_parallelism in cases} == {128, 1000}
    for (kinds, max_parallelism), stored in cases.items():
        schema = schema_of([TYPES[kind] for kind in kinds.split(",")])
        keys = [tuple(key) if isinstance(key, list) else (key,) for key, _ in stored]
        assert groups_of(schema, keys, max_parallelism) == [group for _, group in stored], kinds


PARALLELISMS = st.sampled_from([1, 2, 3, 7, 127, 128, 1000, MAX_PARALLELISM - 1, MAX_PARALLELISM])


@few_or_many(10, 150, key_tables(), PARALLELISMS)
def test_key_groups_are_those_of_flink_s_rules(table: tuple[pa.Schema, list[tuple[Any, ...]]], most: int) -> None:
    """Keys of all types; those that Java has no hash code for have half of the key hash in its place."""
    schema, keys = table
    found = groups_of(schema, keys, most)
    codec = KeyCodec(schema)
    columns = codec.to_columns(keys)
    others = [[int(each) >> 32 for each in hash_keys([column])] for column in columns]
    for number, key in enumerate(keys):
        hashes = [
            java_hash(cell, field.type) if has_java_hash(field.type) else as_int(other[number])
            for field, cell, other in zip(schema, key, others, strict=True)
        ]
        assert found[number] == murmur(tuple_hash(hashes)) % most


INTS = [-SIGNED, -SIGNED + 1, -257, -1, 0, 1, 255, 65536, SIGNED - 1]
LONGS = [*INTS, -(1 << 63), -(1 << 63) + 1, -(1 << 32), -(1 << 32) - 1, 1 << 31, 1 << 32, (1 << 63) - 1]
TEXTS = [
    "",
    "\x00",
    "\x00\x00",
    "a",
    "é",
    "￿",
    "😀",
    "a😀b",
    "\U0010ffff",
    "x" * 1000,
    "polygenelubricants",
    "日本語-key",
]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("string", TEXTS),
        ("bigint", LONGS),
        ("int", INTS),
        ("smallint", [-32768, -1, 0, 32767]),
        ("tinyint", [-128, -1, 0, 127]),
        ("boolean", [True, False]),
    ],
)
def test_keys_at_the_edges(kind: str, keys: list[Any]) -> None:
    """Among them a string whose hash code is the least int, which has no absolute value, and pairs of UTF-16 units."""
    for most in (128, MAX_PARALLELISM):
        found = groups_of(schema_of([TYPES[kind]]), [(key,) for key in keys], most)
        assert found == [murmur(java_hash(key, TYPES[kind])) % most for key in keys]
        # Cut at every row: text before what is asked for does not matter.
        wide = pa.large_string() if kind == "string" else TYPES[kind]
        for column in (pa.array(keys, TYPES[kind]), pa.array(keys, wide)):
            for first in range(len(keys)):
                assert key_groups([column[first:]], most).tolist() == found[first:]


def test_the_hash_without_an_absolute_value_is_group_0() -> None:
    """The int for which murmur returns the least int was found by reverting its steps."""
    code = int_with_least_murmur()
    assert murmur(code) == 0
    assert groups_of(schema_of([pa.int32()]), [(code,), (code,)], MAX_PARALLELISM) == [0, 0]
    other = MAX_PARALLELISM - 1
    assert groups_of(schema_of([pa.int32()]), [(code,), (code,)], other) == [0, 0], "and not 2^31 mod 32767"


def int_with_least_murmur() -> int:
    """The int whose murmur hash is the least int, found by reverting every step of murmur."""
    whole = 1 << 32

    def unshifted(number: int, bits: int) -> int:
        found = number
        for _ in range(32 // bits + 1):
            found = number ^ found >> bits
        return found

    code = unshifted(SIGNED, 16) * pow(0xC2B2AE35, -1, whole) % whole
    code = unshifted(code, 13) * pow(0x85EBCA6B, -1, whole) % whole
    code = unshifted(code, 16) ^ 4
    code = (code - 0xE6546B64) * pow(5, -1, whole) % whole
    code = (code >> 13 | code << 19) % whole
    code = code * pow(0x1B873593, -1, whole) % whole
    code = (code >> 15 | code << 17) % whole
    return as_int(code * pow(0xCC9E2D51, -1, whole))


def test_large_and_empty_columns() -> None:
    for kind in (*TYPES.values(), pa.large_string(), pa.date32(), pa.binary()):
        assert key_groups([pa.array([], kind)], 128).tolist() == []
    texts = [f"k{number}é" for number in range(10_000)]
    small = key_groups([pa.array(texts)], 1000)
    assert (key_groups([pa.array(texts, pa.large_string())], 1000) == small).all()
    assert np.bincount(small, minlength=1000).min() > 0, "they spread over all groups"


@pytest.mark.parametrize("kind", [pa.float64(), pa.map_(pa.string(), pa.int64())])
def test_types_that_keys_can_not_have(kind: pa.DataType) -> None:
    for call in (lambda: key_group_function(schema_of([kind]), 128), lambda: key_groups([pa.nulls(1, kind)], 128)):
        with pytest.raises(UnsupportedError) as caught:
            call()
        assert caught.value.code == "UNSUPPORTED_KEY_TYPE"

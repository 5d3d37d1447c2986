"""Types of keys that only a changelog has: recognised by bytes and key groups, or not at all."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from support.flink.change_bytes import i64
from support.flink.fixtures import fixture, manifest
from support.flink.snapshot_reads import rows_of, source_at

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader
from statestore.formats.flink.serializers.flink_types import VOID, Basic, FlinkType, KryoOf
from statestore.formats.flink.source import FlinkSource
from statestore.formats.flink.streams.logged_keys import _CANDIDATES, _KRYO, UNKNOWN_KEY, _fits
from statestore.formats.flink.streams.stored_states import stored_states
from statestore.formats.values.key_groups import murmur_of

COUNT = KeyedStateHeader("count", "value", VOID, Basic("long"), {})


def generic() -> FlinkSource:
    return source_at(fixture("logged-generic") / manifest("logged-generic")["snapshots"][0]["path"])


def kryo_long(number: int) -> bytes:
    """A long as Kryo writes it: zigzag, seven bits a byte, eight in the ninth."""
    left = (number << 1 ^ number >> 63) & (1 << 64) - 1
    data = b"\x09"
    for _ in range(8):
        if left < 1 << 7:
            break
        data += bytes([left & 0x7F | 0x80])
        left >>= 7
    return data + bytes([left])


def fitting(keys: dict[bytes, int], groups: int) -> list[FlinkType]:
    """The candidates for keys, given their bytes and hash codes."""
    changes = [b"\x01\0\0" + key + b"\0" + i64(1) for key in keys]
    found = np.array([murmur_of(code) % groups for code in keys.values()])
    logged = [(COUNT, found, cells_of(pa.array(changes, pa.binary())))]
    return [each for each in (*_CANDIDATES, _KRYO) if _fits(each, logged, groups)]


def test_keys_that_kryo_wrote_have_the_types_of_their_classes() -> None:
    source = generic()
    types = {name.partition(".")[0]: str(rows_of(source, name).schema[0].type) for name in source.states()}
    del types["src"]
    assert types == {"longs": "int64", "ints": "int32", "texts": "string", "doubles": "binary"}


@pytest.mark.parametrize("groups", [1, 127, 256])
def test_keys_of_other_key_groups_have_no_type(groups: int) -> None:
    source = generic()
    opened = source.opened(source.refs[-1][0])
    seen = 0
    for operator in opened.metadata.operators:
        for part in stored_states(opened.files, operator, "one").keyed:
            is_known = isinstance(part.header.key, KryoOf)
            (other,) = {
                each.header.key
                for each in stored_states(opened.files, replace(operator, max_parallelism=groups), "one").keyed
            }
            assert other is UNKNOWN_KEY
            seen += is_known
    assert seen == 6  # two subtasks of three operators


def test_few_keys_in_few_key_groups_may_be_so_by_chance() -> None:
    keys = {kryo_long(number): number for number in range(4)}
    assert fitting(keys, 128) == [_KRYO]
    assert fitting(keys, 4) == []


def test_numbers_of_kryo_are_read_to_their_ends() -> None:
    random = Random(7)
    numbers = [random.getrandbits(64) - 2**63 for _ in range(20)]
    keys = {kryo_long(each): (each ^ each >> 32) & 0xFFFFFFFF for each in numbers}
    assert fitting(keys, 128) == [_KRYO]
    assert fitting({key: code ^ 1 for key, code in keys.items()}, 128) == []
    assert fitting({**keys, b"\x00": 0}, 128) == []  # a null of Kryo


def test_a_tuple_of_two_bytes_is_no_number_of_kryo() -> None:
    assert fitting({bytes([9, each]): 9 * 31 + each for each in range(40)}, 128) == []


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes_have_no_type(seed: int) -> None:
    random = Random(seed)
    heads = [b"", b"\x02", b"\x03\x01", b"\x09", b"\x03"]
    keys = {random.choice(heads) + random.randbytes(random.randint(0, 12)): random.getrandbits(32) for _ in range(9)}
    assert fitting(keys, 128) == []

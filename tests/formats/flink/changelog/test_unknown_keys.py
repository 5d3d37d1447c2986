"""Keys of which nothing says the type: told from what follows them, or not at all."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from support.flink.change_bytes import i64

from statestore.formats.bytes.byte_columns import cells_of
from statestore.formats.flink.changelog.unknown_keys import UNTOLD, key_sizes
from statestore.formats.flink.serializers.flink_types import VOID, Basic, Opaque
from statestore.formats.flink.streams.logged_keys import _are_whole_numbers

LONG, TEXT = Basic("long"), Basic("string")
SET = 1


def sizes(changes: list[bytes], *behind: Basic | Opaque, known: tuple[bytes, ...] = ()) -> list[int]:
    cells = cells_of(pa.array(changes, pa.binary()))
    found: list[int] = key_sizes(cells, np.full(len(changes), SET), {SET: [VOID, *behind]}, known).tolist()
    return found


def test_a_value_of_fixed_width_tells_the_key() -> None:
    assert sizes([b"\x03ab\0" + i64(0), i64(0) + b"\0" + i64(0)], LONG) == [3, 8]


def test_a_change_that_can_be_divided_twice_tells_no_key() -> None:
    twice = b"k\0\x05x\0\x02a"  # a text of 4 characters behind the key k, or one of 1 behind a longer key
    assert sizes([b"\x01\0\0\x02a", b"k\0\x03\0a", twice], TEXT) == [2, 1, UNTOLD]


def test_a_key_that_another_state_tells_is_known() -> None:
    assert sizes([b"k\0any\0thing"], Opaque("")) == [UNTOLD]
    assert sizes([b"k\0any\0thing"], Opaque(""), known=(b"k", b"other")) == [1]


@pytest.mark.parametrize(
    ("kind", "keys", "expected"),
    [
        ("long", [1, 2, 3], True),
        ("long", [0], False),
        ("long", [-1, 10**18], True),  # the bits of a NaN that Java does not write
        ("long", [4607182418800017408, 4611686018427387904], False),  # 1.0 and 2.0
        ("long", [1_700_000_000_000], False),  # a time of 2023
        ("int", [5, 7], True),
        ("int", [1065353216, 1073741824], False),  # 1.0 and 2.0
    ],
)
def test_whole_numbers_are_told_from_what_has_their_bytes(kind: str, keys: list[object], expected: bool) -> None:
    assert _are_whole_numbers(keys, Basic(kind)) is expected

"""Fields of Java's DataOutput: values, and every length beyond the bytes that are there."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import strategies as st
from support.flink.value_model import utf
from support.properties import few_or_many

from statestore.formats.errors import CorruptError
from statestore.formats.flink.snapshot.data_input import DataInput

NO_SURROGATES = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@few_or_many(100, 2000, NO_SURROGATES)
def test_a_text_is_read_as_java_wrote_it(text: str) -> None:
    source = DataInput(utf(text) + b"rest", "_metadata")
    assert source.utf() == text
    assert source.left == 4


@pytest.mark.parametrize("data", ["eda0bd", "f09f9880", "ff", "c081", "e282", "edb880eda0bd"])
def test_a_text_that_java_never_writes_is_refused(data: str) -> None:
    found = bytes.fromhex(data)
    with pytest.raises(CorruptError, match=r"at byte 1 of .*expected modified UTF-8"):
        DataInput(b"x" + struct.pack(">H", len(found)) + found, "_metadata", 1).utf()


def test_booleans_and_long_numbers_are_read() -> None:
    source = DataInput(b"\1\0" + b"\xff" * 7 + b"\xfc", "p")
    assert [source.boolean(), source.boolean(), source.i64s(1)] == [True, False, (-4,)]
    source.end()


def test_no_byte_behind_the_stop_is_read() -> None:
    source = DataInput(b"abcdef", "_metadata", 1, 4)
    assert source.take(3) == b"bcd"
    with pytest.raises(CorruptError, match=r"_metadata: at byte 4 of 4: found a byte of 1 bytes, expected 0 to the 0"):
        source.u8()


@pytest.mark.parametrize(
    "read",
    [
        lambda source: source.take(2**31),
        lambda source: source.i64s(2**31),
        lambda source: source.i64s(-1),
        lambda source: source.boolean(),
    ],
)
def test_a_field_that_cannot_be_there_is_refused_where_it_begins(read: Callable[[DataInput], object]) -> None:
    source = DataInput(b"\2abcdefg", "folder/_metadata")
    with pytest.raises(CorruptError, match=r"^\[FLINK_METADATA\] folder/_metadata: at byte 0 of 8: found ") as raised:
        read(source)
    assert "expected" in raised.value.message


def test_a_position_outside_of_the_bytes_is_refused() -> None:
    for at in (-1, 5):
        with pytest.raises(CorruptError, match="outside"):
            DataInput(b"abcd", "_metadata", at)

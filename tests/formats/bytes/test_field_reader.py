"""Fields of one structure: values, and every length beyond the bytes that are there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.bytes.field_reader import FieldReader, varint_bytes, varint_reader


class Refused(Exception):
    """A field that cannot be there."""


class Reader(FieldReader):
    def error(self, problem: str, at: int | None = None) -> Refused:
        return Refused(f"at byte {self.at if at is None else at} of {self.stop}: {problem}")


def test_numbers_are_big_endian_and_signed_as_their_names_say() -> None:
    source = Reader(b"\xff\xff" + b"\xff\xfe" * 2 + b"\xff\xff\xff\xfd" + b"\xff" * 7 + b"\xfc")
    assert [source.i8(), source.u8(), source.i16(), source.u16()] == [-1, 255, -2, 65534]
    assert [source.i32(), source.i64()] == [-3, -4]
    source.end()


def test_bytes_follow_their_length() -> None:
    source = Reader(b"\0\0\0\2ab\xff\xff\xff\xff\0\0\0\0rest")
    assert [source.sized(), source.nullable(), source.nullable(), source.rest()] == [b"ab", None, b"", b"rest"]


def test_no_byte_behind_the_stop_is_read() -> None:
    source = Reader(b"abcdef", 1, 4)
    assert source.take(3) == b"bcd"
    with pytest.raises(Refused, match=r"at byte 4 of 4: found a byte of 1 bytes, expected 0 to the 0 that are left"):
        source.u8()


@pytest.mark.parametrize(
    "read",
    [
        lambda source: source.take(-1),
        lambda source: source.take(2**31),
        lambda source: source.skip(-1),
        lambda source: source.count(2**31 - 1, 1),
        lambda source: source.count(-1, 1),
        lambda source: source.count(3, 3),
        lambda source: source.varint(),
        lambda source: source.text(b"\xff"),
        lambda source: source.end(),
    ],
)
def test_a_field_that_cannot_be_there_is_refused_where_it_begins(read: Callable[[Reader], object]) -> None:
    with pytest.raises(Refused, match=r"^at byte 0 of 8: found .*expected"):
        read(Reader(b"\x82\x83\x84\x85\x86efg"))


def test_a_position_outside_of_the_bytes_is_refused() -> None:
    for at in (-1, 5):
        with pytest.raises(Refused, match="outside"):
            Reader(b"abcd", at)


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_zig_zag_varint_is_read(number: int) -> None:
    source = Reader(varint_bytes((number << 1) ^ (number >> 31)) + b"rest")
    assert source.varint() == number
    assert source.left == 4


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_an_unsigned_varint_is_read_where_it_lies(number: int, front: bytes) -> None:
    data = front + varint_bytes(number)
    read = varint_reader(lambda at: Refused(at))
    assert read(data + b"\1", len(front), len(data)) == (number, len(data))
    with pytest.raises(Refused):
        read(data, len(front), len(data) - 1)


@pytest.mark.parametrize(("data", "at"), [(b"\xff" * 9 + b"\2", 10), (b"\x80" * 11, 10), (b"", 0), (b"\x80", 1)])
def test_bytes_without_a_number_of_64_bits_are_refused(data: bytes, at: int) -> None:
    with pytest.raises(Refused, match=f"^{at}$"):
        varint_reader(lambda at: Refused(at))(data, 0, len(data))

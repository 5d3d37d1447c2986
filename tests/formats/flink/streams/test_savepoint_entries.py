"""Blocks of canonical savepoints that a small model writes, read over the borders of small pieces."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from support.properties import few_or_many

from statestore.formats.bytes.crc32c import crc32c
from statestore.formats.errors import CorruptError
from statestore.formats.flink.streams.block_bytes import BlockWindow, _unpacked
from statestore.formats.flink.streams.savepoint_entries import savepoint_entries

Entries = Sequence[tuple[bytes, bytes]]
KEYS = st.binary(min_size=1, max_size=40).map(lambda key: bytes([key[0] & 0x7F]) + key[1:])
STATES = st.lists(st.lists(st.tuples(KEYS, st.binary(max_size=60)), min_size=1, max_size=6), min_size=1, max_size=4)


def block(states: Sequence[tuple[int, Entries]]) -> bytes:
    """A key group's block: the last key of a state has its first bit set."""
    found = b""
    for number, entries in states:
        found += struct.pack(">H", number)
        for place, (key, value) in enumerate(entries):
            stored = bytes([key[0] | 0x80]) + key[1:] if place == len(entries) - 1 else key
            found += struct.pack(">i", len(stored)) + stored + struct.pack(">i", len(value)) + value
    return found + b"\xff\xff"


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


def framed(data: bytes, chunk: int, packed: bool) -> bytes:
    """Snappy's framing format: an identifier, then chunks, with one to skip between."""
    found = b"\xff\x06\x00\x00sNaPpY"
    for part in pieces(data, chunk):
        checksum = crc32c(part)
        masked = ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
        body = struct.pack("<I", masked) + (pa.Codec("snappy").compress(part, asbytes=True) if packed else part)
        found += bytes([0 if packed else 1]) + len(body).to_bytes(3, "little") + body
        found += b"\x80\x03\x00\x00pad\xff\x06\x00\x00sNaPpY"
    return found


def read(window: BlockWindow, state: int, states: int) -> list[tuple[bytes, bytes]]:
    return [
        (keys.cell(row), values.cell(row))
        for keys, values in savepoint_entries(window, state, states)
        for row in range(len(keys))
    ]


@few_or_many(25, 200, STATES, st.integers(1, 50), st.sampled_from(["plain", "packed", "unpacked"]), st.integers(1, 90))
def test_entries_are_those_that_were_written(
    written: list[list[tuple[bytes, bytes]]], size: int, way: str, chunk: int
) -> None:
    data = block([(2 * number, entries) for number, entries in enumerate(written)])
    for state in range(2 * len(written)):
        if way == "plain":
            window = BlockWindow(pieces(data, size), "file")
        else:
            stream = pieces(framed(data, chunk, way == "packed"), size)
            window = BlockWindow(_unpacked(stream, "file", size), "file")
        expected = [] if state % 2 else written[state // 2]
        assert read(window, state, 2 * len(written)) == expected


@few_or_many(20, 200, STATES, st.integers(1, 30), st.data())
def test_a_block_that_ends_too_early_is_an_error(
    written: list[list[tuple[bytes, bytes]]], size: int, data: st.DataObject
) -> None:
    whole = block(list(enumerate(written)))
    kept = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(CorruptError, match="FLINK_FILE"):
        read(BlockWindow(pieces(whole[:kept], size), "file"), len(written), len(written) + 1)


@few_or_many(25, 200, STATES, st.integers(1, 90), st.booleans(), st.data())
def test_a_changed_bit_of_compressed_state_gives_no_wrong_entry(
    written: list[list[tuple[bytes, bytes]]], chunk: int, packed: bool, data: st.DataObject
) -> None:
    stream = bytearray(framed(block(list(enumerate(written))), chunk, packed))
    stream[data.draw(st.integers(0, len(stream) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = read(BlockWindow(_unpacked(iter([bytes(stream)]), "file", 50), "file"), len(written) - 1, len(written))
    except CorruptError as error:
        assert error.code == "FLINK_FILE"
    else:
        assert found == written[-1]


@pytest.mark.parametrize("size", [1 << 10, 1 << 16])
def test_an_entry_is_larger_than_many_pieces(size: int) -> None:
    value = bytes(range(256)) * (1 << 12)
    data = block([(0, [(b"\1a", value), (b"\1b", b"")]), (1, [(b"\1c", value)])])
    assert read(BlockWindow(pieces(data, size), "file"), 1, 2) == [(b"\1c", value)]


def test_state_numbers_and_lengths_that_cannot_be() -> None:
    for data, found in (
        (b"\0\x09", "found state 9"),
        (b"\0\0\xff\xff\xff\xff\0\0\0\0", "ffffffff"),
        (b"\0\0\0\0\0\0\0\0\0\0", "00000000"),
        (block([(0, [(b"\1", b"")])]) + b"\0", "behind the end"),
    ):
        with pytest.raises(CorruptError, match=found):
            read(BlockWindow(iter([data]), "file"), 1, 2)


def test_an_entry_of_many_pieces_is_copied_a_few_times() -> None:
    pieces = [bytes([number % 256]) * 16 for number in range(1000)]
    window = BlockWindow(iter(pieces), "file")
    reads = 0
    while window.left < 16_000:
        window.more()
        reads += 1
    assert reads <= 12
    assert window.take(16_000) == b"".join(pieces)
    assert window.is_empty()
    with pytest.raises(CorruptError, match="ends within an entry"):
        window.more()


def test_bytes_between_pieces_are_taken_in_order() -> None:
    window = BlockWindow(iter([b"ab", b"", b"cdefg", b"h"]), "file")
    assert [window.take(3), window.take(1), window.take(4)] == [b"abc", b"d", b"efgh"]
    assert window.is_empty() and window.last

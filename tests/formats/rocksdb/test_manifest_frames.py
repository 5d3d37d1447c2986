"""MANIFESTs that RocksDB would take for older ones without a word: a frame that is not whole is found before."""

from __future__ import annotations

import struct

import pytest

from statestore.formats.rocksdb.manifest import broken_frame

PAGE = 32768


def record(size: int, kind: int = 1) -> bytes:
    return bytes(4) + struct.pack("<HB", size, kind) + b"x" * size


def numbered(size: int, kind: int) -> bytes:
    return bytes(4) + struct.pack("<HBI", size, kind, 9) + b"x" * size


@pytest.mark.parametrize(
    "data",
    [
        record(0) + record(5),
        record(10, 2) + record(0, 3) + record(10, 4),
        numbered(3, 5) + numbered(3, 6) + numbered(3, 8),
        record(PAGE - 7) + record(1),
        record(PAGE - 7 - 6) + bytes(6) + record(1),
        record(PAGE - 7 - 7) + record(0, 2) + record(9, 4),
    ],
)
def test_whole_frames_are_whole(data: bytes) -> None:
    assert broken_frame(data) is None


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "not whole"),
        (record(5) + record(9)[:-1], "byte 12: found a record of type 1 and 9 bytes"),
        (record(5) + record(9)[:3], "byte 12: found a record of type 0"),
        (record(5) + bytes(20) + record(1), "byte 12: found a record of type 0 and 0 bytes"),
        (record(5) + bytes(20), "byte 12: found a record of type 0 and 0 bytes"),
        (record(5, 9), "byte 0: found a record of type 9"),
        (record(5, 2), "not whole"),
        (record(5, 2) + record(5), "byte 12: found part 1 of a record in the wrong place"),
        (record(5, 4), "byte 0: found part 4 of a record in the wrong place"),
        (record(PAGE - 7 - 6) + b"\0\0x\0\0\0" + record(1), "behind the last record of a page"),
        (record(PAGE - 6), "found a record of type 1"),
    ],
)
def test_broken_frames_are_named(data: bytes, found: str) -> None:
    assert found in (broken_frame(data) or "")

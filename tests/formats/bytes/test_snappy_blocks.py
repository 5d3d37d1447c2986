"""Frames of Snappy blocks: whole ones, and every place at which they may break off."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest

from statestore.formats.bytes.snappy_blocks import snappy_length, unpacked, xerial_blocks

PLAIN = [b"one" * 50, b"", b"three"]
PACKED = [pa.Codec("snappy").compress(plain, asbytes=True) for plain in PLAIN]
FRAMES = b"".join(len(packed).to_bytes(4, "big") + packed for packed in PACKED)


def blocks(frames: bytes, most: int = 1 << 20) -> list[bytes]:
    return list(xerial_blocks(io.BytesIO(frames).read, most, ValueError))


def test_blocks_are_those_that_were_framed() -> None:
    assert blocks(FRAMES) == PACKED
    assert blocks(b"") == []
    assert [unpacked("snappy", packed, snappy_length(packed, ValueError), ValueError) for packed in PACKED] == PLAIN


def test_frames_that_break_off_are_refused() -> None:
    ends = {0} | {sum(4 + len(packed) for packed in PACKED[:count]) for count in (1, 2, 3)}
    for cut in set(range(len(FRAMES))) - ends:
        with pytest.raises(ValueError, match=r"a block without its size|a block of .* bytes, where .* are left"):
            blocks(FRAMES[:cut])


@pytest.mark.parametrize("size", [-1, 0, 100])
def test_a_size_that_cannot_be_is_refused_before_it_is_read(size: int) -> None:
    with pytest.raises(ValueError, match=f"a block of {size} bytes, expected 1 to 99"):
        blocks(size.to_bytes(4, "big", signed=True) + b"block", 99)


@pytest.mark.parametrize("packed", [b"", b"\x80", b"\xff" * 6])
def test_a_block_without_its_length_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="a block without its length"):
        snappy_length(packed, ValueError)


def test_a_block_that_holds_other_bytes_is_refused() -> None:
    for packed, length in ((PACKED[0], 149), (PACKED[0][:-1], 150), (b"\x05\xff\xff", 5)):
        with pytest.raises(LookupError):
            unpacked("snappy", packed, length, LookupError)

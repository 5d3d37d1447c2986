"""The LZ4 and Snappy kernels against Arrow's codecs, and against streams that were made to do harm."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.formats.kernels.codec_kernels import lz4_block, snappy_block
from statestore.formats.kernels.compiled import SLACK

CODECS = ["lz4_raw", "snappy"]
SCRIBBLE = 7
"""Bytes behind its end that a copy in words may write."""


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def stream_of(codec: str, data: bytes) -> bytes:
    """Data compressed by Arrow, without the length at the start of a raw Snappy block."""
    stream: bytes = pa.Codec(codec).compress(data, asbytes=True)
    return stream[len(varint(len(data))) :] if codec == "snappy" else stream


def expanded(codec: str, stream: bytes, size: int) -> bytes | None:
    """Expand ``stream`` from between other bytes into a target whose surroundings must stay unchanged."""
    kernel: Callable[..., Any] = lz4_block if codec == "lz4_raw" else snappy_block
    source = np.frombuffer(b"\x11" * 9 + stream + b"\x11" * SLACK, np.uint8).copy()
    before, after = 32, 256
    target = np.full(before + size + after, 0xA5, np.uint8)
    good = kernel(source, 9, 9 + len(stream), target, before, before + size)
    assert (target[:before] == 0xA5).all() and (target[before + size + SCRIBBLE :] == 0xA5).all()
    return target[before : before + size].tobytes() if good else None


def samples() -> list[bytes]:
    chance = random.Random(5)
    periods = [(chance.randbytes(period) * 400)[:1000] for period in (*range(1, 18), 31, 64)]
    text = b"".join(b"key-%06d value %d;" % (number, number * number) for number in range(3000))
    sizes = [chance.randbytes(size) for size in (*range(1, 80), 255, 256, 269, 270, 271, 5000)]
    return [b"", bytes(100_000), text, text[:200] + chance.randbytes(70_000) + text[:50_000], *periods, *sizes]


@pytest.mark.parametrize("codec", CODECS)
def test_streams_of_arrow(codec: str) -> None:
    for data in samples():
        stream = stream_of(codec, data)
        assert expanded(codec, stream, len(data)) == data
        # A length that is not the stream's is refused, both ways.
        assert expanded(codec, stream, len(data) + 1) is None
        if data:
            assert expanded(codec, stream, len(data) - 1) is None


@settings(max_examples=60, deadline=None)
@given(parts=st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 60)), max_size=20))
def test_streams_of_arrow_from_any_data(parts: list[tuple[bytes, int]]) -> None:
    data = b"".join(part * times for part, times in parts)
    for codec in CODECS:
        assert expanded(codec, stream_of(codec, data), len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_that_breaks_off(codec: str) -> None:
    data = b"".join(b"key-%06d value %d;" % (number, number * number) for number in range(40)) + bytes(1000)
    stream = stream_of(codec, data)
    for size in range(len(stream)):
        assert expanded(codec, stream[:size], len(data)) is None


@pytest.mark.parametrize("codec", CODECS)
def test_any_bytes(codec: str) -> None:
    """Streams of noise, and real ones with bytes changed: the answer is as long as asked for, or a refusal."""
    chance = random.Random(11)
    real = [stream_of(codec, data) for data in samples() if len(data) < 6000]
    refused = 0
    for number in range(6000):
        stream = bytearray(chance.choice(real) if number % 2 else chance.randbytes(chance.randrange(40)))
        for _ in range(chance.randrange(4)):
            if stream:
                stream[chance.randrange(len(stream))] = chance.randrange(256)
        refused += expanded(codec, bytes(stream), chance.choice((0, 1, 7, 64, 1000, 5000))) is None
    assert refused > 3000


LZ4_ATTACKS = {
    "nothing": (b"", 0),
    "offset 0": (b"\x10a\0\0\0", 5),
    "before the start": (b"\x10a\x02\0\0", 5),
    "before the start, far": (b"\x10a\xff\xff\0", 5),
    "match past the end": (b"\x1fa\x01\0\xff\xff\xff\x00\0", 9),
    "literals past the input": (b"\xf0\xff\xff\x00abc", 600),
    "literals past the end": (b"\x50abcde", 4),
    "length without an end": (b"\xf0" + b"\xff" * 30, 10_000),
    "match length without an end": (b"\x1fa\x01\0" + b"\xff" * 30, 10_000),
    "half an offset": (b"\x10a\x01", 5),
    "no last literals": (b"\x10a\x01\0", 5),
    "match first": (b"\x00\x01\0\0", 4),
}
SNAPPY_ATTACKS = {
    "nothing, where something is expected": (b"", 1),
    "offset 0, one byte": (b"\x00a\x01\x00", 5),
    "offset 0, two bytes": (b"\x00a\x0e\x00\x00", 5),
    "offset 0, four bytes": (b"\x00a\x0f\x00\x00\x00\x00", 5),
    "before the start": (b"\x00a\x01\x02", 5),
    "before the start by 2**32 - 1": (b"\x00a\x0f\xff\xff\xff\xff", 5),
    "before the start by 2**31": (b"\x00a\x0f\x00\x00\x00\x80", 5),
    "copy first": (b"\x01\x01", 4),
    "copy past the end": (b"\x00a\xfe\x01\x00", 20),
    "literal of 2**32": (b"\xfc\xff\xff\xff\xffabc", 3),
    "literal past the input": (b"\xf0\x20abc", 33),
    "literal past the end": (b"\x10abcde", 4),
    "half a length": (b"\xf4\x01", 2),
    "half an offset": (b"\x00a\x0e\x01", 5),
}
ATTACKS = [
    *(pytest.param("lz4_raw", *attack, id=f"lz4: {name}") for name, attack in LZ4_ATTACKS.items()),
    *(pytest.param("snappy", *attack, id=f"snappy: {name}") for name, attack in SNAPPY_ATTACKS.items()),
]


@pytest.mark.parametrize(("codec", "stream", "size"), ATTACKS)
def test_streams_that_are_refused(codec: str, stream: bytes, size: int) -> None:
    assert expanded(codec, stream, size) is None

"""Codecs of state files: what is written is read again, by the reader that reads Spark's own files."""

from __future__ import annotations

import random
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.formats.errors import UnsupportedError
from statestore.formats.spark.checkpoint.query_metadata import Batch
from statestore.formats.spark.edits.packed_streams import codec_of, packed
from statestore.formats.spark.providers.compression import decompressed

CODECS = ["lz4", "zstd", "snappy", "lzf"]


def unpacked(content: bytes) -> bytes:
    return b"".join(decompressed(BytesIO(content), "a file"))


@given(codec=st.sampled_from(CODECS), pieces=st.lists(st.binary(max_size=100), min_size=1, max_size=5))
def test_pieces_are_read_as_one_file(codec: str, pieces: list[bytes]) -> None:
    pieces = [*pieces, b"\xff\xff\xff\xff"]
    assert unpacked(b"".join(packed(codec, pieces))) == b"".join(pieces)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [2, (32 << 10) - 1, 32 << 10, (32 << 10) + 1, 0xFFFF, 0x10000, 300_000])
def test_files_of_many_blocks(codec: str, size: int) -> None:
    chance = random.Random(size)
    noise = chance.randbytes(size)
    for plain in (bytes(size), noise, noise[: size // 2] * 2):
        pieces = [plain[at : at + 10_000] for at in range(0, len(plain), 10_000)]
        assert unpacked(b"".join(packed(codec, pieces))) == plain


def batch_of(settings: dict[str, str]) -> Batch:
    return Batch(1, 2, 2, True, None, None, None, settings, {})


@pytest.mark.parametrize(
    ("setting", "codec"),
    [("zstd", "zstd"), ("ZSTD", "zstd"), ("org.apache.spark.io.SnappyCompressionCodec", "snappy"), (None, "lz4")],
)
def test_the_codec_is_that_of_the_settings(setting: str | None, codec: str) -> None:
    name = "spark.sql.streaming.stateStore.compression.codec"
    assert codec_of(batch_of({} if setting is None else {name: setting})) == codec


def test_another_codec_is_refused_by_name() -> None:
    settings = {"spark.sql.streaming.stateStore.compression.codec": "com.example.Own"}
    with pytest.raises(UnsupportedError, match=r"EDIT_UNSUPPORTED.*'com.example.Own'.*lz4, zstd, snappy, lzf"):
        codec_of(batch_of(settings))

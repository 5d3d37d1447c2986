"""The codecs of Spark's state files, to write them. ``statestore.formats.spark.providers.compression`` reads them.

Spark reads a file with the codec of the query's settings, and does not look which one it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct

import pyarrow as pa
from xxhash import xxh32_intdigest

from statestore.formats.bytes.snappy_blocks import XERIAL
from statestore.formats.spark.checkpoint.query_metadata import Batch
from statestore.formats.spark.checkpoint.state_errors import not_editable

_SETTING = "stateStore.compression.codec"
_BLOCK = 32 << 10  # bytes of a block as Spark writes it
_LZF_CHUNK = 0xFFFF

_LZ4_MAGIC, _LZ4_HEADER = b"LZ4Block", Struct("<Biii")
_LZ4_RAW, _LZ4_COMPRESSED, _LZ4_LEVEL = 0x10, 0x20, 5  # the level of blocks of 32 KiB
_LZ4_SEED, _LZ4_CHECKSUM_BITS = 0x9747B28C, 0x0FFFFFFF
_SNAPPY_VERSIONS = (1).to_bytes(4) * 2


def codec_of(batch: Batch) -> str:
    """The codec of state files by the settings of a batch. Raises UnsupportedError EDIT_UNSUPPORTED for another one."""
    setting = batch.setting(_SETTING, "lz4")
    name = setting.rsplit(".", 1)[-1].lower().removesuffix("compressioncodec")
    if name not in _PACKED:
        raise not_editable(
            f"spark.sql.streaming.{_SETTING} is {setting[:80]!r}, and state files can be written in "
            f"{', '.join(_PACKED)}; change the setting of the query, let it run a batch, and edit that",
        )
    return name


def packed(codec: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a file with the plain bytes of ``pieces``, in a codec of `codec_of`."""
    return _PACKED[codec](pieces)


def _blocks(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the plain bytes in blocks of ``size``, of which the last one may be smaller."""
    left = b""
    for piece in pieces:
        data = left + piece if left else piece
        end = len(data) - len(data) % size
        for at in range(0, end, size):
            yield data[at : at + size]
        left = data[end:]
    if left:
        yield left


def _lz4(pieces: Iterable[bytes]) -> Iterator[bytes]:
    codec = pa.Codec("lz4_raw")
    for plain in _blocks(pieces, _BLOCK):
        block = bytes(codec.compress(plain, asbytes=True))
        method = _LZ4_COMPRESSED
        if len(block) >= len(plain):
            method, block = _LZ4_RAW, plain
        checksum = xxh32_intdigest(plain, _LZ4_SEED) & _LZ4_CHECKSUM_BITS
        yield _LZ4_MAGIC + _LZ4_HEADER.pack(method | _LZ4_LEVEL, len(block), len(plain), checksum) + block
    yield _LZ4_MAGIC + _LZ4_HEADER.pack(_LZ4_RAW | _LZ4_LEVEL, 0, 0, 0)


def _snappy(pieces: Iterable[bytes]) -> Iterator[bytes]:
    codec = pa.Codec("snappy")
    yield XERIAL + _SNAPPY_VERSIONS
    for plain in _blocks(pieces, _BLOCK):
        block = bytes(codec.compress(plain, asbytes=True))
        yield len(block).to_bytes(4) + block


def _lzf(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Chunks that are not compressed, which every reader of the codec takes: few queries use it."""
    for plain in _blocks(pieces, _LZF_CHUNK):
        yield b"ZV\0" + len(plain).to_bytes(2) + plain


class _Collected:
    """A Python file that keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def taken(self) -> bytes:
        found = b"".join(self._parts)
        self._parts.clear()
        return found


def _zstd(pieces: Iterable[bytes]) -> Iterator[bytes]:
    collected = _Collected()
    with pa.CompressedOutputStream(pa.PythonFile(collected, mode="w"), "zstd") as stream:
        for piece in pieces:
            stream.write(piece)
            yield collected.taken()
    yield collected.taken()


_PACKED: dict[str, Callable[[Iterable[bytes]], Iterator[bytes]]] = {
    "lz4": _lz4,
    "zstd": _zstd,
    "snappy": _snappy,
    "lzf": _lzf,
}
CODECS = tuple(_PACKED)
"""The names of the codecs."""

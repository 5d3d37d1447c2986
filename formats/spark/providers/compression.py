"""The codecs of Spark's state files: one compressed stream per file, recognised by its first bytes.

    lz4       "LZ4Block" | token | compressed, plain and checksum:int32 LE | block      repeated, ends with an empty
    block
    zstd      ordinary frames
    snappy    as ``snappy_blocks`` describes it
    lzf       "ZV" 0 | size:uint16 BE | bytes, or "ZV" 1 | size | plain size:uint16 BE | block      repeated

A block is decompressed only after the size it claims has been checked against the limits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from struct import Struct
from typing import IO

import numpy as np
import pyarrow as pa
from xxhash import xxh32_intdigest

from statestore.formats.bytes.snappy_blocks import XERIAL, XERIAL_HEADER, snappy_length, unpacked, xerial_blocks
from statestore.formats.errors import CorruptError
from statestore.formats.kernels.compiled_use import is_loaded
from statestore.formats.spark.checkpoint.state_errors import corrupt_file

_LZ4_MAGIC, _ZSTD_MAGIC, _LZF_MAGIC = b"LZ4Block", b"\x28\xb5\x2f\xfd", b"ZV"
_ZSTD_CHECKSUM = 4  # the flag in the byte behind the magic
_LZ4_HEADER = Struct("<Biii")
_LZ4_FRAME = len(_LZ4_MAGIC) + _LZ4_HEADER.size
_LZ4_CODEC = pa.Codec("lz4_raw")
_LZ4_SEED, _LZ4_CHECKSUM_BITS = 0x9747B28C, 0x0FFFFFFF
_LZ4_RAW, _LZ4_COMPRESSED = 0x10, 0x20
_MAX_BLOCK = 64 << 20
_CHUNK = 1 << 20
_TARGET = 1 << 20


HEAD_BYTES = 8
"""The first bytes of a file by which its codec is known."""


def decompressed(stream: IO[bytes], path: str, head: bytes | None = None) -> Iterator[bytes]:
    """The plain bytes of a state file, in pieces of at most 64 MiB. ``head`` are HEAD_BYTES that were read before.

    Raises CorruptError SPARK_STATE_FILE, naming ``path``, for an unknown codec, a damaged block or an early end.
    """
    if head is None:
        head = stream.read(HEAD_BYTES)
    for magic, read in _CODECS.items():
        if head.startswith(magic):
            yield from read(_Source(stream, head, path))
            return
    raise corrupt_file(path, f"found first bytes {head.hex()}, expected a file in lz4, zstd, snappy or lzf")


def has_checksums(head: bytes) -> bool:
    """Return whether the codec of a state file that begins so keeps checksums of its blocks."""
    if head.startswith(_ZSTD_MAGIC):
        return len(head) > len(_ZSTD_MAGIC) and bool(head[len(_ZSTD_MAGIC)] & _ZSTD_CHECKSUM)
    return head.startswith(_LZ4_MAGIC)


def whole_lz4(content: bytes, most: int) -> bytes | None:
    """The plain bytes of a small file in lz4; None unless it is whole, ordinary and at most ``most`` bytes.

    Its empty block must be its end, as Spark writes it. `decompressed` reads any other file, and says what is wrong.
    """
    blocks = lz4_blocks(content)
    if blocks is None or sum(plain for _, _, plain in blocks) > most:
        return None
    parts = [lz4_block(content[at : at + size]) for at, size, _ in blocks]
    whole = [part for part in parts if part is not None]
    return b"".join(whole) if len(whole) == len(parts) else None


def lz4_blocks(content: bytes) -> list[tuple[int, int, int]] | None:
    """Return where the blocks of a file in lz4 begin, their bytes, and the plain ones; None as `whole_lz4`."""
    blocks: list[tuple[int, int, int]] = []
    at = 0
    while content.startswith(_LZ4_MAGIC, at) and len(content) - at >= _LZ4_FRAME:
        _, packed, plain, checksum = _LZ4_HEADER.unpack_from(content, at + len(_LZ4_MAGIC))
        size = _LZ4_FRAME + packed
        if not plain:
            return blocks if not packed and not checksum and at + size == len(content) else None
        if not 0 < plain <= _MAX_BLOCK or not _LZ4_FRAME <= size <= len(content) - at:
            return None
        blocks.append((at, size, plain))
        at += size
    return None


def lz4_block(stored: bytes) -> bytes | None:
    """The plain bytes of a block of `lz4_blocks`; None where it is damaged, or no such block."""
    if len(stored) < _LZ4_FRAME or not stored.startswith(_LZ4_MAGIC):
        return None
    token, packed, plain, checksum = _LZ4_HEADER.unpack_from(stored, len(_LZ4_MAGIC))
    block = stored[_LZ4_FRAME:]
    if len(block) != packed or not 0 < plain <= _MAX_BLOCK:
        return None
    if token & 0xF0 == _LZ4_COMPRESSED:
        try:
            block = _LZ4_CODEC.decompress(block, plain, asbytes=True)
        except (OSError, pa.ArrowInvalid, ValueError):
            return None
    elif token & 0xF0 != _LZ4_RAW:
        return None
    is_whole = len(block) == plain and xxh32_intdigest(block, _LZ4_SEED) & _LZ4_CHECKSUM_BITS == checksum
    return block if is_whole else None


class _Source:
    """A stream from which the first bytes were read to recognise the codec."""

    def __init__(self, stream: IO[bytes], head: bytes, path: str) -> None:
        self._stream, self._head, self.path = stream, head, path

    def read(self, size: int) -> bytes:
        """Read at most ``size`` bytes, none at the end."""
        parts, self._head = [self._head[:size]], self._head[size:]
        left = size - len(parts[0])
        while left:
            part = self._stream.read(left)
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def put_back(self, content: bytes) -> None:
        """Return bytes that were read and are to be read again."""
        self._head = content + self._head

    def exactly(self, size: int) -> bytes:
        content = self.read(size)
        if len(content) != size:
            raise corrupt_file(self.path, f"found {len(content)} bytes, expected {size}: the file ends in a block")
        return content

    def checked(self, size: int, least: int = 0) -> int:
        """Return a size from the file if it is within the limits."""
        if not least <= size <= _MAX_BLOCK:
            raise corrupt_file(self.path, f"found a block of {size} bytes, expected {least} to {_MAX_BLOCK}")
        return size


def _lz4(source: _Source) -> Iterator[bytes]:
    """Read frame by frame; compiled code reads all that are ordinary first."""
    if is_loaded():
        left = yield from _lz4_frames(source)
        source.put_back(left)
    while magic := source.read(len(_LZ4_MAGIC)):
        if magic != _LZ4_MAGIC:
            raise corrupt_file(source.path, f"found {magic.hex()}, expected the magic of an lz4 block")
        token, packed, plain, checksum = _LZ4_HEADER.unpack(source.exactly(_LZ4_HEADER.size))
        data = source.exactly(source.checked(packed))
        if not source.checked(plain):
            return
        method = token & 0xF0
        if method == _LZ4_COMPRESSED:
            data = _unpacked("lz4_raw", data, plain, source.path)
        if method not in (_LZ4_RAW, _LZ4_COMPRESSED) or len(data) != plain:
            raise corrupt_file(
                source.path, f"found an lz4 block of method {method:#x} and {len(data)} bytes of {plain}"
            )
        if xxh32_intdigest(data, _LZ4_SEED) & _LZ4_CHECKSUM_BITS != checksum:
            raise corrupt_file(source.path, f"an lz4 block of {plain} bytes does not match its checksum {checksum:#x}")
        yield data


def _lz4_frames(source: _Source) -> Generator[bytes, None, bytes]:
    """Yield the bytes of frames up to one that is not ordinary, and return the bytes from there on that were read."""
    from statestore.formats.kernels.codec_kernels import lz4_frames
    from statestore.formats.kernels.compiled import SLACK

    ends, left = np.zeros(2, np.int64), b""
    target = np.empty(_TARGET + SLACK, np.uint8)
    while True:
        more = source.read(_CHUNK)
        packed = left + more
        room = np.frombuffer(packed + bytes(SLACK), np.uint8)
        begin = 0
        while True:
            lz4_frames(room[begin:], len(packed) - begin, target, _TARGET, _LZ4_SEED, ends)
            if not ends[1]:
                break
            yield target[: ends[1]].tobytes()
            begin += int(ends[0])
        left = packed[begin:]
        if not more or len(left) > _CHUNK:
            return left


def _zstd(source: _Source) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.PythonFile(_Readable(source), mode="r"), "zstd") as stream:
        while True:
            try:
                part = stream.read(_CHUNK)
            except OSError as error:
                raise corrupt_file(source.path, f"not a zstd stream ({error})") from error
            if not part:
                return
            yield part


class _Readable:
    """The methods of a Python file that pyarrow needs."""

    closed = False

    def __init__(self, source: _Source) -> None:
        self._source = source

    def read(self, size: int) -> bytes:
        return self._source.read(size)

    def close(self) -> None:
        self.closed = True


def _snappy(source: _Source) -> Iterator[bytes]:
    def fault(found: str) -> CorruptError:
        return corrupt_file(source.path, f"found {found}")

    source.exactly(XERIAL_HEADER)
    for packed in xerial_blocks(source.read, _MAX_BLOCK, fault):
        yield _unpacked("snappy", packed, source.checked(snappy_length(packed, fault)), source.path)


def _unpacked(codec: str, packed: bytes, length: int, path: str) -> bytes:
    def fault(reason: str) -> CorruptError:
        return corrupt_file(path, f"a block of {len(packed)} bytes cannot be decompressed ({reason})")

    return unpacked(codec, packed, length, fault)


def _lzf(source: _Source) -> Iterator[bytes]:
    while head := source.read(5):
        if len(head) < 5 or head[:2] != _LZF_MAGIC or head[2] > 1:
            raise corrupt_file(source.path, f"found {head.hex()}, expected the head of an lzf chunk")
        size = int.from_bytes(head[3:5])
        if head[2] == 0:
            yield source.exactly(size)
        else:
            plain = int.from_bytes(source.exactly(2))
            yield _unpack_lzf(source.exactly(size), plain, source.path)


def _unpack_lzf(data: bytes, plain: int, path: str) -> bytes:
    """Unpack an lzf block: runs of up to 32 literal bytes, and copies of bytes up to 8 KiB before."""
    unpacked = bytearray()
    at = 0
    try:
        while at < len(data):
            control = data[at]
            at += 1
            if control < 32:
                unpacked += data[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += data[at]
                at += 1
            begin = len(unpacked) - ((control & 0x1F) << 8) - data[at] - 1
            at += 1
            _copy(unpacked, begin, length + 2)
    except IndexError as error:
        raise corrupt_file(path, "an lzf chunk ends in a copy, or copies from before its start") from error
    if len(unpacked) != plain or at != len(data):
        raise corrupt_file(path, f"found an lzf chunk of {len(unpacked)} bytes, expected {plain}")
    return bytes(unpacked)


def _copy(unpacked: bytearray, begin: int, length: int) -> None:
    """Append ``length`` bytes from ``begin`` on; they may overlap the bytes being appended."""
    if begin < 0:
        raise IndexError(begin)
    piece = unpacked[begin : begin + length]
    repeats = -(-length // len(piece))
    unpacked += (piece * repeats)[:length]


_CODECS: dict[bytes, Callable[[_Source], Iterator[bytes]]] = {
    _LZ4_MAGIC: _lz4,
    _ZSTD_MAGIC: _zstd,
    XERIAL: _snappy,
    _LZF_MAGIC: _lzf,
}

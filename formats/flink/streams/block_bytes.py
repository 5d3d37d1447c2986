"""The bytes of one block of a stream, read on piece by piece, and unpacked where Flink compressed them.

Flink compresses with snappy's framing format (``SnappyStreamCompressionDecorator``): chunks of type byte, length (3
bytes, little-endian) and data. ``FF`` begins a stream and may repeat, ``00`` is a checksum and packed data, ``01`` a
checksum and plain data, ``80`` to ``FE`` are skipped. The checksum is a masked CRC-32C of the plain data.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from statestore.formats.bytes.crc32c import crc32c
from statestore.formats.bytes.snappy_blocks import snappy_length, unpacked
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.flink.snapshot.snapshot_files import Part
from statestore.formats.kernels.arrays import Bytes

PIECE_BYTES = 4 << 20
_IDENTIFIER, _PACKED, _PLAIN, _SKIPPED = 0xFF, 0x00, 0x01, 0x80
_IDENTITY = b"sNaPpY"
_MOST_PLAIN = 1 << 16
_MASK_DELTA = 0xA282EAD8


def damaged(path: str, found: str) -> CorruptError:
    """The error for a data file with bytes that Flink does not write."""
    return CorruptError(ErrorCode.FLINK_FILE, f"{path}: {found}; restore the file from a copy")


class BlockWindow:
    """The next bytes of a block: ``data[at:stop]`` are read and not yet used, ``last``: no others follow.

    The array may be written to. Memory holds what is not yet used and as much again, at least one piece. ``partial``:
    bytes of others may follow the block, which its reader does not ask for and which cannot be unpacked.
    """

    def __init__(self, pieces: Iterator[bytes], path: str, *, partial: bool = False) -> None:
        self.path = path
        self.partial = partial
        self.data: Bytes = np.empty(0, np.uint8)
        self.at = 0
        self.last = False
        self._pieces = pieces

    @property
    def stop(self) -> int:
        return len(self.data)

    @property
    def left(self) -> int:
        return self.stop - self.at

    def more(self) -> None:
        """Read further pieces behind the unused bytes. Raises CorruptError FLINK_FILE where there is none."""
        if not self._read():
            raise damaged(self.path, "a block ends within an entry")

    def more_or_last(self) -> None:
        """Read a further piece, or note that there is none."""
        self._read()

    def take(self, size: int) -> bytes:
        """The next bytes, exactly ``size``. Raises CorruptError FLINK_FILE where the block ends before."""
        while self.left < size:
            self.more()
        self.at += size
        return self.data[self.at - size : self.at].tobytes()

    def is_empty(self) -> bool:
        """Return whether the block has no further bytes."""
        while not self.left and not self.last:
            self._read()
        return not self.left

    def _read(self) -> bool:
        unused = self.data[self.at :]
        pieces: list[Bytes] = []
        size = 0
        # An entry of many pieces would else be copied with each of them.
        while not pieces or (size < len(unused) and not self.partial):
            piece = next(self._pieces, None)
            if piece is None:
                break
            pieces.append(np.frombuffer(piece, np.uint8))
            size += len(piece)
        if not pieces:
            self.last = True
            return False
        self.data, self.at = np.concatenate([unused, *pieces]), 0
        return True


def block_window(
    part: Part, start: int, end: int, *, compressed: bool, piece_bytes: int = PIECE_BYTES, partial: bool = False
) -> BlockWindow:
    """A window on bytes ``start`` to before ``end`` of a handle; ``partial`` as `BlockWindow` has it.

    Reading raises CorruptError FLINK_FILE for damaged chunks, and the errors of `Part.read_at`.
    """
    plain = _pieces(part, start, end, piece_bytes)
    if compressed:
        return BlockWindow(_unpacked(plain, part.path, 1 if partial else piece_bytes), part.path, partial=partial)
    return BlockWindow(plain, part.path, partial=partial)


def _pieces(part: Part, start: int, end: int, piece_bytes: int) -> Iterator[bytes]:
    for at in range(start, end, piece_bytes):
        yield part.read_at(at, min(piece_bytes, end - at))


def _unpacked(pieces: Iterator[bytes], path: str, piece_bytes: int) -> Iterator[bytes]:
    """Yield plain bytes in pieces of about ``piece_bytes``."""
    found: list[bytes] = []
    size = 0
    for chunk in _chunks(pieces, path):
        found.append(chunk)
        size += len(chunk)
        if size >= piece_bytes:
            yield b"".join(found)
            found, size = [], 0
    if found:
        yield b"".join(found)


def _chunks(pieces: Iterator[bytes], path: str) -> Iterator[bytes]:
    data, at = b"", 0
    while True:
        if len(data) - at < 4 or len(data) - at < 4 + int.from_bytes(data[at + 1 : at + 4], "little"):
            piece = next(pieces, None)
            if piece is None:
                if at < len(data):
                    raise damaged(path, "compressed data ends within a chunk")
                return
            data, at = data[at:] + piece, 0
            continue
        size = int.from_bytes(data[at + 1 : at + 4], "little")
        body = data[at + 4 : at + 4 + size]
        plain = _plain(data[at], body, path)
        at += 4 + size
        if plain:
            yield plain


def unpack(data: bytes, path: str) -> bytes:
    """The plain bytes of whole chunks. Raises CorruptError FLINK_FILE."""
    return b"".join(_chunks(iter((data,)), path))


def _plain(kind: int, body: bytes, path: str) -> bytes:
    if kind == _IDENTIFIER:
        if body != _IDENTITY:
            raise damaged(path, f"found {body[:10].hex()}, expected the identifier of a snappy stream")
        return b""
    if kind >= _SKIPPED:
        return b""
    if kind not in (_PACKED, _PLAIN) or len(body) < 4:
        raise damaged(path, f"found a chunk of type {kind} and {len(body)} bytes, expected snappy's framing format")
    plain = body[4:]
    if kind == _PACKED:
        plain = _decompressed(plain, path)
    if len(plain) > _MOST_PLAIN:
        raise damaged(path, f"found {len(plain)} bytes in a chunk, expected at most {_MOST_PLAIN}")
    found = crc32c(plain)
    masked = ((found >> 15 | found << 17) + _MASK_DELTA) & 0xFFFFFFFF
    expected = int.from_bytes(body[:4], "little")
    if masked != expected:
        raise damaged(path, f"found checksum {masked:08x} of a chunk, expected {expected:08x}")
    return plain


def _decompressed(packed: bytes, path: str) -> bytes:
    def fault(reason: str) -> CorruptError:
        return damaged(path, f"a chunk of {len(packed)} bytes cannot be decompressed ({reason})")

    size = snappy_length(packed, fault)
    if size > _MOST_PLAIN:
        raise damaged(path, f"found a chunk of {size} plain bytes, expected at most {_MOST_PLAIN}")
    return unpacked("snappy", packed, size, fault)

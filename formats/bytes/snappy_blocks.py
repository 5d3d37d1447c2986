"""Snappy blocks, and the frames in which xerial's library for Java writes them (``SnappyOutputStream``).

    82 "SNAPPY" 00 | version:int32 | compatible version:int32, then size:int32 | block      repeated

A block begins with its plain length, a varint. Callers check that length before they unpack a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from statestore.formats.bytes.byte_columns import Fault
from statestore.formats.bytes.field_reader import varint_reader

XERIAL = b"\x82SNAPPY\x00"
XERIAL_HEADER = 16  # bytes of it
_LENGTH_BYTES = 5


class _NoLength(Exception):
    """Bytes that do not begin with a length."""


_length = varint_reader(lambda _: _NoLength(), _LENGTH_BYTES)


def xerial_blocks(read: Callable[[int], bytes], most: int, fault: Fault) -> Iterator[bytes]:
    """Yield the blocks behind a header, as they are stored.

    ``read`` returns the next bytes, fewer than it is told only at the end. Raises what ``fault`` makes for a block of
    more than ``most`` bytes, and for one that is cut off.
    """
    while head := read(4):
        if len(head) < 4:
            raise fault("a block without its size")
        size = int.from_bytes(head, signed=True)
        if not 1 <= size <= most:
            raise fault(f"a block of {size} bytes, expected 1 to {most}")
        packed = read(size)
        if len(packed) != size:
            raise fault(f"a block of {size} bytes, where {len(packed)} are left")
        yield packed


def snappy_length(packed: bytes | memoryview, fault: Fault) -> int:
    """The plain length with which a block begins. Raises what ``fault`` makes where there is none."""
    try:
        return _length(packed, 0, len(packed))[0]
    except _NoLength:
        raise fault("a block without its length") from None


def unpacked(codec: str, packed: bytes | memoryview, length: int, fault: Fault) -> bytes:
    """Unpack a block of Arrow's ``codec`` to ``length`` bytes. Raises what ``fault`` makes of the reason why not."""
    try:
        plain: bytes = pa.Codec(codec).decompress(pa.py_buffer(packed), length, asbytes=True)
    except (OSError, pa.ArrowInvalid, ValueError) as error:
        raise fault(str(error)) from error
    return plain

"""Decompression of the frames of lz4-java's ``LZ4BlockOutputStream``, many in one call.

"LZ4Block" | token | compressed, plain and checksum:int32 LE | block
"""

from __future__ import annotations

from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.checksum_kernels import xxh32
from statestore.formats.kernels.codec_kernels import lz4_block
from statestore.formats.kernels.compiled import I64, U64, half_word, kernel, word

HEAD = 21
_MAGIC = U64(int.from_bytes(b"LZ4Block", "little"))
_COMPRESSED = 0x20
_CHECKSUM = U64(0x0FFFFFFF)


@kernel
def lz4_frames(source: Bytes, stop: int, target: Bytes, room: int, seed: int, ends: Ints) -> None:
    """Decompress whole frames from ``source[:stop]`` into ``target[:room]``, as many as there are and fit.

    ``ends``: where the first frame begins that was not decompressed, and where the decompressed bytes end. A frame that
    is not compressed, empty or damaged is left, as is all behind it. Both arrays have SLACK spare bytes.
    """
    at, filled = 0, 0
    while at + HEAD <= stop and word(source, at) == _MAGIC and source[at + 8] & 0xF0 == _COMPRESSED:
        packed, plain = I64(half_word(source, at + 9)), I64(half_word(source, at + 13))
        begin = at + HEAD
        if plain == 0 or packed > stop - begin or plain > room - filled:
            break
        if not lz4_block(source, begin, begin + packed, target, filled, filled + plain):
            break
        if xxh32(target, filled, plain, seed) & _CHECKSUM != half_word(source, at + 17):
            break
        at = begin + packed
        filled += plain
    ends[0], ends[1] = at, filled

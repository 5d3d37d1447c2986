"""Decompression of the blocks of a table file: LZ4 and Snappy in compiled code, other codecs by their libraries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from statestore.formats.kernels import block_kernels as blocks
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.checksum_kernels import NONE, block_checksums
from statestore.formats.rocksdb.fields import Malformed
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt
from statestore.formats.rocksdb.stored_blocks import decompressed

_GAP = 16  # a copy in words may write so many bytes behind a block
_LOW = np.uint64(0xFFFFFFFF)
_COMPILED = (blocks.PLAIN, blocks.SNAPPY, blocks.LZ4, blocks.LZ4HC)


@dataclass(frozen=True)
class CheckedBlocks:
    """Blocks of one file in ``raw`` with their trailers, checksums verified.

    ``offset`` is the position of each in the file, ``length`` its length when decompressed.
    """

    path: str
    raw: Bytes
    start: Ints
    size: Ints
    offset: Ints
    codec: Ints
    length: Ints

    @property
    def room(self) -> int:
        """Number of bytes that `expand` needs."""
        return int(self.length.sum()) + _GAP * len(self.length)


def check_blocks(raw: Bytes, start: Ints, size: Ints, offset: Ints, kind: int, base: int, path: str) -> CheckedBlocks:
    """Verify the checksums of blocks. ``kind`` of checksum and its ``base`` are the file's.

    Raises CorruptError ROCKSDB_FILE, and `Unreadable` for an unknown codec.
    """
    _verify(raw, start, size, offset, kind, base, path)
    codec, length, report = np.empty(len(start), np.int64), np.empty(len(start), np.int64), np.zeros(3, np.int64)
    status = blocks.measure_blocks(raw, start, size, codec, length, report)
    if status:
        raise _damaged(status, report, offset, path)
    return CheckedBlocks(path, raw, start, size, offset, codec, length)


def _verify(raw: Bytes, start: Ints, size: Ints, offset: Ints, kind: int, base: int, path: str) -> None:
    if not len(start):
        return
    # Without checksums RocksDB stores zeros. Other values mean that the kind of checksum in the footer is damaged.
    actual = np.zeros(len(start), np.uint64) if kind == NONE else block_checksums(raw, start, size, kind)
    if base:  # since format 6 a block's position is part of its checksum
        wide = offset.astype(np.uint64)
        actual = (actual + (np.uint64(base) ^ ((wide & _LOW) + (wide >> np.uint64(32))))) & _LOW
    expected = np.ndarray((len(raw) - 3,), "<u4", raw, 0, (1,))[start + size + 1]
    wrong = actual != expected
    if wrong.any():
        at = int(np.argmax(wrong))
        raise corrupt(
            path,
            f"byte {int(offset[at])}: a block has checksum {int(actual[at]):#010x}, expected {int(expected[at]):#010x}",
        )


def expand(checked: CheckedBlocks, plain: Bytes, at: int) -> Ints:
    """Decompress into ``plain`` from ``at`` on; returns where each block begins. ``plain`` has SLACK spare bytes."""
    plain_start = np.full(len(checked.length), at, np.int64)
    plain_start[1:] += np.cumsum(checked.length[:-1] + _GAP)
    for i in np.flatnonzero(~np.isin(checked.codec, _COMPILED)).tolist():
        where = int(plain_start[i])
        plain[where : where + int(checked.length[i])] = _by_library(checked, i)
    report = np.zeros(3, np.int64)
    status = blocks.expand_blocks(
        checked.raw, checked.start, checked.size, checked.codec, plain, plain_start, checked.length, report
    )
    if status:
        raise _damaged(status, report, checked.offset, checked.path)
    return plain_start


def _by_library(checked: CheckedBlocks, number: int) -> Bytes:
    start, length, offset = int(checked.start[number]), int(checked.length[number]), int(checked.offset[number])
    payload = checked.raw[start : start + int(checked.size[number])].tobytes()
    try:
        plain = decompressed(payload, int(checked.codec[number]))
    except Malformed as error:
        raise corrupt(checked.path, f"byte {offset}: a block cannot be decompressed ({error})") from error
    if len(plain) != length:
        raise corrupt(checked.path, f"byte {offset}: found a block of {len(plain)} bytes, expected {length}")
    return np.frombuffer(plain, np.uint8)


def _damaged(status: int, report: Ints, offset: Ints, path: str) -> Exception:
    where = f"byte {int(offset[report[0]])}"
    if status == blocks.UNKNOWN_CODEC:
        return Unreadable(f"{path}, {where}: a block of compression type {int(report[1])}")
    if status == blocks.BAD_LENGTH:
        return corrupt(path, f"{where}: found {int(report[2])} bytes that claim to hold {int(report[1])}")
    return corrupt(path, f"{where}: a block cannot be decompressed")

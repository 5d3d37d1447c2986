"""Frames of a changelog as bytes: their kinds, their checksums, and opening a file of them (docs/log-format.md).

A frame is a 20-byte header (magic, payload length, payload checksum, all little-endian) and a payload. A frame of at
least one disk sector never holds a long run of zero bytes: a payload with such a run is masked. So a sector of zeros
among frames is one that never reached the disk, and a damaged record cannot be mistaken for it.
"""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.places.disk_errors import storage_error
from statestore.formats.places.regular_files import is_strange

NAME = b"SSLOG"
VERSION, OLD_VERSION = 3, 2
MAGIC = NAME + bytes((VERSION, 0, 0))
ROW_MAGIC = NAME + bytes((VERSION, 1, 0))
MARK_MAGIC = NAME + bytes((VERSION, 2, 0))
MASKED_MAGIC = NAME + bytes((VERSION, 0, 1))
MASKED_ROW_MAGIC = NAME + bytes((VERSION, 1, 1))
HEADER = struct.Struct("<8sIQ")
ROW = struct.Struct("<qI?")  # time, length of the key, whether a value follows (without one: a delete)
MARK = struct.Struct("<Q")  # everything before this offset was forced to the disk
MAX_PAYLOAD = 2**32 - 1

# Checksums are seeded with the frame's position and these bits: no frame passes as one of another kind or version.
_OLD_ROW_SEED = 1 << 63
SEED = 1 << 60
ROW_SEED = _OLD_ROW_SEED | SEED
MARK_SEED = 1 << 62 | SEED
MASKED = 1 << 61

SECTOR = 512  # the least number of bytes that a disk writes at once
SMALL = SECTOR - HEADER.size  # a longer payload may fill a sector
ZEROS = bytes(32)
BLOCK, FEW = 28, 8  # words of 8 bytes; every sector within a payload has a whole block
MASK_BYTES = 8


class FrameKind(NamedTuple):
    """The frames with one magic. ``form``: "message", "row" or "mark"."""

    form: str
    seed: int
    is_masked: bool = False


KINDS = {
    OLD_VERSION: {
        NAME + bytes((OLD_VERSION, 0, 0)): FrameKind("message", 0),
        NAME + bytes((OLD_VERSION, 1, 0)): FrameKind("row", _OLD_ROW_SEED),
    },
    VERSION: {
        MAGIC: FrameKind("message", SEED),
        ROW_MAGIC: FrameKind("row", ROW_SEED),
        MARK_MAGIC: FrameKind("mark", MARK_SEED),
        MASKED_MAGIC: FrameKind("message", SEED | MASKED, True),
        MASKED_ROW_MAGIC: FrameKind("row", ROW_SEED | MASKED, True),
    },
}
"""The kinds of frames by version of the format. All frames of a file have one version."""
ANY_KIND = {magic: kind for kinds in KINDS.values() for magic, kind in kinds.items()}


def mark_frame(position: int, synced: int) -> bytes:
    """The frame at ``position`` which records that everything before ``synced`` was forced to the disk."""
    payload = MARK.pack(synced)
    return HEADER.pack(MARK_MAGIC, len(payload), xxhash.xxh3_64_intdigest(payload, position | MARK_SEED)) + payload


def is_sparse(payload: pa.Buffer) -> bool:
    """Return whether a block of 224 bytes of the payload has fewer than FEW words that are not zero."""
    words = np.frombuffer(payload, np.uint64, payload.size // 8)
    zeros = np.flatnonzero(words[: len(words) // BLOCK * BLOCK] == 0)  # few in most payloads
    return len(zeros) > BLOCK - FEW and bool(np.bincount(zeros // BLOCK).max() > BLOCK - FEW)


def masked(payload: bytes | pa.Buffer) -> pa.Buffer:
    """Encode a payload with a long run of zeros: a random mask, and the payload XORed with it."""
    size = memoryview(payload).nbytes
    mask = np.frombuffer(os.urandom(MASK_BYTES), np.uint64)
    stored = np.empty(1 + -(-size // MASK_BYTES), np.uint64)
    stored[0], stored[-1] = mask[0], 0
    stored.view(np.uint8)[MASK_BYTES : MASK_BYTES + size] = np.frombuffer(payload, np.uint8)
    stored[1:] ^= mask
    return pa.py_buffer(stored).slice(0, MASK_BYTES + size)


def unmasked(stored: bytes) -> bytes:
    """Decode a payload that `masked` encoded."""
    words = np.frombuffer(stored + bytes(-len(stored) % MASK_BYTES), np.uint64)
    payload: npt.NDArray[np.uint64] = words[1:] ^ words[0]
    return payload.tobytes()[: len(stored) - MASK_BYTES]


def open_changelog(path: Path, flags: int) -> int:
    """Open a changelog and return its file descriptor.

    Raises FileNotFoundError where it is gone; CorruptError CHANGELOG_CORRUPT where something other than a file has its
    name: opening a pipe would block, and a link could lead anywhere.
    """
    try:
        file = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink() or is_strange(path):
            raise _no_file(path) from error
        raise storage_error(error, "open", path) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _no_file(path)
    return file


def _no_file(path: Path) -> CorruptError:
    return CorruptError(
        ErrorCode.CHANGELOG_CORRUPT,
        f"{path} has the name of a changelog but is no regular file; restore the file from a copy, or move what "
        "is there away to continue without it",
    )

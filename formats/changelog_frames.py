"""Frames of a changelog, as bytes: their kinds, their checksums, and how a file of them is opened (docs/log-format.md).

A frame is a 20-byte header (magic, payload length, payload checksum, all little-endian) and a payload. No frame of at
least one disk sector holds a long run of zero bytes: such a payload is masked. So a sector of zeros among frames is one
that never reached the disk, and no record that was damaged looks like it.
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

from statestore.formats.disk_errors import storage_error
from statestore.formats.errors import CorruptError

NAME = b"SSLOG"
VERSION, OLD_VERSION = 3, 2
MAGIC = NAME + bytes((VERSION, 0, 0))
ROW_MAGIC = NAME + bytes((VERSION, 1, 0))
MARK_MAGIC = NAME + bytes((VERSION, 2, 0))
MASKED_MAGIC = NAME + bytes((VERSION, 0, 1))
MASKED_ROW_MAGIC = NAME + bytes((VERSION, 1, 1))
HEADER = struct.Struct("<8sIQ")
ROW = struct.Struct("<qI?")  # time, length of the key, whether a value follows (none: a delete)
MARK = struct.Struct("<Q")  # everything before this offset was forced to the disk
MAX_PAYLOAD = 2**32 - 1

# Checksums are seeded with the frame's place and these bits: no frame passes as one of another kind or version.
_OLD_ROW_SEED = 1 << 63
SEED = 1 << 60
ROW_SEED = _OLD_ROW_SEED | SEED
MARK_SEED = 1 << 62 | SEED
MASKED = 1 << 61

SECTOR = 512  # what a disk writes at once, at least
SMALL = SECTOR - HEADER.size  # a longer payload may fill a sector
ZEROS = bytes(32)
MASK_BYTES = 8


class Kind(NamedTuple):
    """What a magic stands for. ``form``: "message", "row" or "mark"."""

    form: str
    seed: int
    is_masked: bool = False


KINDS = {
    OLD_VERSION: {
        NAME + bytes((OLD_VERSION, 0, 0)): Kind("message", 0),
        NAME + bytes((OLD_VERSION, 1, 0)): Kind("row", _OLD_ROW_SEED),
    },
    VERSION: {
        MAGIC: Kind("message", SEED),
        ROW_MAGIC: Kind("row", ROW_SEED),
        MARK_MAGIC: Kind("mark", MARK_SEED),
        MASKED_MAGIC: Kind("message", SEED | MASKED, True),
        MASKED_ROW_MAGIC: Kind("row", ROW_SEED | MASKED, True),
    },
}
"""The kinds of frames of each version of the format that is read; a file's frames are all of one version."""
ANY_KIND = {magic: kind for kinds in KINDS.values() for magic, kind in kinds.items()}


def mark_frame(position: int, synced: int) -> bytes:
    """The frame at ``position`` that says that everything before ``synced`` was forced to the disk."""
    payload = MARK.pack(synced)
    return HEADER.pack(MARK_MAGIC, len(payload), xxhash.xxh3_64_intdigest(payload, position | MARK_SEED)) + payload


def has_zeros(payload: pa.Buffer) -> bool:
    """Whether the payload has 32 zero bytes in a row; perhaps also where it has only 24."""
    words = np.frombuffer(payload, np.uint64, payload.size // 8) == 0
    return bool((words[:-2] & words[1:-1] & words[2:]).any())


def masked(payload: bytes | pa.Buffer) -> bytes:
    """The payload as it is stored where it has a long run of zeros: a mask, and the payload XORed with it."""
    while True:
        mask = os.urandom(MASK_BYTES)
        found = mask + _xor(payload, mask)
        if ZEROS not in found:
            return found


def unmasked(stored: bytes) -> bytes:
    """The payload that `masked` was given."""
    return _xor(memoryview(stored)[MASK_BYTES:], stored[:MASK_BYTES])


def _xor(data: bytes | memoryview | pa.Buffer, mask: bytes) -> bytes:
    size = memoryview(data).nbytes
    words: npt.NDArray[np.uint64] = np.zeros(-(-size // MASK_BYTES), np.uint64)
    words.view(np.uint8)[:size] = np.frombuffer(data, np.uint8)
    words ^= np.frombuffer(mask, np.uint64)
    return words.view(np.uint8)[:size].tobytes()


def open_changelog(path: Path, flags: int) -> int:
    """A file descriptor of a changelog. FileNotFoundError where it is gone; CorruptError CHANGELOG_CORRUPT where
    something else than a file has its name: a pipe would be waited for, a link could lead anywhere."""
    try:
        file = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise _no_file(path) from error
        raise storage_error(error, "open", path) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _no_file(path)
    return file


def _no_file(path: Path) -> CorruptError:
    return CorruptError(
        "CHANGELOG_CORRUPT",
        f"{path} is no regular file, though it has the name of a changelog; restore the file from a copy, or move what "
        "is there away to go on without it",
    )

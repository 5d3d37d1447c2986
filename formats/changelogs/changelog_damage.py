"""What a bad frame in the middle of a changelog is: damage, or the trace of a power cut.

Pages of a file reach the disk in any order, so a power cut can keep a later page of what was never forced to the disk
and lose an earlier one. The file is only appended to: a sector that was lost holds zeros from the first frame that it
lacks, or from its beginning. No frame looks like that (`changelog_frames`), not even with a bit flipped.
"""

from __future__ import annotations

from typing import NamedTuple

import xxhash

from statestore.formats.changelogs.changelog_frames import (
    ANY_KIND,
    HEADER,
    KINDS,
    MARK,
    MARK_MAGIC,
    MARK_SEED,
    NAME,
    SECTOR,
)

# How many times the file's length may be hashed in the search for a good frame after a bad one.
MAX_SEARCH = 16
_EMPTY_SECTOR = bytes(SECTOR)


class GoodFrame(NamedTuple):
    """A whole frame; ``version`` is that of its format, 0 where the search was given up."""

    start: int
    version: int


def next_good_frame(data: bytes, start: int, version: int) -> GoodFrame | None:
    """The first whole frame at ``start`` or later: what is bad before it lies in the middle.

    ``version``: of the file's format; 0: not known. Checksums depend on the position, so a frame that somebody stored
    as a value is none. A file made to be hashed without end counts as damaged, too.
    """
    kinds = KINDS.get(version, ANY_KIND)
    budget = MAX_SEARCH * len(data)
    at = data.find(NAME, start)
    while at >= 0:
        kind = kinds.get(data[at : at + 8])
        if kind is not None and at + HEADER.size <= len(data):
            _, length, checksum = HEADER.unpack_from(data, at)
            body = memoryview(data)[at + HEADER.size : at + HEADER.size + length]
            if len(body) == length:
                budget -= length
                if budget < 0:
                    return GoodFrame(at, 0)
                if xxhash.xxh3_64_intdigest(body, at | kind.seed) == checksum:
                    return GoodFrame(at, data[at + len(NAME)])
        at = data.find(NAME, at + 1)
    return None


def synced_by(frame: bytes, start: int) -> int | None:
    """How far the sync mark that these bytes at ``start`` begin with says that the file is on the disk; None if they
    are no whole mark."""
    if len(frame) < HEADER.size + MARK.size:
        return None
    magic, length, checksum = HEADER.unpack_from(frame)
    payload = frame[HEADER.size : HEADER.size + MARK.size]
    whole = length == MARK.size and xxhash.xxh3_64_intdigest(payload, start | MARK_SEED) == checksum
    found: int = MARK.unpack(payload)[0]
    return found if magic == MARK_MAGIC and whole else None


def synced_after(data: bytes, position: int) -> bool:
    """Whether a good sync mark says that what lies at ``position`` was forced to the disk."""
    at = data.find(MARK_MAGIC, position)
    while at >= 0:
        synced = synced_by(data[at : at + HEADER.size + MARK.size], at)
        if synced is not None and synced > position:
            return True
        at = data.find(MARK_MAGIC, at + 1)
    return False


def is_never_written(data: bytes, position: int, good: int) -> bool:
    """Whether the bad frame at ``position`` looks as if the disk had never been given all of it.

    Then the sector in which it begins is zeros from there on, or one of the sectors before the next good frame is.
    """
    sector = (position // SECTOR + 1) * SECTOR
    if not any(data[position : min(sector, good)]):
        return True
    return any(data.startswith(_EMPTY_SECTOR, at) for at in range(sector, good - SECTOR + 1, SECTOR))

"""Judgement of a bad frame in the middle of a changelog: damage, or the trace of a power cut.

Pages of a file reach the disk in any order. So a power cut can keep a later page that was never forced to the disk, and
lose an earlier one. The file is only appended to: a lost sector holds zeros from the first missing frame on, or from
the beginning of the sector. No frame looks like that (`changelog_frames`), not even with a bit flipped.
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

# The search for a good frame after a bad one hashes at most this many times the file's length.
MAX_SEARCH = 16
_EMPTY_SECTOR = bytes(SECTOR)


class GoodFrame(NamedTuple):
    """A whole frame; ``version`` is that of its format, 0 where the search was given up."""

    start: int
    version: int


def next_good_frame(data: bytes, start: int, version: int) -> GoodFrame | None:
    """The first whole frame at ``start`` or later. If there is one, bad bytes before it are in the middle of the file.

    ``version``: of the file's format; 0: unknown. Checksums depend on the position, so a frame that was stored as a
    value does not count. A file that is made to be hashed without end counts as damaged, too.
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
    """The length up to which the sync mark at ``start`` records the file as synced; None without a whole mark."""
    if len(frame) < HEADER.size + MARK.size:
        return None
    magic, length, checksum = HEADER.unpack_from(frame)
    payload = frame[HEADER.size : HEADER.size + MARK.size]
    whole = length == MARK.size and xxhash.xxh3_64_intdigest(payload, start | MARK_SEED) == checksum
    found: int = MARK.unpack(payload)[0]
    return found if magic == MARK_MAGIC and whole else None


def synced_after(data: bytes, position: int) -> bool:
    """Return whether a good sync mark records that the bytes at ``position`` were forced to the disk."""
    at = data.find(MARK_MAGIC, position)
    while at >= 0:
        synced = synced_by(data[at : at + HEADER.size + MARK.size], at)
        if synced is not None and synced > position:
            return True
        at = data.find(MARK_MAGIC, at + 1)
    return False


def is_never_written(data: bytes, position: int, good: int) -> bool:
    """Return whether the bad frame at ``position`` looks as if the disk had never received all of it.

    In that case the sector in which it begins is zeros from there on, or one of the sectors before the next good frame
    is all zeros.
    """
    sector = (position // SECTOR + 1) * SECTOR
    if not any(data[position : min(sector, good)]):
        return True
    return any(data.startswith(_EMPTY_SECTOR, at) for at in range(sector, good - SECTOR + 1, SECTOR))

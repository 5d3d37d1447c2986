"""Checksums per region of a file, verified before its bytes are interpreted.

A flipped bit in an Arrow file is usually silent and sometimes kills the process. So no byte of a mapped file is read
before its region has matched the checksum that the commit recorded. Each region is hashed once per opened file.

Of a file in an object store, regions that do not match their checksums are fetched first
(`statestore.formats.places.object_cache`).
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import xxhash

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.places.object_cache import REGION_BYTES as REGION_BYTES
from statestore.formats.places.object_cache import CachedObject
from statestore.formats.segments.segment_meta import FileRef

CHECKSUM_DIGITS = 16


def checksum_regions(data: pa.Buffer) -> str:
    """16 hex digits of xxh3_64 for each region of ``REGION_BYTES`` bytes, concatenated; the last may be shorter."""
    view = memoryview(data)
    return "".join(
        xxhash.xxh3_64_hexdigest(view[start : start + REGION_BYTES]) for start in range(0, len(view), REGION_BYTES)
    )


class RegionChecksums:
    """Checksums of the regions of a file that is being written."""

    def __init__(self) -> None:
        self._digits: list[str] = []
        self._region = xxhash.xxh3_64()
        self._room = REGION_BYTES

    def add(self, data: memoryview) -> None:
        """Take in the next bytes of the file."""
        while len(data):
            piece, data = data[: self._room], data[self._room :]
            self._region.update(piece)
            self._room -= len(piece)
            if not self._room:
                self._digits.append(self._region.hexdigest())
                self._region, self._room = xxhash.xxh3_64(), REGION_BYTES

    def digits(self) -> str:
        """Return the result of `checksum_regions` for all bytes that were added."""
        last = [self._region.hexdigest()] if self._room < REGION_BYTES else []
        return "".join([*self._digits, *last])


class VerifiedBytes:
    """The bytes of one immutable file, returned region by region after verification.

    Raises CorruptError SEGMENT_TRUNCATED at once if the file does not have the recorded length. Safe to share between
    threads: a race can only cause a region to be hashed twice.
    """

    def __init__(self, ref: FileRef, data: pa.Buffer | CachedObject) -> None:
        check_length(ref, data.size)
        self.ref = ref
        self._cached = data if isinstance(data, CachedObject) else None
        self.data: pa.Buffer = data.buffer if isinstance(data, CachedObject) else data
        self._view = memoryview(self.data)
        self._pending = bytearray(b"\1") * (-(-data.size // REGION_BYTES))
        self.complete = not self._pending

    def verify(self, offset: int, length: int) -> None:
        """Check every region that overlaps [offset, offset+length) and was not checked before.

        Raises CorruptError SEGMENT_CORRUPT naming the region, or if the range is not inside the file.
        """
        if offset < 0 or length < 0 or offset + length > self.ref.bytes:
            raise corrupt(self.ref, f"it refers to bytes {offset} to {offset + length} of {self.ref.bytes}")
        if self.complete or not length:
            return
        pending = self._pending
        region = pending.find(1, offset // REGION_BYTES)
        last = (offset + length - 1) // REGION_BYTES
        if self._cached is not None and 0 <= region <= last:
            self._cached.fetch(missing_regions(self.ref, self._cached, [(offset, length)]))
        while 0 <= region <= last:
            self._check(region)
            pending[region] = 0
            region = pending.find(1, region)
        self.complete = 1 not in pending

    def verify_all(self) -> None:
        """Check every region of the file that was not checked before."""
        self.verify(0, self.ref.bytes)

    def slice(self, offset: int, length: int) -> pa.Buffer:
        """The checked bytes [offset, offset+length), not copied."""
        self.verify(offset, length)
        return self.data.slice(offset, length)

    def offset_of(self, buffer: pa.Buffer) -> int:
        """The offset in the file of a buffer that Arrow returned. Raises CorruptError if it is not a part of the file.

        An empty buffer has no place in the file; its offset is 0.
        """
        if not buffer.size:
            return 0
        offset: int = buffer.address - self.data.address
        if offset < 0 or offset + buffer.size > self.data.size:
            raise corrupt(self.ref, "a column is stored compressed or beyond the end of the file")
        return offset

    def _check(self, region: int) -> None:
        start = region * REGION_BYTES
        stop = min(start + REGION_BYTES, self.ref.bytes)
        actual = xxhash.xxh3_64_hexdigest(self._view[start:stop])
        expected = expected_checksum(self.ref, region)
        if actual != expected and self._cached is not None:  # the copy is damaged, or the object
            self._cached.fetch([region])
            actual = xxhash.xxh3_64_hexdigest(self._view[start:stop])
        if actual != expected:
            raise corrupt(
                self.ref, f"region {region} (bytes {start} to {stop}) has checksum {actual}, the commit says {expected}"
            )


def missing_regions(ref: FileRef, cached: CachedObject, ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the regions of these ranges (offset, length) that have to be fetched, ascending."""
    last = -(-ref.bytes // REGION_BYTES)
    return [region for region in _regions_of(ranges) if 0 <= region < last and not _is_there(ref, cached, region)]


def _regions_of(ranges: Iterable[tuple[int, int]]) -> list[int]:
    found: set[int] = set()
    for offset, length in ranges:
        found.update(range(offset // REGION_BYTES, (offset + length - 1) // REGION_BYTES + 1) if length else ())
    return sorted(found)


def _is_there(ref: FileRef, cached: CachedObject, region: int) -> bool:
    if not cached.is_present(region):
        part = memoryview(cached.buffer)[region * REGION_BYTES : (region + 1) * REGION_BYTES]
        if xxhash.xxh3_64_hexdigest(part) != expected_checksum(ref, region):
            return False
        cached.know(region)
    return True


def expected_checksum(ref: FileRef, region: int) -> str:
    """Return the checksum of a region by the commit."""
    return ref.checksums[region * CHECKSUM_DIGITS : (region + 1) * CHECKSUM_DIGITS]


def corrupt(ref: FileRef, problem: str) -> CorruptError:
    """The error SEGMENT_CORRUPT for this file; ``problem`` describes the damage."""
    return CorruptError(ErrorCode.SEGMENT_CORRUPT, f"{ref.name}: {problem}; restore the file from a copy")


def check_length(ref: FileRef, actual: int) -> None:
    """Raise CorruptError unless a file of ``actual`` bytes has the length of the commit, and checksums for all of
    it."""
    if actual != ref.bytes:
        change = "truncated" if actual < ref.bytes else "too long"
        raise CorruptError(
            ErrorCode.SEGMENT_TRUNCATED,
            f"{ref.name}: {change}: {actual} bytes found, the commit says {ref.bytes}; restore the file from a copy",
        )
    digits = -(-ref.bytes // REGION_BYTES) * CHECKSUM_DIGITS
    if len(ref.checksums) != digits:
        raise corrupt(ref, f"the commit has {len(ref.checksums)} checksum digits for it, expected {digits}")

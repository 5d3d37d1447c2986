"""Checksums per region of a file, verified before its bytes are interpreted.

A flipped bit in an Arrow file is usually silent and sometimes kills the process. So no byte of a mapped file is read
before its region has matched the checksum that the commit recorded. Each region is hashed once per opened file.

Of a file in an object store, regions that do not match their checksums are fetched first
(`statestore.formats.places.object_cache`). Of one with a page table (`page_table`), pages are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import pyarrow as pa
import xxhash

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.object_cache import PAGE_BYTES, CachedObject, Part
from statestore.formats.segments.page_table import PageTable, read_page_table, tail_start
from statestore.formats.segments.segment_meta import FileRef

REGION_BYTES = 1 << 20
"""Unit of the checksums that commits have."""
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
    """The bytes of one immutable file, returned after verification of the regions in which they lie.

    Of a file in an object store that has a page table, pages take the place of regions. Raises CorruptError
    SEGMENT_TRUNCATED at once if the file does not have the recorded length. Safe to share between threads: a race can
    only cause a region to be hashed twice.
    """

    def __init__(self, ref: FileRef, data: pa.Buffer | CachedObject) -> None:
        check_length(ref, data.size)
        self.ref = ref
        self._cached = data if isinstance(data, CachedObject) else None
        self.data: pa.Buffer = data.buffer if isinstance(data, CachedObject) else data
        self._view = memoryview(self.data)
        self._table: PageTable | None = None
        self._unit, self._end = REGION_BYTES, ref.bytes
        if self._cached is not None and ref.tail_checksum:
            self._unit, self._end = PAGE_BYTES, tail_start(ref)
        self._pending = bytearray(b"\1") * (-(-self._end // self._unit))
        self.complete = not self._pending

    @property
    def metadata_ranges(self) -> tuple[tuple[int, int], ...]:
        """The metadata ranges of the file (`FileRef`), those of the batches from the page table if it has them."""
        ranges = self.ref.metadata_ranges
        if len(ranges) != 2 or not self.ref.tail_checksum:
            return ranges
        return (ranges[0], *self._page_table().framings, ranges[1])

    def marks(self, count: int, *, also_local: bool = False) -> Ints | None:
        """Return the marks of the page table (`PageTable`) if there are so many, else None.

        Those of a local file are not used, so they are returned only if they are asked for.
        """
        if self._unit == REGION_BYTES and not (also_local and self.ref.tail_checksum):
            return None
        marks = self._page_table().marks
        return marks if len(marks) == count else None

    def verify(self, offset: int, length: int) -> None:
        """Check every region that overlaps [offset, offset+length) and was not checked before.

        Raises CorruptError SEGMENT_CORRUPT naming the region, or if the range is not inside the file.
        """
        if offset < 0 or length < 0 or offset + length > self.ref.bytes:
            raise corrupt(self.ref, f"it refers to bytes {offset} to {offset + length} of {self.ref.bytes}")
        if self.complete or not length:
            return
        unit, pending = self._unit, self._pending
        if unit == PAGE_BYTES and self._table is None:
            self._page_table()
        if offset >= self._end:  # verified with the table
            return
        region = pending.find(1, offset // unit)
        last = (min(offset + length, self._end) - 1) // unit
        if 0 <= region <= last and self._cached is not None:
            self._fetch(self._cached, offset, length)
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

    def _fetch(self, cached: CachedObject, offset: int, length: int) -> None:
        unit = self._unit
        stop = min(-(-(offset + length) // unit) * unit, self._end)
        if not cached.is_present(offset // unit * unit, stop):
            cached.fetch(missing_parts(self.ref, cached, [(offset, length)]))

    def _page_table(self) -> PageTable:
        """Return the page table, which is fetched and verified when it is first needed."""
        if self._table is not None:
            return self._table
        end = tail_start(self.ref)
        if self._cached is None:
            self._table = read_page_table(self.ref, self._view[end:])
        else:
            self._table = known_table(self.ref, self._cached)
            if self._table is None:
                self._cached.fetch([(end, self.ref.bytes)])
                self._table = known_table(self.ref, self._cached)
        if self._table is None:
            actual = xxhash.xxh3_64_hexdigest(self._view[end:])
            raise corrupt(
                self.ref,
                f"its end (bytes {end} to {self.ref.bytes}) has checksum {actual}, the commit says "
                f"{self.ref.tail_checksum}",
            )
        return self._table

    def _check(self, region: int) -> None:
        start, stop = region * self._unit, min((region + 1) * self._unit, self._end)
        paged = self._unit == PAGE_BYTES
        expected = self._page_table().checksum(region) if paged else expected_checksum(self.ref, region)
        actual = xxhash.xxh3_64_hexdigest(self._view[start:stop])
        if actual != expected and self._cached is not None:  # the copy is damaged, or the object
            self._cached.fetch([(start, stop)])
            actual = xxhash.xxh3_64_hexdigest(self._view[start:stop])
        if actual != expected:
            what, where = ("page", "its page table") if paged else ("region", "the commit")
            raise corrupt(
                self.ref, f"{what} {region} (bytes {start} to {stop}) has checksum {actual}, {where} says {expected}"
            )


def missing_parts(ref: FileRef, cached: CachedObject, ranges: Iterable[tuple[int, int]]) -> list[Part]:
    """Return the parts that have to be fetched before these ranges (offset, length) can be verified.

    They are whole regions, or pages and the end of the file, which has the page table.
    """
    if not ref.tail_checksum:
        regions = _units(ranges, REGION_BYTES, ref.bytes)
        return [part for n, part in regions if not _is_there(cached, part, partial(expected_checksum, ref, n))]
    end, table = tail_start(ref), known_table(ref, cached)
    pages = _units(ranges, PAGE_BYTES, end)
    if table is None:
        return [*(part for _, part in pages if not cached.is_present(*part)), (end, ref.bytes)]
    return [part for n, part in pages if not _is_there(cached, part, partial(table.checksum, n))]


def known_table(ref: FileRef, cached: CachedObject) -> PageTable | None:
    """Return the page table of a file in an object store; None if it is not in the copy."""
    kept = cached.described
    if isinstance(kept, tuple) and kept[0] == ref:
        found: PageTable = kept[1]
        return found
    table = read_page_table(ref, memoryview(cached.buffer)[tail_start(ref) :])
    if table is not None:
        cached.described = ref, table
    return table


def _units(ranges: Iterable[tuple[int, int]], unit: int, end: int) -> list[tuple[int, Part]]:
    """Return (number, part) of each region or page of ``unit`` bytes that ranges touch before ``end``, ascending."""
    found: set[int] = set()
    for offset, length in ranges:
        found.update(range(max(offset // unit, 0), -(-min(offset + length, end) // unit)) if length > 0 else ())
    return [(number, (number * unit, min((number + 1) * unit, end))) for number in sorted(found)]


def _is_there(cached: CachedObject, part: Part, expected: Callable[[], str]) -> bool:
    start, stop = part
    if not cached.is_present(start, stop):
        if cached.is_hole(start, stop) or xxhash.xxh3_64_hexdigest(memoryview(cached.buffer)[start:stop]) != expected():
            return False
        cached.know(start, stop)
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

"""The page table of a data file: checksums of its pages of 16 KiB, and numbers that say where to look in it.

The log has a checksum for each MiB of a file, which is cheap to keep and dear to fetch where a read needs a few rows.
Files in object stores therefore end with a table of finer checksums, between the record batches and the footer of
Arrow, which no Arrow reader looks at. The log has the checksum of this end of the file (docs/format.md, "Page table").
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.places.object_cache import PAGE_BYTES
from statestore.formats.segments.segment_meta import FileRef

PAGED_FILE_BYTES = 1 << 20  # a file that is not larger is fetched whole, and has no table
MARKED_ENTRIES = 2048  # of a key index, from one mark to the next
_END_BYTES = 8  # the marker behind the last record batch, with which the end of a file begins
_HEADER = struct.Struct("<8sIIII")
_MAGIC = b"SSPAGES\x01"


@dataclass(frozen=True)
class PageTable:
    """Checksums (xxh3-64) of the pages before ``end``, and the marks of the file.

    The last page may be shorter than PAGE_BYTES. Marks are, of a segment, the first ``valid_from`` of each record batch
    in epoch microseconds; of a key index, each hash that is MARKED_ENTRIES behind the last one; else there are none.
    ``framings`` are the metadata ranges of the record batches where the commit does not have them.
    """

    end: int
    checksums: npt.NDArray[np.uint64]
    marks: Ints
    framings: tuple[tuple[int, int], ...]

    def checksum(self, page: int) -> str:
        """Return the checksum of a page in 16 hex digits."""
        return f"{int(self.checksums[page]):016x}"


def with_page_table(
    data: pa.Buffer, end: int, marks: Ints, framings: Sequence[tuple[int, int]]
) -> tuple[pa.Buffer, str]:
    """Return the bytes of an Arrow file with a page table, and the checksum of all of them behind the batches.

    ``end``: the position behind the last record batch.
    """
    view = memoryview(data)
    pages = [xxhash.xxh3_64_intdigest(view[at : min(at + PAGE_BYTES, end)]) for at in range(0, end, PAGE_BYTES)]
    table = _HEADER.pack(_MAGIC, PAGE_BYTES, len(pages), len(marks), len(framings))
    table += np.array(pages, "<u8").tobytes() + marks.astype("<i8").tobytes() + np.array(framings, "<i8").tobytes()
    tail = b"".join([view[end : end + _END_BYTES], table, view[end + _END_BYTES :]])
    return pa.py_buffer(b"".join([view[:end], tail])), xxhash.xxh3_64_hexdigest(tail)


def tail_start(ref: FileRef) -> int:
    """Return where the end of a file begins, which has the page table. Raises CorruptError SEGMENT_CORRUPT."""
    if len(ref.metadata_ranges) < 2 or sum(ref.metadata_ranges[-1]) != ref.bytes or ref.metadata_ranges[-1][0] < 1:
        raise _corrupt(ref, "the commit does not say where its page table is")
    return ref.metadata_ranges[-1][0]


def read_page_table(ref: FileRef, tail: memoryview) -> PageTable | None:
    """Return the page table in the end of a file; None if the bytes are not those that were committed.

    Raises CorruptError SEGMENT_CORRUPT if they are, and are no page table of this file.
    """
    if xxhash.xxh3_64_hexdigest(tail) != ref.tail_checksum:
        return None
    end = tail_start(ref)
    table = tail[_END_BYTES:]
    if len(table) < _HEADER.size:
        raise _corrupt(ref, "its page table is cut")
    magic, page, pages, marks, batches = _HEADER.unpack_from(table)
    if magic != _MAGIC or page != PAGE_BYTES or pages != -(-end // PAGE_BYTES):
        raise _corrupt(ref, f"it has no page table of {-(-end // PAGE_BYTES)} pages")
    if len(table) < _HEADER.size + 8 * (pages + marks + 2 * batches):
        raise _corrupt(ref, "its page table is cut")
    checksums = np.frombuffer(table, "<u8", pages, _HEADER.size).copy()
    at = _HEADER.size + 8 * pages
    framings = np.frombuffer(table, "<i8", 2 * batches, at + 8 * marks).reshape(-1, 2).tolist()
    return PageTable(end, checksums, np.frombuffer(table, "<i8", marks, at).copy(), tuple(map(tuple, framings)))


def check_pages(ref: FileRef, data: memoryview) -> None:
    """Raise CorruptError SEGMENT_CORRUPT unless the end of a file is the committed one, and its pages those of its
    table.
    """
    table = read_page_table(ref, data[tail_start(ref) :])
    if table is None:
        raise _corrupt(ref, "its end does not have the checksum of the commit")
    for page, start in enumerate(range(0, table.end, PAGE_BYTES)):
        actual = xxhash.xxh3_64_hexdigest(data[start : min(start + PAGE_BYTES, table.end)])
        if actual != table.checksum(page):
            raise _corrupt(ref, f"page {page} has checksum {actual}, its page table says {table.checksum(page)}")


def _corrupt(ref: FileRef, problem: str) -> CorruptError:
    return CorruptError(ErrorCode.SEGMENT_CORRUPT, f"{ref.name}: {problem}; restore the file from a copy")

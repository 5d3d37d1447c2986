"""Key index of a segment: 64-bit key hashes in ascending order, each with the row that may hold the key.

Several keys may share a hash, so callers compare the keys themselves. docs/format.md specifies the file.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from math import isqrt

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kernels.arrays import Hashes
from statestore.formats.segments.ipc_file import encode_file, fixed_width_data, open_file
from statestore.formats.segments.regions import VerifiedBytes, corrupt
from statestore.formats.segments.segment_meta import FileRef

Rows = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]

FORMAT_KEY, FORMAT = b"statestore.format", b"key-index/1"
SCHEMA = pa.schema(
    [pa.field("key_hash", pa.uint64(), nullable=False), pa.field("row", pa.uint32(), nullable=False)],
    {FORMAT_KEY: FORMAT},
)
MAX_ROWS = 1 << 32
BUCKET_ENTRIES = 8


def encode_index(name: str, hashes: Hashes) -> tuple[pa.Buffer, FileRef]:
    """Encode the index file of a segment whose row ``i`` has the key hash ``hashes[i]``."""
    return encode_file(name, SCHEMA, [entries_batch(*_with_rows(hashes))])


def entries_batch(hashes: Hashes, rows: Rows) -> pa.RecordBatch:
    """Return the content of an index file: hashes ascending, and rows ascending where hashes are equal."""
    return pa.RecordBatch.from_arrays([pa.array(hashes), pa.array(rows)], schema=SCHEMA)


@dataclass(frozen=True)
class _IndexFile:
    """A mapped index file, and the offsets of its two columns."""

    bytes: VerifiedBytes
    hash_offset: int
    row_offset: int


class KeyIndex:
    """A key index, mapped from its file or made in memory. Rows of one hash are in ascending order.

    Entries are checked when they are first used, so every method may raise CorruptError SEGMENT_CORRUPT.
    """

    def __init__(self, hashes: Hashes, rows: Rows, unverified: _IndexFile | None = None) -> None:
        self._hashes = hashes
        self._rows = rows
        self._name = unverified.bytes.ref.name if unverified else "in memory"
        self._unverified = unverified
        self._hash_view = hashes.data
        self._row_view = rows.data
        self._count = len(hashes)
        # Distinct hashes are uniform: a hash lies within 2 * sqrt(count) entries (4 standard deviations) of its share.
        self._reach = 2 * isqrt(self._count) + 2

    @classmethod
    def open(cls, ref: FileRef, data: pa.Buffer) -> KeyIndex:
        """Open an index file. Raises CorruptError if it is not a key index of the recorded length and checksums."""
        verified = VerifiedBytes(ref, data)
        _, batches = open_file(verified, partial(_check_schema, ref))
        if len(batches) != 1:
            raise corrupt(ref, f"not a key index ({FORMAT.decode()})")
        hashes, rows = (fixed_width_data(verified, column) for column in batches[0].columns)
        if 8 * batches[0].num_rows != hashes.size or 4 * batches[0].num_rows != rows.size:
            raise corrupt(ref, "its columns are not of one length")
        return cls(
            np.frombuffer(hashes, dtype=np.uint64),
            np.frombuffer(rows, dtype=np.uint32),
            _IndexFile(verified, verified.offset_of(hashes), verified.offset_of(rows)),
        )

    @classmethod
    def build(cls, hashes: Hashes) -> KeyIndex:
        """Build the index of a segment in memory; its row ``i`` has the key hash ``hashes[i]``."""
        return cls(*_with_rows(hashes))

    @property
    def entries(self) -> int:
        """Number of rows in the index."""
        return self._count

    @property
    def hashes(self) -> Hashes:
        """All hashes, ascending."""
        self._verify_bytes()
        return self._hashes

    @property
    def rows(self) -> Rows:
        """The row of each entry of ``hashes``."""
        self._verify_bytes()
        return self._rows

    def find(self, hash: int) -> list[int]:
        """Rows whose keys have this hash, ascending."""
        if self._unverified is not None:
            self._verify_near(self._unverified, hash)
        hashes, count, reach = self._hash_view, self._count, self._reach
        guess = (hash * count) >> 64
        low, high = guess - reach if guess > reach else 0, guess + reach
        if high > count:
            high = count
        entry = bisect_left(hashes, hash, low, high)
        if entry in (low, high):  # the entry may lie outside the expected range: search everywhere
            entry = bisect_left(hashes, hash)
        if entry == count or hashes[entry] != hash:
            return []
        found = [self._row_view[entry]]
        entry += 1
        while entry < count and hashes[entry] == hash:
            found.append(self._row_view[entry])
            entry += 1
        if max(found) >= count:
            raise self._corrupt(f"it has row {max(found)} of a segment of {count}")
        return found

    def memory_views(self) -> tuple[memoryview, memoryview, memoryview, int]:
        """(hashes ascending, the row of each, directory, shift), all of it checked.

        Entries of a hash lie from ``directory[hash >> shift]`` to before ``directory[(hash >> shift) + 1]``, among some
        eight others. A search there touches two cache lines; a search of the whole index touches a dozen. These arrays
        serve point reads that cannot afford a call for each segment either. The directory takes half a byte a row, and
        is made here.
        """
        self._verify_bytes()
        bits = max(self._count // BUCKET_ENTRIES, 1).bit_length() - 1
        shift = 64 - bits
        if not bits:  # Python's integers can be shifted by 64, numpy's cannot
            return self._hash_view, self._row_view, np.array([0, self._count], np.uint32).data, shift
        borders = np.arange(1 << bits, dtype=np.uint64) << np.uint64(shift)
        directory = np.append(np.searchsorted(self._hashes, borders), self._count).astype(np.uint32)
        return self._hash_view, self._row_view, directory.data, shift

    def match(self, probes: Hashes) -> tuple[Positions, Rows]:
        """(position in ``probes``, row) of every pair of equal hashes, in ascending order of hash."""
        order = None if _ascending(probes) else np.argsort(probes)
        ordered = probes if order is None else probes[order]
        hashes = self.hashes
        first = np.searchsorted(hashes, ordered, side="left")
        hits = np.flatnonzero(first < self._count)
        hits = hits[hashes[first[hits]] == ordered[hits]]
        first = first[hits]
        # Most keys that a writer looks up are new, so the last entry is searched only for those that were found.
        counts = np.searchsorted(hashes, ordered[hits], side="right") - first
        positions = np.repeat(hits if order is None else order[hits], counts)
        entries = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(len(positions))
        return positions, self._rows[entries]

    def ranges(self, probes: Hashes) -> tuple[Positions, Positions]:
        """The begin and end of each probe's entries in ``hashes`` and ``rows``; rows ascend within them."""
        order = np.argsort(probes)
        first, last = np.empty(len(probes), np.int64), np.empty(len(probes), np.int64)
        first[order] = np.searchsorted(self.hashes, probes[order], side="left")
        last[order] = np.searchsorted(self.hashes, probes[order], side="right")
        return first, last

    def verify_all(self) -> None:
        """Check every byte, that the hashes ascend and that each row occurs once."""
        self._verify_bytes()
        if not np.array_equal(np.sort(self._rows), np.arange(self._count, dtype=np.uint32)):
            raise self._corrupt("it does not hold each row once")

    def _verify_near(self, file: _IndexFile, hash: int) -> None:
        """Check the entries near the hash, or all entries unless smaller and greater hashes surround it there."""
        guess = (hash * self._count) >> 64
        low, high = max(guess - self._reach, 0), min(guess + self._reach, self._count)
        file.bytes.verify(file.hash_offset + 8 * low, 8 * (high - low))
        file.bytes.verify(file.row_offset + 4 * low, 4 * (high - low))
        if file.bytes.complete or self._hash_view[low] >= hash or self._hash_view[high - 1] <= hash:
            self._verify_bytes()

    def _verify_bytes(self) -> None:
        if self._unverified is not None:
            self._unverified.bytes.verify_all()
            self._check_entries()
            self._unverified = None

    def _check_entries(self) -> None:
        """Check the order of hashes and the range of rows, on which searches by the index rely."""
        if not _ascending(self._hashes):
            raise self._corrupt("its hashes do not ascend")
        if self._count and (most := int(self._rows.max())) >= self._count:
            raise self._corrupt(f"it has row {most} of a segment of {self._count}")

    def _corrupt(self, found: str) -> CorruptError:
        return CorruptError(ErrorCode.SEGMENT_CORRUPT, f"{self._name}: {found}; restore the file from a copy")


def _check_schema(ref: FileRef, stored: pa.Schema) -> None:
    if not stored.equals(SCHEMA, check_metadata=True):
        raise corrupt(ref, f"not a key index ({FORMAT.decode()})")


def _ascending(hashes: Hashes) -> bool:
    return bool(np.all(hashes[1:] >= hashes[:-1]))


def _with_rows(hashes: Hashes) -> tuple[Hashes, Rows]:
    """The hashes in ascending order and the position of each; equal hashes in ascending order of position."""
    if len(hashes) >= MAX_ROWS:
        raise InvalidInputError(
            ErrorCode.INVALID_SEGMENT, f"{len(hashes)} rows do not fit a key index; write fewer than 2^32"
        )
    order = np.argsort(hashes)
    ordered = hashes[order]
    # numpy's stable sort of 64-bit integers is four times slower than sorting twice without stability.
    run = np.zeros(len(hashes), dtype=np.uint64)
    np.cumsum(ordered[1:] != ordered[:-1], out=run[1:], dtype=np.uint64)
    numbered = np.sort((run << np.uint64(32)) | order.astype(np.uint64))
    return ordered, numbered.astype(np.uint32)

"""Key index of a segment: 64-bit key hashes in ascending order, each with the row that may hold the key.

Several keys may share a hash, so callers compare the keys themselves. docs/format.md specifies the file.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError
from statestore.formats.kernels.arrays import Hashes
from statestore.formats.segments.decoded_columns import decoded
from statestore.formats.segments.ipc_file import encode_file, fixed_width_data, open_file, verify_column
from statestore.formats.segments.regions import VerifiedBytes, corrupt
from statestore.formats.segments.segment_meta import FileRef
from statestore.formats.values.packed_sort import sorted_with_positions
from statestore.formats.values.without_pandas import arrow_numbers

Rows = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]
Groups = npt.NDArray[np.int32]

FORMAT_KEY, FORMAT = b"statestore.format", b"key-index/1"
SCHEMA = pa.schema(
    [pa.field("key_hash", pa.uint64(), nullable=False), pa.field("row", pa.uint32(), nullable=False)],
    {FORMAT_KEY: FORMAT},
)
FORMAT_OF_GROUPS = b"key-index/2"  # each hash once
SCHEMA_OF_GROUPS = pa.schema(
    [
        pa.field("key_hash", pa.uint64(), nullable=False),
        pa.field("rows", pa.list_(pa.field("row", pa.uint32(), nullable=False)), nullable=False),
    ],
    {FORMAT_KEY: FORMAT_OF_GROUPS},
)
MAX_ROWS = 1 << 32
MAX_GROUPED_ROWS = 1 << 31  # offsets are 32 bits wide and signed
BUCKET_ENTRIES = 8


def encode_index(name: str, hashes: Hashes, *, grouped: bool = False, paged: bool = False) -> tuple[pa.Buffer, FileRef]:
    """Encode the index file of a segment whose row ``i`` has the key hash ``hashes[i]``.

    With ``grouped``, each hash is stored once, if that makes the file smaller. ``paged`` as in `encode_file`.
    """
    batch = index_batch(*_with_rows(hashes), grouped=grouped)
    return encode_file(name, batch.schema, [batch], paged=paged)


def entries_batch(hashes: Hashes, rows: Rows) -> pa.RecordBatch:
    """Return the content of an index file: hashes ascending, and rows ascending where hashes are equal."""
    return pa.RecordBatch.from_arrays([arrow_numbers(hashes), arrow_numbers(rows)], schema=SCHEMA)


def index_batch(hashes: Hashes, rows: Rows, *, grouped: bool) -> pa.RecordBatch:
    """Return the content of an index file as `entries_batch` does; ``grouped`` as in `encode_index`."""
    batch = _groups_batch(hashes, rows) if grouped else None
    return entries_batch(hashes, rows) if batch is None else batch


def _groups_batch(hashes: Hashes, rows: Rows) -> pa.RecordBatch | None:
    """Return the content of an index file with each hash once and the list of its rows; None if it is not smaller."""
    starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1])) if len(hashes) else np.empty(0, np.int64)
    if 12 * len(starts) + 4 >= 8 * len(hashes) or len(hashes) >= MAX_GROUPED_ROWS:
        return None
    offsets = pa.array(np.append(starts, len(hashes)).astype(np.int32))
    groups = pa.ListArray.from_arrays(offsets, pa.array(rows), type=SCHEMA_OF_GROUPS.field("rows").type)
    return pa.RecordBatch.from_arrays([pa.array(hashes[starts]), groups], schema=SCHEMA_OF_GROUPS)


@dataclass(frozen=True)
class _IndexFile:
    """A mapped index file, and the offsets of its two columns."""

    bytes: VerifiedBytes
    hash_offset: int
    row_offset: int


class KeyIndex:
    """A key index, mapped from its file or made in memory. Rows of one hash are in ascending order.

    Entries are checked when they are first used, so every method may raise CorruptError SEGMENT_CORRUPT. With
    ``groups``, ``hashes`` has each hash once, and the rows of number ``i`` go from ``groups[i]`` to ``groups[i + 1]``.
    """

    def __init__(
        self, hashes: Hashes, rows: Rows, unverified: _IndexFile | None = None, groups: Groups | None = None
    ) -> None:
        self._hashes = hashes
        self._rows = rows
        self._groups = groups
        self._owner = -1 if groups is None else decoded.keep_for(self)
        self._name = unverified.bytes.ref.name if unverified else "in memory"
        self._unverified = unverified
        self._hash_view = hashes.data
        self._row_view = rows.data
        self._count = len(rows)
        # Distinct hashes are uniform: a hash lies within 2 * sqrt(count) entries (4 standard deviations) of its share.
        self._reach = 2 * isqrt(self._count) + 2

    @classmethod
    def open(cls, ref: FileRef, data: pa.Buffer) -> KeyIndex:
        """Open an index file. Raises CorruptError if it is not a key index of the recorded length and checksums."""
        verified = VerifiedBytes(ref, data)
        schema, batches = open_file(verified, partial(check_schema, ref))
        if len(batches) != 1:
            raise corrupt(ref, f"not a key index ({FORMAT.decode()})")
        if schema.metadata[FORMAT_KEY] == FORMAT_OF_GROUPS:
            return cls(*_grouped(verified, batches[0]))
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
        """The hash of each entry, ascending: those of the file, or a copy that is kept for a while."""
        self._verify_bytes()
        groups = self._groups
        if groups is None:
            return self._hashes

        def repeated() -> tuple[Hashes, int]:
            hashes = np.repeat(self._hashes, np.diff(groups))
            hashes.flags.writeable = False
            return hashes, hashes.nbytes

        kept: Hashes = decoded.get((self._owner,), repeated)
        return kept

    @property
    def rows(self) -> Rows:
        """The row of each entry of ``hashes``."""
        self._verify_bytes()
        return self._rows

    @property
    def is_grouped(self) -> bool:
        """Return whether `hashes` has to be made from a shorter form, which `ranges` does not need."""
        return self._groups is not None

    def find(self, hash: int) -> list[int]:
        """Rows whose keys have this hash, ascending."""
        if self._groups is not None:
            number = bisect_left(self._hash_view, hash)
            if number == len(self._hashes) or self._hash_view[number] != hash:
                return []
            found: list[int] = self._rows[self._groups[number] : self._groups[number + 1]].tolist()
            return found
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
        hashes = self.hashes
        if not bits:  # Python's integers can be shifted by 64, numpy's cannot
            return hashes.data, self._row_view, np.array([0, self._count], np.uint32).data, shift
        borders = np.arange(1 << bits, dtype=np.uint64) << np.uint64(shift)
        directory = np.append(self._first(borders), self._count).astype(np.uint32)
        return hashes.data, self._row_view, directory.data, shift

    def match(self, probes: Hashes) -> tuple[Positions, Rows]:
        """(position in ``probes``, row) of every pair of equal hashes, in ascending order of hash."""
        order = None if _ascending(probes) else np.argsort(probes)
        ordered = probes if order is None else probes[order]
        self._verify_bytes()
        hashes, groups = self._hashes, self._groups
        at = np.searchsorted(hashes, ordered, side="left")
        hits = np.flatnonzero(at < len(hashes))
        hits = hits[hashes[at[hits]] == ordered[hits]]
        first = at[hits]
        if groups is None:
            # Most keys that a writer looks up are new, so the last entry is searched only for those that were found.
            counts = np.searchsorted(hashes, ordered[hits], side="right") - first
        else:
            first, counts = groups[first].astype(np.int64), (groups[first + 1] - groups[first]).astype(np.int64)
        positions = np.repeat(hits if order is None else order[hits], counts)
        entries = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(len(positions))
        return positions, self._rows[entries]

    def ranges(self, probes: Hashes) -> tuple[Positions, Positions]:
        """The begin and end of each probe's entries in ``hashes`` and ``rows``; rows ascend within them."""
        order = np.argsort(probes)
        first, last = np.empty(len(probes), np.int64), np.empty(len(probes), np.int64)
        self._verify_bytes()
        first[order] = self._first(probes[order])
        last[order] = self._first(probes[order], "right")
        return first, last

    def _first(self, probes: Hashes, side: Literal["left", "right"] = "left") -> Positions:
        """Return the first entry whose hash is not less than each probe, or (``right``) is greater."""
        at = np.searchsorted(self._hashes, probes, side=side)
        return at if self._groups is None else self._groups[at].astype(np.int64)

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


def _grouped(verified: VerifiedBytes, batch: pa.RecordBatch) -> tuple[Hashes, Rows, None, Groups]:
    """Return hashes, rows and the bounds of groups of a file with each hash once, all of it checked."""
    hashes, lists = (verify_column(verified, batch, position) for position in (0, 1))
    if lists.values.null_count:
        raise corrupt(verified.ref, f"it has {lists.values.null_count} null rows")
    numbers, groups, rows = hashes.to_numpy(), lists.offsets.to_numpy(), lists.values.to_numpy()
    found = None
    if len(numbers) and not bool(np.all(numbers[1:] > numbers[:-1])):
        found = "its hashes do not ascend"
    elif not len(numbers) or groups[0] != 0 or groups[-1] != len(rows) or bool(np.any(groups[1:] <= groups[:-1])):
        found = "its hashes do not have all of its rows"
    elif (most := int(rows.max())) >= len(rows):
        found = f"it has row {most} of a segment of {len(rows)}"
    if found is not None:
        raise corrupt(verified.ref, found)
    return numbers, rows, None, groups


def check_schema(ref: FileRef, stored: pa.Schema) -> None:
    """Raise CorruptError SEGMENT_CORRUPT unless a file has the columns of a key index."""
    if not any(stored.equals(known, check_metadata=True) for known in (SCHEMA, SCHEMA_OF_GROUPS)):
        raise corrupt(ref, f"not a key index ({FORMAT.decode()})")


def _ascending(hashes: Hashes) -> bool:
    return bool(np.all(hashes[1:] >= hashes[:-1]))


def _with_rows(hashes: Hashes) -> tuple[Hashes, Rows]:
    """The hashes in ascending order and the position of each; equal hashes in ascending order of position."""
    if len(hashes) >= MAX_ROWS:
        raise InvalidInputError(
            ErrorCode.INVALID_SEGMENT, f"{len(hashes)} rows do not fit a key index; write fewer than 2^32"
        )
    ordered, position = sorted_with_positions(hashes)
    return ordered, position.astype(np.uint32)

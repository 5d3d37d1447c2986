"""A key index of which only the regions near one hash are read, as a point read of an object store needs it.

Hashes are uniform, so the entries of a hash lie near its share of the index. `KeyIndex` reads the same files whole.
"""

from __future__ import annotations

from functools import partial
from math import isqrt

import numpy as np
import pyarrow as pa

from statestore.formats.places.object_cache import CachedObject
from statestore.formats.segments.ipc_file import fixed_width_data, open_file
from statestore.formats.segments.key_index import FORMAT_KEY, FORMAT_OF_GROUPS, check_schema
from statestore.formats.segments.page_table import MARKED_ENTRIES
from statestore.formats.segments.regions import VerifiedBytes, corrupt
from statestore.formats.segments.segment_meta import FileRef

_WINDOW = 1 << 10  # entries that are compared at a time


class RemoteKeyIndex:
    """A key index over its file; bytes are verified, and fetched, as they are read.

    Raises CorruptError SEGMENT_CORRUPT for a file that is not a key index of so many ``rows``.
    """

    def __init__(self, ref: FileRef, data: pa.Buffer | CachedObject, rows: int) -> None:
        self._verified = VerifiedBytes(ref, data)
        schema, batches = open_file(self._verified, partial(check_schema, ref))
        if len(batches) != 1:
            raise corrupt(ref, "it is not a key index of one batch")
        hashes, others = batches[0].columns
        self.rows = rows
        self._is_grouped = schema.metadata[FORMAT_KEY] == FORMAT_OF_GROUPS
        self._hashes = self._offset(hashes)
        self._count = len(hashes)
        self._groups = -1
        if self._is_grouped:
            offsets = others.buffers()[1]
            if offsets is None or offsets.size < 4 * (self._count + 1):
                raise corrupt(ref, "it has too few groups")
            self._groups = self._verified.offset_of(offsets)
            self._rows, stored = self._offset(others.values), len(others.values)
        else:
            self._rows, stored = self._offset(others), len(others)
        if stored != rows or (not self._is_grouped and self._count != rows):
            raise corrupt(ref, f"it has {stored} entries, the segment has {rows} rows")

    def near(self, hash: int) -> list[tuple[int, int]]:
        """Return where the entries of a hash most likely lie, as (offset, length)."""
        low, high = self._window(hash)
        found = [(self._hashes + 8 * low, 8 * (high - low))]
        if self._is_grouped:
            found.append((self._groups + 4 * low, 4 * (high - low + 1)))
        if self._is_grouped:
            low, high = self._share(hash, self.rows)
        return [*found, (self._rows + 4 * low, 4 * (high - low))]

    def find(self, hash: int) -> list[int]:
        """Return the rows whose keys have this hash, ascending."""
        first = self._first(hash)
        stop = first
        while stop < self._count and self._hash(stop) == hash:
            stop += 1
            if self._is_grouped:
                break  # each hash is there once
        if first == stop:
            return []
        if self._is_grouped:
            begin, end = self._numbers(self._groups, first, first + 2, np.dtype(np.int32)).tolist()
            if not 0 <= begin < end <= self.rows:
                raise corrupt(self._verified.ref, f"its hash {first} has the rows {begin} to {end} of {self.rows}")
        else:
            begin, end = first, stop
        found: list[int] = self._numbers(self._rows, begin, end, np.dtype(np.uint32)).tolist()
        if max(found) >= self.rows:
            raise corrupt(self._verified.ref, f"it has row {max(found)} of a segment of {self.rows}")
        return found

    def _first(self, hash: int) -> int:
        """Return the first entry whose hash is not less: a search that begins at the hash's share."""
        low, high = self._window(hash)
        if low > 0 and self._hash(low) >= hash:
            low, high = 0, low
        elif high < self._count and self._hash(high - 1) < hash:
            low, high = high, self._count
        while high - low > _WINDOW:
            middle = (low + high) // 2
            if self._hash(middle) < hash:
                low = middle + 1
            else:
                high = middle
        window = self._numbers(self._hashes, low, high, np.dtype(np.uint64))
        if (window[1:] < window[:-1]).any():
            raise corrupt(self._verified.ref, "its hashes do not ascend")
        return low + int(np.searchsorted(window, np.uint64(hash)))

    def _hash(self, entry: int) -> int:
        return int(self._numbers(self._hashes, entry, entry + 1, np.dtype(np.uint64))[0])

    def _numbers(self, offset: int, first: int, stop: int, kind: np.dtype[np.generic]) -> np.ndarray:
        data = self._verified.slice(offset + kind.itemsize * first, kind.itemsize * (stop - first))
        return np.frombuffer(data, kind)

    def _offset(self, column: pa.Array) -> int:
        return self._verified.offset_of(fixed_width_data(self._verified, column))

    def _window(self, hash: int) -> tuple[int, int]:
        """Return the entries [low, high) among which a hash lies: by marks, else by its share.

        Where keys have many rows, a hash may lie far from its share.
        """
        marks = self._verified.marks(-(-self._count // MARKED_ENTRIES))
        if marks is None:
            return self._share(hash, self._count)
        hashes, wanted = marks.view(np.uint64), np.uint64(hash)
        first, last = int(hashes.searchsorted(wanted)), int(hashes.searchsorted(wanted, "right"))
        return max(first - 1, 0) * MARKED_ENTRIES, min(last * MARKED_ENTRIES + 1, self._count)

    @staticmethod
    def _share(hash: int, count: int) -> tuple[int, int]:
        """Return the entries [low, high) among which a hash lies with four standard deviations."""
        reach, guess = 2 * isqrt(count) + 2, (hash * count) >> 64
        return max(guess - reach, 0), min(guess + reach, count)

"""Records of a commit that is too large to be resolved at once, and their division by ranges of the keys' hashes.

The keys of a range have no others to do with, so ranges can be resolved one after the other, against one version of the
store. The records stay in the batches in which they came; those of one range are copied out of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.commits.publish_commit import WrittenRows
from statestore.catalog.commits.ranges.range_by_range import write_ranges
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.values.key_hash import hash_keys

MEMORY = 512 << 20  # bytes in which the records of a commit, or of one range, are resolved and encoded
COPIES = 4  # of the columns: the records, the rows by start, the encoded file, and one while chunks are joined
ROW_BYTES = 320  # of one record beside its columns: hash, order, group, times, ends, and the index of the new segment
BITS = 16  # upper bits of the hashes that ranges are made of
BIN_BYTES = 2

Range = tuple[int, int]  # first and last value of the upper bits


@dataclass(frozen=True)
class DividedRecords:
    """Accepted writes in the order of their acknowledgement, as batches of a record schema with ``width`` key columns.

    ``joined`` makes the Records of a table. ``budget`` is the memory in which a range is resolved.
    """

    batches: tuple[pa.RecordBatch, ...]
    width: int
    joined: Callable[[pa.Table], Records]
    budget: int

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self.batches)

    def all(self) -> Records:
        """Return all records at once, for commits that cannot be divided."""
        return self.joined(pa.Table.from_batches(self.batches))

    def write(self, files: SegmentFiles, log_state: LogState, claimed: str) -> WrittenRows:
        """Write them as rows of the version after ``log_state``, range by range; leave no file if that fails."""
        return write_ranges(files, log_state, self.ranges(), len(self), claimed)

    def ranges(self) -> Iterator[Records]:
        """Yield the records of one range after the other; all records of a key are in one range."""
        for first, last in self._bounds():
            yield self._within(first, last)

    @cached_property
    def _bins(self) -> list[npt.NDArray[np.uint16]]:
        """The upper bits of the hash of each record."""
        shift = np.uint64(64 - BITS)
        return [(hash_keys(batch.columns[: self.width]) >> shift).astype(np.uint16) for batch in self.batches]

    def _bounds(self) -> list[Range]:
        counts, sizes = np.zeros(1 << BITS, np.int64), np.zeros(1 << BITS)
        for batch, bins in zip(self.batches, self._bins, strict=True):
            mine = np.bincount(bins, minlength=1 << BITS)
            counts += mine
            sizes += mine * (needed(batch) / max(batch.num_rows, 1))
        through = np.cumsum(sizes)
        bounds, first, before = [], 0, 0.0
        while first < len(counts):
            last = max(int(np.searchsorted(through, before + self.budget, side="right")) - 1, first)
            if counts[first : last + 1].any():
                bounds.append((first, last))
            first, before = last + 1, float(through[last])
        return bounds

    def _within(self, first: int, last: int) -> Records:
        chosen = []
        for batch, bins in zip(self.batches, self._bins, strict=True):
            rows = np.flatnonzero((bins >= first) & (bins <= last))
            if len(rows):
                chosen.append(batch.take(pa.array(rows)))
        return self.joined(pa.Table.from_batches(chosen))


def needed(batch: pa.RecordBatch) -> int:
    """Return the bytes of memory that it takes to resolve and encode a batch of records."""
    return COPIES * int(batch.nbytes) + ROW_BYTES * int(batch.num_rows)


def whole_or_divided(
    batches: Sequence[pa.RecordBatch], schema: pa.Schema, width: int, joined: Callable[[pa.Table], Records]
) -> Records | DividedRecords:
    """Return the records of batches, divided where they need more memory than `MEMORY`."""
    if sum(map(needed, batches)) <= MEMORY:
        return joined(pa.Table.from_batches(batches, schema=schema))
    return DividedRecords(tuple(batches), width, joined, MEMORY)

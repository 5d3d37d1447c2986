"""Records of a commit that is too large to be resolved at once: they are divided by ranges of the keys' hashes, and
written range by range, in bounded memory, for one log entry.

The keys of a range have no others to do with, so ranges can be resolved one after the other, against one version of the
store. The records stay in the batches in which they came; those of one range are copied out of them. Each range gets
its own segments, which are written before the next range is resolved. Only what the log entry and the index of open
rows need is kept: closures, and the open rows of new segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.catalog.commits.new_files import NewFiles
from statestore.catalog.commits.open_row_lookup import OpenRows
from statestore.catalog.commits.open_rows import GIVEN_UP, MAX_ROWS, NewOpenRows, OpenRowsChange, give_back, take_index
from statestore.catalog.commits.publish_commit import WrittenRows, add_rows, closure_parts, remove_files
from statestore.catalog.commits.record_timelines import Closure, resolve_with
from statestore.catalog.commits.sorted_records import Records
from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.kernels.arrays import Hashes, Ints
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
        return _write_ranges(files, log_state, self.ranges(), len(self), claimed)

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


def _write_ranges(
    files: SegmentFiles, log_state: LogState, ranges: Iterable[Records], count: int, claimed: str
) -> WrittenRows:
    """Resolve and write ranges, which have ``count`` records together; leave no file if that fails."""
    new = NewFiles(claimed)
    index = take_index(files, log_state, count)
    try:
        return _write(files, log_state, ranges, new, index)
    except BaseException:
        give_back(files, index)
        remove_files(files.storage, new)
        raise


def _write(
    files: SegmentFiles, log_state: LogState, ranges: Iterable[Records], new: NewFiles, index: OpenRows | None
) -> WrittenRows:
    closures: list[Closure] = []
    opened: list[NewOpenRows] = []
    emptied: list[Hashes] = [np.empty(0, np.uint64)]
    usable, values, tombstones, ended, count = index, 0, 0, 0, 0
    for records in ranges:
        resolution = resolve_with(files, log_state, records, usable)
        added = add_rows(files, log_state, records, resolution, new, keep_indexes=False)
        new.write(files.storage)
        values += len(resolution.values.record)
        tombstones += len(resolution.tombstones.record)
        closures += resolution.closures
        if resolution.index is not usable:
            give_back(files, usable)
            usable = None
        if usable is not None:
            opened += added
            count += sum(len(rows.row) for rows in added)
            ended += resolution.ended
            emptied += [] if resolution.emptied is None else [resolution.emptied]
            if count > MAX_ROWS:
                usable, files.bulk_commits = None, GIVEN_UP
        if usable is None:
            opened.clear()
    new.add_closures(closure_parts(log_state, list(_by_segment(closures))))
    new.write(files.storage)
    change = OpenRowsChange(usable, tuple(opened), ended, None, np.sort(np.concatenate(emptied)))
    return WrittenRows(new, values, tombstones, change)


def _by_segment(closures: list[Closure]) -> Iterator[Closure]:
    """Yield the closures of each segment, of different rows, as one with its rows in ascending order."""
    by_name: dict[str, list[tuple[Ints, Ints]]] = {}
    for name, rows, ends in closures:
        by_name.setdefault(name, []).append((rows, ends))
    for name, pieces in by_name.items():
        rows, ends = (np.concatenate(column) for column in zip(*pieces, strict=True))
        order = np.argsort(rows, kind="stable")
        yield name, rows[order], ends[order]

"""The rows in which two versions of a database differ within one range of keys, from the entries of both.

Files that both versions have are told apart from those of one alone. A key without an entry in the latter has the same
entries in both versions, and so the same row: whatever hides or deletes an entry of a shared file is an entry of the
same key. So the blocks of files of one version are read, and of the shared files those blocks only that may have a key
of these. Everything that was read is merged for each version, and keys of shared blocks that were read beside those
asked for are equal by themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statestore.formats.kernels import block_kernels as blocks
from statestore.formats.kernels import difference_kernels
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import SLACK
from statestore.formats.rocksdb.block_codecs import CheckedBlocks, check_blocks
from statestore.formats.rocksdb.key_ranges import KeyRange, blocks_of
from statestore.formats.rocksdb.range_read import (
    Buffers,
    Filled,
    Run,
    batches_of,
    expand_room,
    grown,
    merge_entries,
    parse_entries,
    within_range,
)
from statestore.formats.rocksdb.stored_difference import NOTHING, Differing
from statestore.formats.rocksdb.table_file import Separators, TableFile, descriptor_of, read_at


@dataclass(frozen=True)
class ComparedRuns:
    """The files of two versions: of each alone, and of both."""

    old: tuple[Run, ...]
    new: tuple[Run, ...]
    shared: tuple[Run, ...]

    @property
    def own(self) -> list[TableFile]:
        """The files that only one version has."""
        return list(itertools.chain(*self.old, *self.new))

    @property
    def tables(self) -> list[TableFile]:
        """All files."""
        return [*self.own, *itertools.chain(*self.shared)]


def differing_in(
    runs: ComparedRuns, within: KeyRange, delimiter: bytes | None, buffers: Buffers
) -> tuple[Differing | None, int]:
    """Return what differs in a range, None for nothing, and the number of entries in files of one version.

    Raises as `range_read.read_range`.
    """
    own = (*runs.old, *runs.new)
    plan = [[(table, np.arange(*blocks_of(table, within))) for table in run] for run in own]
    if not any(len(numbers) for run in plan for _, numbers in run):
        return None, 0
    filled = Filled()
    spans = parsed_blocks(plan, within, buffers, filled)
    found = sum(stop - first for first, stop in spans)
    if not found:
        return None, 0
    asked = [[(table, _blocks_with(table, within, spans, buffers)) for table in run] for run in runs.shared]
    spans += parsed_blocks(asked, within, buffers, filled)
    count, both = len(runs.old), len(own)
    sides = (
        [*range(count), *range(both, len(spans))],
        [*range(count, len(spans))],
    )
    rows = []
    pieces = [(np.empty_like(buffers.piece), np.empty_like(buffers.row_end)), (buffers.piece, buffers.row_end)]
    files = (*own, *runs.shared)
    for side, (piece, row_end) in zip(sides, pieces, strict=True):
        first, stop = (np.array([spans[number][edge] for number in side], np.int64) for edge in (0, 1))
        rows.append(merge_entries(buffers, first, stop, delimiter, [files[number] for number in side], piece, row_end))
    kind, total = np.empty(sum(rows), np.uint8), np.zeros(3, np.int64)
    difference_kernels.keep_differing(
        buffers.keys,
        buffers.key_start,
        buffers.plain,
        buffers.value_start,
        buffers.value_size,
        *pieces[0],
        rows[0],
        *pieces[1],
        rows[1],
        np.frombuffer((delimiter or b"") + b"\0", np.uint8),
        len(delimiter or b""),
        kind,
        total,
    )
    if not total[0]:
        return None, found
    old, new = (
        _one(list(batches_of(buffers, int(left), delimiter or b"", int(left), *each)))
        for left, each in zip(total[1:], pieces, strict=True)
    )
    return _parted(old, new, kind[: total[0]]), found


def _parted(old: pa.RecordBatch, new: pa.RecordBatch, kind: Bytes) -> Differing:
    gone = pa.array(kind[kind != difference_kernels.ADDED] == difference_kernels.REMOVED)
    come = pa.array(kind[kind != difference_kernels.REMOVED] == difference_kernels.ADDED)
    stays, stayed = (pa.array(~np.asarray(each)) for each in (gone, come))
    return Differing(new.filter(come), old.filter(gone), old.filter(stays), new.filter(stayed))


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches([NOTHING, *batches])


def _blocks_with(table: TableFile, within: KeyRange, spans: Sequence[tuple[int, int]], buffers: Buffers) -> Ints:
    """The numbers of the blocks of a file that may have a key of some runs of entries."""
    begin, end = blocks_of(table, within)
    needed = np.zeros(end - begin, bool)
    if begin == end:
        return np.empty(0, np.int64)
    keys = np.concatenate([table.separators.keys, np.zeros(SLACK, np.uint8)])
    for first, stop in spans:
        first, stop = within_range(buffers, first, stop, KeyRange(table.smallest))
        difference_kernels.mark_blocks(
            buffers.keys, buffers.key_start, first, stop, keys, table.separators.start, begin, end, needed
        )
    return begin + np.flatnonzero(needed)


def parsed_blocks(
    plan: Sequence[Sequence[tuple[TableFile, Ints]]], within: KeyRange, buffers: Buffers, filled: Filled
) -> list[tuple[int, int]]:
    """Read and parse these blocks of each run; return the span of the entries of each that are in the range."""
    size = sum(
        int(table.size[numbers].sum()) + (blocks.TRAILER * len(numbers)) for run in plan for table, numbers in run
    )
    buffers.raw = grown(buffers.raw, size + SLACK)
    read: list[list[tuple[TableFile, Ints, CheckedBlocks]]] = []
    at = 0
    for run in plan:
        read.append([])
        for table, numbers in run:
            if len(numbers):
                checked, at = _read_blocks(table, numbers, buffers.raw, at)
                read[-1].append((table, numbers, checked))
    expand_room(buffers, filled, sum(checked.room for run in read for _, _, checked in run))
    spans = []
    for files in read:
        begin = int(filled.count[0])
        for table, numbers, checked in files:
            parse_entries(_part_of(table, numbers), 0 if numbers[0] == 0 else 1, checked, buffers, filled)
        spans.append(within_range(buffers, begin, int(filled.count[0]), within))
    return spans


def _read_blocks(table: TableFile, numbers: Ints, raw: Bytes, at: int) -> tuple[CheckedBlocks, int]:
    """Read blocks of a file, those beside each other at once; return where the next bytes go, too."""
    sizes = table.size[numbers] + blocks.TRAILER
    start = at + np.cumsum(sizes) - sizes
    offset = table.offset[numbers]
    jumps = np.flatnonzero(offset[1:] != offset[:-1] + sizes[:-1]) + 1
    with descriptor_of(table) as descriptor:
        for first, stop in itertools.pairwise([0, *jumps.tolist(), len(numbers)]):
            begin, place = int(offset[first]), int(start[first])
            length = int(start[stop - 1] + sizes[stop - 1]) - place
            read_at(descriptor, begin, length, table.path, raw[place:])
    kind, base = table.checksums.kind, table.checksums.base
    checked = check_blocks(raw, start, table.size[numbers], offset, kind, base, table.path)
    return checked, at + int(sizes.sum())


def _part_of(table: TableFile, numbers: Ints) -> TableFile:
    """The file as if it had these blocks alone, after the one before the first of them.

    Keys of a block are then known to be above those of the block that is read before it.
    """
    if numbers[-1] - numbers[0] + 1 == len(numbers) and numbers[0] == 0:
        return table
    kept = numbers if numbers[0] == 0 else np.concatenate([numbers[:1] - 1, numbers])
    bounds = table.separators
    keys = [bounds.key(int(number)) for number in kept]
    start = np.concatenate([[0], np.cumsum([len(key) for key in keys])]).astype(np.int64)
    return replace(table, separators=Separators(np.frombuffer(bytearray(b"".join(keys)), np.uint8), start))

"""Read of the rows of one range of keys: the blocks of all files are read, parsed, merged, and written as Arrow.

Everything of a range is in memory at once; `key_ranges` keeps that small. Buffers are reused from range to range,
because fresh ones cost page faults. Results are copied out of them.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.kernels import block_kernels as blocks
from statestore.formats.kernels import merge_kernels
from statestore.formats.kernels.arrays import Bytes, Ints
from statestore.formats.kernels.compiled import SLACK, Words
from statestore.formats.rocksdb.block_codecs import CheckedBlocks, check_blocks, expand
from statestore.formats.rocksdb.key_ranges import KeyRange, blocks_of
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt
from statestore.formats.rocksdb.rows import ROW_SCHEMA
from statestore.formats.rocksdb.table_file import TableFile, descriptor_of, read_at

_MAX_BATCH_BYTES = (1 << 31) - 1 - SLACK
_ENTRIES, _KEY_BYTES = 1 << 16, 1 << 22
_MAX_PLAIN = 1 << 30
"""Most bytes of plain blocks, and of keys, in a range.

A larger range is left to RocksDB, which holds one block at a time.
"""

Run = tuple[TableFile, ...]
"""Files whose keys follow each other: one file of level 0, or all files of another level."""


@dataclass
class Buffers:
    """The working memory of one thread; ``value_start`` are positions in ``plain``, where the blocks of a range lie."""

    raw: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    plain: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    keys: Bytes = field(default_factory=lambda: np.empty(_KEY_BYTES, np.uint8))
    key_start: Ints = field(default_factory=lambda: np.empty(_ENTRIES + 1, np.int64))
    tag: Words = field(default_factory=lambda: np.empty(_ENTRIES, np.uint64))
    head: Words = field(default_factory=lambda: np.empty(_ENTRIES, np.uint64))
    value_start: Ints = field(default_factory=lambda: np.empty(_ENTRIES, np.int64))
    value_size: Ints = field(default_factory=lambda: np.empty(_ENTRIES, np.int64))
    piece: Ints = field(default_factory=lambda: np.empty(_ENTRIES, np.int64))
    row_end: Ints = field(default_factory=lambda: np.empty(_ENTRIES, np.int64))

    def grow(self, entries: int, key_bytes: int) -> None:
        """Double the room for entries and their keys, and keep the first ``entries`` and ``key_bytes`` of them."""
        if len(self.keys) > _MAX_PLAIN:
            raise Unreadable(f"more than {_MAX_PLAIN} bytes of keys in a range")
        used = slice(0, entries)
        size = 2 * len(self.tag)
        self.keys = _longer(self.keys, 2 * len(self.keys), slice(0, key_bytes))
        self.key_start = _longer(self.key_start, size + 1, used)
        self.tag = _longer(self.tag, size, used)
        self.value_start = _longer(self.value_start, size, used)
        self.value_size = _longer(self.value_size, size, used)
        self.head = np.empty(size, np.uint64)
        self.piece, self.row_end = np.empty(size, np.int64), np.empty(size, np.int64)


def _longer(array: npt.NDArray[Any], size: int, used: slice) -> npt.NDArray[Any]:
    longer = np.empty(size, array.dtype)
    longer[used] = array[used]
    return longer


@dataclass
class Filled:
    """The parts of the buffers in use."""

    plain: int = 0
    count: Ints = field(default_factory=lambda: np.zeros(2, np.int64))  # entries, bytes of keys


@dataclass(frozen=True)
class RangeRows:
    """The rows of a range, and the number of stored entries they came from."""

    batches: tuple[pa.RecordBatch, ...]
    entries: int


def read_range(
    runs: Sequence[Run], within: KeyRange, delimiter: bytes | None, batch_rows: int, buffers: Buffers
) -> RangeRows:
    """Read all rows of a range in key order. ``delimiter`` stands between merged operands; None: they cannot be merged.

    Raises CorruptError ROCKSDB_FILE, and `Unreadable` for files that only RocksDB itself can read.
    """
    checked = _read_blocks(runs, within, buffers)
    room = sum(blocks_read.room for _, _, blocks_read in itertools.chain(*checked))
    filled = Filled()
    expand_room(buffers, filled, room)
    first, stop = np.empty(len(runs), np.int64), np.empty(len(runs), np.int64)
    for number, files in enumerate(checked):
        begin = int(filled.count[0])
        for table, block, blocks_read in files:
            parse_entries(table, block, blocks_read, buffers, filled)
        first[number], stop[number] = within_range(buffers, begin, int(filled.count[0]), within)
    entries = int((stop - first).sum())
    rows = merge_entries(buffers, first, stop, delimiter, runs, buffers.piece, buffers.row_end)
    batches = batches_of(buffers, rows, delimiter or b"", batch_rows, buffers.piece, buffers.row_end)
    return RangeRows(tuple(batches), entries)


def _read_blocks(
    runs: Sequence[Run], within: KeyRange, buffers: Buffers
) -> list[list[tuple[TableFile, int, CheckedBlocks]]]:
    """Return, per run, the blocks of each file that may hold keys of the range, and the number of the first of them."""
    blocks = [[(table, *blocks_of(table, within)) for table in run] for run in runs]
    spans = [[(table, first, stop) for table, first, stop in run if first < stop] for run in blocks]
    sizes = [_span(*each)[1] for each in itertools.chain(*spans)]
    buffers.raw = grown(buffers.raw, sum(sizes) + SLACK)
    at = 0
    runs_read = []
    for run in spans:
        files = []
        for table, first, stop in run:
            files.append((table, first, _read_file(table, first, stop, buffers.raw, at)))
            at += _span(table, first, stop)[1]
        runs_read.append(files)
    return runs_read


def _span(table: TableFile, first: int, stop: int) -> tuple[int, int]:
    """Return where the blocks begin in the file and how many bytes they take."""
    begin = int(table.offset[first])
    return begin, int(table.offset[stop - 1] + table.size[stop - 1]) + blocks.TRAILER - begin


def _read_file(table: TableFile, first: int, stop: int, raw: Bytes, at: int) -> CheckedBlocks:
    begin, size = _span(table, first, stop)
    with descriptor_of(table) as descriptor:
        read_at(descriptor, begin, size, table.path, raw[at:])
    offset = table.offset[first:stop]
    start = offset - begin + at
    kind, base = table.checksums.kind, table.checksums.base
    return check_blocks(raw, start, table.size[first:stop], offset, kind, base, table.path)


def parse_entries(table: TableFile, block: int, checked: CheckedBlocks, buffers: Buffers, filled: Filled) -> None:
    """Append the entries of a file's blocks, from number ``block`` on, to the buffers."""
    plain_start = expand(checked, buffers.plain, filled.plain)
    filled.plain += checked.room
    block_first, report = np.empty(len(plain_start), np.int64), np.zeros(3, np.int64)
    while True:
        status = blocks.parse_blocks(
            buffers.plain,
            plain_start,
            checked.length,
            buffers.keys,
            buffers.key_start,
            buffers.tag,
            buffers.value_start,
            buffers.value_size,
            block_first,
            filled.count,
            report,
        )
        if status != blocks.FULL:
            break
        buffers.grow(int(filled.count[0]), int(filled.count[1]))
    where = f"byte {int(checked.offset[report[0]])}"
    if status == blocks.UNKNOWN_TYPE:
        raise Unreadable(f"{checked.path}, {where}: an entry of type {int(report[1])}")
    if status == blocks.UNKNOWN_LAYOUT:
        raise Unreadable(f"{checked.path}, {where}: a block of an unknown layout")
    if status:
        raise corrupt(checked.path, f"{where}: a block holds malformed entries")
    bounds, end = table.separators, int(filled.count[0])
    wrong = blocks.misplaced_block(buffers.keys, buffers.key_start, block_first, end, bounds.keys, bounds.start, block)
    if block == 0 and int(block_first[0]) < end and _key(buffers, int(block_first[0])) < table.smallest:
        wrong = 0
    if wrong >= 0:
        raise corrupt(checked.path, f"byte {int(checked.offset[wrong])}: a block holds keys that belong elsewhere")


def _key(buffers: Buffers, entry: int) -> bytes:
    """The user key of an entry."""
    return buffers.keys[buffers.key_start[entry] : buffers.key_start[entry + 1] - 8].tobytes()


def within_range(buffers: Buffers, first: int, stop: int, within: KeyRange) -> tuple[int, int]:
    """Return the span of a run's entries whose keys are in the range."""
    key = partial(_key, buffers)
    if within.first is not None:
        first = bisect.bisect_left(range(stop), within.first, lo=first, key=key)
    if within.stop is not None:
        stop = bisect.bisect_left(range(stop), within.stop, lo=first, key=key)
    return first, stop


def merge_entries(
    buffers: Buffers,
    first: Ints,
    stop: Ints,
    delimiter: bytes | None,
    runs: Sequence[Run],
    piece: Ints,
    row_end: Ints,
) -> int:
    """Fill in pieces and row ends, which have room for all entries; returns the number of rows.

    ``first`` and ``stop`` bound the entries of each run, and are used up. Raises as `read_range`.
    """
    where = ", ".join(table.path for run in runs for table in run)
    skip = merge_kernels.common_prefix(buffers.keys, buffers.key_start, first, stop)
    count = np.zeros(2, np.int64)
    status = merge_kernels.merge_runs(
        buffers.keys,
        buffers.key_start,
        buffers.tag,
        buffers.head,
        first,
        stop,
        skip,
        delimiter is not None,
        piece,
        row_end,
        count,
    )
    if status == blocks.NO_OPERATOR:
        raise Unreadable(f"{where}: found operands to merge, and no merge operator is known")
    if status:
        problem = "keys out of order" if status == blocks.UNSORTED else "one version of a key twice"
        raise corrupt(where, f"found {problem}")
    return int(count[0])


def batches_of(
    buffers: Buffers, rows: int, delimiter: bytes, batch_rows: int, piece: Ints, row_end: Ints
) -> Iterator[pa.RecordBatch]:
    """Yield merged rows, copied out of the buffers."""
    total = np.zeros(2, np.int64)
    joint = np.frombuffer(delimiter + b"\0", np.uint8)
    first = 0
    while first < rows:
        stop = int(
            merge_kernels.measure_rows(
                buffers.key_start,
                buffers.value_size,
                piece,
                row_end,
                rows,
                first,
                batch_rows,
                _MAX_BATCH_BYTES,
                len(delimiter),
                total,
            )
        )
        if stop == first:
            raise Unreadable(f"a row of more than {_MAX_BATCH_BYTES} bytes")
        key_end, value_end = np.empty(stop - first + 1, np.int32), np.empty(stop - first + 1, np.int32)
        keys, values = (np.empty(int(size) + SLACK, np.uint8) for size in total)
        merge_kernels.gather_rows(
            buffers.keys,
            buffers.key_start,
            buffers.plain,
            buffers.value_start,
            buffers.value_size,
            piece,
            row_end,
            first,
            stop,
            joint,
            len(delimiter),
            key_end,
            keys,
            value_end,
            values,
        )
        columns = [
            pa.Array.from_buffers(pa.binary(), stop - first, [None, pa.py_buffer(ends), pa.py_buffer(data)])
            for ends, data in ((key_end, keys), (value_end, values))
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)
        first = stop


def expand_room(buffers: Buffers, filled: Filled, room: int) -> None:
    """Make room for so many bytes of plain blocks behind those that are there."""
    if filled.plain + room > _MAX_PLAIN:
        raise Unreadable(f"blocks of {filled.plain + room} bytes in a range")
    if len(buffers.plain) < filled.plain + room + SLACK:
        longer = grown(buffers.plain, filled.plain + room + SLACK)
        longer[: filled.plain] = buffers.plain[: filled.plain]
        buffers.plain = longer


def grown(buffer: Bytes, size: int) -> Bytes:
    """Return the buffer, or a longer one without its content."""
    return buffer if len(buffer) >= size else np.empty(size + size // 8, np.uint8)

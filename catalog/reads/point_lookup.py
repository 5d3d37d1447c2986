"""Point reads of committed segments: one key, found by the segments' key indexes without touching other rows."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from statestore.catalog.log.log_state import LogState
from statestore.catalog.reads.row_ends import newest_ends, with_closures
from statestore.catalog.reads.segment_files import SegmentFiles
from statestore.formats.values.canonical import from_arrow
from statestore.formats.values.key_codec import KeyCodec

Key = tuple[Any, ...]
Column: TypeAlias = "pa.Array | pa.ChunkedArray"


class Found(NamedTuple):
    """A stored version; times in epoch microseconds, ``values`` None for a tombstone."""

    start: int
    end: int
    values: tuple[Any, ...] | None


class _Probe(NamedTuple):
    """One segment opened for point reads; every field returns plain numbers instead of numpy scalars."""

    hashes: memoryview
    rows: memoryview
    directory: memoryview
    shift: int
    starts: memoryview
    ends: memoryview
    is_key: Callable[[int, Key], bool]
    values: Callable[[int], tuple[Any, ...] | None]

    def find(self, key_hash: int) -> Iterator[int]:
        """Yield the rows whose key has this hash (`KeyIndex.find`)."""
        at = bisect_left(self.hashes, key_hash)
        while at < len(self.hashes) and self.hashes[at] == key_hash:
            yield self.rows[at]
            at += 1


class PointLookup:
    """Point reads of one log state; a segment is opened when a read first reaches it."""

    def __init__(self, files: SegmentFiles, log_state: LogState, codec: KeyCodec) -> None:
        self._files = files
        self._codec = codec
        segments = [v for v in with_closures(log_state.segments, log_state.closures) if v.meta.role != "belief"]
        # Earliest ends first: the segment that closed next after a moment most likely holds the row that was valid
        # then.
        segments.sort(key=lambda v: (v.meta.tombstone, v.meta.max_valid_to, -v.meta.max_added))
        self._segments = segments
        self._probes: list[_Probe | None] = [None] * len(segments)
        with_values = [v.meta for v in segments if not v.meta.tombstone]
        self._value_segments = len(with_values)
        self._max_ends = [m.max_valid_to for m in with_values]
        self._min_starts = [m.min_valid_from for m in with_values]

    def valid_at(self, key: Key, key_hash: int, moment: int) -> tuple[int, int, tuple[Any, ...] | None] | None:
        """Return the value version with start <= moment < end, as the members of a `Found`."""
        probes, min_starts = self._probes, self._min_starts
        for number in range(bisect_right(self._max_ends, moment), self._value_segments):
            if min_starts[number] > moment:
                continue
            hashes, rows, directory, shift, starts, ends, is_key, values = probes[number] or self._open(number)
            # This is `KeyIndex.find` by its directory, written out: a call for each segment would cost a third of the
            # read.
            bucket = key_hash >> shift
            stop = directory[bucket + 1]
            at = bisect_left(hashes, key_hash, directory[bucket], stop)
            while at < stop and hashes[at] == key_hash:
                row = rows[at]
                if starts[row] <= moment < ends[row] and is_key(row, key):
                    return starts[row], ends[row], values(row)
                at += 1
        return None

    def ending_from(self, key: Key, key_hash: int, moment: int) -> list[Found]:
        """Return all versions and tombstones of the key that end at or after ``moment``, by start, without replaced
        rows.
        """
        found = []
        for number, segment in enumerate(self._segments):
            if segment.meta.max_valid_to < moment:
                continue
            probe = self._probes[number] or self._open(number)
            for row in probe.find(key_hash):
                start, end = probe.starts[row], probe.ends[row]
                if end >= moment and end > start and probe.is_key(row, key):
                    found.append(Found(start, end, probe.values(row)))
        return sorted(found, key=lambda f: f.start)

    def _open(self, number: int) -> _Probe:
        segment = self._segments[number]
        file = self._files.open_segment(segment.meta)
        spec = self._files.spec
        hashes, rows, directory, shift = self._files.index(segment.meta).memory_views()
        probe = _Probe(
            hashes=hashes,
            rows=rows,
            directory=directory,
            shift=shift,
            starts=file.int64("valid_from").data,
            ends=newest_ends(self._files, segment).data,
            is_key=_key_test([file.column(name) for name in spec.key_names], self._codec),
            values=_no_values
            if segment.meta.tombstone
            else _row_reader([file.column(name) for name in spec.value_names]),
        )
        self._probes[number] = probe
        return probe


def _no_values(row: int) -> None:
    return None


def _key_test(columns: list[Column], codec: KeyCodec) -> Callable[[int, Key], bool]:
    """Return a function that tests whether a row holds a key (normalized)."""
    if len(columns) == 1:
        read = cell_reader(columns[0])
        if pa.types.is_string(columns[0].type) or pa.types.is_integer(columns[0].type):
            return lambda row, key: read(row) == key[0]
        return lambda row, key: codec.normalize((read(row),)) == key
    readers = [cell_reader(column) for column in columns]
    return lambda row, key: codec.normalize(tuple([read(row) for read in readers])) == key


def _row_reader(columns: list[Column]) -> Callable[[int], tuple[Any, ...]]:
    readers = [_value_reader(column) for column in columns]
    if len(readers) == 1:
        only = readers[0]
        return lambda row: (only(row),)
    if len(readers) == 2:
        first, second = readers
        return lambda row: (first(row), second(row))
    return lambda row: tuple([read(row) for read in readers])


def _value_reader(column: Column) -> Callable[[int], Any]:
    """Return a function from a row to its canonical value."""
    read, convert = cell_reader(column), from_arrow(column.type)
    return read if convert is None else lambda row: convert(read(row))


def cell_reader(column: Column) -> Callable[[int], Any]:
    """Return a function from a row to its Python value; plain numbers and text are read without an Arrow scalar."""
    if isinstance(column, pa.ChunkedArray) and column.num_chunks == 1:
        column = column.chunk(0)
    if isinstance(column, pa.Array) and column.null_count == 0 and len(column):
        if pa.types.is_int64(column.type) or pa.types.is_int32(column.type) or pa.types.is_float64(column.type):
            numbers: memoryview = column.to_numpy().data
            return numbers.__getitem__
        if pa.types.is_string(column.type):
            return _text_reader(column)
    return lambda row: column[row].as_py()


def _text_reader(column: pa.StringArray) -> Callable[[int], str]:
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32).data[column.offset : column.offset + len(column) + 1]
    data = memoryview(data_buffer) if data_buffer is not None else memoryview(b"")

    def read(row: int) -> str:
        return str(data[offsets[row] : offsets[row + 1]], "utf-8")

    return read

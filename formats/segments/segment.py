"""An opened segment: columns of a mapped Arrow IPC file, zero-copy, each checked before it is returned.

A segment does not evaluate questions about time; it returns columns and slices of rows (docs/format.md has the bytes).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.coded_numbers import NumbersInPlace
from statestore.formats.segments.decoded_columns import DecodedColumns, decoded, searched_times
from statestore.formats.segments.ipc_file import (
    open_batches,
    open_file,
    verify_column,
    verify_everything,
    verify_stored_column,
)
from statestore.formats.segments.regions import VerifiedBytes, corrupt
from statestore.formats.segments.segment_columns import (
    BATCH_ROWS,
    FORMAT,
    FORMAT_KEY,
    FORMAT_OF_BLOCKS,
    FORMAT_OF_NUMBERS,
    ROLE_KEY,
    TOMBSTONE_KEY,
)
from statestore.formats.segments.segment_meta import OPEN, FileRef, SegmentMeta
from statestore.formats.segments.stored_batch import StoredBatch
from statestore.formats.segments.stored_column import StoredColumn, stored_column
from statestore.formats.table_columns import unknown_column
from statestore.formats.values.without_pandas import arrow_numbers, int64_values

# Cells of a batch are few if it has more than so many times as many. One row of each of 60 blocks takes 77 ms in a new
# process, and 158 ms where all their columns are kept at the first read.
FEW = 32
_AS_ARRAY, _AS_NUMPY = -1, -2  # in place of the number of a batch: all batches as one array
_VERSIONS = ("_added", "_closed", "_dropped")


class Segment:
    """One immutable segment file over a mapped (or fetched) buffer. Safe to share between threads.

    ``schema`` is the columns that the store declares. Columns that have to be made are kept in ``kept``, else in the
    memory that all readers of the process share. Raises CorruptError if length, checksums, format or schema
    disagree, UnsupportedError UNSUPPORTED_FORMAT for a later format version. A column's bytes are checked when it is
    first read, so any method that reads a column may raise CorruptError SEGMENT_CORRUPT.
    """

    def __init__(
        self, meta: SegmentMeta, data: pa.Buffer, schema: pa.Schema, kept: DecodedColumns | None = None
    ) -> None:
        self.meta = meta
        self.schema = schema
        self._verified = VerifiedBytes(meta.file, data)
        self._batches: Sequence[pa.RecordBatch | StoredBatch]
        if meta.blocks:
            rows = [(block.rows, block.batch_rows) for block in meta.blocks]
            _, self._batches = open_batches(self._verified, self._check_schema, rows, _may_be_coded)
        else:
            _, self._batches = open_file(self._verified, self._check_schema)
        self._starts = [0, *np.cumsum([batch.num_rows for batch in self._batches]).tolist()]
        if self._starts[-1] != meta.rows:
            raise corrupt(meta.file, f"it has {self._starts[-1]} rows, the commit says {meta.rows}")
        # Views of the file, by column and batch.
        self._columns: list[list[StoredColumn | None]] = [[None] * len(self._batches) for _ in schema]
        self._views: dict[tuple[int, int], Ints] = {}
        self._whole: dict[str, pa.Array] = {}
        self._numpy: dict[str, npt.NDArray[Any]] = {}
        self._kept = decoded if kept is None else kept
        self._owner = self._kept.keep_for(self) if meta.blocks else -1
        self._searched = searched_times if kept is None else kept
        self._searcher = self._searched.keep_for(self) if meta.blocks else -1

    @property
    def rows(self) -> int:
        return self.meta.rows

    @property
    def is_compressed(self) -> bool:
        """Whether columns may be compressed, so that reading them makes copies."""
        return any(isinstance(batch, StoredBatch) and batch.is_compressed for batch in self._batches[:1])

    @property
    def batch_starts(self) -> list[int]:
        """The first row of each batch."""
        return self._starts[:-1]

    @property
    def batch_offsets(self) -> list[int]:
        """The place of each batch in the file, and that of the end of the last."""
        return [offset for offset, _ in self._verified.metadata_ranges[1:]]

    @property
    def batch_times(self) -> Ints | None:
        """The first ``valid_from`` of each batch in epoch microseconds, where the file has them in a page table."""
        return self._verified.marks(len(self._batches))

    def batch_columns(self, number: int, names: Sequence[str]) -> tuple[list[pa.Array], int]:
        """Columns of one batch, and the size of those that are not views of the file and are not kept here."""
        positions = [self._position(name) for name in names]
        columns = [self._unkept(number, position) for position in positions]
        copies = [c for c, at in zip(columns, positions, strict=True) if self._columns[at][number] is None]
        return columns, sum(column.nbytes for column in copies)

    def numbers_in_place(self, name: str) -> list[NumbersInPlace]:
        """A column of times or 64-bit integers by batch, where the file has it; of other forms, a small copy."""
        position = self._position(name)
        found = []
        for number, batch in enumerate(self._batches):
            numbers = batch.in_place(position) if isinstance(batch, StoredBatch) else None
            if numbers is None:
                values = int64_values(self._unkept(number, position))
                is_view = self._columns[position][number] is not None
                numbers = NumbersInPlace.of(values) if is_view else NumbersInPlace.packed(values)
            found.append(numbers)
        return found

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        """A column: one Array if the file has one batch, else a ChunkedArray with a chunk per batch.

        Not copied, but decompressed where it is compressed.
        """
        if len(self._batches) == 1:
            return self._array(0, name)
        return pa.chunked_array(self._chunks(name))

    def column_array(self, name: str) -> pa.Array:
        """A column as one Array; copied only if the file has several batches. Copies are kept, as in `int64`."""
        if len(self._batches) == 1:
            return self._array(0, name)

        def joined() -> tuple[pa.Array, int]:
            whole = pa.concat_arrays(self._chunks(name))
            return whole, whole.nbytes

        if self.meta.blocks:
            return self._kept.get((self._owner, _AS_ARRAY, self._position(name)), joined)
        if name not in self._whole:
            self._whole[name] = joined()[0]
        return self._whole[name]

    def take(self, name: str, rows: Ints) -> pa.Array:
        """The cells of a column at ``rows``, in their order. Only the batches of these rows are touched."""
        return self.take_columns([name], rows)[0]

    def take_columns(self, names: Sequence[str], rows: Ints) -> list[pa.Array]:
        """The cells of columns at ``rows``, in their order. Only the batches of these rows are touched."""
        if len(self._batches) == 1:
            chosen = arrow_numbers(rows)
            return [self._array(0, name).take(chosen) for name in names]
        batch = np.searchsorted(self._starts, rows, "right") - 1
        in_order = bool((batch[1:] >= batch[:-1]).all())
        order = None if in_order else np.argsort(batch, kind="stable")
        ordered, of_rows = (batch, rows) if order is None else (batch[order], rows[order])
        bounds = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(rows)]
        parts = [
            (number := int(ordered[first]), arrow_numbers(of_rows[first:stop] - self._starts[number]))
            for first, stop in pairwise(bounds)
            if first < stop
        ]
        back = None if order is None else arrow_numbers(np.argsort(order))
        joined = {name: self._whole[name].take(arrow_numbers(rows)) for name in names if name in self._whole}
        others = [name for name in names if name not in joined]
        found = [self._taken(others, number, chosen) for number, chosen in parts] if others else []
        for place, name in enumerate(others):
            cells = pa.concat_arrays([taken[place] for taken in found] or [self._array(0, name).slice(0, 0)])
            joined[name] = cells if back is None else cells.take(back)
        return [joined[name] for name in names]

    def _taken(self, names: Sequence[str], number: int, chosen: pa.Array) -> list[pa.Array]:
        """The cells of columns at rows of one batch. Arrow takes several columns by one call at half the cost."""
        few = FEW * len(chosen) < self._batches[number].num_rows
        columns = [self._column(number, self._position(name), few).array for name in names]
        if len(columns) == 1:
            return [columns[0].take(chosen)]
        taken: list[pa.Array] = pa.RecordBatch.from_arrays(columns, names=[*names]).take(chosen).columns
        return taken

    def int64(self, name: str) -> Ints:
        """``valid_from``, ``valid_to`` (``OPEN`` for null), ``_added``, ``_closed`` or ``_dropped`` as read-only numpy.

        Times are epoch microseconds. A view of the file if it has one batch that is not compressed, else a copy, which
        is kept (`DecodedColumns`). `int64_rows` reads a part of a large file.
        """
        return self._kept_numpy(name, self.int64_rows)

    def int64_rows(self, name: str, start: int, stop: int) -> Ints:
        """Rows [start, stop) of `int64`; only their batches are read. A view within one batch, else a copy."""
        if start >= stop:
            self._position(name)
            return _frozen(np.empty(0, np.int64))  # type: ignore[return-value]
        parts = [int64_values(self._array(number, name))[low:high] for number, low, high in self._parts(start, stop)]
        found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return _frozen(found)  # type: ignore[return-value]

    def bools(self, name: str) -> Bools:
        """A boolean column without nulls (``_split``) as read-only numpy, one byte per row; kept as in `int64`."""
        return self._kept_numpy(name, self.bools_rows)

    def bools_rows(self, name: str, start: int, stop: int) -> Bools:
        """Rows [start, stop) of `bools`; only their batches are read."""
        parts = [
            _bits(self._array(number, name).slice(low, high - low)) for number, low, high in self._parts(start, stop)
        ]
        return _frozen(np.concatenate([np.empty(0, np.bool_), *parts]))  # type: ignore[return-value]

    def started_by(self, moment: int, start: int, stop: int) -> int:
        """Number of rows of [start, stop) with ``valid_from`` <= ``moment``, for rows of one block.

        ``moment`` is in epoch microseconds. A binary search over the batches reads some of them only.
        """
        if start >= stop:
            return 0
        starts, position = self._starts, self._position("valid_from")
        first, last = bisect_right(starts, start) - 1, bisect_left(starts, stop) - 1
        marks = self.batch_times
        if marks is not None:
            known = marks[first : last + 1]
            if (known[1:] < known[:-1]).any():
                raise corrupt(self.meta.file, "the times of its page table do not ascend within a block")
            behind, first = last, first + int(known[1:].searchsorted(moment, side="right"))
            last = first
        while first < last:  # the last batch that begins with such a row
            middle = (first + last + 1) // 2
            if self._times(middle, position)[0] <= moment:
                first = middle
            else:
                last = middle - 1
        low, high = max(start - starts[first], 0), min(stop - starts[first], starts[first + 1] - starts[first])
        times = self._times(first, position)
        if marks is not None and (times[0] != marks[first] or (first < behind and times[-1] > marks[first + 1])):
            raise corrupt(self.meta.file, f"its page table has another first valid_from of record batch {first}")
        times = times[low:high]
        before: int = starts[first] + low - start
        return before + int(times.searchsorted(moment, side="right"))

    def batches(
        self, columns: Sequence[str], start: int, stop: int, chunk_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Rows [start, stop) of these columns as zero-copy batches of at most ``chunk_rows`` rows, in order."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        for number, low, high in self._parts(start, stop):
            arrays = [self._array(number, name) for name in columns]
            whole = (
                pa.RecordBatch.from_arrays(arrays, schema=schema)
                if arrays
                else _no_columns(self._batches[number].num_rows)
            )
            for row in range(low, high, chunk_rows):
                yield whole.slice(row, min(chunk_rows, high - row))

    def unread(self, name: str, row: int) -> tuple[pa.Array | None, int, VerifiedBytes]:
        """A column of the batch of a row, whose bytes are not verified, with the row in it; None if it is compressed.

        The caller verifies each byte before it is read.
        """
        number, first, _ = next(self._parts(row, row + 1))
        batch = self._batches[number]
        column = None if isinstance(batch, StoredBatch) else batch.column(self._position(name))
        return column, first, self._verified

    def ranges(self, names: Sequence[str], start: int, stop: int) -> list[tuple[int, int]]:
        """Return where these columns lie in the file, as (offset, length), in the batches of the rows [start, stop).

        No byte of a column is read.
        """
        found: list[tuple[int, int]] = []
        for number, _, _ in self._parts(start, stop):
            batch = self._batches[number]
            for position in map(self._position, names):
                if isinstance(batch, StoredBatch):
                    found += batch.ranges(position)
                else:
                    buffers = [buffer for buffer in batch.column(position).buffers() if buffer is not None]
                    found += [(self._verified.offset_of(buffer), buffer.size) for buffer in buffers]
        return found

    def stored(self, name: str, numbers: Sequence[int]) -> list[StoredColumn]:
        """A column in these batches with the addresses of its buffers. Hold the arrays while the addresses are used."""
        position = self._position(name)
        mapped = self._columns[position]
        found = [mapped[number] for number in numbers]
        if None not in found:
            return found  # type: ignore[return-value]
        owner = self._owner
        kept = self._kept.get_kept([(owner, number, position) for number in numbers]) if self.meta.blocks else found
        return [
            column or again or self._column(number, position)
            for column, again, number in zip(found, kept, numbers, strict=True)
        ]

    def parts(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """(batch, first, end) of the rows [start, stop), counted within each batch."""
        starts = self._starts
        number = bisect_right(starts, start) - 1
        if 0 <= start < stop <= starts[-1] and stop <= starts[number + 1]:
            return [(number, start - starts[number], stop - starts[number])]
        return list(self._parts(start, stop))

    def first_row(self, number: int) -> int:
        """The row with which a batch begins."""
        first: int = self._starts[number]
        return first

    def forget_decoded(self) -> None:
        """Drop the columns that were decompressed or copied and are kept in memory."""
        self._kept.forget(self._owner)
        self._searched.forget(self._searcher)

    def verify_all(self) -> None:
        """Check every byte and every value, and the rules of docs/format.md that checksums do not imply."""
        verify_everything(self._verified, self._batches)
        for first, block in self.meta.spans():
            starts = self.int64_rows("valid_from", first, first + block.rows)
            if np.any(starts[1:] < starts[:-1]):
                raise corrupt(self.meta.file, f"rows {first} to {first + block.rows} are not sorted by valid_from")
        marks = self._verified.marks(len(self._batches), also_local=True)
        for number in range(len(self._batches)):
            if (
                marks is not None
                and marks[number] != self.int64_rows("valid_from", *self._starts[number : number + 2])[0]
            ):
                raise corrupt(self.meta.file, f"its page table has another first valid_from of record batch {number}")
            ends = self._array(number, "valid_to")
            if not np.array_equal(ends.is_null().to_numpy(False), int64_values(ends) == OPEN):
                raise corrupt(self.meta.file, "the null slots of valid_to do not hold the open end")

    def _check_versions(self, name: str, versions: Ints) -> None:
        """Raise CorruptError if a system column names a commit that the statistics rule out.

        Commits are looked up by the statistics.
        """
        meta = self.meta
        bounds = {
            "_added": (meta.min_added, meta.max_added),
            "_closed": (0, max(meta.max_added, meta.last_closed, meta.split_closed)),
            "_dropped": (0, meta.max_dropped),
        }
        low, high = bounds[name]
        least, most = int(versions.min()), int(versions.max())
        if least < low or most > high:
            raise corrupt(meta.file, f"{name} goes from {least} to {most}, the commit says {low} to {high}")

    def _check_schema(self, stored: pa.Schema) -> None:
        _check_format(self.meta, stored)
        if not stored.equals(self.schema, check_metadata=False):
            difference = f"its columns are\n{_names(stored)}\nand the store has\n{_names(self.schema)}"
            raise corrupt(self.meta.file, difference)

    def _chunks(self, name: str) -> list[pa.Array]:
        return [self._array(number, name) for number in range(len(self._batches))]

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield (batch, first, end) of the rows [start, stop), counted within each batch."""
        start, stop = max(start, 0), min(stop, self._starts[-1])
        if start >= stop:
            return
        starts = self._starts
        for number in range(bisect_right(starts, start) - 1, bisect_left(starts, stop)):
            yield number, max(start - starts[number], 0), min(stop, starts[number + 1]) - starts[number]

    def _position(self, name: str) -> int:
        position: int = self.schema.get_field_index(name)
        if position < 0:
            raise unknown_column(name, self.meta.name, map(repr, self.schema.names))
        return position

    def _array(self, number: int, name: str) -> pa.Array:
        return self._column(number, self._position(name)).array

    def _column(self, number: int, position: int, for_few: bool = False) -> StoredColumn:
        found = self._columns[position][number]
        if found is not None:
            return found
        batch = self._batches[number]
        if isinstance(batch, StoredBatch):
            column: StoredColumn = self._kept.get(
                (self._owner, number, position), partial(self._stored, number, position), for_few
            )
            return column
        column = stored_column(verify_column(self._verified, batch, position))
        self._check_batch(position, column)
        self._columns[position][number] = column
        return column

    def _unkept(self, number: int, position: int) -> pa.Array:
        """Return a column of a batch, which is not kept if it has to be made."""
        found = self._columns[position][number]
        if found is not None or not isinstance(self._batches[number], StoredBatch):
            return self._column(number, position).array
        (kept,) = self._kept.get_kept([(self._owner, number, position)])
        column: StoredColumn = kept or self._stored(number, position)[0]
        return column.array

    def _times(self, number: int, position: int) -> Ints:
        """Return a column of times of a batch; a view of the file is kept, because plans ask for it again and again."""
        found = self._views.get((number, position))
        if found is not None:
            return found
        make = partial(self._made_times, number, position)
        is_made = isinstance(self._batches[number], StoredBatch)
        times: Ints = self._searched.get((self._searcher, number, position), make) if is_made else make()[0]
        if self._columns[position][number] is not None:
            self._views[(number, position)] = times
        return times

    def _made_times(self, number: int, position: int) -> tuple[Ints, int]:
        times = int64_values(self._column(number, position).array)
        return times, times.nbytes if self._columns[position][number] is None else 0

    def _stored(self, number: int, position: int) -> tuple[StoredColumn, int]:
        """Return a column of a batch and the size of what was decompressed; views of the file are kept with it."""
        batch = self._batches[number]
        assert isinstance(batch, StoredBatch)
        array, unpacked = verify_stored_column(self._verified, batch, position)
        column = stored_column(array)
        self._check_batch(position, column)
        if not unpacked:
            self._columns[position][number] = column
        return column, unpacked

    def _check_batch(self, position: int, column: StoredColumn) -> None:
        name = self.schema.names[position]
        if name in _VERSIONS:
            self._check_versions(name, int64_values(column.array))

    def _kept_numpy(self, name: str, read: Callable[[str, int, int], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Return a whole column as numpy. It is kept with a segment of one block, else within a bound in bytes."""
        if self.meta.blocks:

            def whole() -> tuple[npt.NDArray[Any], int]:
                numbers = read(name, 0, self.rows)
                return numbers, numbers.nbytes

            kept: npt.NDArray[Any] = self._kept.get((self._owner, _AS_NUMPY, self._position(name)), whole)
            return kept
        numbers = self._numpy.get(name)
        if numbers is None:
            numbers = self._numpy[name] = read(name, 0, self.rows)
        return numbers


def _bits(array: pa.Array) -> Bools:
    """Return booleans without nulls as numpy; Arrow's own way there loads pandas, which takes a third of a second."""
    if not len(array):
        return np.empty(0, np.bool_)
    data, first = np.frombuffer(array.buffers()[1], np.uint8), array.offset
    bits = np.unpackbits(data[first // 8 :], count=first % 8 + len(array), bitorder="little")
    return bits[first % 8 :].view(np.bool_)


def _no_columns(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.nulls(rows)], names=["none"]).select([])


def _frozen(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    array.flags.writeable = False
    return array


def _names(schema: pa.Schema) -> str:
    return str(schema.to_string(show_schema_metadata=False, show_field_metadata=False))


def _check_format(meta: SegmentMeta, schema: pa.Schema) -> None:
    stored = schema.metadata or {}
    of_blocks = FORMAT_OF_NUMBERS if _may_be_coded(schema) else FORMAT_OF_BLOCKS
    expected = {
        FORMAT_KEY: (of_blocks if meta.blocks else FORMAT).encode(),
        ROLE_KEY: meta.role.encode(),
        TOMBSTONE_KEY: b"true" if meta.tombstone else b"false",
    }
    for key, value in expected.items():
        actual = stored.get(key)
        if actual != value:
            raise _wrong_format(meta.file, key, actual, value)


def _may_be_coded(schema: pa.Schema) -> bool:
    return bool((schema.metadata or {}).get(FORMAT_KEY) == FORMAT_OF_NUMBERS.encode())


def _wrong_format(ref: FileRef, key: bytes, actual: bytes | None, expected: bytes) -> CorruptError | UnsupportedError:
    known = (FORMAT.encode(), FORMAT_OF_BLOCKS.encode(), FORMAT_OF_NUMBERS.encode())
    if key == FORMAT_KEY and actual is not None and actual.startswith(b"segment/") and actual not in known:
        return UnsupportedError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"{ref.name}: format {actual.decode(errors='replace')}, this release reads up to {FORMAT_OF_NUMBERS}; "
            "upgrade statestore",
        )
    return corrupt(ref, f"{key.decode()} is {actual!r}, expected {expected!r}")

"""An opened segment: columns of a mapped Arrow IPC file, zero-copy, each checked before it is returned.

A segment does not evaluate questions about time; it returns columns and slices of rows (docs/format.md has the bytes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.ipc_file import open_file, verify_column, verify_everything
from statestore.formats.segments.regions import VerifiedBytes, corrupt
from statestore.formats.segments.segment_meta import OPEN, FileRef, SegmentMeta
from statestore.formats.segments.segment_write import (
    BATCH_ROWS,
    FORMAT,
    FORMAT_KEY,
    FORMAT_OF_BLOCKS,
    ROLE_KEY,
    TOMBSTONE_KEY,
)
from statestore.formats.table_columns import unknown_column


class Segment:
    """One immutable segment file over a mapped (or fetched) buffer. Safe to share between threads.

    ``schema`` is the columns that the store declares. Raises CorruptError if length, checksums, format or schema
    disagree, UnsupportedError UNSUPPORTED_FORMAT for a later format version. A column's bytes are checked when it is
    first read, so any method that reads a column may raise CorruptError SEGMENT_CORRUPT.
    """

    def __init__(self, meta: SegmentMeta, data: pa.Buffer, schema: pa.Schema) -> None:
        self.meta = meta
        self.schema = schema
        self._verified = VerifiedBytes(meta.file, data)
        _, self._batches = open_file(self._verified, self._check_schema)
        self._starts = [0, *np.cumsum([batch.num_rows for batch in self._batches]).tolist()]
        if self._starts[-1] != meta.rows:
            raise corrupt(meta.file, f"it has {self._starts[-1]} rows, the commit says {meta.rows}")
        self._arrays: dict[tuple[int, str], pa.Array] = {}
        self._whole: dict[str, pa.Array] = {}
        self._numpy: dict[str, npt.NDArray[np.generic]] = {}

    @property
    def rows(self) -> int:
        return self.meta.rows

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        """A column, zero-copy: one Array if the file has one batch, else a ChunkedArray with a chunk per batch."""
        if len(self._batches) == 1:
            return self._array(0, name)
        return pa.chunked_array(self._chunks(name))

    def column_array(self, name: str) -> pa.Array:
        """A column as one Array; copied (once, and kept) only if the file has several batches."""
        if len(self._batches) == 1:
            return self._array(0, name)
        whole = self._whole.get(name)
        if whole is None:
            whole = self._whole[name] = pa.concat_arrays(self._chunks(name))
        return whole

    def take(self, name: str, rows: Ints) -> pa.Array:
        """The cells of a column at ``rows``, in their order. Only the batches of these rows are touched."""
        if len(self._batches) == 1 or name in self._whole:
            return self.column_array(name).take(pa.array(rows))
        batch = np.searchsorted(self._starts, rows, "right") - 1
        in_order = bool(np.all(batch[1:] >= batch[:-1]))
        order = np.arange(len(rows)) if in_order else np.argsort(batch, kind="stable")
        numbers, first = np.unique(batch[order], return_index=True)
        found = [self._array(0, name).slice(0, 0)]  # for no rows at all
        for number, positions in zip(numbers.tolist(), np.split(order, first[1:]), strict=False):
            found.append(self._array(number, name).take(pa.array(rows[positions] - self._starts[number])))
        cells = pa.concat_arrays(found)
        return cells if in_order else cells.take(pa.array(np.argsort(order)))

    def int64(self, name: str) -> Ints:
        """``valid_from``, ``valid_to`` (``OPEN`` for null), ``_added``, ``_closed`` or ``_dropped`` as read-only numpy.

        Times are epoch microseconds. A view of the file if it has one batch, else a kept copy.
        """
        numbers = self._numpy.get(name)
        if numbers is None:
            parts = [_int64_view(chunk) for chunk in self._chunks(name)]
            whole = parts[0] if len(parts) == 1 else _frozen(np.concatenate(parts))
            self._check_versions(name, whole)  # type: ignore[arg-type]
            numbers = self._numpy[name] = whole
        return numbers  # type: ignore[return-value]

    def bools(self, name: str) -> Bools:
        """A boolean column without nulls (``_split``) as read-only numpy, one byte per row, kept."""
        flags = self._numpy.get(name)
        if flags is None:
            parts = [chunk.to_numpy(zero_copy_only=False) for chunk in self._chunks(name)]
            flags = self._numpy[name] = _frozen(np.concatenate(parts))
        return flags  # type: ignore[return-value]

    def batches(
        self, columns: Sequence[str], start: int, stop: int, chunk_rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Rows [start, stop) of these columns as zero-copy batches of at most ``chunk_rows`` rows, in order."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        for number, batch in enumerate(self._batches):
            base = self._starts[number]
            low, high = max(start - base, 0), min(stop - base, batch.num_rows)
            if low >= high:
                continue
            arrays = [self._array(number, name) for name in columns]
            whole = pa.RecordBatch.from_arrays(arrays, schema=schema) if arrays else batch.select([])
            for row in range(low, high, chunk_rows):
                yield whole.slice(row, min(chunk_rows, high - row))

    def verify_all(self) -> None:
        """Check every byte and every value, and the rules of docs/format.md that checksums do not imply."""
        verify_everything(self._verified, self._batches)
        for field in self.schema:
            if not field.nullable and any(chunk.null_count for chunk in self._chunks(field.name)):
                raise corrupt(self.meta.file, f"column {field.name!r} has nulls")
        starts, ends = self.int64("valid_from"), self.int64("valid_to")
        for first, block in self.meta.spans():
            mine = starts[first : first + block.rows]
            if np.any(mine[1:] < mine[:-1]):
                raise corrupt(self.meta.file, f"rows {first} to {first + block.rows} are not sorted by valid_from")
        open_rows = np.concatenate([chunk.is_null().to_numpy(False) for chunk in self._chunks("valid_to")])
        if not np.array_equal(open_rows, ends == OPEN):
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
        if name not in bounds or not len(versions):
            return
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

    def _array(self, number: int, name: str) -> pa.Array:
        array = self._arrays.get((number, name))
        if array is None:
            position = self.schema.get_field_index(name)
            if position < 0:
                raise unknown_column(name, self.meta.name, map(repr, self.schema.names))
            array = verify_column(self._verified, self._batches[number], position)
            self._arrays[(number, name)] = array
        return array


def _int64_view(array: pa.Array) -> Ints:
    data = array.buffers()[1]
    if not len(array):
        return np.empty(0, np.int64)
    return np.frombuffer(data, dtype=np.int64, count=len(array), offset=array.offset * 8)


def _frozen(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    array.flags.writeable = False
    return array


def _names(schema: pa.Schema) -> str:
    return str(schema.to_string(show_schema_metadata=False, show_field_metadata=False))


def _check_format(meta: SegmentMeta, schema: pa.Schema) -> None:
    stored = schema.metadata or {}
    expected = {
        FORMAT_KEY: (FORMAT_OF_BLOCKS if meta.blocks else FORMAT).encode(),
        ROLE_KEY: meta.role.encode(),
        TOMBSTONE_KEY: b"true" if meta.tombstone else b"false",
    }
    for key, value in expected.items():
        actual = stored.get(key)
        if actual != value:
            raise _wrong_format(meta.file, key, actual, value)


def _wrong_format(ref: FileRef, key: bytes, actual: bytes | None, expected: bytes) -> CorruptError | UnsupportedError:
    known = (FORMAT.encode(), FORMAT_OF_BLOCKS.encode())
    if key == FORMAT_KEY and actual is not None and actual.startswith(b"segment/") and actual not in known:
        return UnsupportedError(
            ErrorCode.UNSUPPORTED_FORMAT,
            f"{ref.name}: format {actual.decode(errors='replace')}, this release reads up to {FORMAT_OF_BLOCKS}; "
            "upgrade statestore",
        )
    return corrupt(ref, f"{key.decode()} is {actual!r}, expected {expected!r}")

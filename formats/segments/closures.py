"""Closure lists: the new ends that a commit gives to rows of older segments.

One Arrow IPC file holds the closures of a commit (docs/format.md); those of one segment are a ``ClosureSlice``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.ipc_file import encode_file, fixed_width_data, open_file
from statestore.formats.segments.regions import VerifiedBytes, corrupt
from statestore.formats.segments.segment_columns import time_column
from statestore.formats.segments.segment_meta import ClosureSlice, FileRef
from statestore.formats.values.types import TIME

Rows = npt.NDArray[np.uint32]
Part = tuple[str, int, npt.NDArray[np.integer], Ints]

FORMAT_KEY, FORMAT = b"statestore.format", b"closures/1"
SCHEMA = pa.schema(
    [
        pa.field("segment", pa.uint32(), nullable=False),
        pa.field("row", pa.uint32(), nullable=False),
        pa.field("valid_to", TIME, nullable=False),
    ],
    {FORMAT_KEY: FORMAT},
)


def encode_closures(name: str, parts: Sequence[Part]) -> tuple[pa.Buffer, tuple[ClosureSlice, ...]]:
    """Encode the closure file of (segment name, version, rows, new ends in epoch microseconds), one slice per part.

    Rows are sorted inside a part. Raises InvalidInputError INVALID_CLOSURES if there is nothing to close, a part is
    empty or names a row twice.
    """
    if not parts:
        raise _invalid("it has no parts")
    sorted_parts = [_sorted(*part) for part in parts]
    counts = [len(rows) for _, _, rows, _ in sorted_parts]
    columns = [
        pa.array(np.repeat(np.arange(len(counts), dtype=np.uint32), counts)),
        pa.array(np.concatenate([rows for _, _, rows, _ in sorted_parts])),
        time_column(np.concatenate([ends for _, _, _, ends in sorted_parts])),
    ]
    data, ref = encode_file(name, SCHEMA, [pa.RecordBatch.from_arrays(columns, schema=SCHEMA)])
    return data, tuple(_slices(ref, sorted_parts, counts))


class ClosureFile:
    """An opened closure file, over a mapped (or fetched) buffer. Safe to share between threads.

    Raises CorruptError if the file is not the one recorded. The slices are checked when they are read.
    """

    def __init__(self, ref: FileRef, data: pa.Buffer) -> None:
        self.ref = ref
        self._verified = VerifiedBytes(ref, data)
        _, batches = open_file(self._verified, partial(_check_schema, ref))
        if len(batches) != 1:
            raise corrupt(ref, f"not a closure file ({FORMAT.decode()})")
        self._count = batches[0].num_rows
        self._columns = [self._located(column) for column in batches[0].columns]

    def read(self, piece: ClosureSlice) -> tuple[Rows, Ints]:
        """Return (rows ascending, new ends in epoch microseconds) of one slice: read-only views, checked.

        Raises CorruptError if the file does not hold such a slice.
        """
        if piece.file != self.ref:
            raise corrupt(piece.file, "two commits record different checksums or lengths of it")
        if piece.offset < 0 or piece.count < 1 or piece.offset + piece.count > self._count:
            raise corrupt(
                self.ref,
                f"the commit refers to closures {piece.offset} to {piece.offset + piece.count} of {self._count}",
            )
        parts = np.frombuffer(self._checked(0, 4, piece), np.uint32)
        rows = np.frombuffer(self._checked(1, 4, piece), np.uint32)
        ends = np.frombuffer(self._checked(2, 8, piece), np.int64)
        if parts[0] != parts[-1] or (rows[1:] <= rows[:-1]).any() or ends.min() != piece.min_valid_to:
            raise corrupt(self.ref, f"its closures of {piece.segment} are not those of the commit")
        return rows, ends

    def _located(self, column: pa.Array) -> tuple[int, int]:
        """Return the position of a column's values in the file, and their number."""
        return self._verified.offset_of(fixed_width_data(self._verified, column)), len(column)

    def _checked(self, column: int, width: int, piece: ClosureSlice) -> pa.Buffer:
        start, count = self._columns[column]
        if piece.offset + piece.count > count:
            raise corrupt(self.ref, f"a column has {count} closures, the commit says {piece.offset + piece.count}")
        return self._verified.slice(start + width * piece.offset, width * piece.count)


def read_closures(piece: ClosureSlice, data: pa.Buffer) -> tuple[Rows, Ints]:
    """(rows ascending, new ends in epoch microseconds) of one slice: read-only views of ``data``, checked.

    Raises CorruptError if the file is not the one recorded or does not hold such a slice.
    """
    return ClosureFile(piece.file, data).read(piece)


def _check_schema(ref: FileRef, stored: pa.Schema) -> None:
    if not stored.equals(SCHEMA, check_metadata=True):
        raise corrupt(ref, f"not a closure file ({FORMAT.decode()})")


def _sorted(segment: str, version: int, rows: npt.NDArray[np.integer], ends: Ints) -> tuple[str, int, Rows, Ints]:
    if not len(rows) or len(rows) != len(ends):
        raise _invalid(f"{len(rows)} rows of {segment} get {len(ends)} ends")
    if np.any(rows[1:] <= rows[:-1]):
        order = np.argsort(rows)
        rows, ends = rows[order], ends[order]
        if np.any(rows[1:] == rows[:-1]):
            raise _invalid(f"a row of {segment} is closed twice at version {version}")
    if rows[0] < 0 or rows[-1] >= 1 << 32:
        raise _invalid(f"rows of {segment} from {rows[0]} to {rows[-1]} do not fit 32 bits")
    return segment, version, rows.astype(np.uint32), ends.astype(np.int64)


def _slices(ref: FileRef, parts: Sequence[tuple[str, int, Rows, Ints]], counts: Sequence[int]) -> list[ClosureSlice]:
    offsets = np.cumsum([0, *counts]).tolist()
    return [
        ClosureSlice(ref, segment, version, offset, count, int(ends.min()))
        for (segment, version, _, ends), offset, count in zip(parts, offsets, counts, strict=False)
    ]


def _invalid(found: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.INVALID_CLOSURES, f"a closure list cannot be written: {found}")

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
from statestore.formats.segments.segment_meta import ClosureSlice, FileRef
from statestore.formats.segments.segment_write import time_column
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


def read_closures(piece: ClosureSlice, data: pa.Buffer) -> tuple[Rows, Ints]:
    """(rows ascending, new ends in epoch microseconds) of one slice: read-only views of ``data``, checked.

    Raises CorruptError if the file is not the one recorded or does not hold such a slice.
    """
    verified = VerifiedBytes(piece.file, data)
    _, batches = open_file(verified, partial(_check_schema, piece.file))
    if len(batches) != 1:
        raise corrupt(piece.file, f"not a closure file ({FORMAT.decode()})")
    if piece.offset < 0 or piece.count < 1 or piece.offset + piece.count > batches[0].num_rows:
        raise corrupt(
            piece.file,
            f"the commit refers to closures {piece.offset} to {piece.offset + piece.count} of {batches[0].num_rows}",
        )
    segments, rows, ends = (_checked(verified, column, piece) for column in batches[0].columns)
    parts = np.frombuffer(segments, dtype=np.uint32)
    found_rows, found_ends = np.frombuffer(rows, dtype=np.uint32), np.frombuffer(ends, dtype=np.int64)
    if parts[0] != parts[-1] or np.any(found_rows[1:] <= found_rows[:-1]) or found_ends.min() != piece.min_valid_to:
        raise corrupt(piece.file, f"its closures of {piece.segment} are not those of the commit")
    return found_rows, found_ends


def _check_schema(ref: FileRef, stored: pa.Schema) -> None:
    if not stored.equals(SCHEMA, check_metadata=True):
        raise corrupt(ref, f"not a closure file ({FORMAT.decode()})")


def _checked(verified: VerifiedBytes, column: pa.Array, piece: ClosureSlice) -> pa.Buffer:
    width = column.type.bit_width // 8
    if piece.offset + piece.count > len(column):
        raise corrupt(piece.file, f"a column has {len(column)} closures, the commit says {piece.offset + piece.count}")
    start = verified.offset_of(fixed_width_data(verified, column)) + width * piece.offset
    return verified.slice(start, width * piece.count)


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

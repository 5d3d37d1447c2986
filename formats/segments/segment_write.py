"""Writing a segment: one Arrow IPC file and the statistics that let reads skip it (docs/format.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.segments.compressed_write import CompressedBatches, Compression
from statestore.formats.segments.ipc_file import Batches, encode_file
from statestore.formats.segments.segment_columns import (
    BATCH_ROWS,
    DROPPED_COLUMN,
    FORMAT,
    FORMAT_KEY,
    FORMAT_OF_BLOCKS,
    FORMAT_OF_NUMBERS,
    ROLE_KEY,
    SYSTEM_TYPES,
    TOMBSTONE_KEY,
    end_column,
)
from statestore.formats.segments.segment_meta import OPEN, Block, FileRef, Role, SegmentMeta
from statestore.formats.values.without_pandas import bools

BATCH_COLUMN_BYTES = 1 << 30  # string offsets are 32 bits wide
COMPRESSED_BATCH_ROWS = 1 << 14  # so few that one row costs little; fewer make files larger and scans slower
COMPRESSED_COLUMN_BYTES = 1 << 23
MAX_BOUND_CHARS = 64


def encode_segment(
    name: str,
    table: pa.Table,
    *,
    role: Role,
    tombstone: bool,
    key_names: Sequence[str],
    late: Bools,
    key_groups: tuple[int, int],
    compression: Compression | None = None,
    paged: bool = False,
) -> tuple[pa.Buffer, SegmentMeta]:
    """Encode a segment as `write_segment` does: the bytes of its file and the metadata for the commit.

    With ``compression``, it is encoded as `write_blocks` does, as one block. ``paged`` as in `encode_file`.
    """
    encoded: list[pa.Buffer] = []

    def encode(name: str, schema: pa.Schema, batches: Batches) -> FileRef:
        data, ref = encode_file(name, schema, batches, paged=paged)
        encoded.append(data)
        return ref

    if compression is None:
        meta = write_segment(
            encode, name, table, role=role, tombstone=tombstone, key_names=key_names, late=late, key_groups=key_groups
        )
    else:
        meta = write_blocks(
            encode, name, table.schema, [RowsOfBlock(table, late)], role=role, tombstone=tombstone, key_names=key_names,
            compression=compression,
        )  # fmt: skip
        meta = replace(meta, key_groups=key_groups)
    return encoded[0], meta


def write_segment(
    write: Callable[[str, pa.Schema, Iterable[pa.RecordBatch]], FileRef],
    name: str,
    table: pa.Table,
    *,
    role: Role,
    tombstone: bool,
    key_names: Sequence[str],
    late: Bools,
    key_groups: tuple[int, int],
) -> SegmentMeta:
    """Write a segment of one block by ``write`` and return its metadata for the commit (without an index).

    ``table`` has the columns of docs/format.md in order and is sorted by ``valid_from``; ``late`` marks the rows that
    were late when they were written. Raises InvalidInputError INVALID_SEGMENT if the table is empty, unsorted, has
    other columns, or nulls where none are allowed.
    """
    schema = _file_schema(table.schema, FORMAT, role, tombstone, key_names)
    meta = _written(write, name, schema, [RowsOfBlock(table, late)], role, tombstone, key_names)
    return replace(meta, key_groups=key_groups, blocks=())


@dataclass(frozen=True)
class RowsOfBlock:
    """The rows of a block, sorted by ``valid_from``; ``late`` marks the rows that were late when they were written."""

    table: pa.Table
    late: Bools


def write_blocks(
    write: Callable[[str, pa.Schema, Batches], FileRef],
    name: str,
    columns: pa.Schema,
    blocks: Iterable[RowsOfBlock],
    *,
    role: Role,
    tombstone: bool,
    key_names: Sequence[str],
    compression: Compression | None = None,
) -> SegmentMeta:
    """Write a segment of several blocks, which are taken one by one; return its metadata for the commit.

    The metadata lacks the key groups and the index. ``columns`` is the schema of each block's table. With
    ``compression``, columns that get small enough are compressed, in smaller batches. Raises InvalidInputError
    INVALID_SEGMENT as `write_segment` does, and if there is no block.
    """
    stored_format = FORMAT_OF_NUMBERS if compression and compression.coded else FORMAT_OF_BLOCKS
    schema = _file_schema(columns, stored_format, role, tombstone, key_names)
    return _written(write, name, schema, blocks, role, tombstone, key_names, compression, by_block=True)


def _written(
    write: Callable[[str, pa.Schema, Any], FileRef],
    name: str,
    schema: pa.Schema,
    blocks: Iterable[RowsOfBlock],
    role: Role,
    tombstone: bool,
    key_names: Sequence[str],
    compression: Compression | None = None,
    by_block: bool = False,
) -> SegmentMeta:
    written: list[tuple[Block, _Totals]] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for rows in blocks:
            _check_columns(rows.table, role, tombstone, key_names)
            times = _Times(rows.table)
            # Arrow kernels leave arbitrary values in null slots. The format requires OPEN there, so the column is new.
            position = rows.table.schema.get_field_index("valid_to")
            table = rows.table.set_column(position, "valid_to", end_column(times.ends))
            batch_rows = _batch_rows(table, compression) if by_block else 0
            block = replace(_block(times, rows.late), batch_rows=batch_rows)
            written.append((block, _totals(table, times, role, key_names)))
            yield from (_file_batch(piece, schema) for piece in _pieces(table, batch_rows))

    ref = write(name, schema, CompressedBatches(batches(), compression) if compression else batches())
    if not written:
        raise _invalid("it has no rows")
    return _metadata(ref, role, tombstone, [block for block, _ in written], [totals for _, totals in written])


class _Times:
    """The columns of a table from which statistics are computed, as numpy."""

    def __init__(self, table: pa.Table) -> None:
        self.starts = _int64(table, "valid_from")
        self.ends = _int64(table, "valid_to", null=OPEN)
        self.added = _int64(table, "_added")
        self.closed = _int64(table, "_closed")
        self.split = bools(_contiguous(table.column("_split")))
        if np.any(self.starts[1:] < self.starts[:-1]):
            raise _invalid("its rows are not sorted by valid_from")


@dataclass(frozen=True)
class _Totals:
    """Statistics of a block that only the whole file records; ``bounds`` has (least, greatest) of each key column."""

    max_added: int
    max_dropped: int
    open_rows: int
    bounds: list[tuple[Any, Any]]


def _block(times: _Times, late: Bools) -> Block:
    folded = ~times.split & (times.added < times.closed)
    return Block(
        rows=len(times.starts),
        min_valid_from=int(times.starts[0]),
        max_valid_from=int(times.starts[-1]),
        min_valid_to=int(times.ends.min()),
        max_valid_to=int(times.ends.max()),
        min_added=int(times.added.min()),
        last_closed=_greatest(times.closed, folded),
        split_closed=_greatest(times.closed, times.split),
        late_added=_greatest(times.added, np.asarray(late, dtype=np.bool_)),
    )


def _totals(table: pa.Table, times: _Times, role: Role, key_names: Sequence[str]) -> _Totals:
    return _Totals(
        max_added=int(times.added.max()),
        max_dropped=int(_int64(table, DROPPED_COLUMN).max()) if role == "belief" else 0,
        open_rows=int(np.count_nonzero(times.ends == OPEN)),
        bounds=[_bounds(table.column(name)) for name in key_names],
    )


def _metadata(
    ref: FileRef, role: Role, tombstone: bool, blocks: Sequence[Block], totals: Sequence[_Totals]
) -> SegmentMeta:
    bounds = [_joined(column) for column in zip(*(t.bounds for t in totals), strict=True)]
    return SegmentMeta(
        file=ref,
        role=role,
        tombstone=tombstone,
        rows=sum(b.rows for b in blocks),
        min_valid_from=min(b.min_valid_from for b in blocks),
        max_valid_from=max(b.max_valid_from for b in blocks),
        min_valid_to=min(b.min_valid_to for b in blocks),
        max_valid_to=max(b.max_valid_to for b in blocks),
        min_added=min(b.min_added for b in blocks),
        max_added=max(t.max_added for t in totals),
        last_closed=max(b.last_closed for b in blocks),
        split_closed=max(b.split_closed for b in blocks),
        late_added=max(b.late_added for b in blocks),
        max_dropped=max(t.max_dropped for t in totals),
        key_min=tuple(low for low, _ in bounds),
        key_max=tuple(high for _, high in bounds),
        open_rows=sum(t.open_rows for t in totals),
        blocks=tuple(blocks),
    )


def _joined(bounds: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """Return the bounds of a key column over all blocks; None where those of a block are not known."""
    lows, highs = zip(*bounds, strict=True)
    return None if None in lows else min(lows), None if None in highs else max(highs)


def _greatest(values: Ints, where: Bools) -> int:
    return int((values * where).max(initial=0))  # by ``where`` it takes twice as long


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Smallest and greatest value where JSON can represent them exactly, else None."""
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind)):
        return None, None
    bounds = pc.min_max(column).as_py()
    return _exact(bounds["min"]), _exact(bounds["max"])


def _exact(value: Any) -> Any:
    return None if isinstance(value, str) and len(value) > MAX_BOUND_CHARS else value


def _int64(table: pa.Table, name: str, null: int = 0) -> Ints:
    array = _contiguous(table.column(name).cast(pa.int64()))
    if not len(array):
        return np.empty(0, np.int64)
    validity, data = array.buffers()
    ints = np.frombuffer(data, np.int64, len(array), 8 * array.offset)
    if not array.null_count:
        return ints
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), count=array.offset + len(array), bitorder="little")
    return np.where(bits[array.offset :].view(np.bool_), ints, null)


def _pieces(table: pa.Table, batch_rows: int) -> Iterator[pa.Table]:
    """Cut a table into batches of ``batch_rows`` rows; of as many as a batch may have if that is 0."""
    start = 0
    while start < table.num_rows:
        piece = table.slice(start, batch_rows or BATCH_ROWS)
        while not batch_rows and piece.num_rows > 1 and _largest_column(piece) > BATCH_COLUMN_BYTES:
            piece = piece.slice(0, piece.num_rows // 2)
        start += piece.num_rows
        yield piece


def _batch_rows(table: pa.Table, compression: Compression | None) -> int:
    """Return how many rows each batch of a block gets, so that no column of any batch is too long."""
    rows, most = BATCH_ROWS, BATCH_COLUMN_BYTES
    if compression:
        rows, most = compression.batch_rows or COMPRESSED_BATCH_ROWS, COMPRESSED_COLUMN_BYTES
    while rows > 1 and any(_largest_column(piece) > most for piece in _pieces(table, rows)):
        rows //= 2
    return rows


def may_be_compressed(meta: SegmentMeta) -> bool:
    """Return whether a segment looks compressed: its batches are short, as only very long texts make them otherwise."""
    return bool(meta.blocks) and all(block.batch_rows <= COMPRESSED_BATCH_ROWS for block in meta.blocks)


def _largest_column(piece: pa.Table) -> int:
    return max(int(column.nbytes) for column in piece.columns)


def _file_batch(piece: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_contiguous(column) for column in piece.columns], schema=schema)


def _contiguous(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _file_schema(
    schema: pa.Schema, stored_format: str, role: Role, tombstone: bool, key_names: Sequence[str]
) -> pa.Schema:
    required = {*key_names, *SYSTEM_TYPES} - {"valid_to"}
    fields = [field.with_nullable(field.name not in required).remove_metadata() for field in schema]
    flag = b"true" if tombstone else b"false"
    return pa.schema(fields, {FORMAT_KEY: stored_format.encode(), ROLE_KEY: role.encode(), TOMBSTONE_KEY: flag})


def _check_columns(table: pa.Table, role: Role, tombstone: bool, key_names: Sequence[str]) -> None:
    names = table.schema.names
    system = [name for name in SYSTEM_TYPES if name != DROPPED_COLUMN or role == "belief"]
    values = names[len(key_names) : len(names) - len(system)]
    if names != [*key_names, *values, *system] or (tombstone and values):
        expected = [*key_names, *([] if tombstone else ["<value columns>"]), *system]
        raise _invalid(f"its columns are {names}, expected {expected}")
    for name in system:
        if table.schema.field(name).type != SYSTEM_TYPES[name]:
            raise _invalid(f"column {name!r} is {table.schema.field(name).type}, expected {SYSTEM_TYPES[name]}")
    if not table.num_rows:
        raise _invalid("it has no rows")
    for name in (*key_names, *system):
        if name != "valid_to" and table.column(name).null_count:
            raise _invalid(f"column {name!r} has nulls")


def _invalid(problem: str) -> InvalidInputError:
    return InvalidInputError(ErrorCode.INVALID_SEGMENT, f"a segment cannot be written: {problem}")

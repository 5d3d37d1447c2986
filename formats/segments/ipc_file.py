"""Arrow IPC files that are checked before Arrow reads a byte: the container of segments, indexes and closures.

The files are plain, and any Arrow tool reads them through their footer. This reader does not use the footer. The commit
records where each message's framing lies, so the reader verifies exactly those bytes, refuses dictionaries, and takes
one message after the other without touching the columns. Files whose commit says how many rows each batch has are read
batch by batch (`open_batches`); only these may be compressed.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.segments.batch_message import PREFIX_BYTES, check_plain, message_end
from statestore.formats.segments.column_checks import check_values
from statestore.formats.segments.compressed_write import CompressedBatches, Sink, write_compressed
from statestore.formats.segments.page_table import MARKED_ENTRIES, PAGED_FILE_BYTES, with_page_table
from statestore.formats.segments.regions import RegionChecksums, VerifiedBytes, checksum_regions, corrupt
from statestore.formats.segments.segment_meta import FileRef
from statestore.formats.segments.stored_batch import UNREADABLE, StoredBatch, column_places

MAGIC = b"ARROW1"
_SCHEMA_START = 8  # the magic and two bytes of padding
_FRAMING_BYTES = 4096  # more than magic, markers, paddings and the footer's own fields take
_END = b"\xff\xff\xff\xff\0\0\0\0"


Batches = Iterable[pa.RecordBatch] | CompressedBatches


def encode_file(name: str, schema: pa.Schema, batches: Batches, *, paged: bool = False) -> tuple[pa.Buffer, FileRef]:
    """Encode batches as an Arrow IPC file; returns its bytes and its reference with checksums.

    With ``paged``, a file that is longer than `PAGED_FILE_BYTES` gets a page table, and if it is compressed, the places
    of its batches are there and not in the reference.
    """
    marks: list[Ints] = [np.empty(0, np.int64)]
    if paged:
        batches = _noting_marks(batches, marks)
    buffer, sink = None, pa.BufferOutputStream()
    if not isinstance(batches, CompressedBatches):
        remaining = iter(batches)
        first = list(islice(remaining, 2))
        if len(first) == 1:  # as in most files; a buffer of its size takes a quarter of the time of one that grows
            framing = 2 * schema.serialize().size + _FRAMING_BYTES  # the schema, and the footer, which repeats it
            buffer = pa.allocate_buffer(ipc.get_record_batch_size(first[0]) + framing)
            sink = pa.FixedSizeBufferWriter(buffer)
        batches = chain(first, remaining)
    starts, body_end = _write_all(sink, sink, schema, batches)
    data = sink.getvalue() if buffer is None else buffer.slice(0, sink.tell())
    tail_checksum = ""
    ranges = metadata_ranges(data, starts, body_end)
    if paged and data.size > PAGED_FILE_BYTES:
        in_table = ranges[1:-1] if isinstance(batches, CompressedBatches) else ()  # many short ones
        data, tail_checksum = with_page_table(data, body_end, np.concatenate(marks), in_table)
        ranges = (*(ranges[:1] if in_table else ranges[:-1]), (body_end, data.size - body_end))
    return data, FileRef(name, data.size, checksum_regions(data), ranges, tail_checksum)


def _noting_marks(batches: Batches, marks: list[Ints]) -> Batches:
    """Return batches that append their marks (`PageTable`) to ``marks`` when they are taken."""

    def noted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if "valid_from" in batch.schema.names:
                marks.append(np.array([batch.column("valid_from")[0].value]))
            elif batch.schema.names[0] == "key_hash":
                marks.append(batch.column(0).to_numpy()[::MARKED_ENTRIES].view(np.int64))
            yield batch

    return (
        replace(batches, batches=noted(batches.batches)) if isinstance(batches, CompressedBatches) else noted(batches)
    )


def write_file(file: int, name: str, schema: pa.Schema, batches: Batches) -> FileRef:
    """Write what `encode_file` encodes to an open, empty file, without a copy of its bytes in memory.

    ``file`` is a descriptor open for reading and writing. Raises OSError if the disk fails.
    """
    target = _Target(file)
    starts, body_end = _write_all(target, pa.PythonFile(target, mode="w"), schema, batches)
    with mmap.mmap(file, target.tell(), access=mmap.ACCESS_READ) as mapped:
        ranges = metadata_ranges(mapped, starts, body_end)
    return FileRef(name, target.tell(), target.checksums.digits(), ranges)


def _write_all(sink: Sink, arrow_sink: pa.NativeFile, schema: pa.Schema, batches: Batches) -> tuple[list[int], int]:
    """Write a whole file; return the position before each batch and the position behind the last."""
    if isinstance(batches, CompressedBatches):
        return write_compressed(sink, schema, batches)
    starts: list[int] = []
    with ipc.new_file(arrow_sink, schema, options=ipc.IpcWriteOptions(compression=None)) as writer:
        for batch in batches:
            starts.append(sink.tell())
            writer.write_batch(batch)
        return starts, sink.tell()


class _Target:
    """A file that Arrow writes: its length and checksums so far."""

    closed = False

    def __init__(self, file: int) -> None:
        self._file = file
        self._length = 0
        self.checksums = RegionChecksums()

    def write(self, data: bytes | pa.Buffer) -> int:
        view = memoryview(data).cast("B")
        self.checksums.add(view)
        self._length += len(view)
        while len(view):
            view = view[os.write(self._file, view) :]
        return len(data)

    def tell(self) -> int:
        return self._length

    def flush(self) -> None:
        """Do nothing: Arrow calls this at the end, and nothing is buffered."""

    def close(self) -> None:
        """Do nothing: the descriptor belongs to the caller."""


def metadata_ranges(data: pa.Buffer | mmap.mmap, starts: Sequence[int], body_end: int) -> tuple[tuple[int, int], ...]:
    """(offset, length) of the schema, of the metadata of each batch and of the footer, in a file that was just written.

    ``starts``: the writer's positions before each batch; ``body_end``: its position behind the last.
    """
    schema_end = message_end(data, _SCHEMA_START)
    begins = [schema_end, *starts[1:]] if starts else []  # the writer writes the schema with the first batch
    ranges = [(0, schema_end)]
    ranges += [(start, message_end(data, start) - start) for start in begins]
    footer = body_end if starts else schema_end
    return (*ranges, (footer, len(data) - footer))


def open_file(
    verified: VerifiedBytes, check: Callable[[pa.Schema], None] = lambda schema: None
) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Schema and batches of a file, zero-copy; the columns' bytes are neither read nor checked yet.

    ``check`` raises for a schema that is not the expected one, before a batch is read by it. Raises CorruptError
    SEGMENT_CORRUPT for anything that is not what ``encode_file`` writes.
    """
    ref = verified.ref
    ranges = verified.metadata_ranges
    if len(ranges) < 2:
        raise corrupt(ref, "the commit does not say where its metadata lies")
    for offset, length in ranges:
        verified.verify(offset, length)
    try:
        return _read_batches(verified, check)
    except StateStoreError:
        raise
    except UNREADABLE as error:
        raise _not_arrow(ref, error) from error


def open_batches(
    verified: VerifiedBytes,
    check: Callable[[pa.Schema], None],
    rows: Sequence[tuple[int, int]],
    may_be_coded: Callable[[pa.Schema], bool] = lambda schema: False,
) -> tuple[pa.Schema, list[StoredBatch]]:
    """Schema and batches of a file, of which only the schema and the footer are read and checked yet.

    ``rows``: (rows, rows of each batch but the last) of each block, by the commit. ``may_be_coded`` says whether files
    of a schema may have coded numbers. Otherwise as `open_file`.
    """
    ref, ranges = verified.ref, verified.metadata_ranges
    if not rows or any(block < 1 or each < 1 for block, each in rows):
        raise corrupt(ref, "the commit does not say how many rows its record batches have")
    batches = sum(-(-block // each) for block, each in rows)
    if len(ranges) != batches + 2:
        raise corrupt(ref, f"the commit says where {len(ranges) - 2} record batches are, its blocks have {batches}")
    counts = [min(each, block - first) for block, each in rows for first in range(0, block, each)]
    for offset, length in (ranges[0], ranges[-1]):
        verified.verify(offset, length)
    try:
        schema = _read_schema(verified, check)
        places, coded = column_places(schema), may_be_coded(schema)
        return schema, [
            StoredBatch(verified, schema, places, count, start, length, end, coded)
            for count, (start, length, end) in zip(counts, _messages(verified), strict=True)
        ]
    except StateStoreError:
        raise
    except UNREADABLE as error:
        raise _not_arrow(ref, error) from error


def verify_column(verified: VerifiedBytes, batch: pa.RecordBatch, position: int) -> pa.Array:
    """Return the column of a batch after checking every region that it occupies and its structure; zero-copy.

    Raises CorruptError if a region is damaged or the column cannot be read safely (`check_values`).
    """
    column = batch.column(position)
    for buffer in column.buffers():
        if buffer is not None and buffer.size:
            verified.verify(verified.offset_of(buffer), buffer.size)
    return _checked_column(verified.ref, column, batch, position)


def verify_stored_column(verified: VerifiedBytes, batch: StoredBatch, position: int) -> tuple[pa.Array, int]:
    """Return a column as `verify_column` does, and the number of its bytes that were decompressed."""
    column, unpacked = batch.column(position)
    return _checked_column(verified.ref, column, batch, position), unpacked


def _checked_column(ref: FileRef, column: pa.Array, batch: pa.RecordBatch | StoredBatch, position: int) -> pa.Array:
    try:
        if len(column) != batch.num_rows:
            raise pa.ArrowInvalid(f"{len(column)} values for {batch.num_rows} rows")
        check_values(column)
        if column.null_count and not batch.schema.field(position).nullable:
            raise pa.ArrowInvalid("it has nulls")
    except UNREADABLE as error:
        raise corrupt(ref, f"column {batch.schema.names[position]!r}: {error}") from error
    return column


def read_batches(
    data: pa.Buffer, check: Callable[[pa.Schema], None] = lambda schema: None
) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Schema and batches of an Arrow file whose bytes have been verified, all values checked.

    The messages are taken one after the other, and the footer is not used. ``check`` as in `open_file`. Raises
    ValueError for anything that is not such a file, or is compressed.
    """
    try:
        if data.slice(0, len(MAGIC)).to_pybytes() != MAGIC:
            raise ValueError("it is no Arrow file")
        messages = ipc.MessageReader.open_stream(pa.BufferReader(data.slice(_SCHEMA_START)))
        schema = ipc.read_schema(next(messages))
        check(schema)
        return schema, [_checked_batch(message, schema) for message in messages]
    except StateStoreError:
        raise
    except UNREADABLE as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def read_stream(data: pa.Buffer) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow stream, each checked when it is taken, as in `read_batches`.

    A missing end means a cut stream.
    """
    try:
        if data.size < len(_END) or data.slice(data.size - len(_END)).to_pybytes() != _END:
            raise ValueError("its end is missing")
        messages = ipc.MessageReader.open_stream(pa.BufferReader(data))
        schema = ipc.read_schema(next(messages))
        yield from (_checked_batch(message, schema) for message in messages)
    except UNREADABLE as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def read_batch(data: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The record batch of one message whose bytes have been verified, all values checked.

    Raises ValueError for anything that is not one, or is compressed.
    """
    try:
        return _checked_batch(ipc.read_message(pa.BufferReader(data)), schema)
    except UNREADABLE as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _checked_batch(message: ipc.Message, schema: pa.Schema) -> pa.RecordBatch:
    check_plain(message.metadata)
    batch = ipc.read_record_batch(message, schema)
    for column in batch.columns:
        if len(column) != batch.num_rows:
            raise ValueError(f"{len(column)} values for {batch.num_rows} rows")
        check_values(column)
    return batch


def fixed_width_data(verified: VerifiedBytes, column: pa.Array) -> pa.Buffer:
    """The values of a fixed-width column without nulls; zero-copy, and not yet verified by checksums.

    Raises CorruptError if they do not lie inside the file.
    """
    validity, data = column.buffers()
    length = len(column) * column.type.bit_width // 8
    if validity is not None or (data.size if data else 0) < length:
        raise corrupt(verified.ref, f"a column of {len(column)} values has nulls or too few bytes")
    values = data.slice(0, length) if data else pa.py_buffer(b"")
    verified.offset_of(values)
    return values


def verify_everything(verified: VerifiedBytes, batches: Iterable[pa.RecordBatch | StoredBatch]) -> None:
    """Check all regions and every value of every column (offsets, UTF-8, decimals)."""
    verified.verify_all()
    for batch in batches:
        for position, name in enumerate(batch.schema.names):
            if isinstance(batch, StoredBatch):
                column, _ = verify_stored_column(verified, batch, position)
            else:
                column = verify_column(verified, batch, position)
            try:
                column.validate(full=True)
            except pa.ArrowException as error:
                raise corrupt(verified.ref, f"column {name!r}: {error}") from error


def _read_batches(
    verified: VerifiedBytes, check: Callable[[pa.Schema], None]
) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    schema = _read_schema(verified, check)
    data, batches = verified.data, []
    for start, length, end in _messages(verified):
        check_plain(data.slice(start + PREFIX_BYTES, length - PREFIX_BYTES))
        message = ipc.read_message(pa.BufferReader(data.slice(start, end - start)))
        batches.append(ipc.read_record_batch(message, schema))
    return schema, batches


def _read_schema(verified: VerifiedBytes, check: Callable[[pa.Schema], None]) -> pa.Schema:
    ref, data = verified.ref, verified.data
    (first, length), *_, (footer, footer_length) = ref.metadata_ranges
    if first != 0 or data.slice(0, len(MAGIC)).to_pybytes() != MAGIC or footer + footer_length != data.size:
        raise corrupt(ref, "not an Arrow file")
    schema = ipc.read_schema(pa.BufferReader(data.slice(_SCHEMA_START, length - _SCHEMA_START)))
    check(schema)
    return schema


def _messages(verified: VerifiedBytes) -> Iterator[tuple[int, int, int]]:
    """Yield (start, length of the framing, end) of each record batch; they follow each other without gaps."""
    ref = verified.ref
    (_, expected), *middle, (footer, _) = verified.metadata_ranges
    ends = [start for start, _ in middle[1:]] + [footer]
    for (start, length), end in zip(middle, ends, strict=True):
        if start != expected or not start + length <= end <= verified.data.size:
            raise corrupt(ref, f"a message is expected at byte {expected}, the commit says {start}")
        yield start, length, end
        expected = end


def _not_arrow(ref: FileRef, error: Exception) -> CorruptError:
    return corrupt(ref, f"not an Arrow file as this format requires ({type(error).__name__}: {error})")

"""Arrow IPC files that are checked before Arrow sees a byte: the container of segments, indexes and closures.

The files are plain (any Arrow tool reads them through their footer). This reader does not: the commit records where
each message's framing lies, so it verifies exactly those bytes, refuses compression and dictionaries, and takes one
message after the other without touching the columns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyarrow import ipc

from statestore.formats.errors import CorruptError
from statestore.formats.regions import VerifiedBytes, checksum_regions, corrupt
from statestore.formats.segment_meta import FileRef

MAGIC = b"ARROW1"
_SCHEMA_START = 8  # the magic and two bytes of padding
_PREFIX_BYTES = 8  # continuation marker and metadata length before each message
_CONTINUATION = 0xFFFFFFFF
_RECORD_BATCH_HEADER = 3  # MessageHeader.RecordBatch
_COMPRESSION_SLOT = 3  # RecordBatch.compression


def encode_file(name: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> tuple[pa.Buffer, FileRef]:
    """An uncompressed Arrow IPC file of these batches, and its reference with checksums and metadata ranges."""
    sink = pa.BufferOutputStream()
    starts: list[int] = []
    with ipc.new_file(sink, schema, options=ipc.IpcWriteOptions(compression=None)) as writer:
        for batch in batches:
            starts.append(sink.tell())
            writer.write_batch(batch)
        body_end = sink.tell()
    data = sink.getvalue()
    return data, FileRef(name, data.size, checksum_regions(data), metadata_ranges(data, starts, body_end))


def metadata_ranges(data: pa.Buffer, starts: Sequence[int], body_end: int) -> tuple[tuple[int, int], ...]:
    """(offset, length) of the schema, of the metadata of each batch and of the footer, in a file that was just written.

    ``starts``: where the writer stood before each batch; ``body_end``: where it stood behind the last.
    """
    schema_end = _message_end(data, _SCHEMA_START)
    begins = [schema_end, *starts[1:]] if starts else []  # the writer puts the schema out with the first batch
    ranges = [(0, schema_end)]
    ranges += [(start, _message_end(data, start) - start) for start in begins]
    footer = body_end if starts else schema_end
    return (*ranges, (footer, data.size - footer))


def open_file(verified: VerifiedBytes) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Schema and batches of a file, zero-copy; the columns' bytes are neither read nor checked yet.

    Raises CorruptError SEGMENT_CORRUPT for anything that is not what ``encode_file`` writes.
    """
    ref = verified.ref
    ranges = ref.metadata_ranges
    if len(ranges) < 2:
        raise corrupt(ref, "the commit does not say where its metadata lies")
    for offset, length in ranges:
        verified.verify(offset, length)
    try:
        return _read_messages(verified)
    except (pa.ArrowException, OSError, ValueError, TypeError, struct.error, IndexError, MemoryError) as error:
        raise corrupt(ref, f"not an Arrow file as this format requires ({type(error).__name__}: {error})") from error


def verify_column(verified: VerifiedBytes, batch: pa.RecordBatch, position: int) -> pa.Array:
    """The column of a batch after checking every region that it occupies; zero-copy.

    Raises CorruptError if a region is damaged or the column does not fit its declared shape.
    """
    column = batch.column(position)
    for buffer in column.buffers():
        if buffer is not None and buffer.size:
            verified.verify(verified.offset_of(buffer), buffer.size)
    try:
        if len(column) != batch.num_rows:
            raise pa.ArrowInvalid(f"{len(column)} values for {batch.num_rows} rows")
        column.validate()
    except pa.ArrowException as error:
        raise corrupt(verified.ref, f"column {batch.schema.names[position]!r}: {error}") from error
    return column


def fixed_width_data(verified: VerifiedBytes, column: pa.Array) -> pa.Buffer:
    """The values of a fixed-width column without nulls; zero-copy and not checked against the checksums yet.

    Raises CorruptError if they do not lie inside the file.
    """
    validity, data = column.buffers()
    length = len(column) * column.type.bit_width // 8
    if validity is not None or (data.size if data else 0) < length:
        raise corrupt(verified.ref, f"a column of {len(column)} values has nulls or too few bytes")
    values = data.slice(0, length) if data else pa.py_buffer(b"")
    verified.offset_of(values)
    return values


def verify_everything(verified: VerifiedBytes, batches: Iterable[pa.RecordBatch]) -> None:
    """Check all regions and every value of every column (offsets, UTF-8, decimals)."""
    verified.verify_all()
    for batch in batches:
        for position in range(batch.num_columns):
            column = verify_column(verified, batch, position)
            try:
                column.validate(full=True)
            except pa.ArrowException as error:
                raise corrupt(verified.ref, f"column {batch.schema.names[position]!r}: {error}") from error


def _read_messages(verified: VerifiedBytes) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    ref, data = verified.ref, verified.data
    (first, schema_length), *middle, (footer, footer_length) = ref.metadata_ranges
    if first != 0 or data.slice(0, len(MAGIC)).to_pybytes() != MAGIC or footer + footer_length != data.size:
        raise corrupt(ref, "not an Arrow file")
    schema = ipc.read_schema(pa.BufferReader(data.slice(_SCHEMA_START, schema_length - _SCHEMA_START)))
    ends = [start for start, _ in middle[1:]] + [footer]
    batches = []
    expected = schema_length
    for (start, length), end in zip(middle, ends, strict=True):
        if start != expected or not start + length <= end <= data.size:
            raise corrupt(ref, f"a message is expected at byte {expected}, the commit says {start}")
        _refuse_compression(ref, data.slice(start, length))
        message = ipc.read_message(pa.BufferReader(data.slice(start, end - start)))
        batches.append(ipc.read_record_batch(message, schema))
        expected = end
    return schema, batches


def _message_end(data: pa.Buffer, start: int) -> int:
    marker, length = struct.unpack_from("<Ii", data, start)
    if marker != _CONTINUATION:
        raise CorruptError("SEGMENT_CORRUPT", f"no Arrow message at byte {start}")
    return start + _PREFIX_BYTES + int(length)


def _refuse_compression(ref: FileRef, message: pa.Buffer) -> None:
    """Compressed bodies could decompress to any size; this format version has none, so none is ever decompressed."""
    data = message.slice(_PREFIX_BYTES)
    table = struct.unpack_from("<I", data, 0)[0]
    if struct.unpack_from("<B", data, _field(data, table, 1))[0] != _RECORD_BATCH_HEADER:
        raise corrupt(ref, "it has a message that is not a record batch")
    header = _field(data, table, 2)
    batch = header + struct.unpack_from("<I", data, header)[0]
    if _field(data, batch, _COMPRESSION_SLOT):
        raise corrupt(ref, "its columns are compressed, which this format version does not allow")


def _field(data: pa.Buffer, table: int, slot: int) -> int:
    """Byte position of a flatbuffer table's field; 0 if the field is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    entry = 4 + 2 * slot
    if vtable < 0 or entry >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", data, vtable + entry)[0]
    return table + offset if offset else 0

"""The metadata of a record batch message: its rows, the lengths of its arrays and the places of its buffers.

Arrow hides this part of a message, and reads all columns of a batch at once. A reader that takes single columns, and
judges their sizes before it decompresses them, needs the numbers themselves. Metadata is a flatbuffer; each offset in
it is checked before it is followed.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError

PREFIX_BYTES = 8  # continuation marker and metadata length before each message
_CONTINUATION = 0xFFFFFFFF
_RECORD_BATCH_HEADER = 3  # MessageHeader.RecordBatch
_MESSAGE_TYPE, _MESSAGE_HEADER, _BODY_LENGTH = 1, 2, 3  # slots of the table Message
_LENGTH, _NODES, _BUFFERS, _COMPRESSION = 0, 1, 2, 3  # slots of the table RecordBatch
_CODEC, _METHOD = 0, 1  # slots of the table BodyCompression
_ZSTD, _EACH_BUFFER = 1, 0  # CompressionType.ZSTD, BodyCompressionMethod.BUFFER
_PAIR_BYTES = 16  # FieldNode and Buffer are two 64-bit numbers each

Pairs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BatchMessage:
    """A record batch without its body.

    ``nodes`` has (length, null count) of each array, children after their parents; ``buffers`` has (offset in the body,
    length) of each buffer. ``compressed``: each buffer that is not empty begins with its length before compression.
    """

    rows: int
    nodes: Pairs
    buffers: Pairs
    compressed: bool


@dataclass(frozen=True)
class BatchFields:
    """The byte positions of the numbers of a record batch in its metadata."""

    body_length: int
    rows: int
    nodes: int
    node_count: int
    buffers: int
    buffer_count: int
    compression: int  # 0 if there is none


def read_batch_message(metadata: pa.Buffer) -> BatchMessage:
    """Parse the metadata of a message. Raises ValueError or struct.error unless it is a record batch.

    Raises ValueError for a compression other than Zstandard for each buffer.
    """
    fields = batch_fields(metadata)
    if fields.compression:
        table = _table(metadata, fields.compression)
        codec, method = (_byte(metadata, table, slot) for slot in (_CODEC, _METHOD))
        if (codec, method) != (_ZSTD, _EACH_BUFFER):
            raise ValueError(f"its columns are compressed by codec {codec}, method {method}; expected zstd (1), 0")
    return BatchMessage(
        rows=struct.unpack_from("<q", metadata, fields.rows)[0] if fields.rows else 0,
        nodes=_pairs(metadata, fields.nodes, fields.node_count),
        buffers=_pairs(metadata, fields.buffers, fields.buffer_count),
        compressed=bool(fields.compression),
    )


def batch_fields(metadata: pa.Buffer | bytes) -> BatchFields:
    """Return where the numbers of a record batch are. Raises ValueError unless the message is a record batch."""
    message = struct.unpack_from("<I", metadata, 0)[0]
    if _byte(metadata, message, _MESSAGE_TYPE) != _RECORD_BATCH_HEADER:
        raise ValueError("it has a message that is not a record batch")
    batch = _table(metadata, _present(metadata, message, _MESSAGE_HEADER))
    nodes, node_count = _vector(metadata, batch, _NODES)
    buffers, buffer_count = _vector(metadata, batch, _BUFFERS)
    return BatchFields(
        body_length=_field(metadata, message, _BODY_LENGTH),
        rows=_field(metadata, batch, _LENGTH),
        nodes=nodes,
        node_count=node_count,
        buffers=buffers,
        buffer_count=buffer_count,
        compression=_field(metadata, batch, _COMPRESSION),
    )


def check_plain(metadata: pa.Buffer) -> None:
    """Raise ValueError unless a message is a record batch that is not compressed.

    Arrow would decompress a body to any size, and any value could refer to a dictionary. So Arrow receives neither.
    """
    message = struct.unpack_from("<I", metadata, 0)[0]
    if _byte(metadata, message, _MESSAGE_TYPE) != _RECORD_BATCH_HEADER:
        raise ValueError("it has a message that is not a record batch")
    batch = _table(metadata, _field(metadata, message, _MESSAGE_HEADER))
    if _field(metadata, batch, _COMPRESSION):
        raise ValueError("its columns are compressed, which this format version does not allow")


def message_end(data: pa.Buffer | mmap.mmap, start: int) -> int:
    """Return where the metadata of the message at ``start`` ends, in a file that was just written."""
    marker, length = struct.unpack_from("<Ii", data, start)
    if marker != _CONTINUATION:
        raise CorruptError(ErrorCode.SEGMENT_CORRUPT, f"no Arrow message at byte {start}")
    return start + PREFIX_BYTES + int(length)


def vector_at(data: pa.Buffer | bytes, table: int, slot: int, item_bytes: int) -> tuple[int, int]:
    """Return (byte position, length) of a vector in a table. Raises ValueError if it does not lie in the data."""
    begin = _present(data, table, slot)
    vector = begin + struct.unpack_from("<I", data, begin)[0]
    count: int = struct.unpack_from("<I", data, vector)[0]
    if vector + 4 + item_bytes * count > len(data):
        raise ValueError(f"its metadata has {len(data)} bytes, too few for {count} entries at byte {vector}")
    return vector + 4, count


def _pairs(metadata: pa.Buffer, begin: int, count: int) -> Pairs:
    return np.frombuffer(metadata, "<i8", 2 * count, begin).reshape(count, 2)


def _vector(metadata: pa.Buffer | bytes, batch: int, slot: int) -> tuple[int, int]:
    return vector_at(metadata, batch, slot, _PAIR_BYTES)


def _table(data: pa.Buffer | bytes, position: int) -> int:
    return position + int(struct.unpack_from("<I", data, position)[0])


def _byte(data: pa.Buffer | bytes, table: int, slot: int) -> int:
    """Return a field of one byte, whose default is 0."""
    position = _field(data, table, slot)
    return int(struct.unpack_from("<B", data, position)[0]) if position else 0


def _present(data: pa.Buffer | bytes, table: int, slot: int) -> int:
    position = _field(data, table, slot)
    if not position:
        raise ValueError(f"its metadata lacks the field {slot} of the table at byte {table}")
    return position


def _field(data: pa.Buffer | bytes, table: int, slot: int) -> int:
    """Byte position of a flatbuffer table's field; 0 if the field is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    entry = 4 + 2 * slot
    if vtable < 0 or entry >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", data, vtable + entry)[0]
    return table + offset if offset else 0

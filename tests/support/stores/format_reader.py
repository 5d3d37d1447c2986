"""A reader of segment files written from docs/format.md, one number at a time, beside that of the package."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import ipc

from statestore.formats.segments.batch_message import read_batch_message

MASK = (1 << 64) - 1


def read_rows(data: pa.Buffer) -> pa.Table:
    """The rows of a segment file of any format whose columns are not nested."""
    messages = ipc.MessageReader.open_stream(pa.BufferReader(data.slice(8)))
    schema = ipc.read_schema(next(messages))
    return pa.Table.from_batches([_batch(message, schema) for message in messages], schema=schema)


def _batch(message: ipc.Message, schema: pa.Schema) -> pa.RecordBatch:
    head = read_batch_message(message.metadata)
    body = message.body.to_pybytes()
    buffers = iter([body[offset : offset + length] for offset, length in head.buffers.tolist()])
    arrays = []
    for field, (length, nulls) in zip(schema, head.nodes.tolist(), strict=True):
        kind = field.type
        is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
        validity = _stored(next(buffers), pa.uint8(), 0, head.compressed)
        found = [pa.py_buffer(validity) if nulls else None]
        if is_text:
            found.append(pa.py_buffer(_stored(next(buffers), pa.int32(), length + 1, head.compressed)))
        found.append(pa.py_buffer(_stored(next(buffers), kind, length, head.compressed)))
        arrays.append(pa.Array.from_buffers(kind, length, found, nulls))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _stored(data: bytes, kind: pa.DataType, count: int, compressed: bool) -> bytes:
    if not data or not compressed:
        return data
    (length,) = struct.unpack_from("<q", data)
    if length >= 0:
        return pa.Codec("zstd").decompress(data[8:], length, asbytes=True)  # type: ignore[no-any-return]
    return data[8:] if length == -1 else b"".join(_coded(data[8:], kind, count))


def _coded(data: bytes, kind: pa.DataType, count: int) -> Iterator[bytes]:
    width, flags, decimals, base, unit = struct.unpack_from("<BBB5xqq", data)
    stored = data[24:]
    if flags & 2:
        stored = pa.Codec("zstd").decompress(stored, count * width, asbytes=True)
    assert len(stored) == count * width
    total = 0
    for row in range(count):
        number = begin = done = 0
        for size in (4, 2, 1):
            if width & size:
                piece = stored[begin + row * size : begin + (row + 1) * size]
                number |= int.from_bytes(piece, "little") << (8 * done)
                begin, done = begin + count * size, done + size
        total = total + number if flags & 1 else number
        value = (base + unit * total) & MASK
        if pa.types.is_float64(kind):
            signed = value - (1 << 64) if value >> 63 else value
            yield struct.pack("<d", signed / 10.0**decimals)
        else:
            yield value.to_bytes(8, "little")[: kind.bit_width // 8]

"""Writing Arrow files whose columns are compressed where that saves enough.

Arrow's own writer compresses all columns or none. The format of its files allows a choice for each buffer: a buffer
that is stored as it is says so in place of its length. Arrow makes the metadata here, and the numbers in it that depend
on the compressed lengths are put in place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from statestore.formats.segments.batch_message import (
    PREFIX_BYTES,
    BatchMessage,
    batch_fields,
    message_end,
    read_batch_message,
    vector_at,
)
from statestore.formats.segments.coded_numbers import encode
from statestore.formats.segments.stored_batch import (
    CODED,
    MAX_UNPACKED_BYTES,
    STORED_AS_IS,
    ColumnPlace,
    column_places,
)

_ALIGNMENT = 8
_START = b"ARROW1\0\0"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_FOOTER_BATCHES = 3  # slot of the table Footer
_BLOCK_BYTES = 24  # offset, metadata length (32 bits, padded), body length
_BATCHES_UNTIL_TRIED = 8
_JUDGED_BYTES = 1 << 14  # a shorter column says little about the next batch
_LEAST_BUFFER_SAVING = 0.125


@dataclass(frozen=True)
class Compression:
    """How columns are compressed: by Zstandard of this level, where a column gets smaller by ``least_saving``.

    A column that did not save enough in one batch is stored as it is in the next seven. Columns named in ``plain`` are
    never compressed. With ``coded``, numbers are stored in fewer bytes before that (`coded_numbers`), also those of
    ``plain`` columns, which do not run, so that a number is read where it lies; only this reader reads such files.
    """

    level: int = 3
    least_saving: float = 0.25
    plain: tuple[str, ...] = ()
    coded: bool = False
    batch_rows: int = 0
    """Rows of a record batch; 0: as many as one row should cost at most on a local disk."""


@dataclass(frozen=True)
class CompressedBatches:
    """Record batches of one schema that are to be compressed when they are written."""

    batches: Iterable[pa.RecordBatch]
    compression: Compression


class Sink(Protocol):
    """A file that is being written."""

    def write(self, data: bytes | pa.Buffer) -> int: ...

    def tell(self) -> int: ...


def write_compressed(sink: Sink, schema: pa.Schema, batches: CompressedBatches) -> tuple[list[int], int]:
    """Write a whole Arrow file; return the position of each batch, and the position behind the last.

    Raises ValueError if there is no batch.
    """
    sink.write(_START)
    sink.write(schema.serialize())
    compressor: _Compressor | None = None
    places: list[tuple[int, int, int]] = []
    for batch in batches.batches:
        if compressor is None:
            compressor = _Compressor(schema, batches.compression, batch)
        metadata, body = compressor.compress(batch)
        places.append((sink.tell(), len(metadata), sum(map(len, body))))
        for piece in (metadata, *body):
            sink.write(piece)
    end = sink.tell()
    footer = _footer(schema, places)
    sink.write(_END_OF_STREAM + footer + struct.pack("<i", len(footer)) + _START[:6])
    return [start for start, _, _ in places], end


class _Compressor:
    """Messages of compressed batches; ``example`` is a batch of the schema with at least one row."""

    def __init__(self, schema: pa.Schema, compression: Compression, example: pa.RecordBatch) -> None:
        sink = pa.BufferOutputStream()
        codec = pa.Codec("zstd", compression.level)
        with ipc.new_stream(sink, schema, options=ipc.IpcWriteOptions(compression=codec)) as writer:
            writer.write_batch(example.slice(0, 1))
        stream = sink.getvalue()
        start = schema.serialize().size
        self._template = stream.slice(start, message_end(stream, start) - start).to_pybytes()
        self._fields = batch_fields(self._template[PREFIX_BYTES:])
        self._codec = codec
        self._most = 1 - compression.least_saving
        self._places = column_places(schema)
        self._plain = {schema.get_field_index(name) for name in compression.plain}
        self._resting = [0] * len(self._places)  # batches for which a column is not tried
        self._kinds = [_number_kind(field.type) if compression.coded else None for field in schema]

    def compress(self, batch: pa.RecordBatch) -> tuple[bytes, list[bytes | pa.Buffer]]:
        """Return the framing of the message and the pieces of its body."""
        plain = batch.serialize()
        end = message_end(plain, 0)
        message = read_batch_message(plain.slice(PREFIX_BYTES, end - PREFIX_BYTES))
        body = plain.slice(end)
        stored: list[tuple[int, pa.Buffer | bytes]] = []
        for number, place in enumerate(self._places):
            buffers = message.buffers[place.buffer : place.buffer + place.buffers].tolist()
            stored += self._column(
                number, place, [body.slice(offset, length) for offset, length in buffers], message.rows
            )
        pieces: list[bytes | pa.Buffer] = []
        entries, offset = [], 0
        for size, data in stored:
            length = 0
            if len(data):
                padding = -len(data) % _ALIGNMENT
                length = _ALIGNMENT + len(data)
                pieces += [struct.pack("<q", size), data, bytes(padding)]
            entries.append((offset, length))
            offset += -(-length // _ALIGNMENT) * _ALIGNMENT
        return self._framing(message, entries, offset), pieces

    def _column(
        self, number: int, place: ColumnPlace, buffers: list[pa.Buffer], rows: int
    ) -> list[tuple[int, pa.Buffer | bytes]]:
        """Return (length before compression, STORED_AS_IS or CODED; bytes) of each buffer of a column."""
        if sum(buffer.size for buffer in buffers) > MAX_UNPACKED_BYTES:
            return [(STORED_AS_IS, buffer) for buffer in buffers]
        kind = self._kinds[number]
        is_text = place.buffers == 3
        coded = None
        if kind is not None:
            coded = encode(np.frombuffer(buffers[1], kind, rows + is_text), is_text or number not in self._plain)
        if coded is None:
            return self._packed(number, buffers)
        if is_text:
            validity, texts = self._packed(number, [buffers[0], buffers[2]])
            lengths = self._codec.compress(coded.data)
            is_packed = lengths.size <= self._most * len(coded.data)
            return [validity, (CODED, coded.header(is_packed) + (bytes(lengths) if is_packed else coded.data)), texts]
        validity, data = self._packed(number, [buffers[0], pa.py_buffer(coded.data)])
        return [validity, (CODED, coded.header(data[0] != STORED_AS_IS) + bytes(data[1]))]

    def _packed(self, number: int, buffers: list[pa.Buffer]) -> list[tuple[int, pa.Buffer | bytes]]:
        """Return buffers of a column as `_column` does, compressed if that saves enough."""
        plain: list[tuple[int, pa.Buffer | bytes]] = [(STORED_AS_IS, buffer) for buffer in buffers]
        size = sum(buffer.size for buffer in buffers)
        if number in self._plain:
            return plain
        if self._resting[number]:
            self._resting[number] -= 1
            return plain
        packed = [self._buffer(buffer) for buffer in buffers]
        if sum(len(data) for _, data in packed) > self._most * size:
            self._resting[number] = _BATCHES_UNTIL_TRIED - 1 if size >= _JUDGED_BYTES else 0
            return plain
        return packed

    def _buffer(self, buffer: pa.Buffer) -> tuple[int, pa.Buffer | bytes]:
        if not buffer.size:
            return STORED_AS_IS, buffer
        packed = self._codec.compress(buffer)
        if packed.size > (1 - _LEAST_BUFFER_SAVING) * buffer.size:
            return STORED_AS_IS, buffer
        return buffer.size, packed

    def _framing(self, message: BatchMessage, entries: list[tuple[int, int]], body_length: int) -> bytes:
        framing = bytearray(self._template)
        fields = self._fields
        struct.pack_into("<q", framing, PREFIX_BYTES + fields.rows, message.rows)
        struct.pack_into("<q", framing, PREFIX_BYTES + fields.body_length, body_length)
        for begin, pairs in ((fields.nodes, message.nodes.tolist()), (fields.buffers, entries)):
            flat = [number for pair in pairs for number in pair]
            struct.pack_into(f"<{len(flat)}q", framing, PREFIX_BYTES + begin, *flat)
        return bytes(framing)


def _number_kind(kind: pa.DataType) -> type[np.generic] | None:
    """Return the numpy type of the numbers of a column that can be coded: its values, or the offsets of its text."""
    if pa.types.is_float64(kind):
        return np.float64
    if pa.types.is_int64(kind) or pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return np.int64
    offsets = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return np.int32 if offsets or pa.types.is_int32(kind) or pa.types.is_date32(kind) else None


def _footer(schema: pa.Schema, places: list[tuple[int, int, int]]) -> bytes:
    """Return the footer of a file whose batches have these (positions, metadata lengths, body lengths).

    Arrow writes a footer for as many empty batches, and the numbers are put in place.
    """
    sink = pa.BufferOutputStream()
    empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
    with ipc.new_file(sink, schema) as writer:
        for _ in places:
            writer.write_batch(empty)
    data = sink.getvalue().to_pybytes()
    length = struct.unpack_from("<i", data, len(data) - 10)[0]
    footer = bytearray(data[len(data) - 10 - length : len(data) - 10])
    if places:
        begin, _ = vector_at(bytes(footer), struct.unpack_from("<I", footer, 0)[0], _FOOTER_BATCHES, _BLOCK_BYTES)
        for number, (start, metadata, body) in enumerate(places):
            struct.pack_into("<qi4xq", footer, begin + _BLOCK_BYTES * number, start, metadata, body)
    return bytes(footer)

"""A record batch of a segment with blocks, read column by column: nothing is decompressed that is not asked for.

Checksums prove that the bytes are those that were committed, not that their lengths are sensible. The length of each
buffer is therefore compared with what the rows need before it is decompressed (docs/format.md).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from statestore.formats.segments.batch_message import PREFIX_BYTES, BatchMessage, read_batch_message
from statestore.formats.segments.coded_numbers import NumbersInPlace, decode, in_place
from statestore.formats.segments.regions import VerifiedBytes, corrupt

UNREADABLE = (
    pa.ArrowException,
    OSError,
    EOFError,
    ValueError,
    TypeError,
    IndexError,
    OverflowError,
    StopIteration,
    struct.error,
    MemoryError,
)  # fmt: skip - errors that pyarrow, numpy and struct raise for malformed bytes
LENGTH_BYTES = 8  # before each buffer of a compressed batch
STORED_AS_IS = -1  # in place of the length before compression
CODED = -2  # likewise: the numbers are coded (`coded_numbers`)
MAX_UNPACKED_BYTES = 1 << 26  # of the compressed buffers of one column in one batch
_PADDING = 64  # Arrow may store that many bytes more than the values need
_OFFSET = pa.int32()
_ZSTD = pa.Codec("zstd")
_NOTHING, _NO_OFFSETS = pa.py_buffer(b""), pa.py_buffer(bytes(4))


@dataclass(frozen=True)
class ColumnPlace:
    """The first of a column's nodes and buffers in a message, and how many there are."""

    node: int
    nodes: int
    buffer: int
    buffers: int


def column_places(schema: pa.Schema) -> tuple[ColumnPlace, ...]:
    """Return the place of each column of a schema."""
    places, node, buffer = [], 0, 0
    for field in schema:
        nodes, buffers = _counts(field.type)
        places.append(ColumnPlace(node, nodes, buffer, buffers))
        node, buffer = node + nodes, buffer + buffers
    return tuple(places)


class StoredBatch:
    """One record batch between ``start`` and ``end`` of a file; its message is read when a column is first asked for.

    ``metadata_bytes``: the length of its framing by the commit. ``rows``: its rows by the commit. ``coded``: its
    buffers may be coded.
    """

    def __init__(
        self,
        verified: VerifiedBytes,
        schema: pa.Schema,
        places: tuple[ColumnPlace, ...],
        rows: int,
        start: int,
        metadata_bytes: int,
        end: int,
        coded: bool = False,
    ) -> None:
        self._may_be_coded = coded
        self.schema = schema
        self.num_rows = rows
        self._verified = verified
        self._places = places
        self._start = start
        self._body = start + metadata_bytes
        self._end = end

    @cached_property
    def _message(self) -> BatchMessage:
        verified = self._verified
        verified.verify(self._start, self._body - self._start)
        begin = self._start + PREFIX_BYTES
        try:
            message = read_batch_message(verified.data.slice(begin, self._body - begin))
            last = self._places[-1]
            if (len(message.nodes), len(message.buffers)) != (last.node + last.nodes, last.buffer + last.buffers):
                raise ValueError(f"it has {len(message.nodes)} arrays and {len(message.buffers)} buffers")
            if message.rows != self.num_rows:
                raise ValueError(f"it has {message.rows} rows, the commit says {self.num_rows}")
        except UNREADABLE as error:
            raise corrupt(
                verified.ref, f"the record batch at byte {self._start} is not as the format requires ({error})"
            ) from error
        return message

    @property
    def is_compressed(self) -> bool:
        """Whether columns of the batch may be compressed."""
        return self._message.compressed

    def column(self, position: int) -> tuple[pa.Array, int]:
        """Return a column and the number of its bytes that were decompressed; the others are views of the file.

        Raises CorruptError if a region is damaged or a length is not one that the rows can need. The values are not
        checked otherwise.
        """
        message, place = self._message, self._places[position]
        buffers = message.buffers[place.buffer : place.buffer + place.buffers].tolist()
        nodes = message.nodes[place.node : place.node + place.nodes].tolist()
        try:
            stored = [self._stored(offset, length, message.compressed) for offset, length in buffers]
            unpacked = sum(buffer.unpacked for buffer in stored)
            if unpacked > MAX_UNPACKED_BYTES:
                raise ValueError(f"{unpacked} bytes before compression, at most {MAX_UNPACKED_BYTES} are allowed")
            if nodes[0][0] != self.num_rows:
                raise ValueError(f"{nodes[0][0]} values for {self.num_rows} rows")
            array = _ArrayBuilder(nodes, stored).array(self.schema.field(position).type)
            if any(buffer.coded for buffer in stored):
                unpacked += array.nbytes
        except UNREADABLE as error:
            raise corrupt(self._verified.ref, f"column {self.schema.names[position]!r}: {error}") from error
        return array, unpacked

    def in_place(self, position: int) -> NumbersInPlace | None:
        """Return a column of 64-bit integers as it is coded in the file; None where it has nulls or another form.

        Raises CorruptError if a region is damaged.
        """
        message, place = self._message, self._places[position]
        (rows, nulls), *_ = message.nodes[place.node : place.node + place.nodes].tolist()
        if not message.compressed or place.buffers != 2 or nulls or rows != self.num_rows:
            return None
        offset, length = message.buffers[place.buffer + 1].tolist()
        try:
            stored = self._stored(offset, length, compressed=True)
        except UNREADABLE:  # whoever reads the column says what is wrong with it
            return None
        return in_place(stored.data, rows) if stored.coded else None

    def ranges(self, position: int) -> list[tuple[int, int]]:
        """Return where the buffers of a column lie in the file, as (offset, length)."""
        place = self._places[position]
        buffers = self._message.buffers[place.buffer : place.buffer + place.buffers].tolist()
        return [(self._body + offset, length) for offset, length in buffers]

    def stored_bytes(self, position: int) -> int:
        """Return the bytes of the file that a column of this batch takes."""
        place = self._places[position]
        return int(self._message.buffers[place.buffer : place.buffer + place.buffers, 1].sum())

    def _stored(self, offset: int, length: int, compressed: bool) -> _Stored:
        if offset < 0 or offset % 8 or length < 0 or self._body + offset + length > self._end:
            raise ValueError(f"a buffer of {length} bytes at byte {offset} does not lie in its record batch")
        data = self._verified.slice(self._body + offset, length)
        if not length or not compressed:
            return _Stored(data, length, 0)
        size = struct.unpack_from("<q", data, 0)[0]
        data = data.slice(LENGTH_BYTES)
        if size == STORED_AS_IS:
            return _Stored(data, data.size, 0)
        if size == CODED and self._may_be_coded:
            return _Stored(data, data.size, 0, coded=True)
        if size < 0:
            raise ValueError(f"a buffer has {size} bytes before compression")
        return _Stored(data, size, size)


@dataclass(frozen=True)
class _Stored:
    """A checked buffer; ``unpacked``: the bytes to which it is to be decompressed, 0 if it is stored as it is.

    ``coded``: it has coded numbers.
    """

    data: pa.Buffer
    size: int
    unpacked: int
    coded: bool = False

    def numbers(self, kind: pa.DataType, count: int, what: str) -> pa.Buffer:
        """Return the buffer of ``count`` values of a type of fixed width. Raises ValueError as `read` does."""
        needed = -(-count * kind.bit_width // 8)
        if not self.coded or not count:
            return self.read(needed, what)
        if needed > MAX_UNPACKED_BYTES:
            raise ValueError(f"{what} have {needed} bytes before coding, at most {MAX_UNPACKED_BYTES} are allowed")
        return decode(self.data, kind, count)

    def read(self, needed: int, what: str) -> pa.Buffer:
        """Return its bytes, of which the rows need ``needed``; nothing is read if they need none.

        Raises ValueError, before anything is decompressed, if there are too few, or if decompression would give more.
        """
        if not needed:
            return _NOTHING
        if self.coded:
            raise ValueError(f"{what} are coded")
        most = -(-needed // _PADDING) * _PADDING if self.unpacked else self.size
        if not needed <= self.size <= most:
            raise ValueError(f"{what} have {self.size} bytes, expected {needed}")
        return _ZSTD.decompress(self.data, self.unpacked) if self.unpacked else self.data


class _ArrayBuilder:
    """The arrays of one column, made in the order in which its nodes and buffers are stored."""

    def __init__(self, nodes: list[list[int]], buffers: list[_Stored]) -> None:
        self._nodes = iter(nodes)
        self._buffers = iter(buffers)

    def array(self, kind: pa.DataType) -> pa.Array:
        length, nulls = next(self._nodes)
        if not 0 <= nulls <= length:
            raise ValueError(f"{nulls} nulls among {length} values")
        buffers = [self._validity(length, nulls)]
        children = None
        if pa.types.is_struct(kind):
            children = [self.array(kind.field(i).type) for i in range(kind.num_fields)]
            if any(len(child) != length for child in children):
                raise ValueError(f"the fields of {length} structs have other lengths")
        elif pa.types.is_list(kind) or pa.types.is_map(kind):
            offsets, last = self._offsets(length)
            buffers.append(offsets)
            children = [self.array(_child(kind))]
            if len(children[0]) < last:
                raise ValueError(f"offsets up to {last}, {len(children[0])} elements")
        elif pa.types.is_string(kind) or pa.types.is_binary(kind):
            offsets, last = self._offsets(length)
            buffers += [offsets, next(self._buffers).read(last, "values")]
        else:
            buffers.append(next(self._buffers).numbers(kind, length, "values"))
        return pa.Array.from_buffers(kind, length, buffers, nulls, children=children)

    def _validity(self, length: int, nulls: int) -> pa.Buffer | None:
        stored = next(self._buffers)
        if not stored.size and not nulls:
            return None
        return stored.read(-(-length // 8), "validity bits")

    def _offsets(self, length: int) -> tuple[pa.Buffer, int]:
        """Return the offsets of an array, and the last of them."""
        stored = next(self._buffers)
        if not length:
            return _NO_OFFSETS, 0
        offsets = stored.numbers(_OFFSET, length + 1, "offsets")
        last = int(np.frombuffer(offsets, "<i4", 1, 4 * length)[0])
        if last < 0:
            raise ValueError(f"its last offset is {last}")
        return offsets, last


def _child(kind: pa.DataType) -> pa.DataType:
    """Return the type of the only child of a list or a map."""
    return pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type


def _counts(kind: pa.DataType) -> tuple[int, int]:
    """Return the number of nodes and buffers of a type, its children included."""
    if pa.types.is_struct(kind):
        nodes, buffers, children = 1, 1, [kind.field(i).type for i in range(kind.num_fields)]
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        nodes, buffers, children = 1, 2, [_child(kind)]
    else:
        nodes, buffers, children = 1, 3 if pa.types.is_string(kind) or pa.types.is_binary(kind) else 2, []
    for child in children:
        more_nodes, more_buffers = _counts(child)
        nodes, buffers = nodes + more_nodes, buffers + more_buffers
    return nodes, buffers

"""Avro's object container files, block by block, as arrays of their records.

    "Obj" 01 | metadata: map of bytes, with avro.schema and avro.codec | sync:16
    count:long | size:long | records | sync:16                           repeated

The records of a block have no lengths, so a compiled pass finds their ends first; then they are columns like any other
Avro values. A block is read whole: at most MOST_BYTES, packed and plain.
"""

from __future__ import annotations

import bz2
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, Fault
from statestore.formats.bytes.column_cursor import Cursor
from statestore.formats.bytes.snappy_blocks import snappy_length, unpacked
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError, shown
from statestore.formats.kafka.columns.avro_values import avro_values
from statestore.formats.kafka.schemas.avro_schema import AvroType, parse_schema
from statestore.formats.kernels.arrays import Ints

MAGIC = b"Obj\x01"
MOST_BYTES = 256 << 20
_SYNC = 16
_CHUNK = 1 << 20
_ROWS = 1 << 16
_HELD_BYTES = 32 << 20
_MOST_METADATA = 16 << 20
_CODECS = ("null", "deflate", "snappy", "zstandard", "bzip2")


@dataclass
class _Stream:
    """The bytes of a container; ``place`` says in messages what is being read."""

    source: Any
    path: str
    size: int
    at: int = 0
    place: str = "header"

    def fail(self, found: str) -> NoReturn:
        raise self.fault(found)

    def fault(self, found: str) -> CorruptError:
        return CorruptError(
            ErrorCode.FILE_DAMAGED, f"file {self.path}, {self.place}: found {found}; restore it from a copy"
        )

    def take(self, size: int, what: str, most: int = MOST_BYTES) -> bytes:
        if not 0 <= size <= min(most, self.size - self.at):
            self.fail(f"{what} of {size} bytes, expected at most the {self.size - self.at} that follow")
        found: bytes = self.source.read(size)
        self.at += len(found)
        if len(found) < size:
            self.fail(f"the end of the file within {what}")
        return found

    def long(self, what: str) -> int:
        raw = shift = 0
        while shift < 64:
            byte = self.take(1, what)[0]
            raw |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
            shift += 7
        self.fail(f"{what} of more than 64 bits")


@dataclass(frozen=True)
class _Header:
    schema: AvroType
    codec: str
    sync: bytes


def avro_rows(source: Any, path: str) -> int:
    """The number of records, by the counts of the blocks. Errors as `avro_arrays`."""
    stream = _opened(source, path)
    header = _header(stream)
    return sum(count for count, _ in _blocks(stream, header))


def avro_arrays(source: Any, path: str) -> Iterator[pa.Array]:
    """Yield the records of a container, some at a time, as arrays of its schema's column.

    Raises CorruptError FILE_DAMAGED naming the file and the block, UnsupportedError FILE_FORMAT for another codec,
    and errors of `parse_schema`.
    """
    stream = _opened(source, path)
    header = _header(stream)
    held: list[pa.Array] = []
    rows = size = 0
    for found in _decoded_blocks(stream, header):
        held.append(found)
        rows, size = rows + len(found), size + found.nbytes
        if rows >= _ROWS or size >= _HELD_BYTES:
            yield pa.concat_arrays(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_arrays(held)


def _decoded_blocks(stream: _Stream, header: _Header) -> Iterator[pa.Array]:
    """Yield the records of each block; large ones in parts."""
    program = _Program.of(header.schema)
    for count, packed in _blocks(stream, header):
        data = np.frombuffer(_plain(stream, header.codec, packed), np.uint8)
        ends = _ends(stream, program, data, count)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
        for first in range(0, count, _ROWS):
            part = slice(first, first + _ROWS)
            yield _decoded(stream, header.schema, Cells(data, starts[part], ends[part] - starts[part]))


def _opened(source: Any, path: str) -> _Stream:
    source.seek(0, 2)
    size = source.tell()
    source.seek(0)
    return _Stream(source, path, size)


def _header(stream: _Stream) -> _Header:
    if stream.size < len(MAGIC) or stream.take(len(MAGIC), "the first bytes") != MAGIC:
        stream.fail("other first bytes, expected those of an Avro container (Obj 01)")
    found: dict[bytes, bytes] = {}
    while count := stream.long("a count of metadata"):
        if count < 0:
            stream.long("a size of metadata")
        for _ in range(abs(count)):
            name = stream.take(stream.long("a length"), "a name", _MOST_METADATA)
            found[name] = stream.take(stream.long("a length"), "metadata", _MOST_METADATA)
    codec = found.get(b"avro.codec", b"null").decode(errors="replace")
    if codec not in _CODECS:
        raise UnsupportedError(
            ErrorCode.UNSUPPORTED_SERDE,
            f"file {stream.path}: found codec {shown(codec)}, expected one of {', '.join(_CODECS)}; write it again "
            "with one of these",
        )
    if b"avro.schema" not in found:
        stream.fail("no avro.schema in the metadata")
    try:
        text = found[b"avro.schema"].decode()
    except UnicodeDecodeError:
        stream.fail("a schema that is no UTF-8")
    try:
        schema = parse_schema(text)
    except InvalidInputError as error:
        stream.fail(f"a schema that cannot be read ({error.message})")
    except UnsupportedError as error:
        raise UnsupportedError(error.code, f"file {stream.path}: {error.message}") from error
    return _Header(schema, codec, stream.take(_SYNC, "the marker"))


def _blocks(stream: _Stream, header: _Header) -> Iterator[tuple[int, bytes]]:
    """Yield the number of records and the packed bytes of each block."""
    number = 0
    while stream.at < stream.size:
        number += 1
        stream.place = f"block {number} at byte {stream.at}"
        count = stream.long("a count")
        packed = stream.take(stream.long("a size"), "records")
        if stream.take(_SYNC, "the marker") != header.sync:
            stream.fail("another marker behind it than in the header")
        if count < 0 or count > MOST_BYTES:
            stream.fail(f"{count} records, expected 0 to {MOST_BYTES}")
        yield count, packed


def _plain(stream: _Stream, codec: str, packed: bytes) -> bytes:
    fault = partial(_broken, stream, codec)
    if codec == "null":
        return packed
    if codec == "snappy":
        body, checksum = packed[:-4], packed[-4:]
        size = snappy_length(body, fault)
        if size > min(MOST_BYTES, 64 * len(body)):
            raise fault(f"a length of {size}")
        plain = unpacked("snappy", body, size, fault)
        if zlib.crc32(plain).to_bytes(4) != checksum:
            raise fault("another checksum")
        return plain
    if codec == "zstandard":
        return _stream(packed, fault)
    packer: Any = zlib.decompressobj(-zlib.MAX_WBITS) if codec == "deflate" else bz2.BZ2Decompressor()
    try:
        unpacked_bytes: bytes = packer.decompress(packed, MOST_BYTES)
    except (zlib.error, OSError, EOFError, ValueError) as error:
        raise fault(str(error)) from error
    if not packer.eof:
        raise fault(f"a stream that is cut, or of more than {MOST_BYTES} bytes")
    return unpacked_bytes


def _stream(packed: bytes, fault: Fault) -> bytes:
    """The content of a zstd stream, which need not say how long that is."""
    parts, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as found:
            while part := found.read(_CHUNK):
                size += len(part)
                if size > MOST_BYTES:
                    raise fault(f"more than {MOST_BYTES} bytes")
                parts.append(part)
    except (OSError, pa.ArrowInvalid) as error:
        raise fault(str(error)) from error
    return b"".join(parts)


def _broken(stream: _Stream, codec: str, reason: str) -> CorruptError:
    return stream.fault(f"records that are not {codec} ({reason})")


def _ends(stream: _Stream, program: _Program, data: Any, count: int) -> Ints:
    from statestore.formats.kernels.avro_kernels import record_ends

    if count > len(data):
        stream.fail(f"{count} records in {len(data)} bytes, expected at least one byte in each")
    ends = np.zeros(count, np.int64)
    levels = np.zeros((2, max(program.levels, 1)), np.int64)
    steps, choices = np.array(program.steps, np.int64).ravel(), np.array(program.choices, np.int64)
    whole = record_ends(data, steps, choices, levels[0], levels[1], ends)
    if whole < count:
        stream.fail(f"a record {whole} of {count} that does not fit the schema")
    if (ends[-1] if count else 0) != len(data):
        stream.fail(f"{len(data)} bytes of records, expected {int(ends[-1]) if count else 0} by the schema")
    return ends


def _decoded(stream: _Stream, schema: AvroType, cells: Cells) -> pa.Array:
    cursor = Cursor(cells)
    try:
        found = avro_values(cursor, schema)
    except pa.ArrowInvalid as error:  # a text that is no UTF-8, a time or a decimal beyond its type
        stream.fail(f"a value that does not fit the schema ({str(error)[:200]})")
    cursor.end()
    if cursor.bad.any():
        stream.fail("a value that does not fit the schema")
    return found


@dataclass
class _Program:
    """Steps of ``record_ends`` for a type, as `statestore.formats.kernels.avro_kernels` describes them."""

    steps: list[tuple[int, int, int]] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    levels: int = 0

    @classmethod
    def of(cls, kind: AvroType) -> _Program:
        from statestore.formats.kernels.avro_kernels import END

        found = cls()
        found._add(kind, 0)
        found.steps.append((END, 0, 0))
        if not found.choices:
            found.choices.append(0)
        return found

    def _add(self, kind: AvroType, level: int) -> None:
        from statestore.formats.kernels.avro_kernels import BLOCK, BYTES, NEXT, SKIP, VARINT

        form = kind.form
        if form == "record":
            for part in kind.parts:
                self._add(part, level)
        elif kind.is_union:
            self._choose(kind.branches, level)
        elif form in ("array", "map"):
            self.levels = max(self.levels, level + 1)
            at = len(self.steps)
            self.steps.append((BLOCK, level, 0))
            if form == "map":
                self.steps.append((BYTES, 0, 0))
            self._add(kind.parts[0], level + 1)
            self.steps.append((NEXT, level, at + 1))
            self.steps[at] = (BLOCK, level, len(self.steps))
        elif form in ("int", "long", "enum"):
            self.steps.append((VARINT, 0, 0))
        elif form.endswith("fixed"):
            self.steps.append((SKIP, kind.size, 0))
        elif form != "null":
            size = {"boolean": 1, "float": 4, "double": 8}.get(form)
            self.steps.append((BYTES, 0, 0) if size is None else (SKIP, size, 0))

    def _choose(self, branches: Sequence[AvroType], level: int) -> None:
        from statestore.formats.kernels.avro_kernels import CHOOSE, GO

        first = len(self.choices)
        self.choices += [0] * len(branches)
        self.steps.append((CHOOSE, first, len(branches)))
        gone = []
        for number, branch in enumerate(branches):
            self.choices[first + number] = len(self.steps)
            self._add(branch, level)
            gone.append(len(self.steps))
            self.steps.append((GO, 0, 0))
        for at in gone:
            self.steps[at] = (GO, len(self.steps), 0)

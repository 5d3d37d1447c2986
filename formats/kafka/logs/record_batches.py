"""Record batches of a segment file: walked with or without their checksums, and decoded many at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, sized_cells
from statestore.formats.bytes.snappy_blocks import XERIAL, XERIAL_HEADER, snappy_length, unpacked, xerial_blocks
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, StateStoreError, UnsupportedError
from statestore.formats.kafka.changelogs.records import HeaderCells, Records
from statestore.formats.kafka.columns.header_columns import HEADERS
from statestore.formats.kafka.logs import plain_batches
from statestore.formats.kernels.arrays import Bools, Bytes, Ints
from statestore.formats.kernels.batch_layout import (
    ATTRIBUTES,
    CODEC,
    COUNT,
    HEADER,
    LAST_DELTA,
    POSITION,
    RECORD_COLUMNS,
    SIZE,
)
from statestore.formats.kernels.compiled_use import is_loaded

DECODED_BYTES = 8 << 20  # of records that are handed out together, or one batch


def damaged(file: str, position: int, found: str) -> CorruptError:
    """The error for a byte of a segment file where a batch is not what a broker wrote."""
    return CorruptError(
        ErrorCode.KAFKA_LOG, f"file {file}, byte {position}: {found}; restore the file from a replica or a copy"
    )


def loops() -> Any:
    """The compiled loops where they are in use, else plain Python."""
    if not is_loaded():
        return plain_batches
    from statestore.formats.kernels import record_batch_kernels

    return record_batch_kernels


@dataclass(frozen=True)
class Batches:
    """Whole batches of a file: ``table`` has a row for each, ``data`` their bytes; ``origin`` is the byte of the file
    where ``data`` begins, ``present`` the number of records of the log that precede each batch."""

    file: str
    origin: int
    data: Bytes
    table: Ints
    present: Ints

    def __len__(self) -> int:
        return len(self.table)

    def select(self, which: Bools | slice) -> Batches:
        return Batches(self.file, self.origin, self.data, self.table[which], self.present[which])

    def check_counts(self) -> None:
        """Raise CorruptError KAFKA_LOG where a batch claims a number of records that it cannot have."""
        count, delta, size = self.table[:, COUNT], self.table[:, LAST_DELTA], self.table[:, SIZE]
        plain = self.table[:, ATTRIBUTES] & CODEC == 0
        bad = (count < 0) | (delta < 0) | (count > delta + 1) | (plain & (count * 7 > size - HEADER))
        if bad.any():
            row = int(np.argmax(bad))
            raise damaged(
                self.file,
                self.origin + int(self.table[row, POSITION]),
                f"found a batch of {int(count[row])} records with last offset delta {int(delta[row])} in "
                f"{int(size[row])} bytes",
            )


def decoded(batches: Batches, partition: int) -> Iterator[Records]:
    """Yield the records of the batches, some at a time. Raises CorruptError KAFKA_LOG, UnsupportedError."""
    packed = batches.table[:, ATTRIBUTES] & CODEC != 0
    if not packed.any():
        begin = batches.table[:, POSITION] + HEADER
        if len(batches):
            yield from _parsed(
                batches, batches.data, begin, batches.table[:, POSITION] + batches.table[:, SIZE], partition
            )
        return
    view = batches.data.data
    first, parts, sizes, total = 0, [], [], 0
    for row, (at, size, codec) in enumerate(
        zip(
            batches.table[:, POSITION].tolist(),
            batches.table[:, SIZE].tolist(),
            (batches.table[:, ATTRIBUTES] & CODEC).tolist(),
            strict=True,
        )
    ):
        part = view[at + HEADER : at + size]
        parts.append(_unpacked(batches, row, codec, part) if codec else part)
        sizes.append(len(parts[-1]))
        total += sizes[-1]
        if total >= DECODED_BYTES or row == len(batches) - 1:
            data = np.frombuffer(b"".join(parts), np.uint8)
            end = np.cumsum(np.array(sizes, np.int64))
            yield from _parsed(batches.select(slice(first, row + 1)), data, end - sizes, end, partition)
            first, parts, sizes, total = row + 1, [], [], 0


def _unpacked(batches: Batches, row: int, codec: int, part: memoryview) -> bytes:
    if not len(part):  # a batch whose records were all compacted away may stay, to remember its producer
        return b""
    try:
        return decompressed(codec, part)
    except StateStoreError as error:
        position = batches.origin + int(batches.table[row, POSITION])
        raise type(error)(error.code, f"file {batches.file}, byte {position}: {error.message}") from error


def _parsed(batches: Batches, data: Bytes, begin: Ints, end: Ints, partition: int) -> Iterator[Records]:
    counts = batches.table[:, COUNT]
    most = (end - begin) // 7  # bytes of the shortest record
    bad = int(np.argmax(counts > most)) if (counts > most).any() else -1
    if bad < 0:
        columns = np.empty((RECORD_COLUMNS, int(counts.sum())), np.int64)
        bad = loops().parse_records(data, begin, end, batches.table, batches.present, columns)
    if bad >= 0:
        position = batches.origin + int(batches.table[bad, POSITION])
        raise damaged(
            batches.file,
            position,
            f"found records that do not follow the format, expected {int(counts[bad])} records in "
            f"{int(end[bad] - begin[bad])} bytes",
        )
    if columns.shape[1]:
        headers: HeaderCells = PackedHeaders(batches.file, data, columns[7], columns[8], columns[9])
        yield Records(
            partition,
            columns[0],
            columns[1],
            columns[2],
            sized_cells(data, columns[3], columns[4]),
            sized_cells(data, columns[5], columns[6]),
            headers,
        )


@dataclass(frozen=True)
class PackedHeaders:
    """Headers as they lie in the records."""

    file: str
    data: Bytes
    begin: Ints
    end: Ints
    count: Ints

    def select(self, which: Bools | Ints) -> PackedHeaders:
        return PackedHeaders(self.file, self.data, self.begin[which], self.end[which], self.count[which])

    def array(self) -> pa.Array:
        """An array of HEADERS. Raises CorruptError KAFKA_LOG."""
        ends = np.zeros(len(self.count) + 1, np.int32)
        np.cumsum(self.count, out=ends[1:])
        columns = np.empty((4, int(ends[-1])), np.int64)
        bad = loops().parse_headers(self.data, self.begin, self.end, self.count, columns) if ends[-1] else -1
        if bad >= 0:
            raise damaged(self.file, 0, f"found headers of a record that do not follow the format (record {bad})")
        names = Cells(self.data, columns[0], columns[1]).copied()
        try:
            texts = names.cast(pa.string())
        except pa.ArrowInvalid as error:
            raise damaged(self.file, 0, f"found the name of a record header that is not UTF-8 ({error})") from error
        values = sized_cells(self.data, columns[2], columns[3]).copied()
        pairs = pa.StructArray.from_arrays([texts, values], fields=list(HEADERS.value_type))
        return pa.ListArray.from_arrays(pa.array(ends), pairs, type=HEADERS)


# Decompression of the records of a batch: gzip, Snappy, LZ4 frames, Zstandard (``CompressionType``).
#
# Java's producer frames Snappy as xerial does (``snappy_blocks``). Other clients write one bare block.


NAMES = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_STREAMS = {1: "gzip", 3: "lz4", 4: "zstd"}
MOST_BYTES = 1 << 30  # of the records of one batch; brokers accept a megabyte unless they are set to more
_CHUNK = 1 << 20


def decompressed(codec: int, data: memoryview) -> bytes:
    """The plain records of a batch.

    Raises UnsupportedError KAFKA_LOG_FORMAT for an unknown codec, and CorruptError KAFKA_LOG for bytes that are not of
    this codec or become more than MOST_BYTES. Neither names the file.
    """
    if codec in _STREAMS:
        return _stream(_STREAMS[codec], data)
    if codec == 2:
        return _snappy(data)
    raise UnsupportedError(ErrorCode.KAFKA_LOG_FORMAT, f"found compression {codec}, expected 0 to 4")


def _stream(name: str, data: memoryview) -> bytes:
    parts, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(data)), name) as stream:
            while part := stream.read(_CHUNK):
                size += len(part)
                if size > MOST_BYTES:
                    raise _too_large(name)
                parts.append(part)
    except (OSError, pa.ArrowInvalid) as error:
        raise _broken(name, str(error)) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy(data: memoryview) -> bytes:
    if bytes(data[: len(XERIAL)]) != XERIAL:
        return _block(data, MOST_BYTES)
    parts, room = [], MOST_BYTES
    for packed in xerial_blocks(io.BytesIO(data[XERIAL_HEADER:]).read, len(data), partial(_broken, "snappy")):
        parts.append(_block(packed, room))
        room -= len(parts[-1])
    return b"".join(parts)


def _block(data: bytes | memoryview, room: int) -> bytes:
    size = snappy_length(data, partial(_broken, "snappy"))
    if size > room or size > 64 * len(data):  # a copy of at most 64 bytes takes two or three
        raise _too_large("snappy")
    return unpacked("snappy", data, size, partial(_broken, "snappy"))


def _broken(name: str, reason: str) -> CorruptError:
    return CorruptError(ErrorCode.KAFKA_LOG, f"found records that are not {name}: {reason}")


def _too_large(name: str) -> CorruptError:
    return CorruptError(ErrorCode.KAFKA_LOG, f"found {name} records of more than {MOST_BYTES} bytes in one batch")

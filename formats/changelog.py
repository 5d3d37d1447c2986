"""The write-ahead changelog: acknowledged records that are in no segment yet (docs/log-format.md).

A local file of frames, appended with one write each. A frame is a 20-byte header (magic, payload length, payload
checksum, all little-endian) and an Arrow IPC message; the first frame holds the schema. A frame that is cut short or
does not match its checksum at the very end of the file was never acknowledged and is ignored; elsewhere it is damage.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import xxhash

from statestore.formats.errors import CorruptError, InvalidInputError

MAGIC = b"SSLOG\x01\x00\x00"
HEADER = struct.Struct("<8sIQ")


class ChangelogWriter:
    """Appends to a new file and holds its lock, which the system releases if this process dies."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._end = 0
        self._write(schema.serialize())

    def append(self, batch: pa.RecordBatch) -> int:
        """Write one batch; answers the file's new length. Survives this process from here on, power loss from sync."""
        if batch.schema != self._schema:
            raise InvalidInputError("WRONG_SCHEMA", f"{self.path}: batch of {batch.schema}, expected {self._schema}")
        return self._write(batch.serialize())

    def sync(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def discard(self) -> None:
        """Remove the file, then give up the lock."""
        self.path.unlink(missing_ok=True)
        self.close()

    def _write(self, payload: pa.Buffer) -> int:
        header = HEADER.pack(MAGIC, payload.size, xxhash.xxh3_64_intdigest(payload))
        total = HEADER.size + payload.size
        written = os.writev(self._file, [header, payload])
        if written != total:
            os.ftruncate(self._file, self._end)
            raise OSError(f"{self.path}: wrote {written} of {total} bytes; is the disk full?")
        self._end += total
        return self._end


def read_changelog(path: Path, schema: pa.Schema | None) -> Iterator[tuple[pa.RecordBatch, int]]:
    """(batch, end of its frame) of every acknowledged batch, in order.

    Raises CorruptError CHANGELOG_CORRUPT for damage before the end, or where the file is another store's.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        found: pa.Schema | None = None
        for payload, end in _frames(file, path, size):
            try:
                if found is None:
                    found = pa.ipc.read_schema(payload)
                    if schema is not None and found != schema:
                        raise _corrupt(path, 0, f"schema {found}, expected {schema}")
                    continue
                batch = pa.ipc.read_record_batch(payload, found)
                batch.validate()
            except pa.ArrowException as error:
                raise _corrupt(path, end, str(error)) from error
            yield batch, end


def try_adopt(path: Path) -> BinaryIO | None:
    """The lock of a changelog whose owner is gone (close it to give it up), None while its owner lives."""
    try:
        file = path.open("rb+")
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    if os.fstat(file.fileno()).st_nlink == 0:  # committed and removed by its owner between our open and our lock
        file.close()
        return None
    return file


def _frames(file: BinaryIO, path: Path, size: int) -> Iterator[tuple[pa.Buffer, int]]:
    position = 0
    while position < size:
        header = file.read(HEADER.size)
        problem, payload = "the frame is cut short", b""
        if len(header) == HEADER.size:
            magic, length, checksum = HEADER.unpack(header)
            if magic != MAGIC:
                problem = f"frame starts with {magic!r}, expected {MAGIC!r}"
            elif length <= size - position - HEADER.size:
                payload = file.read(length)
                if xxhash.xxh3_64_intdigest(payload) == checksum:
                    position += HEADER.size + length
                    yield pa.py_buffer(payload), position
                    continue
                problem = "checksum does not match"
        if _good_frame_after(path, position + 1, size):
            raise _corrupt(path, position, problem)
        return


def _good_frame_after(path: Path, start: int, size: int) -> bool:
    """True if a whole frame follows: then what is bad lies in the middle and was acknowledged once."""
    data = path.read_bytes()[:size]
    at = data.find(MAGIC, start)
    while at >= 0:
        if at + HEADER.size <= size:
            _, length, checksum = HEADER.unpack_from(data, at)
            body = data[at + HEADER.size : at + HEADER.size + length]
            if len(body) == length and xxhash.xxh3_64_intdigest(body) == checksum:
                return True
        at = data.find(MAGIC, at + 1)
    return False


def _corrupt(path: Path, position: int, found: str) -> CorruptError:
    return CorruptError(
        "CHANGELOG_CORRUPT",
        f"{path}, byte {position}: {found}. Acknowledged writes there were changed or damaged; restore the file from a "
        "copy, or move it away to go on without them",
    )

"""The write-ahead changelog: acknowledged records that are in no segment yet (docs/log-format.md).

A local file of frames, appended with one write each. A frame is a 20-byte header (magic, payload length, payload
checksum, all little-endian) and a payload: an Arrow IPC message, of which the first holds the schema, or one row of a
live store (key, value and time as bytes; an Arrow message for a single row would cost ten times the space and the
time). A frame that is cut short or does not match its checksum at the very end of the file was never acknowledged and
is ignored; elsewhere it is damage.
"""

from __future__ import annotations

import fcntl
import os
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import xxhash

from statestore.formats.errors import CorruptError, InvalidInputError, UnsupportedError

KIND = b"SSLOG\x02"  # and the format version
MAGIC = KIND + b"\x00\x00"
ROW_MAGIC = KIND + b"\x01\x00"
HEADER = struct.Struct("<8sIQ")
# Checksums are seeded with the frame's place, and with this for rows: no frame passes as one of the other kind.
ROW_SEED = 1 << 63
ROW = struct.Struct("<qI?")  # time, length of the key, whether a value follows (none: a delete)
ROWS_PER_BATCH = 1 << 16
ROW_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.int64(), nullable=False),
    ]
)
"""Rows of live stores: serialized key, serialized value (null: a delete), epoch milliseconds."""
MAX_PAYLOAD = 2**32 - 1
# How many times the file's length may be hashed in the search for a good frame after a bad one.
MAX_SEARCH = 16


class ChangelogWriter:
    """Appends to a new file and holds its lock, which the system releases if this process dies.

    The file appears under its name with the lock held and the schema in it, so that nobody can adopt it half made.
    """

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path = path
        self._schema = schema
        self._end = 0
        self._folder_synced = False
        temporary = path.with_name(f".tmp-{uuid.uuid4().hex}")
        self._file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._write(schema.serialize())
            os.link(temporary, path)
        except BaseException:
            self.close()
            raise
        finally:
            temporary.unlink()

    @property
    def end(self) -> int:
        """The file's length: everything before it is acknowledged."""
        return self._end

    def append(self, batch: pa.RecordBatch) -> int:
        """Write one batch; answers the file's new length. Survives this process from here on, power loss from sync."""
        if batch.schema != self._schema:
            raise InvalidInputError("WRONG_SCHEMA", f"{self.path}: batch of {batch.schema}, expected {self._schema}")
        return self._write(batch.serialize())

    def append_row(self, key: bytes, value: bytes | None, time: int) -> int:
        """Like ``append`` of one row, in the form of ROW_SCHEMA; the write path of single puts."""
        start = self._end
        row = ROW.pack(time, len(key), value is not None)
        payload = row + key if value is None else b"".join((row, key, value))
        size = len(payload)
        if size > MAX_PAYLOAD:
            raise self._too_large(size)
        frame = HEADER.pack(ROW_MAGIC, size, xxhash.xxh3_64_intdigest(payload, start | ROW_SEED)) + payload
        try:
            written = os.write(self._file, frame)
            if written != len(frame):
                self._write_rest(memoryview(frame)[written:])
            self._end = end = start + len(frame)
        except BaseException:
            os.ftruncate(self._file, start)
            raise
        return end

    def cut(self, end: int) -> None:
        """Take back what was appended behind ``end``, the end of a frame."""
        os.ftruncate(self._file, end)
        self._end = end

    def sync(self) -> None:
        """Make what was appended survive power loss."""
        os.fsync(self._file)
        if not self._folder_synced:
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
            self._folder_synced = True

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def discard(self) -> None:
        """Remove the file, then give up the lock."""
        self.path.unlink(missing_ok=True)
        self.close()

    def _write(self, payload: pa.Buffer) -> int:
        if payload.size > MAX_PAYLOAD:
            raise self._too_large(payload.size)
        header = HEADER.pack(MAGIC, payload.size, xxhash.xxh3_64_intdigest(payload, self._end))
        total = HEADER.size + payload.size
        try:
            written = os.writev(self._file, [header, payload])
            if written != total:  # the system writes at most 2 GiB at once, and what fits on a full disk
                self._write_rest(memoryview(header + payload.to_pybytes())[written:])
            self._end += total
        except BaseException:  # an interrupt, too: length and file must agree, or later frames could not be read
            os.ftruncate(self._file, self._end)
            raise
        return self._end

    def _too_large(self, size: int) -> InvalidInputError:
        return InvalidInputError(
            "BATCH_TOO_LARGE", f"{self.path}: a batch of {size} bytes, at most {MAX_PAYLOAD}; split it"
        )

    def _write_rest(self, rest: memoryview) -> None:
        while rest:
            rest = rest[os.write(self._file, rest) :]


def row_frame_bytes(key: bytes, value: bytes | None) -> int:
    """How much `ChangelogWriter.append_row` adds to the file."""
    return HEADER.size + ROW.size + len(key) + len(value or b"")


def read_changelog(path: Path, schema: pa.Schema | None, after: int = 0) -> Iterator[tuple[pa.RecordBatch, int]]:
    """(batch, end of its last frame) of every acknowledged batch, in order; single rows come in batches of many, with
    ROW_SCHEMA, whatever the file's.

    ``after``: the end of some frame; what lies before it is not read.

    Raises CorruptError CHANGELOG_CORRUPT for damage before the end, or where the file is another store's;
    UnsupportedError CHANGELOG_FORMAT for the file of another release.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        found: pa.Schema | None = None
        rows = _Rows()
        for magic, payload, end in _frames(file, path, size, after):
            if magic == ROW_MAGIC:
                if found is None or not rows.add(payload, end):
                    raise _corrupt(path, end, "a row that does not fit its frame or its file")
                if len(rows.keys) == ROWS_PER_BATCH:
                    yield rows.batch(), rows.end
                    rows = _Rows()
                continue
            if rows.keys:
                yield rows.batch(), rows.end
                rows = _Rows()
            try:
                if found is None:
                    found = pa.ipc.read_schema(pa.py_buffer(payload))
                    if schema is not None and found != schema:
                        raise _corrupt(path, 0, f"schema {found}, expected {schema}")
                    continue
                batch = pa.ipc.read_record_batch(pa.py_buffer(payload), found)
                batch.validate(full=True)
            except (pa.ArrowException, OSError, EOFError) as error:
                raise _corrupt(path, end, str(error)) from error
            yield batch, end
        if rows.keys:
            yield rows.batch(), rows.end


class _Rows:
    """Single rows on the way into one batch."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.times: list[int] = []
        self.end = 0

    def add(self, payload: bytes, end: int) -> bool:
        """False if the payload is no row."""
        if len(payload) < ROW.size:
            return False
        time, length, has_value = ROW.unpack_from(payload)
        stop = ROW.size + length
        if stop > len(payload) or (stop < len(payload) and not has_value):
            return False
        self.keys.append(payload[ROW.size : stop])
        self.values.append(payload[stop:] if has_value else None)
        self.times.append(time)
        self.end = end
        return True

    def batch(self) -> pa.RecordBatch:
        columns = [
            pa.array(self.keys, pa.binary()),
            pa.array(self.values, pa.binary()),
            pa.array(self.times, pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ROW_SCHEMA)


def try_adopt(path: Path) -> BinaryIO | None:
    """The lock of a changelog whose owner is gone (close it to give it up), None while its owner lives.

    Read which changelogs are committed after this, not before: the owner may have committed until the lock was free.
    """
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


def _frames(file: BinaryIO, path: Path, size: int, after: int) -> Iterator[tuple[bytes, bytes, int]]:
    """(magic, payload, end) of the first frame and of each whole one behind ``after``."""
    position = 0
    read, unpack, digest = file.read, HEADER.unpack, xxhash.xxh3_64_intdigest
    while position < size:
        header = read(HEADER.size)
        problem, payload = "the frame is cut short", b""
        if len(header) == HEADER.size:
            magic, length, checksum = unpack(header)
            if magic not in (ROW_MAGIC, MAGIC):
                problem = f"frame starts with {magic!r}, expected {MAGIC!r} or {ROW_MAGIC!r}"
            elif length <= size - position - HEADER.size:
                payload = read(length)
                if digest(payload, position | ROW_SEED if magic == ROW_MAGIC else position) == checksum:
                    position += HEADER.size + length
                    yield magic, payload, position
                    if position < after:
                        position = file.seek(after)
                    continue
                problem = "checksum does not match"
        if _good_frame_after(path, position + 1, size):
            raise _corrupt(path, position, problem)
        if position == 0 and header.startswith(KIND[:5]) and not header.startswith(MAGIC[: len(header)]):
            raise UnsupportedError(
                "CHANGELOG_FORMAT", f"{path} starts with {header[:8]!r}, this release reads {MAGIC!r}; use its own"
            )
        return


def _good_frame_after(path: Path, start: int, size: int) -> bool:
    """True if a whole frame follows: then what is bad lies in the middle and was acknowledged once.

    Checksums depend on the position, so a frame that somebody stored as a value is none. A file made to be hashed
    without end counts as damaged, too.
    """
    data = path.read_bytes()[:size]
    budget = MAX_SEARCH * size
    at = data.find(KIND, start)
    while at >= 0:
        if at + HEADER.size <= size:
            magic, length, checksum = HEADER.unpack_from(data, at)
            body = memoryview(data)[at + HEADER.size : at + HEADER.size + length]
            if len(body) == length:
                budget -= length
                seed = at | ROW_SEED if magic == ROW_MAGIC else at
                if budget < 0 or xxhash.xxh3_64_intdigest(body, seed) == checksum:
                    return True
        at = data.find(KIND, at + 1)
    return False


def _corrupt(path: Path, position: int, found: str) -> CorruptError:
    return CorruptError(
        "CHANGELOG_CORRUPT",
        f"{path}, byte {position}: {found}. Acknowledged writes there were changed or damaged; restore the file from a "
        "copy, or move it away to go on without them",
    )

"""Reading the write-ahead changelog: acknowledged records that are in no segment yet (docs/log-format.md).

A changelog is a local file of frames (`changelog_frames`), appended with one write each (`changelog_writer`). The
payload of a frame is one of three things. It is an Arrow IPC message, of which the first holds the schema. It is one
row of a live store (key, value and time as bytes; an Arrow message for a single row would cost ten times the space and
the time). Or it is a sync mark. A frame at the very end of the file that is cut short or does not match its checksum
was never acknowledged and is ignored. Elsewhere it is damage, unless it is the trace of a power cut
(`bad_frames`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

import pyarrow as pa
import xxhash

from statestore.formats.changelogs.changelog_frames import (
    ANY_KIND,
    HEADER,
    KINDS,
    MAGIC,
    MARK,
    MARK_MAGIC,
    MARK_SEED,
    NAME,
    ROW,
    SECTOR,
    VERSION,
    FrameKind,
    open_changelog,
    unmasked,
)
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.segments.ipc_file import read_batch

ROWS_PER_BATCH = 1 << 16
ROW_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.int64(), nullable=False),
    ]
)
"""Rows of live stores: serialized key, serialized value (null: a delete), epoch milliseconds."""
MADE_AT = b"statestore.version"
"""Metadata of the schema: the store's newest version when the file was made, so that only later ones can name it."""
STORE = b"statestore.store"
"""Metadata of the schema: the identity of the store whose records these are."""
FILE_NAME = b"statestore.name"
"""Metadata of the schema: the file's name, by which the log says how much of it is committed."""

TEMPORARY = ".tmp-"
"""Prefix of the names of files that are being made, or made anew."""

_log = logging.getLogger("statestore")
_unpack_row = ROW.unpack_from  # looked up once, because single rows are many


class Changelog:
    """The acknowledged batches of one file; iteration yields (batch, end of its last frame), in order.

    Single rows come in batches of many, with ROW_SCHEMA, whatever the file's schema is. The following are set after the
    last batch. ``end``: where the last whole frame ends. ``size``: the length of the file that was examined.
    ``synced``: how far the file records that it was forced to the disk. ``mark_end``: where the sync mark ends that
    records it. ``version``: that of the format (0: no frame could be read). ``made_at``: the store's version when the
    file was made (-1: unknown). ``store``: the identity of the store (empty: unknown). ``passed_over``: the number of
    bytes behind a part that a power cut took.
    """

    def __init__(self, path: Path, schema: pa.Schema | None, after: int = 0, until: int | None = None) -> None:
        self.path = path
        self.end = self.size = self.synced = self.mark_end = self.version = self.passed_over = 0
        self.made_at = -1
        self.store = ""
        self._expected = schema
        self._schema: pa.Schema | None = None
        self._after = after
        self._until = until

    @property
    def is_whole(self) -> bool:
        """True if the file ends with its last whole frame."""
        return self.end == self.size > 0

    def read_schema(self) -> Self:
        """Read the first frame only."""
        with self._open() as file, disk_errors("read", self.path):
            for _, payload, end in self._frames(file):
                self._message(payload, end)
                break
        return self

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        with self._open() as file, disk_errors("read", self.path):
            yield from self._batches(file)

    def _open(self) -> BinaryIO:
        file = os.fdopen(open_changelog(self.path, os.O_RDONLY), "rb")
        size = os.fstat(file.fileno()).st_size
        self.size = size if self._until is None else min(size, self._until)
        return file

    def _batches(self, file: BinaryIO) -> Iterator[tuple[pa.RecordBatch, int]]:
        rows = _Rows()
        for kind, payload, end in self._frames(file):
            if kind.form == "row":
                if self._schema is None or not rows.add(payload, end):
                    raise _corrupt(self.path, end, "a row that does not fit its frame or its file")
                if len(rows.keys) == ROWS_PER_BATCH:
                    yield rows.batch(), rows.end
                    rows = _Rows()
                continue
            if kind.form == "mark":
                self._take_mark(payload, end)
                continue
            if rows.keys:
                yield rows.batch(), rows.end
                rows = _Rows()
            batch = self._message(payload, end)
            if batch is not None:
                yield batch, end
        if rows.keys:
            yield rows.batch(), rows.end

    def _take_mark(self, payload: bytes, end: int) -> None:
        if self._schema is None or len(payload) != MARK.size:
            raise _corrupt(self.path, end, "a sync mark that does not fit its frame or its file")
        self.synced, self.mark_end = max(self.synced, MARK.unpack(payload)[0]), end

    def _message(self, payload: bytes, end: int) -> pa.RecordBatch | None:
        """The batch of a frame; None for the first frame, which holds the schema."""
        try:
            if self._schema is None:
                self._take_schema(pa.ipc.read_schema(pa.py_buffer(payload)))
                return None
            return read_batch(pa.py_buffer(payload), self._schema)
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            raise _corrupt(self.path, end, str(error)) from error

    def _take_schema(self, found: pa.Schema) -> None:
        if self._expected is not None and found != self._expected:
            raise _corrupt(self.path, 0, f"schema {found}, expected {self._expected}")
        metadata = dict(found.metadata or {})
        made_at = metadata.pop(MADE_AT, b"")
        self.made_at = int(made_at) if made_at.isdigit() and len(made_at) < 19 else -1
        self.store = metadata.pop(STORE, b"").decode("utf-8", "replace")
        name = metadata.pop(FILE_NAME, b"").decode("utf-8", "replace")
        if name not in ("", self.path.name) and not self.path.name.startswith(TEMPORARY):
            raise _corrupt(self.path, 0, f"the records of {name}, which was renamed or took another file's place")
        self._schema = found.with_metadata(metadata or None)

    def _frames(self, file: BinaryIO) -> Iterator[tuple[FrameKind, bytes, int]]:
        """Yield (kind, payload, end) of the first frame and of each whole one behind ``after``."""
        position, size, after = 0, self.size, self._after
        kinds = ANY_KIND
        read, unpack, digest = file.read, HEADER.unpack, xxhash.xxh3_64_intdigest
        while position < size:
            header = read(HEADER.size)
            problem = "the frame is cut short"
            if len(header) == HEADER.size:
                magic, length, checksum = unpack(header)
                kind = kinds.get(magic)
                if kind is None:
                    problem = f"frame starts with {magic!r}, expected one like {MAGIC!r}"
                elif length <= size - position - HEADER.size:
                    payload = read(length)
                    if digest(payload, position | kind.seed) == checksum:
                        if position == 0:
                            self.version = magic[len(NAME)]
                            kinds = KINDS[self.version]
                        self.end = position = position + HEADER.size + length
                        yield kind, unmasked(payload) if kind.is_masked else payload, position
                        if position < after:
                            self.end = position = self._skip(file, position, min(after, size))
                        continue
                    problem = "checksum does not match"
            self._judge(file, position, header, problem)
            return

    def _skip(self, file: BinaryIO, position: int, after: int) -> int:
        """Move to ``after``, and record a sync mark that ends there."""
        start = after - HEADER.size - MARK.size
        if start >= position:
            file.seek(start)
            synced = synced_by(file.read(HEADER.size + MARK.size), start)
            if synced is not None:
                self.synced, self.mark_end = synced, after
        return file.seek(after)

    def _judge(self, file: BinaryIO, position: int, header: bytes, problem: str) -> None:
        """Return if the frame at ``position`` and all behind it were never acknowledged, or lost in a power cut."""
        file.seek(0)
        data = file.read(self.size)
        good = next_good_frame(data, position + 1, self.version)
        if good is None:
            if position == 0 and header.startswith(NAME) and header[len(NAME) : len(NAME) + 1] not in _VERSIONS:
                raise UnsupportedError(
                    ErrorCode.CHANGELOG_FORMAT,
                    f"{self.path} starts with {header[:8]!r}, this release reads {MAGIC!r}; use its own",
                )
            return
        if good.version != VERSION or synced_after(data, position) or not is_never_written(data, position, good.start):
            raise _corrupt(self.path, position, problem)
        self.version = self.version or good.version
        self.passed_over = self.size - position
        _log.warning("%s", passed_over_note(str(self.path), position, self.passed_over))


_VERSIONS = (b"", *(bytes((version,)) for version in KINDS))


def read_changelog(path: Path, schema: pa.Schema | None, after: int = 0, until: int | None = None) -> Changelog:
    """The acknowledged batches of the changelog at ``path``, to be iterated once.

    ``after``: the end of some frame; bytes before it are not read. ``until``: bytes behind it are not read.

    Iterating raises FileNotFoundError where the file is gone; CorruptError CHANGELOG_CORRUPT for damage before the end,
    or where the file belongs to another store; UnsupportedError CHANGELOG_FORMAT for the file of another release.
    Writes that a power cut took before they were forced to the disk are passed over, with a warning of the logger
    "statestore".
    """
    return Changelog(path, schema, after, until)


def made_at(path: Path) -> int:
    """The store's newest version when the changelog was made, -1 where the file does not record it.

    Raises as `read_changelog` does.
    """
    return read_changelog(path, None).read_schema().made_at


def store_of(path: Path) -> str:
    """The identity of the store whose records a changelog holds; empty where the file does not record it.

    Raises as `read_changelog` does.
    """
    return read_changelog(path, None).read_schema().store


def passed_over_note(name: str, position: int, count: int) -> str:
    """The warning about a file that lost to a power cut a part that was never forced to the disk."""
    return (
        f"{name}: the machine stopped before everything from byte {position} on was forced to the disk; these {count} "
        "bytes are passed over"
    )


class _Rows:
    """Single rows that are gathered into one batch."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self.times: list[int] = []
        self.end = 0

    def add(self, payload: bytes, end: int) -> bool:
        """Add a row; returns false if the payload is not a row."""
        if len(payload) < ROW.size:
            return False
        time, length, has_value = _unpack_row(payload)
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


def _corrupt(path: Path, position: int, found: str) -> CorruptError:
    return CorruptError(
        ErrorCode.CHANGELOG_CORRUPT,
        f"{path}, byte {position}: {found}. Acknowledged writes there were changed or damaged; restore the file from a "
        "copy, or move it away to continue without them",
    )


# Judgement of a bad frame in the middle of a changelog: damage, or the trace of a power cut.
#
# Pages of a file reach the disk in any order. So a power cut can keep a later page that was never forced to the disk,
# and lose an earlier one. The file is only appended to: a lost sector holds zeros from the first missing frame on, or
# from the beginning of the sector. No frame looks like that (`changelog_frames`), not even with a bit flipped.


# The search for a good frame after a bad one hashes at most this many times the file's length.
MAX_SEARCH = 16
_EMPTY_SECTOR = bytes(SECTOR)


class GoodFrame(NamedTuple):
    """A whole frame; ``version`` is that of its format, 0 where the search was given up."""

    start: int
    version: int


def next_good_frame(data: bytes, start: int, version: int) -> GoodFrame | None:
    """The first whole frame at ``start`` or later. If there is one, bad bytes before it are in the middle of the file.

    ``version``: of the file's format; 0: unknown. Checksums depend on the position, so a frame that was stored as a
    value does not count. A file that is made to be hashed without end counts as damaged, too.
    """
    kinds = KINDS.get(version, ANY_KIND)
    budget = MAX_SEARCH * len(data)
    at = data.find(NAME, start)
    while at >= 0:
        kind = kinds.get(data[at : at + 8])
        if kind is not None and at + HEADER.size <= len(data):
            _, length, checksum = HEADER.unpack_from(data, at)
            body = memoryview(data)[at + HEADER.size : at + HEADER.size + length]
            if len(body) == length:
                budget -= length
                if budget < 0:
                    return GoodFrame(at, 0)
                if xxhash.xxh3_64_intdigest(body, at | kind.seed) == checksum:
                    return GoodFrame(at, data[at + len(NAME)])
        at = data.find(NAME, at + 1)
    return None


def synced_by(frame: bytes, start: int) -> int | None:
    """The length up to which the sync mark at ``start`` records the file as synced; None without a whole mark."""
    if len(frame) < HEADER.size + MARK.size:
        return None
    magic, length, checksum = HEADER.unpack_from(frame)
    payload = frame[HEADER.size : HEADER.size + MARK.size]
    whole = length == MARK.size and xxhash.xxh3_64_intdigest(payload, start | MARK_SEED) == checksum
    found: int = MARK.unpack(payload)[0]
    return found if magic == MARK_MAGIC and whole else None


def synced_after(data: bytes, position: int) -> bool:
    """Return whether a good sync mark records that the bytes at ``position`` were forced to the disk."""
    at = data.find(MARK_MAGIC, position)
    while at >= 0:
        synced = synced_by(data[at : at + HEADER.size + MARK.size], at)
        if synced is not None and synced > position:
            return True
        at = data.find(MARK_MAGIC, at + 1)
    return False


def is_never_written(data: bytes, position: int, good: int) -> bool:
    """Return whether the bad frame at ``position`` looks as if the disk had never received all of it.

    In that case the sector in which it begins is zeros from there on, or one of the sectors before the next good frame
    is all zeros.
    """
    sector = (position // SECTOR + 1) * SECTOR
    if not any(data[position : min(sector, good)]):
        return True
    return any(data.startswith(_EMPTY_SECTOR, at) for at in range(sector, good - SECTOR + 1, SECTOR))

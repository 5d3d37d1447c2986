"""Copies of table files in object stores that hold the parts which a read needs, with holes for the rest.

A look-up in a file of 64 MiB fetches its index and a few blocks. RocksDB verifies each block that it reads, so a hole
cannot pass for data; a file without checksums is copied as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from statestore.formats.errors import CorruptError
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.reading_threads import in_order
from statestore.formats.rocksdb.fields import Malformed
from statestore.formats.rocksdb.rocksdb_errors import Unreadable
from statestore.formats.rocksdb.table_head import read_head
from statestore.formats.rocksdb.table_index import Bounds, read_index, spans_of

_PIECE = 8 << 20
_WHOLE_BYTES = 1 << 20
"""Smaller files are fetched whole: one request takes as long as the transfer of so many bytes."""
_GAP = 64 << 10
"""Parts with fewer bytes between them are fetched by one request."""
_AT_ONCE = 4
"""Small parts of one file that are fetched at the same time."""
_TAIL_SHARE, _LEAST_TAIL = 32, 128 << 10
"""Bytes at the end that are fetched first; often they include everything but data blocks."""


class StoredFile(Protocol):
    """An open file, or an open part of one."""

    @property
    def size(self) -> int: ...

    def read_at(self, offset: int, size: int) -> bytes:
        """Read so many bytes; fewer only at the end of the file."""

    def close(self) -> None: ...


class TailReader:
    """Function from (offset, size) to bytes. The end of the file is fetched once, when a part of it is first read."""

    def __init__(self, file: StoredFile) -> None:
        self.size, self._file, self.close = file.size, file, file.close
        self._begin = max(0, file.size - max(file.size // _TAIL_SHARE, _LEAST_TAIL))
        self._tail: bytes | None = None

    def __call__(self, offset: int, size: int) -> bytes:
        if offset < self._begin:
            return self._file.read_at(max(offset, 0), size)
        if self._tail is None:
            self._tail = self._file.read_at(self._begin, self.size - self._begin)
        return self._tail[offset - self._begin :][:size]


def copy_parts(
    file: StoredFile, target: Path, ranges: Sequence[Bounds], shorter: Callable[[int, int, int], Exception]
) -> None:
    """Write to ``target`` what reads of key ranges need of a table file.

    ``shorter`` makes the error for (bytes found, their offset, bytes expected). Raises what reads of the file raise,
    and StorageError DISK_FAILED.
    """
    read = TailReader(file)
    pieces = [
        (at, min(end - at, _PIECE))
        for begin, end in _spans(read, file.size, ranges)
        for at in range(begin, end, _PIECE)
    ]
    threads = _AT_ONCE if max((size for _, size in pieces), default=0) <= _WHOLE_BYTES else 1
    with disk_errors("write", target), target.open("wb") as copy:
        copy.truncate(file.size)
        found = in_order(lambda piece: read(*piece), pieces, threads)
        for (at, size), data in zip(pieces, found, strict=True):
            if len(data) != size:
                raise shorter(len(data), at, size)
            copy.seek(at)
            copy.write(data)


def have_range_deletions(tables: Iterable[Path]) -> bool:
    """Return whether one of these copies has a deletion of a range of keys.

    RocksDB then seeks to the end of the deleted range in all older files, which may be a hole. Forms that are not
    known, and damage, are left to RocksDB.
    """
    for path in tables:
        with suppress(OSError, Unreadable, CorruptError, Malformed), path.open("rb") as file:
            head = read_head(file.fileno(), path.stat().st_size, str(path))
            if head.number("num.range-deletions") or any(name.startswith(b"rocksdb.range_del") for name in head.meta):
                return True
    return False


def _spans(read: TailReader, size: int, ranges: Sequence[Bounds]) -> list[tuple[int, int]]:
    whole = [(0, size)]
    if size <= _WHOLE_BYTES or (None, None) in ranges:
        return whole
    index = read_index(size, read)
    if index is None:
        return whole
    spans: list[tuple[int, int]] = []
    for begin, end in spans_of(index, size, ranges):
        if spans and begin - spans[-1][1] <= _GAP:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((begin, end))
    return spans

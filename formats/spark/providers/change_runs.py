"""Runs of small files of changes, read as one.

A query of 200 partitions writes 200 files a batch, however few rows it has, and most of them have none. So a small file
is opened, read, verified and unpacked with a handful of calls, and the records of many files become one piece of
changes. Only files that are as Spark usually writes them are read so: ``change_files`` reads any other, damaged ones
among them, and says what is wrong.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BytesIO

import numpy as np

from statestore.formats.errors import CorruptError, StateStoreError
from statestore.formats.kernels.arrays import Bools
from statestore.formats.places.folder import PARALLEL_REQUESTS, Folder, Seen
from statestore.formats.places.reading_threads import in_order
from statestore.formats.places.regular_files import read_regular_once
from statestore.formats.spark.checkpoint.checkpoint_files import AHEAD_BYTES, DataFile
from statestore.formats.spark.checkpoint.crc_files import side_content, side_name
from statestore.formats.spark.checkpoint.state_errors import corrupt_file
from statestore.formats.spark.providers.change_files import changelog_changes, changelog_records, delta_changes
from statestore.formats.spark.providers.compression import HEAD_BYTES, decompressed, has_checksums, whole_lz4
from statestore.formats.spark.providers.file_records import BLOCK, Changes, changes_at, whole_records

SMALL_BYTES = 64 << 10
"""Larger files are streamed."""
_MOST_PLAIN = 1 << 20  # bytes of one small file that is unpacked at once
_PARALLEL_BYTES = 256 << 10  # beyond, few files are fetched at a time, because they are held


@dataclass(frozen=True)
class Run:
    """The changes of files that follow each other; ``counts`` has the number of records of each file."""

    files: tuple[DataFile, ...]
    counts: tuple[int, ...]
    changes: Changes

    def by_file(self) -> Iterator[Run]:
        """Yield the changes of each file that has any."""
        for file, some in self.slices():
            changes = self.changes
            found = Changes(changes.kind[some], changes.keys.select(some), changes.values.select(some))
            yield Run((file,), (len(found),), found)

    def slices(self) -> Iterator[tuple[DataFile, slice]]:
        """Yield each file that has changes with their positions."""
        at = 0
        for file, count in zip(self.files, self.counts, strict=True):
            if count:
                yield file, slice(at, at + count)
            at += count

    def kept(self, changes: Changes, mask: Bools) -> Run:
        """The run with those of its changes, which may have been converted, for which the mask is true."""
        files = np.repeat(np.arange(len(self.files)), self.counts)[mask]
        counts = np.bincount(files, minlength=len(self.files)).tolist()
        some = Changes(changes.kind[mask], changes.keys.select(mask), changes.values.select(mask))
        return Run(self.files, tuple(counts), some)


@dataclass(frozen=True)
class _Read:
    """A file whose records are known: where each begins in ``data``. ``content`` is None for a local file."""

    file: DataFile
    content: bytes | None
    data: bytes
    starts: Sequence[int]
    typed: bool


def change_runs(folder: Folder, files: Sequence[DataFile]) -> Iterator[Run]:
    """Yield the changes of files in their order; those of a large file are several runs. Raises as `plain_bytes`."""
    waiting: list[_Read] = []
    size = 0
    contents = local_contents(folder, files) if folder.is_local else _fetched(folder, files)
    known: tuple[bytes | None, tuple[bytes, Sequence[int], bool] | None] = None, None
    for file, content in contents:
        if content != known[0]:  # all files without records are alike
            known = content, None if content is None else _records(file, content)
        if known[1] is not None:
            waiting.append(_Read(file, None if folder.is_local else content, *known[1]))
            size += len(waiting[-1].data)
        if known[1] is None or size >= BLOCK:
            yield from _joined(folder, waiting)
            waiting, size = [], 0
        if known[1] is None:
            yield from _streamed(folder, file, None if folder.is_local else content)
    yield from _joined(folder, waiting)


def _joined(folder: Folder, files: list[_Read]) -> Iterator[Run]:
    """The records of files as one run, or as one run for each file if they do not go together."""
    if not files:
        return
    typed = {each.typed for each in files if each.starts}
    data: list[bytes] = []
    starts: list[int] = []
    size = 0
    for each in files:
        if each.starts:
            starts += [size + start for start in each.starts] if size else each.starts
            data.append(each.data)
            size += len(each.data)
    try:
        changes = changes_at(b"".join(data), starts, typed == {True}, folder.path) if len(typed) < 2 else None
    except CorruptError:
        changes = None
    if changes is None:
        for each in files:
            yield from _streamed(folder, each.file, each.content)
        return
    yield Run(tuple(each.file for each in files), tuple(len(each.starts) for each in files), changes)


def _streamed(folder: Folder, file: DataFile, content: bytes | None) -> Iterator[Run]:
    """The changes of a file of any form; ``content`` was fetched already."""
    if content is not None:
        covered = {} if folder.seen is None else folder.seen.covered
        folder = replace(folder, seen=Seen(files={posixpath.join(folder.path, file.name): content}, covered=covered))
    for changes in (delta_changes if file.kind == "delta" else changelog_changes)(folder, file):
        yield Run((file,), (len(changes),), changes)


def _records(file: DataFile, content: bytes) -> tuple[bytes, Sequence[int], bool] | None:
    """(decompressed bytes, where each record begins in them, whether records have types); None for an odd file."""
    plain = whole_lz4(content, _MOST_PLAIN)
    if plain is None:
        try:
            plain = b"".join(_limited(decompressed(BytesIO(content), file.name)))
        except StateStoreError:
            return None
    typed = False
    try:
        if file.kind != "delta":
            plain, typed = changelog_records(plain, file.name)
        starts = whole_records(plain, typed, file.name)
    except CorruptError:
        return None
    return None if starts is None else (plain, starts, typed)


def local_contents(folder: Folder, files: Sequence[DataFile]) -> Iterator[tuple[DataFile, bytes | None]]:
    """Yield each file with its verified bytes; None for one that is large, damaged or not there."""
    held = {} if folder.seen is None else folder.seen.files
    with _directory(folder.path) as within:
        for file in files:
            content = held.get(posixpath.join(folder.path, file.name))
            if content is not None and len(content) == file.size:
                yield file, content
                continue
            small = within is not None and file.size <= SMALL_BYTES
            yield file, _verified(folder, file, within) if small and within is not None else None


@contextmanager
def _directory(path: str) -> Iterator[int | None]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _verified(folder: Folder, file: DataFile, within: int) -> bytes | None:
    """The bytes of a file in a folder, if they are those of its listing and of its checksums, where it has any."""
    content: bytes | None = None
    try:
        content = read_regular_once(file.name, file.size, within=within)
        if content is None or len(content) != file.size:
            return None
        side = read_regular_once(side_name(file.name), 4 * len(content) + 8, within=within)
    except FileNotFoundError as error:
        if content is None or error.filename == file.name:
            return None
        _note(folder, file, content)
        return content
    except OSError:
        return None
    if side is None or side != side_content(content, int.from_bytes(side[4:8])):
        return None
    _note(folder, file, content, beside=True)
    return content


def _note(folder: Folder, file: DataFile, content: bytes, *, beside: bool = False) -> None:
    """Note whether a checksum covers a file, beside it or of its codec, for who asks later."""
    if folder.seen is not None:
        covered = beside or has_checksums(content[:HEAD_BYTES])
        folder.seen.covered[posixpath.join(folder.path, file.name)] = covered


def _fetched(folder: Folder, files: Sequence[DataFile]) -> Iterator[tuple[DataFile, bytes | None]]:
    """Each file with its bytes, fetched while those before it are processed; None for a large one."""

    def content(file: DataFile) -> bytes | None:
        if file.size > AHEAD_BYTES:
            return None
        found = folder.read_once(file.name)
        if has_checksums(found[:HEAD_BYTES]):  # whether one is beside it is not known here
            _note(folder, file, found)
        return found

    largest = max((file.size for file in files if file.size <= AHEAD_BYTES), default=0)
    most = PARALLEL_REQUESTS if largest <= _PARALLEL_BYTES else PARALLEL_REQUESTS // 3
    yield from zip(files, in_order(content, files, min(len(files), most)), strict=True)


def _limited(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces, and none beyond the most that is held of a small file. Raises CorruptError SPARK_STATE_FILE."""
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > _MOST_PLAIN:
            raise corrupt_file("a small file", "found more bytes than are unpacked at once")
        yield piece

"""Table files on the local disk: links to local files, copies of others.

A copy has the parts of the file that a read needs, and holes for the rest: a lookup in a file of 64 MiB fetches its
index and a few blocks. Readers of a copy verify every block, so a hole cannot pass for data. Copies live in the
caller's folder and are removed with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from statestore.formats.places.folder import PARALLEL_REQUESTS, Folder, RandomAccess
from statestore.formats.rocksdb.table_index import ReadAt, read_index, spans_of
from statestore.formats.spark.checkpoint.state_errors import corrupt_file, missing
from statestore.formats.spark.providers.key_bounds import KeyBounds

_PIECE = 8 << 20
_WHOLE_BYTES = 1 << 20
"""Smaller files are fetched whole: one request takes as long as the transfer of so many bytes."""
_NO_TABLE = "no such table file: it was purged or not copied; restore it"
_TAIL_SHARE, _LEAST_TAIL = 32, 128 << 10
"""Bytes at the end that are fetched first; often they include everything but data blocks."""


def copy_tables(
    folder: Folder, tables: Mapping[str, tuple[str, int]], directory: Path, ranges: Sequence[KeyBounds]
) -> None:
    """Put table files (local name to name in ``SSTs``, size) from ``folder`` into ``directory``.

    Copies hold the parts that reads of ``ranges`` need. Raises NotFoundError SPARK_STATE_NOT_FOUND, CorruptError
    SPARK_STATE_FILE for another size, InvalidInputError NO_ACCESS.
    """
    shared = folder.at("SSTs")
    if folder.is_local:
        _link(shared, tables, directory)
        return
    with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
        copies = [
            pool.submit(_copy, shared, name, size, directory / local, ranges) for local, (name, size) in tables.items()
        ]
        try:
            for copy in copies:
                copy.result()
        finally:
            for copy in copies:
                copy.cancel()


def _link(shared: Folder, tables: Mapping[str, tuple[str, int]], directory: Path) -> None:
    sizes = shared.files() if tables else {}
    for local, (name, size) in tables.items():
        path = shared.at(name).path
        if name not in sizes:
            raise missing(path, _NO_TABLE)
        if sizes[name] != size:
            raise corrupt_file(path, f"found {sizes[name]} bytes, expected {size}")
        (directory / local).symlink_to(Path(path).absolute())


@contextmanager
def opened_tables(folder: Folder, tables: Iterable[tuple[str, int]]) -> Iterator[list[tuple[int, ReadAt]]]:
    """Size and reader of each table file (name in ``SSTs``, size), to read its metadata. Raises as `copy_tables`."""
    shared = folder.at("SSTs")
    with ExitStack() as opened:
        if folder.is_local:
            files = [opened.enter_context(shared.random_access(name, size)) for name, size in tables]
            yield [(file.size, file.read_at) for file in files]
            return
        with ThreadPoolExecutor(PARALLEL_REQUESTS) as pool:
            readers = list(pool.map(lambda table: _with_tail(shared, *table), tables))
        for reader in readers:
            opened.callback(reader.close)
        yield [(reader.size, reader) for reader in readers]


def _with_tail(folder: Folder, name: str, size: int) -> TailReader:
    reader = TailReader(folder.random_access(name, size, unique=True))
    reader(reader.size - 1, 1)
    return reader


class TailReader:
    """Function from (offset, size) to bytes. The end of the file is fetched once, when a part of it is first read."""

    def __init__(self, file: RandomAccess) -> None:
        self.size, self._file, self.close = file.size, file, file.close
        self._begin = max(0, file.size - max(file.size // _TAIL_SHARE, _LEAST_TAIL))
        self._tail: bytes | None = None

    def __call__(self, offset: int, size: int) -> bytes:
        if offset < self._begin:
            return self._file.read_at(max(offset, 0), size)
        if self._tail is None:
            self._tail = self._file.read_at(self._begin, self.size - self._begin)
        return self._tail[offset - self._begin :][:size]


def _copy(folder: Folder, name: str, size: int, target: Path, ranges: Sequence[KeyBounds]) -> None:
    with folder.random_access(name, size, unique=True) as file, target.open("wb") as copy:
        read = TailReader(file)
        copy.truncate(size)
        for begin, end in _spans(read, size, ranges):
            for at in range(begin, end, _PIECE):
                data = read(at, min(end - at, _PIECE))
                if len(data) != min(end - at, _PIECE):
                    raise corrupt_file(file.path, f"found {len(data)} bytes at {at}, expected {min(end - at, _PIECE)}")
                copy.seek(at)
                copy.write(data)


def _spans(read: TailReader, size: int, ranges: Sequence[KeyBounds]) -> list[tuple[int, int]]:
    whole = [(0, size)]
    if size <= _WHOLE_BYTES or (None, None) in ranges:
        return whole
    index = read_index(size, read)
    return whole if index is None else spans_of(index, size, ranges)

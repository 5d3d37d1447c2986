"""The list of all commits of a store, as columns: old ones in chunks on the disk, the others in memory."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.catalog.log.source_versions import SourceVersion
from statestore.catalog.log.storage import Storage
from statestore.catalog.log.version_chunks import (
    CHUNK_VERSIONS,
    NO_TIME,
    NUMBERS,
    TEXTS,
    VersionChunks,
    batch_of,
    texts_of,
)
from statestore.formats.kernels.arrays import Ints

# The threads of a process share log states, and so the columns below them. One lock for all, instead of one each, keeps
# log states picklable; it is held for a microsecond for each commit.
_growing = threading.Lock()


def _after_fork() -> None:
    """Replace the lock, which a thread that the child does not have may have held; half-appended columns are not
    continued.
    """
    global _growing
    _growing = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class _Columns:
    """Growing columns that versions share: a longer list of commits uses the memory of the shorter ones.

    The commits in ``chunks`` come first. The texts of the commits after them are in ``base``, as a checkpoint had them,
    and then in lists.
    """

    def __init__(self, capacity: int, chunks: VersionChunks, base: pa.RecordBatch | None = None) -> None:
        self.chunks = chunks
        self.longer = chunks  # with the chunks that this process wrote since then
        self.base = base
        self.start = len(chunks)
        self.begin = self.start + (0 if base is None else base.num_rows)  # of the lists
        self.used = self.start
        self.numbers: dict[str, Ints] = {name: np.zeros(capacity, np.int64) for name in NUMBERS}
        self.texts: dict[str, list[Any]] = {name: [] for name in TEXTS}
        self.transactions: dict[tuple[str, int], int] | None = None

    def copy(self, count: int, capacity: int) -> _Columns:
        new = _Columns(capacity, self.chunks, self.base)
        for name in NUMBERS:
            new.numbers[name][: count - self.start] = self.numbers[name][: count - self.start]
        for name in TEXTS:
            new.texts[name] = self.texts[name][: count - self.begin]
        if len(self.longer) <= count:
            new.longer = self.longer
        if self.transactions is not None:
            new.transactions = {t: v for t, v in self.transactions.items() if v < count}
        new.used = count
        return new

    def texts_between(self, name: str, first: int, last: int) -> list[Any]:
        """Return texts of commits behind the chunks."""
        later = self.texts[name][max(0, first - self.begin) : max(0, last - self.begin)]
        if self.base is None or first >= self.begin:
            return later
        early = self.base.slice(first - self.start, min(last, self.begin) - first)
        return [*texts_of(early, name), *later]

    def known_transactions(self) -> dict[tuple[str, int], int]:
        """Return the version of each transaction behind the chunks."""
        if self.transactions is None:
            with _growing:
                found: dict[tuple[str, int], int] = {}
                for version, transaction in enumerate(
                    self.texts_between("transaction", self.start, self.used), self.start
                ):
                    if transaction is not None:
                        found.setdefault(transaction, version)
                self.transactions = found
        return self.transactions


class Versions:
    """All commits up to one of them, as columns; the index is the version. Times are epoch microseconds.

    ``stream_time`` is the greatest known state time after each commit, NO_TIME before the first record. A whole column
    of a long list is read from its chunks. Use the methods for single commits where only these are needed. All of them
    raise CorruptError LOG_CORRUPT for a chunk that cannot be read.
    """

    def __init__(self, columns: _Columns, count: int) -> None:
        self._columns = columns
        self._count = count

    def __len__(self) -> int:
        return self._count

    @property
    def timestamp(self) -> Ints:
        return self._number("timestamp")

    @property
    def stream_time(self) -> Ints:
        return self._number("stream_time")

    @property
    def rows(self) -> Ints:
        return self._number("rows")

    @property
    def tombstones(self) -> Ints:
        return self._number("tombstones")

    @property
    def closed(self) -> Ints:
        return self._number("closed")

    @property
    def bytes(self) -> Ints:
        return self._number("bytes")

    @property
    def dropped(self) -> Ints:
        return self._number("dropped")

    @property
    def operation(self) -> list[str]:
        return self._text("operation")

    @property
    def writer(self) -> list[str]:
        return self._text("writer")

    @property
    def transaction(self) -> list[tuple[str, int] | None]:
        return self._text("transaction")

    @property
    def source(self) -> list[SourceVersion | None]:
        """The version of a source that each commit captured, None for a commit without one."""
        return self._text("source")

    @property
    def dropped_total(self) -> int:
        """The number of late records that all commits refused; no chunk is read for it."""
        columns = self._columns
        return columns.chunks.dropped + int(columns.numbers["dropped"][: self._count - columns.start].sum())

    def stream_time_at(self, version: int) -> int:
        return self._number_at("stream_time", version)

    def timestamp_at(self, version: int) -> int:
        return self._number_at("timestamp", version)

    def rows_at(self, version: int) -> int:
        return self._number_at("rows", version)

    def tombstones_at(self, version: int) -> int:
        return self._number_at("tombstones", version)

    def bytes_at(self, version: int) -> int:
        return self._number_at("bytes", version)

    def writer_at(self, version: int) -> str:
        columns = self._columns
        writer: str
        if version < columns.start:
            writer = columns.chunks.texts("writer")[version]
        else:
            writer = columns.texts_between("writer", version, version + 1)[0]
        return writer

    def operations_after(self, version: int) -> list[str]:
        """Return the operations of the commits after ``version`` (-1: all)."""
        columns = self._columns
        if version + 1 < columns.start:
            return self.operation[version + 1 :]
        return columns.texts_between("operation", version + 1, self._count)

    def transactions_after(self, version: int) -> list[tuple[str, int] | None]:
        """Return the transactions of the commits after ``version`` (-1: all), None for a commit without one."""
        columns = self._columns
        if version + 1 < columns.start:
            return self.transaction[version + 1 :]
        return columns.texts_between("transaction", version + 1, self._count)

    def stream_time_before(self, versions: Ints) -> Ints:
        """Return the stream time just before each of these commits."""
        start = self._columns.start
        first = start if len(versions) and int(versions.min()) > start else 0
        times = self._columns.numbers["stream_time"][: self._count - start] if first else self.stream_time
        before = np.concatenate(([NO_TIME], times))
        found: Ints = before[versions - first]
        return found

    def last_until(self, name: str, limit: int) -> int:
        """Return the last version whose ``timestamp`` or ``stream_time`` is at most ``limit``; -1 if there is none.

        Both never decrease, so few chunks are read.
        """
        low, high = 0, self._count
        start = self._columns.start
        if start < high and (start == 0 or self._number_at(name, start) <= limit):
            tail = self._columns.numbers[name][: high - start]
            return start + int(np.searchsorted(tail, limit, side="right")) - 1
        high = min(start, high)
        while low < high:
            middle = (low + high) // 2
            if self._number_at(name, middle) <= limit:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def find_transaction(self, application: str, batch: int) -> int | None:
        """Return the version that committed this transaction; None if no version did."""
        version = self._columns.known_transactions().get((application, batch))
        if version is not None and version < self._count:
            return version
        return self._columns.chunks.find(application, batch)

    def append(self, numbers: Mapping[str, int], texts: Mapping[str, Any]) -> Versions:
        """Return the list with one more commit; this list is unchanged."""
        count = self._count
        with _growing:
            columns = self._columns
            place = count - columns.start
            halved = {*map(len, columns.texts.values())} != {count - columns.begin}
            if columns.used != count or halved or place == len(columns.numbers["rows"]):
                columns = columns.copy(count, max(64, 2 * place))
            for name in NUMBERS:
                columns.numbers[name][place] = numbers[name]
            for name in TEXTS:
                columns.texts[name].append(texts[name])
            if texts["transaction"] is not None and columns.transactions is not None:
                columns.transactions.setdefault(texts["transaction"], count)
            columns.used = count + 1
        return Versions(columns, count + 1)

    def folded(self, storage: Storage, store: str) -> tuple[VersionChunks, pa.RecordBatch]:
        """Write each full chunk that has no file yet; return the chunks and the commits behind them."""
        columns = self._columns
        chunks = columns.longer if len(columns.longer) <= self._count else columns.chunks
        full = (self._count - 1) // CHUNK_VERSIONS * CHUNK_VERSIONS  # a checkpoint itself has the newest commit
        if len(chunks) < full:
            firsts = range(len(chunks), full, CHUNK_VERSIONS)
            chunks = chunks.extended(storage, store, (self.between(first, first + CHUNK_VERSIONS) for first in firsts))
            with _growing:
                columns.longer = chunks
        return chunks, self.between(len(chunks), self._count)

    @property
    def chunks(self) -> VersionChunks:
        """The commits that are not in memory."""
        return self._columns.chunks

    def between(self, first: int, last: int) -> pa.RecordBatch:
        """Return commits, which must be in memory, in the columns of chunks and checkpoints."""
        columns, start = self._columns, self._columns.start
        found: dict[str, Any] = {name: columns.numbers[name][first - start : last - start] for name in NUMBERS}
        found |= {name: columns.texts_between(name, first, last) for name in TEXTS}
        return batch_of(found)

    def _number(self, name: str) -> Ints:
        columns = self._columns
        tail = columns.numbers[name][: self._count - columns.start]
        return np.concatenate((columns.chunks.column(name), tail)) if columns.start else tail

    def _number_at(self, name: str, version: int) -> int:
        columns = self._columns
        if not 0 <= version < self._count:
            raise IndexError(f"version {version} of {self._count}")
        if version < columns.start:
            return columns.chunks.number(name, version)
        return int(columns.numbers[name][version - columns.start])

    def _text(self, name: str) -> list[Any]:
        columns = self._columns
        tail = columns.texts_between(name, columns.start, self._count)
        return [*columns.chunks.texts(name), *tail] if columns.start else tail


NO_VERSIONS = Versions(_Columns(64, VersionChunks()), 0)


def versions_from(chunks: VersionChunks, tail: pa.RecordBatch) -> Versions:
    """Return the commits of chunks and those behind them, as a log checkpoint holds them."""
    count = len(chunks) + tail.num_rows
    columns = _Columns(max(64, 2 * tail.num_rows), chunks, tail)
    for name in NUMBERS:
        columns.numbers[name][: tail.num_rows] = tail[name].to_numpy()
    columns.used = count
    return Versions(columns, count)

"""Rows of a column family straight from its table files, without compiled loops and without RocksDB.

This is the way for table files with a codec that RocksDB is built without here (`table_head.codec_without_rocksdict`).
It reads the blocks that may hold the keys of a range, one block of each run at a time, and merges the runs: the newest
version of a key wins, and operands are joined as RocksDB's StringAppendOperator does. Raises as `table_head`.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import ge, itemgetter
from pathlib import Path
from typing import Protocol

from statestore.formats.places.regular_files import open_regular
from statestore.formats.rocksdb.fields import Malformed, varint
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.manifest import TableEntry, read_families
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt
from statestore.formats.rocksdb.stored_blocks import TRAILER, BlockHandle, read_block
from statestore.formats.rocksdb.table_head import TWO_LEVEL_INDEX, TableHead, check_readable, read_head

_DELETE, _PUT, _MERGE, _SINGLE_DELETE = 0, 1, 2, 7
_TAG, _ONE_BYTE = 8, 128
_HASHED, _UNKNOWN_LAYOUT = 1 << 31, 7 << 28
Version = tuple[bytes, int, bytes]
"""User key, negative sequence and type (newer versions come first), value."""
Index = tuple[list[bytes], list[BlockHandle]]
"""Separators, each at least every key of its block and below those of the next, and the blocks."""


@dataclass(frozen=True)
class PlainTable:
    """An open table file. ``index`` is the block of its index, if it was read before."""

    head: TableHead
    descriptor: int
    index: bytes | None = None

    def versions(self, within: KeyRange, backwards: bool) -> Iterator[Version]:
        """Yield the entries of a range in order. Blocks that cannot hold one are not read."""
        separators, handles = self._blocks(self._top_index(), within)
        if self.head.index_kind == TWO_LEVEL_INDEX:
            parts = [self._blocks(self._read(handle), within) for handle in handles]
            separators = [key for part in parts for key in part[0]]
            handles = [handle for part in parts for handle in part[1]]
        numbers, entries = range(len(handles)), 0
        for number in reversed(numbers) if backwards else numbers:
            found = self._entries(handles[number], within)
            entries += len(found)
            if any(map(ge, found, found[1:])):
                raise corrupt(self.head.path, f"byte {handles[number].offset}: found keys out of order")
            if found and (found[-1][0] > separators[number] or (number and found[0][0] < separators[number - 1])):
                raise corrupt(
                    self.head.path, f"byte {handles[number].offset}: a block holds keys that belong elsewhere"
                )
            yield from reversed(found) if backwards else found
        if within == KeyRange() and entries != self.head.number("num.entries"):
            raise corrupt(self.head.path, f"found {entries} entries, expected {self.head.number('num.entries')}")

    def bounds(self) -> tuple[tuple[bytes, int], tuple[bytes, int]]:
        """The first and the last key with their versions, by the blocks at both ends of the file."""
        handles = self._blocks(self._top_index(), KeyRange())[1]
        if self.head.index_kind == TWO_LEVEL_INDEX and handles:
            handles = [part for at in (0, -1) for part in self._blocks(self._read(handles[at]), KeyRange())[1]]
        entries = [self._entries(handles[at], KeyRange()) for at in (0, -1)] if handles else []
        if not all(entries) or not entries:
            raise Malformed("no rows")
        first, last = entries[0][0], entries[1][-1]
        return (first[0], -first[1]), (last[0], -last[1])

    def _top_index(self) -> bytes:
        return self._read(self.head.index) if self.index is None else self.index

    def _read(self, handle: BlockHandle) -> bytes:
        return read_block(self.descriptor, handle, self.head.checksums, self.head.version, self.head.path)

    def _blocks(self, index: bytes, within: KeyRange) -> Index:
        """The blocks that may hold keys of a range. One whose separator is the first not below ``stop`` may do so."""
        separators: list[bytes] = []
        handles: list[BlockHandle] = []
        for separator, handle in self._index_entries(index, within.first):
            if within.first is None or separator >= within.first:
                separators.append(separator)
                handles.append(handle)
                if within.stop is not None and separator >= within.stop:
                    break
        return separators, handles

    def _index_entries(self, block: bytes, first: bytes | None) -> Iterator[tuple[bytes, BlockHandle]]:
        """Yield the entries of an index in order, some below ``first`` among them and all others."""
        short, strip, end = self.head.has_short_handles, self.head.strip, _end_of_entries(block, self.head.path)
        at = 0 if first is None else _restart_before(block, end, first, strip, short)
        key, found = b"", BlockHandle(0, 0)
        while at < end:
            shared, own, at = _index_key(block, at, end, short)
            if shared > len(key) or at + own > end:
                raise Malformed("the index of its blocks")
            key, at = key[:shared] + block[at : at + own], at + own
            if short and shared:
                change, at = varint(block, at, end)
                found = BlockHandle(found.offset + found.size + TRAILER, found.size + (change >> 1 ^ -(change & 1)))
            else:
                offset, at = varint(block, at, end)
                size, at = varint(block, at, end)
                found = BlockHandle(offset, size)
            if found.size < 0 or found.offset + found.size + TRAILER > self.head.size:
                raise Malformed("blocks that lie behind the end of the file")
            yield key[: len(key) - strip] if strip else key, found

    def _entries(self, handle: BlockHandle, within: KeyRange) -> list[Version]:
        """The entries of a block that are in a range."""
        block, first, stop = self._read(handle), within.first or b"", within.stop
        found: list[Version] = []
        end, key = _end_of_entries(block, self.head.path), b""
        at = _restart_before(block, end, first, _TAG, short=False) if first else 0
        while at < end:
            shared, own, size = block[at], block[at + 1], block[at + 2]
            if shared < _ONE_BYTE and own < _ONE_BYTE and size < _ONE_BYTE:
                at += 3
            else:
                shared, at = varint(block, at, end)
                own, at = varint(block, at, end)
                size, at = varint(block, at, end)
            behind = at + own
            if shared > len(key) or shared + own < _TAG or behind + size > end:
                raise Malformed(f"byte {handle.offset}: a block holds malformed entries")
            key = key[:shared] + block[at:behind]
            at = behind + size
            user = key[:-_TAG]
            if user < first:
                continue
            if stop is not None and user >= stop:
                break
            found.append((user, -int.from_bytes(key[-_TAG:], "little"), block[behind:at]))
        return found


class Table(Protocol):
    """A table file whose entries can be read."""

    @property
    def head(self) -> TableHead: ...

    def versions(self, within: KeyRange, backwards: bool) -> Iterator[Version]:
        """Yield the entries of a range in order."""


class PlainFamily:
    """A column family whose table files are open. ``delimiter`` joins operands; None: they are refused."""

    def __init__(self, runs: Sequence[Sequence[Table]], where: str, delimiter: bytes | None) -> None:
        self._runs, self._where, self._delimiter = runs, where, delimiter

    @property
    def estimated_rows(self) -> int:
        """The entries less twice the deletions, as RocksDB estimates it."""
        heads = [table.head for run in self._runs for table in run]
        return max(0, sum(head.number("num.entries") - 2 * head.number("deleted.keys") for head in heads))

    def pairs(self, within: KeyRange, *, backwards: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a range in key order, or the other way round."""
        for key, value, _ in self.merged(within, backwards=backwards):
            if value is not None:
                yield key, value

    def merged(self, within: KeyRange, *, backwards: bool = False) -> Iterator[tuple[bytes, bytes | None, bool]]:
        """Yield each key of a range, what its entries amount to (None: it is deleted), and whether these are operands
        alone, which are added to a value that older files may have."""
        try:
            runs = [self._versions(run, within, backwards) for run in self._runs]
            merged = heapq.merge(*runs, key=itemgetter(0, 1), reverse=backwards)
            for key, group in groupby(merged, itemgetter(0)):
                versions = list(group)
                if (within.first is None or within.first <= key) and (within.stop is None or key < within.stop):
                    yield key, *self._newest(reversed(versions) if backwards else versions)
        except Malformed as error:
            raise corrupt(self._where, f"a table file is malformed: {error}") from error

    def _versions(self, run: Sequence[Table], within: KeyRange, backwards: bool) -> Iterator[Version]:
        for table in reversed(run) if backwards else run:
            yield from table.versions(within, backwards)

    def _newest(self, versions: Iterable[Version]) -> tuple[bytes | None, bool]:
        """The value that the versions of a key, newest first, amount to (None: it is deleted), and whether it is of
        operands alone."""
        operands: list[bytes] = []
        alone = True
        for _, tag, value in versions:
            kind = -tag & 0xFF
            if kind == _MERGE:
                operands.append(value)
                continue
            if kind not in (_PUT, _DELETE, _SINGLE_DELETE):
                raise Unreadable(f"{self._where}: an entry of type {kind}")
            if kind == _PUT:
                operands.append(value)
            elif not operands:
                return None, False
            if len(operands) == 1 and kind == _PUT:
                return value, False
            alone = False
            break
        if self._delimiter is None:
            raise Unreadable(f"{self._where}: found operands to merge, and no merge operator is known")
        return self._delimiter.join(reversed(operands)), alone


@contextmanager
def opened_plain(directory: Path, families: Sequence[str], delimiter: bytes | None) -> Iterator[dict[str, PlainFamily]]:
    """Open table files of column families, by family. Nothing is written into the directory."""
    known = read_families(directory)
    with ExitStack() as opened:
        found = {}
        for name in families:
            if name not in known:
                raise Unreadable(f"{directory} has no column family {name!r}")
            found[name] = PlainFamily(_runs(directory, known[name].files, opened), str(directory), delimiter)
        yield found


@contextmanager
def opened_files(directory: Path, files: Sequence[TableEntry], delimiter: bytes | None) -> Iterator[PlainFamily]:
    """Open some table files of a column family, in the order of its MANIFEST, as if it had no others."""
    with ExitStack() as opened:
        yield PlainFamily(_runs(directory, files, opened), str(directory), delimiter)


def _runs(directory: Path, files: Sequence[TableEntry], opened: ExitStack) -> list[list[PlainTable]]:
    runs: dict[tuple[int, int], list[PlainTable]] = {}
    for entry in files:
        where = os.path.realpath(directory / entry.name)
        try:
            descriptor = open_regular(where)
        except OSError as error:
            raise corrupt(where, f"cannot be opened ({error.strerror})") from error
        opened.callback(os.close, descriptor)
        size = os.fstat(descriptor).st_size
        if size != entry.size:
            raise corrupt(where, f"found {size} bytes, expected {entry.size}")
        try:
            head = read_head(descriptor, size, where)
        except Malformed as error:
            raise corrupt(where, f"its metadata is malformed: {error}") from error
        check_readable(head)
        runs.setdefault((entry.level, entry.number if entry.level == 0 else 0), []).append(PlainTable(head, descriptor))
    return list(runs.values())


def _index_key(block: bytes, at: int, end: int, short: bool) -> tuple[int, int, int]:
    """(bytes that the key of an entry shares with the one before, bytes of its own, where these are)."""
    shared, at = varint(block, at, end)
    own, at = varint(block, at, end)
    if not short:
        _, at = varint(block, at, end)  # the length of the handle, which says itself where it ends
    return shared, own, at


def _restart_before(block: bytes, end: int, first: bytes, strip: int, short: bool) -> int:
    """Return where the last entry with a whole key below ``first`` begins; 0 where there is none."""
    low, high = 0, (int.from_bytes(block[-4:], "little") & ~(_HASHED | _UNKNOWN_LAYOUT)) - 1
    while low < high:
        middle = (low + high + 1) // 2
        at = _restart(block, end, middle)
        shared, own, at = _index_key(block, at, end, short)
        if shared or at + own > end:
            raise Malformed("the index of its blocks")
        if block[at : at + own - strip] < first:
            low = middle
        else:
            high = middle - 1
    return _restart(block, end, low) if low else 0


def _restart(block: bytes, end: int, number: int) -> int:
    return int.from_bytes(block[end + 4 * number : end + 4 * number + 4], "little")


def _end_of_entries(block: bytes, path: str) -> int:
    """Return where the entries of a block end: restart points follow, and perhaps a hash index of them."""
    if len(block) < 4:
        raise Malformed(f"a block of {len(block)} bytes")
    count, end = int.from_bytes(block[-4:], "little"), len(block) - 4
    if count & _UNKNOWN_LAYOUT:
        raise Unreadable(f"{path} has a block of an unknown layout")
    if count & _HASHED:
        end -= 2 + int.from_bytes(block[end - 2 : end], "little")
    end -= 4 * (count & ~_HASHED)
    if end < 0:
        raise Malformed(f"{count & ~_HASHED} restart points in a block of {len(block)} bytes")
    return end

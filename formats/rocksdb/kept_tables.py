"""Look-ups in table files that lie where they were written, with the metadata of each file kept between questions.

RocksDB reads the metadata and the index of every table file of a directory when it opens it. A look-up of a key needs
those of the files that may hold the key, and a block of each. Here they are kept (`kept_results`), so that a further
key costs a block of each such file. Rows are merged as in `plain_tables`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property

from statestore.formats.places.kept_results import kept_result
from statestore.formats.places.regular_files import open_regular
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.manifest import FamilyFiles, TableEntry
from statestore.formats.rocksdb.plain_tables import PlainFamily, PlainTable, Version
from statestore.formats.rocksdb.rocksdb_errors import corrupt
from statestore.formats.rocksdb.stored_blocks import read_block
from statestore.formats.rocksdb.table_head import TableHead, check_readable, read_head


class LazyTable:
    """A table file that is opened once a key is looked for which it may hold."""

    def __init__(self, entry: TableEntry, path: str, opened: ExitStack) -> None:
        self._entry, self._path, self._opened = entry, path, opened

    @property
    def head(self) -> TableHead:
        return self._table.head

    def versions(self, within: KeyRange, backwards: bool) -> Iterator[Version]:
        """Yield the entries of blocks that may hold keys of a range, in order."""
        entry = self._entry
        if (within.first is not None and entry.greatest < within.first) or (
            within.stop is not None and within.stop <= entry.smallest
        ):
            return iter(())
        return self._table.versions(within, backwards)

    @cached_property
    def _table(self) -> PlainTable:
        descriptor = open_regular(self._path)
        self._opened.callback(os.close, descriptor)
        size = os.fstat(descriptor).st_size
        if size != self._entry.size:
            raise corrupt(self._path, f"found {size} bytes, expected {self._entry.size}")

        def read() -> tuple[tuple[TableHead, bytes], int]:
            head = read_head(descriptor, size, self._path)
            check_readable(head)
            index = read_block(descriptor, head.index, head.checksums, head.version, self._path)
            facts = sum(len(name) + len(value) for name, value in (*head.properties.items(), *head.meta.items()))
            return (head, index), len(index) + 2 * facts

        head, index = kept_result(("table", self._path), [self._path], read)
        return PlainTable(head, descriptor, index)


@contextmanager
def opened_lazily(
    files: FamilyFiles, place: Callable[[TableEntry], str], delimiter: bytes | None
) -> Iterator[PlainFamily]:
    """A column family whose table files are opened when they are needed; ``place`` returns the path of one.

    Its reads raise Malformed, `Unreadable`, CorruptError ROCKSDB_FILE and the errors of `open_regular`.
    """
    runs: dict[tuple[int, int], list[LazyTable]] = {}
    with ExitStack() as opened:
        for entry in files.files:
            run = (entry.level, entry.number if entry.level == 0 else 0)
            runs.setdefault(run, []).append(LazyTable(entry, place(entry), opened))
        yield PlainFamily(list(runs.values()), "the table files", delimiter)

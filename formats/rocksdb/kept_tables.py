"""Look-ups in table files that lie where they were written, with the metadata of each file kept between questions.

RocksDB reads the metadata and the index of every table file of a directory when it opens it. A look-up of a key needs
those of the files that may hold the key, and a block of each. Here they are kept (`kept_results`), so that a further
key costs a block of each such file. Rows are merged as in `plain_tables`.

No private folder is made and RocksDB opens nothing. What this way does not read, also damage, is left to RocksDB and
its errors.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

import pyarrow as pa

from statestore.formats.errors import StateStoreError
from statestore.formats.notices import is_verification
from statestore.formats.places.kept_results import kept_result
from statestore.formats.places.regular_files import open_regular
from statestore.formats.rocksdb.fields import Malformed
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.manifest import FamilyFiles, TableEntry, broken_frame, families_of
from statestore.formats.rocksdb.plain_tables import PlainFamily, PlainTable, Version
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt
from statestore.formats.rocksdb.scan import LOOKUP_ROWS, READER, is_lookup, scan_opened
from statestore.formats.rocksdb.stored_blocks import read_block
from statestore.formats.rocksdb.table_head import TableHead, check_readable, read_head

BYTES_OF_A_TABLE = 1024
"""About what the names, the size and the bounds of a table file take."""
_MOST_RANGES = 32
"""For more, RocksDB is opened: that takes as long as some forty look-ups here, and a look-up there a fifth of one."""
Files = tuple[FamilyFiles, Callable[[TableEntry], str]]
"""The table files of a column family, and where each is."""


Found = tuple[list[pa.RecordBatch], list[KeyRange]]
"""The rows (key, value) of ranges, in their order, and the ranges that are left because the rows are many."""


def looked_up(
    find: Callable[[], Sequence[Files]],
    ranges: Sequence[KeyRange],
    delimiter: bytes | None,
    *,
    few: bool = False,
    flags: int = os.O_RDONLY,
) -> list[Found] | None:
    """Return what ranges have in each of the column families that ``find`` finds; None where this way does not read
    them.

    ``few``: few rows are expected in each range, which is else seen where its keys begin alike. ``flags`` are those
    with which table files are opened, ``delimiter`` stands between merged values.
    """
    few = few or all(map(is_lookup, ranges))
    if not few or len(ranges) > _MOST_RANGES or is_verification() or os.environ.get(READER):
        return None
    try:
        return [_found(files, place, ranges, delimiter, flags) for files, place in find()]
    except (OSError, StateStoreError, Unreadable, Malformed, KeyError):
        return None


def _found(
    files: FamilyFiles,
    place: Callable[[TableEntry], str],
    ranges: Sequence[KeyRange],
    delimiter: bytes | None,
    flags: int,
) -> Found:
    batches: list[pa.RecordBatch] = []
    with opened_lazily(files, place, delimiter, flags) as table:
        rows = scan_opened(table, ranges, LOOKUP_ROWS, LOOKUP_ROWS)
        while True:
            try:
                batches.append(next(rows))
            except StopIteration as end:
                return batches, end.value


def kept_families(files: Mapping[str, bytes], where: str, *, whole: bool = False) -> Mapping[str, FamilyFiles]:
    """Return the column families of `families_of`, which are kept for these bytes. Raises its errors, and `Unreadable`
    for a MANIFEST that must be ``whole`` and is not."""

    def read() -> tuple[Mapping[str, FamilyFiles], int]:
        if whole and any(broken_frame(data) for name, data in files.items() if name.startswith("MANIFEST-")):
            raise Unreadable(f"{where}: a MANIFEST that is not whole")
        found = families_of(files, where)
        tables = sum(len(each.files) for each in found.values())
        return found, sum(map(len, files.values())) + BYTES_OF_A_TABLE * tables

    return kept_result(("families", whole, tuple(sorted(files.items()))), [], read)


class LazyTable:
    """A table file that is opened once a key is looked for which it may hold."""

    def __init__(self, entry: TableEntry, place: Callable[[TableEntry], str], opened: ExitStack, flags: int) -> None:
        self._entry, self._place, self._opened, self._flags = entry, place, opened, flags

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
        path = self._place(self._entry)
        descriptor = open_regular(path, self._flags)
        self._opened.callback(os.close, descriptor)
        size = os.fstat(descriptor).st_size
        if size != self._entry.size:
            raise corrupt(path, f"found {size} bytes, expected {self._entry.size}")

        def read() -> tuple[tuple[TableHead, bytes], int]:
            head = read_head(descriptor, size, path)
            check_readable(head)
            index = read_block(descriptor, head.index, head.checksums, head.version, path)
            facts = sum(len(name) + len(value) for name, value in (*head.properties.items(), *head.meta.items()))
            return (head, index), len(index) + 2 * facts

        head, index = kept_result(("table", path), [path], read)
        return PlainTable(head, descriptor, index)


@contextmanager
def opened_lazily(
    files: FamilyFiles, place: Callable[[TableEntry], str], delimiter: bytes | None, flags: int = os.O_RDONLY
) -> Iterator[PlainFamily]:
    """A column family whose table files are opened when they are needed; ``place`` returns the path of one.

    Its reads raise Malformed, `Unreadable`, CorruptError ROCKSDB_FILE and the errors of `open_regular`.
    """
    runs: dict[tuple[int, int], list[LazyTable]] = {}
    with ExitStack() as opened:
        for entry in files.files:
            run = (entry.level, entry.number if entry.level == 0 else 0)
            runs.setdefault(run, []).append(LazyTable(entry, place, opened, flags))
        yield PlainFamily(list(runs.values()), "the table files", delimiter)

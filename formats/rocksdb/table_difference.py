"""The rows in which two directories of a database differ, range by range, in key order.

Table files are never changed, so one that both directories link to has the same entries in both. `differing_ranges`
says which blocks of it need not be read. Where files are of forms that the scanner does not read, or too few for
compiled loops, both states stream past each other instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.rocksdb.key_ranges import KeyRange, cut_ranges
from statestore.formats.rocksdb.manifest import read_families
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt
from statestore.formats.rocksdb.rows import DEFAULT_FAMILY
from statestore.formats.rocksdb.scan import scan_rocksdb, wants_scanner
from statestore.formats.rocksdb.stored_difference import Differing, streamed_difference

if TYPE_CHECKING:
    from statestore.formats.rocksdb.differing_ranges import ComparedRuns  # imports numba

T = TypeVar("T")


def rocksdb_difference(
    old: Path,
    new: Path,
    each: Callable[[Differing], T],
    *,
    family: str = DEFAULT_FAMILY,
    key_ranges: Sequence[KeyRange] = (KeyRange(),),
    delimiter: bytes | None = None,
) -> Iterator[T]:
    """Yield ``each`` of the differences from one directory to another, in key order, range after range.

    ``each`` is called by the threads that read. Both directories have the family, and do not change meanwhile.
    ``delimiter`` is as in `scan_rocksdb`, which says what this raises. Memory holds a few MiB of blocks a thread, and
    the rows of a range that differ.
    """
    left = list(key_ranges)
    if wants_scanner(old) or wants_scanner(new):
        left = yield from _by_files(old, new, each, family, left, delimiter)
    for within in left:
        sides = (
            scan_rocksdb(directory, lambda rows: rows, family=family, key_ranges=(within,), delimiter=delimiter)
            for directory in (old, new)
        )
        yield from map(each, streamed_difference(*sides))


def _by_files(
    old: Path,
    new: Path,
    each: Callable[[Differing], T],
    family: str,
    ranges: list[KeyRange],
    delimiter: bytes | None,
) -> Generator[T, None, list[KeyRange]]:
    """Yield the differences as far as the scanner can read the files; return the remaining ranges."""
    try:
        from statestore.formats.rocksdb.differing_ranges import differing_in
        from statestore.formats.rocksdb.range_read import Buffers
        from statestore.formats.rocksdb.table_scan import range_bytes_of
    except ImportError:
        return ranges
    try:
        runs = _compared_runs(old, new, family)
    except Unreadable:
        return ranges
    if not runs.own:
        return []
    own = threading.local()

    def read(within: KeyRange) -> tuple[list[T], int]:
        if not hasattr(own, "buffers"):
            own.buffers = Buffers()
        differing, entries = differing_in(runs, within, delimiter, own.buffers)
        return [] if differing is None else [each(differing)], entries

    for number, within in enumerate(ranges):
        left, found = within, 0
        pieces = cut_ranges(runs.tables, within, range_bytes_of(runs.tables)) if not within.empty else []
        try:
            for piece, (differing, entries) in zip(pieces, in_order(read, pieces, reading_threads()), strict=True):
                yield from differing
                left, found = KeyRange(piece.stop, within.stop), found + entries
        except Unreadable:
            return [left, *ranges[number + 1 :]]
        expected = sum(table.entries for table in runs.own)
        if within == KeyRange() and found != expected:
            paths = ", ".join(table.path for table in runs.own)
            raise corrupt(paths, f"found {found} entries, expected {expected}")
    return []


def _compared_runs(old: Path, new: Path, family: str) -> ComparedRuns:
    from statestore.formats.rocksdb.differing_ranges import ComparedRuns
    from statestore.formats.rocksdb.table_scan import opened, path_of, runs_of

    sides = []
    for directory in (old, new):
        families = read_families(directory)
        if family not in families:
            raise Unreadable(f"{directory} has no column family {family!r}")
        sides.append({path_of(directory, entry): entry for entry in families[family].files})
    tables = {path: opened(path, entry) for side in sides for path, entry in side.items()}
    both = sides[0].keys() & sides[1].keys()
    before, after = ([(entry, tables[path]) for path, entry in side.items() if path not in both] for side in sides)
    shared = [(entry, tables[path]) for path, entry in sides[1].items() if path in both]
    return ComparedRuns(runs_of(before), runs_of(after), runs_of(shared))

"""The rows of a column family of a RocksDB directory, for readers of every engine.

Bulk reads scan the table files directly, in loops that numba compiles (the extra ``fast``). Lookups, small states and
forms that the scanner does not read go through RocksDB itself (rocksdict), or where that lacks a codec through a reader
in Python. All return the same rows.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.kernels import compiled_use
from statestore.formats.notices import is_verification
from statestore.formats.places.disk_errors import disk_errors
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.rocksdb.opened_families import Family, opened_family, rows_in, rows_of
from statestore.formats.rocksdb.rocksdb_errors import Unreadable
from statestore.formats.rocksdb.rows import BATCH_ROWS, DEFAULT_FAMILY

# Rows of a column family row by row: for lookups, small states, and forms unknown to the scanner


_MOST_HOLES = 2000
"""Most jumps from hole to hole. A jump takes some microseconds, as long as a scan takes for a hundred rows."""


def scan_family(
    directory: Path,
    family: str,
    ranges: Sequence[KeyRange],
    batch_rows: int,
    most_rows: int | None = None,
    *,
    delimiter: bytes | None = None,
) -> Generator[pa.RecordBatch, None, list[KeyRange]]:
    """Yield the rows of each range in key order, with operands merged as the directory's OPTIONS say.

    A batch has rows of several ranges: a thousand keys are then one batch, and not a thousand. The scan ends after
    ``most_rows`` and returns the remaining ranges. Raises as `opened_families`, also about ``delimiter``.
    """
    with opened_family(directory, family, delimiter=delimiter) as table:
        return (yield from scan_opened(table, ranges, batch_rows, most_rows))


def scan_opened(
    table: Family, ranges: Sequence[KeyRange], batch_rows: int, most_rows: int | None = None
) -> Generator[pa.RecordBatch, None, list[KeyRange]]:
    """Yield the rows of each range of an open column family, as `scan_family`."""
    rows_read = 0
    by_holes = itertools.groupby(enumerate(ranges), lambda each: bool(each[1].rest) and most_rows is not None)
    for has_holes, group in by_holes:
        if has_holes:
            for number, within in group:
                left = yield from _skipping(table, within, batch_rows)
                if left is not None:
                    return [left, *ranges[number + 1 :]]
            continue
        pairs = _PairsOfRanges(table, tuple(group))
        for batch in rows_of(iter(pairs), batch_rows):
            yield batch
            rows_read += batch.num_rows
            if most_rows is not None and rows_read >= most_rows:
                last: bytes = batch.column(0)[-1].as_py()
                return [KeyRange(last + b"\0", ranges[pairs.number].stop), *ranges[pairs.number + 1 :]]
    return []


class _PairsOfRanges:
    """Keys and values of some ranges, each with its number; ``number`` is that of the range of the last pair."""

    def __init__(self, table: Family, ranges: Sequence[tuple[int, KeyRange]]) -> None:
        self._table, self._ranges = table, ranges
        self.number = 0

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        for number, within in self._ranges:
            self.number = number
            yield from self._table.pairs(within)


def _skipping(table: Family, within: KeyRange, batch_rows: int) -> Generator[pa.RecordBatch, None, KeyRange | None]:
    """Yield the rows with ``rest`` behind each existing hole; return what is left after too many holes."""
    assert within.first is not None
    end, at = len(within.first) + within.hole, within.first
    for _ in range(_MOST_HOLES):
        met = next((key for key, _ in table.pairs(KeyRange(at, within.stop))), None)
        if met is None:
            return None
        if len(met) >= end:
            target = met[:end] + within.rest
            behind = successor(target)
            yield from rows_in(table, KeyRange(max(target, met), behind), batch_rows)
            after = successor(met[:end])
        else:
            after = met + b"\0"
        if after is None or (within.stop is not None and after >= within.stop):
            return None
        at = after
    return KeyRange(at, within.stop)


READER = "STATESTORE_ROCKSDB_READER"
_SCANNER, _ROCKSDICT = "scanner", "rocksdict"
_LOOKUP_PREFIX = 4
LOOKUP_ROWS = 16384
"""Most rows that a look-up reads one by one."""
T = TypeVar("T")


def scan_rocksdb(
    directory: Path,
    each: Callable[[pa.RecordBatch], T],
    *,
    family: str = DEFAULT_FAMILY,
    key_ranges: Sequence[tuple[bytes | None, bytes | None] | KeyRange] = ((None, None),),
    delimiter: bytes | None = None,
    batch_rows: int = BATCH_ROWS,
    lookup: bool = False,
) -> Iterator[T]:
    """Yield ``each(batch)`` of the batches of rows (key: binary, value: binary), in key order, range after range.

    A range is [from, to). ``each`` is called by the threads that read, which are ``reading_threads()``. ``lookup``: few
    rows are expected in each range, which is else seen where the keys of a range begin alike.

    ``delimiter`` is the string that the database's StringAppendOperator puts between merged values; None: the database
    has no such operator, or its OPTIONS name it for family ``default``. RocksDB itself takes the operator of any family
    from the directory's OPTIONS. The directory must not change meanwhile. Memory holds a few MiB of blocks a thread,
    and a batch. The environment variable STATESTORE_ROCKSDB_READER forces ``scanner`` or ``rocksdict``.

    Raises CorruptError ROCKSDB_FILE, before any row that would be wrong, InvalidInputError INVALID_SETTING,
    UnsupportedError ROCKSDB_UNSUPPORTED.
    """
    ranges = [bounds if isinstance(bounds, KeyRange) else KeyRange(*bounds) for bounds in key_ranges]
    if is_verification():
        from statestore.formats.rocksdb.table_checks import check_heads, check_places

        check_heads(directory)
        if KeyRange() in ranges:  # else parts of the files may be holes
            check_places(directory)
    if not os.environ.get(READER) and (lookup or all(is_lookup(within) for within in ranges)):
        # A prefix may match most keys, so a lookup that finds many rows gives the remaining ranges to the scanner.
        found = scan_family(directory, family, ranges, min(batch_rows, LOOKUP_ROWS), LOOKUP_ROWS, delimiter=delimiter)
        ranges = yield from _each(each, found)
    if ranges and wants_scanner(directory):
        ranges = yield from _scanned(directory, each, family, ranges, delimiter, batch_rows)
    if ranges:
        rows = scan_family(directory, family, ranges, batch_rows, delimiter=delimiter)
        yield from in_order(each, rows, reading_threads())


def _each(
    each: Callable[[pa.RecordBatch], T], batches: Generator[pa.RecordBatch, None, list[KeyRange]]
) -> Generator[T, None, list[KeyRange]]:
    while True:
        try:
            yield each(next(batches))
        except StopIteration as end:
            left: list[KeyRange] = end.value
            return left


def _scanned(
    directory: Path,
    each: Callable[[pa.RecordBatch], T],
    family: str,
    ranges: list[KeyRange],
    delimiter: bytes | None,
    batch_rows: int,
) -> Generator[T, None, list[KeyRange]]:
    """Yield the rows as far as the scanner can read them; return the remaining ranges."""
    try:
        from statestore.formats.rocksdb.table_scan import plan_of, scan_ranges, table_runs
    except ImportError as error:  # numba also refuses to load beside a numpy that is newer than it supports
        if os.environ.get(READER):
            raise InvalidInputError(
                ErrorCode.INVALID_SETTING,
                f"{READER} is {_SCANNER!r}, which needs numba ({error}); install statestore[fast] or unset it",
            ) from error
        return ranges
    try:
        runs = table_runs(directory, family)
    except Unreadable:
        return ranges
    for number, within in enumerate(ranges):
        left = within
        try:
            plan = plan_of(runs, within)
            for done, rows in scan_ranges(
                plan, each, delimiter=delimiter, batch_rows=batch_rows, threads=reading_threads()
            ):
                yield from rows
                left = KeyRange(done.stop, within.stop)
        except Unreadable:
            return [left, *ranges[number + 1 :]]
    return []


def wants_scanner(directory: Path) -> bool:
    """Return whether compiled loops read a directory, because it is large or the environment says so."""
    forced = os.environ.get(READER, "")
    if forced not in ("", _SCANNER, _ROCKSDICT):
        raise InvalidInputError(
            ErrorCode.INVALID_SETTING, f"{READER} is {forced!r}; expected {_SCANNER} or {_ROCKSDICT}"
        )
    if forced:
        return forced == _SCANNER
    with disk_errors("list", directory):
        return compiled_use.pays(sum(path.stat().st_size for path in directory.glob("*.sst")))


def is_lookup(within: KeyRange) -> bool:
    """Return whether a range is one key, or the keys with a prefix longer than the id of a column family."""
    if within.first is None or within.stop is None:
        return False
    shared = len(within.first) - 1
    is_prefix = within.first[:shared] == within.stop[:shared] or within.stop == successor(within.first)
    return shared >= _LOOKUP_PREFIX and is_prefix

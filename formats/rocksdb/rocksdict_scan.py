"""Rows of a RocksDB directory read through RocksDB: for lookups, small states, and forms unknown to the scanner."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from rocksdict import AccessType, Options, Rdict, RdictIter, ReadOptions

from statestore.formats.places.disk_errors import storage_error
from statestore.formats.places.rocksdb_forks import using_rocksdb
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.rocksdb.native_errors import system_error
from statestore.formats.rocksdb.reader_errors import corrupt
from statestore.formats.rocksdb.rows import BATCH_BYTES, DEFAULT_FAMILY, ROW_SCHEMA

_MOST_HOLES = 2000
"""Most jumps from hole to hole. A jump takes some microseconds, as long as a scan takes for a hundred rows."""


def scan_with_rocksdict(
    directory: Path,
    family: str,
    ranges: Sequence[KeyRange],
    batch_rows: int,
    most_rows: int | None = None,
    *,
    merges: bool = False,
) -> Generator[pa.RecordBatch, None, list[KeyRange]]:
    """Yield the rows of each range in key order, with operands merged as the directory's OPTIONS say.

    The scan ends after ``most_rows`` and returns the remaining ranges. ``merges``: the rows of a family other than
    ``default`` may have operands. Raises CorruptError ROCKSDB_FILE, StorageError.
    """
    rows_read = 0
    with opened_family(directory, family, merges=merges) as table:
        for number, within in enumerate(ranges):
            if within.rest and most_rows is not None:
                left = yield from _skipping(table, within, batch_rows, str(directory))
                if left is not None:
                    return [left, *ranges[number + 1 :]]
                continue
            for batch in rows_in(table, within, batch_rows, str(directory)):
                yield batch
                rows_read += batch.num_rows
                if most_rows is not None and rows_read >= most_rows:
                    last: bytes = batch.column(0)[-1].as_py()
                    return [KeyRange(last + b"\0", within.stop), *ranges[number + 1 :]]
    return []


def family_names(directory: Path) -> list[str]:
    """The names of a directory's column families. Raises CorruptError ROCKSDB_FILE, StorageError."""
    using_rocksdb()
    try:
        return sorted(Rdict.list_cf(str(directory)))
    except Exception as error:
        raise _failure(str(directory), "list the column families in", error) from error


@contextmanager
def opened_family(directory: Path, family: str, *, merges: bool = False) -> Iterator[Rdict]:
    """A column family, opened read-only. RocksDB writes a file or two into the directory.

    RocksDB reads the options of ``default`` from the directory's OPTIONS; with ``merges`` those of another family, too,
    of which else only its rows matter.

    Raises CorruptError ROCKSDB_FILE, StorageError.
    """
    using_rocksdb()
    try:
        own = {} if family == DEFAULT_FAMILY else {family: _family_options(directory, family, merges)}
        database = Rdict(
            str(directory),
            options=Options(raw_mode=True),
            column_families=own or None,
            access_type=AccessType.read_only(),
        )
    except Exception as error:
        raise _failure(str(directory), "open", error) from error
    table = database
    try:
        if own:
            try:
                table = database.get_column_family(family)
            except Exception as error:
                raise _failure(str(directory), "open", error) from error
        yield table
    finally:
        if table is not database:
            table.close()
        database.close()


def _family_options(directory: Path, family: str, merges: bool) -> Options:
    """Options with which a family is opened: those of OPTIONS name the operator that merges its operands."""
    if not merges:
        return Options(raw_mode=True)
    _, families = Options.load_latest(str(directory))
    return families.get(family) or Options(raw_mode=True)


def _skipping(
    table: Rdict, within: KeyRange, batch_rows: int, where: str
) -> Generator[pa.RecordBatch, None, KeyRange | None]:
    """Yield the rows with ``rest`` behind each existing hole; return what is left after too many holes."""
    assert within.first is not None
    end, at = len(within.first) + within.hole, within.first
    for _ in range(_MOST_HOLES):
        met = _first_key(table, KeyRange(at, within.stop), where)
        if met is None:
            return None
        if len(met) >= end:
            target = met[:end] + within.rest
            behind = successor(target)
            yield from rows_in(table, KeyRange(max(target, met), behind), batch_rows, where)
            after = successor(met[:end])
        else:
            after = met + b"\0"
        if after is None or (within.stop is not None and after >= within.stop):
            return None
        at = after
    return KeyRange(at, within.stop)


def _first_key(table: Rdict, within: KeyRange, where: str) -> bytes | None:
    reading = _options(within)  # kept in a variable for the reason given below
    rows = table.iter(reading)
    rows.seek(within.first or b"")
    if rows.valid():
        key: bytes = rows.key()
        return key
    _check(rows, where)
    return None


def rows_in(table: Rdict, within: KeyRange, batch_rows: int, where: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range in key order; ``where`` names the directory in errors. Raises as `opened_family`."""
    reading = _options(within)  # kept here: the iterator reads the bound out of the options' own memory
    rows = table.iter(reading)
    rows.seek(within.first) if within.first else rows.seek_to_first()
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    while rows.valid():
        value = rows.value()
        keys.append(rows.key())
        values.append(value)
        size += len(value)
        rows.next()
        if len(keys) == batch_rows or size >= BATCH_BYTES:
            yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], schema=ROW_SCHEMA)
            keys, values, size = [], [], 0
    _check(rows, where)
    if keys:
        yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], schema=ROW_SCHEMA)


def _options(within: KeyRange) -> ReadOptions:
    reading = ReadOptions()
    if within.stop is not None:  # RocksDB stops there; unbounded it might search on for long
        reading.set_iterate_upper_bound(within.stop)
    return reading


def _check(rows: RdictIter, where: str) -> None:
    try:
        rows.status()
    except Exception as error:
        raise _failure(where, "read", error) from error


def _failure(where: str, doing: str, error: Exception) -> Exception:
    """Convert a refusal of the disk to StorageError, and any other error to CorruptError."""
    refusal = system_error(error)
    if refusal is not None:
        return storage_error(refusal, doing, where)
    return corrupt(where, f"RocksDB cannot {doing} it ({error})")

"""Column families of a RocksDB directory, opened for reads row by row: for lookups, samples, and small states.

RocksDB itself reads them (rocksdict), and where it is built without a codec of a table file, `plain_tables` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from rocksdict import AccessType, Options, Rdict, ReadOptions

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.places.disk_errors import storage_error
from statestore.formats.places.rocksdb_forks import using_rocksdb
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.rocksdb.rocksdb_errors import Unreadable, corrupt, system_error
from statestore.formats.rocksdb.rows import BATCH_BYTES, DEFAULT_FAMILY, ROW_SCHEMA
from statestore.formats.rocksdb.table_head import codec_without_rocksdict
from statestore.formats.values.without_pandas import arrow_bytes


class Family(Protocol):
    """An open column family."""

    @property
    def estimated_rows(self) -> int:
        """RocksDB's estimate of the rows, which deletions and new versions of a key mislead."""

    def pairs(self, within: KeyRange, *, backwards: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values of a range in key order, or the other way round. Raises as `opened_families`."""


class NativeFamily:
    """A column family that RocksDB reads; ``where`` names its directory in errors."""

    def __init__(self, table: Rdict, where: str) -> None:
        self._table, self._where = table, where

    @property
    def estimated_rows(self) -> int:
        try:
            return int(self._table.property_int_value("rocksdb.estimate-num-keys") or 0)
        except Exception as error:
            raise _failure(self._where, "read", error) from error

    def pairs(self, within: KeyRange, *, backwards: bool = False) -> Iterator[tuple[bytes, bytes]]:
        reading = ReadOptions()  # kept in a variable: the iterator reads the bound out of the options' own memory
        reading.set_total_order_seek(True)  # with a prefix extractor in OPTIONS, a seek may miss keys of other prefixes
        if within.stop is not None:  # RocksDB stops there; unbounded it might search on for long
            reading.set_iterate_upper_bound(within.stop)
        try:
            rows = self._table.iter(reading)
            if backwards:
                rows.seek_to_last()
            elif within.first:
                rows.seek(within.first)
            else:
                rows.seek_to_first()
        except Exception as error:
            raise _failure(self._where, "read", error) from error
        while rows.valid():
            key = rows.key()
            if backwards and within.first is not None and key < within.first:
                return
            yield key, rows.value()
            rows.prev() if backwards else rows.next()
        try:
            rows.status()
        except Exception as error:
            raise _failure(self._where, "read", error) from error


def family_names(directory: Path) -> list[str]:
    """The names of a directory's column families. Raises CorruptError ROCKSDB_FILE, StorageError."""
    using_rocksdb()
    try:
        return sorted(Rdict.list_cf(str(directory)))
    except Exception as error:
        raise _failure(str(directory), "list the column families in", error) from error


@contextmanager
def opened_family(directory: Path, family: str, *, delimiter: bytes | None = None) -> Iterator[Family]:
    """One column family, opened as by `opened_families`."""
    with opened_families(directory, [family], delimiter=delimiter) as opened:
        yield opened[family]


@contextmanager
def opened_families(
    directory: Path, families: Sequence[str], *, delimiter: bytes | None = None
) -> Iterator[Mapping[str, Family]]:
    """Column families, opened to read them. RocksDB writes a file or two into the directory.

    RocksDB reads the options of ``default`` from the directory's OPTIONS; with a ``delimiter``, which stands between
    merged values, those of another family, too, of which else only its rows matter.

    Raises CorruptError ROCKSDB_FILE, StorageError, UnsupportedError ROCKSDB_UNSUPPORTED.
    """
    codec = codec_without_rocksdict(directory)
    if codec is not None:
        try:
            from statestore.formats.rocksdb.plain_tables import opened_plain

            with opened_plain(directory, families, delimiter) as opened:
                yield opened
        except Unreadable as error:
            raise UnsupportedError(
                ErrorCode.ROCKSDB_UNSUPPORTED,
                f"{directory} has files with compression {codec}, which RocksDB is built without here, and they "
                f"cannot be read without it: {error}; compact the database with another compression",
            ) from error
        return
    using_rocksdb()
    where = str(directory)
    own = [name for name in families if name != DEFAULT_FAMILY]
    with ExitStack() as closing:
        try:
            database = Rdict(
                where,
                options=Options(raw_mode=True),
                column_families={name: _options_of(directory, name, delimiter) for name in own} or None,
                access_type=AccessType.read_only(),
            )
            closing.callback(database.close)
            tables = {DEFAULT_FAMILY: database}
            for name in own:
                tables[name] = database.get_column_family(name)
                closing.callback(tables[name].close)
        except Exception as error:
            raise _failure(where, "open", error) from error
        yield {name: NativeFamily(tables[name], where) for name in families}


def rows_in(family: Family, within: KeyRange, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a range in key order. Raises as `opened_families`."""
    return rows_of(family.pairs(within), batch_rows)


def rows_of(pairs: Iterator[tuple[bytes, bytes]], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield keys and values as batches. A batch is yielded before the pair behind its last one is asked for."""
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    for key, value in pairs:
        keys.append(key)
        values.append(value)
        size += len(value)
        if len(keys) == batch_rows or size >= BATCH_BYTES:
            yield pa.RecordBatch.from_arrays([arrow_bytes(keys), arrow_bytes(values)], schema=ROW_SCHEMA)
            keys, values, size = [], [], 0
    if keys:
        yield pa.RecordBatch.from_arrays([arrow_bytes(keys), arrow_bytes(values)], schema=ROW_SCHEMA)


def _options_of(directory: Path, family: str, delimiter: bytes | None) -> Options:
    """Options with which a family is opened: those of OPTIONS name the operator that merges its operands."""
    if delimiter is None:
        return Options(raw_mode=True)
    _, families = Options.load_latest(str(directory))
    return families.get(family) or Options(raw_mode=True)


def _failure(where: str, doing: str, error: Exception) -> Exception:
    """Convert a refusal of the disk to StorageError, and any other error to CorruptError."""
    refusal = system_error(error)
    if refusal is not None:
        return storage_error(refusal, doing, where)
    return corrupt(where, f"RocksDB cannot {doing} it ({error})")

"""The hot tier: the rows a live store answers from, as bytes in RocksDB, one database or one per time segment.

A cache of what changelog and segments hold, never more: its own write-ahead log is off, and whatever is wrong with it
is cured by making it anew. Keys sort as unsigned bytes. The directories are those of Kafka Streams
(``formats/kafka``): ``rocksdb/<store>`` for one database, ``<store>/<store>.<start>`` for a segment.
"""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    SstFileWriter,
    WriteOptions,
)

from statestore.formats.errors import InvalidInputError
from statestore.formats.regular_files import strange_entry

ONE = 0  # the segment number of a tier that is one database
WRITE_BUFFER_BYTES = 64 << 20
CACHE_BYTES = 50 << 20
SCAN_ROWS = 256

SegmentName = Callable[[int], str]
Row = tuple[bytes, bytes]


class TierBrokenError(Exception):
    """The tier can not be read; it has to be made anew. Never leaves the package."""


class HotTier:
    """Databases under ``root``. ``segment_name`` names the directory of a segment, None for one database."""

    def __init__(self, root: Path, store: str, segment_name: SegmentName | None = None) -> None:
        self.root = root
        self._store = store
        self._segment_name = segment_name
        self._databases: dict[int, Any] = {}
        self._scans: weakref.WeakSet[_Scan] = weakref.WeakSet()
        self._options = _options()
        self._unlogged = WriteOptions()
        setattr(self._unlogged, "disable_wal", True)  # noqa: B010 - its stub takes the attribute for a method

    # Databases

    def open(self, segments: Iterable[int]) -> None:
        """Open what was left there; TierBrokenError if a database is damaged or missing."""
        for segment in segments:
            if not self._path(segment).is_dir():
                raise TierBrokenError(f"{self._path(segment)} is missing")
            if (strange := strange_entry(self._path(segment))) is not None:  # RocksDB would wait for a FIFO
                raise TierBrokenError(f"{strange} is no file")
            self._open(segment)

    def segments(self) -> list[int]:
        """The segments there are, ascending."""
        return sorted(self._databases)

    def database(self, segment: int) -> Any:
        """The database of a segment, made where absent."""
        found = self._databases.get(segment)
        return self._open(segment) if found is None else found

    def drop_before(self, segment: int) -> bool:
        """Remove all segments before ``segment``; whether there were any."""
        dead = [number for number in self._databases if number < segment]
        for old in dead:
            self._databases.pop(old).close()
            shutil.rmtree(self._path(old), ignore_errors=True)
        return bool(dead)

    def flush(self) -> None:
        """Make what was written survive the end of this process."""
        for database in self._databases.values():
            database.flush()

    def close(self) -> None:
        for scan in list(self._scans):
            scan.rows = None
        for database in self._databases.values():
            database.close()
        self._databases.clear()

    def destroy(self) -> None:
        """Close and remove everything, so that an empty tier begins."""
        self.close()
        shutil.rmtree(self.root, ignore_errors=True)

    # Rows

    def put(self, segment: int, key: bytes, value: bytes | None) -> None:
        """Write a row, or (None) remove it."""
        database = self._databases.get(segment)
        if value is not None:
            (self._open(segment) if database is None else database)[key] = value
        elif database is not None:
            del database[key]

    def delete_range(self, segment: int, low: bytes, high: bytes) -> None:
        """Remove the rows with ``low`` <= key < ``high``."""
        database = self._databases.get(segment)
        if database is not None:
            database.delete_range(low, high)

    def get(self, segment: int, key: bytes) -> bytes | None:
        database = self._databases.get(segment)
        if database is None:
            return None
        try:
            found: bytes | None = database.get(key)
        except Exception as error:
            raise _broken(error) from error
        return found

    def ingest(self, segment: int, rows: dict[bytes, bytes | None]) -> None:
        """Write many rows at once, over those that are there; None removes."""
        if not rows:
            return
        file = self.root / "ingested.sst"
        self.root.mkdir(parents=True, exist_ok=True)
        database = self.database(segment)
        writer = SstFileWriter(self._options)
        writer.open(str(file))
        for key in sorted(rows):
            value = rows[key]
            if value is None:
                del writer[key]
            else:
                writer[key] = value
        writer.finish()
        database.ingest_external_file([str(file)])
        file.unlink(missing_ok=True)

    def scan(
        self, segment: int, low: bytes | None = None, high: bytes | None = None, backwards: bool = False
    ) -> Iterator[Row]:
        """Rows with ``low`` <= key < ``high`` (None: without end) of one segment, as of the scan's first row.

        Raises InvalidInputError STORE_CLOSED if the store is closed before the scan has ended.
        """
        database = self._databases.get(segment)
        if database is None:
            return
        options = ReadOptions()
        if high is not None:
            options.set_iterate_upper_bound(high)
        # rocksdict takes a lower bound for an upper one, so it is a place to begin or, backwards, to end.
        begin = None if backwards else low
        found = iter(database.items(backwards=backwards, from_key=begin, read_opt=options))
        scan = _Scan(found if not backwards or low is None else takewhile(lambda row: row[0] >= low, found))
        self._scans.add(scan)
        try:
            while True:
                if scan.rows is None:
                    raise InvalidInputError(
                        "STORE_CLOSED", f"store {self._store!r} was closed under an iterator; open it and ask again"
                    )
                rows = list(islice(scan.rows, SCAN_ROWS))
                yield from rows
                if len(rows) < SCAN_ROWS:
                    return
        except (InvalidInputError, GeneratorExit):
            raise
        except Exception as error:
            raise _broken(error) from error
        finally:
            scan.rows = None

    def estimated_rows(self) -> int:
        """RocksDB's estimate of the number of rows."""
        found = (db.property_int_value("rocksdb.estimate-num-keys") for db in self._databases.values())
        return sum(number or 0 for number in found)

    def _open(self, segment: int) -> Any:
        path = self._path(segment)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            database = Rdict(str(path), self._options, access_type=AccessType.read_write())
        except Exception as error:
            raise _broken(error) from error
        database.set_write_options(self._unlogged)
        self._databases[segment] = database
        return database

    def _path(self, segment: int) -> Path:
        if self._segment_name is None:
            return self.root / "rocksdb" / self._store
        return self.root / self._segment_name(segment)


class _Scan:
    """A native iterator that closing the store can take away: while one lives, RocksDB keeps its lock."""

    def __init__(self, rows: Iterator[Row]) -> None:
        self.rows: Iterator[Row] | None = rows


def _broken(error: Exception) -> Exception:
    """Damage becomes a TierBrokenError; everything else (a full disk, a lock) stays what it is."""
    text = str(error)
    damaged = "Corruption" in text or "No such file" in text or "Invalid argument" in text
    return TierBrokenError(text) if damaged else error


def _options() -> Any:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_compression_type(DBCompressionType.none())
    options.set_keep_log_file_num(1)
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(Cache(CACHE_BYTES))
    options.set_block_based_table_factory(table)
    return options

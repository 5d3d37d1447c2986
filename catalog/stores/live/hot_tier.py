"""The hot tier: the rows from which a live store answers, as bytes in RocksDB, one database or one per time segment.

The tier is a cache of the changelog and the segments and holds nothing else. Its own write-ahead log is off, and a tier
with any defect is recreated. Keys sort as unsigned bytes. The directories are those of Kafka Streams
(``formats/kafka``): ``rocksdb/<store>`` for one database, ``<store>/<store>.<start>`` for a segment.
"""

from __future__ import annotations

import contextlib
import shutil
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
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

from statestore.catalog.log.store_spec import StoreSpec
from statestore.catalog.stores.live.tier_errors import TierBrokenError, broken
from statestore.catalog.stores.live.tier_position import DatabaseMark, Marker, check_directory, check_sequence
from statestore.formats.errors import StateStoreError
from statestore.formats.kafka_rows.time_segments import encode_time_segment_name
from statestore.formats.kafka_rows.window_keys import store_key_of, time_first_key
from statestore.formats.places.rocksdb_forks import keep_for_ever, leave_in_forks, writing_rocksdb

ONE = 0  # the segment number of a tier with one database
WRITE_BUFFER_BYTES = 64 << 20
CACHE_BYTES = 50 << 20

SegmentName = Callable[[int], str]
SCAN_ROWS = 256

Row = tuple[bytes, bytes]


class HotTier:
    """Databases under ``root``. ``time_segment_name`` returns the directory of a segment; None for one database.

    Every refusal of RocksDB or the disk is a TierBrokenError, after which the tier is closed and recreated.
    """

    def __init__(self, root: Path, store: str, time_segment_name: SegmentName | None = None) -> None:
        self.root = root
        self._store = store
        self._time_segment_name = time_segment_name
        self._closed = False
        self._databases: dict[int, Any] = {}
        self._markers: dict[int, Marker] = {}
        self._scans: dict[TierScan, Any] = {}  # scans that have not ended, with their databases
        self._options = _options()
        self._unlogged = WriteOptions()
        setattr(self._unlogged, "disable_wal", True)  # noqa: B010 - its stub takes the attribute for a method
        leave_in_forks(self.leave)

    # Databases

    def open(self, marks: Iterable[DatabaseMark]) -> None:
        """Open the existing databases.

        Raises TierBrokenError if a database is damaged, missing, or lost content of its mark.
        """
        with _native():
            for mark in marks:
                path = self._path(mark.segment)
                if not path.is_dir():
                    raise TierBrokenError(f"{path} is missing")
                check_directory(path, mark)
                check_sequence(path, self._open(mark.segment), mark)

    def time_segments(self) -> list[int]:
        """Return the existing segments, ascending."""
        return sorted(self._databases)

    def database(self, time_segment: int) -> Any:
        """Return the database of a segment, and create it if it does not exist."""
        database = self._databases.get(time_segment)
        return self._made(time_segment) if database is None else database

    def drop_before(self, time_segment: int) -> bool:
        """Remove all segments before ``time_segment``; return whether there were any. Scans of them end."""
        dead = [number for number in self._databases if number < time_segment]
        for old in dead:
            self._markers.pop(old, None)
            database = self._databases.pop(old)
            self._end_scans(database)
            _close(database)
            shutil.rmtree(self._path(old), ignore_errors=True)
        return bool(dead)

    def flush(self) -> None:
        """Make all writes survive the end of this process."""
        with _native():
            for database in list(self._databases.values()):
                database.flush()

    def marks(self) -> tuple[DatabaseMark, ...]:
        """Return marks of the current content, by which a later process can check it; to be called after `flush`."""
        with _native():
            databases = sorted(self._databases.items())
            return tuple(self._marker(time_segment).mark(database) for time_segment, database in databases)

    def close(self) -> None:
        """Close all databases; writes that were not flushed may be lost, and iterators end with a TierBrokenError."""
        self._closed = True
        self._end_scans()
        while self._databases:
            _close(self._databases.popitem()[1])
        self._markers.clear()

    def leave(self) -> None:
        """Forget the databases in a forked child; they belong to the parent."""
        keep_for_ever(*self._databases.values(), self._options, self._unlogged)
        for scan in list(self._scans):
            scan.leave()
        self._closed = True
        self._databases.clear()

    def remove_files(self) -> None:
        """Remove all files of this and of earlier tiers, so that the tier is empty."""
        with _native():
            _remove(self.root)

    # Rows

    def put(self, time_segment: int, key: bytes, value: bytes | None) -> None:
        """Write a row, or (None) remove it."""
        database = self._databases.get(time_segment)
        try:
            if value is not None:
                (self._made(time_segment) if database is None else database)[key] = value
            elif database is not None:
                del database[key]
            elif self._closed:
                raise TierBrokenError("the tier is closed")
        except StateStoreError:
            raise
        except Exception as error:
            raise broken(error) from error

    def delete_range(self, time_segment: int, low: bytes, high: bytes) -> None:
        """Remove the rows with ``low`` <= key < ``high``."""
        database = self._existing(time_segment)
        if database is not None:
            with _native():
                database.delete_range(low, high)

    def get(self, time_segment: int, key: bytes) -> bytes | None:
        database = self._existing(time_segment)
        if database is None:
            return None
        try:
            value: bytes | None = database.get(key)
        except Exception as error:
            if self._is_dropped(time_segment, database):
                return None
            raise broken(error) from error
        return value

    def ingest(self, time_segment: int, rows: dict[bytes, bytes | None]) -> None:
        """Write many rows at once, replacing existing ones; None removes."""
        if not rows:
            return
        with _native():
            database = self.database(time_segment)
            file = self.root / "ingested.sst"
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
        self, time_segment: int, low: bytes | None = None, high: bytes | None = None, backwards: bool = False
    ) -> Iterator[Row]:
        """Yield the rows of `scan_lists` one by one."""
        for rows in self.scan_lists(time_segment, low, high, backwards):
            yield from rows

    def scan_lists(
        self, time_segment: int, low: bytes | None = None, high: bytes | None = None, backwards: bool = False
    ) -> Iterator[list[Row]]:
        """Yield rows with ``low`` <= key < ``high`` (None: without end) of one segment, as of the scan's first row, in
        lists of some hundreds.

        Raises TierBrokenError if damage ends the scan early, or if the tier is closed during the scan. A scan of a
        segment that is dropped meanwhile ends.
        """
        database = self._existing(time_segment)
        if database is None:
            return
        scan = TierScan(low, high, backwards)
        self._scans[scan] = database  # from now on, closing the database ends the scan first
        try:
            if self._closed or self._databases.get(time_segment) is not database:
                raise TierBrokenError("the tier was closed during an iteration")
            scan.begin(database)
            while rows := scan.some():
                yield rows
        except Exception as error:
            if not self._is_dropped(time_segment, database):
                raise broken(error) from error
        finally:
            scan.close()
            self._scans.pop(scan, None)

    def row_key(self, stored: bytes) -> bytes:
        """Return the row key of a key as stored, which is what scans yield; most tiers store row keys as they are."""
        return stored

    def estimated_rows(self) -> int:
        """Return RocksDB's estimate of the number of rows."""
        rows = 0
        for time_segment, database in list(self._databases.items()):
            try:
                rows += database.property_int_value("rocksdb.estimate-num-keys") or 0
            except Exception as error:
                if not self._is_dropped(time_segment, database):
                    raise broken(error) from error
        return rows

    # Internals

    def _existing(self, time_segment: int) -> Any:
        """Return the database of a segment; None if there is none."""
        database = self._databases.get(time_segment)
        if database is None and self._closed:
            raise TierBrokenError("the tier is closed")
        return database

    def _is_dropped(self, time_segment: int, database: Any) -> bool:
        """Return whether another thread has dropped the segment during a call, as the stream time moved; that is no
        damage.
        """
        return not self._closed and self._databases.get(time_segment) is not database

    def _end_scans(self, database: Any = None) -> None:
        """End the native iterators of the scans of a database (None: of all) before it is closed."""
        for scan, scanned in list(self._scans.items()):
            if database is None or scanned is database:
                scan.close()

    def _made(self, time_segment: int) -> Any:
        """Create the database of a segment, empty; files that an earlier tier left are removed."""
        with _native():
            _remove(self._path(time_segment))
            return self._open(time_segment)

    def _open(self, time_segment: int) -> Any:
        if self._closed:
            raise TierBrokenError("the tier is closed")
        path = self._path(time_segment)
        writing_rocksdb()
        path.parent.mkdir(parents=True, exist_ok=True)
        database = Rdict(str(path), self._options, access_type=AccessType.read_write())
        database.set_write_options(self._unlogged)
        self._databases[time_segment] = database
        return database

    def _marker(self, time_segment: int) -> Marker:
        if time_segment not in self._markers:
            self._markers[time_segment] = Marker(time_segment, self._path(time_segment))
        return self._markers[time_segment]

    def _path(self, time_segment: int) -> Path:
        if self._time_segment_name is None:
            return self.root / "rocksdb" / self._store
        return self.root / self._time_segment_name(time_segment)


class TimeOrderedTier(HotTier):
    """A tier of windows by start, then key, as Kafka's emit-final stores have them on disk.

    It takes row keys, and yields keys as stored. There is no index by key: the windows of one key are found among those
    of all keys in the time that is asked for.
    """

    def put(self, time_segment: int, key: bytes, value: bytes | None) -> None:
        super().put(time_segment, time_first_key(key), value)

    def get(self, time_segment: int, key: bytes) -> bytes | None:
        return super().get(time_segment, time_first_key(key))

    def ingest(self, time_segment: int, rows: dict[bytes, bytes | None]) -> None:
        super().ingest(time_segment, {time_first_key(key): value for key, value in rows.items()})

    def row_key(self, stored: bytes) -> bytes:
        return store_key_of(stored)


@contextlib.contextmanager
def _native() -> Iterator[None]:
    """Raise refusals of RocksDB or the system as TierBrokenError."""
    try:
        yield
    except StateStoreError:
        raise
    except Exception as error:
        raise broken(error) from error


def _remove(path: Path) -> None:
    """Remove a directory, or another file of its name."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()


def _close(database: Any) -> None:
    """Close a database; RocksDB flushes as it closes, and a failure of that is ignored."""
    with contextlib.suppress(Exception):
        database.close()


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


def time_segment_name_of(spec: StoreSpec) -> SegmentName | None:
    """Return a function from a segment's number to its directory in the hot tier; None for a kind without segments.

    The directory is ``<store>/<store>.<start in ms>``; for the store of 2016 ``rocksdb/<store>-<yyyyMMddHHmm>`` in UTC.
    """
    if spec.windowing is None:
        return None
    name, interval = spec.name, spec.windowing.segment_interval
    if spec.kind == "join_window":
        return lambda time_segment: f"rocksdb/{encode_time_segment_name(name, time_segment, interval, '-')}"
    return lambda time_segment: f"{name}/{encode_time_segment_name(name, time_segment, interval)}"


class TierScan:
    """Rows with ``low`` <= key < ``high``, as of `begin`. The scan detects whether it has seen all rows.

    It is one native iterator from its first row to its status at the end. rocksdict's row iterators end at an
    unreadable block as they end behind the last row, and its snapshots show later writes: a second look at the end
    cannot distinguish damage from a row that another thread has put meanwhile.

    While its native iterator lives, RocksDB keeps its lock on the directory. Use and removal of the iterator take
    turns: when `close` returns, no thread has the iterator and none gets one.
    """

    def __init__(self, low: bytes | None, high: bytes | None, backwards: bool) -> None:
        self._low, self._backwards = low, backwards
        self._options = ReadOptions()  # kept alive: an iterator reads its bound from their memory
        if high is not None:
            self._options.set_iterate_upper_bound(high)
        self._turn = threading.RLock()  # a signal handler may close the store in the middle of a turn
        self._native: Any = None
        self._closed = False

    def begin(self, database: Any) -> None:
        """Create the view of the database from which all rows come."""
        with self._turn:
            if self._closed:
                raise TierBrokenError("the tier was closed during an iteration")
            self._native = database.iter(self._options)
            # rocksdict takes a lower bound for an upper one, so ``low`` is where to begin or, backwards, to end.
            if self._backwards:
                self._native.seek_to_last()
            elif self._low is None:
                self._native.seek_to_first()
            else:
                self._native.seek(self._low)

    def some(self) -> list[Row]:
        """Return the next rows, none at the end. Raises an exception where damage ends the scan."""
        with self._turn:
            native = self._native
            if native is None:
                raise TierBrokenError("the tier was closed during an iteration")
            key_at, value_at, step = native.key, native.value, native.prev if self._backwards else native.next
            end = self._low if self._backwards else None
            found: list[Row] = []
            while len(found) < SCAN_ROWS and (key := key_at()) is not None and (end is None or key >= end):
                found.append((key, value_at()))
                step()
            if not found:
                native.status()
            return found

    def close(self) -> None:
        """Release the iterator after the turn of any other thread."""
        with self._turn:
            self._closed = True
            self._native = None

    def leave(self) -> None:
        """Forget the native iterator in a forked child, without freeing it."""
        self._turn = threading.RLock()  # a thread that the child does not have may have held it
        keep_for_ever(self._native, self._options)
        self.close()

"""The local database of a keyed backend: RocksDB, with one column family for each state and no write-ahead log."""

from __future__ import annotations

import contextlib
import shutil
import sys
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    DBCompactionStyle,
    Options,
    Rdict,
    ReadOptions,
    UniversalCompactOptions,
    WriteBatch,
    WriteOptions,
)

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, StateStoreError, StorageError
from statestore.formats.places.disk_errors import storage_error
from statestore.formats.places.rocksdb_forks import forked_error, keep_for_ever, leave_in_forks, writing_rocksdb
from statestore.formats.rocksdb.key_ranges import successor
from statestore.formats.rocksdb.rocksdb_errors import system_error

RANGE_ROWS = 1000
"""Rows that are deleted as one range; fewer rows are deleted one by one.

With ranges alone, clearing 4,000 keys of two rows each would take 18 times as long, and more keys longer still; one by
one, clearing a key of 20,000 rows would take 15 to 20 times as long, and so would a read after it.
"""

_COPIED_BYTES = 4 << 20

Row = tuple[bytes, bytes]
CACHE_BYTES = 50 << 20
WRITE_BUFFER_BYTES = 16 << 20
SORTED_RUNS = 6
"""A read may have to search this many runs of table files before some of them are merged."""


class LocalDatabase:
    """The rows of all states.

    Every call after `close` raises InvalidInputError BACKEND_CLOSED, and in a fork of the process that opened it
    UnsupportedError FORKED. A refusal of RocksDB raises StorageError DISK_FAILED, or CorruptError LOCAL_STATE if the
    files are damaged. In that case rows that are in no snapshot are lost, and reads never return a part of them.

    RocksDB refuses all writes after one of its own writes to the disk has failed, even when the disk works again.
    Without a write-ahead log the database cannot be reopened without loss, because rows are in its memory only. Reads
    continue, and none of them returns a refused write. Therefore, when a second call fails, all rows are copied into a
    new database, which takes the place of the old one. `lineage` changes then, because the files differ under the same
    names.
    """

    def __init__(self, directory: Path, states: Iterable[str] = ()) -> None:
        """Open the database in the directory and create missing ``states``.

        They are created all at once, because creating them one by one writes all options for each.
        """
        self.directory = directory
        self.lineage = uuid.uuid4().hex
        self._suspect = False  # a write has failed, and none has succeeded since
        self._left = False
        self._cursors: weakref.WeakSet[_Cursor] = weakref.WeakSet()
        writing_rocksdb()
        self._unlogged = WriteOptions()
        setattr(self._unlogged, "disable_wal", True)  # noqa: B010 - its stub takes the attribute for a method
        with self._native():
            families = Rdict.list_cf(str(directory)) if (directory / "CURRENT").exists() else []
            self._root: Any
            self._tables: dict[str, Any]
            self._root, self._tables = self._open(directory, (*families, *states))
        leave_in_forks(self.leave)

    def states(self) -> list[str]:
        return sorted(self._tables)

    def create(self, state: str) -> None:
        """Create a column family for a state unless it has one."""
        self.check()
        if state not in self._tables:
            self._changed(lambda: self._create(state))

    def _create(self, state: str) -> None:
        self._root.create_column_family(state, _database_options())
        self._tables[state] = self._opened(self._root, state)

    def get(self, state: str, key: bytes) -> bytes | None:
        table = self._table(state)
        try:
            value: bytes | None = table.get(key)
        except Exception as error:
            raise self._failure(error) from error
        return value

    def get_many(self, state: str, keys: list[bytes]) -> list[bytes | None]:
        """Return the value of each key."""
        table = self._table(state)
        with self._native():
            values: list[bytes | None] = table.get(keys)
        return values

    def keys_between(self, state: str, first: bytes, stop: bytes) -> list[bytes]:
        """Return the keys of the rows from ``first`` to before ``stop``."""
        table = self._table(state)
        with self._native():
            cursor = self._cursor(table, first, stop)  # kept alive as long as its iterator
            rows, keys = cursor.rows, []
            while rows.valid():
                keys.append(rows.key())
                rows.next()
            rows.status()
        return keys

    def put(self, state: str, key: bytes, value: bytes) -> None:
        table = self._table(state)
        try:
            table[key] = value
        except Exception as error:
            self._again(error, lambda: self._tables[state].put(key, value))

    def delete(self, state: str, key: bytes) -> None:
        table = self._table(state)
        try:
            del table[key]
        except Exception as error:
            self._again(error, lambda: self._tables[state].delete(key))

    def delete_prefix(self, state: str, prefix: bytes) -> None:
        """Delete all rows whose keys begin with ``prefix``."""
        self.write(state, [], prefixes=[prefix])

    def write(
        self, state: str, rows: Iterable[Row], *, keys: Iterable[bytes] = (), prefixes: Iterable[bytes] = ()
    ) -> None:
        """Write rows, all or none, after deleting the rows with these ``keys`` and all rows that begin with
        ``prefixes``.
        """
        self.check()
        rows, keys, prefixes = list(rows), list(keys), list(prefixes)
        self._changed(lambda: self._write(state, rows, keys, prefixes))

    def _write(self, state: str, rows: Iterable[Row], keys: Iterable[bytes], prefixes: Iterable[bytes]) -> None:
        table, family = self._tables[state], self._root.get_column_family_handle(state)
        batch = WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key, family)
        for prefix in prefixes:
            self._delete_prefix(state, prefix, batch, family)
        for key, value in rows:
            batch.put(key, value, family)
        table.write(batch, self._unlogged)

    def _delete_prefix(self, state: str, prefix: bytes, batch: Any, family: Any) -> None:
        """Delete a few rows one by one, and many as a range.

        A read behind deleted ranges passes all of them that are still in memory. A range for each cleared key would
        therefore take quadratic time.
        """
        cursor = self._sought(state, prefix)  # kept alive as long as its iterator
        rows = cursor.rows
        end = successor(prefix)  # None: the prefix has only ff bytes, so no key is behind these rows
        most = RANGE_ROWS if end is not None else sys.maxsize
        for _ in range(most):
            if not rows.valid():
                rows.status()
                return
            batch.delete(rows.key(), family)
            rows.next()
        batch.delete_range(prefix, end, family)

    def rows(self, state: str, prefix: bytes = b"") -> Iterator[Row]:
        """Return the rows whose keys begin with ``prefix``, in the order of their bytes, as they are at this call."""
        return self._walked(self._sought(state, prefix))

    def keys(self, state: str, prefix: bytes) -> Iterator[bytes]:
        """Return the keys of `rows` without reading the values."""
        cursor = self._sought(state, prefix)
        while (row := self._at(cursor, values=False)) is not None:
            yield row[0]

    def _sought(self, state: str, prefix: bytes) -> _Cursor:
        """Return a cursor at the first of these rows."""
        table = self._table(state)
        with self._native():
            return self._cursor(table, prefix, successor(prefix) if prefix else None)

    def _cursor(self, table: Any, first: bytes, stop: bytes | None) -> _Cursor:
        cursor = _Cursor(table, first, stop)
        self._cursors.add(cursor)
        return cursor

    def _walked(self, cursor: _Cursor) -> Iterator[Row]:
        while (row := self._at(cursor)) is not None:
            yield row

    def _at(self, cursor: _Cursor, values: bool = True) -> Row | None:
        """Return the next row of the cursor; None behind the last row. Damage raises."""
        self.check()
        rows = cursor.rows
        try:
            if cursor.begun:
                rows.next()
            cursor.begun = True
            if rows.valid():
                return rows.key(), rows.value() if values else b""
            rows.status()
        except Exception as error:
            raise self._failure(error) from error
        return None

    def load(self, state: str, rows: pa.RecordBatch) -> None:
        """Write many rows (key, value: binary) at once."""
        self.check()
        self._changed(lambda: self._load(state, rows))

    def _load(self, state: str, rows: pa.RecordBatch) -> None:
        table, family = self._tables[state], self._root.get_column_family_handle(state)
        batch = WriteBatch(raw_mode=True)
        for key, value in zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True):
            batch.put(key, value, family)
        table.write(batch, self._unlogged)

    def link_files(self, directory: Path) -> None:
        """Write all rows as they are now into a new directory, as hard links to files that no later write touches."""
        self.check()
        try:
            self._changed(lambda: self._link_files(directory))
        except BaseException:
            self._remove_linked(directory)
            raise

    def _link_files(self, directory: Path) -> None:
        self._remove_linked(directory)  # of the previous call, which failed
        Checkpoint(self._root).create_checkpoint(str(directory))

    def _remove_linked(self, directory: Path) -> None:
        for path in (
            directory,
            directory.with_name(f"{directory.name}.tmp"),
        ):  # RocksDB renames the .tmp folder at the end
            shutil.rmtree(path, ignore_errors=True)

    # After failures

    def _changed(self, change: Callable[[], None]) -> None:
        """Make a change, in a new database if necessary."""
        try:
            change()
        except Exception as error:
            self._again(error, change)
        else:
            self._suspect = False

    def _again(self, error: Exception, change: Callable[[], None]) -> None:
        """Handle the ``error`` of a change: raise it as an error of this project, or renew the database and repeat the
        change.

        The database is renewed if the previous change has failed, too.
        """
        failure = self._failure(error)
        if failure is error:
            raise error
        if not self._suspect:
            self._suspect = isinstance(failure, StorageError)
            raise failure from error
        with self._native():
            self._renew()
            change()
        self._suspect = False

    def _renew(self) -> None:
        """Copy all rows into a new database, which takes the place of this one."""
        directory = self.directory.with_name(f"database-{uuid.uuid4().hex}")
        try:
            root, tables = self._open(directory, self._tables)
            for state, table in tables.items():
                self._copy(state, table, root.get_column_family_handle(state))
        except BaseException:
            tables, root = {}, None  # closes the opened database
            shutil.rmtree(directory, ignore_errors=True)
            raise
        old, self.directory = self.directory, directory
        # The old database is not closed but dropped: cursors may continue in it, on files that the system keeps for
        # them.
        self._root, self._tables, self.lineage = root, tables, uuid.uuid4().hex
        shutil.rmtree(old, ignore_errors=True)

    def _copy(self, state: str, table: Any, family: Any) -> None:
        rows, batch, size = self.rows(state), WriteBatch(raw_mode=True), 0
        for key, value in rows:
            batch.put(key, value, family)
            size += len(key) + len(value)
            if size >= _COPIED_BYTES:
                table.write(batch, self._unlogged)
                batch, size = WriteBatch(raw_mode=True), 0
        table.write(batch, self._unlogged)

    @property
    def closed(self) -> bool:
        return self._root is None

    def close(self) -> None:
        """Close the families first and the database last. Later calls have no effect."""
        if self._root is None:
            return
        tables = list(self._tables.values())
        root, self._root = self._root, None
        self._tables.clear()
        for native in (*tables, root):
            with contextlib.suppress(Exception):  # closing flushes rows in vain, as the files are removed
                native.close()

    def leave(self) -> None:
        """Mark the database of a forked child as closed without a call of RocksDB; it belongs to the parent."""
        if self._root is not None:
            keep_for_ever(self._root, *self._tables.values(), self._unlogged)
            for cursor in list(self._cursors):
                keep_for_ever(cursor.rows, cursor.reading, cursor.table)
            self._left = True
            self._tables.clear()
            self._root = None

    def _open(self, directory: Path, families: Iterable[str]) -> tuple[Any, dict[str, Any]]:
        """Return a database and the tables of its families; missing families are created."""
        own = {name: _database_options() for name in families if name != "default"}
        options = _database_options()
        options.create_missing_column_families(True)
        root = Rdict(str(directory), options, column_families=own or None, access_type=AccessType.read_write())
        return root, {name: self._opened(root, name) for name in own}

    def _opened(self, root: Any, state: str) -> Any:
        table = root.get_column_family(state)
        table.set_write_options(self._unlogged)
        return table

    def _table(self, state: str) -> Any:
        self.check()
        return self._tables[state]

    @contextlib.contextmanager
    def _native(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> Exception:
        """Return an error of RocksDB or of the system as an error of this project."""
        if isinstance(error, StateStoreError) or (type(error) is not Exception and not isinstance(error, OSError)):
            return error
        refusal = system_error(error)
        if refusal is not None:
            return storage_error(refusal, "use the local database", self.directory)
        return CorruptError(
            ErrorCode.LOCAL_STATE,
            f"{self.directory}: {error}; the backend's local files are damaged: dispose it and open "
            "another one, which has the rows of the snapshot",
        )

    def check(self) -> None:
        """Raise InvalidInputError BACKEND_CLOSED after `close`, UnsupportedError FORKED in a fork."""
        if self._root is None:
            if self._left:
                raise forked_error(f"the keyed backend in {self.directory} cannot be used")
            raise InvalidInputError(
                ErrorCode.BACKEND_CLOSED, f"the keyed backend in {self.directory} is closed; open another one"
            )


def _database_options() -> Any:
    """Return the options of the database and of each column family."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_keep_log_file_num(1)
    options.set_compaction_style(DBCompactionStyle.universal())  # rewrites little, so snapshots share most files
    options.set_universal_compaction_options(UniversalCompactOptions())
    options.set_level_zero_file_num_compaction_trigger(SORTED_RUNS)
    table = BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(Cache(CACHE_BYTES))
    options.set_block_based_table_factory(table)
    return options


class _Cursor:
    """A native iterator from a key on, with its options, because it reads its bound from their memory."""

    def __init__(self, table: Any, first: bytes, stop: bytes | None) -> None:
        self.begun = False
        self.table = table  # keeps its database, which may be replaced
        self.reading = ReadOptions()
        if stop is not None:
            self.reading.set_iterate_upper_bound(stop)
        self.rows = table.iter(self.reading)
        self.rows.seek(first) if first else self.rows.seek_to_first()

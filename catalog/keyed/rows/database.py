"""The local database of a keyed backend: RocksDB, one column family a state, no write-ahead log."""

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

from statestore.formats.errors import CorruptError, InvalidInputError, StateStoreError, StorageError
from statestore.formats.places.disk_errors import storage_error
from statestore.formats.places.forks import forked_error, keep_for_ever, leave_in_forks, writing_rocksdb
from statestore.formats.rocksdb.key_ranges import successor
from statestore.formats.rocksdb.native_errors import system_error

CACHE_BYTES = 50 << 20
WRITE_BUFFER_BYTES = 16 << 20
SORTED_RUNS = 6
"""How many runs of table files a read may have to look into before some are merged."""

RANGE_ROWS = 1000
"""So many rows are deleted as a range, fewer one by one."""

_COPIED_BYTES = 4 << 20

Row = tuple[bytes, bytes]


class LocalDatabase:
    """The rows of all states.

    Every call after `close` raises InvalidInputError BACKEND_CLOSED, and in a fork of the process that opened it
    UnsupportedError FORKED. What RocksDB refuses is StorageError DISK_FAILED, and CorruptError LOCAL_STATE where the
    files are damaged: then what is not in a snapshot is lost, and never answered in part.

    RocksDB refuses all writes after one of its own to the disk has failed, also when the disk works again, and without
    a write-ahead log it cannot be opened anew without loss: rows are in its memory only. Reads go on, and a write that
    was refused is in none of them. So when a call fails again, all rows are copied into a new database, which takes
    the place of the old one; `lineage` changes then, as its files are others under the same names.
    """

    def __init__(self, directory: Path, states: Iterable[str] = ()) -> None:
        """With what is in the directory; ``states`` are created where they are missing, all at once: one by one each
        costs a write of all options."""
        self.directory = directory
        self.lineage = uuid.uuid4().hex
        self._suspect = False  # a write has failed, and none has gone well since
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
        """A column family for a state, unless it has one."""
        self.check()
        if state not in self._tables:
            self._changed(lambda: self._create(state))

    def _create(self, state: str) -> None:
        self._root.create_column_family(state, _options())
        self._tables[state] = self._opened(self._root, state)

    def get(self, state: str, key: bytes) -> bytes | None:
        table = self._table(state)
        try:
            found: bytes | None = table.get(key)
        except Exception as error:
            raise self._failure(error) from error
        return found

    def get_many(self, state: str, keys: list[bytes]) -> list[bytes | None]:
        """The value of each key."""
        table = self._table(state)
        with self._native():
            found: list[bytes | None] = table.get(keys)
        return found

    def keys_between(self, state: str, first: bytes, stop: bytes) -> list[bytes]:
        """The keys of the rows from ``first`` to before ``stop``."""
        table = self._table(state)
        with self._native():
            cursor = self._cursor(table, first, stop)  # held as long as its iterator
            rows, found = cursor.rows, []
            while rows.valid():
                found.append(rows.key())
                rows.next()
            rows.status()
        return found

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
        """All rows whose keys begin so."""
        self.write(state, [], prefixes=[prefix])

    def write(
        self, state: str, rows: Iterable[Row], *, keys: Iterable[bytes] = (), prefixes: Iterable[bytes] = ()
    ) -> None:
        """Rows, all or none. Before them rows go that have these ``keys``, and all that begin with ``prefixes``."""
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
        """Row by row where they are few: each read after a deleted range goes through all such ranges that are still
        in memory, so that one for each key that is cleared would take quadratic time."""
        cursor = self._sought(state, prefix)  # held as long as its iterator
        found = cursor.rows
        end = successor(prefix)  # None: nothing but ff, no key is behind these rows
        most = RANGE_ROWS if end is not None else sys.maxsize
        for _ in range(most):
            if not found.valid():
                found.status()
                return
            batch.delete(found.key(), family)
            found.next()
        batch.delete_range(prefix, end, family)

    def rows(self, state: str, prefix: bytes = b"") -> Iterator[Row]:
        """The rows whose keys begin so, in the order of their bytes, as they are at this call."""
        return self._walked(self._sought(state, prefix))

    def keys(self, state: str, prefix: bytes) -> Iterator[bytes]:
        """Those of `rows`; values are not read."""
        cursor = self._sought(state, prefix)
        while (found := self._at(cursor, values=False)) is not None:
            yield found[0]

    def _sought(self, state: str, prefix: bytes) -> _Cursor:
        """A cursor at the first of these rows."""
        table = self._table(state)
        with self._native():
            return self._cursor(table, prefix, successor(prefix) if prefix else None)

    def _cursor(self, table: Any, first: bytes, stop: bytes | None) -> _Cursor:
        cursor = _Cursor(table, first, stop)
        self._cursors.add(cursor)
        return cursor

    def _walked(self, cursor: _Cursor) -> Iterator[Row]:
        while (found := self._at(cursor)) is not None:
            yield found

    def _at(self, cursor: _Cursor, values: bool = True) -> Row | None:
        """The row that the cursor is at, which goes on to the next; None behind the last. Damage raises."""
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
        """Many rows (key, value: binary) at once."""
        self.check()
        self._changed(lambda: self._load(state, rows))

    def _load(self, state: str, rows: pa.RecordBatch) -> None:
        table, family = self._tables[state], self._root.get_column_family_handle(state)
        batch = WriteBatch(raw_mode=True)
        for key, value in zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True):
            batch.put(key, value, family)
        table.write(batch, self._unlogged)

    def checkpoint(self, directory: Path) -> None:
        """All rows as they are now, as files in a new directory: hard links that no later write touches."""
        self.check()
        try:
            self._changed(lambda: self._checkpoint(directory))
        except BaseException:
            self._remove_checkpoint(directory)
            raise

    def _checkpoint(self, directory: Path) -> None:
        self._remove_checkpoint(directory)  # of the call before, which failed
        Checkpoint(self._root).create_checkpoint(str(directory))

    def _remove_checkpoint(self, directory: Path) -> None:
        for path in (directory, directory.with_name(f"{directory.name}.tmp")):  # RocksDB renames it in the end
            shutil.rmtree(path, ignore_errors=True)

    # After failures

    def _changed(self, change: Callable[[], None]) -> None:
        """Make a change, if need be in a new database."""
        try:
            change()
        except Exception as error:
            self._again(error, change)
        else:
            self._suspect = False

    def _again(self, error: Exception, change: Callable[[], None]) -> None:
        """After ``error`` of a change: raise it as ours, or if the call before has failed, too, renew and repeat it."""
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
            tables, root = {}, None  # closes what was opened
            shutil.rmtree(directory, ignore_errors=True)
            raise
        old, self.directory = self.directory, directory
        # The old one is not closed but forgotten: cursors may go on in it, over files that the system keeps for them.
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
        """Families first, the database last; once is enough."""
        if self._root is None:
            return
        tables = list(self._tables.values())
        root, self._root = self._root, None
        self._tables.clear()
        for native in (*tables, root):
            with contextlib.suppress(Exception):  # it flushes as it closes, for nobody: the files are removed
                native.close()

    def leave(self) -> None:
        """In a forked child: closed, without a call of RocksDB; the database is the parent's."""
        if self._root is not None:
            keep_for_ever(self._root, *self._tables.values(), self._unlogged)
            for cursor in list(self._cursors):
                keep_for_ever(cursor.rows, cursor.reading, cursor.table)
            self._left = True
            self._tables.clear()
            self._root = None

    def _open(self, directory: Path, families: Iterable[str]) -> tuple[Any, dict[str, Any]]:
        """A database and the tables of its families, which are created where they are missing."""
        own = {name: _options() for name in families if name != "default"}
        options = _options()
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
        """An error of RocksDB or of the system as ours."""
        if isinstance(error, StateStoreError) or (type(error) is not Exception and not isinstance(error, OSError)):
            return error
        refusal = system_error(error)
        if refusal is not None:
            return storage_error(refusal, "use the local database", self.directory)
        return CorruptError(
            "LOCAL_STATE",
            f"{self.directory}: {error}; the backend's local files are damaged: dispose it and open another one, which "
            "has what is in the snapshot",
        )

    def check(self) -> None:
        """Raises InvalidInputError BACKEND_CLOSED after `close`, UnsupportedError FORKED in a fork."""
        if self._root is None:
            if self._left:
                raise forked_error(f"the keyed backend in {self.directory} cannot be used")
            raise InvalidInputError(
                "BACKEND_CLOSED", f"the keyed backend in {self.directory} is closed; open another one"
            )


class _Cursor:
    """A native iterator from a key on, and its options, out of whose memory it reads its bound."""

    def __init__(self, table: Any, first: bytes, stop: bytes | None) -> None:
        self.begun = False
        self.table = table  # keeps its database, which may be replaced
        self.reading = ReadOptions()
        if stop is not None:
            self.reading.set_iterate_upper_bound(stop)
        self.rows = table.iter(self.reading)
        self.rows.seek(first) if first else self.rows.seek_to_first()


def _options() -> Any:
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

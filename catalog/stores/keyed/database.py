"""The local database of a keyed backend: RocksDB, one column family a state, no write-ahead log."""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from collections.abc import Iterable, Iterator
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

from statestore.formats.errors import InvalidInputError
from statestore.formats.rocksdb.key_ranges import successor

CACHE_BYTES = 50 << 20
WRITE_BUFFER_BYTES = 16 << 20
SORTED_RUNS = 6
"""How many runs of table files a read may have to look into before some are merged."""

RANGE_ROWS = 1000
"""So many rows are deleted as a range, fewer one by one."""

Row = tuple[bytes, bytes]


class LocalDatabase:
    """The rows of all states. Every call after `close` raises InvalidInputError BACKEND_CLOSED."""

    def __init__(self, directory: Path, states: Iterable[str] = ()) -> None:
        """With what is in the directory; ``states`` are created where they are missing, all at once: one by one each
        costs a write of all options."""
        self.directory = directory
        families = Rdict.list_cf(str(directory)) if (directory / "CURRENT").exists() else []
        own = {name: _options() for name in (*families, *states) if name != "default"}
        options = _options()
        options.create_missing_column_families(True)
        self._root: Any = Rdict(
            str(directory), options, column_families=own or None, access_type=AccessType.read_write()
        )
        self._unlogged = WriteOptions()
        setattr(self._unlogged, "disable_wal", True)  # noqa: B010 - its stub takes the attribute for a method
        self._tables: dict[str, Any] = {name: self._opened(name) for name in own}
        _OPEN.add(self)

    def states(self) -> list[str]:
        return sorted(self._tables)

    def create(self, state: str) -> None:
        """A column family for a state, unless it has one."""
        self.check()
        if state not in self._tables:
            self._root.create_column_family(state, _options())
            self._tables[state] = self._opened(state)

    def get(self, state: str, key: bytes) -> bytes | None:
        found: bytes | None = self._table(state).get(key)
        return found

    def get_many(self, state: str, keys: list[bytes]) -> list[bytes | None]:
        """The value of each key."""
        found: list[bytes | None] = self._table(state).get(keys)
        return found

    def keys_between(self, state: str, first: bytes, stop: bytes) -> list[bytes]:
        """The keys of the rows from ``first`` to before ``stop``."""
        reading = ReadOptions()
        reading.set_iterate_upper_bound(stop)
        rows = self._table(state).iter(reading)
        rows.seek(first)
        found = []
        while rows.valid():
            found.append(rows.key())
            rows.next()
        rows.status()
        return found

    def put(self, state: str, key: bytes, value: bytes) -> None:
        self._table(state)[key] = value

    def delete(self, state: str, key: bytes) -> None:
        del self._table(state)[key]

    def delete_prefix(self, state: str, prefix: bytes) -> None:
        """All rows whose keys begin so."""
        self.write(state, [], prefixes=[prefix])

    def write(
        self, state: str, rows: Iterable[Row], *, keys: Iterable[bytes] = (), prefixes: Iterable[bytes] = ()
    ) -> None:
        """Rows, all or none. Before them rows go that have these ``keys``, and all that begin with ``prefixes``."""
        table, family = self._table(state), self._root.get_column_family_handle(state)
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
        found, _reading = self._sought(state, prefix)
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
        return self._walked(*self._sought(state, prefix))

    def keys(self, state: str, prefix: bytes) -> Iterator[bytes]:
        """Those of `rows`; values are not read."""
        found, _reading = self._sought(state, prefix)
        while found.valid():
            yield found.key()
            self.check()
            found.next()
        found.status()

    def _sought(self, state: str, prefix: bytes) -> tuple[Any, ReadOptions]:
        """An iterator at the first of these rows, and its options, which have to live as long."""
        table = self._table(state)
        reading = ReadOptions()
        end = successor(prefix) if prefix else None
        if end is not None:
            reading.set_iterate_upper_bound(end)
        found = table.iter(reading)
        found.seek(prefix) if prefix else found.seek_to_first()
        return found, reading

    def _walked(self, found: Any, reading: ReadOptions) -> Iterator[Row]:
        """``reading`` is only held: the iterator reads its bound out of the options' own memory."""
        self.check()
        while found.valid():
            yield found.key(), found.value()
            self.check()
            found.next()
        found.status()

    def load(self, state: str, rows: pa.RecordBatch) -> None:
        """Many rows (key, value: binary) at once."""
        table, family = self._table(state), self._root.get_column_family_handle(state)
        batch = WriteBatch(raw_mode=True)
        for key, value in zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True):
            batch.put(key, value, family)
        table.write(batch, self._unlogged)

    def checkpoint(self, directory: Path) -> None:
        """All rows as they are now, as files in a new directory: hard links that no later write touches."""
        self.check()
        Checkpoint(self._root).create_checkpoint(str(directory))

    @property
    def closed(self) -> bool:
        return self._root is None

    def close(self) -> None:
        """Families first, the database last; once is enough."""
        if self._root is None:
            return
        for table in self._tables.values():
            table.close()
        self._tables.clear()
        self._root.close()
        self._root = None

    def leave(self) -> None:
        """To the process that this one is a fork of: closed here, without a call of RocksDB, whose threads are not in
        the fork, so that even closing would wait for ever."""
        for native in (self._root, *self._tables.values()):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(native))  # never freed
        self._tables.clear()
        self._root = None

    def _opened(self, state: str) -> Any:
        table = self._root.get_column_family(state)
        table.set_write_options(self._unlogged)
        return table

    def _table(self, state: str) -> Any:
        self.check()
        return self._tables[state]

    def check(self) -> None:
        """Raises InvalidInputError BACKEND_CLOSED after `close`."""
        if self._root is None:
            raise InvalidInputError(
                "BACKEND_CLOSED", f"the keyed backend in {self.directory} is closed; open another one"
            )


_OPEN: weakref.WeakSet[LocalDatabase] = weakref.WeakSet()


def _leave_all() -> None:
    for database in list(_OPEN):
        if not database.closed:
            database.leave()


os.register_at_fork(after_in_child=_leave_all)


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

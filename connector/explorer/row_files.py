"""Files of all rows of a state at a moment, or of a comparison, from which any page is read in any order.

A file lies in a temporary folder of the explorer and is mapped, so a page costs the memory of the page. The order of a
sort is kept as row numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.connector.explorer.limits import SECONDS_BETWEEN, Limits
from statestore.connector.explorer.questions import Sorting
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError, UnsupportedError
from statestore.formats.kernels.arrays import Ints
from statestore.formats.notices import notices_to
from statestore.formats.state_table import Query, StateTable
from statestore.formats.values.comparable_values import comparable

KEPT = 4
MAX_BYTES = 4 << 30
MAX_SORTED = 20_000_000
IS_NULL = " is null"
Key = tuple[object, ...]


@dataclass
class RowFile:
    """All rows of one answer. ``starts`` are the numbers of the first rows of the batches, ``facts`` are about all.

    ``notices`` are those of the read, because a page of the file is as old as its rows.
    """

    path: Path
    starts: Ints
    count: int
    facts: Mapping[str, str] = field(default_factory=dict)
    orders: dict[Sorting, Ints] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)
    _mapped: pa.MemoryMappedFile = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Rows can be read as long as somebody has the object, although the file was removed for newer ones.
        self._mapped = pa.memory_map(str(self.path))

    def rows(self, sorting: Sorting | None, offset: int, limit: int, limits: Limits) -> pa.Table:
        """Return up to ``limit`` rows from ``offset`` on, in the order of the sorting."""
        stop = min(offset + limit, self.count)
        with pa.ipc.open_file(self._mapped) as reader:
            if sorting is None:
                numbers = np.arange(offset, max(offset, stop), dtype=np.int64)
            else:
                numbers = self._order(reader, sorting, limits)[offset:stop]
            return self._taken(reader, numbers)

    def _taken(self, reader: pa.ipc.RecordBatchFileReader, numbers: Ints) -> pa.Table:
        owners = np.searchsorted(self.starts, numbers, "right") - 1
        parts = []
        places = np.empty(len(numbers), np.int64)
        done = 0
        for owner in np.unique(owners).tolist():
            mine = np.flatnonzero(owners == owner)
            batch = reader.get_batch(owner)
            parts.append(batch.take(pa.array(numbers[mine] - self.starts[owner])))
            places[mine] = np.arange(done, done + len(mine))
            done += len(mine)
        return pa.Table.from_batches(parts, reader.schema).take(pa.array(places))

    def _order(self, reader: pa.ipc.RecordBatchFileReader, sorting: Sorting, limits: Limits) -> Ints:
        known = self.orders.get(sorting)
        if known is not None:
            return known
        if self.count > MAX_SORTED:
            raise UnsupportedError(
                ErrorCode.EXPLORER_LIMIT,
                f"{self.count:,} rows to sort, and the explorer sorts {MAX_SORTED:,}; add a filter, or sort them with "
                "statestore sql",
            )
        at = reader.schema.get_field_index(sorting.column)
        kind = reader.schema.field(at).type
        direction = "descending" if sorting.descending else "ascending"
        try:
            parts = []
            for number in range(reader.num_record_batches):
                limits.check()
                parts.append(_sort_columns(reader.get_batch(number).column(at)))
            columns = pa.concat_tables(parts or [_sort_columns(pa.array([], kind))])
            keys = [(name, "ascending" if name.endswith(IS_NULL) else direction) for name in columns.column_names]
            numbers = pc.sort_indices(columns, sort_keys=keys).to_numpy()
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InvalidInputError(
                ErrorCode.INVALID_OPTION,
                f"sort is {sorting.column!r}, whose type {kind} has no order here; sort by another column",
            ) from error
        order: Ints = numbers.astype(np.int64, copy=False)
        if sorting.nulls_first:
            order = np.roll(order, columns.column(0).null_count)
        self.orders = {sorting: order}
        return order


def _sort_columns(column: pa.Array) -> pa.Table:
    """Return the columns by which rows are sorted: the column, or the fields of a struct in their order.

    A field is null where its struct is, so a column before the fields says which structs are null. They come last in
    either direction, as nulls do. Raises pa.ArrowNotImplementedError for lists and maps.
    """
    found: dict[str, pa.Array] = {}

    def add(name: str, each: pa.Array) -> None:
        if pa.types.is_struct(each.type):
            found[f"{name}{IS_NULL}"] = each.is_null()
            for number, part in enumerate(each.flatten()):
                add(f"{name}.{number}", part)
        elif pa.types.is_nested(each.type):
            raise pa.ArrowNotImplementedError(str(each.type))
        else:
            found[name] = _ordered(each)

    add("0", column)
    return pa.table(found)


def _ordered(column: pa.Array) -> pa.Array:
    """Return the column in a type that Arrow can sort, if there is one. The bits of numbers are not in their order."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if pa.types.is_floating(column.type) else comparable(column)


@dataclass
class RowFiles:
    """The newest KEPT files. ``folder`` is removed by whoever made it.

    Each file is written by the first who asks for it, while others who ask for it wait and all else goes on. If the
    writer fails or nobody waits for its answer, one of those who wait writes the file.
    """

    folder: Path
    _kept: dict[Key, RowFile] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _writing: dict[Key, threading.Event] = field(default_factory=dict)
    _number: int = 0

    def of(self, place: int, table: StateTable, query: Query, limits: Limits) -> RowFile:
        """Return the file of an answer, which is written when it is first asked for.

        The number of the place is part of what distinguishes answers, because a copy of a store has its identity.
        """
        key = (place, table.identity, table.name, table.kept_versions(), repr(query))
        return self.kept(key, lambda path: _written(path, table, query, limits), limits)

    def kept(self, key: Key, write: Callable[[Path], RowFile], limits: Limits) -> RowFile:
        """Return the file of a key, which ``write`` writes when it is first asked for."""
        while True:
            with self._lock:
                found = self._kept.pop(key, None)
                if found is not None:
                    self._kept[key] = found
                    limits.heard(found.notices)
                    return found
                written = self._writing.get(key)
                if written is None:
                    self._writing[key] = threading.Event()
                    self._number += 1
                    path = self.folder / f"{self._number}.arrow"
                    break
            while not written.wait(SECONDS_BETWEEN):
                limits.check()
            limits.check()
        try:
            notices: list[str] = []
            with notices_to(notices.append):
                found = write(path)
            found.notices = notices
            limits.heard(notices)
            with self._lock:
                self._kept[key] = found
                for old in list(self._kept)[:-KEPT]:
                    self._kept.pop(old).path.unlink(missing_ok=True)
            return found
        finally:
            with self._lock:
                self._writing.pop(key).set()


def _written(path: Path, table: StateTable, query: Query, limits: Limits) -> RowFile:
    with row_file_writer(path, table.schema(query)) as file:
        for batch in limits.read(table, query):
            file.add(batch)
            _check_size(file.bytes)
    return file.finished()


@dataclass
class RowFileWriter:
    """A file while it is written. ``bytes`` are those of the rows in it."""

    path: Path
    writer: pa.RecordBatchFileWriter
    bytes: int = 0
    sizes: list[int] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        self.writer.write_batch(batch)
        self.sizes.append(batch.num_rows)
        self.bytes += batch.nbytes

    def finished(self, facts: Mapping[str, str] | None = None) -> RowFile:
        """Return the rows, when all are written."""
        starts = np.cumsum(np.array([0, *self.sizes], np.int64))
        return RowFile(self.path, starts[:-1], int(starts[-1]), facts or {})


@contextmanager
def row_file_writer(path: Path, schema: pa.Schema) -> Iterator[RowFileWriter]:
    """Open a file to write rows into; it is removed if that fails."""
    try:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            yield RowFileWriter(path, writer)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _check_size(written: int) -> None:
    if written > MAX_BYTES:
        raise UnsupportedError(
            ErrorCode.EXPLORER_LIMIT,
            f"the rows take more than {MAX_BYTES >> 30} GiB, which is the most that the explorer keeps to page and "
            "sort; add a filter, or read them with statestore export or statestore sql",
        )

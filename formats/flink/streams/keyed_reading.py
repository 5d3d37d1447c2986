"""Rows of a keyed state in some key groups of one subtask, from each form in which Flink stores them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.flink.columns.decoding import Records
from statestore.formats.flink.serializers.flink_types import FlinkType, TimerOf
from statestore.formats.flink.serializers.subclasses import has_declared
from statestore.formats.flink.snapshot.handles import KeyGroupHandle, RocksHandle
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER, Lookup, looked_up_rows, opened_database
from statestore.formats.flink.snapshot.snapshot_files import Part, SnapshotFiles
from statestore.formats.flink.streams.block_bytes import BlockWindow, block_window, damaged
from statestore.formats.flink.streams.heap_records import HeapState, heap_records
from statestore.formats.flink.streams.keyed_columns import (
    KeyGroups,
    framed_rows,
    heap_rows,
    needs_values,
    prefix_width,
    record_kinds,
    stepped_kinds,
    timer_rows,
)
from statestore.formats.flink.streams.raw_timers import block_bounds, group_timers, known_classes
from statestore.formats.flink.streams.savepoint_entries import savepoint_entries
from statestore.formats.flink.streams.state_form import (
    KEY,
    NAMESPACE,
    STORED_BYTES,
    KeyedForm,
    Typed,
    form_of,
    is_opaque,
)
from statestore.formats.flink.streams.stored_states import StoredKeyed, StoredTimers
from statestore.formats.kernels import compiled_use
from statestore.formats.places.reading_threads import in_order, reading_threads
from statestore.formats.rocksdb.key_ranges import KeyRange, successor
from statestore.formats.rocksdb.opened_families import family_names
from statestore.formats.rocksdb.scan import scan_rocksdb

T = TypeVar("T")


@dataclass(frozen=True)
class KeyedReading:
    """A read of key groups ``first`` to ``last`` of a state of a job with ``groups`` key groups.

    ``columns`` are those that are wanted, ``origin`` names the state in errors. ``others`` are the forms of the
    operator's states by stored name, with the types that a user gave for them. ``asked``: the only key groups of a
    stream that are read; None: all.
    """

    files: SnapshotFiles
    form: KeyedForm
    groups: int
    first: int
    last: int
    columns: Collection[str]
    origin: str
    others: Mapping[str, KeyedForm]
    asked: Collection[int] | None = None

    @property
    def stored_groups(self) -> KeyGroups:
        return KeyGroups(self.first, self.last, prefix_width(self.groups))

    @property
    def stored_range(self) -> KeyRange:
        """The stored keys of the key groups."""
        width = prefix_width(self.groups)
        return KeyRange(self.first.to_bytes(width, "big"), successor(self.last.to_bytes(width, "big")))


def read_savepoint(reading: KeyedReading, stored: StoredKeyed, handle: KeyGroupHandle) -> Iterator[pa.RecordBatch]:
    """Yield the rows in a canonical savepoint.

    Raises CorruptError FLINK_FILE and FLINK_ROW, UnsupportedError FLINK_OPAQUE and FLINK_UNSUPPORTED, and the errors of
    `SnapshotFiles.open_at`.
    """
    state = _place(reading, stored)
    if state is None:
        return

    def rows(found: tuple[int, Cells, Cells]) -> pa.RecordBatch:
        group, keys, values = found
        groups = KeyGroups(group, group, prefix_width(reading.groups))
        return framed_rows(reading.form, keys, values, groups, reading.columns, reading.origin)

    with reading.files.open_at(handle.stream) as part:
        compiled_use.load_if_it_pays(part.size)
        entries = _entries(reading, part, handle, stored, state)
        yield from in_order(rows, entries, reading_threads())


def _entries(
    reading: KeyedReading, part: Part, handle: KeyGroupHandle, stored: StoredKeyed, state: int
) -> Iterator[tuple[int, Cells, Cells]]:
    for group, window in _blocks(reading, part, handle, compressed=stored.header.compressed):
        for keys, values in savepoint_entries(window, state, len(stored.header.states)):
            yield group, keys, values


def savepoint_cells(
    reading: KeyedReading, stored: StoredKeyed, handle: KeyGroupHandle
) -> Iterator[tuple[Cells, Cells]]:
    """Yield the stored keys and values in a canonical savepoint. Raises as `read_savepoint`."""
    state = _place(reading, stored)
    if state is None:
        return
    with reading.files.open_at(handle.stream) as part:
        compiled_use.load_if_it_pays(part.size)
        for _, keys, values in _entries(reading, part, handle, stored, state):
            yield keys, values


def read_heap(reading: KeyedReading, stored: StoredKeyed, handle: KeyGroupHandle) -> Iterator[pa.RecordBatch]:
    """Yield the rows in a heap snapshot. Raises as `read_savepoint`."""
    form = reading.form
    wanted = [True]
    if form.kind != "timers":
        wanted = [NAMESPACE in reading.columns, KEY in reading.columns, needs_values(form, reading.columns)]
    positions = STORED_BYTES in reading.columns
    for group, records in heap_cells(reading, stored, handle, record_kinds(form), wanted, positions=positions):
        yield heap_rows(form, records, group, reading.columns)


def heap_cells(
    reading: KeyedReading,
    stored: StoredKeyed,
    handle: KeyGroupHandle,
    kinds: Sequence[FlinkType],
    wanted: Sequence[bool],
    *,
    positions: bool = False,
) -> Iterator[tuple[int, Records]]:
    """Yield the key group and the records in a heap snapshot, decoded as ``kinds``. Raises as `read_savepoint`."""
    state = _place(reading, stored)
    if state is None:
        return
    header, form = stored.header, reading.form
    written = [form_of(each, header.key, Typed({}, reading.origin)) for each in header.states]
    states = [
        HeapState(
            f"{reading.files.path}, state {each.name!r}",
            stepped_kinds(each, reading.others.get(each.name), form.key),
        )
        for each in written
    ]
    shown = record_kinds(form)
    states[state] = HeapState(reading.origin, shown)
    is_given = has_declared(tuple(kind for each in states for kind in each.kinds)) or any(
        is_opaque(kind) and not is_opaque(used)
        for each, stepped in zip(written, states, strict=True)
        for kind, used in zip(record_kinds(each), stepped.kinds, strict=True)
    )
    states[state] = HeapState(reading.origin, kinds)
    with reading.files.open_at(handle.stream) as part:
        compiled_use.load_if_it_pays(part.size)
        for group, (start, end) in _bounds(reading, part, handle):
            plain = block_window(part, start, min(start + 4, end), compressed=False)
            found = int.from_bytes(plain.take(4), "big", signed=True)
            if found != group:
                raise damaged(part.path, f"found key group {found} at byte {start}, expected {group}")
            window = block_window(part, start + 4, end, compressed=header.compressed, partial=handle.partial)
            for records in heap_records(window, states, state, wanted, positions=positions, to_the_end=is_given):
                yield group, records


def read_database(reading: KeyedReading, handle: RocksHandle, ranges: Sequence[KeyRange]) -> Iterator[pa.RecordBatch]:
    """Yield the rows in the RocksDB of a checkpoint. Raises as `read_savepoint`, and CorruptError ROCKSDB_FILE."""
    yield from _scanned(reading, handle, ranges, partial(_database_rows, reading))


def database_cells(
    reading: KeyedReading, handle: RocksHandle, ranges: Sequence[KeyRange]
) -> Iterator[tuple[Cells, Cells]]:
    """Yield the stored keys and values in the RocksDB of a checkpoint. Raises as `read_database`."""
    yield from _scanned(reading, handle, ranges, lambda batch: (cells_of(batch.column(0)), cells_of(batch.column(1))))


def _scanned(
    reading: KeyedReading, handle: RocksHandle, ranges: Sequence[KeyRange], each: Callable[[pa.RecordBatch], T]
) -> Iterator[T]:
    found, ranges = looked_up_rows(reading.files, handle, reading.form.name, ranges)
    yield from map(each, found)
    if not ranges:
        return
    lookup = Lookup(reading.form.name, ranges, _all_keys(reading, handle) in ranges)
    with opened_database(reading.files, handle, lookup) as directory:
        if reading.form.name not in family_names(directory):
            return
        yield from scan_rocksdb(directory, each, family=reading.form.name, key_ranges=ranges, delimiter=DELIMITER)


def _all_keys(reading: KeyedReading, handle: RocksHandle) -> KeyRange:
    """The range of all keys in the key groups of a database."""
    width, last = reading.stored_groups.width, handle.first_group + handle.groups - 1
    return KeyRange(handle.first_group.to_bytes(width, "big"), successor(last.to_bytes(width, "big")))


def _database_rows(reading: KeyedReading, batch: pa.RecordBatch) -> pa.RecordBatch:
    keys, values = cells_of(batch.column(0)), cells_of(batch.column(1))
    return framed_rows(reading.form, keys, values, reading.stored_groups, reading.columns, reading.origin)


def read_timers(reading: KeyedReading, stored: StoredTimers) -> Iterator[pa.RecordBatch]:
    """Yield the timers in raw keyed state. Raises as `read_savepoint`."""
    assert isinstance(reading.form.stored, TimerOf)
    change = known_classes(reading.form.stored)
    with reading.files.open_at(stored.handle.stream) as part:
        for group, (start, end) in _bounds(reading, part, stored.handle):
            if end <= start:
                continue
            for timers in group_timers(part, start, end, reading.form.name, reading.columns, reading.origin, change):
                if timers.rows:
                    yield timer_rows(reading.form, timers.columns, group, timers.rows, reading.columns)


def _place(reading: KeyedReading, stored: StoredKeyed) -> int | None:
    """The number of the state in the subtask's stream, None where it has no such state."""
    names = [each.name for each in stored.header.states]
    return names.index(reading.form.name) if reading.form.name in names else None


def _blocks(
    reading: KeyedReading, part: Part, handle: KeyGroupHandle, *, compressed: bool
) -> Iterator[tuple[int, BlockWindow]]:
    for group, (start, end) in _bounds(reading, part, handle):
        yield group, block_window(part, start, end, compressed=compressed, partial=handle.partial)


def _bounds(reading: KeyedReading, part: Part, handle: KeyGroupHandle) -> Iterator[tuple[int, tuple[int, int]]]:
    for group, bounds in block_bounds(handle, part.size, part.path).items():
        if reading.first <= group <= reading.last and (reading.asked is None or group in reading.asked):
            yield group, bounds

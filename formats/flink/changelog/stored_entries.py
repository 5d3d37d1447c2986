"""Entries of a keyed state in one form, whichever backend wrote them: that of canonical savepoints and RocksDB.

key       key group, 1 or 2 bytes | key | length, if ambiguous | namespace | length, if ambiguous | map key
value     the value; of a list its elements with byte ``2C`` between; of a map a byte 1 for null, else 0, and the
          value
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of, ends_of
from statestore.formats.flink.columns.decoding import Records
from statestore.formats.flink.serializers.flink_types import (
    FlinkType,
    ListOf,
    MapOf,
    MaskedListOf,
    Nullable,
    SpanOf,
    TupleOf,
)
from statestore.formats.flink.snapshot.handles import KeyGroupHandle, RocksHandle
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER
from statestore.formats.flink.streams.keyed_columns import prefix_width
from statestore.formats.flink.streams.keyed_reading import KeyedReading, database_cells, heap_cells, savepoint_cells
from statestore.formats.flink.streams.state_form import KeyedForm
from statestore.formats.flink.streams.stored_states import StoredKeyed
from statestore.formats.kernels.arrays import Ints
from statestore.formats.rocksdb.key_ranges import KeyRange
from statestore.formats.values.without_pandas import arrow_scalar

NOTHING = arrow_scalar(b"", pa.binary())
PRESENT = arrow_scalar(b"\0", pa.binary())


def stored_entries(
    reading: KeyedReading, stored: StoredKeyed, kinds: Sequence[FlinkType], ranges: Sequence[KeyRange]
) -> Iterator[tuple[Cells, Cells]]:
    """Yield the stored keys and values of a state that a backend wrote.

    ``kinds`` are the types of a record of the heap: of namespace, key and value, or of a timer. Raises as
    `read_savepoint`.
    """
    handle = stored.handle
    if isinstance(handle, RocksHandle):
        if ranges:
            yield from database_cells(reading, handle, ranges)
        return
    assert isinstance(handle, KeyGroupHandle)
    if handle.form != "heap":
        yield from savepoint_cells(reading, stored, handle)
        return
    divided = heap_kinds(reading.form, kinds)
    for group, records in heap_cells(reading, stored, handle, divided, [True] * len(divided)):
        yield _of_heap(reading, records, group)


def heap_kinds(form: KeyedForm, kinds: Sequence[FlinkType]) -> list[FlinkType]:
    """The types of a record of the heap as bytes: list states by elements, map states by entries, all else as a whole,
    a value that is a list or map itself included."""
    if len(kinds) == 1:
        return [SpanOf(kinds[0])]
    namespace, key, value = kinds
    is_divided = form.kind == "map" or (form.kind == "list" and not form.whole)
    return [SpanOf(namespace), SpanOf(key), divided_value(value) if is_divided else SpanOf(value)]


def divided_value(value: FlinkType) -> FlinkType:
    """The type of a value as bytes, of a list's elements or of a map's entries: keys, and values as they are stored."""
    if isinstance(value, ListOf):
        return ListOf(SpanOf(value.element), value.is_set)
    if isinstance(value, MaskedListOf):
        return MaskedListOf(SpanOf(value.element))
    if isinstance(value, MapOf):
        return ListOf(TupleOf((SpanOf(value.key), SpanOf(Nullable(value.value)))))
    return SpanOf(value)


def _of_heap(reading: KeyedReading, records: Records, group: int) -> tuple[Cells, Cells]:
    form, count = reading.form, records.rows
    groups = np.full(count, group)
    width = prefix_width(reading.groups)
    if form.kind == "timers":
        (timers,) = records.columns
        keys = joined_bytes([prefixes(groups, width), timers])
        return cells_of(keys), Cells(np.empty(0, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64))
    namespaces, own, values = records.columns
    keys = scopes(form, groups, own, namespaces, width)
    assert values is not None
    if form.kind == "list" and not form.whole:
        filled = pc.greater(pc.list_value_length(values), 0)
        return cells_of(keys.filter(filled)), cells_of(joined_elements(values.filter(filled)))
    if form.kind == "map":
        entries = values.flatten()
        repeated = keys.take(pc.list_parent_indices(values))
        map_keys, map_values = entries.flatten()
        return cells_of(joined_bytes([repeated, map_keys])), cells_of(map_values)
    return cells_of(keys), cells_of(values)


def scopes(form: KeyedForm, groups: Ints, keys: pa.Array, namespaces: pa.Array, width: int) -> pa.BinaryArray:
    """Stored keys up to the map key."""
    parts = [prefixes(groups, width), keys]
    if form.ambiguous:
        parts.append(length_bytes(keys))
    parts.append(namespaces)
    if form.ambiguous:
        parts.append(length_bytes(namespaces))
    return joined_bytes(parts)


def joined_bytes(parts: Sequence[pa.Array | pa.Scalar]) -> pa.BinaryArray:
    """The byte strings of each row, one after another."""
    return pc.binary_join_element_wise(*parts, NOTHING)


def joined_elements(lists: pa.ListArray) -> pa.BinaryArray:
    """The stored value of each list."""
    return pc.binary_join(lists, pa.scalar(DELIMITER, pa.binary()))


def prefixes(groups: Ints, width: int) -> pa.BinaryArray:
    """Key groups as they begin stored keys."""
    return fixed_bytes(np.ascontiguousarray(groups.astype(">u1" if width == 1 else ">u2")).view(np.uint8), width)


def length_bytes(values: pa.BinaryArray) -> pa.BinaryArray:
    """The length of each value in the fewest bytes, at least one, low byte first, as ambiguous keys have it."""
    sizes = cells_of(values).size
    if int(sizes.max(initial=0)) < 256:
        return fixed_bytes(sizes.astype(np.uint8), 1)
    octets = np.ascontiguousarray(sizes.astype("<i8")).view(np.uint8).reshape(-1, 8)
    count: Ints = np.searchsorted(np.array([1 << 8, 1 << 16, 1 << 24]), sizes, side="right") + 1
    data = octets[np.arange(8) < count[:, None]]
    return _with_offsets(data, ends_of(count))


def fixed_bytes(data: np.ndarray, width: int) -> pa.BinaryArray:
    """Bytes as a column of byte strings of one width."""
    return _with_offsets(data, np.arange(len(data) // width + 1) * width)


def _with_offsets(data: np.ndarray, offsets: Ints) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)

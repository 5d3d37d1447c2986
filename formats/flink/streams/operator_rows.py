"""Rows of operator state: elements of lists, and entries of broadcast maps, which belong to no key.

An offset says where an element or a whole map begins. Compressed ones begin a snappy chunk each. Source:
``PartitionableListState``, ``HeapBroadcastState`` and ``OperatorStateRestoreOperation`` of Flink.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.layouts.type_layouts import arrow_field, has_column
from statestore.formats.flink.serializers.flink_types import FlinkType
from statestore.formats.flink.snapshot.handles import OperatorHandle
from statestore.formats.flink.snapshot.snapshot_files import Part
from statestore.formats.flink.streams.block_bytes import BlockWindow, block_window, damaged, unpack
from statestore.formats.flink.streams.heap_records import records
from statestore.formats.flink.streams.state_form import MAP_KEY, MAP_VALUE, POSITION, STORED_BYTES, VALUE
from statestore.formats.kernels.arrays import Ints

SUBTASK = "subtask"
_BATCH_BYTES, _BATCH_ELEMENTS = 16 << 20, 1 << 16


@dataclass(frozen=True)
class OperatorForm:
    """An operator state: a list by the type of its elements, or a broadcast map (``key`` is not None)."""

    name: str
    mode: str
    value: FlinkType
    key: FlinkType | None = None

    @property
    def schema(self) -> pa.Schema:
        """Columns: subtask, position, value and stored_bytes; or map_key and map_value. Void values have none."""
        whole = pa.int32()
        value = [arrow_field(VALUE if self.key is None else MAP_VALUE, self.value)] if has_column(self.value) else []
        if self.key is not None:
            return pa.schema([arrow_field(MAP_KEY, self.key), *value])
        return pa.schema([pa.field(SUBTASK, whole), pa.field(POSITION, whole), *value, pa.field(STORED_BYTES, whole)])

    @property
    def row_key(self) -> tuple[str, ...]:
        return (MAP_KEY,) if self.key is not None else (SUBTASK, POSITION)


def operator_rows(
    form: OperatorForm,
    part: Part,
    handle: OperatorHandle,
    subtask: int,
    compressed: bool,
    columns: Collection[str],
    origin: str,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a state in the stream of one subtask, in all columns of the form.

    Raises CorruptError FLINK_FILE and FLINK_ROW, UnsupportedError FLINK_OPAQUE and FLINK_UNSUPPORTED.
    """
    starts = next((np.array(each.offsets, np.int64) for each in handle.states if each.name == form.name), None)
    if starts is None or not len(starts):
        return
    every = np.array(sorted({offset for each in handle.states for offset in each.offsets}), np.int64)
    if every[0] < 0 or every[-1] > part.size:
        raise damaged(part.path, f"found operator state at bytes {every[0]} to {every[-1]}, expected up to {part.size}")
    ends = np.append(every, part.size)[np.searchsorted(every, starts, side="right")]
    if form.key is not None:
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            yield from _entries(form, block_window(part, start, end, compressed=compressed), columns, origin)
        return
    for first, stop in _batches(ends - starts):
        cells = _cells(part, starts[first:stop], ends[first:stop], compressed)
        count = stop - first
        (values,) = decode_cells([form.value], cells, [True], origin)
        whole = pa.int32()
        arrays = [
            pa.repeat(pa.scalar(subtask, whole), count),
            pa.array(np.arange(first, stop, dtype=np.int32)),
            *([] if values is None else [values]),
            pa.array((ends - starts)[first:stop].astype(np.int32)),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=form.schema)


def _batches(sizes: Ints) -> Iterator[tuple[int, int]]:
    """Yield the first element and the one behind the last of batches with a bounded number of bytes."""
    first = size = 0
    for number, each in enumerate(sizes.tolist()):
        if number > first and (size + each > _BATCH_BYTES or number - first >= _BATCH_ELEMENTS):
            yield first, number
            first, size = number, 0
        size += each
    yield first, len(sizes)


def _cells(part: Part, starts: Ints, ends: Ints, compressed: bool) -> Cells:
    parts = _read(part, starts, ends)
    if compressed:
        parts = [unpack(each, part.path) for each in parts]
    sizes = np.array([len(each) for each in parts], np.int64)
    data = np.frombuffer(b"".join(parts), np.uint8)
    return Cells(data, np.cumsum(sizes) - sizes, sizes)


def _read(part: Part, starts: Ints, ends: Ints) -> list[bytes]:
    """The bytes of elements, read together where they follow one another."""
    if np.array_equal(ends[:-1], starts[1:]):
        first = int(starts[0])
        data = part.read_at(first, int(ends[-1]) - first)
        return [data[start - first : end - first] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    return [part.read_at(start, end - start) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]


def _entries(
    form: OperatorForm, window: BlockWindow, columns: Collection[str], origin: str
) -> Iterator[pa.RecordBatch]:
    assert form.key is not None
    count = int.from_bytes(window.take(4), "big", signed=True)
    if count < 0:
        raise damaged(window.path, f"found {count} entries of a broadcast state, expected no negative number")
    kinds: Sequence[FlinkType] = (form.key, form.value)
    for found in records(window, kinds, count, [True, True], origin):
        arrays = [each for each in found.columns if each is not None]
        yield pa.RecordBatch.from_arrays(arrays, schema=form.schema)
    if not window.is_empty():
        raise damaged(window.path, "found bytes behind the entries of a broadcast state")

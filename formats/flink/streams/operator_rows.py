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
from statestore.formats.flink.connectors.connector_form import ConnectorForm
from statestore.formats.flink.connectors.element_input import ElementInput
from statestore.formats.flink.layouts.type_layouts import arrow_field, has_column
from statestore.formats.flink.serializers.flink_types import FlinkType, Opaque, SpanOf
from statestore.formats.flink.snapshot.handles import OperatorHandle
from statestore.formats.flink.snapshot.snapshot_files import Part
from statestore.formats.flink.streams.block_bytes import BlockWindow, block_window, damaged, unpack
from statestore.formats.flink.streams.heap_records import records
from statestore.formats.flink.streams.state_form import MAP_KEY, MAP_VALUE, POSITION, STORED_BYTES, VALUE
from statestore.formats.kernels.arrays import Ints

SUBTASK, ITEM, VERSION = "subtask", "item", "version"
COORDINATOR = "coordinator"
"""The name of the state of an operator's coordinator, and the mode of its form."""
_BATCH_BYTES, _BATCH_ELEMENTS = 16 << 20, 1 << 16
_HEADER_BYTES = 4 + 4 + 4  # the length of the array, the version, the length of the element


@dataclass(frozen=True)
class OperatorForm:
    """An operator state: a list by the type of its elements, or a broadcast map (``key`` is not None).

    ``connector`` is the form in which a connector wrote the elements, which are bytes to Flink. ``versioned``: the
    user's type is that of the bytes behind the version and the length that Flink writes before such elements. The state
    of a coordinator is of no subtask, and one element.
    """

    name: str
    mode: str
    value: FlinkType
    key: FlinkType | None = None
    connector: ConnectorForm | None = None
    versioned: bool = False

    @property
    def schema(self) -> pa.Schema:
        """Columns: subtask, position, value and stored_bytes; or map_key and map_value. Void values have none.

        Those of a connector's form are in place of the value, with ``item`` before them where an element has any
        number of rows.
        """
        whole = pa.int32()
        if self.connector is not None and self.mode == COORDINATOR:
            return pa.schema([pa.field(ITEM, whole), *self.connector.columns])
        if self.connector is not None:
            items = [pa.field(ITEM, whole)] if self.connector.many else []
            places = [pa.field(SUBTASK, whole), pa.field(POSITION, whole), *items]
            return pa.schema([*places, *self.connector.columns, pa.field(STORED_BYTES, whole)])
        value = [arrow_field(VALUE if self.key is None else MAP_VALUE, self.value)] if has_column(self.value) else []
        if self.key is not None:
            return pa.schema([arrow_field(MAP_KEY, self.key), *value])
        version = [pa.field(VERSION, whole)] if self.versioned else []
        places = [pa.field(SUBTASK, whole), pa.field(POSITION, whole), *version]
        return pa.schema([*places, *value, pa.field(STORED_BYTES, whole)])

    @property
    def row_key(self) -> tuple[str, ...]:
        if self.key is not None:
            return (MAP_KEY,)
        if self.mode == COORDINATOR:
            return (ITEM,)
        many = self.connector is not None and self.connector.many
        return (SUBTASK, POSITION, ITEM) if many else (SUBTASK, POSITION)


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
    starts, ends = _bounds(form.name, part, handle)
    if not len(starts):
        return
    if form.key is not None:
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            yield from _entries(form, block_window(part, start, end, compressed=compressed), columns, origin)
        return
    for first, stop in _batches(ends - starts):
        cells = _cells(part, starts[first:stop], ends[first:stop], compressed)
        sizes = (ends - starts)[first:stop]
        if form.connector is not None:
            yield _connector_rows(form, form.connector, subtask, first, cells, sizes, origin)
            continue
        count = stop - first
        versions: list[pa.Array] = []
        if form.versioned:
            versions, cells = _unversioned(cells, origin)
        (values,) = decode_cells([form.value], cells, [True], origin)
        whole = pa.int32()
        arrays = [
            pa.repeat(pa.scalar(subtask, whole), count),
            pa.array(np.arange(first, stop, dtype=np.int32)),
            *versions,
            *([] if values is None else [values]),
            pa.array(sizes.astype(np.int32)),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=form.schema)


def element_cells(name: str, part: Part, handle: OperatorHandle, compressed: bool) -> Cells:
    """The bytes of each element of a list, or of each whole broadcast map, in the stream of one subtask.

    Raises as `operator_rows`.
    """
    starts, ends = _bounds(name, part, handle)
    if not len(starts):
        return Cells(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    return _cells(part, starts, ends, compressed)


def map_cells(form: OperatorForm, content: bytes, path: str, origin: str) -> tuple[pa.BinaryArray, pa.BinaryArray]:
    """The bytes of the keys and of the values of a broadcast map. Raises as `operator_rows`."""
    assert form.key is not None
    window = BlockWindow(iter([content]), path)
    count = _map_size(window)
    kinds: Sequence[FlinkType] = (SpanOf(form.key), SpanOf(form.value))
    found = [each.columns for each in records(window, kinds, count, [True, True], origin)]
    keys, values = (pa.concat_arrays([pa.array([], pa.binary()), *(each[n] for each in found)]) for n in (0, 1))
    return keys, values


def stored_elements(
    name: str, part: Part, handle: OperatorHandle, compressed: bool, most: int, *, framed: bool
) -> list[bytes] | None:
    """The elements of a list, ``framed`` ones without their length, None where they have more than ``most`` bytes.

    Raises as `operator_rows`.
    """
    starts, ends = _bounds(name, part, handle)
    if not len(starts):
        return []
    if int((ends - starts).sum()) > most:
        return None
    cells = _cells(part, starts, ends, compressed)
    return [_array_bytes(each, part.path) if framed else each for each in _each(cells)]


def coordinator_rows(form: OperatorForm, content: bytes, origin: str) -> pa.RecordBatch:
    """The rows of a coordinator's state. Raises CorruptError FLINK_ROW."""
    assert form.connector is not None
    rows = [(item, *row) for item, row in enumerate(form.connector.rows(content, origin))]
    return _batch(form, rows)


def _bounds(name: str, part: Part, handle: OperatorHandle) -> tuple[Ints, Ints]:
    """Where each element of a state begins in the stream of a subtask, and where it ends."""
    starts = next((np.array(each.offsets, np.int64) for each in handle.states if each.name == name), None)
    if starts is None or not len(starts):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    every = np.array(sorted({offset for each in handle.states for offset in each.offsets}), np.int64)
    if every[0] < 0 or every[-1] > part.size:
        raise damaged(part.path, f"found operator state at bytes {every[0]} to {every[-1]}, expected up to {part.size}")
    return starts, np.append(every, part.size)[np.searchsorted(every, starts, side="right")]


def _each(cells: Cells) -> Iterator[bytes]:
    for start, size in zip(cells.start.tolist(), cells.size.tolist(), strict=True):
        yield cells.data[start : start + size].tobytes()


def _array_bytes(element: bytes, where: str) -> bytes:
    """The bytes of an array: its length goes before them."""
    source = ElementInput(element, where)
    found = source.sized("an array of bytes")
    source.end()
    return found


def _connector_rows(
    form: OperatorForm, connector: ConnectorForm, subtask: int, first: int, cells: Cells, sizes: Ints, origin: str
) -> pa.RecordBatch:
    """Rows of elements in the form of a connector. There are few: a split for each partition or file."""
    rows: list[tuple[object, ...]] = []
    for number, (element, size) in enumerate(zip(_each(cells), sizes.tolist(), strict=True)):
        content = element if isinstance(form.value, Opaque) else _array_bytes(element, origin)
        for item, row in enumerate(connector.rows(content, origin)):
            places = (subtask, first + number, item) if connector.many else (subtask, first + number)
            rows.append((*places, *row, size if item == 0 else 0))
    return _batch(form, rows)


def _batch(form: OperatorForm, rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, each.type) for column, each in zip(columns, form.schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=form.schema)


def _unversioned(cells: Cells, origin: str) -> tuple[list[pa.Array], Cells]:
    """The versions of elements, and the cells of the bytes behind their headers."""
    versions: list[int] = []
    for element in _each(cells):
        source = ElementInput(_array_bytes(element, origin), origin)
        versions.append(source.i32("the version of an element"))
        source.sized("an element")
        source.end()
    return [pa.array(versions, pa.int32())], Cells(cells.data, cells.start + _HEADER_BYTES, cells.size - _HEADER_BYTES)


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
    count = _map_size(window)
    kinds: Sequence[FlinkType] = (form.key, form.value)
    for found in records(window, kinds, count, [True, True], origin):
        arrays = [each for each in found.columns if each is not None]
        yield pa.RecordBatch.from_arrays(arrays, schema=form.schema)
    if not window.is_empty():
        raise damaged(window.path, "found bytes behind the entries of a broadcast state")


def _map_size(window: BlockWindow) -> int:
    count = int.from_bytes(window.take(4), "big", signed=True)
    if count < 0:
        raise damaged(window.path, f"found {count} entries of a broadcast state, expected no negative number")
    return count

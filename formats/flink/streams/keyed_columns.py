"""Stored entries of a keyed state as batches in the columns of its `KeyedForm`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError
from statestore.formats.flink.columns.decoding import Records, decode_cells
from statestore.formats.flink.serializers.flink_types import (
    BASIC_WIDTHS,
    REST_OF_CELL,
    VOID,
    FlinkType,
    Joined,
    LengthOf,
    Nullable,
    Opaque,
    Prefix,
    PythonElements,
    SortedLong,
    TimerOf,
    TtlOf,
    fixed_width,
)
from statestore.formats.flink.streams.state_form import (
    KEY,
    KEY_GROUP,
    LAST_ACCESS,
    MAP_KEY,
    MAP_VALUE,
    MICROS,
    NAMESPACE,
    POSITION,
    SINGLE,
    STORED_BYTES,
    TIMESTAMP,
    TIMESTAMP_MS,
    VALUE,
    KeyedForm,
    is_opaque,
)
from statestore.formats.kernels.arrays import Ints
from statestore.formats.values.without_pandas import arrow_numbers
from statestore.formats.values.without_pandas import numbers as numpy_numbers

_MOST_MS = (2**63 - 1) // 1000
_VALUES = (VALUE, MAP_VALUE, POSITION, LAST_ACCESS)
Columns = dict[str, pa.Array]


@dataclass(frozen=True)
class KeyGroups:
    """The key groups in which entries must lie, ``first`` to ``last``, and the bytes of the prefix of stored keys."""

    first: int
    last: int
    width: int


def prefix_width(max_parallelism: int) -> int:
    """The bytes of the key group at the start of stored keys (``CompositeKeySerializationUtils``)."""
    return 1 if max_parallelism <= 128 else 2


def framed_rows(
    form: KeyedForm, keys: Cells, values: Cells, groups: KeyGroups, columns: Collection[str], origin: str
) -> pa.RecordBatch:
    """Entries of canonical savepoints and RocksDB, as rows with at least the wanted columns of the form.

    Raises CorruptError FLINK_ROW, UnsupportedError FLINK_OPAQUE and FLINK_UNSUPPORTED.
    """
    found = stored_keys(form, keys, groups.width, columns, origin)
    _check_groups(found[KEY_GROUP], keys, groups, origin)
    found[STORED_BYTES] = arrow_numbers((keys.size + values.size).astype(np.int32))
    if form.kind == "timers":
        return _batch(form, found, columns)
    if not any(name in columns for name in _VALUES) and (form.kind != "list" or form.whole):
        return _batch(form, found, columns)
    if form.kind == "list" and not form.whole:
        (lists,) = decode_cells([Joined(stored_element(form))], values, [True], origin)
        return _batch(form, _listed(form, found, lists), columns)
    (cells,) = decode_cells([stored_element(form)], values, [True], origin)
    _put_value(form, found, cells)
    return _batch(form, found, columns)


def stored_element(form: KeyedForm) -> FlinkType:
    """The type of a stored value of canonical savepoints and RocksDB, of a list that of an element."""
    element: FlinkType = PythonElements(form.element) if form.packed else form.element
    element = TtlOf(element) if form.has_ttl else element
    return Nullable(element, REST_OF_CELL) if form.kind == "map" else element


def record_kinds(form: KeyedForm) -> list[FlinkType]:
    """The types of one record of a heap snapshot: namespace, key and value, or a timer."""
    if form.kind == "timers":
        return [form.stored]
    return [form.namespace, form.key, form.stored]


def stepped_kinds(stored: KeyedForm, given: KeyedForm | None, key: FlinkType) -> list[FlinkType]:
    """The types of a record of a heap snapshot that is stepped over.

    ``stored`` has the types of the file. Where these cannot be decoded, those that a user gave (``given``) say where a
    value ends. All states of an operator have keys of one serializer, so ``key``, which a user may have given for
    another state, is that of this one, too.
    """
    known = record_kinds(stored)
    wanted = known if given is None else record_kinds(given)
    if stored.kind == "timers":
        (mine,), (yours,) = known, wanted
        assert isinstance(mine, TimerOf) and isinstance(yours, TimerOf)
        return [TimerOf(_decodable(mine.key, yours.key, key), _decodable(mine.namespace, yours.namespace))]
    (namespace, own_key, value), (given_namespace, given_key, given_value) = known, wanted
    return [
        _decodable(namespace, given_namespace),
        _decodable(own_key, given_key, key),
        _decodable(value, given_value),
    ]


def _decodable(first: FlinkType, *others: FlinkType) -> FlinkType:
    """The first type that can be decoded, else the first."""
    return next((each for each in (first, *others) if not is_opaque(each)), first)


def heap_rows(form: KeyedForm, records: Records, group: int, wanted: Collection[str]) -> pa.RecordBatch:
    """Decoded records of a heap snapshot as rows with at least the wanted columns of the form."""
    count, columns = records.rows, records.columns
    found: Columns = {
        KEY_GROUP: pa.repeat(pa.scalar(group, pa.int32()), count),
        STORED_BYTES: pa.nulls(count, pa.int32()),
    }
    if records.starts is not None:
        found[STORED_BYTES] = pa.array(np.diff(np.append(records.starts, records.at)).astype(np.int32))
    if form.kind == "timers":
        (timers,) = columns
        assert timers is not None
        _put_timers(form, found, timers)
        return _batch(form, found, wanted)
    namespaces, keys, values = columns
    for name, column in ((NAMESPACE, namespaces), (KEY, keys)):
        if column is not None:
            found[name] = column
    if values is None:
        return _batch(form, found, wanted)
    if form.kind == "list":
        return _batch(form, _listed(form, found, values), wanted)
    if form.kind == "map":
        return _batch(form, _mapped(form, found, values), wanted)
    _put_value(form, found, values)
    return _batch(form, found, wanted)


def timer_rows(form: KeyedForm, timers: Columns, group: int, count: int, wanted: Collection[str]) -> pa.RecordBatch:
    """Timers with columns key, namespace and timestamp_ms, or without any column, as rows of the form."""
    found = {
        KEY_GROUP: pa.repeat(pa.scalar(group, pa.int32()), count),
        STORED_BYTES: pa.nulls(count, pa.int32()),
        **timers,
    }
    if TIMESTAMP_MS in found:  # without it no column is wanted, only the number of rows
        found[TIMESTAMP] = _moments(found[TIMESTAMP_MS])
    return _batch(form, found, wanted)


def needs_values(form: KeyedForm, wanted: Collection[str]) -> bool:
    """Return whether the wanted columns, or the number of rows, follow from the stored values."""
    return form.kind not in SINGLE or any(name in wanted for name in _VALUES)


# Stored keys


def stored_keys(form: KeyedForm, keys: Cells, width: int, columns: Collection[str], origin: str) -> Columns:
    """The columns that stored keys hold, for each of them: the key group, and of the others those that are wanted.

    A void key or namespace has no column. Raises as `framed_rows`.
    """
    if form.kind == "timers" and not form.undivided:
        kinds: list[FlinkType] = [Prefix(width), form.stored]
        groups, timers = decode_cells(kinds, keys, [True, True], origin)
        found: Columns = {KEY_GROUP: groups}
        _put_timers(form, found, timers)
        return found
    if form.undivided:
        return _undivided_keys(form, keys, width, origin)
    if is_opaque(form.key):
        return _keys_before_namespaces(form, keys, width, origin)
    length = [LengthOf()] if form.ambiguous else []
    named: list[tuple[str, FlinkType]] = [
        (KEY_GROUP, Prefix(width)),
        (KEY, form.key),
        *(("", each) for each in length),
        (NAMESPACE, form.namespace),
        *(("", each) for each in length),
    ]
    if form.map_key is not None:
        named.append((MAP_KEY, form.map_key))
    wanted = [name == KEY_GROUP or name in columns for name, _ in named]
    cells = decode_cells([kind for _, kind in named], keys, wanted, origin)
    return {name: cell for (name, _), cell in zip(named, cells, strict=True) if cell is not None}


def _undivided_keys(form: KeyedForm, keys: Cells, width: int, origin: str) -> Columns:
    kinds: list[FlinkType] = [Prefix(width), Opaque("")]
    if form.kind == "timers":
        kinds.insert(1, SortedLong())
    cells = decode_cells(kinds, keys, [True] * len(kinds), origin)
    found: Columns = {KEY_GROUP: cells[0], KEY: cells[-1]}
    if form.kind == "timers":
        found[TIMESTAMP_MS] = cells[1]
        found[TIMESTAMP] = _moments(found[TIMESTAMP_MS])
    return found


def _keys_before_namespaces(form: KeyedForm, keys: Cells, width: int, origin: str) -> Columns:
    """Keys that cannot be decoded, in front of a namespace of fixed length."""
    behind = BASIC_WIDTHS["void"] if form.namespace == VOID else fixed_width(form.namespace)
    short = keys.size < width + behind
    if short.any():
        raise CorruptError(
            ErrorCode.FLINK_ROW,
            f"{origin}: found a stored key of {int(keys.size[short][0])} bytes, expected at least {width + behind}; "
            "restore the file from a copy",
        )
    groups, own = decode_cells([Prefix(width), Opaque("")], keys.cut(0, behind), [True, True], origin)
    ends = Cells(keys.data, keys.start + keys.size - behind, np.full(len(keys), behind))
    (namespaces,) = decode_cells([form.namespace], ends, [True], origin)
    found: Columns = {KEY_GROUP: groups, KEY: own}
    if namespaces is not None:
        found[NAMESPACE] = namespaces
    return found


def _check_groups(found: pa.Array, keys: Cells, groups: KeyGroups, origin: str) -> None:
    numbers = numpy_numbers(found)
    outside = (numbers < groups.first) | (numbers > groups.last)
    if outside.any():
        row = int(outside.argmax())
        raise CorruptError(
            ErrorCode.FLINK_ROW,
            f"{origin}: found key group {int(numbers[row])} in stored key {keys.cell(row)[:40].hex()}, expected "
            f"{groups.first} to {groups.last}; restore the file from a copy",
        )


# Values


def _put_value(form: KeyedForm, found: Columns, values: pa.Array) -> None:
    if form.has_value:
        name = MAP_VALUE if form.kind == "map" else VALUE
        found[name] = pc.struct_field(values, ["value"]) if form.has_ttl else values
    if form.has_ttl:
        found[LAST_ACCESS] = pc.struct_field(values, ["last_access"])


def _put_timers(form: KeyedForm, found: Columns, timers: pa.Array) -> None:
    for field in timers.type:
        name = TIMESTAMP_MS if field.name == TIMESTAMP else field.name
        found[name] = pc.struct_field(timers, [field.name])
    found[TIMESTAMP] = _moments(found[TIMESTAMP_MS])


def _moments(milliseconds: pa.Array) -> pa.Array:
    numbers = milliseconds.to_numpy()
    beyond = (numbers > _MOST_MS) | (numbers < -_MOST_MS)
    return pa.array(np.where(beyond, 0, numbers) * 1000, pa.int64(), mask=beyond).view(MICROS)


def _listed(form: KeyedForm, found: Columns, lists: pa.ListArray) -> Columns:
    """A row for each element of each list."""
    offsets = lists.offsets.to_numpy()
    values = lists.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    if form.packed:
        values, offsets = _unpacked(form, values, offsets - offsets[0])
    rows, positions = _entries(offsets)
    repeated = _repeated(found, rows, positions)
    repeated[POSITION] = pa.array(positions.astype(np.int32))
    _put_value(form, repeated, values)
    return repeated


def _unpacked(form: KeyedForm, packs: pa.Array, offsets: Ints) -> tuple[pa.Array, Ints]:
    """The elements of packs, one after another, and the offsets of each list in them."""
    lists = pc.struct_field(packs, ["value"]) if form.has_ttl else packs
    inner = lists.offsets.to_numpy()
    first, count = int(inner[0]), int(inner[-1] - inner[0])
    values = lists.values.slice(first, count)
    if form.has_ttl:  # an element was accessed when its pack was
        own, _ = _entries(inner)
        accesses = pc.struct_field(packs, [LAST_ACCESS]).take(pa.array(own))
        values = pa.StructArray.from_arrays([values, accesses], names=["value", LAST_ACCESS])
    return values, (inner - first)[offsets]


def _mapped(form: KeyedForm, found: Columns, maps: pa.MapArray) -> Columns:
    """A row for each entry of each map."""
    offsets = maps.offsets.to_numpy()
    rows, positions = _entries(offsets)
    repeated = _repeated(found, rows, positions)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    repeated[MAP_KEY] = maps.keys.slice(first, count)
    _put_value(form, repeated, maps.items.slice(first, count))
    return repeated


def _entries(offsets: Ints) -> tuple[Ints, Ints]:
    """The row of each entry of lists, and its position in its list."""
    sizes = np.diff(offsets).astype(np.int64)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    return rows, np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _repeated(found: Columns, rows: Ints, positions: Ints) -> Columns:
    """The columns, repeated for each entry; stored bytes are those of a list's first entry."""
    chosen = pa.array(rows)
    repeated = {name: column.take(chosen) for name, column in found.items()}
    stored = repeated[STORED_BYTES]
    if not stored.null_count:
        repeated[STORED_BYTES] = pa.array(np.where(positions == 0, stored.to_numpy(), 0).astype(np.int32))
    return repeated


def _batch(form: KeyedForm, found: Columns, columns: Collection[str]) -> pa.RecordBatch:
    fields = [field for field in form.schema if field.name in columns]
    if not fields:
        fields = [form.schema.field(KEY_GROUP)]
    for field in fields:
        if field.type == pa.null():  # a void key, which no row lacks
            found[field.name] = pa.nulls(len(found[KEY_GROUP]))
    return pa.RecordBatch.from_arrays([found[field.name] for field in fields], schema=pa.schema(fields))

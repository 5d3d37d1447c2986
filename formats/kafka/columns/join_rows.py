"""Rows of the stores that joins make for themselves, as columns.

Buffer of left and outer stream-stream joins (``TimestampedKeyAndJoinSideSerializer``, ``LeftOrRightValueSerializer``):

    key      timestamp:int64 | side:1 | key                 side 1 is the left one
    value    01 | n:int32 | (length:int32 | side:1 | value)*

Subscriptions of foreign-key joins (``CombinedKeySchema``, ``SubscriptionWrapperSerde``):

    key      length:int32 | foreign key | primary key
    value    flags:1 | instruction:1 | [hash:16] | primary key | [primary partition:int32]

The highest bit of the flags means that there is no hash; the other bits are the version: 0, or 1 with the partition.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.bytes.column_cursor import Cursor, read_entries
from statestore.formats.kafka.columns.origins import Origin
from statestore.formats.kafka.columns.serde_form import CellSerde
from statestore.formats.kafka.columns.time_columns import times
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.values.without_pandas import arrow_bytes

SIDES = arrow_bytes([b"right", b"left"]).view(pa.string())
INSTRUCTIONS = arrow_bytes(
    [
        b"DELETE_KEY_NO_PROPAGATE",
        b"DELETE_KEY_AND_PROPAGATE",
        b"PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE",
        b"PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE",
    ]
).view(pa.string())
_REMEDY = "choose another kind of store"
_SIDED = 9  # timestamp and side
_LIST = 1  # the strategy of a list with a length before each entry
_NO_HASH = 0x80
_HASH_BYTES = 16


def outer_join_rows(
    keys: pa.BinaryArray, values: pa.BinaryArray, key_serde: CellSerde, left: CellSerde, right: CellSerde
) -> tuple[dict[str, pa.Array], Ints]:
    """(columns, row of each) of a buffer, one entry for each element of the lists.

    Columns: ``timestamp``, ``side``, ``key``, ``position`` in the list; then ``value`` if both serdes are one, else
    ``left_value`` and ``right_value``, of which one is null. A null cell of ``values`` (a delete in a changelog) gives
    one entry without position and value.
    """
    cells, origin = cells_of(keys), Origin("key", keys)
    origin.refuse(cells, cells.size < _SIDED, "a buffer key: timestamp:int64 | side:1 | key", _REMEDY)
    side = cells.numbers(8, "u1")
    origin.refuse(cells, side > 1, "side 00 or 01 in byte 8 of a buffer key", _REMEDY)
    elements, position, row = _elements(cells_of(values), origin.named("value"))
    origin = Origin("key", keys, row)
    sides = side[row]
    deleted = elements.nulls
    expected = "a list of values, each with the side of its key in front"
    inner = elements.first_bytes()
    origin.named("value").refuse(elements, ~deleted & ((elements.size < 1) | (inner != sides)), expected, _REMEDY)
    bare = Cells(elements.data, elements.start + ~deleted, elements.size - ~deleted, elements.missing)
    found = {
        "timestamp": times(cells.numbers(0, ">i8")[row], origin.named("timestamp")),
        "side": SIDES.take(pa.array(sides)),
        "key": key_serde.decode(cells.cut(_SIDED).select(row), origin),
        "position": pa.array(position, pa.int32(), mask=deleted),
    }
    origin = origin.named("value")
    if left.name == right.name:
        return {**found, "value": left.decode(bare, origin)}, row
    found["left_value"] = _only(bare, sides == 1, left, origin)
    found["right_value"] = _only(bare, sides == 0, right, origin)
    return found, row


def _elements(values: Cells, origin: Origin) -> tuple[Cells, Ints, Ints]:
    """(elements, position in the list, row) of lists; a null list has one null element."""
    deleted = np.flatnonzero(values.nulls)
    lists = np.flatnonzero(~values.nulls)
    cursor = Cursor(values.select(lists))
    strategy = cursor.numbers("u1")
    cursor.refuse(strategy != _LIST)
    entries = read_entries(cursor, cursor.int32())
    cursor.end()
    found = entries.cells
    inside = entries.row
    cursor.refuse(np.bincount(inside[found.nulls], minlength=len(lists)) > 0)  # an element is never null
    bad = np.zeros(len(values), bool)
    bad[lists[cursor.bad]] = True
    origin.refuse(values, bad, "a list of values, each with its length in front", _REMEDY)
    row = np.concatenate([lists[inside], deleted])
    order = np.argsort(row, kind="stable")
    nothing = np.zeros(len(deleted), np.int64)
    position = np.concatenate([np.arange(len(inside)) - entries.offsets[inside], nothing])
    elements = Cells(
        values.data,
        np.concatenate([found.start, nothing])[order],
        np.concatenate([found.size, nothing])[order],
        np.concatenate([np.zeros(len(inside), bool), nothing == 0])[order] if len(deleted) else None,
    )
    return elements, position[order], row[order]


def _only(cells: Cells, which: Bools, serde: CellSerde, origin: Origin) -> pa.Array:
    """Decode the cells of one side; null elsewhere."""
    found = serde.decode(cells.select(which), origin.select(which))
    return found.take(pa.array(np.cumsum(which) - 1, mask=~which))


def subscription_keys(keys: pa.BinaryArray, foreign: CellSerde, primary: CellSerde) -> dict[str, pa.Array]:
    """The columns ``foreign_key`` and ``primary_key`` of row keys."""
    cells, origin = cells_of(keys), Origin("key", keys)
    cursor = Cursor(cells)
    foreign_keys = cursor.take(cursor.int32())
    primary_keys = cursor.rest()
    origin.refuse(cells, cursor.bad, "a subscription's key: length:int32 | foreign key | primary key", _REMEDY)
    return {
        "foreign_key": foreign.decode(foreign_keys, origin.named("foreign key")),
        "primary_key": primary.decode(primary_keys, origin.named("primary key")),
    }


def subscription_values(values: Cells, origin: Origin) -> dict[str, pa.Array]:
    """The columns ``instruction``, ``hash``, ``version`` and ``primary_partition`` of values without timestamp.

    ``hash`` is null if the subscription has none, ``primary_partition`` in version 0, all in a null cell. The primary
    key in the value repeats that of the key.
    """
    deleted = values.nulls
    cursor = Cursor(values)
    cursor.bad = deleted.copy()
    flags, instruction = cursor.numbers("u1"), cursor.numbers("u1")
    version = flags & 0x7F
    cursor.refuse(~deleted & ((version > 1) | (instruction >= len(INSTRUCTIONS))))
    hashed = (flags & _NO_HASH == 0) & ~cursor.bad
    digest = cursor.take(np.where(hashed, _HASH_BYTES, 0))
    cursor.rest(np.where(version == 1, 4, 0))
    numbered = (version == 1) & ~cursor.bad
    at = cursor.take(np.where(numbered, 4, 0))
    expected = "a subscription of version 0 or 1: flags | instruction | hash | primary key | primary partition"
    origin.refuse(values, cursor.bad & ~deleted, expected, _REMEDY)
    partition = Cells(at.data, at.start, at.size, ~numbered).numbers(0, ">i4")
    return {
        "instruction": INSTRUCTIONS.take(pa.array(instruction, mask=deleted)),
        "hash": Cells(digest.data, digest.start, digest.size, ~hashed).binary(),
        "version": pa.array(version, pa.int32(), mask=deleted),
        "primary_partition": pa.array(partition, pa.int32(), mask=~numbered),
    }

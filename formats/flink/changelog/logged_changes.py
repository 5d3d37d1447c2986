"""Changes of one state as columns.

    keyed state   op:byte | state:int16 | key | namespace | what the operation needs
    timers        op:byte | state:int16 | what the operation needs

Operations, with what they need: 0 clear; 1 and 2 set to a value; 3 add all elements of a list or entries of a map;
4 merge into a namespace: that namespace | count:int32 | the namespaces that are merged; 5 add an element, of timers
count:int32 | timers; 6 put an entry: map key | value; 7 remove a map key or a timer. Source: ``StateChangeOperation``
and the change appliers of Flink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.changelog.stored_entries import scopes
from statestore.formats.flink.changelog.unknown_keys import UNTOLD, key_sizes, untold_keys
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.serializers.flink_types import FlinkType, ListOf, MapOf, MaskedListOf, Opaque, SpanOf
from statestore.formats.flink.snapshot.handles import ChangelogHandle
from statestore.formats.flink.streams.block_bytes import damaged
from statestore.formats.flink.streams.change_sets import read_changes
from statestore.formats.flink.streams.keyed_columns import prefix_width
from statestore.formats.flink.streams.keyed_reading import KeyedReading
from statestore.formats.flink.streams.state_form import is_opaque
from statestore.formats.flink.streams.stored_states import StoredKeyed
from statestore.formats.kernels.arrays import Bools, Ints

CLEAR, SET, SET_INTERNAL, ADD_ALL, MERGE, ADD, PUT, REMOVE = range(8)
OPERATIONS = {
    "value": (CLEAR, SET, SET_INTERNAL),
    "reducing": (CLEAR, SET, SET_INTERNAL, MERGE),
    "aggregating": (CLEAR, SET, SET_INTERNAL, MERGE),
    "list": (CLEAR, SET, SET_INTERNAL, ADD_ALL, MERGE, ADD),
    "map": (CLEAR, ADD_ALL, ADD, PUT, REMOVE),
    "timers": (ADD, REMOVE),
}
_HEAD = 3


@dataclass(frozen=True)
class LoggedChanges:
    """Changes in the order in which they count. ``scopes`` are stored keys up to the map key, of timers none."""

    groups: Ints
    operations: Ints
    scopes: pa.BinaryArray | None
    payloads: Cells

    def __len__(self) -> int:
        return len(self.groups)

    def select(self, which: Bools) -> LoggedChanges:
        """The changes where the mask is true."""
        scopes = None if self.scopes is None else self.scopes.filter(pa.array(which))
        return LoggedChanges(self.groups[which], self.operations[which], scopes, self.payloads.select(which))

    def are(self, *operations: int) -> Bools:
        """A mask of the changes of these operations."""
        return np.isin(self.operations, operations)


@dataclass(frozen=True)
class _Raw:
    groups: Ints
    cells: Cells


def logged_changes(
    reading: KeyedReading, stored: StoredKeyed, handle: ChangelogHandle, kinds: Sequence[FlinkType]
) -> LoggedChanges:
    """Read the changes of the reading's state in its key groups, those of timers in all.

    ``kinds`` are those of a record of the heap: namespace, key and value, or a timer.

    Raises CorruptError FLINK_FILE and FLINK_ROW, UnsupportedError FLINK_OPAQUE where keys cannot be told from what
    follows, and FLINK_UNSUPPORTED.
    """
    raw = _raw_changes(reading, stored, handle)
    operations = raw.cells.first_bytes().astype(np.int64)
    _check(reading, operations)
    cells = raw.cells.cut(_HEAD)
    if reading.form.kind == "timers":
        return LoggedChanges(raw.groups, operations, None, cells)
    namespace, key, value = kinds
    if is_opaque(key) and len(cells):
        behind = _behind_keys(namespace, value)
        sizes = key_sizes(cells, operations, behind)
        if (sizes == UNTOLD).any():
            sizes = key_sizes(cells, operations, behind, _told_keys(reading, stored, handle))
        if (sizes == UNTOLD).any():
            raise untold_keys(int((sizes == UNTOLD).sum()), reading.origin)
        keys = Cells(cells.data, cells.start, sizes).binary()
        rest = Cells(cells.data, cells.start + sizes, cells.size - sizes)
        namespaces, payloads = decode_cells([SpanOf(namespace), Opaque("")], rest, [True] * 2, reading.origin)
    else:
        columns = decode_cells([SpanOf(key), SpanOf(namespace), Opaque("")], cells, [True] * 3, reading.origin)
        keys, namespaces, payloads = columns
    assert payloads is not None
    found = scopes(reading.form, raw.groups, keys, namespaces, prefix_width(reading.groups))
    return LoggedChanges(raw.groups, operations, found, cells_of(payloads))


def _told_keys(reading: KeyedReading, stored: StoredKeyed, handle: ChangelogHandle) -> set[bytes]:
    """The keys that the changes of all states of the operator tell."""
    found: set[bytes] = set()
    for header in stored.header.states:
        if header.kind == "timers":
            continue
        raw = _raw_changes(replace(reading, form=replace(reading.form, name=header.name)), stored, handle)
        cells = raw.cells.cut(_HEAD)
        sizes = key_sizes(cells, raw.cells.first_bytes().astype(np.int64), _behind_keys(header.namespace, header.value))
        told = np.flatnonzero(sizes != UNTOLD)
        found.update(Cells(cells.data, cells.start[told], sizes[told]).binary().to_pylist())
    return found


def _behind_keys(namespace: FlinkType, value: FlinkType) -> dict[int, Sequence[FlinkType]]:
    """The types of what follows the key, by operation."""
    found: dict[int, Sequence[FlinkType]] = {each: [namespace, value] for each in (SET, SET_INTERNAL, ADD_ALL)}
    found |= {CLEAR: [namespace], MERGE: [namespace, namespace, ListOf(namespace)]}
    if isinstance(value, ListOf | MaskedListOf):
        found[ADD] = [namespace, value.element]
    if isinstance(value, MapOf):
        found |= {each: [namespace, value.key, value.value] for each in (ADD, PUT)}
        found[REMOVE] = [namespace, value.key]
    return found


def _raw_changes(reading: KeyedReading, stored: StoredKeyed, handle: ChangelogHandle) -> _Raw:
    assert stored.logged is not None
    numbers = stored.logged.numbers_of(reading.form.name, len(handle.changes))
    first = min((each for each, mine in numbers.items() if mine), default=len(handle.changes))
    groups: list[Ints] = [np.empty(0, np.int64)]
    parts: list[pa.Array] = [pa.array([], pa.binary())]
    for changes in read_changes(reading.files, handle.changes[first:]):
        kept = changes.groups >= 0
        if reading.form.kind != "timers":
            kept &= (changes.groups >= reading.first) & (changes.groups <= reading.last)
        cells = changes.cells.select(kept)
        cells.require(_HEAD, "a change", lambda found: damaged(reading.files.path, found))
        mine = np.isin(cells.numbers(1, ">i2"), list(numbers[first + changes.number]))
        if mine.any():
            groups.append(changes.groups[kept][mine])
            parts.append(cells.select(mine).copied())
    return _Raw(np.concatenate(groups), cells_of(pa.concat_arrays(parts)))


def _check(reading: KeyedReading, operations: Ints) -> None:
    known = OPERATIONS.get(reading.form.kind)
    if known is None and len(operations):
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{reading.origin}: found changes of a state of an unknown kind; take a canonical savepoint of the job",
        )
    strange = ~np.isin(operations, known or ())
    if not strange.any():
        return
    number = int(operations[strange.argmax()])
    if number > REMOVE:
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{reading.origin}: found operation {number} in the changelog, expected {CLEAR} to {REMOVE}: an old or a "
            "newer Flink wrote it; take a canonical savepoint of the job",
        )
    raise CorruptError(
        ErrorCode.FLINK_ROW,
        f"{reading.origin}: found operation {number} in the changelog, expected one of {known}; restore the file from "
        "a copy",
    )


def merged_namespaces(
    reading: KeyedReading, changes: LoggedChanges, namespace: FlinkType
) -> tuple[pa.Array, pa.ListArray]:
    """The namespace that each merge is into, and those that are merged, as bytes. All changes must be merges."""
    target, sources = decode_cells(
        [SpanOf(namespace), ListOf(SpanOf(namespace))], changes.payloads, [True, True], reading.origin
    )
    return target, sources

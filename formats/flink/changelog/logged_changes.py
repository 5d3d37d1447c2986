"""Changes of one state as columns.

    keyed state   op:byte | state:int16 | key | namespace | what the operation needs
    timers        op:byte | state:int16 | what the operation needs

Operations, with what they need: 0 clear; 1 and 2 set to a value; 3 add all elements of a list or entries of a map;
4 merge into a namespace: that namespace | count:int32 | the namespaces that are merged; 5 add an element, of timers
count:int32 | timers; 6 put an entry: map key | value; 7 remove a map key or a timer. Source: ``StateChangeOperation``
and the change appliers of Flink.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, UnsupportedError
from statestore.formats.flink.changelog.held_changes import RawChanges, joined_changes
from statestore.formats.flink.changelog.stored_entries import scopes
from statestore.formats.flink.changelog.unknown_keys import UNTOLD, key_sizes, untold_keys
from statestore.formats.flink.columns.decoding import decode_cells, divide_cells
from statestore.formats.flink.serializers.flink_types import (
    FlinkType,
    ListOf,
    MapOf,
    MaskedListOf,
    Opaque,
    Prefix,
    SpanOf,
)
from statestore.formats.flink.snapshot.handles import ChangelogHandle
from statestore.formats.flink.streams.change_sets import read_changes
from statestore.formats.flink.streams.keyed_columns import prefix_width
from statestore.formats.flink.streams.keyed_reading import KeyedReading
from statestore.formats.flink.streams.logged_states import HEAD_BYTES, check_described
from statestore.formats.flink.streams.state_form import is_opaque
from statestore.formats.flink.streams.stored_states import StoredKeyed
from statestore.formats.kernels.arrays import Bools, Bytes, Ints

CLEAR, SET, SET_INTERNAL, ADD_ALL, MERGE, ADD, PUT, REMOVE = range(8)
OPERATIONS = {
    "value": (CLEAR, SET, SET_INTERNAL),
    "reducing": (CLEAR, SET, SET_INTERNAL, MERGE),
    "aggregating": (CLEAR, SET, SET_INTERNAL, MERGE),
    "list": (CLEAR, SET, SET_INTERNAL, ADD_ALL, MERGE, ADD),
    "map": (CLEAR, ADD_ALL, ADD, PUT, REMOVE),
    "timers": (ADD, REMOVE),
}
_TOGETHER = 1 << 14
"""Changes that are divided at once: what is written down of them stays in the processor's cache."""


@dataclass(frozen=True)
class LoggedChanges:
    """Changes in the order in which they count. ``scopes`` are stored keys up to the map key, of timers nothing.

    In front of the payload of a timer, the data have room for the prefix of its stored key, which may be written to.
    """

    groups: Ints
    operations: Bytes
    scopes: Cells
    payloads: Cells

    def __len__(self) -> int:
        return len(self.groups)

    def select(self, which: Bools) -> LoggedChanges:
        """The changes where the mask is true."""
        scopes, payloads = self.scopes.select(which), self.payloads.select(which)
        return LoggedChanges(self.groups[which], self.operations[which], scopes, payloads)

    def are(self, *operations: int) -> Bools:
        """A mask of the changes of these operations."""
        found: Bools = self.operations == operations[0]
        for each in operations[1:]:
            found |= self.operations == each
        return found

    @property
    def adjoin(self) -> bool:
        """Return whether each scope and its payload follow one another in the same data."""
        scopes, payloads = self.scopes, self.payloads
        return scopes.data is payloads.data and np.array_equal(scopes.start + scopes.size, payloads.start)


def logged_changes(
    reading: KeyedReading,
    stored: StoredKeyed,
    handle: ChangelogHandle,
    kinds: Sequence[FlinkType],
    raw: RawChanges,
) -> LoggedChanges:
    """Divide the changes of the reading's state.

    ``kinds`` are those of a record of the heap: namespace, key and value, or a timer.

    Raises CorruptError FLINK_FILE and FLINK_ROW, UnsupportedError FLINK_OPAQUE where keys cannot be told from what
    follows, and FLINK_UNSUPPORTED.
    """
    width = prefix_width(reading.groups)
    _check(reading, raw.operations)
    cells = raw.cells.cut(width)
    if reading.form.kind == "timers":
        return LoggedChanges(raw.groups, raw.operations, cells, cells)
    namespace, key, value = kinds
    if is_opaque(key) and len(cells):
        behind = _behind_keys(namespace, value)
        sizes = key_sizes(cells, raw.operations, behind)
        if (sizes == UNTOLD).any():
            sizes = key_sizes(cells, raw.operations, behind, _told_keys(reading, stored, handle))
        if (sizes == UNTOLD).any():
            raise untold_keys(int((sizes == UNTOLD).sum()), reading.origin)
        keys = Cells(cells.data, cells.start, sizes)
        rest = Cells(cells.data, cells.start + sizes, cells.size - sizes)
        namespaces, payloads = divide_cells([namespace, Opaque("")], rest, reading.origin)
    elif not reading.form.ambiguous:
        sizes = _scope_sizes([Prefix(width), key, namespace, Opaque("")], raw.cells, reading.origin)
        payloads = Cells(cells.data, raw.cells.start + sizes, raw.cells.size - sizes)
        return LoggedChanges(raw.groups, raw.operations, Cells(cells.data, raw.cells.start, sizes), payloads)
    else:
        keys, namespaces, payloads = divide_cells([key, namespace, Opaque("")], cells, reading.origin)
    if reading.form.ambiguous:
        found = cells_of(scopes(reading.form, raw.groups, keys.binary(), namespaces.binary(), width))
    else:
        found = Cells(cells.data, raw.cells.start, payloads.start - raw.cells.start)
    return LoggedChanges(raw.groups, raw.operations, found, payloads)


def _scope_sizes(kinds: Sequence[FlinkType], cells: Cells, origin: str) -> Ints:
    """The bytes in front of the last part of each cell."""
    found = [np.empty(0, np.int64)]
    for first in range(0, len(cells), _TOGETHER):
        some = cells.select(slice(first, first + _TOGETHER))
        found.append(divide_cells(kinds, some, origin)[-1].start - some.start)
    return np.concatenate(found)


def _told_keys(reading: KeyedReading, stored: StoredKeyed, handle: ChangelogHandle) -> set[bytes]:
    """The keys that the changes of all states of the operator tell."""
    found: set[bytes] = set()
    for header in stored.header.states:
        if header.kind == "timers":
            continue
        other = replace(reading, form=replace(reading.form, name=header.name))
        raw = joined_changes(list(raw_changes(other, stored, handle)))
        cells = raw.cells.cut(prefix_width(reading.groups))
        sizes = key_sizes(cells, raw.operations, _behind_keys(header.namespace, header.value))
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


def raw_changes(reading: KeyedReading, stored: StoredKeyed, handle: ChangelogHandle) -> Iterator[RawChanges]:
    """Read the changes of the reading's state in its key groups, those of timers in all, in batches.

    Raises CorruptError FLINK_FILE, and the errors of `SnapshotFiles.open_at`.
    """
    assert stored.logged is not None
    names = stored.logged.names(len(handle.changes))
    name = reading.form.name
    first = next((at for at, each in enumerate(names) if name in each.values()), len(names))
    width = prefix_width(reading.groups)
    for changes in read_changes(reading.files, handle.changes[first:]):
        mine = changes.groups >= 0
        if reading.form.kind != "timers":
            mine &= (changes.groups >= reading.first) & (changes.groups <= reading.last)
        cells = changes.cells
        places = np.flatnonzero(mine)
        described = names[first + changes.number]
        found = check_described(cells.select(places), described, reading.files.path)
        places = places[np.isin(found, [number for number, each in described.items() if each == name])]
        if not len(places):
            continue
        chosen, groups = cells.select(places), changes.groups[places]
        octets, offsets = chosen.cut(HEAD_BYTES - width).content()
        octets = octets if octets.flags.writeable and octets.base is None else octets.copy()
        put_prefixes(octets, offsets[:-1], groups, width)
        yield RawChanges(groups, chosen.numbers(0, "u1"), Cells(octets, offsets[:-1], np.diff(offsets)))


def put_prefixes(data: Bytes, places: Ints, groups: Ints, width: int) -> None:
    """Write key groups as they begin stored keys, in ``width`` bytes at each place."""
    for each in range(width):
        data[places + each] = groups >> 8 * (width - 1 - each) & 0xFF


def _check(reading: KeyedReading, operations: Bytes) -> None:
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

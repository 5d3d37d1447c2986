"""Edits of one side of a stream-stream join, of state formats 1 to 3: the numbered rows of a key, and their count.

    keyToNumValues         key             -> value: the number n of its rows
    keyWithIndexToValue    key, index      -> the row, and from format 2 on whether it was matched; index is 0 .. n-1

They are two stores, or two column families of one. Neither the index nor ``matched`` is shown. Spark does not look at
the order of the rows of a key, and fills a hole with the last row; so does this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from statestore.formats.edits import StateEdit
from statestore.formats.kernels.arrays import Ints
from statestore.formats.spark.checkpoint.checkpoint import Checkpoint
from statestore.formats.spark.checkpoint.state_errors import corrupt_row, refused
from statestore.formats.spark.checkpoint.state_views import StateView, find_state_view, state_fields
from statestore.formats.spark.editable_states import COUNTS, NUMBERED
from statestore.formats.spark.edits.stored_edits import StoredEdit
from statestore.formats.spark.join_rows import (
    JoinedRow,
    SideRows,
    content_of,
    decoded_rows,
    fields_of,
    has_flag,
    recognised,
    stay_matched,
    successors,
    told_of_rows,
)
from statestore.formats.spark.rows.unsafe_row import struct_array
from statestore.formats.spark.state_edits import (
    ANEW,
    PlacedRows,
    as_shown,
    check_places,
    following_edits,
    looked_up,
)
from statestore.formats.spark.state_encoding import encode_keys_in, places_of, with_stored_zeros

_Keys = tuple[int, bytes]
"""The partition of a key and its stored form."""


@dataclass
class _Unit:
    """The rows of one key that are removed and added, by their numbers in the edit."""

    removed: list[int] = field(default_factory=list)
    added: list[int] = field(default_factory=list)


def join_edits(checkpoint: Checkpoint, side: StateView, edit: StateEdit) -> tuple[Sequence[StoredEdit], Sequence[str]]:
    """(the edits of stored rows, what the user has to know) of an edit of a side of a join.

    Raises InvalidInputError EDIT_REFUSED for rows that are not stored so, whose place is not certain, or of which it is
    not certain which row takes the place of which, and the errors of reads.
    """
    state = f"state {edit.state} of {checkpoint.root.path}"
    # Rows lie where the hash of the key says, in both stores.
    counts = replace(find_state_view(checkpoint, side.operator_id, f"{side.name}-{COUNTS}"), user=True)
    numbered = find_state_view(checkpoint, side.operator_id, f"{side.name}-{NUMBERED}")
    removed = _rows_of(checkpoint, side, counts, as_shown(side, edit.removed, state))
    shown = as_shown(side, edit.added, state)
    added = _rows_of(checkpoint, side, counts, with_stored_zeros(checkpoint, counts, shown))
    units = _units(removed, added)
    stored = _stored(checkpoint, side, numbered, removed, units, state)
    for partition in sorted({place for (place, _), unit in units.items() if not unit.removed}):
        check_places(checkpoint, counts, partition, state)
    before, after = _counts(counts, removed, units, "removed"), _counts(counts, added, units, "added")
    found = following_edits(checkpoint, counts, edit.state, before, after)
    before, after, matched = _numbered(side, numbered, removed, added, units, stored, state)
    found += following_edits(checkpoint, numbered, edit.state, before, after)
    notes = [f"{state}: the rows of each key are numbered and counted anew ({counts.name})."]
    return found, [*notes, *told_of_rows(checkpoint, side, numbered, edit, state, matched)]


def _rows_of(checkpoint: Checkpoint, side: StateView, counts: StateView, rows: pa.Table) -> SideRows:
    partition = places_of(checkpoint, counts, rows)
    stored_keys = encode_keys_in(checkpoint, counts, rows, partition).copied(corrupt_row).to_pylist()
    key, values = (fields_of(rows.column(number)) for number in range(2))
    return SideRows(key, values, partition, stored_keys, content_of(values, side.value, rows.num_rows))


def _units(removed: SideRows, added: SideRows) -> Mapping[_Keys, _Unit]:
    units: dict[_Keys, _Unit] = {}
    for number, place in enumerate(removed.places()):
        units.setdefault(place, _Unit()).removed.append(number)
    for number, place in enumerate(added.places()):
        units.setdefault(place, _Unit()).added.append(number)
    return units


def _counts(counts: StateView, rows: SideRows, units: Mapping[_Keys, _Unit], which: str) -> PlacedRows:
    """The counted rows of each key that has some."""
    owners: list[list[int]] = [found for unit in units.values() if (found := getattr(unit, which))]
    firsts = [found[0] for found in owners]
    number = pa.array([len(found) for found in owners], pa.int64())
    return _placed(counts, [column.take(pa.array(firsts, pa.int64())) for column in rows.keys], [number], rows, firsts)


def _placed(
    view: StateView, keys: Sequence[pa.Array], values: Sequence[pa.Array], rows: SideRows, owners: list[int]
) -> PlacedRows:
    family = view.family
    columns = [struct_array(list(keys), family.key, len(owners)), struct_array(list(values), family.value, len(owners))]
    table = pa.Table.from_arrays(columns, schema=pa.schema(state_fields(view)))
    return PlacedRows(table, rows.partition[np.array(owners, np.int64)])


# Numbered rows


def _stored(
    checkpoint: Checkpoint,
    side: StateView,
    numbered: StateView,
    removed: SideRows,
    units: Mapping[_Keys, _Unit],
    state: str,
) -> Mapping[_Keys, list[JoinedRow]]:
    """The stored rows of each key, by their index; as many as the edit removes, which the count is compared with."""
    indexes = np.zeros(len(removed.stored_keys), np.int64)
    for unit in units.values():
        indexes[unit.removed] = np.arange(len(unit.removed))
    # Their values are not those of these indexes; only the keys are of use.
    of_index = _with_index(removed, np.arange(len(indexes)), indexes)
    rows = pa.table([struct_array(of_index, numbered.family.key, len(indexes))], names=["key"])
    keys = encode_keys_in(checkpoint, numbered, rows, removed.partition).copied(corrupt_row)
    found: dict[_Keys, list[JoinedRow]] = {}
    known: dict[tuple[int, bytes], tuple[bytes, bool]] = {}
    for partition in np.unique(removed.partition).tolist():
        mine = pa.array(np.flatnonzero(removed.partition == partition))
        batch = looked_up(checkpoint, numbered, partition, keys.take(mine))
        rows_of_keys = decoded_rows(checkpoint, side, numbered, partition, batch)
        for key, row in zip(batch.column(0).to_pylist(), rows_of_keys, strict=True):
            known[partition, key] = row
    of_rows = keys.to_pylist()
    for place, unit in units.items():
        rows_of_key = [known.get((place[0], of_rows[number])) for number in unit.removed]
        if None in rows_of_key:
            raise refused(
                f"{state}: row {rows_of_key.index(None)} of a key, of which the edit removes or changes "
                f"{len(rows_of_key)}, is not stored in partition {place[0]}; {ANEW}"
            )
        found[place] = [JoinedRow(index, *row) for index, row in enumerate(rows_of_key) if row is not None]
    return found


def _with_index(rows: SideRows, owners: Ints, indexes: Ints) -> list[pa.Array]:
    return [*(column.take(pa.array(owners)) for column in rows.keys), pa.array(indexes, pa.int64())]


@dataclass
class _Written:
    """Numbered rows: the row of the edit whose key and values each has, its index, whether it was matched."""

    owners: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    matched: list[bool] = field(default_factory=list)

    def add(self, owner: int, index: int, matched: bool) -> None:
        self.owners.append(owner)
        self.indexes.append(index)
        self.matched.append(matched)

    def placed(self, side: StateView, numbered: StateView, rows: SideRows) -> PlacedRows:
        owners = np.array(self.owners, np.int64)
        keys = _with_index(rows, owners, np.array(self.indexes, np.int64))
        values = [column.take(pa.array(owners)) for column in rows.values]
        flags = [pa.array(self.matched, pa.bool_())] if has_flag(side, numbered) else []
        return _placed(numbered, keys, [*values, *flags], rows, self.owners)


def _numbered(
    side: StateView,
    numbered: StateView,
    removed: SideRows,
    added: SideRows,
    units: Mapping[_Keys, _Unit],
    stored: Mapping[_Keys, list[JoinedRow]],
    state: str,
) -> tuple[PlacedRows, PlacedRows, int]:
    """The numbered rows of all keys before and after the edit, and how many of these replace rows that were matched."""
    before, after, matched = _Written(), _Written(), 0
    for place, unit in units.items():
        old = recognised([removed.content[number] for number in unit.removed], stored[place], state)
        for number, was in zip(unit.removed, old, strict=True):
            before.add(number, was.index, was.matched)
        replaced = successors(old, [added.content[number] for number in unit.added], state)
        matched += stay_matched(replaced, [added.content[number] for number in unit.added])
        for number, index, row in zip(unit.added, _indexes(replaced), replaced, strict=True):
            after.add(number, index, row is not None and row.matched)
    return before.placed(side, numbered, removed), after.placed(side, numbered, added), matched


def _indexes(replaced: list[JoinedRow | None]) -> list[int]:
    """The index of each added row of a key, 0 .. n-1: its own one where it can stay."""
    count = len(replaced)
    own = [row.index if row is not None and row.index < count else None for row in replaced]
    free = iter(sorted(set(range(count)) - {index for index in own if index is not None}))
    return [next(free) if index is None else index for index in own]

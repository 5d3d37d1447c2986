"""Stored entries with the changes of an edit made to them, while they stream from a source to a target.

Keys are decoded batch by batch, and only of states that are edited. What is not changed passes as the bytes that it was
read as. Entries are looked at one by one only where the edit meets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of, joined_cells
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.changelog.stored_entries import joined_bytes, prefixes
from statestore.formats.flink.columns.column_bytes import column_bytes
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.columns.renewed_bytes import decoded, renewed, renewed_element
from statestore.formats.flink.columns.written_rows import NoBytesError
from statestore.formats.flink.edits.keyed_stream import Entries, Section
from statestore.formats.flink.edits.list_changes import ListChanges, joined_elements
from statestore.formats.flink.edits.state_changes import StateChanges, has_positions, unsupported
from statestore.formats.flink.serializers.flink_types import Joined, Nullable, SpanOf
from statestore.formats.flink.streams.keyed_columns import stored_element, stored_keys
from statestore.formats.kernels.arrays import Bools, Ints
from statestore.formats.values.without_pandas import arrow_bytes


@dataclass(frozen=True)
class Changing:
    """The changes of one subtask, by the number of the state in its header; ``met`` are those that were found there,
    or are now there.
    """

    changes: Mapping[int, StateChanges]
    met: Mapping[int, Bools]


def changing(changes: Mapping[int, StateChanges]) -> Changing:
    """Changes none of which has been met."""
    return Changing(changes, {number: np.zeros(len(each), bool) for number, each in changes.items()})


def changed_groups(
    work: Changing, found: Iterable[tuple[int, Iterable[Section]]], first_group: int, groups: int
) -> Iterator[tuple[int, Iterator[Section]]]:
    """Yield the key groups, with those that get their first entries, and the sections of each as changed.

    Raises InvalidInputError EDIT_REFUSED for an addition of what is stored already, UnsupportedError EDIT_UNSUPPORTED
    for stored bytes that hold more than can be written, and the errors of the rows.
    """
    own = range(first_group, first_group + groups)
    waiting = sorted({group for each in work.changes.values() for group in each.new_groups() if group in own})
    for group, sections in found:
        while waiting and waiting[0] < group:
            yield waiting[0], _sections(work, waiting.pop(0), ())
        if waiting and waiting[0] == group:
            waiting.pop(0)
        yield group, _sections(work, group, sections)
    for group in waiting:
        yield group, _sections(work, group, ())


def _sections(work: Changing, group: int, sections: Iterable[Section]) -> Iterator[Section]:
    """Yield the sections of a key group, behind them those of states without entries so far.

    The heap writes states in any order, so only the end of a key group says which ones have no entries.
    """
    new = {number: each.new_in(group) for number, each in work.changes.items() if len(each.new_in(group))}
    for number, batches in sections:
        if number not in work.changes:
            yield number, batches
            continue
        passed = _changed(work, number, batches)
        yield number, _with_new(work, number, group, new.pop(number), passed) if number in new else passed
    for number in sorted(new):
        yield number, _with_new(work, number, group, new[number], ())


def _with_new(work: Changing, number: int, group: int, new: Ints, batches: Iterable[Entries]) -> Iterator[Entries]:
    """Yield all entries of a state in a key group as one batch, in the order of their keys, with those that are new."""
    changes, met = work.changes[number], work.met[number]
    parts = list(batches)
    left = new[~met[new]]
    met[left] = True
    stored = prefixes(np.full(len(left), group), changes.width)
    own = joined_bytes([stored, changes.keys.take(pa.array(left))])
    values = changes.values.take(pa.array(left))
    if has_positions(changes.form):
        values = _lists_of(changes).new(left)
    keys = joined_cells([*(keys for keys, _ in parts), cells_of(own)])
    every = joined_cells([*(found for _, found in parts), cells_of(values)])
    order = np.asarray(pc.sort_indices(keys.copied()))
    yield keys.select(order), every.select(order)


def _changed(work: Changing, number: int, batches: Iterable[Entries]) -> Iterator[Entries]:
    changes, met = work.changes[number], work.met[number]
    for keys, values in batches:
        found = changes.found(_key_columns(changes, keys))
        rows = np.flatnonzero(found >= 0)
        if not len(rows):
            yield keys, values
            continue
        met[found[rows]] = True
        yield _applied(changes, found, rows, keys, values)


def _key_columns(changes: StateChanges, keys: Cells) -> dict[str, pa.Array]:
    columns = stored_keys(changes.form, keys, changes.width, changes.names, changes.origin)
    for name in changes.names:
        columns.setdefault(name, pa.nulls(len(keys)))  # void, which no row lacks
    return columns


def _applied(changes: StateChanges, found: Ints, rows: Ints, keys: Cells, values: Cells) -> Entries:
    if has_positions(changes.form):
        written = [_list(changes, int(found[row]), values.select(slice(row, row + 1))) for row in rows.tolist()]
        kept = np.ones(len(keys), bool)
        kept[rows] = [bool(each) for each in written]
        rows, new = rows[kept[rows]], arrow_bytes([each for each in written if each])
    else:
        mine = found[rows]
        stored = mine[~changes.removed[mine]]
        if len(stored):
            raise changes.refused(int(stored[0]), "is stored already; change it, or remove it in the same edit")
        kept = np.ones(len(keys), bool)
        kept[rows] = changes.added[mine]
        rows, mine = rows[kept[rows]], mine[kept[rows]]
        if changes.given:
            met = zip(rows.tolist(), mine.tolist(), strict=True)
            new = arrow_bytes([_renewed(changes, values.cell(row), number) for row, number in met])
        else:
            if changes.form.kind != "timers" and len(rows):
                _check_bytes(changes, values.select(rows))
            new = changes.values.take(pa.array(mine))
    if len(rows):
        replaced = np.zeros(len(keys), bool)
        replaced[rows] = True
        values = cells_of(pc.replace_with_mask(values.copied(), pa.array(replaced), new))
    return keys.select(kept), values.select(kept)


def _renewed(changes: StateChanges, old: bytes, number: int) -> bytes:
    """The bytes of a value in the place of a stored one. Raises UnsupportedError EDIT_UNSUPPORTED."""
    try:
        return renewed(stored_element(changes.form), old, changes.given[number])
    except NoBytesError as error:
        raise _unchangeable(changes, error) from error


def _unchangeable(changes: StateChanges, error: NoBytesError) -> UnsupportedError:
    return unsupported(
        changes.origin,
        f"a value cannot be changed: {error}; remove the row, or change it with Flink's State Processor API",
    )


def _check_bytes(changes: StateChanges, old: Cells) -> None:
    """Check that values, or elements, that are changed held no more than can be written.

    Raises UnsupportedError EDIT_UNSUPPORTED.
    """
    kind = stored_element(changes.form)
    (column,) = decode_cells([kind], old, [True], changes.origin)
    column = pa.nulls(len(old)) if column is None else column
    try:
        again = column_bytes(kind, column)
    except NoBytesError as error:
        raise _unchangeable(changes, error) from error
    differs = np.asarray(pc.not_equal(again, old.copied()))
    if isinstance(kind, Nullable):  # what follows a null is not read
        differs &= ~np.asarray(column.is_null())
    if differs.any():
        stored = old.cell(int(differs.argmax()))[:40].hex()
        raise unsupported(
            changes.origin,
            f"a value cannot be changed, because its bytes {stored} hold more than its columns show, such as the kind "
            "of a row or a subclass; remove the row, or change it with Flink's State Processor API",
        )


def _list(changes: StateChanges, number: int, value: Cells) -> bytes:
    """The stored value of a list as changed; no bytes where it has no element any more."""
    change = _lists_of(changes).of(number)
    if changes.form.packed:
        return _packed_list(changes, number, value)
    elements = _elements(changes, value)
    beyond = [place for place in change.removed if place >= len(elements)]
    if beyond:
        raise changes.refused(number, f"has {len(elements)} elements, and none at position {beyond[0]}")
    new = {place: octets for place, octets in enumerate(elements) if place not in change.removed}
    taken = sorted(place for place in change.added if place in new)
    if taken:
        raise changes.refused(
            number,
            f"has an element at position {taken[0]} already; move that and those behind it in the same edit, or add "
            "behind the last one",
        )
    if change.given:
        return joined_elements(new | _renewed_elements(changes, elements, change.given))
    altered = sorted(place for place in change.added if place in change.removed)
    if altered:
        _check_bytes(changes, cells_of(arrow_bytes([elements[place] for place in altered])))
    return joined_elements(new | dict(change.added))


def _renewed_elements(changes: StateChanges, old: Sequence[bytes], given: Mapping[int, Any]) -> dict[int, bytes]:
    """The bytes of elements that come to a stored list. Raises UnsupportedError EDIT_UNSUPPORTED."""
    kind = stored_element(changes.form)
    before = [decoded(kind, octets) for octets in old]
    try:
        return {place: renewed_element(kind, old, before, place, value) for place, value in given.items()}
    except NoBytesError as error:
        raise _unchangeable(changes, error) from error


def _elements(changes: StateChanges, value: Cells) -> list[bytes]:
    (lists,) = decode_cells([Joined(SpanOf(stored_element(changes.form)))], value, [True], changes.origin)
    assert lists is not None
    found: list[bytes] = lists[0].as_py()
    return found


def _packed_list(changes: StateChanges, number: int, value: Cells) -> bytes:
    """No bytes for a list of packs that is removed as a whole. Raises UnsupportedError EDIT_UNSUPPORTED for others."""
    (lists,) = decode_cells([Joined(stored_element(changes.form))], value, [True], changes.origin)
    assert lists is not None
    packs = pc.struct_field(lists.values, ["value"]) if changes.form.has_ttl else lists.values
    change = _lists_of(changes).of(number)
    if change.added or change.removed != frozenset(range(pc.sum(pc.list_value_length(packs)).as_py())):
        raise unsupported(
            changes.origin,
            "elements of this list are stored in packs, of which an edit can only remove all: remove the whole list "
            f"of {changes.named(number)}, or leave it as it is",
        )
    return b""


def _lists_of(changes: StateChanges) -> ListChanges:
    assert changes.lists is not None
    return changes.lists

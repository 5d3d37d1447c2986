"""Stored entries with the changes of an edit made to them, while they stream from a source to a target.

Keys are decoded batch by batch, and only of states that are edited. What is not changed passes as the bytes that it was
read as. Entries are looked at one by one only where the edit meets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of, joined_cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.flink.changelog.stored_entries import joined_bytes, prefixes
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.columns.value_bytes import plain_values, value_bytes
from statestore.formats.flink.columns.written_rows import NoBytesError
from statestore.formats.flink.edits.keyed_stream import Entries, Section
from statestore.formats.flink.edits.state_changes import EntryChange, StateChanges, unsupported
from statestore.formats.flink.serializers.flink_types import FlinkType, Joined, Nullable, SpanOf
from statestore.formats.flink.snapshot.rocksdb_copy import DELIMITER
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
    return Changing(changes, {number: np.zeros(len(each.entries), bool) for number, each in changes.items()})


def changed_groups(
    work: Changing, found: Iterable[tuple[int, Iterable[Section]]], first_group: int, groups: int
) -> Iterator[tuple[int, Iterator[Section]]]:
    """Yield the key groups, with those that get their first entries, and the sections of each as changed.

    Raises InvalidInputError EDIT_REFUSED for an addition of what is stored already and for lists with holes,
    UnsupportedError EDIT_UNSUPPORTED for stored bytes that hold more than can be written, and the errors of the rows.
    """
    own = range(first_group, first_group + groups)
    numbers = {each.group for one in work.changes.values() for each in one.entries if each.may_be_new}
    waiting = sorted(group for group in numbers if group is not None and group in own)
    for group, sections in found:
        while waiting and waiting[0] < group:
            yield waiting[0], _sections(work, waiting.pop(0), ())
        if waiting and waiting[0] == group:
            waiting.pop(0)
        yield group, _sections(work, group, sections)
    for group in waiting:
        yield group, _sections(work, group, ())


def _sections(work: Changing, group: int, sections: Iterable[Section]) -> Iterator[Section]:
    """Yield the sections of a key group, those of states without entries so far among them."""
    new = {number: numbers for number, each in work.changes.items() if (numbers := each.new_in(group))}
    for number, batches in sections:
        for other in sorted(each for each in new if each < number):
            yield other, _with_new(work, other, group, new.pop(other), ())
        if number not in work.changes:
            yield number, batches
            continue
        passed = _changed(work, number, batches)
        yield number, _with_new(work, number, group, new.pop(number), passed) if number in new else passed
    for number in sorted(new):
        yield number, _with_new(work, number, group, new[number], ())


def _with_new(
    work: Changing, number: int, group: int, new: Sequence[int], batches: Iterable[Entries]
) -> Iterator[Entries]:
    """Yield all entries of a state in a key group as one batch, in the order of their keys, with those that are new."""
    changes = work.changes[number]
    parts = list(batches)
    left = [each for each in new if not work.met[number][each]]
    work.met[number][left] = True
    added = [changes.entries[each] for each in left]
    stored = prefixes(np.full(len(added), group), changes.width)
    own = joined_bytes([stored, arrow_bytes([each.key for each in added])])
    values = arrow_bytes([_joined(changes, each, each.added) for each in added])
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
    gone = np.array([not each.added for each in changes.entries], bool)
    is_list = changes.form.kind == "list" and not changes.form.whole
    kept = np.ones(len(keys), bool)
    if not is_list:
        kept[rows[gone[found[rows]]]] = False
        rows = rows[~gone[found[rows]]]
        if len(rows):
            _check_written(changes, values.select(rows))
    written: list[bytes] = []
    replaced = np.zeros(len(keys), bool)
    for row in rows.tolist():
        change = changes.entries[int(found[row])]
        if is_list:
            value = _list(changes, change, values.select(slice(row, row + 1)))
        else:
            if change.may_be_new:
                raise _refused(changes, change, "is stored already; change it, or remove it in the same edit")
            value = change.added[0]
        if value:
            written.append(value)
            replaced[row] = True
        elif is_list:
            kept[row] = False
    if written:
        column = pc.replace_with_mask(values.copied(), pa.array(replaced), arrow_bytes(written))
        values = cells_of(column)
    return keys.select(kept), values.select(kept)


def _check_written(changes: StateChanges, old: Cells) -> None:
    """Check that values that are changed held no more than can be written.

    Raises UnsupportedError EDIT_UNSUPPORTED.
    """
    if changes.form.kind == "timers":
        return
    _check_bytes(changes, stored_element(changes.form), old)


def _check_bytes(changes: StateChanges, kind: FlinkType, old: Cells) -> None:
    (column,) = decode_cells([kind], old, [True], changes.origin)
    plain = [None] * len(old) if column is None else plain_values(column)
    for number, value in enumerate(plain):
        stored = old.cell(number)
        try:
            again = value_bytes(kind, value)
        except NoBytesError as error:
            raise unsupported(changes.origin, f"a value cannot be changed: {error}") from error
        if again != stored and not (isinstance(kind, Nullable) and value is None):
            raise unsupported(
                changes.origin,
                f"a value cannot be changed, because its bytes {stored[:40].hex()} hold more than its columns show, "
                "such as the kind of a row or a subclass; remove the row, or change it with Flink's State Processor "
                "API",
            )


def _list(changes: StateChanges, change: EntryChange, value: Cells) -> bytes:
    """The stored value of a list as changed; no bytes where it has no element any more."""
    elements = _elements(changes, value)
    beyond = [place for place in change.removed if place >= len(elements)]
    if beyond:
        raise _refused(changes, change, f"has {len(elements)} elements, and none at position {beyond[0]}")
    new = {place: octets for place, octets in enumerate(elements) if place not in change.removed}
    taken = sorted(place for place in change.added if place in new)
    if taken:
        raise _refused(changes, change, f"has an element at position {taken[0]} already; add behind its last one")
    altered = sorted(place for place in change.added if place in change.removed)
    if altered:
        spans = cells_of(arrow_bytes([elements[place] for place in altered]))
        _check_bytes(changes, stored_element(changes.form), spans)
    return _joined(changes, change, new | dict(change.added))


def _elements(changes: StateChanges, value: Cells) -> list[bytes]:
    (lists,) = decode_cells([Joined(SpanOf(stored_element(changes.form)))], value, [True], changes.origin)
    assert lists is not None
    found: list[bytes] = lists[0].as_py()
    return found


def _joined(changes: StateChanges, change: EntryChange, parts: Mapping[int, bytes]) -> bytes:
    """The stored value of these parts: of the elements of a list, in the order of their positions."""
    missing = next((number for number, place in enumerate(sorted(parts)) if number != place), None)
    if missing is not None:
        raise _refused(
            changes,
            change,
            f"would have no element at position {missing} and one behind it; remove the last elements of a list, or "
            "its whole key, or give the elements that stay new positions: 0, 1, 2",
        )
    return DELIMITER.join(parts[place] for place in sorted(parts))


def _refused(changes: StateChanges, change: EntryChange, why: str) -> InvalidInputError:
    row = ", ".join(f"{name}={change.row[name]!r:.80}" for name in changes.names if name in change.row)
    return InvalidInputError(ErrorCode.EDIT_REFUSED, f"{changes.origin}: the entry {row or 'of an edit'} {why}")

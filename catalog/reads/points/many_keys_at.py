"""Many keys at one moment: rows of a segment that are valid then, found and read by arrays instead of one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.points.segment_probe import OpenedSegment, key_form
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.canonical import from_arrow
from statestore.formats.values.key_equality import keys_equal

Columns = Sequence[pa.Array]
ROW_BITS = (1 << 32) - 1


class FoundRows(NamedTuple):
    """Rows of one segment, ascending: the number of the key of each, its start and its newest end in microseconds."""

    opened: OpenedSegment
    numbers: Ints
    rows: Ints
    starts: Ints
    ends: Ints

    def open_only(self) -> FoundRows:
        """Return these rows without those that have an end."""
        is_open = self.ends == OPEN
        return FoundRows(self.opened, *(column[is_open] for column in self[1:]))


def entries_of(opened: OpenedSegment, hashes: Hashes) -> tuple[Ints, Ints]:
    """Return the positions in ``hashes`` (ascending) that a segment has, and the first entry of each in its index."""
    entries = np.frombuffer(opened.probe.hashes, np.uint64)
    at = entries.searchsorted(hashes)
    hits = np.flatnonzero(entries.take(at, mode="clip") == hashes)
    return hits, at[hits]


def rows_at(opened: OpenedSegment, first: Ints, numbers: Ints, keys: Columns, moment: int) -> FoundRows | None:
    """Return the rows valid at a moment of the keys ``numbers`` of ``keys``; None if there are none.

    The entries of each key's hash begin at ``first``.
    """
    views = opened.probe
    entries = np.frombuffer(views.hashes, np.uint64)
    rows_of = np.frombuffer(views.rows, np.uint32)
    starts_of, ends_of = (np.frombuffer(view, np.int64) for view in (views.starts, views.ends))
    at = _last_started(entries, rows_of, starts_of, first, moment)
    found: list[tuple[Ints, Ints, Ints, Ints]] = []
    # The versions of a key do not overlap: one that has ended leaves none of the older ones.
    while True:
        left = at >= first
        if not left.all():
            at, first, numbers = at[left], first[left], numbers[left]
        if not len(at):
            break
        rows = rows_of[at].astype(np.int64)
        starts, ends = starts_of[rows], ends_of[rows]
        ends = _newest(opened, rows, ends)
        mine = _are_keys(opened, rows, keys, numbers)
        valid = mine & (moment < ends)
        found.append((numbers[valid], rows[valid], starts[valid], ends[valid]))
        older = ~(mine & ((moment < ends) | (starts < ends)))
        at, first, numbers = at[older] - 1, first[older], numbers[older]
    if not any(len(part[0]) for part in found):
        return None
    columns = found[0] if len(found) == 1 else tuple(np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(columns[1])
    return FoundRows(opened, *(column[order] for column in columns))


def _last_started(entries: Hashes, rows_of: Any, starts_of: Ints, first: Ints, moment: int) -> Ints:
    """Return the last entry of each hash whose row has started at a moment; one less than ``first`` where none has."""
    at: Ints = first - (starts_of[rows_of[first]] > moment)
    going_on = np.flatnonzero((at == first) & (first + 1 < len(entries)))
    going_on = going_on[entries[first[going_on] + 1] == entries[first[going_on]]]
    if not len(going_on):
        return at
    low = first[going_on] + 1
    high = entries.searchsorted(entries[low], "right")
    while True:
        open_ = low < high
        if not open_.any():
            break
        middle = (low + high) >> 1
        started = open_ & (starts_of[rows_of.take(middle, mode="clip")] <= moment)
        low = np.where(started, middle + 1, low)
        high = np.where(open_ & ~started, middle, high)
    at[going_on] = low - 1
    return at


def rows_of_places(opened: OpenedSegment, places: Ints, numbers: Ints, keys: Columns) -> tuple[FoundRows, Ints]:
    """Return the rows of one segment that compiled code found, and the numbers of the keys that are not theirs.

    ``places`` ascend, and end with 32 bits for the row.
    """
    rows = places & ROW_BITS
    mine = _are_keys(opened, rows, keys, numbers)
    others = numbers[~mine]
    if len(others):
        rows, numbers = rows[mine], numbers[mine]
    starts, ends = (np.frombuffer(view, np.int64)[rows] for view in (opened.probe.starts, opened.probe.ends))
    return FoundRows(opened, numbers, rows, starts, _newest(opened, rows, ends)), others


def _newest(opened: OpenedSegment, rows: Ints, ends: Ints) -> Ints:
    """Return the newest ends of rows, in place of their stored ends."""
    for layer_rows, layer_ends in opened.layers:
        at = layer_rows.searchsorted(rows)
        closed = np.flatnonzero(layer_rows.take(at, mode="clip") == rows)
        ends[closed] = layer_ends[at[closed]]
    return ends


def _are_keys(opened: OpenedSegment, rows: Ints, keys: Columns, numbers: Ints) -> Any:
    """Return whether each row has the key of its number."""
    order = np.argsort(rows)
    ascending = rows[order]
    equal = np.empty(len(rows), np.bool_)
    if opened.keys.is_scattered(ascending) and len(keys) == 1 and key_form(opened.key_schema) is not None:
        forms = keys[0].cast(pa.binary()).take(pa.array(numbers)).to_pylist()
        equal[:] = list(map(opened.probe.is_key, rows.tolist(), forms))
    else:
        cells = opened.keys.take(ascending)
        equal[order] = keys_equal(cells, np.arange(len(rows)), keys, numbers[order])
    return equal


def values_of(schema: pa.Schema, parts: Sequence[FoundRows], to_user: Callable[[tuple[Any, ...]], Any]) -> list[Any]:
    """Return the values of the rows of all parts as users see them, in the order of the parts and their rows."""
    if not len(schema):
        return [to_user(()) for part in parts for _ in part.rows]
    values: list[Any] = []
    for part in parts:
        if part.opened.values.is_scattered(part.rows):
            values += map(part.opened.probe.shown, part.rows.tolist())
        else:
            values += _shown(schema, part.opened.values.take(part.rows), to_user)
    return values


def _shown(schema: pa.Schema, columns: Columns, to_user: Callable[[tuple[Any, ...]], Any]) -> list[Any]:
    lists = [_python_values(column) for column in columns]
    if any(pa.types.is_nested(field.type) for field in schema):
        return list(map(to_user, zip(*lists, strict=True)))
    if len(lists) == 1:
        return lists[0]
    return _dicts(tuple(schema.names), lists)


def _dicts(names: tuple[str, ...], lists: Sequence[list[Any]]) -> list[Any]:
    """Return a dict for each row; short ones are written out, because a call for each row costs as much as the dict."""
    if len(names) == 2:
        a, b = names
        return [{a: x, b: y} for x, y in zip(*lists, strict=True)]
    if len(names) == 3:
        a, b, c = names
        return [{a: x, b: y, c: z} for x, y, z in zip(*lists, strict=True)]
    if len(names) == 4:
        a, b, c, d = names
        return [{a: w, b: x, c: y, d: z} for w, x, y, z in zip(*lists, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


def _python_values(column: pa.Array) -> list[Any]:
    """Return the canonical values of a column, None for null."""
    kind, types = column.type, pa.types
    if types.is_string(kind) or types.is_binary(kind):
        return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]
    if (types.is_signed_integer(kind) or types.is_floating(kind)) and not column.null_count:
        return column.to_numpy().tolist()  # type: ignore[no-any-return]
    convert = from_arrow(kind)
    cells: list[Any] = column.to_pylist()
    return cells if convert is None else [convert(cell) for cell in cells]

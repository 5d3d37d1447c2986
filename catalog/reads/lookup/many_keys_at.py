"""Many keys, each at a moment: rows of a segment that are valid then, found and read by arrays, not one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.catalog.reads.belief import valid_rows
from statestore.catalog.reads.lookup.segment_probe import OpenedSegment, key_form
from statestore.formats.kernels.arrays import Hashes, Ints
from statestore.formats.segments.segment_meta import OPEN
from statestore.formats.values.canonical import from_arrow
from statestore.formats.values.key_equality import keys_equal

Columns = Sequence[pa.Array]
ROW_MASK = (1 << 32) - 1


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


def rows_at(opened: OpenedSegment, first: Ints, numbers: Ints, keys: Columns, moments: Ints) -> FoundRows | None:
    """Return the rows of the keys ``numbers`` of ``keys`` that are valid at the moment of each; None without any.

    The entries of each key's hash begin at ``first``.
    """
    found = valid_rows(
        np.frombuffer(opened.probe.hashes, np.uint64),
        opened.probe,
        first,
        moments,
        lambda ends, rows: _close(opened, ends, rows),
        lambda rows, mine: _are_keys(opened, rows, keys, numbers[mine]),
    )
    return None if found is None else FoundRows(opened, numbers[found[0]], *found[1:])


def rows_of_places(opened: OpenedSegment, places: Ints, numbers: Ints, keys: Columns) -> tuple[FoundRows, Ints]:
    """Return the rows of one segment that compiled code found, and the numbers of the keys that are not theirs.

    ``places`` ascend, and end with 32 bits for the row.
    """
    rows = places & ROW_MASK
    mine = _are_keys(opened, rows, keys, numbers)
    others = numbers[~mine]
    if len(others):
        rows, numbers = rows[mine], numbers[mine]
    starts, ends = opened.probe.starts.take(rows), opened.probe.ends.take(rows)
    _close(opened, ends, rows)
    return FoundRows(opened, numbers, rows, starts, ends), others


def _close(opened: OpenedSegment, ends: Ints, rows: Ints) -> None:
    """Put the newest ends of these rows in the place of their stored ends."""
    if opened.closures:
        opened.pending.update(ends, rows, len(opened.closures))


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

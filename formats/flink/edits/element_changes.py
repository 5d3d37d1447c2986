"""Changes of operator state: elements of a subtask's list, and entries of a broadcast map.

Elements and entries that an edit does not name keep their bytes. The elements of a list are in the order of their
positions, and numbered anew. A map is one stored element: the number of its entries, and each key with its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.bytes.byte_columns import Cells, cells_of
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import InvalidInputError
from statestore.formats.flink.changelog.stored_entries import joined_bytes
from statestore.formats.flink.columns.column_bytes import column_bytes
from statestore.formats.flink.columns.decoding import decode_cells
from statestore.formats.flink.columns.written_rows import NoBytesError
from statestore.formats.flink.edits.key_search import columns_of, one_array, search_of
from statestore.formats.flink.edits.new_entries import NotWrittenError, written_cells
from statestore.formats.flink.edits.state_changes import unsupported
from statestore.formats.flink.layouts.type_layouts import has_column
from statestore.formats.flink.serializers.flink_types import FlinkType
from statestore.formats.flink.streams.operator_rows import SUBTASK, OperatorForm, map_cells
from statestore.formats.flink.streams.state_form import MAP_KEY, MAP_VALUE, POSITION, VALUE


@dataclass(frozen=True, eq=False)
class ElementChanges:
    """The rows of an operator state that go, and those that come; ``origin`` names the state in errors."""

    form: OperatorForm
    removed: pa.Table
    added: pa.Table
    origin: str

    @cached_property
    def written(self) -> pa.BinaryArray:
        """The bytes of each row that comes: of a list the element, of a map the key and the value.

        Raises UnsupportedError EDIT_UNSUPPORTED for types that are not written.
        """
        form, rows = self.form, self.added
        if not rows.num_rows:
            return pa.array([], pa.binary())
        if form.versioned:
            raise unsupported(self.origin, "elements with a version of a serializer cannot be written; remove rows")
        try:
            if form.key is None:
                return self._column(VALUE, form.value, rows)
            return joined_bytes([self._column(MAP_KEY, form.key, rows), self._column(MAP_VALUE, form.value, rows)])
        except NotWrittenError as error:
            raise unsupported(self.origin, str(error)) from error

    @staticmethod
    def _column(name: str, kind: FlinkType, rows: pa.Table) -> pa.BinaryArray:
        column = one_array(rows, name) if has_column(kind) else pa.nulls(rows.num_rows)
        return written_cells(name, kind, kind, column)

    # Lists

    def of_subtask(self, subtask: int, elements: pa.BinaryArray) -> pa.BinaryArray:
        """The elements of a subtask's list as changed. Raises InvalidInputError EDIT_REFUSED."""
        gone = self.removed.filter(pc.equal(self.removed.column(SUBTASK), subtask))
        mine = np.asarray(pc.equal(one_array(self.added, SUBTASK), subtask).fill_null(False))
        if not gone.num_rows and not mine.any():
            return elements
        places = one_array(gone, POSITION).to_numpy(zero_copy_only=False).astype(np.int64)
        beyond = places[(places < 0) | (places >= len(elements))]
        if len(beyond):
            raise self._refused(f"subtask {subtask} has {len(elements)} elements, and none at position {beyond[0]}")
        kept = np.ones(len(elements), bool)
        kept[places] = False
        given = one_array(self.added.filter(pa.array(mine)), POSITION)
        known = np.asarray(given.is_valid())
        new = np.where(known, given.fill_null(0).to_numpy(), np.iinfo(np.int32).max).astype(np.int64)
        if (new < 0).any() or len(np.unique(new[known])) < known.sum():
            raise self._refused(f"two new elements of subtask {subtask} have one position, or one has a negative one")
        taken = np.intersect1d(new[known], np.flatnonzero(kept))
        if len(taken):
            raise self._refused(f"subtask {subtask} has an element at position {taken[0]} already; move that, too")
        replaced = np.intersect1d(new[known], places)
        self._check_bytes(self.form.value, elements.take(pa.array(replaced)))
        every = pa.concat_arrays([elements.filter(pa.array(kept)), self.written.filter(pa.array(mine))])
        order = np.lexsort((np.concatenate([np.zeros(int(kept.sum())), ~known]), np.r_[np.flatnonzero(kept), new]))
        return every.take(pa.array(order))

    # Broadcast maps

    def of_map(self, content: bytes, path: str) -> bytes:
        """A map as changed. Raises InvalidInputError EDIT_REFUSED for entries that are not, or already, there."""
        assert self.form.key is not None
        keys, values = map_cells(self.form, content, path, self.origin)
        (shown,) = decode_cells([self.form.key], cells_of(keys), [True], self.origin)
        rows = [pa.nulls(len(keys)) if shown is None else shown]
        gone, come = (self._numbers(each, rows) for each in (self.removed, self.added))
        if (self._found_in(self.removed, rows) < 0).any():
            raise self._refused("an entry that the edit removes is not stored; read the rows from this snapshot")
        if (come & ~gone).any():
            raise self._refused("an entry that the edit adds is stored already; change it, or remove it in the edit")
        changed = pa.array(gone & come)
        self._check_bytes(self.form.value, values.filter(changed))
        kept = pa.array(~gone)
        entries = [*joined_bytes([keys.filter(kept), values.filter(kept)]).to_pylist(), *self.written.to_pylist()]
        return b"".join([len(entries).to_bytes(4, "big"), *entries])

    def _numbers(self, rows: pa.Table, stored: list[pa.Array]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which stored entries have the key of one of these rows."""
        if not rows.num_rows or not len(stored[0]):
            return np.zeros(len(stored[0]), bool)
        return search_of(rows, [MAP_KEY]).found(stored) >= 0

    def _found_in(self, rows: pa.Table, stored: list[pa.Array]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The stored entry of each row, -1 where there is none."""
        if not rows.num_rows:
            return np.empty(0, np.int64)
        table = pa.table({MAP_KEY: stored[0]})
        return search_of(table, [MAP_KEY]).found(columns_of(rows, [MAP_KEY]))

    # Checks

    def _check_bytes(self, kind: FlinkType, old: pa.BinaryArray) -> None:
        """Check that values that are changed held no more than can be written. Raises EDIT_UNSUPPORTED."""
        if not len(old):
            return
        (column,) = decode_cells([kind], cells_of(old), [True], self.origin)
        try:
            again = column_bytes(kind, pa.nulls(len(old)) if column is None else column)
        except NoBytesError as error:
            raise unsupported(self.origin, f"a value cannot be changed: {error}") from error
        if not again.equals(old):
            raise unsupported(
                self.origin,
                "a value cannot be changed, because its bytes hold more than its columns show, such as the kind of a "
                "row or a subclass; remove the row, or change it with Flink's State Processor API",
            )

    def _refused(self, why: str) -> InvalidInputError:
        return InvalidInputError(ErrorCode.EDIT_REFUSED, f"{self.origin}: {why}")


def same_entries(form: OperatorForm, maps: list[bytes], path: str, origin: str) -> bool:
    """Return whether broadcast maps have the same entries, byte by byte, in whatever order."""
    found = []
    for content in maps:
        keys, values = map_cells(form, content, path, origin)
        found.append(sorted(zip(keys.to_pylist(), values.to_pylist(), strict=True)))
    return all(each == found[0] for each in found)


def cells_array(cells: Cells) -> pa.BinaryArray:
    """Cells as a column of Arrow."""
    return cells.copied() if len(cells) else pa.array([], pa.binary())

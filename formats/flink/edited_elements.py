"""The operators of a snapshot whose operator state an edit writes anew: lists and broadcast maps.

Operator state has a stream for each subtask. A broadcast map is in the streams of all subtasks with the same entries,
and gets the same bytes in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.formats.edits import StateEdit
from statestore.formats.flink.connectors.committable_forms import COMMITTER_STATE
from statestore.formats.flink.connectors.kafka_forms import SOURCE_STATE, WRITER_STATE
from statestore.formats.flink.edits.element_changes import ElementChanges, cells_array, same_entries
from statestore.formats.flink.edits.element_stream import WrittenElements, write_elements
from statestore.formats.flink.edits.key_search import one_array
from statestore.formats.flink.edits.keyed_stream import Put
from statestore.formats.flink.edits.list_positions import changed_lists, positions_along
from statestore.formats.flink.edits.state_changes import unsupported
from statestore.formats.flink.snapshot.handles import OperatorStateOffsets
from statestore.formats.flink.snapshot_states import OpenedSnapshot
from statestore.formats.flink.state_at import ElementsAt
from statestore.formats.flink.streams.operator_rows import SUBTASK, element_cells
from statestore.formats.flink.streams.stored_states import StoredElements

_PROCESSOR_API = "change it with Flink's State Processor API"
_OF_CONNECTORS = (SOURCE_STATE, WRITER_STATE, COMMITTER_STATE)
_MOST_HEADER = 1 << 24


@dataclass(frozen=True, eq=False)
class EditedElements:
    """An operator whose operator state is written anew. ``stored`` are its subtasks, ``edited`` the changes of its
    states by stored name, ``followed`` the elements that get other positions. ``without`` are states that are left out,
    by stored name.
    """

    snapshot: OpenedSnapshot
    id: str
    stored: tuple[StoredElements, ...]
    edited: Mapping[str, ElementChanges]
    followed: tuple[StateEdit, ...]
    without: frozenset[str] = frozenset()

    def check(self) -> None:
        """Raise UnsupportedError EDIT_UNSUPPORTED for state that cannot be changed."""
        for changes in self.edited.values():
            form = changes.form
            if form.connector is not None or form.name in _OF_CONNECTORS:
                raise unsupported(
                    changes.origin,
                    "this is the state of a source or sink, whose connector wrote it; only the connector can change it",
                )
            if form.mode == "broadcast" and form.key is None:
                raise unsupported(changes.origin, f"the entries of this map cannot be told apart; {_PROCESSOR_API}")
            _ = changes.written
            if form.key is None:
                self._check_subtasks(changes)

    def _check_subtasks(self, changes: ElementChanges) -> None:
        known = [each.subtask for each in self.stored if self._has(each, changes.form.name)]
        asked = {*changes.added.column(SUBTASK).to_pylist(), *changes.removed.column(SUBTASK).to_pylist()}
        if asked - set(known):
            raise unsupported(
                changes.origin,
                f"a row has subtask {min(map(str, asked - set(known)))}; the state is in subtasks "
                f"{', '.join(map(str, known))}, from which Flink gives elements to all when the job starts",
            )

    @staticmethod
    def _has(stored: StoredElements, name: str) -> bool:
        return any(each.name == name for each in stored.handle.states)

    def write(self, subtask: int, put: Put) -> WrittenElements:
        """Write the stream of a subtask."""
        stored = next(each for each in self.stored if each.subtask == subtask)
        with self.snapshot.files.open_at(stored.handle.stream) as part:
            data = part.read_at(0, min(part.size, max(stored.header.end, 0), _MOST_HEADER))
            found = []
            behind: set[int] = set()
            for state in reversed(in_stream_order(stored)):
                cells = element_cells(state.name, part, stored.handle, stored.header.compressed)
                elements = without_others(cells_array(cells), state.offsets, behind)
                behind |= set(state.offsets)
                changes = self.edited.get(state.name)
                if changes is not None:
                    elements = self._changed(changes, stored, elements, part.path)
                if state.name not in self.without:
                    found.append((state, elements))
        return write_elements(put, data, stored.header, found[::-1], self.without)

    def _changed(
        self, changes: ElementChanges, stored: StoredElements, cells: pa.BinaryArray, path: str
    ) -> pa.BinaryArray:
        if changes.form.key is None:
            return changes.of_subtask(stored.subtask, cells)
        return pa.array([self._maps[changes.form.name]] * len(cells), pa.binary())

    @cached_property
    def _maps(self) -> dict[str, bytes]:
        """The broadcast maps as changed, which are the same in all subtasks."""
        found = {}
        for name, changes in self.edited.items():
            if changes.form.key is None:
                continue
            maps, path = [], ""
            for stored in self.stored:
                with self.snapshot.files.open_at(stored.handle.stream) as part:
                    path = part.path
                    cells = element_cells(name, part, stored.handle, stored.header.compressed)
                    maps += [cells.cell(number) for number in range(len(cells))]
            if not same_entries(changes.form, maps, path, changes.origin):
                raise unsupported(
                    changes.origin,
                    "its subtasks have other entries than each other, so that it is not known what the map is; "
                    f"{_PROCESSOR_API}",
                )
            found[name] = changes.of_map(maps[0], path)
        return found


def in_stream_order(stored: StoredElements) -> list[OperatorStateOffsets]:
    """The states of a subtask in the order in which its header has them, and its stream their elements."""
    names = [each.name for each in stored.header.states] + [each.name for each in stored.header.broadcasts]
    return sorted(stored.handle.states, key=lambda each: names.index(each.name) if each.name in names else -1)


def without_others(elements: pa.BinaryArray, offsets: Sequence[int], behind: set[int]) -> pa.BinaryArray:
    """Elements without the bytes of what begins at the same place: those have none themselves, such as Flink's
    ``NullValue``. ``behind`` are the places of elements of later states.
    """
    starts = np.array(offsets, np.int64)
    empty = np.isin(starts, np.fromiter(behind, np.int64, len(behind)))
    empty[:-1] |= starts[:-1] == starts[1:]
    return elements if not empty.any() else pc.replace_with_mask(elements, pa.array(empty), pa.scalar(b"", pa.binary()))


def edited_elements(
    snapshot: OpenedSnapshot,
    edits: Sequence[tuple[StateEdit, ElementsAt]],
    without: Mapping[str, frozenset[str]],
) -> Iterator[EditedElements]:
    """Yield the operators of edits of operator state, and those ``without`` some states by their stored names.

    Raises the errors of reads of the states.
    """
    by_operator: dict[str, list[tuple[StateEdit, ElementsAt]]] = {each: [] for each in without}
    for edit, at in edits:
        by_operator.setdefault(at.operator.id, []).append((edit, at))
    for number, mine in by_operator.items():
        stored = snapshot.stored(number)
        if stored.error is not None:
            raise stored.error
        changes: dict[str, ElementChanges] = {}
        followed: list[StateEdit] = []
        for edit, at in mine:
            origin = f"{snapshot.files.path}, state {edit.state}"
            if at.form.name in changes:
                raise unsupported(origin, "the edit names the state twice; give all its rows in one")
            changes[at.form.name] = ElementChanges(at.form, edit.removed, edit.added, origin)
            if at.form.key is None and at.form.connector is None:
                followed += _positions(edit, at)
        lacks = without.get(number, frozenset())
        yield EditedElements(snapshot, number, stored.elements, changes, tuple(followed), lacks)


def _positions(edit: StateEdit, at: ElementsAt) -> Iterator[StateEdit]:
    """Yield the elements that get other positions."""
    names = edit.removed.schema.names
    lists = changed_lists(edit.removed, edit.added, [SUBTASK])
    if not lists.num_rows:
        return
    subtasks = one_array(lists, SUBTASK)
    found = []
    for part in at.parts(()):
        for batch in at.rows(part, at.schema.names, ()):
            found.append(_of_subtasks(pa.Table.from_batches([batch]).select(names), subtasks))
    stored = pa.concat_tables([edit.removed.schema.empty_table(), *found])
    mine = _of_subtasks(edit.removed, subtasks), _of_subtasks(edit.added, subtasks)
    nothing = edit.removed.slice(0, 0)
    gone, come = positions_along(stored, mine, (nothing, nothing), [SUBTASK])
    if gone.num_rows:
        yield StateEdit(edit.state, edit.unit, gone, come)


def _of_subtasks(rows: pa.Table, subtasks: pa.Array) -> pa.Table:
    return rows.filter(pc.is_in(rows.column(SUBTASK), subtasks))

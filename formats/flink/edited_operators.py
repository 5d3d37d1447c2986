"""The operators of a snapshot whose keyed state an edit writes anew, and the changes of each of their subtasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from statestore.formats.edits import StateEdit
from statestore.formats.engine import Source, StateAt, StateInfo
from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink.edits.keyed_stream import Put
from statestore.formats.flink.edits.state_changes import StateChanges, has_positions, state_changes, unsupported
from statestore.formats.flink.edits.stored_rows import SubtaskRows
from statestore.formats.flink.edits.timer_stream import WrittenTimers, write_timers
from statestore.formats.flink.edits.written_header import SubtaskHeader, WrittenHeader, changelog_header, written_header
from statestore.formats.flink.followed_rows import follow_erased_keys, is_raw, operator_states
from statestore.formats.flink.layouts.type_layouts import arrow_type
from statestore.formats.flink.serializers.flink_types import FlinkType, Joined, KryoOf, children
from statestore.formats.flink.serializers.opaque_parts import opaque_inside
from statestore.formats.flink.snapshot.handles import ChangelogHandle, KeyGroupHandle, RocksHandle
from statestore.formats.flink.snapshot_states import CopiedStates, Identity, OpenedSnapshot
from statestore.formats.flink.state_at import KeyedAt, UnreadableAt
from statestore.formats.flink.streams.keyed_columns import record_kinds, stored_element
from statestore.formats.flink.streams.state_form import KeyedForm
from statestore.formats.flink.streams.stored_states import StoredKeyed, StoredTimers, header_bytes
from statestore.formats.flink.window_rows import CONTENTS, follow_windows

CANONICAL = "take a canonical savepoint of the job (flink savepoint --type canonical) and edit that"


class FlinkSnapshots(Protocol):
    """A source of Flink as far as an edit needs it, for the source itself knows the edit."""

    @property
    def path(self) -> str: ...

    def states(self) -> Sequence[str]: ...

    def info(self, state: str) -> StateInfo: ...

    def at(self, state: str, version: int) -> StateAt: ...

    def opened(self, version: int) -> OpenedSnapshot: ...

    def names(self) -> Mapping[Identity, str]: ...

    def copy_at(self, path: str, copied: CopiedStates) -> Source: ...


@dataclass(frozen=True, eq=False)
class EditedState:
    """A state with its edit; ``columns`` are those of all its subtasks. ``known`` keeps what was made of it."""

    edit: StateEdit
    at: KeyedAt
    origin: str
    known: dict[KeyedForm, StateChanges] = field(default_factory=dict, repr=False)

    def changes(self, form: KeyedForm) -> StateChanges:
        """The changes of the state where it is stored in a form. Raises as `state_changes`."""
        if form not in self.known:
            at = self.at
            self.known[form] = state_changes(self.edit, form, at.key, at.groups, at.schema, self.origin)
        return self.known[form]

    def form_in(self, stored: StoredKeyed) -> KeyedForm:
        """The form in which a subtask wrote the state."""
        return next((form for each, form in self.at.stored if each is stored), self.at.form)


@dataclass(frozen=True, eq=False)
class EditedOperator:
    """An operator of a snapshot whose keyed state is written anew, with its edited states.

    ``stored`` are the subtasks with keyed state, and ``indexes`` their numbers. ``without`` are the stored names of
    states that are left out. ``edited`` has what follows from the edits as well; ``followed`` is that alone, and
    ``notes`` tell of it. ``timers`` are the subtasks with timers in raw keyed state that change, by their numbers.
    """

    snapshot: OpenedSnapshot
    id: str
    groups: int
    indexes: tuple[int, ...]
    stored: tuple[StoredKeyed, ...]
    edited: tuple[EditedState, ...]
    without: frozenset[str] = frozenset()
    followed: tuple[StateEdit, ...] = ()
    notes: tuple[str, ...] = ()
    timers: Mapping[int, StoredTimers] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return self.snapshot.labels[self.id]

    @cached_property
    def _forms(self) -> Mapping[str, KeyedForm]:
        return self.snapshot.keyed_forms(self.id)

    def rows(self, place: int) -> SubtaskRows:
        """The keyed state of a subtask, by its place among ``stored``."""
        forms = dict(self._forms)
        for each in self.edited:
            forms[each.at.form.name] = each.form_in(self.stored[place])
        return SubtaskRows(self.snapshot.files, self.stored[place], forms, self.groups, self.origin)

    def changes(self, place: int) -> dict[int, StateChanges]:
        """The changes of a subtask's states, by their numbers in its header. Raises as `state_changes`."""
        stored = self.stored[place]
        numbers = {state.name: number for number, state in enumerate(stored.header.states)}
        return {
            numbers[each.at.form.name]: each.changes(each.form_in(stored))
            for each in self.edited
            if each.at.form.name in numbers
        }

    def write_timers(self, index: int, put: Put) -> WrittenTimers:
        """Write the timers in raw keyed state of a subtask. Raises as `write_timers`, and as `state_changes`."""
        mine = {each.at.form.name: each.changes(each.at.form) for each in self.edited if is_raw(each.at)}
        return write_timers(self.snapshot.files, self.timers[index], mine, self.origin, put)

    def key_groups(self, place: int) -> tuple[int, int]:
        """The first key group of a subtask, and how many it has."""
        handle = self.stored[place].handle
        return handle.first_group, handle.groups

    def header(self, places: Sequence[int]) -> WrittenHeader:
        """The header of the states of some subtasks that are written. Raises as `written_header`."""
        headers = [self._header(self.stored[place]) for place in places]
        if len(headers) == 1 and not self.without.intersection(each.name for each in headers[0].parsed.states):
            return headers[0].as_it_is
        known = self.snapshot.stored(self.id).keyed_states()
        return written_header(headers, known, self.without, self.origin)

    def _header(self, stored: StoredKeyed) -> SubtaskHeader:
        """The header of a subtask as it is stored.

        Raises UnsupportedError EDIT_UNSUPPORTED where the changelog backend has materialized nothing of the operator.
        """
        if not isinstance(stored.handle, ChangelogHandle):
            return SubtaskHeader(header_bytes(self.snapshot.files, stored.handle), stored.header)
        bases = [self._header(each) for each in stored.materialized]
        others = (part for each in self.stored for part in (each.materialized if each.logged else (each,)))
        front = next(iter(bases), None) or next(map(self._header, others), None)
        if front is None or stored.logged is None:
            raise unsupported(
                self.origin,
                "its state is in the changelog backend and was not materialized yet, so that no file has the "
                f"serializer of its keys; {CANONICAL}",
            )
        return changelog_header(front, bases, stored.logged, stored.header.states)

    @property
    def origin(self) -> str:
        """The operator in messages."""
        return f"{self.snapshot.files.path}, operator {self.label}"

    @property
    def lost_timers(self) -> str | None:
        """Say that a native savepoint may have lost the timers of the operator; None for what has timers, or none.

        Every operator of windows and every process function has timers among its states, were it none. Where RocksDB
        has no such state, they are on the heap, and Flink does not write these into native savepoints.
        """
        is_native = self.snapshot.metadata.is_savepoint and any(
            isinstance(each.handle, RocksHandle) for each in self.stored
        )
        states = {state.name: state.kind for each in self.stored for state in each.header.states}
        if not is_native or "timers" in states.values() or self.snapshot.stored(self.id).timers:
            return None
        known = "its windows will not end" if CONTENTS in states else "if it has a process function, none are left"
        return (
            f"operator {self.label} has no timers in this native savepoint, and Flink writes none there that are on "
            f"the heap (state.backend.rocksdb.timer-service.factory): {known}; edit a canonical savepoint, or a "
            "checkpoint"
        )

    def check(self) -> None:
        """Raise UnsupportedError EDIT_UNSUPPORTED for state that cannot be written anew, and as `state_changes`."""
        for stored in self.stored:
            self._check_stored(stored)
        for each in self.edited:
            if each.edit.added.num_rows and len({form for _, form in each.at.stored}) > 1:
                raise unsupported(
                    each.origin,
                    "its subtasks wrote values of several types, so that new values have no one form; use the state in "
                    "every subtask of the job, which migrates it, and edit the next savepoint",
                )
            for group in each.changes(each.at.form).new_groups():
                self._check_place(each, group)

    def check_whole(self) -> None:
        """Check that all of the operator's state can be written anew, whatever its values are.

        Raises UnsupportedError EDIT_UNSUPPORTED. A value of Kryo may be of a class that its sample has not met.
        """
        self.check()
        for form in self._forms.values():
            if any(kryo_inside(kind) for kind in record_kinds(form)):
                raise unsupported(self.origin, f"state {form.name!r} has values of Kryo")

    def _check_stored(self, stored: StoredKeyed) -> None:
        """Refuse a form of keyed state that cannot become a canonical stream."""
        if isinstance(stored.handle, ChangelogHandle):
            self._header(stored)
        is_heap = is_of_heap(stored)
        for each in stored.header.states:
            if each.is_second:
                raise unsupported(self.origin, f"{each.name!r} is a state of Flink's second API; {CANONICAL}")
            form = self._forms.get(each.name)
            if form is None:
                raise unsupported(self.origin, f"state {each.name!r} has no known form; {CANONICAL}")
            part = next(filter(None, map(opaque_inside, record_kinds(form))), None)
            if is_heap and part is not None:
                raise unsupported(
                    self.origin,
                    f"state {each.name!r} has values of {part.serializer}, and a snapshot of the heap does not say "
                    f"where one ends; {CANONICAL}",
                )
            if is_heap and has_positions(form) and not has_elements(form):
                raise unsupported(
                    self.origin,
                    f"state {each.name!r} has lists of values without bytes, of which a canonical savepoint keeps not "
                    "even the number; leave the states of this operator as they are",
                )

    def _check_place(self, edited: EditedState, group: int) -> None:
        """Refuse new keys of a key group where no subtask can have them."""
        name = edited.at.form.name
        holders: list[StoredKeyed | StoredTimers] = [
            each for each in self.stored if any(state.name == name for state in each.header.states)
        ]
        holders += [each for each in self.timers.values() if name in each.states]
        if any(each.handle.first_group <= group < each.handle.first_group + each.handle.groups for each in holders):
            return
        changes = edited.changes(edited.at.form)
        row = changes.named(int(changes.new_in(group)[0]))
        raise unsupported(
            edited.origin,
            f"the new row {row} belongs to key group {group}, whose subtask has not registered the state; use it "
            "in every subtask of the job, take another savepoint and edit that",
        )


def edited_operators(
    source: FlinkSnapshots,
    version: int,
    edits: Sequence[StateEdit],
    others: Collection[str],
    without: Mapping[str, frozenset[str]],
) -> tuple[EditedOperator, ...]:
    """The operators of the edits, and others by their ids. ``without`` are the states that are left out of some.

    Raises UnsupportedError EDIT_UNSUPPORTED for state that is not keyed, and the errors of reads of the states.
    """
    snapshot = source.opened(version)
    found: dict[str, list[EditedState]] = {each: [] for each in sorted(others)}
    for edit in edits:
        at = source.at(edit.state, version)
        where = f"{snapshot.files.path}, state {edit.state}"
        if isinstance(at, UnreadableAt):
            raise at.error
        if not isinstance(at, KeyedAt):
            raise unsupported(where, "this is no keyed state, list or broadcast map; leave it as it is")
        if any(edit.state == each.edit.state for each in found.get(at.operator.id, ())):
            raise unsupported(where, "the edit names the state twice; give all its rows in one")
        found.setdefault(at.operator.id, []).append(EditedState(edit, at, where))
    return tuple(
        _operator(source, snapshot, number, edited, without.get(number, frozenset()))
        for number, edited in found.items()
    )


def _operator(
    source: FlinkSnapshots,
    snapshot: OpenedSnapshot,
    number: str,
    edited: Sequence[EditedState],
    without: frozenset[str],
) -> EditedOperator:
    operator, stored = snapshot.operator(number), snapshot.stored(number)
    assert operator is not None
    if stored.error is not None:
        raise stored.error
    indexes = tuple(each.index for each in operator.subtasks if each.managed_keyed is not None)
    assert len(indexes) == len(stored.keyed)
    groups = operator.max_parallelism
    whole = EditedOperator(snapshot, number, groups, indexes, stored.keyed, tuple(edited), without)
    if not edited:
        return whole
    states = operator_states(
        source, snapshot.metadata.checkpoint_id, number, {each.edit.state: each.edit for each in edited}
    )
    follow_windows(states)
    follow_erased_keys(states)
    path = snapshot.files.path
    every = [EditedState(edit, states.states[name], f"{path}, state {name}") for name, edit in states.merged().items()]
    kept = [each for each in every if each.at.form.name not in without]
    names = {each.edit.state for each in kept}
    followed = tuple(each for each in states.followed() if each.state in names)
    timers = {}
    if any(is_raw(each.at) for each in kept):
        raw = {each.handle.first_group: each for each in stored.timers}
        subtasks = [(each.index, each.raw_keyed) for each in operator.subtasks]
        timers = {index: raw[handle.first_group] for index, handle in subtasks if handle is not None}
    return replace(whole, edited=tuple(kept), followed=followed, notes=tuple(states.notes), timers=timers)


def heap_operators(
    source: FlinkSnapshots, version: int, operators: Sequence[str]
) -> tuple[list[EditedOperator], list[str]]:
    """Return those of some operators, by their ids, whose keyed state the heap wrote, to be written anew without an
    edit; and the ids of those that cannot be.
    """
    snapshot = source.opened(version)
    found, kept = [], []
    for number in operators:
        if not any(map(is_of_heap, snapshot.stored(number).keyed)):
            continue
        try:
            (operator,) = edited_operators(source, version, (), [number], {})
            operator.check_whole()
        except StateStoreError:
            kept.append(number)
        else:
            found.append(operator)
    return found, kept


def is_of_heap(stored: StoredKeyed) -> bool:
    """Return whether the heap backend wrote some of a subtask's state, in its own form."""
    parts = stored.materialized if isinstance(stored.handle, ChangelogHandle) else (stored,)
    return any(isinstance(each.handle, KeyGroupHandle) and each.handle.form == "heap" for each in parts)


def kryo_inside(kind: FlinkType) -> bool:
    """Return whether a type is one of Kryo, or has one inside."""
    return isinstance(kind, KryoOf) or any(map(kryo_inside, children(kind)))


def has_elements(form: KeyedForm) -> bool:
    """Return whether stored lists tell how many elements they have."""
    try:
        arrow_type(Joined(stored_element(form)))
    except UnsupportedError:
        return False
    return True

r"""One snapshot of a job, opened: its operators by their names, and their states by the names that users see.

A state is shown as ``operator.state``. An operator's name is its uid; else one that the user gave, its name in the
snapshot, or its id. Timers are shown without the prefix ``_timer_state/`` of their stored names. Characters that have a
meaning in paths and table names (``/``, ``\``, ``$``) are shown as ``_``.
"""

from __future__ import annotations

import contextlib
import hashlib
import pickle
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial

import pyarrow as pa

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import StateStoreError, UnsupportedError
from statestore.formats.flink.element_forms import coordinator_form, operator_forms, with_connector
from statestore.formats.flink.flink_settings import FlinkSettings
from statestore.formats.flink.kryo_sample import kryo_parts, sampled_elements, sampled_form
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader
from statestore.formats.flink.serializers.flink_types import FlinkType
from statestore.formats.flink.snapshot.job_snapshots import SnapshotRef
from statestore.formats.flink.snapshot.metadata import FIRST_OF_FLINK_2, OperatorSnapshot, SnapshotMetadata
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles, handles_of
from statestore.formats.flink.streams.operator_rows import COORDINATOR, OperatorForm
from statestore.formats.flink.streams.state_form import (
    VALUE,
    KeyedForm,
    Typed,
    form_of,
)
from statestore.formats.flink.streams.stored_states import (
    SAME_TYPES,
    StoredKeyed,
    StoredStates,
    StoredTimers,
    header_of,
    stored_states,
)
from statestore.formats.flink.suggested_classes import Described, described_in
from statestore.formats.values.wider_types import widest_type

TIMER_STATE = "_timer_state/"
_SAMPLED_SNAPSHOTS = 8
"""Snapshots whose states' forms are remembered by a process, where a sample told them."""
_SIGNS = re.compile(r"[/\\$\x00-\x1f]")

Identity = tuple[str, str, str]
"""A state of a job: operator id, "keyed", "operator", "coordinator" or "unreadable", and the state's stored name."""


@dataclass(frozen=True)
class ShownState:
    """A state as users see it. ``key`` is the type of keys as stored, for their hash codes.

    ``forms`` are those of values that subtasks wrote in another type than that of ``form``, by their headers; the first
    is ``form``. ``error`` is raised by reads: some of the operator's state cannot be read, so that rows would be
    missing.
    """

    identity: Identity
    name: str
    operator: str
    form: KeyedForm | OperatorForm | None
    key: FlinkType | None = None
    error: StateStoreError | None = None
    forms: tuple[tuple[KeyedStateHeader, KeyedForm], ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """All columns, in types that hold the values of all subtasks. Raises as `wider_schema`."""
        assert self.form is not None
        found = self.form.schema
        for form in self.other_forms:
            found = wider_schema(found, form.schema, f"state {self.name}", "subtask", SAME_TYPES)
        return found

    @property
    def declarable(self) -> Sequence[str]:
        """The columns for which a user may give a type. Those of a connector's form stand for one of bytes."""
        is_list = isinstance(self.form, OperatorForm) and self.form.connector and self.form.mode != COORDINATOR
        return [VALUE] if is_list else self.schema.names

    @property
    def other_forms(self) -> Sequence[KeyedForm]:
        return [form for _, form in self.forms[1:]]

    def form_in(self, stored: StoredKeyed | StoredTimers) -> KeyedForm:
        """The form in which a subtask wrote the state."""
        assert isinstance(self.form, KeyedForm)
        if len(self.forms) < 2 or isinstance(stored, StoredTimers):
            return self.form
        own = [each for each in stored.header.states if each.name == self.form.name]
        return self.forms[header_of([header for header, _ in self.forms], own[0])][1] if own else self.form


@dataclass(frozen=True)
class Learned:
    """The form of an operator's state that its values tell: ``stored`` is its header, or its form without columns for
    values of Kryo.
    """

    operator: str
    stored: KeyedStateHeader | OperatorForm
    form: KeyedForm | OperatorForm


@dataclass(frozen=True)
class CopiedStates:
    """Facts about a snapshot that its copy shares: ``names`` of states that it lists under others than their own, and
    the forms that were ``learned`` from its values.
    """

    names: Mapping[Identity, str]
    learned: tuple[Learned, ...]


@dataclass(frozen=True)
class OpenedSnapshot:
    """A snapshot with its metadata; ``found`` keeps the stored states of operators that were looked at.

    ``learned`` are the forms that were learned from values. Those of a copy are given, so that it shows the same
    columns as its source, also where it has other values.
    """

    ref: SnapshotRef
    files: SnapshotFiles
    metadata: SnapshotMetadata
    settings: FlinkSettings
    found: dict[str, StoredStates] = field(default_factory=dict, repr=False, compare=False)
    listed: dict[str, Mapping[Identity, ShownState]] = field(default_factory=dict, repr=False, compare=False)
    learned: list[Learned] = field(default_factory=list, repr=False, compare=False)

    @cached_property
    def _forms(self) -> dict[tuple[str, str, int], KeyedForm]:
        """The forms of keyed states that a sample told, by operator, stored name and the place among the headers.

        They are shared by all that open this snapshot with these settings, for a sample reads state.
        """
        known = (self.files.path, self.ref.time_us, self.metadata, self.settings)
        return _forms_of(hashlib.sha256(pickle.dumps(known)).digest())

    @property
    def labels(self) -> dict[str, str]:
        """The name of each operator, by its id; no two are equal."""
        wanted = {each.id: _label(each, self.settings) for each in self.metadata.operators}
        times = Counter(wanted.values())
        return {number: label if times[label] == 1 else number for number, label in wanted.items()}

    def operator(self, number: str) -> OperatorSnapshot | None:
        """The operator with an id, None where the snapshot has none."""
        return next((each for each in self.metadata.operators if each.id == number), None)

    def stored(self, number: str) -> StoredStates:
        """The stored states of an operator that the snapshot has. Raises as `stored_states`."""
        if number not in self.found:
            operator = self.operator(number)
            assert operator is not None
            is_old = self.metadata.version < FIRST_OF_FLINK_2
            self.found[number] = stored_states(
                self.files,
                operator,
                self.labels[number],
                is_old=is_old,
                classes=self.settings.classes,
                code=self.settings.code,
                subclasses=self.settings.subclasses,
            )
        return self.found[number]

    def error_of(self, number: str) -> StateStoreError | None:
        """Why some state of an operator cannot be read, None where all can. Raises as `states`."""
        unreadable = self.states().get((number, "unreadable", ""))
        return self.stored(number).error if unreadable is None else unreadable.error

    def states(self) -> Mapping[Identity, ShownState]:
        """All states, by what they are. Raises as `stored`, and InvalidInputError FLINK_TYPE."""
        if "" not in self.listed:
            found: list[ShownState] = []
            labels = self.labels
            for operator in self.metadata.operators:
                found += self._states_of(operator, labels[operator.id])
            self.listed[""] = {each.identity: each for each in _uniquely_named(found)}
        return self.listed[""]

    def keyed_forms(self, number: str) -> dict[str, KeyedForm]:
        """The forms of an operator's keyed states by stored name. Raises as `states`."""
        return {
            stored: each.form
            for (operator, _, stored), each in self.states().items()
            if operator == number and isinstance(each.form, KeyedForm)
        }

    def holding(self) -> OpenedSnapshot:
        """The snapshot with its files kept open, if it is a checkpoint, which its job may remove."""
        if self.ref.kind != "checkpoint" or self.files.held is not None:
            return self
        handles = (handle for each in self.metadata.operators for _, handle in handles_of(each))
        return replace(self, files=self.files.holding(handles))

    def _states_of(self, operator: OperatorSnapshot, label: str) -> list[ShownState]:
        stored = self.stored(operator.id)
        error = stored.error
        try:
            found = self._readable(operator, label, stored)
        except UnsupportedError as refused:  # the states of other operators can be read
            where = f"{self.files.path}, operator {label}"
            said = refused.message if refused.message.startswith(self.files.path) else f"{where}: {refused.message}"
            found, error = [], UnsupportedError(refused.code, said)
        if error is not None and not found:
            name = shown_name(label, "unreadable")
            found.append(ShownState((operator.id, "unreadable", ""), name, label, None, error=error))
        coordinator = coordinator_form(operator)
        if coordinator is not None:
            identity, name = (operator.id, COORDINATOR, COORDINATOR), shown_name(label, COORDINATOR)
            found.append(ShownState(identity, name, label, coordinator))
        return found

    def _readable(self, operator: OperatorSnapshot, label: str, stored: StoredStates) -> list[ShownState]:
        def typed(state: str) -> Typed:
            name = shown_name(label, state)
            where = f"{self.files.path}, state {name}"
            return Typed(self._declared(name, state), where, self.settings.subclasses)

        found: list[ShownState] = []
        key = stored.key
        for headers in stored.keyed_states():
            assert key is not None
            stored_as = headers[0].name
            asked = typed(stored_as)
            made = partial(form_of, typed=asked)
            forms = tuple((header, made(header, key)) for header in headers)
            if any(kryo_parts(form) for _, form in forms):
                sampled = partial(self._sampled, operator, stored, headers)
                forms = tuple((each, sampled(number, key, made)) for number, each in enumerate(headers))
            identity, name = (operator.id, "keyed", stored_as), shown_name(label, stored_as)
            found.append(_readable_state(ShownState(identity, name, label, forms[0][1], key, stored.error, forms)))
        for form_of_list in operator_forms(stored, typed=typed):
            name, shown_as = shown_name(label, form_of_list.name), typed(form_of_list.name)
            identity = (operator.id, "operator", form_of_list.name)
            form = with_connector(form_of_list, stored, self.files, shown_as)
            if kryo_parts(form):
                form = self._sampled_elements(operator, stored, form)
            found.append(ShownState(identity, name, label, form, error=stored.error))
        return found

    def _sampled(
        self,
        operator: OperatorSnapshot,
        stored: StoredStates,
        headers: Sequence[KeyedStateHeader],
        number: int,
        key: FlinkType,
        made: Callable[[KeyedStateHeader, FlinkType], KeyedForm],
    ) -> KeyedForm:
        """The form of a state under one of its headers, of which a sample tells the types of values of Kryo."""
        header = headers[number]
        known_as = (operator.id, header.name, number)
        told = self._learned(operator, header) or self._forms.get(known_as)
        if isinstance(told, KeyedForm):
            self._note(operator, header, told)
            return told
        holders: list[StoredKeyed | StoredTimers] = []
        for each in stored.keyed:
            own = [state for state in each.header.states if state.name == header.name]
            if own and headers[header_of(headers, own[0])] is header:
                holders.append(each)
        if header.kind == "timers":
            holders += stored.timers
        form, is_whole = sampled_form(
            self.files, operator, holders, header, key, made, self.settings.code, lambda: self._described
        )
        if is_whole:
            self._forms[known_as] = form
        self._note(operator, header, form)
        return form

    def _sampled_elements(self, operator: OperatorSnapshot, stored: StoredStates, form: OperatorForm) -> OperatorForm:
        """The form of a list or broadcast map, of which a sample tells the types of values of Kryo."""
        told = self._learned(operator, form)
        if isinstance(told, OperatorForm):
            return told
        found = sampled_elements(self.files, stored.elements, form, self.settings.code, lambda: self._described)
        self._note(operator, form, found)
        return found

    def _learned(
        self, operator: OperatorSnapshot, stored: KeyedStateHeader | OperatorForm
    ) -> KeyedForm | OperatorForm | None:
        same = (each.form for each in self.learned if (each.operator, each.stored) == (operator.id, stored))
        return next(same, None)

    def _note(
        self, operator: OperatorSnapshot, stored: KeyedStateHeader | OperatorForm, form: KeyedForm | OperatorForm
    ) -> None:
        if self._learned(operator, stored) is None:
            self.learned.append(Learned(operator.id, stored, form))

    @cached_property
    def _described(self) -> Described:
        """The classes of the job of which any state of the snapshot says how they are."""
        found: list[object] = []
        for operator in self.metadata.operators:
            with contextlib.suppress(StateStoreError):
                stored = self.stored(operator.id)
                found += [(each.header.key, each.header.states) for each in stored.keyed]
                found += [each.services for each in stored.timers]
                found += [each.header for each in stored.elements]
        return described_in(found)

    def _declared(self, shown_as: str, stored_as: str) -> Mapping[str, str]:
        """The types that the user gave for a state; one without a column, "", is that of its values, too."""
        given = self.settings.types.get(shown_as) or self.settings.types.get(stored_as) or {}
        return {**given, **_of_values(given)}


@lru_cache(maxsize=_SAMPLED_SNAPSHOTS)
def _forms_of(snapshot: bytes) -> dict[tuple[str, str, int], KeyedForm]:
    """The forms that were found for a snapshot, which ``snapshot`` is a digest of; at first none."""
    return {}


def open_snapshot(ref: SnapshotRef, settings: FlinkSettings, learned: Sequence[Learned] = ()) -> OpenedSnapshot:
    """Parse the metadata of a snapshot, of which forms may be known. Raises as `SnapshotFiles.metadata`."""
    files = SnapshotFiles(ref.folder, settings.outside)
    return OpenedSnapshot(ref, files, files.metadata(), settings, learned=list(learned))


def _readable_state(found: ShownState) -> ShownState:
    """The state, without a form where subtasks wrote values that have no common type."""
    try:
        _ = found.schema
    except UnsupportedError as error:
        return replace(found, form=None, forms=(), error=error)
    return found


def wider_schema(schema: pa.Schema, other: pa.Schema, where: str, place: str, advice: str) -> pa.Schema:
    """Columns that fit both, which are those of two places: checkpoints or subtasks.

    Raises UnsupportedError FLINK_UNSUPPORTED where a column has become another one; ``advice`` ends its message.
    """
    if schema == other:
        return schema
    fields = []
    for each in schema:
        if each.name not in other.names:
            fields.append(each)
            continue
        kind = widest_type(each.type, other.field(each.name).type)
        if kind is None:
            raise UnsupportedError(
                ErrorCode.FLINK_UNSUPPORTED,
                f"{where}: column {each.name} is {other.field(each.name).type} in one {place} and {each.type} in "
                f"another; {advice}",
            )
        fields.append(each.with_type(kind))
    return pa.schema([*fields, *(each for each in other if each.name not in schema.names)])


def shown_name(label: str, state: str) -> str:
    """The name of a state for users."""
    return _SIGNS.sub("_", f"{label}.{state.removeprefix(TIMER_STATE)}")


def _of_values(given: Mapping[str, str]) -> dict[str, str]:
    return {"value": given[""], "map_value": given[""]} if "" in given else {}


def _label(operator: OperatorSnapshot, settings: FlinkSettings) -> str:
    return operator.uid or settings.uids.get(operator.id) or operator.name or operator.id


def _uniquely_named(states: list[ShownState]) -> list[ShownState]:
    """The states with names that differ, also where upper and lower case do not count; later ones get a number.

    A state whose own name it is has a name before one that is only shown by it.
    """
    taken: set[str] = set()
    names: dict[Identity, str] = {}
    for each in sorted(states, key=lambda each: each.name != f"{each.operator}.{each.identity[2]}"):
        name, number = each.name, 1
        while name.lower() in taken:
            number += 1
            name = f"{each.name}_{number}"
        taken.add(name.lower())
        names[each.identity] = name
    return [replace(each, name=names[each.identity]) for each in states]

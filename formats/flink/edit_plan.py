"""The plan of an edited snapshot: which subtasks' keyed state is written anew, and which files are copied.

The target is a savepoint whose files lie in one folder. Of an operator that is edited, the keyed state of each subtask
becomes a canonical stream, whichever backend wrote it; all other state keeps its form. ``_metadata`` comes last: before
it is there, the folder is no snapshot.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from statestore.formats.edits import CopiedFile, EditOptions, EditPlan, StateEdit, Target
from statestore.formats.engine import Source
from statestore.formats.flink.edited_elements import EditedElements, edited_elements
from statestore.formats.flink.edited_operators import (
    CANONICAL,
    EditedOperator,
    FlinkSnapshots,
    edited_operators,
)
from statestore.formats.flink.edits.changed_rows import changed_groups, changing
from statestore.formats.flink.edits.element_stream import WrittenElements
from statestore.formats.flink.edits.keyed_stream import Put, WrittenStream, write_stream
from statestore.formats.flink.edits.metadata_splice import (
    KEY_GROUPS,
    SAVEPOINT,
    MetadataSpans,
    handles_outside,
    keyed_bytes,
    metadata_spans,
    named_in_folder,
    operator_bytes,
    relative_bytes,
    spliced,
)
from statestore.formats.flink.edits.state_changes import unsupported
from statestore.formats.flink.edits.stored_rows import rows_by_group
from statestore.formats.flink.erased_keys import erased_texts, notes_of_elements
from statestore.formats.flink.snapshot.file_places import StoredHandle
from statestore.formats.flink.snapshot.handles import (
    ChangelogHandle,
    FileHandle,
    KeyedHandle,
    KeyGroupHandle,
    OperatorHandle,
    RelativeHandle,
    RocksHandle,
    SegmentHandle,
    UnreadableHandle,
)
from statestore.formats.flink.snapshot.snapshot_files import PIECE_BYTES, Located, handles_bytes
from statestore.formats.flink.snapshot.snapshot_names import METADATA
from statestore.formats.flink.snapshot_states import OpenedSnapshot
from statestore.formats.flink.state_at import ElementsAt
from statestore.formats.flink.streams.stored_states import header_bytes
from statestore.formats.kernels.arrays import Bools

_FIRST_WITH_RELATIVE = _BEFORE_SAVEPOINTS = 3


@dataclass(frozen=True)
class SubtaskPart:
    """The keyed state of a subtask that is written anew: its operator, and its place among those with keyed state."""

    operator: str
    place: int


@dataclass(frozen=True)
class ElementsPart:
    """The operator state of a subtask that is written anew: its operator, and its place among those that have some."""

    operator: str
    place: int


@dataclass(frozen=True)
class SegmentPart:
    """A part of a file that several handles share, which becomes a file of its own."""

    handle: SegmentHandle
    name: str


@dataclass(frozen=True)
class _Stream:
    """A stream that was written; ``met`` is a mask of the changes that were found in it, by state."""

    written: WrittenStream
    met: Mapping[str, Bools]


@dataclass(frozen=True, eq=False)
class FlinkEditPlan(EditPlan):
    """The plan of an edit of one snapshot.

    ``rewritten`` are operators whose keyed state is written anew without an edit, by their ids. ``streams`` and
    ``elements`` are those that this process wrote.
    """

    source: FlinkSnapshots
    number: int
    edits: tuple[StateEdit, ...]
    options: EditOptions
    rewritten: frozenset[str] = frozenset()
    streams: dict[SubtaskPart, _Stream] = field(default_factory=dict, repr=False)
    elements: dict[ElementsPart, WrittenElements] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return FlinkEditPlan, (self.source, self.number, self.edits, self.options, self.rewritten)

    @property
    def version(self) -> int:
        return self.number

    @property
    def target_version(self) -> int:
        """The same: checkpoints of a job that starts from a savepoint follow its id."""
        return self.number

    @cached_property
    def _snapshot(self) -> OpenedSnapshot:
        return self.source.opened(self.number)

    @cached_property
    def _metadata(self) -> MetadataSpans:
        return metadata_spans(self._snapshot.files.metadata_bytes(), self._snapshot.files.path)

    @cached_property
    def _operators(self) -> Mapping[str, EditedOperator]:
        keyed = [each for each in self.edits if not isinstance(self.source.at(each.state, self.number), ElementsAt)]
        found = edited_operators(self.source, self.number, keyed, self.rewritten)
        return {each.id: each for each in found}

    @cached_property
    def _element_edits(self) -> Mapping[str, EditedElements]:
        """The edits of operator state, by the operators' ids."""
        found = [(each, self.source.at(each.state, self.number)) for each in self.edits]
        mine = [(edit, at) for edit, at in found if isinstance(at, ElementsAt)]
        return {each.id: each for each in edited_elements(self._snapshot, mine)}

    def check(self) -> None:
        """Raise the errors of the edit that follow from its rows and the metadata (`Source.edit_plan`)."""
        path, metadata = self._snapshot.files.path, self._snapshot.metadata
        if metadata.version < _FIRST_WITH_RELATIVE:
            raise unsupported(
                path,
                f"found version {metadata.version} of the metadata, whose files have absolute paths; restore the job "
                "with Flink 1.13 or later, take a savepoint and edit that",
            )
        for found in metadata.operators:
            for subtask in found.subtasks:
                if isinstance(subtask.managed_keyed, ChangelogHandle | UnreadableHandle):
                    raise unsupported(
                        f"{path}, operator {self._snapshot.labels[found.id]}",
                        f"its state is in the changelog backend, whose files cannot be copied; {CANONICAL}",
                    )
        for operator in self._operators.values():
            operator.check()
        for each in self._element_edits.values():
            each.check()

    @property
    def notes(self) -> Sequence[str]:
        found: list[str] = []
        if self._snapshot.metadata.is_unaligned:
            found.append(
                "the checkpoint is unaligned: it has records in flight, which the job adds to the edited state when it "
                "starts"
            )
        if self._snapshot.metadata.version <= _BEFORE_SAVEPOINTS and SAVEPOINT in map(self._type, self.parts()):
            found.append("the target needs Flink 1.13 or later, whose savepoints have its form")
        for operator in self._operators.values():
            found += operator.notes
        return [*found, *self._erased_elsewhere]

    @cached_property
    def _erased_elsewhere(self) -> list[str]:
        edited = {each.state for each in self.edits}
        return list(notes_of_elements(self.source, self.number, erased_texts(self.edits), edited))

    @property
    def followed(self) -> Sequence[StateEdit]:
        """Timers of erased keys, what belongs to windows, and positions of elements of lists."""
        keyed = [edit for operator in self._operators.values() for edit in operator.followed]
        return keyed + [edit for operator in self._element_edits.values() for edit in operator.followed]

    # Files

    @cached_property
    def _names(self) -> Mapping[StoredHandle, str]:
        """The names in the target's folder of the files of all handles that stay."""
        replaced: list[KeyedHandle | OperatorHandle] = list(self._element_handles().values())
        replaced += [
            handle
            for each in self._metadata.parsed.operators
            if each.id in self._operators
            for subtask in each.subtasks
            if (handle := subtask.managed_keyed) is not None
        ]
        names: dict[StoredHandle, str] = {}
        taken = {METADATA, *(_stream_name(self._operators[part.operator], part.place) for part in self._subtasks())}
        taken |= {self._elements_name(part) for part in self._elements_parts()}
        by_place: dict[tuple[str, int], str] = {}
        kept: list[StoredHandle] = [
            each
            for each in handles_outside(self._metadata, replaced)
            if isinstance(each, FileHandle | RelativeHandle | SegmentHandle)
        ]
        for stored in sorted(dict.fromkeys(kept), key=lambda each: not isinstance(each, RelativeHandle)):
            located = self._located(stored)
            place = (located.path, located.start if isinstance(stored, SegmentHandle) else -1)
            if place not in by_place:
                by_place[place] = _free_name(located, place[1], taken)
                taken.add(by_place[place])
            names[stored] = by_place[place]
        return names

    def _located(self, handle: StoredHandle) -> Located:
        return self._snapshot.files.locate(handle)

    def copied(self) -> Iterator[CopiedFile]:
        seen: set[str] = set()
        for handle, name in self._names.items():
            if not isinstance(handle, SegmentHandle) and name not in seen:
                seen.add(name)
                found = self._located(handle)
                yield CopiedFile(found.folder, found.name, name, found.file_size)

    def parts(self) -> Sequence[SubtaskPart | ElementsPart | SegmentPart]:
        segments = {name: each for each, name in self._names.items() if isinstance(each, SegmentHandle)}
        return [
            *self._subtasks(),
            *self._elements_parts(),
            *(SegmentPart(each, name) for name, each in segments.items()),
        ]

    def _subtasks(self) -> list[SubtaskPart]:
        return [SubtaskPart(each.id, place) for each in self._operators.values() for place in range(len(each.stored))]

    def _elements_parts(self) -> list[ElementsPart]:
        return [
            ElementsPart(each.id, place) for each in self._element_edits.values() for place in range(len(each.stored))
        ]

    def _element_handles(self) -> dict[ElementsPart, OperatorHandle]:
        """The handles in ``_metadata`` of operator state that is written anew."""
        tasks = {(each.id, task.index): task for each in self._metadata.parsed.operators for task in each.subtasks}
        found = {}
        for part in self._elements_parts():
            stored = self._element_edits[part.operator].stored[part.place]
            handle = tasks[part.operator, stored.subtask].managed_operator
            assert handle is not None
            found[part] = handle
        return found

    def _elements_name(self, part: ElementsPart) -> str:
        return f"operator-{part.operator}-{self._element_edits[part.operator].stored[part.place].subtask}"

    def written_bytes(self) -> int:
        numbers = {*self._operators, *self._element_edits}
        operators = (self._snapshot.operator(number) for number in sorted(numbers))
        streams = sum(handles_bytes(each) for each in operators if each is not None)
        segments = sum(each.handle.size for each in self.parts() if isinstance(each, SegmentPart))
        return streams + segments + len(self._metadata.data)

    def write(self, part: SubtaskPart | ElementsPart | SegmentPart, target: Target) -> Mapping[str, int]:
        if isinstance(part, SegmentPart):
            with self._snapshot.files.open_at(part.handle) as source, target.create(part.name) as out:
                for at in range(0, source.size, PIECE_BYTES):
                    out.write(source.read_at(at, PIECE_BYTES))
            return {part.name: part.handle.size}
        if isinstance(part, ElementsPart):
            with target.create(self._elements_name(part)) as out:
                self.elements[part] = self._element_edits[part.operator].write(part.place, out.write)
            return {self._elements_name(part): self.elements[part].bytes}
        name = _stream_name(self._operators[part.operator], part.place)
        with target.create(name) as out:
            self.streams[part] = self._stream(part, out.write)
        return {name: self.streams[part].written.bytes}

    def _stream(self, part: SubtaskPart, put: Put) -> _Stream:
        """Write the stream of a subtask's keyed state, with its changes."""
        operator = self._operators[part.operator]
        rows, changes = operator.rows(part.place), operator.changes(part.place)
        work, handle = changing(changes), rows.stored.handle
        assert isinstance(handle, KeyGroupHandle | RocksHandle)
        first, groups = handle.first_group, handle.groups
        header = header_bytes(rows.files, handle)
        found = changed_groups(work, rows_by_group(rows), first, groups) if changes else rows_by_group(rows)
        written = write_stream(put, header, first, groups, found)
        states = rows.stored.header.states
        return _Stream(written, {states[number].name: each for number, each in work.met.items()})

    def finish(self, target: Target) -> Mapping[str, int]:
        """Write ``_metadata``. What another process wrote is measured by going over it once more."""
        for part in self._subtasks():
            if part not in self.streams:
                self.streams[part] = self._stream(part, lambda piece: None)
        self._check_met()
        new: dict[int, bytes] = {}
        elements = self._element_handles()
        for mine in self._elements_parts():
            edits = self._element_edits[mine.operator]
            if mine not in self.elements:
                self.elements[mine] = edits.write(mine.place, lambda piece: None)
            made = self.elements[mine]
            stream = relative_bytes(self._elements_name(mine), made.bytes)
            new[id(elements[mine])] = operator_bytes(made.states, stream)
        for found in self._metadata.parsed.operators:
            if found.id in self._operators:
                handles = [each.managed_keyed for each in found.subtasks if each.managed_keyed is not None]
                for place, handle in enumerate(handles):
                    new[id(handle)] = self._handle(SubtaskPart(found.id, place), handle.first_group)
        data = spliced(self._metadata, lambda each: new.get(id(each)) or named_in_folder(each, self._names))
        with target.create(METADATA) as out:
            out.write(data)
        return {METADATA: len(data)}

    def _handle(self, part: SubtaskPart, first_group: int) -> bytes:
        stream = self.streams[part].written
        name = _stream_name(self._operators[part.operator], part.place)
        return keyed_bytes(self._type(part), first_group, stream.offsets, relative_bytes(name, stream.bytes))

    def _type(self, part: SubtaskPart | ElementsPart | SegmentPart) -> bytes:
        """The type of the handle of a stream: that of savepoints, or where RocksDB wrote the old one, the same."""
        if not isinstance(part, SubtaskPart):
            return b""
        handle = self._operators[part.operator].stored[part.place].handle
        return KEY_GROUPS if isinstance(handle, KeyGroupHandle) and handle.form == "rocksdb" else SAVEPOINT

    def _check_met(self) -> None:
        """Check that all rows that the edit removes or changes were there. Raises InvalidInputError EDIT_REFUSED."""
        for operator in self._operators.values():
            met = [self.streams[SubtaskPart(operator.id, place)].met for place in range(len(operator.stored))]
            for each in operator.edited:
                changes = each.changes(each.at.form)
                seen = [one[each.at.form.name] for one in met if each.at.form.name in one]
                missing = ~np.logical_or.reduce(seen) if seen else np.ones(len(changes), bool)
                if missing.any():
                    why = "is not stored; read the rows from this snapshot, and edit these"
                    raise changes.refused(int(missing.argmax()), why)

    def opened(self, path: str) -> Source:
        return self.source.copy_at(path)


def edit_plan(
    source: FlinkSnapshots,
    version: int,
    edits: Sequence[StateEdit],
    options: EditOptions,
    rewritten: frozenset[str] = frozenset(),
) -> FlinkEditPlan:
    """The plan of an edit (`Source.edit_plan`); ``rewritten`` as `FlinkEditPlan` has it."""
    plan = FlinkEditPlan(source, version, tuple(edits), options, rewritten)
    plan.check()
    return plan


def _stream_name(operator: EditedOperator, place: int) -> str:
    return f"keyed-{operator.id}-{operator.indexes[place]}"


def _free_name(found: Located, start: int, taken: set[str]) -> str:
    """The name of a file in the target's folder: its own, or with a number where another file has that."""
    wanted = posixpath.basename(found.name) if start < 0 else f"{posixpath.basename(found.name)}-{start}"
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name

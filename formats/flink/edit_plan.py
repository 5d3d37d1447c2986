"""The plan of an edited snapshot: which subtasks' keyed state is written anew, and which files are copied.

The target is a savepoint whose files lie in one folder. Of an operator that is edited, the keyed state of each subtask
becomes a canonical stream, whichever backend wrote it; all other state keeps its form. ``_metadata`` comes last: before
it is there, the folder is no snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from statestore.formats.edits import CopiedFile, EditedSource, EditOptions, EditPlan, StateEdit, Target
from statestore.formats.engine import Source
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.asked_settings import AskedSettings, asked_settings, check_settings, notes_of_settings
from statestore.formats.flink.differing_entries import differing_entries
from statestore.formats.flink.edit_parts import (
    ElementsPart,
    OperatorPart,
    Part,
    SegmentPart,
    StreamPart,
    StreamsPart,
    SubtaskPart,
    TimersPart,
    free_name,
    stream_name,
)
from statestore.formats.flink.edited_elements import EditedElements, edited_elements
from statestore.formats.flink.edited_operators import EditedOperator, FlinkSnapshots, edited_operators, heap_operators
from statestore.formats.flink.edits.element_stream import WrittenElements
from statestore.formats.flink.edits.keyed_stream import Put
from statestore.formats.flink.edits.metadata_splice import (
    KEY_GROUPS,
    SAVEPOINT,
    MetadataSpans,
    handles_outside,
    head_bytes,
    keyed_bytes,
    metadata_spans,
    named_in_folder,
    operator_bytes,
    relative_bytes,
    spliced,
    subtasks_bytes,
)
from statestore.formats.flink.edits.other_groups import OtherGroups
from statestore.formats.flink.edits.state_changes import unsupported
from statestore.formats.flink.edits.timer_stream import WrittenTimers
from statestore.formats.flink.erased_keys import erased_texts, notes_of_elements
from statestore.formats.flink.snapshot.file_places import StoredHandle
from statestore.formats.flink.snapshot.handles import (
    ChangelogHandle,
    FileHandle,
    KeyGroupHandle,
    RelativeHandle,
    SegmentHandle,
    UnreadableHandle,
    unreadable,
)
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot, Place, Subtask
from statestore.formats.flink.snapshot.snapshot_files import PIECE_BYTES, Located, handles_bytes
from statestore.formats.flink.snapshot.snapshot_names import METADATA
from statestore.formats.flink.snapshot_states import CopiedStates, OpenedSnapshot
from statestore.formats.flink.state_at import ElementsAt
from statestore.formats.flink.written_operators import (
    WrittenOperator,
    key_group_ranges,
    write_moved,
    write_subtask,
)
from statestore.formats.state_table import RowPair

_FIRST_WITH_RELATIVE = _BEFORE_SAVEPOINTS = 3


@dataclass(frozen=True, eq=False)
class FlinkEditPlan(EditPlan):
    """The plan of an edit of one snapshot.

    ``rewritten`` are operators whose keyed state is written anew without an edit, by their ids. ``written`` and
    ``others`` are the parts that this process wrote, the latter those that are one stream of a subtask each.
    """

    source: FlinkSnapshots
    number: int
    edits: tuple[StateEdit, ...]
    options: EditOptions
    rewritten: frozenset[str] = frozenset()
    written: dict[StreamsPart, WrittenOperator] = field(default_factory=dict, repr=False)
    others: dict[StreamPart, WrittenElements | WrittenTimers] = field(default_factory=dict, repr=False)

    def __reduce__(self) -> tuple[object, ...]:
        return FlinkEditPlan, (self.source, self.number, self.edits, self.options, self.rewritten)

    @property
    def version(self) -> int:
        return self.number

    @property
    def target_version(self) -> int:
        """Return the version itself: checkpoints of a job that starts from a savepoint follow its id."""
        return self.number

    @cached_property
    def _snapshot(self) -> OpenedSnapshot:
        return self.source.opened(self.number)

    @cached_property
    def _metadata(self) -> MetadataSpans:
        return metadata_spans(self._snapshot.files.metadata_bytes(), self._snapshot.files.path)

    @cached_property
    def _asked(self) -> AskedSettings:
        return asked_settings(self._snapshot, self.options.settings)

    @cached_property
    def _operators(self) -> Mapping[str, EditedOperator]:
        asked = self._asked
        others = {*self.rewritten, *asked.without}
        if asked.max_parallelism is not None:
            moved = [each for each in self._kept_operators if each.max_parallelism != asked.max_parallelism]
            others |= {each.id for each in moved if any(map(_has_keyed, each.subtasks))}
        # A changelog alone is copied, as it lacks the serializer of keys, with which canonical streams begin.
        logged = [each for each in self._kept_operators if any(map(_has_changelog, each.subtasks))]
        others |= {each.id for each in logged if not _is_changelog_alone(each)}
        others -= asked.dropped
        keyed = [each for each in self.edits if not isinstance(self.source.at(each.state, self.number), ElementsAt)]
        found = edited_operators(self.source, self.number, keyed, others, asked.without)
        heap = self._of_heap({each.id for each in found})[0] if found else []
        return {each.id: each for each in (*found, *heap)}

    def _of_heap(self, known: Collection[str]) -> tuple[list[EditedOperator], list[str]]:
        """The operators of the heap beside those that are known (`heap_operators`), and those that stay there.

        All are written, so that the target is canonical as a whole: RocksDB restores no stream of the heap.
        """
        others = [each.id for each in self._kept_operators if each.id not in known]
        return heap_operators(self.source, self.number, others)

    @cached_property
    def _element_edits(self) -> Mapping[str, EditedElements]:
        """The edits of operator state, by the operators' ids."""
        found = [(each, self.source.at(each.state, self.number)) for each in self.edits]
        mine = [(edit, at) for edit, at in found if isinstance(at, ElementsAt)]
        return {each.id: each for each in edited_elements(self._snapshot, mine, self._asked.without_elements)}

    @property
    def _kept_operators(self) -> Sequence[OperatorSnapshot]:
        """The operators of the source that the target has, too."""
        return [each for each in self._snapshot.metadata.operators if each.id not in self._asked.dropped]

    def _moves(self, operator: EditedOperator) -> OtherGroups | None:
        """The change of the max parallelism of an operator, None where it stays."""
        after, key = self._asked.max_parallelism, self._snapshot.stored(operator.id).key
        if after is None or after == operator.groups or key is None:
            return None
        return OtherGroups(key, operator.groups, after, operator.origin)

    def check(self) -> None:
        """Raise the errors of the edit that follow from its rows and the metadata (`Source.edit_plan`)."""
        path, metadata = self._snapshot.files.path, self._snapshot.metadata
        if metadata.version < _FIRST_WITH_RELATIVE:
            raise unsupported(
                path,
                f"found version {metadata.version} of the metadata, whose files have absolute paths; restore the job "
                "with Flink 1.13 or later, take a savepoint and edit that",
            )
        check_settings(self._snapshot, self._asked, [each.state for each in self.edits])
        for found in self._kept_operators:
            for subtask in found.subtasks:
                if isinstance(subtask.managed_keyed, UnreadableHandle):
                    raise unreadable(subtask.managed_keyed, f"{path}, operator {self._snapshot.labels[found.id]}")
        for operator in self._operators.values():
            operator.check()
            if (moves := self._moves(operator)) is not None:
                moves.check()
                operator.header(range(len(operator.stored)))
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
        found += notes_of_settings(self._snapshot, self._asked)
        for operator in self._operators.values():
            found += operator.notes
            found += [] if operator.lost_timers is None else [operator.lost_timers]
        others = [each for each in self._kept_operators if each.id not in self._operators]
        if logged := [each.id for each in others if _is_changelog_alone(each)]:
            labels = ", ".join(sorted(self._snapshot.labels[each] for each in logged))
            found.append(
                f"{labels} keeps its changelog, of which nothing was materialized yet: start the job with the backend "
                "and the changelog that it had, in claim mode CLAIM, as Flink asks of that backend"
            )
        kept = self._of_heap(self._operators)[1] if self._operators else []
        if kept:
            labels = ", ".join(sorted(self._snapshot.labels[each] for each in kept))
            found.append(
                f"the target starts with the heap backend alone, because {labels} keeps the form of the heap: some of "
                "its values are of classes that nothing describes"
            )
        return [*found, *self._erased_elsewhere]

    @cached_property
    def _erased_elsewhere(self) -> list[str]:
        edited = {each.state for each in self.edits}
        return list(notes_of_elements(self.source, self.number, erased_texts(self.edits), edited))

    @property
    def followed(self) -> Sequence[StateEdit]:
        """Timers of erased keys, what belongs to windows, and positions of elements of lists."""
        operators: list[EditedOperator | EditedElements] = [*self._operators.values(), *self._element_edits.values()]
        return [edit for operator in operators for edit in operator.followed]

    @property
    def dropped(self) -> Collection[str]:
        return [name for state, name in self.source.names().items() if self._asked.is_dropped(state)]

    # Files

    @cached_property
    def _names(self) -> Mapping[StoredHandle, str]:
        """The names in the target's folder of the files of all handles that stay."""
        replaced = {
            id(subtask.managed_keyed)
            for each in self._metadata.parsed.operators
            if each.id in self._operators
            for subtask in each.subtasks
        }
        replaced |= {id(each) for each in self._replaced().values()}
        gone = {Place("operator", each) for each in self._asked.dropped}
        names: dict[StoredHandle, str] = {}
        streams = (stream_name(each, index) for each in self._operators for index in self._indexes(each))
        taken = {METADATA, *streams, *(each.name for each in self._single_streams())}
        by_place: dict[tuple[str, int], str] = {}
        kept: list[StoredHandle] = [
            each
            for each in handles_outside(self._metadata, lambda found: id(found) in replaced or found in gone)
            if isinstance(each, FileHandle | RelativeHandle | SegmentHandle)
        ]
        for stored in sorted(dict.fromkeys(kept), key=lambda each: not isinstance(each, RelativeHandle)):
            located = self._located(stored)
            place = (located.path, located.start if isinstance(stored, SegmentHandle) else -1)
            if place not in by_place:
                by_place[place] = free_name(located, place[1], taken)
                taken.add(by_place[place])
            names[stored] = by_place[place]
        return names

    def _indexes(self, number: str) -> Sequence[int]:
        """The numbers of the subtasks of an operator that get a stream."""
        operator = self._operators[number]
        return operator.indexes if self._moves(operator) is None else range(len(self._ranges(operator)))

    def _ranges(self, operator: EditedOperator) -> list[tuple[int, int]]:
        """The key groups of each subtask with the other max parallelism: the first, and how many."""
        found, groups = self._snapshot.operator(operator.id), self._asked.max_parallelism
        assert found is not None and groups is not None
        return key_group_ranges(groups, found.parallelism)

    def _located(self, handle: StoredHandle) -> Located:
        return self._snapshot.files.locate(handle)

    def copied(self) -> Iterator[CopiedFile]:
        seen: set[str] = set()
        for handle, name in self._names.items():
            if not isinstance(handle, SegmentHandle) and name not in seen:
                seen.add(name)
                found = self._located(handle)
                yield CopiedFile(found.folder, found.name, name, found.file_size)

    def parts(self) -> Sequence[Part]:
        segments = {name: each for each, name in self._names.items() if isinstance(each, SegmentHandle)}
        return [
            *self._streams(),
            *self._single_streams(),
            *(SegmentPart(each, name) for name, each in segments.items()),
        ]

    def _streams(self) -> list[StreamsPart]:
        found: list[StreamsPart] = []
        for number, each in self._operators.items():
            whole = self._moves(each) is not None
            found += [OperatorPart(number)] if whole else [SubtaskPart(number, at) for at in range(len(each.stored))]
        return found

    def _single_streams(self) -> list[StreamPart]:
        """The parts that are one stream of a subtask: operator state, and timers in raw keyed state."""
        return [
            *(ElementsPart(each.id, one.subtask) for each in self._element_edits.values() for one in each.stored),
            *(TimersPart(number, index) for number, each in self._operators.items() for index in each.timers),
        ]

    def _replaced(self) -> dict[StreamPart, object]:
        """The handles in ``_metadata`` of those parts."""
        tasks = {(each.id, task.index): task for each in self._metadata.parsed.operators for task in each.subtasks}
        found: dict[StreamPart, object] = {}
        for part in self._single_streams():
            task = tasks[part.operator, part.subtask]
            found[part] = task.raw_keyed if isinstance(part, TimersPart) else task.managed_operator
        return found

    def written_bytes(self) -> int:
        numbers = {*self._operators, *self._element_edits}
        operators = (self._snapshot.operator(number) for number in sorted(numbers))
        streams = sum(handles_bytes(each) for each in operators if each is not None)
        segments = sum(each.handle.size for each in self.parts() if isinstance(each, SegmentPart))
        return streams + segments + len(self._metadata.data)

    def write(self, part: Part, target: Target) -> Mapping[str, int]:
        if isinstance(part, SegmentPart):
            with self._snapshot.files.open_at(part.handle) as source, target.create(part.name) as out:
                for at in range(0, source.size, PIECE_BYTES):
                    out.write(source.read_at(at, PIECE_BYTES))
            return {part.name: part.handle.size}
        if isinstance(part, StreamPart):
            with target.create(part.name) as out:
                self.others[part] = self._write_single(part, out.write)
            return {part.name: self.others[part].bytes}

        @contextmanager
        def opened(name: str) -> Iterator[Put]:
            with target.create(name) as out:
                yield out.write

        self.written[part] = self._write(part, opened)
        streams = zip(self._stream_names(part), self.written[part].streams, strict=True)
        return {name: stream.bytes for name, (_, stream) in streams}

    def noted(self, part: Part) -> str:
        """Return what was written of a part, whose offsets ``_metadata`` has."""
        if isinstance(part, SegmentPart):
            return ""
        return (self.others[part] if isinstance(part, StreamPart) else self.written[part]).as_text()

    def note(self, part: Part, noted: str) -> None:
        """Take what another process wrote of a part."""
        if isinstance(part, StreamPart):
            self.others[part] = (WrittenTimers if isinstance(part, TimersPart) else WrittenElements).of_text(noted)
        elif not isinstance(part, SegmentPart):
            self.written[part] = WrittenOperator.of_text(noted)

    def _write_single(self, part: StreamPart, put: Put) -> WrittenElements | WrittenTimers:
        if isinstance(part, TimersPart):
            return self._operators[part.operator].write_timers(part.subtask, put)
        return self._element_edits[part.operator].write(part.subtask, put)

    def _stream_names(self, part: StreamsPart) -> list[str]:
        if isinstance(part, SubtaskPart):
            return [stream_name(part.operator, self._operators[part.operator].indexes[part.place])]
        return [stream_name(part.operator, index) for index in self._indexes(part.operator)]

    def _write(self, part: StreamsPart, opened: Callable[[str], AbstractContextManager[Put]]) -> WrittenOperator:
        """Write the streams of a part, by what ``opened`` opens under their names."""
        operator, names = self._operators[part.operator], self._stream_names(part)
        if isinstance(part, SubtaskPart):
            with opened(names[0]) as put:
                return write_subtask(operator, part.place, put)
        moves = self._moves(operator)
        assert moves is not None
        return write_moved(operator, moves, self._ranges(operator), lambda index: opened(names[index]))

    def finish(self, target: Target) -> Mapping[str, int]:
        """Write ``_metadata``. What another process wrote is measured by going over it once more."""
        for part in self._streams():
            if part not in self.written:
                self.written[part] = self._write(part, lambda name: nullcontext(lambda piece: None))
        for each in self._single_streams():
            if each not in self.others:
                self.others[each] = self._write_single(each, lambda piece: None)
        self._check_met()
        places, handles = self._new_places(), self._new_handles()

        def changed(found: object) -> bytes | None:
            if isinstance(found, Place):
                return places.get(found)
            return handles.get(id(found)) or named_in_folder(found, self._names)

        data = spliced(self._metadata, changed)
        with target.create(METADATA) as out:
            out.write(data)
        return {METADATA: len(data)}

    def _new_places(self) -> Mapping[Place, bytes]:
        """The bytes of the places in the metadata that change."""
        asked, version = self._asked, self._metadata.parsed.version
        places = {Place("operator", each): b"" for each in asked.dropped}
        if places:
            places[Place("number")] = len(self._kept_operators).to_bytes(4, "big")
        for each in self._kept_operators:
            head = asked.head(each)
            if head != each:
                places[Place("head", each.id)] = head_bytes(head, version)
        for part in self._streams():
            operator, handles = self._snapshot.operator(part.operator), self._handles(part)
            assert operator is not None
            known = {task.index for task in operator.subtasks}
            places |= {Place("keyed", part.operator, each): handles[each] for each in handles if each in known}
            added = {index: handle for index, handle in handles.items() if index not in known}
            if added:
                places[Place("subtasks", part.operator)] = subtasks_bytes(len(operator.subtasks), added)
        return places

    def _new_handles(self) -> Mapping[int, bytes]:
        """The bytes of handles of single streams that change, by the ids of the objects."""
        found = {}
        for part, handle in self._replaced().items():
            made = self.others[part]
            stream = relative_bytes(part.name, made.bytes)
            if isinstance(made, WrittenElements):
                found[id(handle)] = operator_bytes(made.states, stream)
            elif isinstance(handle, KeyGroupHandle):
                found[id(handle)] = keyed_bytes(KEY_GROUPS, handle.first_group, made.stream.offsets, stream)
        return found

    def _handles(self, part: StreamsPart) -> Mapping[int, bytes]:
        """The handles of the streams of a part, by the number of the subtask."""
        indexes = self._indexes(part.operator)
        indexes = [indexes[part.place]] if isinstance(part, SubtaskPart) else indexes
        streams = zip(indexes, self._stream_names(part), self.written[part].streams, strict=True)
        return {
            index: keyed_bytes(self._type(part), first, stream.offsets, relative_bytes(name, stream.bytes))
            for index, name, (first, stream) in streams
        }

    def _type(self, part: Part) -> bytes:
        """The type of the handle of a stream: that of savepoints, or where RocksDB wrote the old one, the same."""
        if isinstance(part, SegmentPart | StreamPart):
            return b""
        stored = self._operators[part.operator].stored
        if isinstance(part, SubtaskPart):
            stored = (stored[part.place],)
        handles = [each.handle for each in stored]
        is_old = all(isinstance(each, KeyGroupHandle) and each.form == "rocksdb" for each in handles)
        return KEY_GROUPS if is_old else SAVEPOINT

    def _check_met(self) -> None:
        """Check that all rows that the edit removes or changes were there. Raises InvalidInputError EDIT_REFUSED."""
        for operator in self._operators.values():
            parts = [each for each in self._streams() if each.operator == operator.id]
            met = [one for part in parts for one in self.written[part].met]
            for part, made in self.others.items():
                if isinstance(made, WrittenTimers) and part.operator == operator.id:
                    met.append(made.met)
            for each in operator.edited:
                changes = each.changes(each.at.form)
                seen = [one[each.at.form.name] for one in met if each.at.form.name in one]
                missing = ~np.logical_or.reduce(seen) if seen else np.ones(len(changes), bool)
                if missing.any():
                    why = "is not stored; read the rows from this snapshot, and edit these"
                    raise changes.refused(int(missing.argmax()), why)

    def opened(self, path: str) -> Source:
        """Open the target. It shows the columns of the source, also where other values would tell other ones."""
        asked, snapshot = self._asked, self._snapshot
        snapshot.states()
        learned = tuple(replace(each, operator=asked.target_id(each.operator)) for each in snapshot.learned)
        listed = self.source.names().items() if asked.renamed else ()
        names = {(asked.target_id(state[0]), *state[1:]): name for state, name in listed}
        return self.source.copy_at(path, CopiedStates(names, learned))

    def differing_rows(
        self, state: str, source: EditedSource, target: EditedSource, columns: Collection[str]
    ) -> Iterator[RowPair] | None:
        """Pairs of rows whose stored bytes differ: entries of equal bytes are not decoded."""
        assert isinstance(source, Source)
        assert isinstance(target, Source)
        return differing_entries(source.at(state, self.version), target.at(state, self.target_version), columns)


def edit_plan(
    source: FlinkSnapshots,
    version: int,
    edits: Sequence[StateEdit],
    options: EditOptions,
    rewritten: frozenset[str] = frozenset(),
) -> FlinkEditPlan:
    """The plan of an edit (`Source.edit_plan`); ``rewritten`` as `FlinkEditPlan` has it."""
    if options.as_batch:
        raise UnsupportedError(
            ErrorCode.EDIT_UNSUPPORTED, "Flink has no batches, so an edit cannot be one; leave that option out"
        )
    plan = FlinkEditPlan(source, version, tuple(edits), options, rewritten)
    plan.check()
    return plan


def _has_keyed(subtask: Subtask) -> bool:
    return subtask.managed_keyed is not None


def _has_changelog(subtask: Subtask) -> bool:
    return isinstance(subtask.managed_keyed, ChangelogHandle)


def _is_changelog_alone(operator: OperatorSnapshot) -> bool:
    """Return whether all keyed state of an operator is in changelogs, of which nothing was materialized yet."""
    handles = [each.managed_keyed for each in operator.subtasks if each.managed_keyed is not None]
    found = [each for each in handles if isinstance(each, ChangelogHandle)]
    return len(found) == len(handles) > 0 and not any(each.materialized for each in found)

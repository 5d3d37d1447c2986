"""The savepoints and checkpoints of a Flink job as a `Source`: read only, without Flink.

A version is a snapshot, by its checkpoint id. Its time is when it was completed, by the time of change of its
``_metadata`` file; Flink writes no other. Times of files that were copied are not in the order of the ids, or closer
together than a job takes checkpoints, or older than files beside them: then none is known.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import pickle
from collections.abc import Collection, Hashable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import pyarrow as pa

from statestore.formats.engine import FileFinding, RestoreCheck, Source, StateAt, StateInfo, StateSize, Version
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, InvalidInputError, NotFoundError, StateStoreError
from statestore.formats.flink.description_file import describe_job, read_description
from statestore.formats.flink.differing_snapshots import content_of_groups, differing_groups
from statestore.formats.flink.flink_settings import FlinkSettings
from statestore.formats.flink.folder_findings import folder_findings, lost_files
from statestore.formats.flink.java_classes.job_code import KnownClasses
from statestore.formats.flink.job_description import JobDescription, job_of
from statestore.formats.flink.restore_check import restore_findings
from statestore.formats.flink.snapshot.job_snapshots import (
    SnapshotRef,
    find_jobs,
    is_there,
    newer_checkpoints,
    times_of,
)
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot
from statestore.formats.flink.snapshot.snapshot_files import MISSING, handles_bytes, needed_files
from statestore.formats.flink.snapshot.snapshot_names import CHECKPOINT
from statestore.formats.flink.snapshot_states import (
    CopiedStates,
    Identity,
    OpenedSnapshot,
    ShownState,
    open_snapshot,
    shown_name,
    wider_schema,
)
from statestore.formats.flink.state_at import KeyedAt, Origin, UnreadableAt
from statestore.formats.flink.state_facts import keyed_kind, operator_words, state_info
from statestore.formats.flink.state_opening import check_column, state_in, state_size
from statestore.formats.flink.stored_parts import asked_groups
from statestore.formats.flink.streams.state_form import KeyedForm
from statestore.formats.flink.written_states import remember, remembered, seen_state, written_since
from statestore.formats.jobs import Job, KeyedOperator, OperatorState, RestoreFinding
from statestore.formats.places.folder import folder_at
from statestore.formats.places.locations import Location, parse_location
from statestore.formats.replaced_versions import is_gone
from statestore.formats.state_table import RowPair
from statestore.formats.values.filters import Filter
from statestore.formats.written import Written

if TYPE_CHECKING:  # what edits alone need is loaded by them
    from statestore.formats.edits import EditOptions, StateEdit
    from statestore.formats.flink.edit_plan import FlinkEditPlan

SLICE_BYTES = 64 << 20
_MOST_OPENED = 4
_opened: dict[bytes, FlinkSource] = {}  # sources that came with tasks, by a digest of what they are


@dataclass(frozen=True)
class Found:
    """Results of a source's look-ups; nothing of them changes while the source is used, but that checkpoints are
    ``gone``. ``times`` is empty until they are looked for. ``holds``: the files of checkpoints that are opened are kept
    open.

    A state at a version refers to the source, which therefore keeps no reference to it: files that are held are closed
    with the last reference to the source.
    """

    snapshots: dict[int, OpenedSnapshot] = field(default_factory=dict)
    shown: dict[str, ShownState] = field(default_factory=dict)
    infos: dict[str, StateInfo] = field(default_factory=dict)
    at: MutableMapping[tuple[str, int], StateAt] = field(default_factory=WeakValueDictionary)
    gone: set[int] = field(default_factory=set)
    times: list[Mapping[int, int]] = field(default_factory=list)
    holds: bool = False


@dataclass(frozen=True)
class FlinkSource(Source):
    """The snapshots of a job that were there when it was opened; ``refs`` are by checkpoint id, ascending.

    ``copied`` are facts of the snapshot of which this is a copy.
    """

    location: Location
    job: str
    refs: tuple[tuple[int, SnapshotRef], ...]
    incomplete: tuple[str, ...]
    settings: FlinkSettings
    broken: tuple[str, ...] = ()
    copied: CopiedStates | None = field(default=None, repr=False, compare=False)
    found: Found = field(default_factory=Found, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        known = (self.location, self.job, self.refs, self.incomplete, self.settings, self.broken, self.copied)
        return _shared, (hashlib.sha256(pickle.dumps(known)).digest(), self.settings.code.known, *known)

    @property
    def path(self) -> str:
        return str(self.location)

    @property
    def place(self) -> Location:
        return self.location

    @property
    def identity(self) -> str:
        return self.job

    @property
    def version_words(self) -> tuple[str, str]:
        return "checkpoint", "checkpoints"

    def states(self) -> Sequence[str]:
        return sorted(self._states())

    def listed_as(self, name: str) -> str | None:
        """A state is also called by its operator's uid, name or id, and by its stored name."""
        if name in self._states():
            return name
        called = [each for each in self._states().values() if name in self._other_names(each)]
        return called[0].name if len(called) == 1 else None

    def info(self, state: str) -> StateInfo:
        if state not in self.found.infos:
            found = self._shown(state)
            self.found.infos[state] = state_info(state, found, self._newest_operator(found))
        return self.found.infos[state]

    def versions(self, state: str, numbers: Sequence[int] | None = None) -> Sequence[Version]:
        operator = self._shown(state).identity[0]
        times = self._times()
        if self.refs[-1][0] in self.found.gone:
            raise self._gone(self.refs[-1][0])
        found = []
        for number, ref in self.refs:
            if (numbers is not None and number not in numbers) or number in self.found.gone:
                continue
            if self._snapshot(number).operator(operator) is None:
                continue
            facts = {"operation": self._kind(number), "application": ref.name}
            found.append(Version(number, times.get(number), facts=facts))
        return found

    def newest(self, state: str) -> int:
        """The newest snapshot, whose states are those that are listed."""
        self._shown(state)
        found = self._broken()
        if found is not None:
            raise found
        return self.refs[-1][0]

    def _broken(self) -> CorruptError | None:
        """The error for a checkpoint newer than all others whose ``_metadata`` cannot be read."""
        last, ref = self.refs[-1]
        newer = [name for name in self.broken if (match := CHECKPOINT.fullmatch(name)) and int(match[1]) > last]
        if not newer:
            return None
        return CorruptError(
            ErrorCode.FLINK_METADATA,
            f"{self.path}: the _metadata of {newer[-1]}, which is newer than {ref.name}, is a link that leads to no "
            f"file; restore it from a copy, or read version {last}",
        )

    def check_readable(self, state: str, version: int) -> None:
        if version in self.found.gone:
            raise self._gone(version)
        if not self.versions(state, [version]):  # others may be damaged
            super().check_readable(state, version)

    def explain_loss(self, error: StateStoreError, state: str, versions: Sequence[int]) -> StateStoreError:
        """VERSION_GONE where a checkpoint was removed, as the job removes it once a newer one is complete.

        Files may go before ``_metadata`` does, so a missing file also tells it where the job has gone on.
        """
        asked = [each for each in self.refs if each[0] in versions or not versions]
        try:
            gone = [number for number, ref in asked if number in self.found.gone or not is_there(ref)]
            if not gone and error.code == ErrorCode.FLINK_FILE_MISSING and self._newer():
                gone = [(asked[0] if versions else asked[-1])[0]]
        except InvalidInputError:
            return error
        if not gone:
            return error
        self.found.gone.update(gone)
        return self._gone(gone[-1])

    def holding(self) -> FlinkSource:
        """The source with the files of its checkpoints kept open (`statestore.formats.engine.Source.holding`)."""
        number, ref = self.refs[-1]
        if self.found.holds or not ref.folder.is_local:
            return self
        opened = {each: snapshot.holding() for each, snapshot in self.found.snapshots.items()}
        source = replace(self, found=Found(opened, holds=True))
        try:
            held = source._snapshot(number).files.held
        except StateStoreError as error:  # which a read raises, too, unless the checkpoint has just been removed
            if is_gone(self.explain_loss(error, "", [number])):
                raise self._gone(number) from error
            return source
        if held is not None and held.lacks and (not is_there(ref) or self._newer()):
            raise source._gone(number)
        return source

    def _newer(self) -> list[int]:
        number, ref = self.refs[-1]
        return newer_checkpoints(ref, number)

    def _gone(self, number: int) -> NotFoundError:
        newer = [each for each, _ in self.refs if each > number and each not in self.found.gone]
        with contextlib.suppress(InvalidInputError):
            newer += self._newer()
        what = f"{self._word(number)} of {self.path} is gone{lost_files(self.found.snapshots.get(number))}"
        if not newer:
            return NotFoundError(ErrorCode.VERSION_GONE, f"{what}: it was removed while it was read; read another one")
        return NotFoundError(
            ErrorCode.VERSION_GONE, f"{what}: the job has replaced it by checkpoint {newer[-1]}; read again"
        )

    def _word(self, number: int) -> str:
        return f"{dict(self.refs)[number].kind} {number}"

    def at(self, state: str, version: int) -> StateAt:
        if version in self.found.gone:
            raise self._gone(version)
        at = self.found.at.get((state, version))
        if at is None:
            at = self.found.at[state, version] = self._at(self._shown(state), version)
            remember(self, state, at)
        return at

    def is_origin(self, state: str) -> bool:
        """Whether rows began with the oldest snapshot: never known, for earlier checkpoints may have been removed."""
        return False

    def shared_schema(self, state: str) -> pa.Schema:
        ats = [self.at(state, number) for number in self.kept(state)]
        unreadable = [at for at in ats if isinstance(at, UnreadableAt)]
        if unreadable and len(unreadable) < len(ats):
            raise unreadable[0].error
        schemas = [at.schema for at in ats]
        shared = schemas[-1]
        for schema in schemas[:-1]:
            where = f"{self.path}, state {state}"
            shared = wider_schema(shared, schema, where, "checkpoint", "read single checkpoints")
        return shared

    def file_findings(self, state: str, versions: Sequence[int]) -> Sequence[FileFinding]:
        """Return what is wrong with snapshots beside the files of their states, with the first of the states."""
        told = versions if state == self.states()[0] else ()
        return [found for number in told for found in folder_findings(self._snapshot(number))]

    def size(self, state: str) -> StateSize:
        """Bytes of the operator's state: its states share files. Rows are unknown until they are read."""
        found = self._shown(state)
        snapshot, operator = self._snapshot(self.refs[-1][0]), self._newest_operator(found)
        alone = sum(each.identity[0] == operator.id for each in self._states().values()) == 1
        files = list(needed_files(snapshot.files, operator))
        if any(each.role == MISSING for each in files):
            lost = NotFoundError(ErrorCode.FLINK_FILE_MISSING, f"{snapshot.files.path}: files are missing")
            self._check_whole([lost])
        return state_size(snapshot, operator, found, files, self._broken(), self.incomplete, alone=alone)

    def no_time(self, state: str, version: int) -> NotFoundError:
        return NotFoundError(
            ErrorCode.TIME_NOT_KEPT,
            f"checkpoint {version} of {self.path} has no known time, which reads by time need: the times of the "
            "_metadata files are those of copies, for they are not in the order of the checkpoint ids, or too "
            "close together, or older than the files beside them; copy with times (cp -p, rsync -t), or use "
            "checkpoint ids: read changes() by start_version and end_version, diff(), or the state of a version",
        )

    # Slices: key groups, which are the same in every version

    def slices(self, state: str, versions: Sequence[int], filters: Sequence[Filter]) -> Sequence[Any]:
        ats = [self.at(state, number) for number in versions]
        keyed = [at for at in ats if isinstance(at, KeyedAt)]
        groups = {at.groups for at in keyed}
        if len(keyed) < len(ats) or len(groups) != 1:
            return [None]
        (number,) = groups
        sizes = [sum(handles_bytes(at.operator) for at in keyed if at.version == each) for each in versions]
        pieces = min(number, max(sizes, default=0) // SLICE_BYTES + 1)
        edges = [number * piece // pieces for piece in range(pieces + 1)]
        slices = [range(first, stop) for first, stop in itertools.pairwise(edges)]
        asked = asked_groups(keyed[0].form, keyed[0].key, number, filters)
        return [each for each in slices if asked is None or any(group in each for group in asked)]

    def slice_parts(self, at: StateAt, piece: Any, filters: Sequence[Filter]) -> Sequence[Any]:
        if piece is None or not isinstance(at, KeyedAt):
            return at.parts(filters)
        asked = asked_groups(at.form, at.key, at.groups, filters)
        return at.parts_in(set(piece) if asked is None else asked & set(piece), filters)

    def content(self, at: StateAt, piece: Any) -> Hashable | None:
        """The files with rows behind a slice: with equal ones, a database has equal rows."""
        return None if piece is None else content_of_groups(at, piece)

    def differing_slice(
        self, old: StateAt, new: StateAt, piece: Any, columns: Sequence[Collection[str]]
    ) -> Iterator[RowPair] | None:
        """Pairs of the rows that differ between two databases of RocksDB, which may share table files."""
        return None if piece is None else differing_groups(old, new, piece, columns)

    def written(self, state: str, version: Version, before: Version) -> Written | None:
        """The writes between two checkpoints of RocksDB. ``before`` may be gone, if this process has looked at it."""
        new, old = self.at(state, version.number), None
        seen = remembered(self, state, before.number)
        with contextlib.suppress(StateStoreError):  # a comparison is left to those who know both
            old = self.at(state, before.number)
            seen = seen_state(old) or seen
        return written_since(Origin(self, state), seen, old, new)

    def keyed_operators(self, version: int | None = None) -> Sequence[KeyedOperator]:
        snapshot = self._snapshot(self.refs[-1][0] if version is None else self._known(version))
        found = []
        for operator in snapshot.metadata.operators:
            mine = [each for each in snapshot.states().values() if each.identity[:2] == (operator.id, "keyed")]
            if not mine:
                continue
            states = tuple(
                OperatorState(each.identity[2], self._name_of(each), keyed_kind(each.form), each.form.undivided)
                for each in mine
                if isinstance(each.form, KeyedForm)
            )
            ids = tuple(each for each in (operator.id, operator.uid, operator.name) if each)
            found.append(
                KeyedOperator(mine[0].operator, operator.max_parallelism, max(operator.parallelism, 1), states, ids)
            )
        return found

    def described(self) -> str:
        return describe_job(self._job())

    def job_info(self) -> Job:
        """The job as of its newest snapshot, which also records operators without state."""
        snapshot, keeping = self._snapshot(self.refs[-1][0]), {each.identity[0] for each in self._states().values()}
        labels = snapshot.labels
        stateless = (each for each in snapshot.metadata.operators if each.id not in keeping)
        return Job(
            f"job {self.job}",
            "Which operator feeds which is not recorded in a snapshot.",
            stateless=tuple(sorted(operator_words(each, labels[each.id]) for each in stateless)),
        )

    def restore_check(self) -> RestoreCheck:
        return RestoreCheck(self.restored_by, self.restored_as_described)

    def edit_plan(self, version: int, edits: Sequence[StateEdit], options: EditOptions) -> FlinkEditPlan:
        """The plan of a canonical savepoint that differs from a snapshot by the edits."""
        from statestore.formats.flink.edit_plan import edit_plan

        return edit_plan(self, self._known(version), edits, options)

    def names(self) -> Mapping[Identity, str]:
        """The names of the states that are listed, by what they are."""
        return {each.identity: name for name, each in self._states().items()}

    def copy_at(self, path: str, copied: CopiedStates) -> FlinkSource:
        """Open the copy of one snapshot, with the settings of this source. Raises as `open_snapshot`."""
        location = parse_location(path)
        ((job, ref),) = ((job, ref) for job in find_jobs(folder_at(location)) for ref in job.snapshots)
        opened, settings = open_snapshot(ref, self.settings, copied.learned), self.settings
        if copied.names:
            labels, types = opened.labels, dict(settings.types)
            for (operator, _, stored), name in copied.names.items():
                if name in types and operator in labels:
                    types.setdefault(shown_name(labels[operator], stored), types[name])
            settings = replace(settings, types=types)
            opened = open_snapshot(ref, settings, copied.learned)
        number = opened.metadata.checkpoint_id
        return FlinkSource(
            location, job.job, ((number, ref),), (), settings, found=Found({number: opened}), copied=copied
        )

    def restored_by(self, job: Source) -> Sequence[RestoreFinding]:
        if not isinstance(job, FlinkSource):
            raise InvalidInputError(
                ErrorCode.STATE_SELECTION, f"{job.path} is no job of Flink; expected a savepoint or checkpoint of one"
            )
        return restore_findings(self._job(), job._job())

    def restored_as_described(self, text: str, name: str) -> Sequence[RestoreFinding]:
        return restore_findings(self._job(), read_description(text, name))

    def _job(self) -> JobDescription:
        """The job as of its newest snapshot. Raises NotFoundError VERSION_GONE where its files were just removed."""
        snapshot = self._snapshot(self.refs[-1][0])
        self._check_whole([each.error for each in snapshot.states().values() if each.error is not None])
        return job_of(snapshot)

    def operator_of(self, state: str) -> OperatorSnapshot:
        """The operator of a state, in the newest snapshot that has it."""
        return self._newest_operator(self._shown(state))

    def opened(self, version: int) -> OpenedSnapshot:
        """A snapshot of the source. Raises NotFoundError VERSION_NOT_FOUND."""
        return self._snapshot(self._known(version))

    def _snapshot(self, number: int) -> OpenedSnapshot:
        if number not in self.found.snapshots:
            ref = dict(self.refs)[number]
            opened = open_snapshot(ref, self.settings, () if self.copied is None else self.copied.learned)
            opened = opened.holding() if self.found.holds else opened
            if opened.metadata.checkpoint_id != number:
                raise InvalidInputError(
                    ErrorCode.STATE_SELECTION,
                    f"{ref.folder.path} has checkpoint {opened.metadata.checkpoint_id}, expected {number} by its name; "
                    "the folder was renamed: give the path of one snapshot",
                )
            self.found.snapshots[number] = opened
        return self.found.snapshots[number]

    def _known(self, version: int) -> int:
        numbers = [number for number, _ in self.refs]
        if version not in numbers:
            raise NotFoundError(
                ErrorCode.VERSION_NOT_FOUND,
                f"{self.path} has no checkpoint {version}; there are {', '.join(map(str, numbers))}",
            )
        return version

    def _kind(self, number: int) -> str:
        opened, ref = self._snapshot(number), dict(self.refs)[number]
        if opened.metadata.is_savepoint is None:
            return ref.kind
        return "savepoint" if opened.metadata.is_savepoint else "checkpoint"

    def _times(self) -> Mapping[int, int]:
        """Times of the snapshots by id; none where one of them is that of a copy."""
        if not self.found.times:
            self.found.times.append(times_of(self.refs))
        return self.found.times[0]

    def _states(self) -> Mapping[str, ShownState]:
        """The states of the newest snapshot by name. Raises InvalidInputError FLINK_TYPE for types of no state."""
        if not self.found.shown:
            states = self._snapshot(self.refs[-1][0]).states().values()
            self._check_whole([each.error for each in states if each.error is not None])
            known = {name for each in states for name in (each.name, each.identity[2])}
            unknown = sorted(set(self.settings.types) - known)
            if unknown:
                raise InvalidInputError(
                    ErrorCode.FLINK_TYPE,
                    f"option type names {unknown[0]!r}, which is no state of {self.path}; there are "
                    f"{', '.join(sorted(each.name for each in states)) or 'none'}",
                )
            for name, columns in self.settings.types.items():
                for column in columns:
                    check_column(name, column, [each for each in states if name in (each.name, each.identity[2])])
            names = {} if self.copied is None else self.copied.names
            shown = [replace(each, name=names.get(each.identity, each.name)) for each in states]
            self.found.shown.update({each.name: each for each in shown})
        return self.found.shown

    def _check_whole(self, errors: Sequence[StateStoreError]) -> None:
        """Raise NotFoundError VERSION_GONE where states are missing because their files were just removed."""
        for error in errors:
            found = self.explain_loss(error, "", [self.refs[-1][0]]) if isinstance(error, NotFoundError) else error
            if found is not error:
                raise found from error

    def _name_of(self, wanted: ShownState) -> str:
        return next((name for name, each in self._states().items() if each.identity == wanted.identity), wanted.name)

    def _shown(self, state: str) -> ShownState:
        found = self._states().get(state)
        if found is None:
            raise NotFoundError(
                ErrorCode.TABLE_NOT_FOUND,
                f"{self.path} has no state {state!r}; there are {', '.join(sorted(self._states())) or 'none'}",
            )
        return found

    def _other_names(self, each: ShownState) -> set[str]:
        operator, stored = self._newest_operator(each), each.identity[2]
        labels = [label for label in (operator.id, operator.uid, operator.name, each.operator) if label]
        return {name for label in labels for name in (f"{label}.{stored}", shown_name(label, stored))}

    def _newest_operator(self, found: ShownState) -> OperatorSnapshot:
        operator = self._snapshot(self.refs[-1][0]).operator(found.identity[0])
        assert operator is not None
        return operator

    def _at(self, wanted: ShownState, version: int) -> StateAt:
        snapshot = self.opened(version)
        operator = snapshot.operator(wanted.identity[0]) or self._newest_operator(wanted)
        return state_in(Origin(self, wanted.name), version, snapshot, wanted, operator)


def _shared(digest: bytes, classes: KnownClasses, *known: Any) -> FlinkSource:
    """The source with these facts: the same for all parts that a process reads, so each snapshot is opened once.
    ``classes`` are those of the job's jars that were looked up before, which tasks may not reach."""
    found = _opened.get(digest)
    if found is None:
        found = FlinkSource(*known)
        if len(_opened) >= _MOST_OPENED:
            _opened.clear()
        _opened[digest] = found
    found.settings.code.learn(classes)
    return found

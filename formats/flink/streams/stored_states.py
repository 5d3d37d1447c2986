"""The states of one operator in one snapshot: where their rows are stored, by subtask, and their types.

A subtask lists only states that it has registered, and each stream numbers its states by itself. So the states of an
operator are those of all its subtasks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import CorruptError, NotFoundError, StateStoreError, UnsupportedError, shown
from statestore.formats.flink.java_classes.job_code import JobCode
from statestore.formats.flink.serializers.backend_header import (
    VERSION,
    BackendHeader,
    KeyedStateHeader,
    OperatorHeader,
    read_backend_header,
    read_operator_header,
)
from statestore.formats.flink.serializers.flink_types import (
    VOID,
    FlinkType,
    KryoOf,
    PojoOf,
    TimerOf,
    replaced,
)
from statestore.formats.flink.serializers.job_classes import JobClass
from statestore.formats.flink.serializers.subclasses import Subclass, with_subclasses
from statestore.formats.flink.serializers.type_names import shown as shown_type
from statestore.formats.flink.serializers.type_search import of_kryo, of_scala
from statestore.formats.flink.snapshot.handles import (
    ChangelogHandle,
    KeyedHandle,
    KeyGroupHandle,
    OperatorHandle,
    RocksHandle,
    StreamHandle,
    UnreadableHandle,
    stream_size,
    unreadable,
)
from statestore.formats.flink.snapshot.metadata import OperatorSnapshot, Subtask
from statestore.formats.flink.snapshot.snapshot_files import (
    OTHER,
    TABLE,
    SnapshotFiles,
    handles_of_keyed,
    naming_files,
    naming_metadata,
)
from statestore.formats.flink.streams.logged_keys import UNKNOWN_KEY, logged_key
from statestore.formats.flink.streams.logged_states import LoggedStates, joined_states, logged_states
from statestore.formats.flink.streams.raw_timers import EVENT, PROCESSING, TimerService, timer_services
from statestore.formats.flink.streams.savepoint_entries import written_form
from statestore.formats.places.folder import MAX_SMALL_BYTES, PARALLEL_REQUESTS

P = TypeVar("P")
R = TypeVar("R")
SAME_TYPES = "use the state in every subtask of the job, which migrates it, and take another snapshot"


@dataclass(frozen=True)
class StoredKeyed:
    """Managed keyed state of a subtask, with the header of its stream.

    That of the changelog backend has what was ``materialized`` and what was ``logged`` since; its header is that of
    both.
    """

    handle: KeyGroupHandle | RocksHandle | ChangelogHandle
    header: BackendHeader
    materialized: tuple[StoredKeyed, ...] = ()
    logged: LoggedStates | None = None


@dataclass(frozen=True)
class StoredTimers:
    """Timers in the raw keyed state of a subtask."""

    handle: KeyGroupHandle
    services: tuple[TimerService, ...]

    @property
    def states(self) -> set[str]:
        """The names that these timers have in other backends."""
        return {prefix + each.name for each in self.services for prefix in (EVENT, PROCESSING)}


@dataclass(frozen=True)
class StoredElements:
    """Operator state of a subtask."""

    subtask: int
    handle: OperatorHandle
    header: OperatorHeader


@dataclass(frozen=True)
class StoredStates:
    """The stored state of an operator. ``error`` says why some of it cannot be read."""

    keyed: tuple[StoredKeyed, ...]
    timers: tuple[StoredTimers, ...]
    elements: tuple[StoredElements, ...]
    error: StateStoreError | None = None

    @property
    def key(self) -> FlinkType | None:
        """The type of the keys, None where there is no keyed state."""
        keys = [each.header.key for each in self.keyed] + [each.services[0].key for each in self.timers]
        return merged(keys, "keys") if keys else None

    def keyed_states(self) -> list[tuple[KeyedStateHeader, ...]]:
        """All keyed states and timers, in the order of the first subtask that has each: its header as the subtasks have
        it, more than one where they wrote values of other types.

        Flink migrates a state when a subtask registers it. One that a job does not register in ``open`` but with its
        first record keeps its old type in subtasks that had no such record yet. Raises UnsupportedError
        FLINK_UNSUPPORTED for kinds and namespaces that differ.
        """
        found: dict[str, list[KeyedStateHeader]] = {}
        for stored in self.keyed:
            for state in stored.header.states:
                found.setdefault(state.name, []).append(state)
        for timers in self.timers:
            for service in timers.services:
                for prefix in (EVENT, PROCESSING):
                    kind = TimerOf(service.key, service.namespace)
                    name = prefix + service.name
                    found.setdefault(name, []).append(KeyedStateHeader(name, "timers", VOID, kind, {}))
        return [_distinct(each) for each in found.values()]


def stored_states(
    files: SnapshotFiles,
    operator: OperatorSnapshot,
    label: str,
    *,
    is_old: bool = True,
    classes: tuple[JobClass, ...] = (),
    code: JobCode | None = None,
    subclasses: Sequence[Subclass] = (),
) -> StoredStates:
    """Read the headers of an operator's state in a snapshot. ``label`` names the operator in errors.

    ``is_old``: a release of Flink 1.x wrote it, whose Kryo has other bytes than that of 2.x. ``classes`` are the job's,
    as a user declares them, ``code`` has its jars. Where the job gave Kryo serializers for all subclasses of some
    classes, these may write them, and they are not read. ``subclasses`` are those of POJOs that files do not describe.

    State that cannot be read is left out, and ``error`` is why: other operators may be whole. Raises InvalidInputError
    NO_ACCESS, and FLINK_TYPE as `with_subclasses`.
    """
    where = f"{files.path}, operator {label}"
    headers: dict[bytes, BackendHeader] = {}  # most subtasks have the same one
    errors: list[StateStoreError] = []

    def change(kind: FlinkType) -> FlinkType:
        if isinstance(kind, PojoOf):
            return with_subclasses(kind, subclasses)
        if not isinstance(kind, KryoOf):
            return kind
        return replace(kind, is_old=is_old, classes=() if kind.has_defaults else classes)

    def read(subtask: Subtask) -> tuple[StoredKeyed | None, StoredTimers | None, StoredElements | None]:
        keyed = timers = elements = None
        try:
            with _naming(files.path, _headers_of(subtask.managed_keyed)):
                keyed = _keyed(files, subtask.managed_keyed, headers, where)
            with _naming(files.path, _headers_of(subtask.raw_keyed)):
                timers = _timers(files, subtask.raw_keyed, where, change)
            with _naming(files.path, [] if subtask.managed_operator is None else [subtask.managed_operator.stream]):
                elements = _elements(files, subtask, where)
        except (UnsupportedError, NotFoundError, CorruptError) as error:
            errors.append(error)
        if is_old and not classes and not subclasses:
            return keyed, timers, elements
        return (_changed(keyed, change), timers, _changed(elements, change))

    found = _at_once(read, [each for each in operator.subtasks if not each.finished], files.folder.is_local)
    if is_old and _has_scala_api(found, code):
        found = [tuple(_changed(each, _with_scala) for each in parts) for parts in found]
    keyed_parts = tuple(keyed for keyed, _, _ in found if keyed is not None)
    try:
        keyed_parts = _with_keys(files, keyed_parts, operator.max_parallelism, where, is_old=is_old)
    except (UnsupportedError, NotFoundError, CorruptError) as error:
        errors.append(error)
    return StoredStates(
        keyed_parts,
        tuple(timers for _, timers, _ in found if timers is not None),
        tuple(elements for _, _, elements in found if elements is not None),
        errors[0] if errors else None,
    )


def _changed(found: Any, change: Callable[[FlinkType], FlinkType]) -> Any:
    """The stored state of a subtask, or None, with its types changed."""
    if isinstance(found, StoredTimers):
        return replace(found, services=replaced(found.services, change))
    if found is None:
        return None
    header = replaced(found.header, change)
    if not isinstance(found, StoredKeyed):
        return replace(found, header=header)
    materialized = tuple(_changed(each, change) for each in found.materialized)
    return replace(found, header=header, materialized=materialized, logged=replaced(found.logged, change))


def _has_scala_api(
    found: Sequence[tuple[StoredKeyed | None, StoredTimers | None, StoredElements | None]], code: JobCode | None
) -> bool:
    """Whether some state of an operator was written by Flink's Scala API, or the job's jars say that the job has it.

    The jars are looked at only where that counts, which is where Kryo wrote.
    """
    headers = {id(each.header): each.header for keyed, _, elements in found for each in (keyed, elements) if each}
    if any(of_scala(header) for header in headers.values()):
        return True
    return code is not None and bool(code) and any(map(of_kryo, headers.values())) and code.has_scala_api


def _with_scala(kind: FlinkType) -> FlinkType:
    return replace(kind, is_scala=True) if isinstance(kind, KryoOf) else kind


@contextmanager
def _naming(path: str, handles: Sequence[StreamHandle]) -> Iterator[None]:
    """Add the files of handles, and ``_metadata`` at ``path``, to an error inside the block that does not name them."""
    try:
        yield
    except UnsupportedError as error:
        raise naming_files(error, handles) from error
    except CorruptError as error:
        raise naming_metadata(naming_files(error, handles), path) from error


def _headers_of(handle: KeyedHandle | None) -> list[StreamHandle]:
    """The streams from which the header of keyed state is read."""
    if handle is None:
        return []
    return [stream for role, stream in handles_of_keyed(handle, "") if role not in (TABLE, OTHER)]


def _keyed(
    files: SnapshotFiles, handle: KeyedHandle | None, headers: dict[bytes, BackendHeader], where: str
) -> StoredKeyed | None:
    if handle is None:
        return None
    if isinstance(handle, UnreadableHandle):
        raise unreadable(handle, where)
    if isinstance(handle, ChangelogHandle):
        return _changelog(files, handle, headers, where)
    return _plain(files, handle, headers, where)


def _plain(
    files: SnapshotFiles, handle: KeyGroupHandle | RocksHandle, headers: dict[bytes, BackendHeader], where: str
) -> StoredKeyed:
    data = header_bytes(files, handle)
    if data not in headers:
        try:
            stream = handle.meta if isinstance(handle, RocksHandle) else handle.stream
            headers[data] = _named(files, stream, lambda path: _header(data, path, handle))
        except UnsupportedError as error:
            raise UnsupportedError(error.code, f"{where}: {error.message}") from error
    header = headers[data]
    if isinstance(handle, KeyGroupHandle) and handle.form == "heap":
        with files.open_at(handle.stream) as part:
            handle = replace(handle, form=written_form(part, handle, compressed=header.compressed))
    return StoredKeyed(handle, header)


def _header(data: bytes, path: str, handle: KeyGroupHandle | RocksHandle) -> BackendHeader:
    try:
        return read_backend_header(data, path, len(data))
    except CorruptError:
        if not (isinstance(handle, KeyGroupHandle) and handle.partial):
            raise
        return read_backend_header(data, path, None)  # key groups of others lie behind it


def _changelog(
    files: SnapshotFiles, handle: ChangelogHandle, headers: dict[bytes, BackendHeader], where: str
) -> StoredKeyed:
    materialized = [
        replace(each, partial=True) if isinstance(each, KeyGroupHandle) else each for each in handle.materialized
    ]
    bases = tuple(_plain(files, each, headers, where) for each in materialized)
    try:
        logged = logged_states(files, handle)
    except UnsupportedError as error:
        raise UnsupportedError(error.code, f"{where}: {error.message}") from error
    keys = [each.header.key for each in bases]
    keys += [each.value.key for each in logged.states if isinstance(each.value, TimerOf)]
    key = merged(keys, f"{where}: keys") if keys else UNKNOWN_KEY
    states = joined_states([*(each.header.states for each in bases), logged.states])
    return StoredKeyed(handle, BackendHeader(VERSION, False, key, states, 0), bases, logged)


def _with_keys(
    files: SnapshotFiles, parts: tuple[StoredKeyed, ...], groups: int, where: str, *, is_old: bool
) -> tuple[StoredKeyed, ...]:
    """The parts, with the type of keys where changelogs alone do not say it: other subtasks have it, or the keys."""
    unknown = [each for each in parts if each.header.key is UNKNOWN_KEY]
    if not unknown:
        return parts
    known = [each.header.key for each in parts if each.header.key is not UNKNOWN_KEY]
    if known:
        key = merged(known, f"{where}: keys")
    else:
        logs = [(each.handle, each.logged) for each in unknown if isinstance(each.handle, ChangelogHandle)]
        known_logs = [(handle, log) for handle, log in logs if log is not None]
        key = logged_key(files, known_logs, groups, is_old=is_old)
    return tuple(
        replace(each, header=replace(each.header, key=key)) if each.header.key is UNKNOWN_KEY else each
        for each in parts
    )


def _named(files: SnapshotFiles, stream: StreamHandle, read: Callable[[str], R]) -> R:
    """Return a header that was read from bytes of a stream, given a path for its errors: that of the stream's file."""
    try:
        return read(files.path)
    except StateStoreError:
        with files.open_at(stream) as part:
            path = part.path
        return read(path)


def header_bytes(files: SnapshotFiles, handle: KeyGroupHandle | RocksHandle) -> bytes:
    """The header of a backend: the bytes in front of the first key group's block, or a file of its own."""
    if isinstance(handle, RocksHandle):
        return files.read(handle.meta)
    end = min((offset for offset in handle.offsets if offset > 0), default=stream_size(handle.stream))
    with files.open_at(handle.stream) as part:
        return part.read_at(0, min(end, MAX_SMALL_BYTES))


def _timers(
    files: SnapshotFiles, handle: KeyedHandle | None, where: str, change: Callable[[FlinkType], FlinkType]
) -> StoredTimers | None:
    if handle is None:
        return None
    if not isinstance(handle, KeyGroupHandle):
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED, f"{where}: found raw keyed state of a form other than key groups in a stream"
        )
    with files.open_at(handle.stream) as part:
        services = timer_services(part, handle, where, change)
    return StoredTimers(handle, tuple(services)) if services else None


def _elements(files: SnapshotFiles, subtask: Subtask, where: str) -> StoredElements | None:
    handle = subtask.managed_operator
    if handle is None:
        return None
    offsets = [offset for state in handle.states for offset in state.offsets]
    with files.open_at(handle.stream) as part:
        data = part.read_at(0, min(min(offsets, default=part.size), MAX_SMALL_BYTES))
    try:
        header = _named(files, handle.stream, lambda path: read_operator_header(data, path, len(data)))
    except UnsupportedError as error:
        raise UnsupportedError(error.code, f"{where}: {error.message}") from error
    known = {each.name for each in header.states} | {each.name for each in header.broadcasts}
    unknown = [each.name for each in handle.states if each.offsets and each.name not in known]
    if unknown:
        raise CorruptError(
            ErrorCode.FLINK_METADATA,
            f"{where}: found elements of operator state {shown(unknown[0])}, expected only those of "
            f"{', '.join(map(shown, sorted(known))) or 'no state'}; restore the file from a copy",
        )
    return StoredElements(subtask.index, handle, header)


def _at_once(work: Callable[[P], R], pieces: Sequence[P], is_local: bool) -> list[R]:
    if is_local or len(pieces) < 2:
        return [work(piece) for piece in pieces]
    with ThreadPoolExecutor(min(len(pieces), PARALLEL_REQUESTS)) as pool:
        return list(pool.map(work, pieces))


def header_of(known: Sequence[KeyedStateHeader], own: KeyedStateHeader) -> int:
    """The place of a subtask's header of a state among those of `StoredStates.keyed_states`."""
    return next(number for number, each in enumerate(known) if _joined(each.value, own.value) == each.value)


def only_header(known: Sequence[KeyedStateHeader]) -> KeyedStateHeader:
    """The header of a state that all subtasks wrote in one type. Raises UnsupportedError FLINK_UNSUPPORTED."""
    if len(known) > 1:
        raise _differ(f"state {known[0].name!r}", [shown_type(each.value) for each in known])
    return known[0]


def _distinct(states: Sequence[KeyedStateHeader]) -> tuple[KeyedStateHeader, ...]:
    first = states[0]
    if all(each == first for each in states):
        return (first,)
    what = f"state {first.name!r}"
    if any(each.kind != first.kind for each in states):
        raise _differ(what, [each.kind for each in states])
    namespace = merged([each.namespace for each in states], what)
    values: list[FlinkType] = []
    for each in states:
        for number, value in enumerate(values):
            joined = _joined(value, each.value)
            if joined is not None:
                values[number] = joined
                break
        else:
            values.append(each.value)
    return tuple(dataclasses.replace(first, namespace=namespace, value=value) for value in values)


def merged(kinds: Iterable[FlinkType], what: str) -> FlinkType:
    """One type for the values of all subtasks. They may know different subclasses of a POJO, and nothing else.

    Raises UnsupportedError FLINK_UNSUPPORTED; ``what`` names the state.
    """
    first, *others = kinds
    for other in others:
        joined = _joined(first, other)
        if joined is None:
            raise _differ(what, [type(first).__name__, type(other).__name__])
        first = joined
    return first


def _joined(left: Any, right: Any) -> Any:
    """The one of two types that has the subclasses of both; None where they differ otherwise."""
    if left == right:
        return left
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        parts = [_joined(one, other) for one, other in zip(left, right, strict=True)]
        return None if any(part is None for part in parts) else tuple(parts)
    if type(left) is not type(right) or not isinstance(left, FlinkType) or not dataclasses.is_dataclass(left):
        return None
    changed = {}
    for each in dataclasses.fields(left):
        one, other = getattr(left, each.name), getattr(right, each.name)
        if isinstance(left, PojoOf) and each.name == "unregistered":
            changed[each.name] = _subclasses(one, other)
        elif one != other:
            changed[each.name] = _joined(one, other)
        if changed.get(each.name, ()) is None:
            return None
    return dataclasses.replace(left, **changed)


def _subclasses(left: tuple[tuple[str, Any], ...], right: tuple[tuple[str, Any], ...]) -> Any:
    found = dict(left)
    for name, kind in right:
        mine = found.get(name, kind)
        if isinstance(kind, PojoOf) and isinstance(mine, PojoOf) and mine.is_declared is not kind.is_declared:
            found[name] = kind if mine.is_declared else mine  # what a file says counts for more than what a user does
        else:
            found[name] = _joined(mine, kind)
    return None if None in found.values() else tuple(sorted(found.items()))


def _differ(what: str, kinds: Sequence[str]) -> UnsupportedError:
    return UnsupportedError(
        ErrorCode.FLINK_UNSUPPORTED,
        f"{what} has other types in some subtasks ({', '.join(dict.fromkeys(kinds))}), expected the same in all; "
        f"{SAME_TYPES}",
    )

"""Headers of state backends: name, kind and types of every state, and the key's type of a keyed backend.

That of a keyed backend opens the key-group streams of savepoints and heap checkpoints, and is the whole metadata file
of RocksDB's checkpoints. An operator backend has lists of elements and broadcast maps that belong to no key. Source:
``KeyedBackendSerializationProxy``, ``OperatorBackendSerializationProxy``, ``StateMetaInfoSnapshotReadersWriters``,
``RegisteredOperatorStateBackendMetaInfo`` and ``RegisteredBroadcastStateBackendMetaInfo`` of Flink.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.serializers.flink_types import VOID, FlinkType, ListOf, MapOf, Opaque, TimerOf
from statestore.formats.flink.serializers.snapshot_input import SnapshotInput
from statestore.formats.flink.serializers.snapshots import proxied_snapshot
from statestore.formats.flink.serializers.unknown_lengths import Unit, read_units
from statestore.formats.flink.snapshot.data_input import DataInput

StateKind = Literal["value", "list", "map", "reducing", "aggregating", "timers", "unknown"]

VERSION = 6
_MOST_VERSION = 100
LEAST_STATE = 14
_KINDS: Mapping[str, StateKind] = {
    "VALUE": "value",
    "FOLDING": "value",
    "LIST": "list",
    "MAP": "map",
    "REDUCING": "reducing",
    "AGGREGATING": "aggregating",
}
UNKNOWN_MAP_KEY = Opaque("", "a snapshot, which does not name the serializer of map keys")
BACKEND_KINDS = ("KEY_VALUE", "OPERATOR", "BROADCAST", "PRIORITY_QUEUE", "KEY_VALUE_V2")


@dataclass(frozen=True)
class KeyedStateHeader:
    """A keyed state. Its place among `BackendHeader.states` is its id in key-group streams.

    ``value`` is the whole type: that of a list state is a `ListOf`, that of a map state a `MapOf`, that of timers a
    `TimerOf`. ``options`` are Flink's, by name. ``is_second``: it is a state of Flink's second API, as ForSt writes it.
    """

    name: str
    kind: StateKind
    namespace: FlinkType
    value: FlinkType
    options: Mapping[str, str]
    is_second: bool = False


@dataclass(frozen=True)
class BackendHeader:
    """The header of a keyed backend. ``compressed``: key groups of savepoints and heap checkpoints are; ``end`` is the
    byte behind the header, ``starts`` are the bytes at which the states begin.
    """

    version: int
    compressed: bool
    key: FlinkType
    states: tuple[KeyedStateHeader, ...]
    end: int
    starts: tuple[int, ...] = ()


@dataclass(frozen=True)
class StateMeta:
    """The content of a ``StateMetaInfoSnapshot``: ``kind`` is one of `BACKEND_KINDS`, ``types`` are by role,
    ``start`` is the byte at which it begins, ``stop`` the one behind it.
    """

    name: str
    kind: str
    options: Mapping[str, str]
    types: Mapping[str, FlinkType]
    start: int
    stop: int


@dataclass(frozen=True)
class _Start:
    version: int
    compressed: bool
    key: FlinkType
    count: int


def read_backend_header(data: bytes, path: str, end: int | None) -> BackendHeader:
    """The header at the start of ``data``.

    ``end`` is the byte where it ends, where that is known: the offset of the first key group, or the size of RocksDB's
    metadata file. It lets the header be read past serializers that are not Flink's. Raises CorruptError FLINK_METADATA
    for damaged bytes, UnsupportedError FLINK_UNSUPPORTED for another version, a state of Flink's second API, or a
    serializer whose end cannot be told.
    """
    done, at = read_units(data, path, end, _next_unit)
    start: _Start = done[0]
    states = tuple(keyed_header(meta, path) for meta in done[1:])
    starts = tuple(meta.start for meta in done[1:])
    return BackendHeader(start.version, start.compressed, start.key, states, at, starts)


def _next_unit(done: Sequence[Any]) -> tuple[Hashable, Unit] | None:
    if not done:
        return "start", _start
    left = done[0].count - len(done) + 1
    return (left, read_state_meta) if left else None


def _start(source: SnapshotInput) -> _Start:
    data = source.data
    version = data.i32("the version of a keyed backend")
    check_version(data, "a keyed backend", version, (VERSION,))
    compressed = data.boolean("whether key groups are compressed")
    key = proxied_snapshot(source)
    return _Start(version, compressed, key, state_count(data))


def state_count(data: DataInput) -> int:
    """int16 number of states."""
    return data.count(data.i16("the number of states"), LEAST_STATE, "states")


def check_version(data: DataInput, what: str, version: int, expected: tuple[int, ...]) -> None:
    """Raise UnsupportedError FLINK_UNSUPPORTED for a header of another version, CorruptError FLINK_METADATA for a
    number that no release counts to.
    """
    if version in expected:
        return
    found = f"found version {version} of the header of {what}, expected {' or '.join(map(str, expected))}"
    if not 0 < version <= _MOST_VERSION:
        raise data.error(found)
    raise UnsupportedError(ErrorCode.FLINK_UNSUPPORTED, f"{data.path}: {found}; take a savepoint with Flink 1.8 to 2.3")


def read_state_meta(source: SnapshotInput) -> StateMeta:
    """utf name | int32 kind | options | serializers by role (``CurrentReaderImpl``)."""
    data = source.data
    start = data.at
    name = data.utf("the name of a state")
    number = data.i32("the kind of a state")
    if not 0 <= number < len(BACKEND_KINDS):
        raise data.error(f"found kind {number} of state {name[:80]!r}, expected 0 to {len(BACKEND_KINDS) - 1}")
    options: dict[str, str] = {}
    for _ in range(data.count(data.i32("the number of options"), 4, "options")):
        option = data.utf("an option's name")
        options[option] = data.utf("an option's value")
    types: dict[str, FlinkType] = {}
    for _ in range(data.count(data.i32("the number of serializers"), LEAST_STATE - 1, "serializers")):
        role = data.utf("a serializer's role")
        if not role.endswith("_SERIALIZER") or role in types:
            raise data.error(f"found a serializer with role {role[:80]!r} in state {name[:80]!r}")
        types[role] = proxied_snapshot(source)
    return StateMeta(name, BACKEND_KINDS[number], options, types, start, data.at)


def role_of(meta: StateMeta, role: str, path: str) -> FlinkType:
    """The type with a role. Raises CorruptError FLINK_METADATA if there is none."""
    if role not in meta.types:
        found = ", ".join(meta.types) or "none"
        problem = f"found state {meta.name!r} of kind {meta.kind} with serializers {found}, expected {role}"
        raise DataInput(b"", path).error(problem)
    return meta.types[role]


def keyed_header(meta: StateMeta, path: str) -> KeyedStateHeader:
    """The state of a keyed backend. Raises CorruptError FLINK_METADATA, UnsupportedError FLINK_UNSUPPORTED."""
    if meta.kind == "KEY_VALUE_V2":
        return _second_state(meta, path)
    value = role_of(meta, "VALUE_SERIALIZER", path)
    if meta.kind == "PRIORITY_QUEUE":
        namespace = value.namespace if isinstance(value, TimerOf) else VOID
        return KeyedStateHeader(meta.name, "timers", namespace, value, meta.options)
    if meta.kind != "KEY_VALUE":
        problem = f"found state {meta.name!r} of kind {meta.kind} in a keyed backend, expected KEY_VALUE"
        raise DataInput(b"", path).error(problem)
    kind = _KINDS.get(meta.options.get("KEYED_STATE_TYPE", ""), "unknown")
    namespace = role_of(meta, "NAMESPACE_SERIALIZER", path)
    return KeyedStateHeader(meta.name, kind, namespace, value, meta.options)


def _second_state(meta: StateMeta, path: str) -> KeyedStateHeader:
    """A state of Flink's second API. Its serializers are those of an element of a list, and of a map's keys and values
    (``RegisteredKeyAndUserKeyValueStateBackendMetaInfo``)."""
    kind = _KINDS.get(meta.options.get("KEYED_STATE_TYPE", ""), "unknown")
    namespace = role_of(meta, "NAMESPACE_SERIALIZER", path)
    value = role_of(meta, "VALUE_SERIALIZER", path)
    if kind == "list":
        value = ListOf(value)
    elif kind == "map":
        value = MapOf(meta.types.get("USER_KEY_SERIALIZER", UNKNOWN_MAP_KEY), value)
    return KeyedStateHeader(meta.name, kind, namespace, value, meta.options, is_second=True)


# Headers of operator backends


OperatorStateMode = Literal["split", "union", "broadcast"]
_MODES: Mapping[str, OperatorStateMode] = {"SPLIT_DISTRIBUTE": "split", "UNION": "union", "BROADCAST": "broadcast"}
_SNAPPY = b"\xff\x06\0\0sNaPpY"


@dataclass(frozen=True)
class OperatorStateHeader:
    """A list state: how Flink spreads its elements over subtasks, and the elements' type."""

    name: str
    mode: OperatorStateMode
    element: FlinkType


@dataclass(frozen=True)
class BroadcastHeader:
    """A broadcast map, which every subtask has as a whole."""

    name: str
    mode: OperatorStateMode
    key: FlinkType
    value: FlinkType


@dataclass(frozen=True)
class OperatorHeader:
    """The header of an operator backend. ``compressed``: the states behind it are (snappy); ``end`` is the byte behind
    the header, ``spans`` are the first byte of each list and then broadcast map and the byte behind it.
    """

    version: int
    compressed: bool
    states: tuple[OperatorStateHeader, ...]
    broadcasts: tuple[BroadcastHeader, ...]
    end: int
    spans: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _OperatorStart:
    version: int
    compressed: bool
    count: int


def read_operator_header(data: bytes, path: str, end: int | None) -> OperatorHeader:
    """The header at the start of ``data``; ``end`` is the least offset of an element, where that is known, or the
    number of bytes of a file without elements. No bytes at all are an operator without state in a merged file.

    Where state is compressed, the identifier of a snappy stream stands between the header and the first element. Raises
    CorruptError FLINK_METADATA for damaged bytes, UnsupportedError FLINK_UNSUPPORTED for another version or a
    serializer whose end cannot be told.
    """
    if not data and end == 0:
        return OperatorHeader(VERSION, False, (), (), 0)
    while end is not None and data.endswith(_SNAPPY, 0, end):
        end -= len(_SNAPPY)
    done, at = read_units(data, path, end, _next_of_operator)
    start: _OperatorStart = done[0]
    between = 1 + start.count
    states = tuple(_list_state(meta, path) for meta in done[1:between])
    broadcasts = tuple(_broadcast(meta, path) for meta in done[between + 1 :])
    spans = tuple((meta.start, meta.stop) for meta in (*done[1:between], *done[between + 1 :]))
    return OperatorHeader(start.version, start.compressed, states, broadcasts, at, spans)


def _next_of_operator(done: Sequence[Any]) -> tuple[Hashable, Unit] | None:
    if not done:
        return "start", _start_of_operator
    lists = done[0].count
    if len(done) <= lists:
        return ("list", lists - len(done)), read_state_meta
    if len(done) == lists + 1:
        return "broadcasts", lambda source: state_count(source.data)
    left = done[lists + 1] - (len(done) - lists - 2)
    return (("broadcast", left), read_state_meta) if left else None


def _start_of_operator(source: SnapshotInput) -> _OperatorStart:
    data = source.data
    version = data.i32("the version of an operator backend")
    check_version(data, "an operator backend", version, (5, VERSION))
    compressed = data.boolean("whether operator state is compressed") if version >= 6 else False
    return _OperatorStart(version, compressed, state_count(data))


def _mode(meta: StateMeta, path: str) -> OperatorStateMode:
    found = meta.options.get("OPERATOR_STATE_DISTRIBUTION_MODE", "")
    if found in _MODES:
        return _MODES[found]
    raise DataInput(b"", path).error(f"found distribution mode {found[:80]!r} of operator state {meta.name!r}")


def _list_state(meta: StateMeta, path: str) -> OperatorStateHeader:
    if meta.kind != "OPERATOR":
        raise DataInput(b"", path).error(f"found state {meta.name!r} of kind {meta.kind}, expected OPERATOR")
    return OperatorStateHeader(meta.name, _mode(meta, path), role_of(meta, "VALUE_SERIALIZER", path))


def _broadcast(meta: StateMeta, path: str) -> BroadcastHeader:
    if meta.kind != "BROADCAST":
        raise DataInput(b"", path).error(f"found state {meta.name!r} of kind {meta.kind}, expected BROADCAST")
    key, value = role_of(meta, "KEY_SERIALIZER", path), role_of(meta, "VALUE_SERIALIZER", path)
    return BroadcastHeader(meta.name, _mode(meta, path), key, value)

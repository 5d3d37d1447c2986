"""The header of a keyed state backend: the key's type, and name, kind and types of every state.

It opens the key-group streams of savepoints and heap checkpoints, and is the whole metadata file of RocksDB's
checkpoints. Source: ``KeyedBackendSerializationProxy`` and ``StateMetaInfoSnapshotReadersWriters`` of Flink.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.serializers.flink_types import Basic, FlinkType, TimerOf
from statestore.formats.flink.serializers.header_units import Unit, read_units
from statestore.formats.flink.serializers.snapshot_input import SnapshotInput
from statestore.formats.flink.serializers.snapshots import proxied_snapshot
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
BACKEND_KINDS = ("KEY_VALUE", "OPERATOR", "BROADCAST", "PRIORITY_QUEUE", "KEY_VALUE_V2")
_VOID = Basic("void")


@dataclass(frozen=True)
class KeyedStateHeader:
    """A keyed state. Its place among `BackendHeader.states` is its id in key-group streams.

    ``value`` is the whole type: that of a list state is a `ListOf`, that of a map state a `MapOf`, that of timers a
    `TimerOf`. ``options`` are Flink's, by name.
    """

    name: str
    kind: StateKind
    namespace: FlinkType
    value: FlinkType
    options: Mapping[str, str]


@dataclass(frozen=True)
class BackendHeader:
    """The header of a keyed backend. ``compressed``: key groups of savepoints and heap checkpoints are; ``end`` is the
    byte behind the header.
    """

    version: int
    compressed: bool
    key: FlinkType
    states: tuple[KeyedStateHeader, ...]
    end: int


@dataclass(frozen=True)
class StateMeta:
    """The content of a ``StateMetaInfoSnapshot``: ``kind`` is one of `BACKEND_KINDS`, ``types`` are by role."""

    name: str
    kind: str
    options: Mapping[str, str]
    types: Mapping[str, FlinkType]


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
    states = tuple(_state(meta, path) for meta in done[1:])
    return BackendHeader(start.version, start.compressed, start.key, states, at)


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
    raise UnsupportedError(
        ErrorCode.FLINK_UNSUPPORTED, f"{data.path}: {found}; take a savepoint with Flink 1.11 to 2.3"
    )


def read_state_meta(source: SnapshotInput) -> StateMeta:
    """utf name | int32 kind | options | serializers by role (``CurrentReaderImpl``)."""
    data = source.data
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
    return StateMeta(name, BACKEND_KINDS[number], options, types)


def role_of(meta: StateMeta, role: str, path: str) -> FlinkType:
    """The type with a role. Raises CorruptError FLINK_METADATA if there is none."""
    if role not in meta.types:
        found = ", ".join(meta.types) or "none"
        problem = f"found state {meta.name!r} of kind {meta.kind} with serializers {found}, expected {role}"
        raise DataInput(b"", path).error(problem)
    return meta.types[role]


def _state(meta: StateMeta, path: str) -> KeyedStateHeader:
    if meta.kind == "KEY_VALUE_V2":
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{path}: state {meta.name!r} belongs to Flink's second state API (KEY_VALUE_V2, disaggregated state), "
            "which cannot be read; use the first state API, or a job without asynchronous state",
        )
    value = role_of(meta, "VALUE_SERIALIZER", path)
    if meta.kind == "PRIORITY_QUEUE":
        namespace = value.namespace if isinstance(value, TimerOf) else _VOID
        return KeyedStateHeader(meta.name, "timers", namespace, value, meta.options)
    if meta.kind != "KEY_VALUE":
        problem = f"found state {meta.name!r} of kind {meta.kind} in a keyed backend, expected KEY_VALUE"
        raise DataInput(b"", path).error(problem)
    kind = _KINDS.get(meta.options.get("KEYED_STATE_TYPE", ""), "unknown")
    namespace = role_of(meta, "NAMESPACE_SERIALIZER", path)
    return KeyedStateHeader(meta.name, kind, namespace, value, meta.options)

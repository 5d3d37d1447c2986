"""The header of an operator state backend: lists of elements and broadcast maps that belong to no key.

Source: ``OperatorBackendSerializationProxy``, ``RegisteredOperatorStateBackendMetaInfo`` and
``RegisteredBroadcastStateBackendMetaInfo`` of Flink.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from statestore.formats.flink.serializers.backend_header import (
    VERSION,
    StateMeta,
    check_version,
    read_state_meta,
    role_of,
    state_count,
)
from statestore.formats.flink.serializers.flink_types import FlinkType
from statestore.formats.flink.serializers.header_units import Unit, read_units
from statestore.formats.flink.serializers.snapshot_input import SnapshotInput
from statestore.formats.flink.snapshot.data_input import DataInput

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
    the header.
    """

    version: int
    compressed: bool
    states: tuple[OperatorStateHeader, ...]
    broadcasts: tuple[BroadcastHeader, ...]
    end: int


@dataclass(frozen=True)
class _Start:
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
    done, at = read_units(data, path, end, _next_unit)
    start: _Start = done[0]
    between = 1 + start.count
    states = tuple(_list_state(meta, path) for meta in done[1:between])
    broadcasts = tuple(_broadcast(meta, path) for meta in done[between + 1 :])
    return OperatorHeader(start.version, start.compressed, states, broadcasts, at)


def _next_unit(done: Sequence[Any]) -> tuple[Hashable, Unit] | None:
    if not done:
        return "start", _start
    lists = done[0].count
    if len(done) <= lists:
        return ("list", lists - len(done)), read_state_meta
    if len(done) == lists + 1:
        return "broadcasts", lambda source: state_count(source.data)
    left = done[lists + 1] - (len(done) - lists - 2)
    return (("broadcast", left), read_state_meta) if left else None


def _start(source: SnapshotInput) -> _Start:
    data = source.data
    version = data.i32("the version of an operator backend")
    check_version(data, "an operator backend", version, (5, VERSION))
    compressed = data.boolean("whether operator state is compressed") if version >= 6 else False
    return _Start(version, compressed, state_count(data))


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

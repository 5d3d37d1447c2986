"""States that a changelog describes: each is logged before its first change, and changes have its number.

    description  byte op, 8 or 9 | version:int32 | the state, as in headers | of keyed states: bool ttl, and a Java
                 object if so | bool default, and a value if so | number:int16 | kind:byte

Numbers are those of one backend: after a restore, other states may have them, which are described before they change.
The type of keys is nowhere in a changelog, but within that of timers. Source: ``AbstractStateChangeLogger``,
``KvStateChangeLoggerImpl`` and ``ChangelogBackendLogApplier`` of Flink.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from statestore.formats.bytes.byte_columns import Cells
from statestore.formats.error_codes import ErrorCode
from statestore.formats.errors import UnsupportedError
from statestore.formats.flink.serializers.backend_header import KeyedStateHeader, keyed_header, read_state_meta
from statestore.formats.flink.serializers.unknown_lengths import Unit, read_units
from statestore.formats.flink.snapshot.data_input import DataInput
from statestore.formats.flink.snapshot.handles import ChangelogHandle
from statestore.formats.flink.snapshot.snapshot_files import SnapshotFiles
from statestore.formats.flink.streams.block_bytes import damaged
from statestore.formats.flink.streams.change_sets import DESCRIPTION, read_changes
from statestore.formats.kernels.arrays import Ints

META_VERSIONS = (6, 7)
"""Versions of a state's description (``StateMetaInfoSnapshotReadersWriters``), which are read alike."""
_OPERATIONS = (8, 9)
_KEYED, _QUEUE = 0, 3
_BEHIND = 3  # the number and the kind
HEAD_BYTES = 3  # of a change: the operation and the number of its state
_NO_DEFAULTS = b"\0\0"  # neither a time to live nor a default value


@dataclass(frozen=True)
class LoggedStates:
    """The states that a changelog describes, each as it was last described, and which state has which number: from
    set ``set`` on, number ``number`` is the state of that name, as (set, number, name) in ``numbers``. ``stored`` has
    the bytes of the states, as in headers.
    """

    states: tuple[KeyedStateHeader, ...]
    numbers: tuple[tuple[int, int, str], ...]
    stored: tuple[bytes, ...] = ()

    def names(self, sets: int) -> list[dict[int, str]]:
        """The names of the states in each set of changes, by their numbers there."""
        current: dict[int, str] = {}
        found = []
        ordered = iter([*self.numbers, (sets, 0, "")])
        at, number, described = next(ordered)
        for each in range(sets):
            while at <= each:
                current[number] = described
                at, number, described = next(ordered)
            found.append(dict(current))
        return found


def logged_states(files: SnapshotFiles, handle: ChangelogHandle) -> LoggedStates:
    """Read all descriptions of a changelog.

    Raises CorruptError FLINK_FILE and FLINK_METADATA, UnsupportedError FLINK_UNSUPPORTED, and the errors of
    `SnapshotFiles.open_at`.
    """
    states: dict[str, KeyedStateHeader] = {}
    numbers: list[tuple[int, int, str]] = []
    known: dict[bytes, tuple[KeyedStateHeader, bytes]] = {}
    stored: dict[str, bytes] = {}
    described: set[int] = set()
    for changes in read_changes(files, handle.changes, described=True):
        for place in (changes.groups == DESCRIPTION).nonzero()[0].tolist():
            data = changes.cells.cell(place)
            body = data[:-_BEHIND]
            if body not in known:
                known[body] = _described(data, files.path)
            state, octets = known[body]
            states[state.name], stored[state.name] = state, octets
            number = int.from_bytes(data[-3:-1], "big", signed=True)
            numbers.append((changes.number, number, state.name))
            described.add(number)
        check_described(changes.cells.select(changes.groups >= 0), described, files.path)
    return LoggedStates(tuple(states.values()), tuple(numbers), tuple(stored.values()))


def check_described(changes: Cells, described: Collection[int], path: str) -> Ints:
    """Return the number of the state of each change; all of them must be described.

    Raises CorruptError FLINK_FILE. Flink describes a state in front of its first change.
    """
    changes.require(HEAD_BYTES, "a change", lambda found: damaged(path, found))
    numbers = changes.numbers(1, ">i2")
    strange = ~np.isin(numbers, list(described))
    if strange.any():
        raise damaged(path, f"found a change of state {numbers[strange][0]}, which no change before it describes")
    return numbers


def _described(data: bytes, path: str) -> tuple[KeyedStateHeader, bytes]:
    """The state that a description is about, and its bytes."""
    source = DataInput(data, f"{path}, changelog")
    operation = source.u8("an operation")
    if operation not in _OPERATIONS:
        raise source.error(f"found operation {operation} that describes a state, expected 8 or 9", 0)
    version = source.i32("the version of a state's description")
    if version not in META_VERSIONS:
        raise UnsupportedError(
            ErrorCode.FLINK_UNSUPPORTED,
            f"{source.path}: found version {version} of a state's description, expected 6 or 7; take a "
            "canonical savepoint of the job",
        )
    if data[-1] not in (_KEYED, _QUEUE):
        raise source.error(f"found kind {data[-1]} of a state, expected {_KEYED} or {_QUEUE}", len(data) - 1)
    for end in _ends(data):
        body = data[source.at : end]
        try:
            (meta,), stop = read_units(body, source.path, None if end is None else len(body), _one)
        except UnsupportedError:
            if end is not None:
                raise
            continue
        return keyed_header(meta, source.path), body[:stop]
    raise AssertionError("the last way to read a description raises")


def _ends(data: bytes) -> Iterator[int | None]:
    """Where a description may end: unknown, unless a serializer of the job's own must be stepped over."""
    yield None
    behind = _BEHIND + (0 if data[-1] == _QUEUE else len(_NO_DEFAULTS))
    yield max(len(data) - behind, 5)


def _one(done: Sequence[Any]) -> tuple[Hashable, Unit] | None:
    return None if done else ("state", read_state_meta)


def joined_states(parts: Sequence[Sequence[KeyedStateHeader]]) -> tuple[KeyedStateHeader, ...]:
    """The states of several headers, in the order in which they are first met, each as the last one has it."""
    found: dict[str, KeyedStateHeader] = {}
    for states in parts:
        for each in states:
            found[each.name] = each
    return tuple(found.values())
